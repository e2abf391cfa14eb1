"""EM in mini-batches: an M-step after each batch, from statistics averaged over batches (Cappé and Moulines 2009).

``S <- (1 - η) S + η s``, with ``s`` the statistics a frame of the newest batch. The first batch has η = 1; after t others it is
``max((t + 2)^-decay, share)``, where ``share`` is the batch's part of an epoch: what is older than an epoch need not be
remembered, and one batch an epoch is plain EM.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from seqmodels.distributed import share
from seqmodels.hmm.baum_welch import Expectations, Fitted, Memory, Schedule, everywhere, log_prior, maximise
from seqmodels.hmm.constraints import Constraints
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.pieces import Batch, Corpus
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.hmm.streams import expect_pieces
from seqmodels.training import Checkpoints, Interruption, interruptible


@dataclass(frozen=True)
class Steps:
    """How a batch becomes a step.

    Attributes:
        decay: κ; 1 averages all batches alike, towards 0.5 the newest count more.
        n_frames: by weight, of all data; None: of what was seen so far. Priors weigh against that many.
    """

    emission: Emission
    pseudocount: float | Pseudocounts
    constraints: Constraints
    decay: float
    n_frames: float | None = None

    def take(
        self, parameters: Parameters, memory: Memory | None, found: Expectations, n_frames: float
    ) -> tuple[Parameters, Memory]:
        """One M-step, from what is remembered and one more batch."""
        least = 0.0 if self.n_frames is None else n_frames / self.n_frames
        if memory is None:
            kept = Memory.of(found, n_frames)
        else:
            kept = memory.add(found, n_frames, decay=self.decay, least=least)
        whole = kept.mean.scaled(self.n_frames or kept.n_frames)
        return maximise(parameters, self.emission, whole, self.pseudocount, self.constraints), kept

    def log_prior(self, parameters: Parameters) -> float:
        """Nats."""
        return log_prior(parameters, self.emission, self.pseudocount, self.constraints)


def stepwise_em(
    parameters: Parameters,
    steps: Steps,
    corpus: Corpus,
    batches: list[Batch],
    *,
    schedule: Schedule,
    n_units: float,
    log_det: float,
    observe: Callable[[dict[str, float]], None],
    checkpoints: Checkpoints | None = None,
) -> Fitted | None:
    """Epochs of M-steps until one improves too little; ``schedule`` counts epochs. None: a signal came before the first M-step.

    The history has a line an epoch: ``log_prob`` is that of each batch under the parameters it found, ``objective`` adds the
    prior of those before the epoch. An early line may be below the one before it; the last M-step is in none. A signal ends it
    between two groups of pieces; the last line is then of the batches that the epoch had.
    """
    kept, at, began = checkpoints or Checkpoints(), _Epoch(parameters, parameters), time.perf_counter()
    rows, converged, memory = list[dict[str, float]](), False, None
    if kept.state is not None:
        at, memory = _Epoch.of(kept.state, parameters.initial.device), _restored(kept.state, parameters.initial.device)
        rows, began = list(kept.state["rows"]), began - kept.state["seconds"]
    sizes = [corpus.n_frames(batch) for batch in batches]

    def state() -> dict[str, Any]:
        seconds = time.perf_counter() - began
        return {**at.state(), "memory": memory and memory.arrays(), "rows": rows, "seconds": seconds}

    with interruptible() as interruption:
        while at.number < schedule.max_iter and not converged:
            seconds, out_of_time = time.perf_counter() - began, False
            prior = steps.log_prior(at.first)
            for batch, size in zip(batches[at.taken :], sizes[at.taken :], strict=True):
                own = expect_batch(at.parameters, steps.emission, corpus, batch, interruption)
                if own is None:
                    break
                # When to stop hangs on the clock and the rounding of process 0 alone, or one would stop without the others.
                (found,), (seconds, prior) = everywhere([own], [time.perf_counter() - began, prior])
                at.parameters, memory = steps.take(at.parameters, memory, found, size)
                at.log_prob, at.seen, at.taken = at.log_prob + found.log_prob, at.seen + size, at.taken + 1
                interruption.hold()
                if out_of_time := schedule.max_seconds is not None and seconds > schedule.max_seconds:
                    break
                if interruption.asked:
                    break
                if kept.due:
                    kept.write(state())
            if interruption.asked:
                kept.write(state())
            if not at.taken:
                break
            score = (at.log_prob * sum(sizes) / at.seen + log_det) / n_units
            objective = score + prior / n_units
            hits = int(steps.emission.floor_hits(at.parameters.table).sum())
            row = {"step": at.number, "seconds": seconds, "log_prob": score, "objective": objective, "floor_hits": hits}
            before = rows[-1]["objective"] if rows else -math.inf
            rows.append(row)
            observe(row)
            converged = schedule.tol > 0 and objective - before < schedule.tol
            if out_of_time or interruption.asked:
                break
            at = _Epoch(at.parameters, at.parameters, at.number + 1)
    return Fitted(at.parameters, pd.DataFrame(rows), converged, memory, interruption.asked) if rows else None


@dataclass
class _Epoch:
    """An epoch so far: its first parameters and those now, its batches ``taken``, their log-probability and their frames by weight."""

    first: Parameters
    parameters: Parameters
    number: int = 0
    taken: int = 0
    log_prob: float = 0.0
    seen: float = 0.0

    def state(self) -> dict[str, Any]:
        """To be stored."""
        first, now = (p.to(torch.device("cpu")).arrays() for p in (self.first, self.parameters))
        figures = {"number": self.number, "taken": self.taken, "log_prob": self.log_prob, "seen": self.seen}
        return {"first": first, "parameters": now, **figures}

    @classmethod
    def of(cls, state: Mapping[str, Any], device: torch.device) -> _Epoch:
        """What ``state`` returned."""
        first, now = (Parameters.of(state[name]).to(device) for name in ("first", "parameters"))
        return cls(first, now, state["number"], state["taken"], state["log_prob"], state["seen"])


def _restored(state: Mapping[str, Any], device: torch.device) -> Memory | None:
    return None if state["memory"] is None else Memory.restored(state["memory"], device)


def expect_batch(
    parameters: Parameters, emission: Emission, corpus: Corpus, batch: Batch, interruption: Interruption | None = None
) -> Expectations | None:
    """The E-step on what this process has of a batch, a group of pieces at a time; None if a signal came between two groups."""
    parts = [part for part in map(share, batch) if part]
    if not parts:  # the pieces are fewer than the processes: this one adds nothing
        return expect_pieces(parameters, emission, corpus, batch[0][:1]).scaled(0.0)
    found = expect_pieces(parameters, emission, corpus, parts[0])
    for group in parts[1:]:
        if interruption is not None and interruption.asked:
            return None
        found = found + expect_pieces(parameters, emission, corpus, group)
    return found

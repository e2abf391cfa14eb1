"""EM in mini-batches: an M-step after each batch, from statistics averaged over batches (Cappé and Moulines 2009).

``S <- (1 - η) S + η s``, with ``s`` the statistics a frame of the newest batch. The first batch has η = 1; after t others it is
``max((t + 2)^-decay, share)``, where ``share`` is the batch's part of an epoch: what is older than an epoch need not be
remembered, and one batch an epoch is plain EM.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from seqmodels.distributed import share
from seqmodels.hmm.baum_welch import Expectations, Fitted, Memory, Schedule, everywhere, log_prior, maximise
from seqmodels.hmm.constraints import Constraints
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.pieces import Batch, Corpus
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.hmm.streams import expect_pieces


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
) -> Fitted:
    """Epochs of M-steps until one improves too little; ``schedule`` counts epochs.

    The history has a line an epoch: ``log_prob`` is that of each batch under the parameters it found, ``objective`` adds the
    prior of those before the epoch. An early line may be below the one before it; the last M-step is in none.
    """
    began, rows, converged, before = time.perf_counter(), list[dict[str, float]](), False, -math.inf
    memory: Memory | None = None
    sizes = [corpus.n_frames(batch) for batch in batches]
    for epoch in range(schedule.max_iter):
        prior, log_prob, seen, seconds = steps.log_prior(parameters), 0.0, 0.0, 0.0
        for batch, size in zip(batches, sizes, strict=True):
            found = expect_batch(parameters, steps.emission, corpus, batch)
            # When to stop hangs on the clock and the rounding of process 0 alone, or one would stop without the others.
            (found,), (seconds, prior) = everywhere([found], [time.perf_counter() - began, prior])
            parameters, memory = steps.take(parameters, memory, found, size)
            log_prob, seen = log_prob + found.log_prob, seen + size
            if out_of_time := schedule.max_seconds is not None and seconds > schedule.max_seconds:
                break
        score = (log_prob * sum(sizes) / seen + log_det) / n_units
        objective = score + prior / n_units
        hits = int(steps.emission.floor_hits(parameters.table).sum())
        rows.append({"step": epoch, "seconds": seconds, "log_prob": score, "objective": objective, "floor_hits": hits})
        observe(rows[-1])
        converged = schedule.tol > 0 and objective - before < schedule.tol
        before = objective
        if converged or out_of_time:
            break
    assert memory is not None, "there is at least one epoch"
    return Fitted(parameters, pd.DataFrame(rows), converged, memory)


def expect_batch(parameters: Parameters, emission: Emission, corpus: Corpus, batch: Batch) -> Expectations:
    """The E-step on what this process has of a batch, a group of pieces in memory at a time."""
    own = [part for part in map(share, batch) if part]
    if not own:  # the pieces are fewer than the processes: this one adds nothing
        return expect_pieces(parameters, emission, corpus, batch[0][:1]).scaled(0.0)
    found = expect_pieces(parameters, emission, corpus, own[0])
    for group in own[1:]:
        found = found + expect_pieces(parameters, emission, corpus, group)
    return found

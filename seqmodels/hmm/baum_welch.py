"""Baum-Welch: EM for hidden Markov models (Baum et al. 1970; Rabiner 1989, section III.C)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from seqmodels.distributed import add_up
from seqmodels.hmm.blocks import Block
from seqmodels.hmm.constraints import Constraints, Tying
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.inference import block_posterior
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.priors import Pseudocounts, as_pseudocounts


@dataclass(frozen=True)
class Expectations:
    """One E-step: log p(x), and the expected counts. Those of two blocks add."""

    log_prob: float
    initial: Tensor
    xi: Tensor
    final: Tensor
    emission: Statistics

    def __add__(self, other: Expectations) -> Expectations:
        return Expectations(
            self.log_prob + other.log_prob,
            self.initial + other.initial,
            self.xi + other.xi,
            self.final + other.final,
            tuple(a + b for a, b in zip(self.emission, other.emission, strict=True)),
        )

    def everywhere(self) -> Expectations:
        """The sum over all processes, of each its share of the sequences."""
        log_prob = self.initial.new_tensor([self.log_prob])
        total, initial, xi, final, *emission = add_up([log_prob, self.initial, self.xi, self.final, *self.emission])
        return Expectations(float(total), initial, xi, final, tuple(emission))

    def scaled(self, factor: float) -> Expectations:
        """Of so many times the data."""
        return Expectations(
            factor * self.log_prob,
            factor * self.initial,
            factor * self.xi,
            factor * self.final,
            tuple(factor * s for s in self.emission),
        )


@dataclass(frozen=True)
class Memory:
    """Statistics of ``n_batches`` batches, a weighted mean, ``mean`` a frame; ``n_frames`` seen in all, by weight."""

    mean: Expectations
    n_batches: int
    n_frames: float

    @classmethod
    def of(cls, found: Expectations, n_frames: float) -> Memory:
        """Of one batch."""
        return cls(found.scaled(1 / n_frames), 1, n_frames)

    def add(self, found: Expectations, n_frames: float, *, decay: float, least: float = 0.0) -> Memory:
        """With one more batch."""
        step = max((self.n_batches + 2) ** -decay, least)
        mean = self.mean.scaled(1 - step) + found.scaled(step / n_frames)
        return Memory(mean, self.n_batches + 1, self.n_frames + n_frames)


def expect(parameters: Parameters, emission: Emission, block: Block, dtype: torch.dtype) -> Expectations:
    """The E-step on one block."""
    densities, memo = emission.evaluate(parameters.table, block.x, block.past, dtype, block.scratch)
    found = block_posterior(parameters, densities, block)
    sums = emission.statistics(parameters.table, block.x, block.past, found.gamma, memo)
    w = block.weight
    return Expectations(
        w * float(found.log_prob.sum()),
        w * found.initial,
        w * found.xi,
        w * found.final,
        tuple(w * s for s in sums),
    )


def maximise(
    parameters: Parameters,
    emission: Emission,
    found: Expectations,
    pseudocount: float | Pseudocounts,
    constraints: Constraints | None = None,
) -> Parameters:
    """The M-step. Transitions that are zero stay zero; a state that was never left keeps its row."""
    k, held = len(parameters.initial), constraints or Constraints.none(len(parameters.initial))
    starts, arcs, ends = as_pseudocounts(pseudocount).counts(parameters)
    initial = _normalise(found.initial + starts, parameters.initial)
    arcs, before = found.xi + arcs, parameters.transition
    if parameters.final is not None and ends is not None:
        arcs = torch.cat([arcs, (found.final + ends).unsqueeze(1)], 1)
        before = torch.cat([before, parameters.final.unsqueeze(1)], 1)
    rows = _normalise(arcs, before)
    final = None if parameters.final is None else rows[:, k].contiguous()
    table = _maximise_emission(parameters.table, emission, found.emission, held.tying)
    return held.frozen.keep(parameters, Parameters(initial, rows[:, :k].contiguous(), final, table))


def _maximise_emission(table: Tensor, emission: Emission, found: Statistics, tying: Tying) -> Tensor:
    """States that share an emission put their statistics together."""
    if tying.is_free:
        return emission.maximise(found, table)
    return tying.spread(emission.maximise(tying.pool(found), tying.one_each(table)))


def _normalise(counts: Tensor, before: Tensor) -> Tensor:
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total, before)


def log_prior(
    parameters: Parameters,
    emission: Emission,
    pseudocount: float | Pseudocounts,
    constraints: Constraints | None = None,
) -> float:
    """What the objective adds to the log-likelihood, in nats, up to a constant; an emission that states share counts once."""
    tying = (constraints or Constraints.none(len(parameters.initial))).tying
    table = parameters.table if tying.is_free else tying.one_each(parameters.table)
    return float(emission.log_prior(table) + as_pseudocounts(pseudocount).log_prior(parameters))


@dataclass(frozen=True)
class Schedule:
    """When EM stops: after ``max_iter`` steps, ``max_seconds``, or an improvement below ``tol`` nats per unit (0: never)."""

    max_iter: int
    tol: float
    max_seconds: float | None


@dataclass(frozen=True)
class Fitted:
    """Where EM ended. History line i holds the figures of the parameters before M-step i, the last line those of ``parameters``."""

    parameters: Parameters
    history: pd.DataFrame
    converged: bool
    memory: Memory | None  # of the last E-steps, for more to come

    @property
    def rank(self) -> tuple[bool, float]:
        """By which starts are compared: off the floor first, then the objective."""
        last = self.history.iloc[-1]
        return bool(last["floor_hits"] == 0), float(last["objective"])


def baum_welch(
    parameters: Parameters,
    emission: Emission,
    blocks: list[Block],
    *,
    pseudocount: float | Pseudocounts,
    schedule: Schedule,
    dtype: torch.dtype,
    n_units: float,
    log_det: float,
    observe: Callable[[dict[str, float]], None],
    constraints: Constraints | None = None,
) -> Fitted:
    """EM until it converges; the history is in nats per raw unit."""
    began, rows, converged, before = time.perf_counter(), [], False, -math.inf
    for iteration in range(schedule.max_iter + 1):
        found = expect(parameters, emission, blocks[0], dtype)
        for block in blocks[1:]:
            found = found + expect(parameters, emission, block, dtype)
        found = found.everywhere()
        log_prob = (found.log_prob + log_det) / n_units
        objective = log_prob + log_prior(parameters, emission, pseudocount, constraints) / n_units
        hits = int(emission.floor_hits(parameters.table).sum())
        seconds = time.perf_counter() - began
        rows.append(
            {"step": iteration, "seconds": seconds, "log_prob": log_prob, "objective": objective, "floor_hits": hits}
        )
        observe(rows[-1])
        converged = schedule.tol > 0 and objective - before < schedule.tol
        out_of_time = schedule.max_seconds is not None and seconds > schedule.max_seconds
        if converged or out_of_time or iteration == schedule.max_iter:
            break
        parameters, before = maximise(parameters, emission, found, pseudocount, constraints), objective
    n_frames = float(found.xi.sum() + found.initial.sum())
    memory = Memory(found.scaled(1 / n_frames), iteration + 1, n_frames)
    return Fitted(parameters, pd.DataFrame(rows), converged, memory)

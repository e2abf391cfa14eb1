"""Baum-Welch: EM for hidden Markov models (Baum et al. 1970; Rabiner 1989, section III.C)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from seqmodels.hmm.blocks import Block
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.inference import block_posterior
from seqmodels.hmm.parameters import Parameters


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


def maximise(parameters: Parameters, emission: Emission, found: Expectations, pseudocount: float) -> Parameters:
    """The M-step. Transitions that are zero stay zero; a state that was never left keeps its row."""
    initial = _normalise(found.initial + pseudocount * (parameters.initial > 0).double(), parameters.initial)
    arcs, allowed = found.xi + pseudocount * (parameters.transition > 0).double(), parameters.transition
    if parameters.final is not None:
        ends = found.final + pseudocount * (parameters.final > 0).double()
        arcs, allowed = torch.cat([arcs, ends.unsqueeze(1)], 1), torch.cat([allowed, parameters.final.unsqueeze(1)], 1)
    rows = _normalise(arcs, allowed)
    k = len(initial)
    return Parameters(
        initial,
        rows[:, :k].contiguous(),
        None if parameters.final is None else rows[:, k].contiguous(),
        emission.maximise(found.emission, parameters.table),
    )


def _normalise(counts: Tensor, before: Tensor) -> Tensor:
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total, before)


def log_prior(parameters: Parameters, emission: Emission, pseudocount: float) -> float:
    """What the objective adds to the log-likelihood: the pseudocounts' Dirichlet densities, up to a constant."""
    result = float(emission.log_prior(parameters.table))
    if pseudocount:
        for table in (parameters.initial, parameters.transition, parameters.final):
            if table is not None:
                result += pseudocount * float(table[table > 0].log().sum())
    return result


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
    pseudocount: float,
    schedule: Schedule,
    dtype: torch.dtype,
    n_units: float,
    log_det: float,
    observe: Callable[[dict[str, float]], None],
) -> Fitted:
    """EM until it converges; the history is in nats per raw unit."""
    began, rows, converged, before = time.perf_counter(), [], False, -math.inf
    for iteration in range(schedule.max_iter + 1):
        found = expect(parameters, emission, blocks[0], dtype)
        for block in blocks[1:]:
            found = found + expect(parameters, emission, block, dtype)
        log_prob = (found.log_prob + log_det) / n_units
        objective = log_prob + log_prior(parameters, emission, pseudocount) / n_units
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
        parameters, before = maximise(parameters, emission, found, pseudocount), objective
    return Fitted(parameters, pd.DataFrame(rows), converged)

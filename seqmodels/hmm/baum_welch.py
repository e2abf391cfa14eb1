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
from seqmodels.hmm.forward_backward import posterior


@dataclass(frozen=True)
class Parameters:
    """``initial (K,)``, ``transition (K, K)``, ``final (K,)`` or None, and the emission ``table (K, P)``; all float64."""

    initial: Tensor
    transition: Tensor
    final: Tensor | None
    table: Tensor

    def to(self, device: torch.device) -> Parameters:
        """On another device."""
        final = None if self.final is None else self.final.to(device)
        return Parameters(self.initial.to(device), self.transition.to(device), final, self.table.to(device))


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
    log_b = emission.log_prob(parameters.table, block.x, block.past, dtype)
    found = posterior(parameters.initial, parameters.transition, log_b, block.packing, parameters.final)
    sums = emission.statistics(parameters.table, block.x, block.past, found.gamma.to(dtype))
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
    initial = _normalise(found.initial + pseudocount * (parameters.initial > 0), parameters.initial)
    arcs, allowed = found.xi + pseudocount * (parameters.transition > 0), parameters.transition
    if parameters.final is not None:
        ends = found.final + pseudocount * (parameters.final > 0)
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
    result = emission.log_prior(parameters.table)
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
) -> tuple[Parameters, pd.DataFrame, bool]:
    """EM until it converges; returns the parameters, the history (nats per raw unit) and whether it converged.

    History line i holds the figures of the parameters before M-step i; the last line those of what is returned.
    """
    began, rows, converged, before = time.perf_counter(), [], False, -math.inf
    for iteration in range(schedule.max_iter + 1):
        found = expect(parameters, emission, blocks[0], dtype)
        for block in blocks[1:]:
            found = found + expect(parameters, emission, block, dtype)
        log_prob = (found.log_prob + log_det) / n_units
        objective = log_prob + log_prior(parameters, emission, pseudocount) / n_units
        hits = int(emission.observation.floor_hits(parameters.table, emission.size).sum())
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
    return parameters, pd.DataFrame(rows), converged

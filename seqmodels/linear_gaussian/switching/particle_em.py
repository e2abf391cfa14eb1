"""EM whose expectations are of paths of regimes that the particle filter keeps, drawn by their weights.

Given a path the states are smoothed exactly, so that nothing is taken to be independent that is not. Sums of the first
half of the steps are taken as they come, those of the second half are averaged (stochastic approximation of EM, Delyon,
Lavielle and Moulines 1999): the noise of the draws then dies away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from seqmodels.linear_gaussian.learning.steps import FitSteps, Row, StopAfter, copied, take_steps
from seqmodels.linear_gaussian.switching.learning import SwitchingObjective, m_step
from seqmodels.linear_gaussian.switching.parameters import SwitchingParameters
from seqmodels.linear_gaussian.switching.particle_filter import FilteredPaths, WhitenedSystem, filter_sequence
from seqmodels.linear_gaussian.switching.variational import (
    RegimeBatch,
    RegimeChain,
    RegimeTables,
    SwitchingStatistics,
    VariationalStep,
    batches_of,
    state_chain,
    statistics_of,
)
from seqmodels.training import Checkpoints

DRAWS = 4  # paths of each sequence at each step
MOST_PARTICLES = 16  # of the filter whose paths are drawn from


def given_paths(
    p: SwitchingParameters, batch: RegimeBatch, paths: Sequence[np.ndarray], *, by_feature: bool
) -> SwitchingStatistics:
    """The sums where the regimes of each sequence of the batch are known."""
    S, n = len(p.initial), int(batch.packing.offsets[1])
    gamma = batch.packing.pack([np.eye(S)[path] for path in paths])
    chain, w = state_chain(RegimeTables.of(p), batch, gamma), batch.weights
    pairs = (gamma[batch.packing.previous] * w[batch.packing.ranks[n:], None]).T @ gamma[n:]
    regimes = RegimeChain(gamma, w @ gamma[:n], pairs, np.zeros(n))
    step = VariationalStep(chain, regimes, np.zeros(n), chain.moves(batch.packing), chain.seen())
    return statistics_of(batch, step, by_feature=by_feature)


@dataclass
class ParticleRun(FitSteps):
    """EM of particles; ``averaged`` are the sums that the last M-step was of, None before the first."""

    parameters: SwitchingParameters
    averaged: SwitchingStatistics | None = None

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ParticleRun:
        """Where a checkpoint was written."""
        averaged = None if state["averaged"] is None else SwitchingStatistics(**copied(state["averaged"]))
        return cls(SwitchingParameters(**copied(state["parameters"])), averaged, rows=list(state["rows"]))


@dataclass
class _ParticleEM:
    """The M-step of step i is of the sums of step i, or from ``n_steps / 2`` on of their average."""

    run: ParticleRun
    objective: SwitchingObjective
    values: Sequence[np.ndarray]
    weights: np.ndarray
    n_steps: int
    n_particles: int
    seed: int
    filtered: list[FilteredPaths] = field(default_factory=list)

    def e_step(self, step: int) -> float:
        system = WhitenedSystem(self.run.parameters)
        self.filtered = [filter_sequence(system, x, self.n_particles, self.seed) for x in self.values]
        log_probs = (float(each.log_prob.sum()) for each in self.filtered)
        return sum(float(w * each) for w, each in zip(self.weights, log_probs, strict=True))

    def m_step(self, step: int) -> None:
        p, rng = self.run.parameters, np.random.default_rng([self.seed, step])
        batches, numbers = batches_of(self.values, self.weights / DRAWS)
        by_feature = not all(batch.is_complete for batch in batches)
        parts = []
        for batch, here in zip(batches, numbers, strict=True):
            drawn = [_drawn(self.filtered[i], rng) for i in here]
            for draw in range(DRAWS):
                parts.append(given_paths(p, batch, [each[draw] for each in drawn], by_feature=by_feature))
        sums, n_averaged, averaged = reduce(add, parts), step - self.n_steps // 2, self.run.averaged
        share = 1.0 if n_averaged <= 0 or averaged is None else 1 / (1 + n_averaged)
        self.run.averaged = sums if averaged is None else averaged.moved_to(sums, share)
        self.run.parameters = m_step(p, self.objective.form, self.run.averaged)

    def row(self, step: int, seconds: float, log_prob: float) -> Row:
        return self.objective.row(step, seconds, log_prob, self.run.parameters)

    def state(self) -> dict[str, Any]:
        averaged = None if self.run.averaged is None else self.run.averaged.arrays()
        return {"parameters": self.run.parameters.arrays(), "averaged": averaged}


def run_particle_em(
    start: SwitchingParameters,
    objective: SwitchingObjective,
    values: Sequence[np.ndarray],
    weights: np.ndarray,
    n_steps: int,
    n_particles: int,
    seed: int,
    max_seconds: float | None,
    callback: Callable[[Row], None],
    checkpoints: Checkpoints | None = None,
) -> tuple[SwitchingParameters, list[Row]]:
    """From where another algorithm ends, ``n_steps`` or until there is no time or a signal comes.

    Returns:
        The parameters, and a row for those before each step and after the last; ``log_prob`` is the filter's estimate.
        The start itself where that is estimated to be likelier than the end.
    """
    checkpoints = checkpoints or Checkpoints()
    run = ParticleRun(start) if checkpoints.state is None else ParticleRun.from_state(checkpoints.state)
    em = _ParticleEM(run, objective, values, weights, n_steps, min(n_particles, MOST_PARTICLES), seed)
    take_steps(run, em, StopAfter(n_steps, 0.0, max_seconds), callback, checkpoints)
    return (run.parameters if run.rows[-1]["objective"] > run.rows[0]["objective"] else start), run.rows


def _drawn(filtered: FilteredPaths, rng: np.random.Generator) -> np.ndarray:
    """``(DRAWS, T)`` paths by their weights, evenly spread (systematic)."""
    weights = np.exp(filtered.log_weights)
    marks = (rng.random() + np.arange(DRAWS)) / DRAWS * weights.sum()
    index = np.minimum(np.searchsorted(np.cumsum(weights), marks, side="right"), len(weights) - 1)
    return np.asarray(filtered.paths[index])

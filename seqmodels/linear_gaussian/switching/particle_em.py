"""EM of a switching system whose expectations are over paths of regimes, drawn by weight from the particle filter.

Given a path the states are smoothed exactly, so that nothing is taken to be independent that is not. In the first half
of the steps each M-step uses the sums of its own draws; in the second half sums are averaged, so that the noise of the
draws dies away (stochastic approximation of EM, Delyon, Lavielle and Moulines 1999).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from seqmodels.linear_gaussian.learning.em import copied
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
from seqmodels.training import Callback, Checkpoints, Interruption, Row, StopRule, run_em

DRAWS = 4  # paths of each sequence at each step
MOST_PARTICLES = 16  # of the filter whose paths are drawn from


def given_paths(
    p: SwitchingParameters, batch: RegimeBatch, paths: Sequence[np.ndarray], *, by_feature: bool
) -> SwitchingStatistics:
    """Return the sums of expectations of a batch whose regimes are known, with states smoothed exactly.

    Args:
        p: parameters of the switching system.
        batch: packed sequences.
        paths: regimes of each sequence, ``(T,)``.
        by_feature: True if values are missing anywhere in the data.
    """
    S, n = len(p.initial), int(batch.packing.offsets[1])
    gamma = batch.packing.pack([np.eye(S)[path] for path in paths])
    chain, w = state_chain(RegimeTables.of(p), batch, gamma), batch.weights
    pairs = (gamma[batch.packing.previous] * w[batch.packing.ranks[n:], None]).T @ gamma[n:]
    regimes = RegimeChain(gamma, w @ gamma[:n], pairs, np.zeros(n))
    step = VariationalStep(chain, regimes, np.zeros(n), chain.moves(batch.packing), chain.seen())
    return statistics_of(batch, step, by_feature=by_feature)


@dataclass(frozen=True)
class ParticleStart:
    """The parameters with which a step of EM begins, and the averages that it carries on.

    Attributes:
        parameters: parameters of the switching system.
        number: number of the step, from 0.
        averaged: sums of expectations that the last M-step used; None before the first.
    """

    parameters: SwitchingParameters
    number: int = 0
    averaged: SwitchingStatistics | None = None


@dataclass(frozen=True)
class ParticleEM:
    """The E-step, M-step and history rows of EM with the particle filter, as ``training.run_em`` calls them.

    The M-step of step i uses the sums of step i, or from ``n_steps / 2`` on their running average.

    Attributes:
        objective: what the rows report, and which parameters are free.
        values: encoded sequences, each ``(T, D)``.
        weights: weight of each sequence, ``(n,)``.
        n_steps: number of EM steps.
        n_particles: largest number of paths that the filter keeps.
        seed: seed of the filter and of the draws.
    """

    objective: SwitchingObjective
    values: Sequence[np.ndarray]
    weights: np.ndarray
    n_steps: int
    n_particles: int
    seed: int

    def e_step(self, parameters: Sequence[ParticleStart], interruption: Interruption) -> list[list[FilteredPaths]]:
        """Return the particle filter's paths of each sequence, for each of the given parameters."""
        systems = [WhitenedSystem(each.parameters) for each in parameters]
        return [[filter_sequence(system, x, self.n_particles, self.seed) for x in self.values] for system in systems]

    def row(self, step: int, seconds: float, parameters: ParticleStart, expectations: list[FilteredPaths]) -> Row:
        log_probs = (float(each.log_prob.sum()) for each in expectations)
        log_prob = sum(float(w * each) for w, each in zip(self.weights, log_probs, strict=True))
        return self.objective.row(step, seconds, log_prob, parameters.parameters)

    def m_step(self, parameters: ParticleStart, expectations: list[FilteredPaths]) -> ParticleStart:
        """Return the next step's start: parameters that maximise the expected log-probability of drawn paths.

        ``expectations`` has the particle filter's paths of each sequence, from which the paths are drawn.
        """
        p, step = parameters.parameters, parameters.number
        rng = np.random.default_rng([self.seed, step])
        batches, numbers = batches_of(self.values, self.weights / DRAWS)
        by_feature = not all(batch.is_complete for batch in batches)
        parts = []
        for batch, here in zip(batches, numbers, strict=True):
            drawn = [_drawn(expectations[i], rng) for i in here]
            for draw in range(DRAWS):
                parts.append(given_paths(p, batch, [each[draw] for each in drawn], by_feature=by_feature))
        sums, n_averaged, averaged = reduce(add, parts), step - self.n_steps // 2, parameters.averaged
        share = 1.0 if n_averaged <= 0 or averaged is None else 1 / (1 + n_averaged)
        averaged = sums if averaged is None else averaged.moved_to(sums, share)
        return ParticleStart(m_step(p, self.objective.form, averaged), step + 1, averaged)

    def ended(
        self, parameters: ParticleStart, expectations: list[FilteredPaths], n_rows: int
    ) -> tuple[ParticleStart, None]:
        return parameters, None


class ParticleStore:
    """The conversion of a step's start to arrays and back, for checkpoints.

    The number of the step is the number of history rows that the checkpoint holds.
    """

    def arrays(self, parameters: ParticleStart, kept: None) -> dict[str, Any]:
        averaged = None if parameters.averaged is None else parameters.averaged.arrays()
        return {"parameters": parameters.parameters.arrays(), "averaged": averaged}

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[ParticleStart, None]:
        stored, parameters = arrays["averaged"], SwitchingParameters(**copied(arrays["parameters"]))
        averaged = None if stored is None else SwitchingStatistics(**copied(stored))
        return ParticleStart(parameters, len(arrays["rows"]), averaged), None


def run_particle_em(
    start: SwitchingParameters,
    objective: SwitchingObjective,
    values: Sequence[np.ndarray],
    weights: np.ndarray,
    n_steps: int,
    n_particles: int,
    seed: int,
    max_seconds: float | None,
    callback: Callback,
    checkpoints: Checkpoints | None = None,
) -> tuple[SwitchingParameters, list[Row]]:
    """Fit a switching system by EM whose expectations are over paths drawn from the particle filter.

    Args:
        start: parameters to begin with.
        objective: what the rows of the history report, and which parameters are free.
        values: encoded sequences, each ``(T, D)``.
        weights: weight of each sequence, ``(n,)``.
        n_steps: number of EM steps; fewer are run if time is up or the user interrupts.
        n_particles: largest number of paths that the filter keeps.
        seed: seed of the filter and of the draws.
        max_seconds: time limit; None sets no limit.
        callback: function that is called with each new row.
        checkpoints: where to write progress, and what to resume from; None writes nothing.

    Returns:
        The parameters, and a row for the parameters before each step and after the last, whose ``log_prob`` is the
            filter's estimate. If the start is estimated to be likelier than the end, the start is returned.
    """
    checkpoints, store = checkpoints or Checkpoints(), ParticleStore()
    problem = ParticleEM(objective, values, weights, n_steps, min(n_particles, MOST_PARTICLES), seed)
    (run,) = run_em(
        problem,
        [ParticleStart(start)],
        StopRule(n_steps, 0.0, max_seconds),
        callback=callback,
        checkpoints=checkpoints,
        store=store,
    )
    if not run.interrupted:
        checkpoints.write({**store.arrays(run.parameters, None), "rows": run.rows, "ended": True})
    is_better = run.rows[-1]["objective"] > run.rows[0]["objective"]
    return (run.parameters.parameters if is_better else start), run.rows


def _drawn(filtered: FilteredPaths, rng: np.random.Generator) -> np.ndarray:
    """Return paths of regimes drawn with their weights from the result of the particle filter, ``(DRAWS, T)``.

    The draws are evenly spread (systematic resampling).
    """
    weights = np.exp(filtered.log_weights)
    marks = (rng.random() + np.arange(DRAWS)) / DRAWS * weights.sum()
    index = np.minimum(np.searchsorted(np.cumsum(weights), marks, side="right"), len(weights) - 1)
    return np.asarray(filtered.paths[index])

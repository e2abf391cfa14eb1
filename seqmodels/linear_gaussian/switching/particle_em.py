"""EM whose expectations are of paths of regimes that the particle filter keeps, drawn by their weights.

Given a path the states are smoothed exactly, so that nothing is taken to be independent that is not. Sums of the first
half of the steps are taken as they come, those of the second half are averaged (stochastic approximation of EM, Delyon,
Lavielle and Moulines 1999): the noise of the draws then dies away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import numpy as np

from seqmodels.linear_gaussian.learning.em import Row
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
from seqmodels.training import interruptible

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
) -> tuple[SwitchingParameters, list[Row]]:
    """From where another algorithm ends, ``n_steps`` or until there is no time or a signal comes.

    Returns:
        The parameters, and a row for those before each step and after the last; ``log_prob`` is the filter's estimate.
        The start itself where that is estimated to be likelier than the end.
    """
    batches, numbers = batches_of(values, weights / DRAWS)
    by_feature = not all(batch.is_complete for batch in batches)
    n_kept, p, rows, began = min(n_particles, MOST_PARTICLES), start, [], time.perf_counter()
    averaged: SwitchingStatistics | None = None
    with interruptible() as interruption:
        for step in range(n_steps + 1):
            system, rng = WhitenedSystem(p), np.random.default_rng([seed, step])
            filtered = [filter_sequence(system, x, n_kept, seed) for x in values]
            log_prob = sum(float(w * each.log_prob.sum()) for w, each in zip(weights, filtered, strict=True))
            seconds = time.perf_counter() - began
            rows.append(objective.row(step, seconds, log_prob, p))
            callback(rows[-1])
            interruption.hold()
            if step == n_steps or interruption.requested or (max_seconds is not None and seconds > max_seconds):
                break
            parts = []
            for batch, here in zip(batches, numbers, strict=True):
                drawn = [_drawn(filtered[i], rng) for i in here]
                for draw in range(DRAWS):
                    parts.append(given_paths(p, batch, [each[draw] for each in drawn], by_feature=by_feature))
            sums, n_averaged = reduce(add, parts), step - n_steps // 2
            share = 1.0 if n_averaged <= 0 or averaged is None else 1 / (1 + n_averaged)
            averaged = sums if averaged is None else averaged.moved_to(sums, share)
            p = m_step(p, objective.form, averaged)
    return (p if rows[-1]["objective"] > rows[0]["objective"] else start), rows


def _drawn(filtered: FilteredPaths, rng: np.random.Generator) -> np.ndarray:
    """``(DRAWS, T)`` paths by their weights, evenly spread (systematic)."""
    weights = np.exp(filtered.log_weights)
    marks = (rng.random() + np.arange(DRAWS)) / DRAWS * weights.sum()
    index = np.minimum(np.searchsorted(np.cumsum(weights), marks, side="right"), len(weights) - 1)
    return np.asarray(filtered.paths[index])

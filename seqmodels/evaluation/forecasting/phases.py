"""Phases of a season that were never observed: left out of the series, and forecast at the level of all others.

A shop that is closed on Sundays has weeks of six days. Models are fitted to those, where no value is missing, since no
model can tell what Sundays are like: what is said of them is the mixture of what is said of the days around them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqmodels.evaluation.forecasting.candidates import StepQuantiles
from seqmodels.evaluation.forecasting.series import SeriesForecast, forecast_series

FEWEST_UNSEEN = 2  # steps of a phase, all of them missing
FINE_LEVELS = (np.arange(100) + 0.5) / 100  # whose quantiles stand for a distribution that is mixed


@dataclass(frozen=True)
class SeenSteps:
    """Which steps are of phases of a season that were observed.

    Args:
        is_seen: ``(s,)`` whether each phase was, counted from the first step; some were, and some were not.
    """

    is_seen: np.ndarray

    @property
    def season(self) -> int:
        """Steps of a season without the phases that were never seen."""
        return int(self.is_seen.sum())

    @property
    def unseen(self) -> tuple[int, ...]:
        """The phases that were never seen."""
        return tuple(np.flatnonzero(~self.is_seen).tolist())

    def are_seen(self, first: int, last: int) -> np.ndarray:
        """``(last - first,)`` whether the steps from ``first`` on, before ``last``, are of phases that were seen."""
        return self.is_seen[np.arange(first, last) % len(self.is_seen)]

    def of(self, y: np.ndarray) -> np.ndarray:
        """``y (T, ...)`` without the steps of other phases."""
        return np.asarray(y[self.are_seen(0, len(y))])


def seen_steps(y: np.ndarray, period: int | None) -> SeenSteps | None:
    """The steps of ``y (T,)`` of phases that have a value; None: all have, or too few steps to tell."""
    if period is None or period < 2:
        return None
    known = np.bincount(np.arange(len(y)) % period, ~np.isnan(y), period) > 0
    is_long_enough = np.bincount(np.arange(len(y)) % period, minlength=period) >= FEWEST_UNSEEN
    return SeenSteps(known) if (~known).any() and known.any() and is_long_enough[~known].all() else None


def forecast_seen_steps(
    y: np.ndarray,
    k: int,
    levels: np.ndarray,
    steps: SeenSteps,
    season: int | None,
    max_seconds: float | None,
    *,
    possible_season: int | None = None,
    inputs: np.ndarray | None = None,
) -> SeriesForecast:
    """``forecast_series`` of a series ``y (T,)`` of which some phases were never seen.

    ``season`` and ``possible_season`` are those without the unseen phases.
    """
    is_seen, n = steps.are_seen(len(y), len(y) + k), steps.season
    n_ahead = int(is_seen.sum()) + n  # so that there are steps after an unseen one, too
    if inputs is not None:
        later = np.broadcast_to(inputs[: len(y)].mean(0), (n, inputs.shape[1]))
        inputs = np.concatenate([inputs[steps.are_seen(0, len(inputs))], later])
    seen = steps.of(y)
    result = forecast_series(
        seen,
        n_ahead,
        np.append(levels, FINE_LEVELS),
        season,
        max_seconds,
        possible_season=possible_season,
        inputs=inputs,
    )
    mean, quantiles = np.empty(k), np.empty((k, len(levels)))
    of_levels, fine = result.ahead.quantiles[:, : len(levels)], result.ahead.quantiles[:, len(levels) :]
    for h in range(k):
        at = int(is_seen[:h].sum())  # of the steps ahead that are seen, the next
        if is_seen[h]:
            mean[h], quantiles[h] = result.ahead.mean[at], of_levels[at]
        else:
            around = slice(max(0, at - n // 2), max(0, at - n // 2) + n)
            mean[h], quantiles[h] = result.ahead.mean[around].mean(), np.quantile(fine[around], levels)
    kept = np.flatnonzero(steps.are_seen(0, len(y)))
    period = len(steps.is_seen)
    return replace(
        result,
        ahead=StepQuantiles(mean, quantiles),
        factors=np.resize(result.factors, k),
        origins=kept[result.origins],
        n_left_out=int(kept[result.n_left_out]),
        season=None if season is None else period,
        possible_season=None if possible_season is None else period,
        unseen=steps.unseen,
    )

"""Phases of a season that were never observed: left out of the series, and forecast at the level of all others.

A shop that is closed on Sundays has weeks of six days. Models are fitted to those, where no value is missing, since no
model can tell what Sundays are like: what is said of them is the mixture of what is said of the days around them. Hours
of a day of the week that was never observed are such phases too, of a week.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqmodels.evaluation.forecasting.candidates import StepQuantiles
from seqmodels.evaluation.forecasting.series import SeriesForecast, forecast_series

FEWEST_UNSEEN = 2  # steps of a phase, or days of a weekday, all of them missing
FINE_LEVELS = (np.arange(100) + 0.5) / 100  # whose quantiles stand for a distribution that is mixed
HALF_A_DAY, WEEK = np.timedelta64(12, "h"), np.timedelta64(7, "D")


@dataclass(frozen=True)
class SeenSteps:
    """Which steps of a series and of those that follow it are of phases that were observed.

    Args:
        is_seen: ``(T + k,)`` whether each step is; some are, and some are not.
        period: steps of the season; None: there is none.
        unseen: the phases of the season, counted from the first step, that were never seen.
        days: the days of the week, from 0 for Monday, that were never seen.
        n_around: how many steps that were seen make up the mixture that unseen ones get: a season, or a week.
    """

    is_seen: np.ndarray
    period: int | None
    unseen: tuple[int, ...]
    days: tuple[int, ...]
    n_around: int

    @property
    def season(self) -> int | None:
        """Steps of a season without the phases that were never seen; None: there is none."""
        n = 1 if self.period is None else self.period - len(self.unseen)
        return n if n > 1 else None

    def of(self, y: np.ndarray) -> np.ndarray:
        """``y (T, ...)`` without the steps of other phases."""
        return np.asarray(y[self.is_seen[: len(y)]])


def seen_steps(y: np.ndarray, k: int, period: int | None, times: np.ndarray | None = None) -> SeenSteps | None:
    """Return the steps of ``y (T,)``, and of the k after it, of phases and days of the week that have a value.

    ``times (T + k,)`` are dates of all of them on one clock. Return None if all phases have a value, or too few steps
    to tell.
    """
    unseen, days = _unseen_phases(y, period), _unseen_days(y, times)
    is_seen = np.ones(len(y) + k, dtype=bool)
    n_around = 0
    if period is not None and unseen:
        is_seen &= ~np.isin(np.arange(len(is_seen)) % period, unseen)
        n_around = period - len(unseen)
    if times is not None and days:
        is_seen &= ~np.isin(_weekdays(times), days)
        n_around = int(is_seen[times < times[0] + WEEK].sum())
    return SeenSteps(is_seen, period, unseen, days, n_around) if unseen or days else None


def _unseen_phases(y: np.ndarray, period: int | None) -> tuple[int, ...]:
    if period is None or period < 2:
        return ()
    phase = np.arange(len(y)) % period
    n_known, n = np.bincount(phase, ~np.isnan(y), period), np.bincount(phase, minlength=period)
    return tuple(np.flatnonzero(n_known == 0).tolist()) if (n[n_known == 0] >= FEWEST_UNSEEN).all() else ()


def _unseen_days(y: np.ndarray, times: np.ndarray | None) -> tuple[int, ...]:
    """Days of the week without a value; none where a step is a day or longer, whose season has them as phases."""
    if times is None or times.dtype.kind != "M" or len(y) < 2 or np.median(np.diff(times)) > HALF_A_DAY:
        return ()
    dates, known = np.unique(times[: len(y)].astype("datetime64[D]")), ~np.isnan(y)
    seen = set(_weekdays(times[: len(y)][known]).tolist())
    n = np.bincount(_weekdays(dates), minlength=7)
    unseen = tuple(day for day in range(7) if day not in seen)
    return unseen if all(n[day] >= FEWEST_UNSEEN for day in unseen) else ()


def _weekdays(times: np.ndarray) -> np.ndarray:
    return np.asarray((times.astype("datetime64[D]").astype(int) + 3) % 7)


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
    is_seen, n = steps.is_seen[len(y) :], steps.n_around
    n_ahead = int(is_seen.sum()) + n  # so that there are steps after an unseen one, too
    if inputs is not None:
        later = np.broadcast_to(inputs[: len(y)].mean(0), (n, inputs.shape[1]))
        inputs = np.concatenate([inputs[steps.is_seen], later])
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
    kept = np.flatnonzero(steps.is_seen[: len(y)])
    return replace(
        result,
        ahead=StepQuantiles(mean, quantiles),
        factors=np.resize(result.factors, k),
        origins=kept[result.origins],
        n_left_out=int(kept[result.n_left_out]),
        season=None if season is None else steps.period,
        possible_season=None if possible_season is None else steps.period,
        unseen=steps.unseen,
        unseen_days=steps.days,
    )

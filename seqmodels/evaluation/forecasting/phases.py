"""Phases of a season that were never observed: they are left out, and forecast at the level of all other phases.

A shop that is closed on Sundays has weeks of six days. Models are fitted to these weeks, in which no value is missing,
because no model can tell what Sundays are like. The forecast of a Sunday is the mixture of the forecasts of the days
around it. Hours of a day of the week that was never observed are such phases too, of a week.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqmodels.evaluation.forecasting.series import SeriesForecast, StepQuantiles, forecast_series

FEWEST_UNSEEN = 2  # fewest steps of a phase, or days of a weekday, all of them missing, for it to count as unobserved
FINE_LEVELS = (np.arange(100) + 0.5) / 100  # levels whose quantiles represent a distribution that is mixed
HALF_A_DAY, WEEK = np.timedelta64(12, "h"), np.timedelta64(7, "D")


@dataclass(frozen=True)
class SeenSteps:
    """The steps of a series, and of its forecast, whose phases of the season and days of the week were observed.

    A phase is a position in the season.

    Args:
        is_seen: True for each step whose phase was observed, ``(T + k,)`` for T steps and k steps ahead; some are not.
        period: number of steps of the season; None means no season.
        unseen: phases of the season, counted from the first step, that were never observed.
        days: days of the week, from 0 for Monday, that were never observed.
        n_around: number of observed steps in the mixture that forecasts an unobserved one: a season, or a week.
    """

    is_seen: np.ndarray
    period: int | None
    unseen: tuple[int, ...]
    days: tuple[int, ...]
    n_around: int

    @property
    def season(self) -> int | None:
        """Number of steps of a season without the phases that were never observed; None if fewer than two are left."""
        n = 1 if self.period is None else self.period - len(self.unseen)
        return n if n > 1 else None

    def of(self, y: np.ndarray) -> np.ndarray:
        """Return the first T steps of the series without those whose phase (position in the season) was never observed.

        Args:
            y: values of the T steps, ``(T, ...)``.
        """
        return np.asarray(y[self.is_seen[: len(y)]])


def seen_steps(y: np.ndarray, k: int, period: int | None, times: np.ndarray | None = None) -> SeenSteps | None:
    """Find the steps of a series, and of the k after it, whose phases and days of the week were ever observed.

    A phase is a position in the season. Return None if all phases have a value, or if there are too few steps to tell.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
        k: number of steps ahead.
        period: number of steps of the season; None means no season.
        times: dates of all of these steps on one clock, ``(T + k,)``; None means that there are none.
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
    """Return the days of the week without a value, from 0 for Monday.

    The result is empty if a step is a day or longer, because days are then phases of the season.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
        times: their dates, ``(T,)`` or longer; None means that there are none.
    """
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
    """Forecast a series of which some phases (positions in the season) were never observed.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
        k: number of steps ahead.
        levels: levels of the Q quantiles, ``(Q,)``.
        steps: the steps whose phases were observed.
        season: number of steps of the season without the unobserved phases; None means no season.
        max_seconds: seconds after which no further model is tried; None means no limit.
        possible_season: number of steps, without the unobserved phases, of a season that the dates suggest; None means
            that they suggest none.
        inputs: U inputs of all steps and steps ahead, ``(T + k, U)``; None means none.
    """
    is_seen, n = steps.is_seen[len(y) :], steps.n_around
    n_ahead = int(is_seen.sum()) + n  # so that an unobserved step at the end has steps after it too
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
    sources = []  # of each step ahead: the observed steps ahead whose forecasts are mixed
    for h in range(k):
        at = int(is_seen[:h].sum())  # index of the next observed step among the steps ahead
        if is_seen[h]:
            sources.append(slice(at, at + 1))
            mean[h], quantiles[h] = result.ahead.mean[at], of_levels[at]
        else:
            around = slice(max(0, at - n // 2), max(0, at - n // 2) + n)
            sources.append(around)
            mean[h], quantiles[h] = result.ahead.mean[around].mean(), np.quantile(fine[around], levels)

    def draw_paths(n_paths: int, rng: np.random.Generator) -> np.ndarray:
        drawn = result.draw_paths(n_paths, rng)
        each = [rng.integers(source.start, min(source.stop, n_ahead), n_paths) for source in sources]
        return np.asarray(np.take_along_axis(drawn, np.stack(each, axis=1), axis=1))

    kept = np.flatnonzero(steps.is_seen[: len(y)])
    return replace(
        result,
        ahead=StepQuantiles(mean, quantiles),
        draw_paths=draw_paths,
        factors=np.resize(result.factors, k),
        origins=kept[result.origins],
        n_left_out=int(kept[result.n_left_out]),
        season=None if season is None else steps.period,
        possible_season=None if possible_season is None else steps.period,
        unseen=steps.unseen,
        unseen_days=steps.days,
    )

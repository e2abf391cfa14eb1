"""One series forecast: candidates scored on its own last part, the best averaged, and the bands rescaled."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from seqmodels.evaluation.forecasting.candidates import Candidate, FittedCandidate, StepQuantiles, candidates

SCORED_LEVELS = (np.arange(20) + 0.5) / 20  # whose mean pinball loss estimates the CRPS
MOST_ORIGINS = 12
MOST_AVERAGED = 4
NEAR_BEST = 1.1  # of the best score: candidates up to it are averaged
INNER_LEVELS = (0.05, 0.95)


@dataclass(frozen=True, eq=False)
class Trial:
    """How a candidate did on the last part of the series.

    ``quantiles (O, k, Q)`` at ``SCORED_LEVELS`` and the two of ``INNER_LEVELS``, of each origin.
    """

    name: str
    candidate: Candidate
    quantiles: np.ndarray
    crps: float
    coverage: float
    seconds: float
    is_chosen: bool = False


@dataclass(frozen=True)
class SeriesForecast:
    """What is known of one series when it has been forecast."""

    ahead: StepQuantiles
    trials: list[Trial]
    chosen: list[FittedCandidate]
    errors: dict[str, str]
    origins: np.ndarray
    crps: float
    coverage: float
    factors: np.ndarray
    season: int | None


def forecast_series(
    y: np.ndarray, k: int, levels: np.ndarray, season: int | None, max_seconds: float
) -> SeriesForecast:
    """The k steps that follow ``y (T,)``."""
    origins = origins_of(len(y), k, season)
    actual = np.stack([y[t : t + k] for t in origins])
    scale = mean_change(y[: origins[0]], season or 1)
    every = np.append(SCORED_LEVELS, INNER_LEVELS)
    trials: list[Trial] = []
    errors: dict[str, str] = {}
    began = time.perf_counter()
    for candidate in candidates(y, season):
        if trials and time.perf_counter() - began > max_seconds:
            break
        start = time.perf_counter()
        try:
            quantiles = _backtest(candidate, y, origins, k, every)
        except (ValueError, np.linalg.LinAlgError) as error:
            errors[candidate.title] = str(error)
            continue
        crps, coverage = scores(quantiles, actual, scale)
        trials.append(Trial(candidate.title, candidate, quantiles, crps, coverage, time.perf_counter() - start))
    trials.sort(key=lambda trial: trial.crps)
    kept = [trial for trial in trials[:MOST_AVERAGED] if trial.crps <= NEAR_BEST * trials[0].crps]
    trials = [replace(trial, is_chosen=trial in kept) for trial in trials]
    together = np.mean([trial.quantiles for trial in kept], axis=0)
    factors = band_factors(together, actual)
    crps, coverage = scores(rescaled(together, factors, -3), actual, scale)
    chosen = [trial.candidate.fit(y) for trial in kept]
    each = [fitted.ahead(y, k, np.append(levels, 0.5)) for fitted in chosen]
    quantiles = rescaled(np.mean([one.quantiles for one in each], axis=0), factors, -1)[:, :-1]
    mean = np.mean([one.mean for one in each], axis=0)
    if np.nanmin(y) >= 0:
        quantiles = np.maximum(quantiles, 0.0)
    return SeriesForecast(
        StepQuantiles(mean, quantiles), trials, chosen, errors, origins, crps, coverage, factors, season
    )


def _backtest(candidate: Candidate, y: np.ndarray, origins: np.ndarray, k: int, levels: np.ndarray) -> np.ndarray:
    """``(O, k, Q)``; fitted anew at every fourth origin."""
    result = []
    for i, t in enumerate(origins):
        if i % 4 == 0:
            fitted = candidate.fit(y[:t])
        result.append(fitted.ahead(y[:t], k, levels).quantiles)
    return np.stack(result)


def origins_of(n: int, k: int, season: int | None) -> np.ndarray:
    """Steps that are given at each origin, in the second half of n or later."""
    first = max(n // 2, min(2 * (season or 1) + 8, n - k))
    return np.unique(np.linspace(first, n - k, MOST_ORIGINS).round().astype(int))


def mean_change(y: np.ndarray, season: int) -> float:
    """Mean absolute change over a season; 1 where nothing changes."""
    changes = np.abs(y[season:] - y[:-season]) if len(y) > season else np.zeros(0)
    mean = float(np.nanmean(changes)) if (~np.isnan(changes)).any() else 0.0
    return mean if mean > 0 else 1.0


def scores(quantiles: np.ndarray, actual: np.ndarray, scale: float) -> tuple[float, float]:
    """Scaled CRPS, and how often ``actual (O, k)`` is between the quantiles of ``INNER_LEVELS``."""
    y, at = actual[..., None], quantiles[..., : len(SCORED_LEVELS)]
    losses = 2 * ((y <= at) - SCORED_LEVELS) * (at - y)
    covers = (quantiles[..., -2] <= actual) & (actual <= quantiles[..., -1])
    return float(np.nanmean(losses)) / scale, float(covers[~np.isnan(actual)].mean())


def band_factors(quantiles: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """``(k,)`` what bands are to be multiplied by."""
    return np.ones(actual.shape[1])


def rescaled(quantiles: np.ndarray, factors: np.ndarray, median: int) -> np.ndarray:
    """``(..., k, Q)`` with distances to the median, the quantile of that number, times ``factors (k,)``."""
    middle = 0.5 * (quantiles[..., 9] + quantiles[..., 10]) if median == -3 else quantiles[..., median]
    return np.asarray(middle[..., None] + factors[:, None] * (quantiles - middle[..., None]))

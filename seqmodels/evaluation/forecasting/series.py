"""One series forecast: candidates scored on its own last part, the best averaged, and the bands rescaled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seqmodels.encodings.differences import rounding
from seqmodels.evaluation.forecasting.candidates import (
    CandidateModel,
    FittedCandidate,
    Naive,
    StepQuantiles,
    arima_family,
    autoregressive_families,
    scales_of,
    structural_families,
)

SCORED_LEVELS = (np.arange(20) + 0.5) / 20  # whose mean pinball loss estimates the CRPS
MOST_ORIGINS = 24
MOST_AVERAGED = 12
SHARPNESS = 4.0  # power of a score that a weight is inverse to
NEAR = 0.2  # of the best score, as far as which forecasts that differ are still much alike
LIKELIHOOD_SHARE, MOST_BY_LIKELIHOOD = 1.0, 2.0  # weight of nats a step beside the logarithm of a score; most of these
PRIOR_ORIGINS = 5.0  # forecasts, which say something of their own, that say that bands are right as they are
HALF_LIFE = 12.0  # origins, after which a forecast says half as much of how wide bands are
NARROWEST, WIDEST = 0.6, 1.7  # of factors
FARTHEST = 4.0  # deviations, as which a distance counts that is larger
INNER_LEVELS = (0.05, 0.95)
GAUSSIAN_HALF_BAND = 1.6449  # deviations, of these levels
GAUSSIAN_DISTANCE = 0.7979  # mean absolute deviation of a Gaussian
LEAST_PROBABLE = 0.01  # of means of phases that do not differ
LEAST_CORRELATION = 0.5  # of the means of phases in both halves
REFIT_EVERY = 8  # origins
WORTH_A_SEARCH = 1.3  # of the best score so far
MOST_SEARCHES = 6
LONGEST_BAND = 60  # steps of a season, up to which covariances of so many steps are factored


@dataclass(frozen=True, eq=False)
class BacktestTrial:
    """How a candidate did on the last part of the series, and what it is when ``fitted`` to all of it.

    ``quantiles (O, k, Q)`` of each origin are those at ``SCORED_LEVELS`` and the two of ``INNER_LEVELS``; ``weight`` is
    that of its quantiles in the average, ``log_prior`` the logarithm of what it was before the backtest.
    """

    name: str
    fitted: FittedCandidate
    quantiles: np.ndarray
    crps: float
    coverage: float
    seconds: float
    weight: float = 0.0
    log_prior: float = 0.0

    @property
    def is_chosen(self) -> bool:
        """Whether it is among those averaged."""
        return self.weight > 0


@dataclass(frozen=True)
class SeriesForecast:
    """What is known of one series when it has been forecast."""

    ahead: StepQuantiles
    trials: list[BacktestTrial]
    chosen: list[FittedCandidate]
    errors: dict[str, str]
    origins: np.ndarray
    crps: float
    coverage: float
    factors: np.ndarray
    season: int | None
    possible_season: int | None = None


def forecast_series(
    y: np.ndarray,
    k: int,
    levels: np.ndarray,
    season: int | None,
    max_seconds: float | None,
    *,
    possible_season: int | None = None,
) -> SeriesForecast:
    """The k steps that follow ``y (T,)``, which has a ``season``, or else perhaps a ``possible_season`` too weak to be
    found, with which quick candidates are tried as well.
    """
    origins = origins_of(len(y), k, season)
    trials = Trials.of(y, k, origins, season, max_seconds, possible_season)
    tried = weighted(trials.best_first(), y, trials.scale)
    kept = [trial for trial in tried if trial.is_chosen]
    weights = np.array([trial.weight for trial in kept])
    together = np.tensordot(weights, [trial.quantiles for trial in kept], 1)  # (O, k, Q)
    factors = band_factors(together, trials.actual)
    crps, coverage = scores(rescaled(together, factors, _median(together)), trials.actual, trials.scale)
    chosen = [trial.fitted for trial in kept]
    each = [fitted.ahead(y, k, np.append(levels, 0.5)) for fitted in chosen]
    quantiles = np.tensordot(weights, [one.quantiles for one in each], 1)
    quantiles = rescaled(quantiles, factors, quantiles[:, -1])[:, :-1]
    mean = np.tensordot(weights, [one.mean for one in each], 1)
    if np.nanmin(y) >= 0:
        quantiles = np.maximum(quantiles, 0.0)
    ahead = StepQuantiles(mean, quantiles)
    weak_season = possible_season if season is None else None
    return SeriesForecast(ahead, tried, chosen, trials.errors, origins, crps, coverage, factors, season, weak_season)


def weighted(trials: Sequence[BacktestTrial], y: np.ndarray, scale: float) -> list[BacktestTrial]:
    """Trials, the best first, with the weights of their quantiles in the average: of the best few.

    By their scores on the last part, in units of ``scale``, and as much by how probable all of ``y (T,)`` is: log
    scores fall with the logarithm of the width of a forecast, as the CRPS does with the width. And by the weights
    before they were tried, which models that forecast alike share (a dilution prior, George 2010): of five that all
    come to a random walk each has a fifth.
    """
    best = trials[0].crps
    if best <= 0:
        return [replace(trials[0], weight=1.0), *trials[1:]]
    losses = np.log([trial.crps / best for trial in trials])
    losses += LIKELIHOOD_SHARE * np.minimum(criteria([trial.fitted for trial in trials], y), MOST_BY_LIKELIHOOD)
    priors = np.array([trial.log_prior for trial in trials]) - np.log(numbers_alike(trials, best * scale))
    logits = priors - SHARPNESS * losses
    weights = np.exp(logits - logits.max())
    weights[np.argsort(-logits, kind="stable")[MOST_AVERAGED:]] = 0.0
    weights /= weights.sum()
    return [replace(trial, weight=float(weight)) for trial, weight in zip(trials, weights, strict=True)]


def numbers_alike(trials: Sequence[BacktestTrial], error: float) -> np.ndarray:
    """For each, how many forecast as it does, itself among them: ``Σ_j exp(-(d_ij / (NEAR error))²)``, d the mean
    distance of quantiles at ``SCORED_LEVELS``.
    """
    quantiles = np.stack([trial.quantiles[..., : len(SCORED_LEVELS)].ravel() for trial in trials])
    distances = np.array([np.abs(quantiles - each).mean(axis=1) for each in quantiles])
    return np.asarray(np.exp(-((distances / (NEAR * error)) ** 2)).sum(axis=1))


def criteria(fitted: Sequence[FittedCandidate], y: np.ndarray) -> np.ndarray:
    """For each half of Akaike's corrected criterion, nats a step above the least, of the steps that all have."""
    log_probs = np.stack([each.log_probs(y) for each in fitted])
    log_probs = log_probs[:, ~np.isnan(log_probs).any(axis=0)]
    n = log_probs.shape[1]
    if not n:
        return np.zeros(len(fitted))
    n_parameters = np.array([each.n_parameters for each in fitted])
    losses = n_parameters / np.maximum(n - n_parameters - 1, 0.5) - log_probs.mean(axis=1)
    return np.asarray(losses - losses.min())


@dataclass
class Trials:
    """Candidates tried one after the other on the last part of ``y (T,)``.

    Those on which much time is spent, the searches among ARIMA, are tried with a season, or without, and on the scales,
    as far as quicker candidates did well with them.
    """

    y: np.ndarray
    actual: np.ndarray
    origins: np.ndarray
    scale: float
    deadline: float
    tried: list[BacktestTrial] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        y: np.ndarray,
        k: int,
        origins: np.ndarray,
        season: int | None,
        max_seconds: float | None,
        possible_season: int | None = None,
    ) -> Trials:
        """All that are tried on it."""
        deadline = np.inf if max_seconds is None else time.perf_counter() + max_seconds
        actual = np.stack([y[t : t + k] for t in origins])
        trials = cls(y, actual, origins, mean_change(y[: origins[0]], season or 1), deadline)
        seasons: list[int | None] = [None] if season is None else [season, None]
        scales, n = scales_of(y), int((~np.isnan(y)).sum())
        for period in {1, season or 1}:
            trials.add(Naive(period))
        crps = {}
        for each in seasons:
            for one in scales:
                families = autoregressive_families(each, one, n)
                if each is None or each <= LONGEST_BAND:
                    families = structural_families(each, one) + families
                crps[each, one] = min(trials.add(family) for family in families)
        for one in scales if season is None and possible_season is not None else []:
            for family in autoregressive_families(possible_season, one, n):
                trials.add(family)
        least = min(crps.values())
        by_score = sorted((score, i) for i, score in enumerate(crps.values()) if score <= WORTH_A_SEARCH * least)
        for _, i in by_score[:MOST_SEARCHES]:
            each, one = list(crps)[i]
            if each is None or each <= LONGEST_BAND:
                trials.add(arima_family(each, one))
        if not trials.tried:
            raise ValueError(
                "no model could be fitted: " + "; ".join(f"{name}: {e}" for name, e in trials.errors.items())
            )
        return trials

    def add(self, candidate: CandidateModel) -> float:
        """Its score; infinite where it failed or there is no time left."""
        start = time.perf_counter()
        if self.tried and start > self.deadline:
            return np.inf
        try:
            quantiles, fitted = self._backtest(candidate), candidate.fit(self.y)
        except (ValueError, np.linalg.LinAlgError) as error:
            self.errors[candidate.title] = str(error)
            return np.inf
        if not np.isfinite(quantiles).all():
            self.errors[candidate.title] = "forecasts were not finite"
            return np.inf
        crps, coverage = scores(quantiles, self.actual, self.scale)
        seconds = time.perf_counter() - start
        prior = candidate.log_prior
        self.tried.append(BacktestTrial(candidate.title, fitted, quantiles, crps, coverage, seconds, log_prior=prior))
        return crps

    def _backtest(self, candidate: CandidateModel) -> np.ndarray:
        """``(O, k, Q)``; fitted anew, its form too, at every eighth origin."""
        result, levels = [], np.append(SCORED_LEVELS, INNER_LEVELS)
        for i, t in enumerate(self.origins.tolist()):
            if i % REFIT_EVERY == 0:
                fitted = candidate.fit(self.y[:t])
            result.append(fitted.ahead(self.y[:t], self.actual.shape[1], levels).quantiles)
        return np.stack(result)

    def best_first(self) -> list[BacktestTrial]:
        """The models tried, those of the smallest mean CRPS first."""
        return sorted(self.tried, key=lambda trial: trial.crps)


def origins_of(n: int, k: int, season: int | None) -> np.ndarray:
    """Steps that are given at each origin, in the second half of n or later."""
    first = max(n // 2, min(2 * (season or 1) + 8, n - k))
    return np.unique(np.linspace(first, n - k, MOST_ORIGINS).round().astype(int))


def has_season(y: np.ndarray, season: int) -> bool:
    """Whether the phases of ``y (T,)``, or of its logarithms, have means that differ: by an F test of its changes,
    given the one before, at 1 %, and the means of both halves alike.
    """
    return any(_phases_differ(z, season) for z in ([y, np.log(y)] if y.min() > 0 else [y]))


def _phases_differ(z: np.ndarray, season: int) -> bool:
    from scipy import stats

    changes = np.diff(z)
    if changes.std() <= rounding(z):
        return False
    changes = changes / changes.std()
    t = np.arange(1, len(changes))
    lags = np.stack([np.ones(len(t)), changes[t - 1]], axis=1)
    phases = (t[:, None] % season == np.arange(1, season)).astype(float)
    left = len(t) - lags.shape[1] - season + 1
    if left < 1:
        return False
    squares = []
    for design in (lags, np.concatenate([lags, phases], axis=1)):
        residual = changes[t] - design @ np.linalg.lstsq(design, changes[t], rcond=None)[0]
        squares.append(float(residual @ residual))
    if squares[1] <= 1e-12 * squares[0]:
        return squares[0] > 0
    ratio = (squares[0] - squares[1]) / (season - 1) / (squares[1] / left)
    half = len(changes) // (2 * season) * season
    means = [
        part[: len(part) // season * season].reshape(-1, season).mean(0) for part in (changes[:half], changes[half:])
    ]
    alike = half > 0 and np.corrcoef(*means)[0, 1] > LEAST_CORRELATION
    return bool(alike and stats.f.sf(ratio, season - 1, left) < LEAST_PROBABLE)


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
    """``(k,)`` what bands are multiplied by, from how far values were from the medians of ``quantiles (O, k, Q)``.

    Distances are in deviations of a Gaussian with the same band; their mean is what it is of a Gaussian where bands are
    right. Late origins weigh more, since the noise of a series may change; bands as they are weigh as much as
    ``PRIOR_ORIGINS``, since values forecast from neighbouring origins are much the same.
    """
    k = actual.shape[1]
    low, high, middle = quantiles[..., -2], quantiles[..., -1], _median(quantiles)
    half_band = np.where(actual > middle, high - middle, middle - low)
    smallest = np.finfo(np.float64).tiny
    distance = np.minimum(GAUSSIAN_HALF_BAND * np.abs(actual - middle) / np.maximum(half_band, smallest), FARTHEST)
    age = np.arange(len(actual))[::-1, None]
    weights = np.where(np.isnan(actual), 0.0, 0.5 ** (age / HALF_LIFE)) / k  # (O, k)
    n_apart = weights.sum() / np.sqrt(k)  # about how many forecasts say something of their own
    if n_apart == 0:
        return np.ones(k)
    ratio = float((weights * np.nan_to_num(distance)).sum() / weights.sum()) / GAUSSIAN_DISTANCE
    factor = (PRIOR_ORIGINS + n_apart * ratio) / (PRIOR_ORIGINS + n_apart)
    return np.full(k, np.clip(factor, NARROWEST, WIDEST))


def _median(quantiles: np.ndarray) -> np.ndarray:
    """The mean of the two of ``SCORED_LEVELS`` next to a half."""
    n = len(SCORED_LEVELS)
    return np.asarray(0.5 * (quantiles[..., n // 2 - 1] + quantiles[..., n // 2]))


def rescaled(quantiles: np.ndarray, factors: np.ndarray, median: np.ndarray) -> np.ndarray:
    """``(..., k, Q)`` with distances to the ``median (..., k)`` times ``factors (k,)``."""
    return np.asarray(median[..., None] + factors[:, None] * (quantiles - median[..., None]))

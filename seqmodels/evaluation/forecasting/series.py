"""One series forecast: candidates scored on its own last part, the best averaged, and the bands rescaled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seqmodels.common.progress import ProgressBar
from seqmodels.encodings.differences import rounding
from seqmodels.evaluation.forecasting.candidates import (
    HALF_BAND,
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
GAUSSIAN_DISTANCE = 0.7979  # mean absolute deviation of a Gaussian
LEAST_PROBABLE = 0.01  # of means of phases that do not differ
LEAST_CORRELATION = 0.5  # of the means of phases in both halves
REFIT_EVERY = 8  # origins
WORTH_A_SEARCH = 1.3  # of the best score so far
MOST_SEARCHES = 6
FEWEST_CHANGES = 3  # of a series, for anything but its last value to be tried
MOST_MISSING = 500  # values that are filled in: each is a coefficient of a regression
SHORTEST = 12  # values of a series that is forecast
LONGEST_GAP = 1000  # steps at the end that are missing, past which nothing is forecast
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
class InputsInWords:
    """What inputs ``(U,)`` are worth by one model, named ``model``: means and standard errors, on its ``scale``."""

    model: str
    scale: str
    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class SeriesForecast:
    """What is known of one series when it has been forecast.

    Attributes:
        n_scored: values of the backtest.
        n_left_out: first steps that are left out, since too many values after them are missing.
        gap: last steps of the series that are missing, so that what is forecast is so many steps farther ahead.
        n_changes: how often a known value differs from the one before.
        unseen: the phases of the season, counted from the first step, of which no value was ever seen.
        unseen_days: the days of the week, from 0 for Monday, of which no value of a series of hours was ever seen.
        inputs: what inputs are worth; None: there are none.
    """

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
    n_scored: int = 0
    n_left_out: int = 0
    gap: int = 0
    n_changes: int = 0
    unseen: tuple[int, ...] = ()
    unseen_days: tuple[int, ...] = ()
    inputs: InputsInWords | None = None


def forecast_series(
    y: np.ndarray,
    k: int,
    levels: np.ndarray,
    season: int | None,
    max_seconds: float | None,
    *,
    possible_season: int | None = None,
    inputs: np.ndarray | None = None,
) -> SeriesForecast:
    """The k steps that follow ``y (T,)``, which has a ``season``, or else perhaps a ``possible_season`` too weak to be
    found, with which quick candidates are tried as well.

    ``inputs (T + k, U)`` are regressed on, those of the steps ahead are known. Steps at the end of y that are missing
    are steps ahead, too; of a series with many missing values the last part is taken that has few enough.

    Raises:
        ValueError: too few values, after those that are left out; a series that no model can be fitted to.
    """
    start, gap = _first_step(y), int(np.argmax(~np.isnan(y[::-1])))
    is_binary = holds_bits(y)
    y = y[start : len(y) - gap]
    n_known = int((~np.isnan(y)).sum())
    if n_known < SHORTEST or gap > min(n_known, LONGEST_GAP):
        raise ValueError(
            f"{gap:,} steps at its end are missing, and before them only {n_known:,} values are near enough to each "
            "other; pass the part that has values"
        )
    units = None if inputs is None else InputUnits.of(inputs[start:], len(y))
    scaled = None if inputs is None or units is None else units.scaled(inputs[start:])
    k_tried = min(k, len(y) - len(y) // 2)
    origins = origins_of(len(y), k_tried, season)
    trials = Trials.of(y, k_tried, origins, season, max_seconds, possible_season, scaled)
    tried = weighted(trials.best_first(), y, trials.scale)
    tried.sort(key=lambda trial: (-trial.weight, trial.crps))
    kept = [trial for trial in tried if trial.is_chosen]
    weights = np.array([trial.weight for trial in kept])
    together = np.tensordot(weights, [trial.quantiles for trial in kept], 1)  # (O, k, Q)
    n_changes = changes_of(y)
    factors = np.ones(k_tried) if n_changes < FEWEST_CHANGES else band_factors(together, trials.actual)
    crps, coverage = scores(rescaled(together, factors, _median(together)), trials.actual, trials.scale)
    chosen = [trial.fitted for trial in kept]
    each = [fitted.ahead(y, gap + k, np.append(levels, 0.5), scaled) for fitted in chosen]
    quantiles = np.tensordot(weights, [one.quantiles for one in each], 1)[gap:]
    factors = np.resize(factors, k)  # one for all steps
    quantiles = rescaled(quantiles, factors, quantiles[:, -1])[:, :-1]
    mean = np.tensordot(weights, [one.mean for one in each], 1)[gap:]
    if np.nanmin(y) >= 0:
        quantiles = np.maximum(quantiles, 0.0)
    if is_binary:
        mean, quantiles = np.clip(mean, 0.0, 1.0), np.minimum(quantiles, 1.0)
    ahead = StepQuantiles(mean, quantiles)
    weak_season = possible_season if season is None else None
    return SeriesForecast(
        *(ahead, tried, chosen, trials.errors, start + origins, crps, coverage, factors, season, weak_season),
        n_scored=int((~np.isnan(trials.actual)).sum()),
        n_left_out=start,
        gap=gap,
        n_changes=n_changes,
        inputs=None if units is None or scaled is None else _worth_of_inputs(kept, y, scaled[: len(y)], units),
    )


def _first_step(y: np.ndarray) -> int:
    """That from which on no more than ``MOST_MISSING`` values are missing before the last that is not."""
    is_missing = np.isnan(y)
    after = np.cumsum(is_missing[::-1])[::-1] - int(np.argmax(~is_missing[::-1]))
    return int(np.flatnonzero((after <= MOST_MISSING) & ~is_missing)[0])


def holds_bits(y: np.ndarray) -> bool:
    """Whether every known value of ``y (T,)`` is 0 or 1."""
    return bool(np.isin(y[~np.isnan(y)], (0.0, 1.0)).all())


def changes_of(y: np.ndarray) -> int:
    """How often a value of ``y (T,)`` differs from the one known before."""
    return int(np.count_nonzero(np.diff(y[~np.isnan(y)])))


@dataclass(frozen=True)
class InputUnits:
    """What inputs are centred at and divided by, ``(U,)`` each, which keeps all regressors of one size."""

    centre: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray, n: int) -> InputUnits:
        """Those of the first ``n`` steps of ``inputs (T, U)``."""
        centre = inputs[:n].mean(0)
        size = np.abs(inputs[:n] - centre).max(0)
        return cls(centre, np.where(size > 1e-12 * np.abs(centre), size, 1.0))

    def scaled(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray((inputs - self.centre) / self.size)


def _worth_of_inputs(
    kept: Sequence[BacktestTrial], y: np.ndarray, scaled: np.ndarray, units: InputUnits
) -> InputsInWords | None:
    """What inputs are worth by the first trial that reads them, of values or logarithms if there is one.

    Both have a meaning of their own, a sum or a percentage; on the scale of square roots there is none.
    """
    for trial in sorted(kept, key=lambda trial: trial.fitted.scale_name not in ("values", "logarithms")):
        effects = trial.fitted.effects(y, scaled)
        if effects is not None:
            mean, deviation = effects.mean / units.size, effects.deviation / units.size
            return InputsInWords(trial.name, trial.fitted.scale_name, mean, deviation)
    return None


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
    inputs: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        y: np.ndarray,
        k: int,
        origins: np.ndarray,
        season: int | None,
        max_seconds: float | None,
        possible_season: int | None = None,
        inputs: np.ndarray | None = None,
    ) -> Trials:
        """All that are tried on it."""
        deadline = np.inf if max_seconds is None else time.perf_counter() + max_seconds
        actual = np.stack([y[t : t + k] for t in origins])
        trials = cls(y, actual, origins, mean_change(y[: origins[0]], season or 1), deadline, inputs=inputs)
        if changes_of(y) < FEWEST_CHANGES:
            trials.add(Naive(holds_all=True))
            return trials._checked()
        seasons: list[int | None] = [None] if season is None else [season, None]
        scales, n = scales_of(y), int((~np.isnan(y)).sum())
        for period in {1, season or 1}:
            trials.add(Naive(period))
        crps = {}
        with ProgressBar(2 * len(seasons) * len(scales), "auto", "models") as bar:
            for each in seasons:
                for one in scales:
                    families = autoregressive_families(each, one, n)
                    if each is None or each <= LONGEST_BAND:
                        families = structural_families(each, one) + families
                    crps[each, one] = min(trials.add(family) for family in families)
                    bar.move(len(crps))
            for one in scales if season is None and possible_season is not None else []:
                for family in autoregressive_families(possible_season, one, n):
                    trials.add(family)
            least = min(crps.values())
            by_score = sorted((score, i) for i, score in enumerate(crps.values()) if score <= WORTH_A_SEARCH * least)
            for n_searches, (_, i) in enumerate(by_score[:MOST_SEARCHES], 1):
                each, one = list(crps)[i]
                if each is None or each <= LONGEST_BAND:
                    trials.add(arima_family(each, one))
                bar.move(len(crps) + n_searches)
        return trials._checked()

    def _checked(self) -> Trials:
        if not self.tried:
            raise ValueError(
                "no model could be fitted: " + "; ".join(f"{name}: {e}" for name, e in self.errors.items())
            )
        return self

    def add(self, candidate: CandidateModel) -> float:
        """Its score; infinite where it failed or there is no time left."""
        start = time.perf_counter()
        if self.tried and start > self.deadline:
            return np.inf
        try:
            quantiles, fitted = self._backtest(candidate), candidate.fit(self.y, self._inputs(len(self.y)))
        except (ValueError, np.linalg.LinAlgError) as error:
            self.errors[candidate.title] = str(error)
            return np.inf
        if not np.isfinite(quantiles).all():
            self.errors[candidate.title] = "forecasts were not finite"
            return np.inf
        crps, coverage = scores(quantiles, self.actual, self.scale)
        seconds = time.perf_counter() - start
        prior = candidate.log_prior
        self.tried.append(BacktestTrial(str(fitted), fitted, quantiles, crps, coverage, seconds, log_prior=prior))
        return crps

    def _backtest(self, candidate: CandidateModel) -> np.ndarray:
        """``(O, k, Q)``; fitted anew, its form too, at every eighth origin."""
        result, levels = [], np.append(SCORED_LEVELS, INNER_LEVELS)
        for i, t in enumerate(self.origins.tolist()):
            if i % REFIT_EVERY == 0:
                fitted = candidate.fit(self.y[:t], self._inputs(t))
            k = self.actual.shape[1]
            result.append(fitted.ahead(self.y[:t], k, levels, self._inputs(t + k)).quantiles)
        return np.stack(result)

    def _inputs(self, n: int) -> np.ndarray | None:
        return None if self.inputs is None else self.inputs[:n]

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
    noise = rounding(z) / changes.std()
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
    if squares[0] <= len(t) * noise**2:  # the change before explains all but rounding
        return False
    if squares[1] <= 1e-12 * squares[0]:
        return True
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
    distance = np.minimum(HALF_BAND * np.abs(actual - middle) / np.maximum(half_band, smallest), FARTHEST)
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

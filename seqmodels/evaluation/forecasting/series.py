"""The forecast of one series: candidates are scored on its own last part, the best averaged, and the bands rescaled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seqmodels.common.progress import ProgressBar
from seqmodels.encodings.differences import rounding
from seqmodels.evaluation.forecasting.candidates import (
    HALF_BAND,
    CandidateModel,
    EarlierFits,
    FittedCandidate,
    Naive,
    ScaledSteps,
    arima_family,
    autoregressive_families,
    scales_of,
    structural_families,
)

SCORED_LEVELS = (np.arange(20) + 0.5) / 20  # levels whose mean pinball loss estimates the CRPS
MOST_ORIGINS = 24  # most origins of the backtest
MOST_AVERAGED = 12  # most models that are averaged
SHARPNESS = 4.0  # a weight is the inverse of the score to this power
NEAR = 0.2  # distance of forecasts, relative to the best score, up to which they count as much alike
LIKELIHOOD_SHARE, MOST_BY_LIKELIHOOD = 1.0, 0.3  # weight of nats per step beside the log of a score, and most of these
PRIOR_ORIGINS = 5.0  # number of independent forecasts that the prior belief in bands as they are counts for
HALF_LIFE = 12.0  # origins after which a forecast counts half as much in the width of bands
NARROWEST, WIDEST = 0.6, 1.7  # limits of the factors of bands
FARTHEST = 4.0  # standard deviations at which a larger distance is cut
INNER_LEVELS = (0.05, 0.95)  # ends of the band of 90 %
GAUSSIAN_DISTANCE = 0.7979  # mean absolute deviation of a Gaussian
LEAST_PROBABLE = 0.01  # level of the test that phases have equal means
LEAST_CORRELATION = 0.5  # least correlation between the means of phases in both halves
REFIT_EVERY = 8  # origins after which a candidate is fitted again
WORTH_A_SEARCH = 1.3  # largest score, relative to the best so far, with which an ARIMA search is tried
MOST_SEARCHES = 6  # most ARIMA searches
FEWEST_CHANGES = 3  # a series with fewer changes is forecast by its last value alone
MOST_MISSING = 500  # most values that are filled in, because each is a coefficient of a regression
SHORTEST = 12  # fewest values of a series that is forecast
LONGEST_GAP = 1000  # most missing steps at the end of a series that is forecast
LONGEST_BAND = 60  # longest season for which banded covariances are factored


@dataclass(frozen=True)
class StepQuantiles:
    """The forecast of k steps as marginal means and quantiles of each step, in units of the series.

    Attributes:
        mean: mean of each step, ``(k,)``.
        quantiles: Q quantiles of each step, ``(k, Q)``.
    """

    mean: np.ndarray
    quantiles: np.ndarray


@dataclass(frozen=True, eq=False)
class BacktestTrial:
    """The result of trying a model on a series: its forecasts of the last part from O origins, k steps ahead.

    An origin is a step after which a forecast begins.

    Attributes:
        name: description of the fitted model.
        fitted: the model, fitted to the whole series.
        quantiles: Q quantiles of each forecast, ``(O, k, Q)``, at ``SCORED_LEVELS`` and then at ``INNER_LEVELS``.
        crps: mean CRPS (continuous ranked probability score), in units of the mean change over a season.
        coverage: share of values within the band of 90 %.
        seconds: seconds that the trial took.
        weight: weight of its quantiles in the average; 0 if it was not chosen.
        log_prior: logarithm of its prior weight, before the backtest.
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
        """True if the model is among those whose forecasts are averaged."""
        return self.weight > 0


@dataclass(frozen=True)
class AveragedForecast:
    """The average of the forecasts of several models: each of its quantiles is the weighted mean of theirs.

    Distances to the median are multiplied by a factor for each step, and the result is cut at bounds.

    Attributes:
        steps: the forecasts of k steps by m models.
        weights: their weights, which add up to one, ``(m,)``.
        factors: the factor for each step, ``(k,)``.
        low, high: bounds of the values.
    """

    steps: Sequence[ScaledSteps]
    weights: np.ndarray
    factors: np.ndarray
    low: float = -np.inf
    high: float = np.inf

    def _average(self, each: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(np.tensordot(self.weights, each, 1))

    def _cut(self, values: np.ndarray) -> np.ndarray:
        median = self._average([steps.at(np.zeros((1, 1)))[0] for steps in self.steps])
        return np.asarray(np.clip(median + self.factors * (values - median), self.low, self.high))

    @property
    def mean(self) -> np.ndarray:
        """Weighted mean of the models' means of each step, ``(k,)``."""
        return np.asarray(np.clip(self._average([steps.mean for steps in self.steps]), self.low, self.high))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return Q quantiles of each step, ``(k, Q)``.

        Args:
            levels: their levels, ``(Q,)``.
        """
        return self._cut(self._average([steps.quantiles(levels).T for steps in self.steps])).T

    def paths(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw n paths of the k steps, ``(n, k)``, of which each step by itself has the quantiles of the forecast.

        The errors of the steps of a path depend on each other as in one of the models, which is drawn by its weight.

        Args:
            n: number of paths.
            rng: generator of random numbers.
        """
        numbers = rng.multinomial(n, self.weights / self.weights.sum())
        normal = np.concatenate([steps.draw(m, rng) for steps, m in zip(self.steps, numbers, strict=True)])
        normal = rng.permutation(normal)
        return self._cut(self._average([steps.at(normal) for steps in self.steps]))


@dataclass(frozen=True)
class InputsInWords:
    """The effects of the inputs on the series according to one model.

    Attributes:
        model: name of the model.
        scale: name of the scale on which the effects add: values, square roots or logarithms.
        mean: estimated effect of a unit of each of U inputs, ``(U,)``.
        deviation: standard errors of the effects, ``(U,)``.
    """

    model: str
    scale: str
    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class SeriesForecast:
    """The forecast of one series, with the trials of models that led to it.

    The backtest forecasts the last part of the series from several origins, steps after which a forecast begins.

    Attributes:
        ahead: the forecast of each step ahead.
        trials: the trials of all models, the largest weight first.
        chosen: the fitted models that are averaged.
        errors: error of each model that failed, by name.
        origins: number of given steps at each of O origins of the backtest, ``(O,)``.
        crps, coverage: scaled CRPS, and share of values within the band of 90 %, of the average in the backtest.
        factors: factor by which the bands of each of k steps ahead were rescaled, ``(k,)``.
        season: number of steps of the season; None means no season.
        draw_paths: function of a number n and a generator of random numbers that draws n paths of the k steps ahead,
            ``(n, k)``; each step of the paths by itself has the quantiles of ``ahead``.
        possible_season: number of steps of a season that was not found but tried; None means that none was.
        n_scored: number of values in the backtest.
        n_left_out: number of first steps that are left out because too many values after them are missing.
        gap: number of last steps that are missing, so that the forecast begins this many steps farther ahead.
        n_changes: number of known values that differ from the one before.
        unseen: phases of the season (positions in it, from the first step) that were never observed.
        unseen_days: days of the week, from 0 for Monday, that were never observed in a series of hours.
        inputs: effects of the inputs; None if there are none.
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
    draw_paths: Callable[[int, np.random.Generator], np.ndarray]
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
    """Forecast the steps that follow a series, by averaging the models that forecast its last part best.

    Missing steps at the end of the series count as steps ahead too. If many values are missing, only the last part with
    few enough is used.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
        k: number of steps ahead.
        levels: levels of the Q quantiles, ``(Q,)``.
        season: number of steps of its season; None means no season.
        max_seconds: seconds after which no further model is tried; None means no limit.
        possible_season: number of steps of a season that is too weak to be found; quick models are tried with it as
            well. None means that there is none.
        inputs: U inputs of the series and of the steps ahead, ``(T + k, U)``, on which models regress; None means
            none.

    Raises:
        ValueError: there are too few values after those that are left out, or no model can be fitted.
    """
    start, gap = _first_step(y), int(np.argmax(~np.isnan(y[::-1])))
    is_binary = holds_bits(y)
    y = y[start : len(y) - gap]
    n_known = int((~np.isnan(y)).sum())
    if n_known < SHORTEST or gap > min(n_known, LONGEST_GAP):
        raise ValueError(
            f"{gap:,} steps at its end are missing, and before them only {n_known:,} values stand close enough "
            "together; pass the part that has values"
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
    factors = np.resize(factors, k)  # repeated, because all steps have the same factor
    average = AveragedForecast(
        [fitted.ahead(y, gap + k, scaled).after(gap) for fitted in chosen],
        weights,
        factors,
        low=0.0 if np.nanmin(y) >= 0 else -np.inf,
        high=1.0 if is_binary else np.inf,
    )
    ahead = StepQuantiles(average.mean, average.quantiles(levels))
    weak_season = possible_season if season is None else None
    return SeriesForecast(
        *(ahead, tried, chosen, trials.errors, start + origins, crps, coverage, factors, season, average.paths),
        possible_season=weak_season,
        n_scored=int((~np.isnan(trials.actual)).sum()),
        n_left_out=start,
        gap=gap,
        n_changes=n_changes,
        inputs=None if units is None or scaled is None else _worth_of_inputs(kept, y, scaled[: len(y)], units),
    )


def _first_step(y: np.ndarray) -> int:
    """Return the first known step after which at most ``MOST_MISSING`` values are missing before the last known one.

    The part of the series before this step is left out.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
    """
    is_missing = np.isnan(y)
    after = np.cumsum(is_missing[::-1])[::-1] - int(np.argmax(~is_missing[::-1]))
    return int(np.flatnonzero((after <= MOST_MISSING) & ~is_missing)[0])


def holds_bits(y: np.ndarray) -> bool:
    """Return True if every known value of a series is 0 or 1.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
    """
    return bool(np.isin(y[~np.isnan(y)], (0.0, 1.0)).all())


def changes_of(y: np.ndarray) -> int:
    """Return how many known values of a series differ from the known value before.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
    """
    return int(np.count_nonzero(np.diff(y[~np.isnan(y)])))


@dataclass(frozen=True)
class InputUnits:
    """The units in which U inputs are centred and scaled, so that all regressors are of the same size.

    Attributes:
        centre: mean of each input, ``(U,)``.
        size: largest distance of each input from its mean, ``(U,)``.
    """

    centre: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray, n: int) -> InputUnits:
        """Compute the means and largest distances of inputs.

        Args:
            inputs: U inputs of T steps, ``(T, U)``.
            n: number of first steps that are used.
        """
        centre = inputs[:n].mean(0)
        size = np.abs(inputs[:n] - centre).max(0)
        return cls(centre, np.where(size > 1e-12 * np.abs(centre), size, 1.0))

    def scaled(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray((inputs - self.centre) / self.size)


def _worth_of_inputs(
    kept: Sequence[BacktestTrial], y: np.ndarray, scaled: np.ndarray, units: InputUnits
) -> InputsInWords | None:
    """Return the effects of the inputs in their own units, according to the first trial whose model reads them.

    A trial on the scale of values or logarithms is preferred, because an effect there is a sum or a percentage. The
    result is None if no trial reads inputs.

    Args:
        kept: the trials that are averaged.
        y: the series, ``(T,)``.
        scaled: the U scaled inputs, ``(T, U)``.
        units: means and sizes with which the inputs were scaled.
    """
    for trial in sorted(kept, key=lambda trial: trial.fitted.scale_name not in ("values", "logarithms")):
        effects = trial.fitted.effects(y, scaled)
        if effects is not None:
            mean, deviation = effects.mean / units.size, effects.deviation / units.size
            return InputsInWords(trial.name, trial.fitted.scale_name, mean, deviation)
    return None


def weighted(trials: Sequence[BacktestTrial], y: np.ndarray, scale: float) -> list[BacktestTrial]:
    """Return trials of models with the weights of their quantiles in the average, 0 for all but the best few.

    Weights depend on the scores on the last part, and as much on the likelihood of the whole series. Both count alike
    because log scores fall with the logarithm of the width of a forecast, as the CRPS does with the width. Weights are
    multiplied by prior weights, which models that forecast alike share (a dilution prior, George 2010): if five of them
    are all random walks, each has a fifth.

    Args:
        trials: the trials, the best first.
        y: values of the series, ``(T,)``; NaN is missing.
        scale: unit of the scores, in units of the series.
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
    """Return how many of n trials forecast like each trial, itself included, as soft counts, ``(n,)``.

    A count is ``Σ_j exp(-(d_ij / (NEAR error))²)``, with d the mean distance between the quantiles of two trials at
    ``SCORED_LEVELS``.

    Args:
        trials: trials of models on the same series.
        error: the best score, in units of the series.
    """
    from scipy.spatial.distance import pdist, squareform  # lazily: scipy is slow to import

    quantiles = np.stack([trial.quantiles[..., : len(SCORED_LEVELS)].ravel() for trial in trials])
    distances = squareform(pdist(quantiles, "cityblock")) / quantiles.shape[1]
    return np.asarray(np.exp(-((distances / (NEAR * error)) ** 2)).sum(axis=1))


def criteria(fitted: Sequence[FittedCandidate], y: np.ndarray) -> np.ndarray:
    """Return half of Akaike's corrected criterion per step of each of n models, minus the least, ``(n,)``, in nats.

    Only steps that have a density under all models are used.

    Args:
        fitted: the models.
        y: the series that they were fitted to, ``(T,)``.
    """
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
    """The models that are tried one after the other on the last part of a series.

    ARIMA searches, which take the most time, are tried with or without a season and on a scale only if quicker
    models did well with them.

    Attributes:
        y: values of the series, ``(T,)``; NaN is missing.
        actual: the k values after each of O origins (steps after which a forecast begins), ``(O, k)``.
        origins: number of given steps at each origin, ``(O,)``.
        scale: mean absolute change of the series over a season, the unit of the CRPS.
        deadline: time of ``time.perf_counter()`` after which no further model is tried.
        tried: the trials so far.
        errors: error of each model that failed, by title.
        inputs: U scaled inputs, ``(T + k, U)``; None means none.
        earlier: what was fitted so far, from which each search begins.
    """

    y: np.ndarray
    actual: np.ndarray
    origins: np.ndarray
    scale: float
    deadline: float
    tried: list[BacktestTrial] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    inputs: np.ndarray | None = None
    earlier: EarlierFits = field(default_factory=EarlierFits)

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
        """Try all kinds of models on a series and return the trials.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            k: number of steps ahead.
            origins: number of given steps at each of O forecast origins, ``(O,)``.
            season: number of steps of its season; None means no season.
            max_seconds: seconds after which no further model is tried; None means no limit.
            possible_season: number of steps of a season that only quick models are tried with; None means that there is
                none.
            inputs: U scaled inputs of the series and the steps ahead, ``(T + k, U)``; None means none.

        Raises:
            ValueError: no model could be fitted.
        """
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
        """Try a model, record the trial, and return its scaled CRPS; infinity if it failed or no time is left."""
        start = time.perf_counter()
        if self.tried and start > self.deadline:
            return np.inf
        try:
            quantiles = self._backtest(candidate)
            fitted = candidate.fit(self.y, self._inputs(len(self.y)), self.earlier)
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
        """Forecast from every origin and return quantiles, ``(O, k, Q)``: O origins, k steps, Q levels.

        The model is fitted again at every eighth origin.
        """
        result, levels, k = [], np.append(SCORED_LEVELS, INNER_LEVELS), self.actual.shape[1]
        for start in range(0, len(self.origins), REFIT_EVERY):
            origins = self.origins[start : start + REFIT_EVERY].tolist()
            fitted = candidate.fit(self.y[: origins[0]], self._inputs(origins[0]), self.earlier)
            each = fitted.ahead_from(self.y, origins, k, self._inputs(origins[-1] + k))
            result += [steps.quantiles(levels) for steps in each]
        return np.stack(result)

    def _inputs(self, n: int) -> np.ndarray | None:
        return None if self.inputs is None else self.inputs[:n]

    def best_first(self) -> list[BacktestTrial]:
        """Return the trials sorted by mean CRPS (continuous ranked probability score), the smallest first."""
        return sorted(self.tried, key=lambda trial: trial.crps)


def origins_of(n: int, k: int, season: int | None) -> np.ndarray:
    """Choose O origins of a backtest, after each of which k steps are forecast; return the steps before each, ``(O,)``.

    There are at most ``MOST_ORIGINS``, evenly spread over the second half or later, with at least k steps after each.

    Args:
        n: number of steps of the series.
        k: number of steps ahead.
        season: number of steps of the season; None means no season.
    """
    first = max(n // 2, min(2 * (season or 1) + 8, n - k))
    return np.unique(np.linspace(first, n - k, MOST_ORIGINS).round().astype(int))


def has_season(y: np.ndarray, season: int) -> bool:
    """Test whether the phases of a season (positions in it) have different means in a series or in its logarithms.

    An F test of the changes, given the change before, must reject equal means at 1 %, and the means of both halves of
    the series must be correlated.

    Args:
        y: values of the series, ``(T,)``, without missing ones.
        season: number of steps of the season.
    """
    return any(_phases_differ(z, season) for z in ([y, np.log(y)] if y.min() > 0 else [y]))


def _phases_differ(z: np.ndarray, season: int) -> bool:
    from scipy.special import fdtrc  # scipy.stats takes a second to import

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
    if squares[0] <= len(t) * noise**2:  # the change before explains everything except rounding
        return False
    if squares[1] <= 1e-12 * squares[0]:
        return True
    ratio = (squares[0] - squares[1]) / (season - 1) / (squares[1] / left)
    half = len(changes) // (2 * season) * season
    means = [
        part[: len(part) // season * season].reshape(-1, season).mean(0) for part in (changes[:half], changes[half:])
    ]
    alike = half > 0 and np.corrcoef(*means)[0, 1] > LEAST_CORRELATION
    return bool(alike and fdtrc(season - 1, left, ratio) < LEAST_PROBABLE)


def mean_change(y: np.ndarray, season: int) -> float:
    """Return the mean absolute change of a series over ``season`` steps; 1 if nothing changes.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
        season: number of steps between the two values.
    """
    changes = np.abs(y[season:] - y[:-season]) if len(y) > season else np.zeros(0)
    mean = float(np.nanmean(changes)) if (~np.isnan(changes)).any() else 0.0
    return mean if mean > 0 else 1.0


def scores(quantiles: np.ndarray, actual: np.ndarray, scale: float) -> tuple[float, float]:
    """Return the mean CRPS of forecasts divided by ``scale``, and the share of values within the band of 90 %.

    Args:
        quantiles: Q quantiles of forecasts from O origins of k steps, ``(O, k, Q)``, at ``SCORED_LEVELS`` and then
            ``INNER_LEVELS``, the ends of the band.
        actual: the values that followed, ``(O, k)``; missing ones are left out.
        scale: unit of the CRPS.
    """
    y, at = actual[..., None], quantiles[..., : len(SCORED_LEVELS)]
    losses = 2 * ((y <= at) - SCORED_LEVELS) * (at - y)
    covers = (quantiles[..., -2] <= actual) & (actual <= quantiles[..., -1])
    return float(np.nanmean(losses)) / scale, float(covers[~np.isnan(actual)].mean())


def band_factors(quantiles: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return the factor by which the bands of each of k steps should be widened, ``(k,)``, according to the backtest.

    The distances of values to medians are measured in standard deviations of a Gaussian with the same band; if bands
    are right, their mean is that of a Gaussian. Late origins weigh more, because the noise of a series may change. A
    factor of 1 counts as much as ``PRIOR_ORIGINS`` forecasts, because neighbouring origins are nearly the same
    forecast.

    Args:
        quantiles: Q quantiles of forecasts from O origins, ``(O, k, Q)``, of which the last two are the ends of the
            band.
        actual: the values that followed, ``(O, k)``.
    """
    k = actual.shape[1]
    low, high, middle = quantiles[..., -2], quantiles[..., -1], _median(quantiles)
    half_band = np.where(actual > middle, high - middle, middle - low)
    smallest = np.finfo(np.float64).tiny
    distance = np.minimum(HALF_BAND * np.abs(actual - middle) / np.maximum(half_band, smallest), FARTHEST)
    age = np.arange(len(actual))[::-1, None]
    weights = np.where(np.isnan(actual), 0.0, 0.5 ** (age / HALF_LIFE)) / k  # (O, k)
    n_apart = weights.sum() / np.sqrt(k)  # about the number of independent forecasts
    if n_apart == 0:
        return np.ones(k)
    ratio = float((weights * np.nan_to_num(distance)).sum() / weights.sum()) / GAUSSIAN_DISTANCE
    factor = (PRIOR_ORIGINS + n_apart * ratio) / (PRIOR_ORIGINS + n_apart)
    return np.full(k, np.clip(factor, NARROWEST, WIDEST))


def _median(quantiles: np.ndarray) -> np.ndarray:
    """Return the median of forecasts, ``(...)``, the mean of the quantiles at the two levels next to a half.

    Args:
        quantiles: Q quantiles of each forecast, ``(..., Q)``, at ``SCORED_LEVELS`` first.
    """
    n = len(SCORED_LEVELS)
    return np.asarray(0.5 * (quantiles[..., n // 2 - 1] + quantiles[..., n // 2]))


def rescaled(quantiles: np.ndarray, factors: np.ndarray, median: np.ndarray) -> np.ndarray:
    """Return quantiles whose distances to the median are multiplied by a factor for each step, ``(..., k, Q)``.

    Args:
        quantiles: Q quantiles of each of k steps, ``(..., k, Q)``.
        factors: factor for each step, ``(k,)``.
        median: median of each step, ``(..., k)``.
    """
    return np.asarray(median[..., None] + factors[:, None] * (quantiles - median[..., None]))

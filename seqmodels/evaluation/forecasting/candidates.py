"""The candidates of an automatic forecast: families of linear processes, and the seasonal naive forecast.

A criterion chooses one process of each family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seqmodels.evaluation.baselines import SeasonalNaive
from seqmodels.evaluation.forecasting.linear_process import (
    Autoregression,
    FittedProcess,
    GaussianSteps,
    InputEffects,
    Process,
    SeasonalARIMA,
    StructuralProcess,
    fit_process,
    likely_orders,
)
from seqmodels.generation.feature_distributions import FeatureDistributions

LARGEST_EXPONENT = 700.0  # because exp of more overflows float64
ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 18, 24, 25)  # orders of autoregressions, if there are enough data
VALUES_PER_LAG = 8  # fewest values of the series for each lag of an autoregression
MOST_LAGS = 3  # largest p and q of an ARIMA
MOST_FITTED = 24  # most processes that a search fits
SMALLEST_RATIO = 1.2  # ratio of the largest value to the smallest from which logarithms differ from values
LARGE_RATIO = 3.0  # ratio from which square roots differ from both
HALF_BAND = 1.6449  # half the width of a band of 90 %, in standard deviations of a Gaussian
# Logarithms of the weights of kinds of models before they are tried, where they are not 0: on public series levels and
# damped trends did better, and the kinds below zero worse, than their backtests alone said.
SMOOTHING_PRIOR, LINE_PRIOR, TREND_PRIOR, SEARCH_PRIOR = 0.5, -0.35, -0.2, -0.15


@dataclass(frozen=True)
class PowerScale:
    """A transformation z of a series before it is modeled: values (power 1), square roots (0.5) or logarithms (0)."""

    power: float

    def __str__(self) -> str:
        return {1.0: "values", 0.5: "square roots", 0.0: "logarithms"}[self.power]

    def of_values(self, y: np.ndarray) -> np.ndarray:
        """Transform values of a series of T steps to z, ``(T,)``.

        Args:
            y: the values, ``(T,)``: at least 0 for square roots, above 0 for logarithms.
        """
        return np.asarray(np.log(y) if self.power == 0 else np.power(y, self.power))

    def to_values(self, z: np.ndarray) -> np.ndarray:
        """Transform z back to values of the series, the inverse of ``of_values``; negative square roots give zero."""
        if self.power == 0:
            return np.asarray(np.exp(np.minimum(z, LARGEST_EXPONENT)))
        return z if self.power == 1 else np.square(np.maximum(z, 0.0))

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """Return ``log dz/dy``, the log-derivative of the transformation, at each of T values ``y``, shape ``(T,)``.

        A value of zero is treated as the smallest value above zero.
        """
        if self.power == 1:
            return np.zeros(len(y))
        least = np.nanmin(np.where(y > 0, y, np.inf))
        return np.asarray(np.log(self.power or 1.0) + (self.power - 1) * np.log(np.maximum(y, least)))

    def mean_value(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """Return the mean ``E[y]`` of the values if the transformed ones, ``z(y)``, are Gaussian, for each element.

        Args:
            mean: mean of z, an array.
            deviation: standard deviation of z, of the same shape.
        """
        if self.power == 0:
            return self.to_values(mean + 0.5 * deviation**2)
        return mean if self.power == 1 else mean**2 + deviation**2


VALUES, SQUARE_ROOTS, LOGARITHMS = PowerScale(1.0), PowerScale(0.5), PowerScale(0.0)


@dataclass(frozen=True)
class ScaledSteps:
    """The forecast of k steps by a model of the values of a series, or of their square roots or logarithms.

    Attributes:
        gaussian: the Gaussian forecast of the transformed steps.
        scale: the transformation.
    """

    gaussian: GaussianSteps
    scale: PowerScale

    @property
    def mean(self) -> np.ndarray:
        """Mean of the values of each step, ``(k,)``."""
        return self.scale.mean_value(self.gaussian.mean, self.gaussian.deviation)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return Q quantiles of each step, ``(k, Q)``, in units of the series.

        Args:
            levels: their levels, ``(Q,)``.
        """
        from scipy import special  # lazily: scipy is slow to import

        return self.at(special.ndtri(levels)[:, None]).T

    def at(self, normal: np.ndarray) -> np.ndarray:
        """Return the values at which the transformed steps are at given standardised errors, ``(n, k)``.

        Args:
            normal: distances from the means in standard deviations, ``(n, k)`` or ``(n, 1)``.
        """
        return self.scale.to_values(self.gaussian.mean + self.gaussian.deviation * normal)

    def after(self, n: int) -> ScaledSteps:
        """Return the forecast without its first n steps."""
        each = self.gaussian
        return ScaledSteps(GaussianSteps(each.mean[n:], each.deviation[n:], each.root[n:]), self.scale)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the standardised errors of all steps together, ``(n, k)``.

        Args:
            n: number of draws.
            rng: generator of random numbers.
        """
        errors = rng.normal(size=(n, self.gaussian.root.shape[1])) @ self.gaussian.root.T
        return np.asarray(errors / self.gaussian.deviation)


class FittedCandidate(ABC):
    """A fitted model that forecasts one series, the abstract base class; ``str`` describes it in words.

    To add one, define ``n_parameters``, ``ahead_from`` and ``log_probs``.
    """

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of parameters that were fitted to the series."""

    @abstractmethod
    def ahead_from(
        self, y: np.ndarray, origins: Sequence[int], k: int, inputs: np.ndarray | None = None
    ) -> list[ScaledSteps]:
        """Forecast the k steps after each origin, a number of given steps.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            origins: increasing numbers of given steps, at most T.
            k: number of steps ahead.
            inputs: U inputs up to k steps after the last origin, or farther, ``(T', U)``, if the model was fitted with
                some; else None.
        """

    def ahead(self, y: np.ndarray, k: int, inputs: np.ndarray | None = None) -> ScaledSteps:
        """Forecast the k steps that follow a series.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            k: number of steps ahead.
            inputs: U inputs of the series and of the steps ahead, ``(T + k, U)``, if the model was fitted with some;
                else None.
        """
        return self.ahead_from(y, [len(y)], k, inputs)[0]

    @abstractmethod
    def log_probs(self, y: np.ndarray) -> np.ndarray:
        """Return the log-density of each of T steps of a series given the steps before, ``(T,)``, in nats.

        The value is NaN for the first steps, which have no density, and for missing steps.

        Args:
            y: the series that the model was fitted to, ``(T,)``.
        """

    def effects(self, y: np.ndarray, inputs: np.ndarray) -> InputEffects | None:
        """Return how much a unit of each input adds to the transformed series; None if the model reads no inputs.

        Args:
            y: values of the series, ``(T,)``.
            inputs: its U inputs, such as holidays, ``(T, U)``.
        """
        return None

    @property
    def scale_name(self) -> str:
        """Name of the scale on which the model describes the series: values, square roots or logarithms."""
        return str(VALUES)


@dataclass(frozen=True)
class EarlierFits:
    """Results of earlier fits to the same series, such as to a shorter part of it or on another scale.

    Searches begin there. Fits add what they find.

    Attributes:
        numbers: shape parameters that were fitted last, for each process.
        best: the process that was best last, for each family.
    """

    numbers: dict[Process, np.ndarray] = field(default_factory=dict)
    best: dict[ProcessFamily, Process] = field(default_factory=dict)


class CandidateModel(ABC):
    """A kind of model that an automatic forecast may fit to a series, the abstract base class.

    To add one, define ``title`` and ``fit``.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of the kind of model in tables."""

    @property
    def log_prior(self) -> float:
        """Logarithm of the weight of the model's forecasts in the average before they are scored; 0 by default."""
        return 0.0

    @abstractmethod
    def fit(
        self, y: np.ndarray, inputs: np.ndarray | None = None, earlier: EarlierFits | None = None
    ) -> FittedCandidate:
        """Fit the model to a series, with a regression on inputs if there are some.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            inputs: U inputs, such as holidays, ``(T, U)``; None means none.
            earlier: earlier fits, near which searches begin and to which this one is added; None means that there are
                none.

        Raises:
            ValueError: the model cannot be fitted, for example because the series is too short.
        """


# -- linear processes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessFamily(CandidateModel):
    """A family of linear processes; ``fit`` fits its members and keeps the one with the least Akaike criterion.

    Attributes:
        kind: name of the family.
        season: number of steps of the season; None means no season.
        processes: processes that are all fitted.
        scale: transformation of the series before it is modeled: values, square roots or logarithms.
        near: function that returns the neighbours of a process, which differ a little in their orders. If given,
            neighbours of the best process are fitted as long as one of them is better. None means that there is no
            further search.
        screen: function that returns those of the processes that are worth to be fitted to a series with inputs. None
            means that all are.
        prior: logarithm of the family's prior weight in the average of forecasts.
    """

    kind: str
    season: int | None
    processes: tuple[Process, ...]
    scale: PowerScale
    near: Callable[[Process], Iterable[Process]] | None = None
    screen: Callable[[Sequence[Process], np.ndarray, np.ndarray | None], Sequence[Process]] | None = None
    prior: float = 0.0

    @property
    def log_prior(self) -> float:
        return self.prior

    @property
    def title(self) -> str:
        season = "" if self.season is None else f", season {self.season}"
        return f"{self.kind}{season}" + f", {self.scale}" * (self.scale != VALUES)

    def fit(
        self, y: np.ndarray, inputs: np.ndarray | None = None, earlier: EarlierFits | None = None
    ) -> FittedCandidate:
        z, earlier = self.scale.of_values(y), earlier or EarlierFits()
        processes = self.processes if self.screen is None else self.screen(self.processes, z, inputs)
        if self.near is not None and self in earlier.best:
            processes = (earlier.best[self], *processes)
        fitted = {each: _fitted(each, z, inputs, earlier) for each in processes}
        best = _least([each for each in fitted.values() if each is not None])
        while self.near is not None:
            for process in self.near(best.process):
                if process not in fitted and len(fitted) < MOST_FITTED:
                    fitted[process] = each = _fitted(process, z, inputs, earlier)
                    if each is not None and _least([best, each]) is each:
                        best = each
                        break
            else:
                break
        earlier.best[self] = best.process
        return ScaledProcess(best, self.scale)


def _fitted(process: Process, z: np.ndarray, inputs: np.ndarray | None, earlier: EarlierFits) -> FittedProcess | None:
    try:
        fitted = fit_process(process, z, inputs, earlier.numbers.get(process))
    except (ValueError, np.linalg.LinAlgError):
        return None
    earlier.numbers[process] = fitted.numbers
    return fitted


def _least(fitted: Sequence[FittedProcess]) -> FittedProcess:
    """Return the fitted process with the least Akaike criterion, computed from steps that have a density under all.

    Args:
        fitted: processes fitted to the same series.

    Raises:
        ValueError: there is no process.
    """
    if not fitted:
        raise ValueError("the series is too short, or has no noise")
    first = max(each.process.n_lost for each in fitted)
    return min(fitted, key=lambda each: each.criterion(first))


@dataclass(frozen=True)
class ScaledProcess(FittedCandidate):
    """A fitted linear process of the values of a series, or of their square roots or logarithms.

    Attributes:
        fitted: the process.
        scale: the transformation of the series before the process models it.
    """

    fitted: FittedProcess
    scale: PowerScale

    def ahead_from(
        self, y: np.ndarray, origins: Sequence[int], k: int, inputs: np.ndarray | None = None
    ) -> list[ScaledSteps]:
        each = self.fitted.ahead_from(self.scale.of_values(y), origins, k, inputs)
        return [ScaledSteps(steps, self.scale) for steps in each]

    @property
    def n_parameters(self) -> int:
        return self.fitted.n_parameters

    def log_probs(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(self.fitted.log_probs + self.scale.log_slope(y))

    def effects(self, y: np.ndarray, inputs: np.ndarray) -> InputEffects | None:
        return self.fitted.effects(self.scale.of_values(y), inputs)

    @property
    def scale_name(self) -> str:
        return str(self.scale)

    def __str__(self) -> str:
        return self.fitted.process.name + f" of {self.scale}" * (self.scale != VALUES)


def structural_families(season: int | None, scale: PowerScale) -> list[ProcessFamily]:
    """Return families of structural time series (level, slope, season), one for each kind of slope.

    Args:
        season: number of steps of the season; None means no season.
        scale: transformation of the series before it is modelled.
    """
    priors = {"none": SMOOTHING_PRIOR, "fixed": TREND_PRIOR, "walk": TREND_PRIOR, "damped": SMOOTHING_PRIOR}
    families = []
    for slope, prior in priors.items():
        process = StructuralProcess(slope, season)
        families.append(ProcessFamily(StructuralProcess(slope).name, season, (process,), scale, prior=prior))
    return families


def arima_family(season: int | None, scale: PowerScale) -> ProcessFamily:
    """Return the family of ARIMA processes, searched stepwise from a few orders (Hyndman and Khandakar 2008).

    Args:
        season: number of steps of the season; None means no season.
        scale: transformation of the series before it is modelled.
    """
    if season is None:
        starts = [
            *(SeasonalARIMA(order, has_constant=True) for order in [(1, 0, 0), (2, 0, 1)]),
            *(SeasonalARIMA(order) for order in [(0, 1, 1), (1, 1, 1), (2, 1, 2), (0, 2, 1)]),
        ]
        return ProcessFamily("ARIMA", season, tuple(starts), scale, near_arima, prior=SEARCH_PRIOR)
    starts = [
        *(SeasonalARIMA(order, (0, 1, 1), season) for order in [(0, 1, 1), (1, 1, 1)]),
        *(SeasonalARIMA(order, (0, 1, 1), season, has_constant=True) for order in [(1, 0, 0), (2, 0, 1)]),
        SeasonalARIMA((1, 1, 1), (1, 0, 1), season),
        SeasonalARIMA((1, 0, 0), (1, 0, 0), season, has_constant=True),
    ]
    return ProcessFamily("ARIMA", season, tuple(starts), scale, near_arima, prior=SEARCH_PRIOR)


def near_arima(process: Process) -> Iterator[SeasonalARIMA]:
    """Yield the neighbours of an ARIMA process in a stepwise search for the best orders.

    They have p, q or both changed by one, a seasonal order of 1 in place of 0 or the reverse, or a constant added or
    removed.
    """
    assert isinstance(process, SeasonalARIMA)
    (p, d, q), (P, D, Q) = process.order, process.seasonal_order
    for up, uq in ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1)):
        if 0 <= p + up <= MOST_LAGS and 0 <= q + uq <= MOST_LAGS:
            yield replace(process, order=(p + up, d, q + uq))
    if process.season > 1:
        for seasonal in ((1 - P, D, Q), (P, D, 1 - Q)):
            yield replace(process, seasonal_order=seasonal)
    if d + D <= 1:
        yield replace(process, has_constant=not process.has_constant)


def autoregressive_families(season: int | None, scale: PowerScale, n_values: int) -> list[ProcessFamily]:
    """Return families of autoregressions: around a constant level, around a line, and of first differences.

    Args:
        season: number of steps of the season, each of which has a mean of its own; None means no season.
        scale: transformation of the series before it is modelled.
        n_values: number of values of the series, which limits the orders.
    """
    orders = [p for p in ORDERS if p == 1 or p <= n_values // VALUES_PER_LAG]
    around_level = tuple(Autoregression(p, season) for p in orders)
    around_line = tuple(Autoregression(p, season, has_slope=True) for p in orders)
    changes = tuple(Autoregression(p, season, of_changes=True) for p in (0, *orders))
    return [
        ProcessFamily("autoregression", season, around_level, scale, screen=likely_orders),
        ProcessFamily(
            "autoregression around a line", season, around_line, scale, screen=likely_orders, prior=LINE_PRIOR
        ),
        ProcessFamily("autoregression of changes", season, changes, scale, screen=likely_orders),
    ]


# -- the naive -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Naive(CandidateModel):
    """The naive forecast: the value one season ago, or with ``season=1`` the last value.

    Args:
        season: number of steps of the season.
        holds_all: whether its band of 90 % is widened to cover all values of the series, for a series with too few
            changes to estimate one.
    """

    season: int = 1
    holds_all: bool = False

    @property
    def log_prior(self) -> float:
        return TREND_PRIOR

    @property
    def title(self) -> str:
        return "naive" if self.season == 1 else "seasonal naive"

    def fit(
        self, y: np.ndarray, inputs: np.ndarray | None = None, earlier: EarlierFits | None = None
    ) -> FittedCandidate:
        fitted = SeasonalNaive(self.season).fit([y[:, None]])
        if self.holds_all:
            last = y[~np.isnan(y)][-1]
            farthest = float(np.nanmax(np.abs(y - last)))
            fitted.covariance_ = np.maximum(fitted.covariance_, (farthest / HALF_BAND) ** 2)
        return FittedNaive(fitted)


@dataclass(frozen=True)
class FittedNaive(FittedCandidate):
    """A fitted seasonal naive forecast of a single series."""

    fitted: SeasonalNaive

    def ahead_from(
        self, y: np.ndarray, origins: Sequence[int], k: int, inputs: np.ndarray | None = None
    ) -> list[ScaledSteps]:
        steps, deviation = np.arange(k), float(np.sqrt(self.fitted.covariance_[0, 0]))
        apart = steps[:, None] - steps
        root = deviation * ((apart >= 0) & (apart % self.fitted.season == 0))  # errors add up from season to season
        deviations = np.sqrt((root**2).sum(1))
        result = []
        for ahead in self.fitted.ahead([y[:, None]], [origins], k, 1, 0):
            mean = np.array([step.mean[0] for step in ahead.steps if isinstance(step, FeatureDistributions)])
            result.append(ScaledSteps(GaussianSteps(mean, deviations, root), VALUES))
        return result

    @property
    def n_parameters(self) -> int:
        return 1

    def log_probs(self, y: np.ndarray) -> np.ndarray:
        season, variance = self.fitted.season, float(self.fitted.covariance_[0, 0])
        changes = np.concatenate([np.full(season, np.nan), y[season:] - y[:-season]])
        return np.asarray(-0.5 * (np.log(2 * np.pi * variance) + changes**2 / variance))

    def __str__(self) -> str:
        return "naive" if self.fitted.season == 1 else "seasonal naive"


def scales_of(y: np.ndarray) -> list[PowerScale]:
    """Return the transformations under which a series may be modeled: values, logarithms, square roots.

    Logarithms and square roots are left out if the values do not allow them or if they hardly differ from the values.

    Args:
        y: values of the series, ``(T,)``.
    """
    low, high = float(np.nanmin(y)), float(np.nanmax(y))
    scales = [VALUES]
    if low > 0 and high > SMALLEST_RATIO * low:
        scales.append(LOGARITHMS)
    if low >= 0 and high > LARGE_RATIO * low:
        scales.append(SQUARE_ROOTS)
    return scales

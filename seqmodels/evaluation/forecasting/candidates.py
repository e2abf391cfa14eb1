"""What is tried on a series: families of linear processes of which a criterion chooses one, and the seasonal naive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqmodels.evaluation.baselines import SeasonalNaive
from seqmodels.evaluation.forecasting.linear_process import (
    Autoregression,
    FittedProcess,
    InputEffects,
    Process,
    SeasonalARIMA,
    StructuralProcess,
    fit_process,
)
from seqmodels.generation.feature_distributions import FeatureDistributions

LARGEST_EXPONENT = 700.0
ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 18, 24, 25)  # of autoregressions, as far as there are data
VALUES_PER_LAG = 8
MOST_LAGS = 3  # of p and q
MOST_FITTED = 24  # processes of a search
SMALLEST_RATIO = 1.2  # of the largest value to the smallest, from which logarithms differ from values
LARGE_RATIO = 3.0  # from which square roots differ from both
HALF_BAND = 1.6449  # deviations of a Gaussian, of a band of 90 %
# Logarithms of the weights that kinds of models have before they are tried, of those that differ from 0: on public
# series autoregressions around a level did better, and those below worse, than their backtests alone said.
LEVEL_PRIOR, LINE_PRIOR, TREND_PRIOR, SEARCH_PRIOR = 0.5, -0.35, -0.2, -0.15


@dataclass(frozen=True)
class StepQuantiles:
    """``mean (k,)`` and ``quantiles (k, Q)`` of the steps ahead, each by itself, in units of the series."""

    mean: np.ndarray
    quantiles: np.ndarray


class FittedCandidate(ABC):
    """What forecasts a series; ``str`` says what it is."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """How many numbers were fitted."""

    @abstractmethod
    def ahead(self, y: np.ndarray, k: int, levels: np.ndarray, inputs: np.ndarray | None = None) -> StepQuantiles:
        """The k steps that follow ``y (T,)``, given ``inputs (T + k, U)`` if it was fitted with some."""

    @abstractmethod
    def log_probs(self, y: np.ndarray) -> np.ndarray:
        """``(T,)`` nats of each step of ``y (T,)``, to which it was fitted, given those before, in units of y.

        NaN of the first steps, which have no density, and of those missing.
        """

    def effects(self, y: np.ndarray, inputs: np.ndarray) -> InputEffects | None:
        """What a unit of each of ``inputs (T, U)`` adds to what is modelled of ``y (T,)``; None: it reads none."""
        return None

    @property
    def scale_name(self) -> str:
        """What of the values is modelled: values, square roots or logarithms."""
        return str(VALUES)


class CandidateModel(ABC):
    """What may be fitted to a series. To add one, define ``fit``."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is called in tables."""

    @property
    def log_prior(self) -> float:
        """The logarithm of its weight before it is tried."""
        return 0.0

    @abstractmethod
    def fit(self, y: np.ndarray, inputs: np.ndarray | None = None) -> FittedCandidate:
        """Fit to ``y (T,)``, regressed on ``inputs (T, U)`` if there are; ``ValueError`` where that cannot be."""


# -- linear processes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PowerScale:
    """What of a series a process is of: its values (power 1), their square roots (0.5) or logarithms (0)."""

    power: float

    def __str__(self) -> str:
        return {1.0: "values", 0.5: "square roots", 0.0: "logarithms"}[self.power]

    def of_values(self, y: np.ndarray) -> np.ndarray:
        """``(T,)``; y is not below zero for square roots, and above it for logarithms."""
        return np.asarray(np.log(y) if self.power == 0 else np.power(y, self.power))

    def to_values(self, z: np.ndarray) -> np.ndarray:
        """The inverse; of what is below the least square root, zero."""
        if self.power == 0:
            return np.asarray(np.exp(np.minimum(z, LARGEST_EXPONENT)))
        return z if self.power == 1 else np.square(np.maximum(z, 0.0))

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """``(T,)`` ``log dz/dy``; of a value of zero as if it were the least that is not."""
        if self.power == 1:
            return np.zeros(len(y))
        least = np.nanmin(np.where(y > 0, y, np.inf))
        return np.asarray(np.log(self.power or 1.0) + (self.power - 1) * np.log(np.maximum(y, least)))

    def mean_value(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """Of values, of which z is Gaussian."""
        if self.power == 0:
            return self.to_values(mean + 0.5 * deviation**2)
        return mean if self.power == 1 else mean**2 + deviation**2


VALUES, SQUARE_ROOTS, LOGARITHMS = PowerScale(1.0), PowerScale(0.5), PowerScale(0.0)


@dataclass(frozen=True)
class ProcessFamily(CandidateModel):
    """Linear processes, of which the one with the least of Akaike's criterion is taken.

    ``processes`` are all fitted; then those that ``near`` says are near the best, as long as one of them is better.
    """

    kind: str
    season: int | None
    processes: tuple[Process, ...]
    scale: PowerScale
    near: Callable[[Process], Iterable[Process]] | None = None
    prior: float = 0.0

    @property
    def log_prior(self) -> float:
        return self.prior

    @property
    def title(self) -> str:
        season = "" if self.season is None else f", season {self.season}"
        return f"{self.kind}{season}" + f", {self.scale}" * (self.scale != VALUES)

    def fit(self, y: np.ndarray, inputs: np.ndarray | None = None) -> FittedCandidate:
        z = self.scale.of_values(y)
        fitted: dict[Process, FittedProcess | None] = {each: _fitted(each, z, inputs) for each in self.processes}
        best = _least([each for each in fitted.values() if each is not None])
        while self.near is not None:
            for process in self.near(best.process):
                if process not in fitted and len(fitted) < MOST_FITTED:
                    fitted[process] = each = _fitted(process, z, inputs)
                    if each is not None and _least([best, each]) is each:
                        best = each
                        break
            else:
                break
        return ScaledProcess(best, self.scale)


def _fitted(process: Process, z: np.ndarray, inputs: np.ndarray | None) -> FittedProcess | None:
    """None where it cannot be fitted."""
    try:
        return fit_process(process, z, inputs)
    except (ValueError, np.linalg.LinAlgError):
        return None


def _least(fitted: Sequence[FittedProcess]) -> FittedProcess:
    """That with the least criterion, of the steps that have a density under all."""
    if not fitted:
        raise ValueError("the series is too short, or has no noise")
    first = max(each.process.n_lost for each in fitted)
    return min(fitted, key=lambda each: each.criterion(first))


@dataclass(frozen=True)
class ScaledProcess(FittedCandidate):
    """A linear process of values, or of what a scale makes of them."""

    fitted: FittedProcess
    scale: PowerScale

    def ahead(self, y: np.ndarray, k: int, levels: np.ndarray, inputs: np.ndarray | None = None) -> StepQuantiles:
        from scipy import special

        steps = self.fitted.ahead(self.scale.of_values(y), k, inputs)
        quantiles = steps.mean[:, None] + steps.deviation[:, None] * special.ndtri(levels)
        return StepQuantiles(self.scale.mean_value(steps.mean, steps.deviation), self.scale.to_values(quantiles))

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
    """A level with each kind of slope, and a season."""
    priors = {"none": 0.0, "fixed": TREND_PRIOR, "walk": TREND_PRIOR, "damped": 0.0}
    families = []
    for slope, prior in priors.items():
        process = StructuralProcess(slope, season)
        families.append(ProcessFamily(StructuralProcess(slope).name, season, (process,), scale, prior=prior))
    return families


def arima_family(season: int | None, scale: PowerScale) -> ProcessFamily:
    """ARIMA, by a stepwise search from a few orders (Hyndman and Khandakar 2008)."""
    if season is None:
        starts = [
            *(SeasonalARIMA(order, has_constant=True) for order in [(1, 0, 0), (2, 0, 1)]),
            *(SeasonalARIMA(order) for order in [(0, 1, 1), (1, 1, 1), (2, 1, 2), (0, 2, 1)]),
        ]
        return ProcessFamily("ARIMA", season, tuple(starts), scale, near_arima, SEARCH_PRIOR)
    starts = [
        *(SeasonalARIMA(order, (0, 1, 1), season) for order in [(0, 1, 1), (1, 1, 1)]),
        *(SeasonalARIMA(order, (0, 1, 1), season, has_constant=True) for order in [(1, 0, 0), (2, 0, 1)]),
        SeasonalARIMA((1, 1, 1), (1, 0, 1), season),
        SeasonalARIMA((1, 0, 0), (1, 0, 0), season, has_constant=True),
    ]
    return ProcessFamily("ARIMA", season, tuple(starts), scale, near_arima, SEARCH_PRIOR)


def near_arima(process: Process) -> Iterator[SeasonalARIMA]:
    """The process with one order more or less, or both of p and q, or with a constant or without."""
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
    """Autoregressions around a level, around a line, and of changes, with means of the phases of a season."""
    orders = [p for p in ORDERS if p == 1 or p <= n_values // VALUES_PER_LAG]
    around_level = tuple(Autoregression(p, season) for p in orders)
    around_line = tuple(Autoregression(p, season, has_slope=True) for p in orders)
    changes = tuple(Autoregression(p, season, of_changes=True) for p in (0, *orders))
    return [
        ProcessFamily("autoregression", season, around_level, scale, prior=LEVEL_PRIOR),
        ProcessFamily("autoregression around a line", season, around_line, scale, prior=LINE_PRIOR),
        ProcessFamily("autoregression of changes", season, changes, scale),
    ]


# -- the naive -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Naive(CandidateModel):
    """The value a season ago, or under season 1 the last value.

    Args:
        season: its steps.
        holds_all: whether its band of 90 % holds all values of the series, of which too few changes are known.
    """

    season: int = 1
    holds_all: bool = False

    @property
    def log_prior(self) -> float:
        return TREND_PRIOR

    @property
    def title(self) -> str:
        return "naive" if self.season == 1 else "seasonal naive"

    def fit(self, y: np.ndarray, inputs: np.ndarray | None = None) -> FittedCandidate:
        fitted = SeasonalNaive(self.season).fit([y[:, None]])
        if self.holds_all:
            last = y[~np.isnan(y)][-1]
            farthest = float(np.nanmax(np.abs(y - last)))
            fitted.covariance_ = np.maximum(fitted.covariance_, (farthest / HALF_BAND) ** 2)
        return FittedNaive(fitted)


@dataclass(frozen=True)
class FittedNaive(FittedCandidate):
    """``SeasonalNaive`` of one feature."""

    fitted: SeasonalNaive

    def ahead(self, y: np.ndarray, k: int, levels: np.ndarray, inputs: np.ndarray | None = None) -> StepQuantiles:
        ahead = next(iter(self.fitted.ahead([y[:, None]], [[len(y)]], k, 1, 0)))
        steps = [step for step in ahead.steps if isinstance(step, FeatureDistributions)]
        mean = np.array([step.mean[0] for step in steps])
        return StepQuantiles(mean, np.stack([step.quantiles(levels)[:, 0] for step in steps]))

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
    """The scales on which ``y (T,)`` may be read, as far as they differ."""
    low, high = float(np.nanmin(y)), float(np.nanmax(y))
    scales = [VALUES]
    if low > 0 and high > SMALLEST_RATIO * low:
        scales.append(LOGARITHMS)
    if low >= 0 and high > LARGE_RATIO * low:
        scales.append(SQUARE_ROOTS)
    return scales

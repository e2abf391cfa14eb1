"""What is tried on a series: families of linear processes of which a criterion chooses one, and the seasonal naive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqmodels.evaluation.baselines import SeasonalNaive
from seqmodels.evaluation.forecasting.linear_process import (
    FittedProcess,
    Process,
    SeasonalARIMA,
    StructuralProcess,
    fit_process,
)
from seqmodels.generation.feature_distributions import FeatureDistributions

Scale = Literal["values", "logarithms"]
LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class StepQuantiles:
    """``mean (k,)`` and ``quantiles (k, Q)`` of the steps ahead, each by itself, in units of the series."""

    mean: np.ndarray
    quantiles: np.ndarray


class FittedCandidate(ABC):
    """What forecasts a series."""

    @abstractmethod
    def ahead(self, y: np.ndarray, k: int, levels: np.ndarray) -> StepQuantiles:
        """The k steps that follow ``y (T,)``."""


class Candidate(ABC):
    """What may be fitted to a series. To add one, define ``fit``."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is called in tables."""

    @abstractmethod
    def fit(self, y: np.ndarray) -> FittedCandidate:
        """Raises ``ValueError`` for a series ``y (T,)`` that it cannot be fitted to."""


# -- linear processes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessFamily(Candidate):
    """Linear processes of values or of logarithms, of which the one with the least criterion is taken.

    ``per_parameter``: what the criterion charges for a fitted number; 2 is Akaike's.
    """

    kind: str
    season: int | None
    processes: tuple[Process, ...]
    scale: Scale
    per_parameter: float = 2.0

    @property
    def title(self) -> str:
        season = "" if self.season is None else f", season {self.season}"
        return f"{self.kind}{season}" + ", logarithms" * (self.scale == "logarithms")

    def fit(self, y: np.ndarray) -> FittedCandidate:
        z = np.log(y) if self.scale == "logarithms" else y
        errors, fitted = [], []
        for process in self.processes:
            try:
                fitted.append(fit_process(process, z))
            except ValueError as error:
                errors.append(str(error))
        if not fitted:
            raise ValueError(errors[0])
        most = max(int(np.argmax(~np.isnan(each.log_probs))) for each in fitted)
        best = min(fitted, key=lambda each: each.criterion(most, per_parameter=self.per_parameter))
        return ScaledProcess(best, self.scale)


@dataclass(frozen=True)
class ScaledProcess(FittedCandidate):
    """A linear process of values or of their logarithms."""

    fitted: FittedProcess
    scale: Scale

    def ahead(self, y: np.ndarray, k: int, levels: np.ndarray) -> StepQuantiles:
        from scipy import special

        steps = self.fitted.ahead(np.log(y) if self.scale == "logarithms" else y, k)
        quantiles = steps.mean[:, None] + steps.deviation[:, None] * special.ndtri(levels)
        if self.scale == "values":
            return StepQuantiles(steps.mean, quantiles)
        mean = np.exp(np.minimum(steps.mean + 0.5 * steps.deviation**2, LARGEST_EXPONENT))
        return StepQuantiles(mean, np.exp(np.minimum(quantiles, LARGEST_EXPONENT)))

    def __str__(self) -> str:
        return self.fitted.process.name + " of logarithms" * (self.scale == "logarithms")


def structural_family(season: int | None, scale: Scale) -> ProcessFamily:
    """A level, with a slope or without, and a season."""
    slopes = ("none", "fixed", "walk", "damped")
    return ProcessFamily("structural", season, tuple(StructuralProcess(slope, season) for slope in slopes), scale)


def arima_family(season: int | None, scale: Scale) -> ProcessFamily:
    """ARIMA of a few orders, seasonal where there is a season."""
    changes = [(0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1), (2, 1, 0), (0, 1, 2), (2, 1, 1), (1, 1, 2), (2, 1, 2)]
    levels = [(1, 0, 0), (2, 0, 0), (1, 0, 1), (2, 0, 1), (3, 0, 0), (2, 0, 2)]
    if season is None:
        processes = [SeasonalARIMA(order, has_constant=drift) for order in changes for drift in (False, True)]
        processes += [SeasonalARIMA(order) for order in [(0, 2, 1), (0, 2, 2), (1, 2, 1)]]
        processes += [SeasonalARIMA(order, has_constant=True) for order in levels]
        return ProcessFamily("ARIMA", season, tuple(processes), scale)
    processes = [SeasonalARIMA(order, each, season) for order in changes[:7] for each in [(0, 1, 1), (1, 1, 1)]]
    processes += [SeasonalARIMA(order, (0, 1, 1), season, has_constant=True) for order in levels]
    return ProcessFamily("ARIMA", season, tuple(processes), scale)


def autoregressive_family(season: int | None, scale: Scale, longest: int) -> ProcessFamily:
    """Autoregressions around a level or a line, with means of the phases of a season."""
    processes = [
        SeasonalARIMA((p, 0, 0), season=season or 1, has_constant=True, has_slope=slope, has_dummies=season is not None)
        for p in range(1, longest + 1)
        for slope in (False, True)
    ]
    return ProcessFamily("autoregression", season, tuple(processes), scale)


# -- the naive -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Naive(Candidate):
    """The value a season ago, or under season 1 the last value."""

    season: int = 1

    @property
    def title(self) -> str:
        return "naive" if self.season == 1 else "seasonal naive"

    def fit(self, y: np.ndarray) -> FittedCandidate:
        return FittedNaive(SeasonalNaive(self.season).fit([y[:, None]]))


@dataclass(frozen=True)
class FittedNaive(FittedCandidate):
    """``SeasonalNaive`` of one feature."""

    fitted: SeasonalNaive

    def ahead(self, y: np.ndarray, k: int, levels: np.ndarray) -> StepQuantiles:
        ahead = next(iter(self.fitted.ahead([y[:, None]], [[len(y)]], k, 1, 0)))
        steps = [step for step in ahead.steps if isinstance(step, FeatureDistributions)]
        mean = np.array([step.mean[0] for step in steps])
        return StepQuantiles(mean, np.stack([step.quantiles(levels)[:, 0] for step in steps]))

    def __str__(self) -> str:
        return "naive" if self.fitted.season == 1 else f"seasonal naive({self.fitted.season})"


def candidates(y: np.ndarray, season: int | None, *, longest: int = 6) -> list[Candidate]:
    """What is tried on ``y (T,)``."""
    is_positive = bool(np.nanmin(y) > 0)
    scales: Sequence[Scale] = ("values", "logarithms") if is_positive else ("values",)
    result: list[Candidate] = [Naive(season or 1)]
    for scale in scales:
        for each in {season, None}:
            result += [structural_family(each, scale), arima_family(each, scale)]
            result.append(autoregressive_family(each, scale, longest))
    return result

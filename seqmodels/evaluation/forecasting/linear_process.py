"""Gaussian linear processes in their reduced form, whose forecasts are in closed form::

    a(B) (y_t - z_t δ) = X_t β + u_t,    u Gaussian, E[u_t u_t-k] = σ² γ_k,  γ_k = 0 for k > q

with B the lag, ``a`` an autoregression times differences, and z inputs that are known, such as holidays, if there are.
ARIMA with seasons is one, and so are the sums of a level, a slope, a season and noise of structural time series (Harvey
1989, *Forecasting, structural time series models and the Kalman filter*, section 2.5), and exponential smoothing with
them.

The density is that of y given its first values, as many as ``a`` has lags: the banded Cholesky factor of the covariance
of u takes it apart into steps. Missing values are coefficients of a regression, which is their conditional expectation
(Gómez, Maravall and Peña 1999). Series are centred before all else, so that no figure depends on their level; what
their values say nothing of, such as the mean of a phase of the season that was never seen, is expected at the level,
with the variance of the series.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol

import numpy as np

from seqmodels.common.constants import LOG_2PI
from seqmodels.inference.gaussian.banded import banded_cholesky, filtered_columns, missing_columns, solve_banded
from seqmodels.inference.gaussian.lag_polynomials import (
    autocovariance,
    difference,
    differences,
    in_seasonal_lags,
    inverse_filter,
    lag_polynomial,
    product,
)

LARGEST_NUMBER = 4.0  # inverse hyperbolic tangent of a partial autocorrelation
RIDGE = 1e-9  # of γ_0, added to it, so that the covariance has a Cholesky factor
FIRST_RATIO = -1.0  # logarithm of a ratio of variances that a fit begins with
LARGEST_RATIO = 10.0
FEWEST_ORDERS = 2  # fewest autoregressions of a family that are fitted on all their steps
VALUES_FOR_ONE = 600  # values of a series over the number of its autoregressions that are
NEAR_BOUND = 0.25  # of the distance between the bounds of a number, within which no search begins
SLOPE_UNIT = 0.01  # of b, which keeps regressors of one size
ROUNDS = 5  # of an autoregression and the coefficients of inputs, each given the other
ROUNDING = 1e-14  # of the largest value: the least deviation of a forecast
UNKNOWN = 1e-10  # of the largest singular value of normal equations, below which they say nothing of a direction


@dataclass(frozen=True)
class Polynomials:
    """The lag polynomial a of a linear process ``a(B) y = u``, and the autocovariances γ of its moving-average side u.

    Attributes:
        a: coefficients from lag 0 to P, ``(P + 1,)``.
        autocovariance: γ, in units of the variance σ², from lag 0 to q, ``(q + 1,)``.
    """

    a: np.ndarray
    autocovariance: np.ndarray


class Process(ABC):
    """A linear process that can be fitted to a series, the abstract base class.

    Its shape parameters (AR and MA coefficients, ratios of variances), called ``numbers``, are fitted numerically, and
    the coefficients β of R regressors and the variance σ² in closed form. To add a process, define all abstract
    methods.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the process in tables, such as ``"ARIMA(1,0,0)"``."""

    @abstractmethod
    def start(self) -> np.ndarray:
        """Return the N shape parameters at which a fit begins, ``(N,)``, such as AR and MA coefficients."""

    @abstractmethod
    def polynomials(self, numbers: np.ndarray) -> Polynomials:
        """Return the lag polynomial of the process and the autocovariances of its moving-average side.

        Args:
            numbers: N shape parameters, such as AR and MA coefficients, ``(N,)``.
        """

    @abstractmethod
    def regressors(self, steps: np.ndarray) -> np.ndarray:
        """Return the values of R regressors, such as a constant or a line, at n steps, ``(n, R)``.

        Args:
            steps: the steps, counted from 0, ``(n,)``.
        """

    @property
    @abstractmethod
    def has_level(self) -> bool:
        """True if the process fits series of any level.

        A constant added to the series then changes at most the coefficients β of regressors.
        """

    @abstractmethod
    def estimate(self, y: np.ndarray, inputs: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Estimate the N shape parameters (AR and MA coefficients, ratios of variances) from a series, ``(N,)``.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            inputs: U inputs that y is regressed on, ``(T, U)``.
            start: shape parameters at which a search for them begins, ``(N,)``.
        """

    @cached_property
    def n_lost(self) -> int:
        """Number of first values of a series that are given and have no density: the degree P of the lag polynomial."""
        return int(len(self.polynomials(self.start()).a) - 1)

    @cached_property
    def n_free(self) -> int:
        """Number of fitted parameters: shape parameters, coefficients of regressors and variance.

        Effects of inputs are not counted.
        """
        return int(len(self.start()) + self.regressors(np.zeros(1)).shape[1] + 1)


@dataclass(frozen=True)
class SeasonalARIMA(Process):
    """Seasonal ARIMA, ``φ(B) Φ(B^s) (1 - B)^d (1 - B^s)^D y_t = c + θ(B) Θ(B^s) ε_t`` (Box and Jenkins 1970).

    Args:
        order: the orders p, d and q.
        seasonal_order: the seasonal orders P, D and Q.
        season: number s of steps of the season.
        has_constant: whether c is learned; with d + D = 1 it is a drift.
    """

    order: tuple[int, int, int]
    seasonal_order: tuple[int, int, int] = (0, 0, 0)
    season: int = 1
    has_constant: bool = False

    @property
    def name(self) -> str:
        (p, d, q), (P, D, Q) = self.order, self.seasonal_order
        seasonal = f"({P},{D},{Q})[{self.season}]" if (P, D, Q) != (0, 0, 0) else ""
        return f"ARIMA({p},{d},{q}){seasonal}" + " with drift" * (self.has_constant and d + D > 0)

    def start(self) -> np.ndarray:
        (p, _, q), (P, _, Q) = self.order, self.seasonal_order
        return np.full(p + q + P + Q, 0.1)

    def bounds(self) -> list[tuple[float, float]]:
        return [(-LARGEST_NUMBER, LARGEST_NUMBER)] * len(self.start())

    def search_space(self) -> SearchSpace:
        (p, d, q), (P, D, Q) = self.order, self.seasonal_order
        of_levels = differences(d, D, self.season)
        return SearchSpace(of_levels, np.array([p, q, P, Q, self.season]), np.zeros((0, 0)), np.zeros(0, dtype=bool))

    def polynomials(self, numbers: np.ndarray) -> Polynomials:
        (p, d, q), (P, D, _) = self.order, self.seasonal_order
        each, seasonal = numbers.tolist(), p + q
        ar, ma = lag_polynomial(each[:p]), lag_polynomial(each[p:seasonal])
        a = np.convolve(ar, differences(d, D, self.season))
        if P:
            a = np.convolve(a, in_seasonal_lags(lag_polynomial(each[seasonal : seasonal + P]), self.season))
        if len(each) > seasonal + P:
            ma = np.convolve(ma, in_seasonal_lags(lag_polynomial(each[seasonal + P :]), self.season))
        return Polynomials(a, autocovariance(ma))

    def regressors(self, steps: np.ndarray) -> np.ndarray:
        return np.ones((len(steps), int(self.has_constant)))

    @property
    def has_level(self) -> bool:
        return self.has_constant or self.order[1] + self.seasonal_order[1] > 0

    def estimate(self, y: np.ndarray, inputs: np.ndarray, start: np.ndarray) -> np.ndarray:
        return most_likely(self, y, inputs, start)


@dataclass(frozen=True)
class Autoregression(Process):
    """An autoregression ``z_t = c + b t + m_phase(t) + Σ φ_i z_t-i + ε_t`` of y or its changes, by least squares.

    Args:
        order: number p of lags.
        season: number of steps of the season, whose phases have means m of their own; None means no season.
        has_slope: whether there is a slope b.
        of_changes: whether z are the changes ``y_t - y_t-1`` instead of y.
    """

    order: int
    season: int | None = None
    has_slope: bool = False
    of_changes: bool = False

    @property
    def name(self) -> str:
        means = [] if self.season is None else [f"means of season({self.season})"]
        of_changes = " of changes" * self.of_changes
        return " + ".join([f"AR({self.order}){of_changes}", *["line"] * self.has_slope, *means])

    def start(self) -> np.ndarray:
        return np.zeros(self.order)

    def polynomials(self, numbers: np.ndarray) -> Polynomials:
        a = np.append(1.0, -numbers)
        return Polynomials(np.convolve(a, differences(int(self.of_changes), 0, 1)), np.ones(1))

    def regressors(self, steps: np.ndarray) -> np.ndarray:
        phases = np.arange(1, self.season or 1) == (steps % (self.season or 1))[:, None]
        line = SLOPE_UNIT * steps[:, None] if self.has_slope else np.zeros((len(steps), 0))
        return np.concatenate([np.ones((len(steps), 1)), line, phases], axis=1)

    @property
    def has_level(self) -> bool:
        return True

    def estimate(self, y: np.ndarray, inputs: np.ndarray, start: np.ndarray) -> np.ndarray:
        numbers = self._least_squares(y)
        for _ in range(ROUNDS if inputs.shape[1] else 0):  # Cochrane and Orcutt (1949)
            effects = _Series.of(self, y, inputs).whitened(self.polynomials(numbers)).effects
            numbers = self._least_squares(y - inputs @ effects)
        return numbers

    def _least_squares(self, y: np.ndarray) -> np.ndarray:
        rows = self.rows(y - np.nanmean(y))
        design, target = rows[:, :-1], rows[:, -1]
        if len(design) < design.shape[1] + 3:
            raise ValueError(
                f"{self.name} has {design.shape[1] + 1} numbers to fit, and {len(design)} steps are complete"
            )
        coefficients = np.linalg.lstsq(design, target, rcond=None)[0]
        return np.asarray(coefficients[len(coefficients) - self.order :])

    def rows(self, y: np.ndarray) -> np.ndarray:
        """Return the complete rows of the regression of a series on regressors and lags, ``(n, R + p + 1)``.

        The columns are the R regressors, the lags 1 to p, and z itself.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
        """
        p, z = self.order, np.diff(y) if self.of_changes else y
        lags = [z[p - i : len(z) - i] for i in range(1, p + 1)]
        columns = [self.regressors(np.arange(p, len(z)) + int(self.of_changes)), np.stack([*lags, z[p:]], axis=1)]
        rows = np.concatenate(columns, axis=1)
        return np.asarray(rows[~np.isnan(rows).any(axis=1)])


def likely_orders(processes: Sequence[Process], y: np.ndarray, inputs: np.ndarray | None) -> list[Process]:
    """Return the few autoregressions with the least Akaike criteria among many that differ only in their order.

    One QR decomposition of the regression with the largest order has the squared errors of all of them, over the steps
    at which the largest has a density. Missing values are interpolated for it. If there are inputs, no process is left
    out.

    Args:
        processes: the autoregressions, from the smallest order to the largest.
        y: values of the series, ``(T,)``; NaN is missing.
        inputs: U inputs, ``(T, U)``; None means none.
    """
    known = np.flatnonzero(~np.isnan(y))
    candidates = [x for x in processes if isinstance(x, Autoregression) and has_enough_values(x, len(known))]
    if inputs is not None or not candidates:
        return list(processes)
    largest = candidates[-1]
    complete = np.interp(np.arange(len(y)), known, y[known] - y[known].mean())
    errors = np.asarray(np.linalg.qr(largest.rows(complete), mode="r"))[:, -1]
    n = len(y) - largest.n_lost
    squares = np.cumsum(errors[::-1] ** 2)[::-1]  # of the errors that are left after as many columns
    n_before, numbers = len(errors) - 1 - largest.order, np.array([each.n_free for each in candidates])
    left = np.maximum(squares[[n_before + each.order for each in candidates]], np.finfo(np.float64).tiny)
    criteria = n * np.log(left) + 2 * numbers * n / np.maximum(n - numbers - 1, 0.5)
    n_kept = max(
        FEWEST_ORDERS, VALUES_FOR_ONE // len(y)
    )  # the first steps, which it leaves out, say more in a short one
    return [candidates[i] for i in np.argsort(criteria, kind="stable")[:n_kept]]


@dataclass(frozen=True)
class StructuralProcess(Process):
    """A structural time series, the sum of a level, a slope, seasonal effects and noise, in its reduced form.

    Args:
        slope: ``"none"``, ``"fixed"`` (a constant drift), ``"walk"`` (local linear trend) or ``"damped"`` (which
            returns to zero by a factor φ a step).
        season: number of steps of the season; None means no season.
    """

    slope: str = "none"
    season: int | None = None

    @property
    def name(self) -> str:
        said = {"none": "level", "fixed": "level + drift", "walk": "trend", "damped": "damped trend"}[self.slope]
        return said if self.season is None else f"{said} + season({self.season})"

    @property
    def _parts(self) -> list[str]:
        return ["level", *["slope"] * (self.slope in ("walk", "damped")), *["season"] * (self.season is not None)]

    def start(self) -> np.ndarray:
        starts = {"level": FIRST_RATIO, "slope": -5.0, "season": -3.0}
        return np.array([*(starts[part] for part in self._parts), *[1.5] * (self.slope == "damped")])

    def bounds(self) -> list[tuple[float, float]]:
        return [(-16.0, LARGEST_RATIO)] * len(self._parts) + [(0.5, 2.5)] * (self.slope == "damped")

    def search_space(self) -> SearchSpace:
        return _structural_parts(self.slope, self.season)

    def polynomials(self, numbers: np.ndarray) -> Polynomials:
        space = self.search_space()
        damped = np.array([1.0, -math.tanh(numbers[-1])]) if self.slope == "damped" else np.ones(1)
        gamma = np.zeros(space.parts.shape[1] + len(damped) - 1)
        variances = np.append(1.0, np.exp(numbers[: len(space.parts) - 1]))
        for variance, part, is_damped in zip(variances, space.parts, space.is_damped, strict=True):
            each = autocovariance(product(part, damped) if is_damped else part)
            gamma[: len(each)] += variance * each
        return Polynomials(product(space.differences, damped), gamma)

    def regressors(self, steps: np.ndarray) -> np.ndarray:
        return np.ones((len(steps), int(self.slope == "fixed")))

    @property
    def has_level(self) -> bool:
        return True

    def estimate(self, y: np.ndarray, inputs: np.ndarray, start: np.ndarray) -> np.ndarray:
        return most_likely(self, y, inputs, start)


@dataclass(frozen=True)
class GaussianSteps:
    """A Gaussian forecast of k steps.

    Attributes:
        mean: mean of each step, ``(k,)``.
        deviation: standard deviation of each step, ``(k,)``.
        root: a root of the covariance of all steps, ``root @ root.T``, from r independent sources of error,
            ``(k, r)``.
    """

    mean: np.ndarray
    deviation: np.ndarray
    root: np.ndarray


@dataclass(frozen=True)
class InputEffects:
    """The estimated effects of U inputs on a series, per unit of each input.

    Attributes:
        mean: the estimates, ``(U,)``.
        deviation: their standard errors, ``(U,)``.
    """

    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class FittedProcess:
    """A linear process with fitted shape parameters, such as AR and MA coefficients.

    The coefficients β of regressors, the effects δ of inputs and the variance σ² are estimated from each series that it
    forecasts.

    Attributes:
        process: the process.
        numbers: its N shape parameters, ``(N,)``.
        log_probs: log-density of each step of the training series given the steps before, ``(T,)`` in nats; NaN for the
            first steps, which have no density, and for missing ones.
        n_inputs: number U of inputs.
    """

    process: Process
    numbers: np.ndarray
    log_probs: np.ndarray
    n_inputs: int = 0

    @property
    def n_parameters(self) -> int:
        """Number of fitted parameters: shape parameters, coefficients of regressors, effects of inputs and variance."""
        return self.process.n_free + self.n_inputs

    def criterion(self, first: int) -> float:
        """Return Akaike's criterion, corrected for few values (Hurvich and Tsai 1989).

        Args:
            first: index of the first step whose log-density counts.
        """
        log_probs, n = self.log_probs[first:], self.n_parameters
        n_values = int((~np.isnan(log_probs)).sum())
        return float(-2 * np.nansum(log_probs) + 2 * n * n_values / max(n_values - n - 1, 0.5))

    def ahead(self, y: np.ndarray, k: int, inputs: np.ndarray | None = None) -> GaussianSteps:
        """Forecast the k steps that follow a series.

        The standard deviations include the uncertainty of the coefficients of regressors and inputs and of missing
        values, but not of the shape parameters.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            k: number of steps ahead.
            inputs: U inputs of the series and of the steps ahead, ``(T + k, U)``; None means none.
        """
        return self.ahead_from(y, [len(y)], k, inputs)[0]

    def ahead_from(
        self, y: np.ndarray, origins: Sequence[int], k: int, inputs: np.ndarray | None = None
    ) -> list[GaussianSteps]:
        """Return the forecasts of the k steps after each origin, a number of given steps, in their order.

        All origins share one regression: that of an origin is its first rows.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            origins: increasing numbers of given steps.
            k: number of steps ahead.
            inputs: U inputs up to k steps after the last origin, or farther, ``(T', U)``; None means none.
        """
        last = origins[-1]
        y, inputs = y[:last], np.zeros((last + k, 0)) if inputs is None else inputs[: last + k]
        polynomials, series = self.process.polynomials(self.numbers), _Series.of(self.process, y, inputs[:last])
        a, p = polynomials.a, len(polynomials.a) - 1
        whitened, to_y = series.whitened(polynomials, k), inverse_filter(a, k)
        plain = whitened.of_inputs.stop
        X = np.concatenate([self.process.regressors(np.arange(p, last + k)), filtered_columns(inputs, a)], axis=1)
        parts = whitened.parts([t - p for t in origins], [int((series.missing < t).sum()) for t in origins])
        result = []
        for t, part in zip(origins, parts, strict=True):
            n, missing = t - p, series.missing[: len(part.beta) - plain]
            later = whitened.factor_rows(n, n + k)  # (k, q + k)
            before, after = later[:, : later.shape[1] - k], later[:, later.shape[1] - k :]
            rows = slice(n - before.shape[1], n)
            ahead = X[n : n + k]  # (k, R)
            slopes = np.zeros((k, len(part.beta)))
            slopes[:, :plain] = ahead
            slopes -= before @ whitened.design[rows, : len(part.beta)]
            past = series.filled[n:t].copy()
            past[missing[missing >= n] - n] = part.beta[plain:][missing >= n]
            u = before @ whitened.target[rows] + slopes @ part.beta - _from_past(a, past, k)  # (k,) expected
            for i, step in enumerate(missing.tolist()):
                if step >= n:  # a value before the steps ahead is uncertain itself
                    slopes[:, plain + i] -= _from_past(a, (np.arange(n, t) == step).astype(float), k)
            deviation = math.sqrt(part.squares / max(n - len(missing) - self.n_parameters + 1, 1))
            root = [deviation * (to_y @ after)]
            if len(part.beta):
                known, unknown = part.beta_factors()
                root.append(deviation * (to_y @ slopes @ known))
                if unknown.shape[1]:
                    root.append(np.nanstd(y[:t]) * (to_y @ slopes @ unknown))
            errors = np.concatenate(root, axis=1)
            deviations = np.sqrt((errors**2).sum(1))
            least = ROUNDING * float(np.nanmax(np.abs(y[:t])))
            result.append(GaussianSteps(series.centre + to_y @ u, np.maximum(deviations, least), errors))
        return result

    def filled(self, y: np.ndarray) -> np.ndarray:
        """Return a series, ``(T,)``, with each missing value replaced by its expectation given all known values.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
        """
        series = _Series.of(self.process, y, np.zeros((len(y), 0)))
        return series.centre + series.with_missing(series.whitened(self.process.polynomials(self.numbers)))

    def effects(self, y: np.ndarray, inputs: np.ndarray) -> InputEffects:
        """Estimate the effects of inputs on a series by generalised least squares.

        Args:
            y: values of the series, ``(T,)``; NaN is missing.
            inputs: U inputs, ``(T, U)``.
        """
        series = _Series.of(self.process, y, inputs)
        whitened = series.whitened(self.process.polynomials(self.numbers))
        n, n_missing = len(whitened.target), len(series.missing)
        (part,) = whitened.parts([n], [n_missing])
        variance = part.squares / max(n - n_missing - self.n_parameters + 1, 1)
        of_inputs = part.beta_factors()[0][whitened.of_inputs]
        return InputEffects(part.beta[whitened.of_inputs], np.sqrt(variance * (of_inputs**2).sum(1)))


def fit_process(
    process: Process, y: np.ndarray, inputs: np.ndarray | None = None, start: np.ndarray | None = None
) -> FittedProcess:
    """Fit a linear process to a series, with a regression on inputs if there are some.

    Args:
        process: the process.
        y: values of the series, ``(T,)``; NaN is missing.
        inputs: U inputs, ``(T, U)``; None means none.
        start: shape parameters at which a search for them begins, such as those of a similar series, ``(N,)``; None
            means ``process.start()``.

    Raises:
        ValueError: the series is too short for the process, or the process leaves no noise in it.
    """
    inputs = np.zeros((len(y), 0)) if inputs is None else inputs
    n_values = len(y) - int(np.isnan(y).sum())
    if not has_enough_values(process, n_values, inputs.shape[1]):
        n_free = process.n_free + inputs.shape[1]
        raise ValueError(f"{process.name} has {n_free} numbers to fit, and the series only {n_values} values")
    numbers = process.estimate(y, inputs, process.start() if start is None else start)
    whitened = _Series.of(process, y, inputs).whitened(process.polynomials(numbers))
    if not np.isfinite(whitened.log_prob):
        raise ValueError(f"{process.name} leaves no noise in the series")
    n = len(whitened.residuals)
    variance = whitened.squares / (n - int(np.isnan(y).sum()))
    log_probs = np.full(len(y), np.nan)
    of_residuals = -0.5 * (LOG_2PI + math.log(variance) + whitened.residuals**2 / variance)
    log_probs[len(y) - n :] = of_residuals - np.log(whitened.band[0, :n])
    log_probs[np.isnan(y)] = np.nan
    return FittedProcess(process, numbers, log_probs, inputs.shape[1])


def has_enough_values(process: Process, n_values: int, n_inputs: int = 0) -> bool:
    """Return True if a series has enough values for a process to be fitted, with a regression on inputs if there are.

    Args:
        process: the process.
        n_values: number of values of the series that are not missing.
        n_inputs: number of inputs.
    """
    return n_values - process.n_lost >= process.n_free + n_inputs + 3


@dataclass(frozen=True)
class SearchSpace:
    """A process as arrays, from which compiled loops compute its polynomials for any shape parameters.

    Attributes:
        differences: the factor of the lag polynomial a that no parameter changes, ``(d + 1,)``.
        orders: p, q, P, Q and the season of an ARIMA, ``(5,)``; zeros for other processes.
        parts: lag polynomials of the K parts of a structural process, noise first, padded with zeros to one length;
            an ARIMA has none, ``(0, 0)``.
        is_damped: whether a part is also multiplied by ``1 - φ B`` of a damped slope, ``(K,)``.
    """

    differences: np.ndarray
    orders: np.ndarray
    parts: np.ndarray
    is_damped: np.ndarray


class Searched(Protocol):
    """Protocol of a process whose shape parameters are fitted by maximum likelihood within ``bounds``."""

    def start(self) -> np.ndarray: ...
    def bounds(self) -> list[tuple[float, float]]: ...
    def search_space(self) -> SearchSpace: ...
    def polynomials(self, numbers: np.ndarray) -> Polynomials: ...
    def regressors(self, steps: np.ndarray) -> np.ndarray: ...
    @property
    def n_lost(self) -> int: ...
    @property
    def has_level(self) -> bool: ...


def most_likely(process: Searched, y: np.ndarray, inputs: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the N shape parameters of a process that maximise its likelihood, ``(N,)``.

    Shape parameters are AR and MA coefficients and ratios of variances. The likelihood is that of a series given its
    first values. It is concentrated: the coefficients of regressors, the effects of inputs and the variance are the
    best for each choice of shape parameters. ``_Series.whitened`` is its readable form.

    Args:
        process: the process.
        y: values of the series, ``(T,)``; NaN is missing.
        inputs: U inputs, ``(T, U)``.
        start: shape parameters at which the search begins, ``(N,)``. Those near a bound, where the likelihood hardly
            changes with them, are moved away from it.
    """
    from seqmodels.inference.gaussian import compiled_processes  # lazily: numba takes a while to load

    if not len(start):
        return start
    series, space = _Series.of(process, y, inputs), process.search_space()
    missing = np.zeros((len(y), len(series.missing)))
    missing[series.missing, np.arange(len(series.missing))] = -1.0
    levels = np.concatenate([series.filled[:, None], missing, inputs], axis=1)
    n = len(y) - len(space.differences) + 1
    n_values = len(series.X) - len(series.missing)
    bounds = np.array(process.bounds())
    deviation = (np.nanstd if len(series.missing) else np.std)(y)  # the latter takes a third of the time
    numbers, _ = compiled_processes.most_likely(
        np.clip(start, bounds @ [1 - NEAR_BOUND, NEAR_BOUND], bounds @ [NEAR_BOUND, 1 - NEAR_BOUND]),
        bounds,
        space.orders,
        space.parts,
        space.is_damped,
        np.ascontiguousarray(filtered_columns(levels, space.differences).T),
        np.ascontiguousarray(process.regressors(np.arange(len(y) - n, len(y))).T),
        len(series.missing),
        math.log(deviation or 1.0) * n_values,  # without it where the fit stops would depend on the unit of y
    )
    return np.asarray(numbers)


# -- the regression that all comes down to ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Series:
    """A series of T steps prepared for the regression on regressors, inputs and missing values.

    Attributes:
        filled: the series minus ``centre``, zero at missing steps, ``(T,)``.
        centre: mean of the known values, or 0 if the process has no level of its own.
        missing: indices of the m missing steps, ``(m,)``.
        X: R regressors of the process at all but the first P steps, which have no density, ``(T - P, R)``.
        inputs: U inputs, ``(T, U)``.
    """

    filled: np.ndarray
    centre: float
    missing: np.ndarray
    X: np.ndarray
    inputs: np.ndarray

    @classmethod
    def of(cls, process: Searched | Process, y: np.ndarray, inputs: np.ndarray) -> _Series:
        is_missing = np.isnan(y)
        centre = float(np.mean(y[~is_missing])) if process.has_level else 0.0
        X = process.regressors(np.arange(process.n_lost, len(y)))
        return cls(np.where(is_missing, 0.0, y - centre), centre, np.flatnonzero(is_missing), X, inputs)

    def with_missing(self, whitened: _Whitened) -> np.ndarray:
        """Return the centred series of T steps, ``(T,)``, with missing values replaced by their estimates.

        Args:
            whitened: the solved regression, which has the estimates.
        """
        filled = self.filled.copy()
        filled[self.missing] = whitened.beta[len(whitened.beta) - len(self.missing) :]
        return filled

    def whitened(self, polynomials: Polynomials, k: int = 0) -> _Whitened:
        """Multiply the regression of this series by ``L⁻¹``, with ``L Lᵀ`` the covariance of u, and solve it.

        u is the moving-average side of the process ``a(B) y = u``.

        Args:
            polynomials: lag polynomial a and autocovariances of u.
            k: number of steps ahead that the factor L also covers.

        Raises:
            LinAlgError: the covariance has no Cholesky factor.
        """
        a, gamma = polynomials.a, polynomials.autocovariance
        n = len(self.X)
        covariance = np.repeat(gamma[: n + k, None], n + k, axis=1)
        covariance[0] *= 1 + RIDGE
        band = banded_cholesky(covariance)
        columns = [np.convolve(self.filled, a, "valid")[:, None], self.X, filtered_columns(self.inputs, a)]
        if len(self.missing):
            columns.append(missing_columns(a, len(self.filled), self.missing))
        whitened = solve_banded(band[:, :n], np.concatenate(columns, axis=1))
        target, design = whitened[:, 0], whitened[:, 1:]
        log_det = float(np.log(band[0, :n]).sum())
        beta = _coefficients(design, target)
        residuals = target - design @ beta
        of_inputs = slice(self.X.shape[1], self.X.shape[1] + self.inputs.shape[1])
        if len(self.missing):  # the volume that the missing values take (Gómez, Maravall and Peña 1999)
            of_missing = np.linalg.svd(design[:, of_inputs.stop :], compute_uv=False)
            log_det += float(np.log(np.maximum(of_missing, 1e-10)).sum())
        squares, n_values = float(residuals @ residuals), n - len(self.missing)
        log_prob = -np.inf if n_values < 1 else 0.5 * n_values * (-1 - LOG_2PI - _log(squares / n_values)) - log_det
        return _Whitened(band, target, design, beta, residuals, squares, log_prob, of_inputs)


@dataclass(frozen=True)
class _Whitened:
    """The solved regression ``L⁻¹ a(B) y = L⁻¹ X β + σ ε`` of n steps, where β holds all R coefficients.

    L is the Cholesky factor of the covariance of the moving-average side of the process.

    Attributes:
        band: lower bands of L, for the n steps and k steps ahead, as LAPACK stores them, ``(q + 1, n + k)``.
        target: ``L⁻¹ a(B) y``, ``(n,)``.
        design: ``L⁻¹ X`` with columns for regressors, inputs and missing values, in this order, ``(n, R)``.
        beta: estimated coefficients: of regressors, of inputs (δ), and missing values, ``(R,)``.
        residuals: ``σ ε``, ``(n,)``.
        squares: sum of the squared residuals.
        log_prob: largest log-likelihood over β and σ², in nats.
        of_inputs: where δ stands in ``beta``.
    """

    band: np.ndarray
    target: np.ndarray
    design: np.ndarray
    beta: np.ndarray
    residuals: np.ndarray
    squares: float
    log_prob: float
    of_inputs: slice

    @property
    def effects(self) -> np.ndarray:
        return self.beta[self.of_inputs]

    def factor_rows(self, first: int, last: int) -> np.ndarray:
        """Return rows ``first`` to ``last - 1`` of the lower triangular Cholesky factor L, without leading zeros.

        They have columns for the ``min(q, first)`` steps before ``first`` and for their own steps.
        """
        columns = np.arange(max(first - len(self.band) + 1, 0), last)
        lags = np.arange(first, last)[:, None] - columns
        is_within = (lags >= 0) & (lags < len(self.band))
        return np.where(is_within, self.band[np.where(is_within, lags, 0), columns], 0.0)

    def parts(self, n_rows: Sequence[int], n_missing: Sequence[int]) -> Iterator[_Part]:
        """Solve the regression of the first rows only, for several increasing numbers of rows.

        Rows are reduced by QR decompositions to as many as there are columns, each of which begins with the last.

        Args:
            n_rows: numbers of first rows.
            n_missing: for each of them, how many of the missing values stand before its end.
        """
        columns = np.concatenate([self.design, self.target[:, None]], axis=1)
        reduced = columns[:0]
        for start, stop, m in zip([0, *n_rows[:-1]], n_rows, n_missing, strict=True):
            reduced = np.asarray(np.linalg.qr(np.concatenate([reduced, columns[start:stop]]), mode="r"))
            design, target = reduced[:, : self.of_inputs.stop + m], reduced[:, -1]
            beta = _coefficients(design, target)
            yield _Part(design, beta, float(((target - design @ beta) ** 2).sum()))


@dataclass(frozen=True)
class _Part:
    """The solved regression of the first steps of a series, with rows reduced to as many as there are columns.

    Attributes:
        design: the reduced rows, of the R regressors that have values in these steps, ``(m, R)``.
        beta: estimated coefficients, ``(R,)``.
        squares: sum of the squared residuals.
    """

    design: np.ndarray
    beta: np.ndarray
    squares: float

    def beta_factors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return a factor of the covariance of the coefficients β, and directions that the series leaves undetermined.

        The factor F, ``(R, R')``, has ``F Fᵀ = Cov[β] / σ²`` for R coefficients; the directions, ``(R, R - R')``, are
        scaled to a largest entry of 1.
        """
        values, vectors = np.linalg.eigh(self.design.T @ self.design)
        order = np.argsort(np.abs(values))[::-1]
        left, singular = vectors[:, order], np.abs(values)[order]
        is_known = singular > UNKNOWN * singular[:1]
        unknown = left[:, ~is_known]
        return left[:, is_known] / np.sqrt(singular[is_known]), unknown / np.abs(unknown).max(axis=0, initial=0.0)


def _coefficients(design: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the coefficients β of least squares, the shortest ones if several are as good, ``(R,)``."""
    if design.shape[1] > 1:
        return np.asarray(np.linalg.lstsq(design, target, rcond=1e-10)[0])
    return np.asarray((design.T @ target) / np.maximum((design**2).sum(0), 1e-300))


def _from_past(a: np.ndarray, past: np.ndarray, k: int) -> np.ndarray:
    """Return what the last P values of y add to ``a(B) y`` at the next k steps, where a has P lags, ``(k,)``."""
    result = np.zeros(k)
    if len(past):
        after = np.convolve(past, a)[len(past) :][:k]
        result[: len(after)] = after
    return result


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


@cache
def _structural_parts(slope: str, season: int | None) -> SearchSpace:
    """Return the lag polynomials of a structural time series: of all its parts, those by which they are multiplied.

    If the slope is damped, the noise, the level and the season are to be multiplied by ``1 - φ B`` as well.

    Args:
        slope: kind of the slope: ``"none"``, ``"fixed"``, ``"walk"`` or ``"damped"``.
        season: number of steps of the season; None means no season.
    """
    change, cycle = difference(1), np.ones(1 if season is None else season)
    slopes = change if slope == "walk" else np.ones(1)
    polynomials = [product(change, slopes, cycle), product(slopes, cycle)]
    if slope in ("walk", "damped"):
        polynomials.append(cycle)
    if season is not None:
        polynomials.append(product(change, slopes))
    parts = np.zeros((len(polynomials), len(polynomials[0])))
    for row, polynomial in zip(parts, polynomials, strict=True):
        row[: len(polynomial)] = polynomial
    is_damped = np.array([slope == "damped" and polynomial is not cycle for polynomial in polynomials])
    return SearchSpace(polynomials[0], np.zeros(5, dtype=int), parts, is_damped)

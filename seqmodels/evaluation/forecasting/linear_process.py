"""Gaussian linear processes in their reduced form, whose forecasts are in closed form::

    a(B) y_t = X_t β + u_t,    u Gaussian, E[u_t u_t-k] = σ² γ_k,  γ_k = 0 for k > q

with B the lag, ``a`` an autoregression times differences. ARIMA with seasons is one, and so are the sums of a level, a
slope, a season and noise of structural time series (Harvey 1989, *Forecasting, structural time series models and the
Kalman filter*, section 2.5), and exponential smoothing with them.

The density is that of y given its first values, as many as ``a`` has lags: the banded Cholesky factor of the covariance
of u takes it apart into steps. Missing values are coefficients of a regression, which is their conditional expectation
(Gómez, Maravall and Peña 1999).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from seqmodels.linear_gaussian.structures import stationary_coefficients

LARGEST_NUMBER = 4.0  # inverse hyperbolic tangent of a partial autocorrelation
RIDGE = 1e-9  # of γ_0, added to it, so that the covariance has a Cholesky factor
FIRST_RATIO = -1.0  # logarithm of a ratio of variances that a fit begins with
LARGEST_RATIO = 10.0
MAX_ITERATIONS = 60


@dataclass(frozen=True)
class Polynomials:
    """``a (P + 1,)`` and ``γ (q + 1,)``, both from lag 0 on."""

    a: np.ndarray
    autocovariance: np.ndarray


class Process(ABC):
    """A linear process with numbers to be fitted. To add one, define its polynomials and its regressors."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in tables."""

    @abstractmethod
    def start(self) -> np.ndarray:
        """The numbers that a fit begins with."""

    @abstractmethod
    def bounds(self) -> list[tuple[float, float]]:
        """Of each number."""

    @abstractmethod
    def polynomials(self, numbers: np.ndarray) -> Polynomials: ...

    @abstractmethod
    def regressors(self, steps: np.ndarray) -> np.ndarray:
        """``(n, R)`` X at ``steps (n,)``, counted from the first of the series."""

    @property
    def n_lost(self) -> int:
        """First values that have no density: the degree of a."""
        return len(self.polynomials(self.start()).a) - 1


@dataclass(frozen=True)
class SeasonalARIMA(Process):
    """``φ(B) Φ(B^s) (1 - B)^d (1 - B^s)^D y_t = c + θ(B) Θ(B^s) ε_t`` (Box and Jenkins 1970).

    Args:
        order: p, d and q.
        seasonal_order: P, D and Q.
        season: s steps.
        has_constant: whether c is learned; with d + D = 1 it is a drift.
        has_dummies: whether each phase of the season has a constant of its own.
        has_slope: whether c grows linearly.
    """

    order: tuple[int, int, int]
    seasonal_order: tuple[int, int, int] = (0, 0, 0)
    season: int = 1
    has_constant: bool = False
    has_dummies: bool = False
    has_slope: bool = False

    @property
    def name(self) -> str:
        if self.order[1:] == (0, 0) and self.seasonal_order == (0, 0, 0):
            extras = ["trend"] * self.has_slope + ["seasonal means"] * self.has_dummies
            return " + ".join([f"AR({self.order[0]})", *extras])
        seasonal = (
            "({},{},{})".format(*self.seasonal_order) + f"[{self.season}]" if self.seasonal_order != (0, 0, 0) else ""
        )
        return "ARIMA({},{},{})".format(*self.order) + seasonal + " with drift" * self.has_constant

    def start(self) -> np.ndarray:
        (p, _, q), (P, _, Q) = self.order, self.seasonal_order
        return np.full(p + q + P + Q, 0.1)

    def bounds(self) -> list[tuple[float, float]]:
        return [(-LARGEST_NUMBER, LARGEST_NUMBER)] * len(self.start())

    def polynomials(self, numbers: np.ndarray) -> Polynomials:
        (p, d, q), (P, D, _) = self.order, self.seasonal_order
        ar, ma, seasonal_ar, seasonal_ma = np.split(numbers, np.cumsum([p, q, P]))
        a = _product(lag_polynomial(ar), _stretched(lag_polynomial(seasonal_ar), self.season))
        a = _product(a, *[_difference(1)] * d, *[_difference(self.season)] * D)
        theta = _product(lag_polynomial(ma), _stretched(lag_polynomial(seasonal_ma), self.season))
        return Polynomials(a, np.correlate(theta, theta, "full")[len(theta) - 1 :])

    def regressors(self, steps: np.ndarray) -> np.ndarray:
        columns = [np.ones(len(steps))] * self.has_constant
        if self.has_slope:
            columns.append(steps / 100.0)
        if self.has_dummies:
            columns += [
                (steps % self.season == phase).astype(float) for phase in range(self.season - self.has_constant)
            ]
        return np.stack(columns, axis=1) if columns else np.zeros((len(steps), 0))


@dataclass(frozen=True)
class StructuralProcess(Process):
    """A level, with a slope or without, seasonal effects and noise, in their reduced form.

    Args:
        slope: ``"none"``, ``"fixed"`` (a constant drift), ``"walk"`` (local linear trend) or ``"damped"`` (which
            returns to zero by a factor φ a step).
        season: s steps; None: there is none.
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

    def polynomials(self, numbers: np.ndarray) -> Polynomials:
        variances = dict(zip(self._parts, np.exp(numbers), strict=False))
        one, change = np.ones(1), _difference(1)
        damping = {"walk": change, "damped": np.array([1.0, -np.tanh(numbers[-1])])}.get(self.slope, one)
        cycle = one if self.season is None else np.ones(self.season)
        of_noise = _product(change, damping, cycle)
        parts = {
            "noise": (1.0, of_noise),
            "level": (variances["level"], _product(damping, cycle)),
            "slope": (variances.get("slope", 0.0), cycle),
            "season": (variances.get("season", 0.0), _product(change, damping)),
        }
        gamma = np.zeros(len(of_noise))
        for variance, polynomial in parts.values():
            gamma[: len(polynomial)] += variance * np.correlate(polynomial, polynomial, "full")[len(polynomial) - 1 :]
        return Polynomials(of_noise, gamma)

    def regressors(self, steps: np.ndarray) -> np.ndarray:
        return np.ones((len(steps), int(self.slope == "fixed")))


@dataclass(frozen=True)
class GaussianSteps:
    """``mean (k,)`` and ``deviation (k,)`` of the steps ahead, each by itself."""

    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class FittedProcess:
    """A process with its numbers; σ² and β are those of the series that it forecasts.

    Attributes:
        log_probs: ``(T,)`` nats of each step of the training series given those before; NaN of the first, which have
            none, and of those missing.
    """

    process: Process
    numbers: np.ndarray
    log_probs: np.ndarray

    @property
    def n_parameters(self) -> int:
        """With β and σ²."""
        return len(self.numbers) + self.process.regressors(np.zeros(1)).shape[1] + 1

    def criterion(self, first: int, *, per_parameter: float = 2.0) -> float:
        """``-2 log p + per_parameter * n`` of the steps from ``first`` on: 2 is Akaike's, log T Schwarz's."""
        return float(-2 * np.nansum(self.log_probs[first:]) + per_parameter * self.n_parameters)

    def ahead(self, y: np.ndarray, k: int) -> GaussianSteps:
        """The k steps that follow ``y (T,)``, with the uncertainty of β and of missing values, not of the numbers."""
        polynomials = self.process.polynomials(self.numbers)
        regression = _regression(self.process, polynomials, y, k)
        p, n = len(polynomials.a) - 1, len(regression.residuals)
        later = regression.factor_rows(n, n + k)  # (k, n + k)
        innovations = later[:, :n] @ regression.residuals  # E[u] of the steps ahead, without regressors
        to_y = _inverse_filter(polynomials.a, k)  # (k, k) u -> y, where y was zero before
        u = innovations + regression.ahead @ regression.beta
        past = regression.filled[len(y) - p :] if p else np.zeros(0)
        mean = _continued(polynomials.a, past, u)
        spread = to_y @ later[:, n:]  # (k, k)
        variance = regression.variance * (spread**2).sum(1)
        if regression.design.shape[1]:
            of_beta = regression.beta_factor()  # (R, R) whose product with its transpose is Cov[β] / σ²
            slopes = to_y @ (regression.ahead - later[:, :n] @ regression.design) + regression.from_missing(k)
            variance = variance + regression.variance * ((slopes @ of_beta) ** 2).sum(1)
        return GaussianSteps(mean, np.sqrt(variance))

    def filled(self, y: np.ndarray) -> np.ndarray:
        """``y (T,)`` with missing values as they are expected given all others."""
        return _regression(self.process, self.process.polynomials(self.numbers), y, 0).filled


def fit_process(process: Process, y: np.ndarray) -> FittedProcess:
    """The numbers of the largest likelihood of ``y (T,)``, given its first values, where β and σ² are the best.

    Raises:
        ValueError: a series too short for the process, or without noise.
    """
    from scipy.optimize import minimize  # lazily: scipy is slow to import

    n_free = len(process.start()) + process.regressors(np.zeros(1)).shape[1] + 1
    n_values = int((~np.isnan(y)).sum())
    if n_values - process.n_lost < n_free + 3:
        raise ValueError(f"{process.name} has {n_free} numbers to fit, and the series only {n_values} values")

    def loss(numbers: np.ndarray) -> float:
        try:
            regression = _regression(process, process.polynomials(numbers), y, 0)
        except np.linalg.LinAlgError:
            return 1e10
        return -regression.log_prob / len(y)

    best = start = process.start()
    if len(start):
        result = minimize(
            loss,
            start,
            method="L-BFGS-B",
            bounds=process.bounds(),
            options={"maxiter": MAX_ITERATIONS, "ftol": 1e-8, "eps": 1e-5},
        )
        best = np.asarray(result.x)
    regression = _regression(process, process.polynomials(best), y, 0)
    if not np.isfinite(regression.log_prob):
        raise ValueError(f"{process.name} leaves no noise in the series")
    return FittedProcess(process, best, regression.log_probs(len(y)))


# -- the regression that all comes down to ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Regression:
    """``L⁻¹ a(B) y = L⁻¹ X β + σ ε``, of whose β the last are missing values of y.

    ``band (q + 1, n + k)`` is L as LAPACK stores it, of the steps ahead too; ``design (n, R)`` is ``L⁻¹ X``, ``ahead
    (k, R)`` X of the steps ahead, ``filled (T,)`` y with missing values as expected.
    """

    a: np.ndarray
    band: np.ndarray
    design: np.ndarray
    ahead: np.ndarray
    beta: np.ndarray
    residuals: np.ndarray
    variance: float
    filled: np.ndarray
    missing: np.ndarray
    log_prob: float

    def factor_rows(self, first: int, last: int) -> np.ndarray:
        """``(last - first, last)`` rows of L."""
        rows = np.zeros((last - first, last))
        for lag in range(len(self.band)):
            columns = np.arange(max(first - lag, 0), last - lag)
            rows[columns + lag - first, columns] = self.band[lag, columns]
        return rows

    def beta_factor(self) -> np.ndarray:
        left, singular, _ = np.linalg.svd(self.design.T @ self.design, hermitian=True)
        kept = singular > 1e-10 * singular[0]
        return np.asarray(left[:, kept] / np.sqrt(singular[kept]))

    def from_missing(self, k: int) -> np.ndarray:
        """``(k, R)`` what the missing values themselves, as values before the steps ahead, do to these."""
        n_plain, p = self.design.shape[1] - len(self.missing), len(self.a) - 1
        result, first = np.zeros((k, self.design.shape[1])), len(self.filled) - p
        for i, t in enumerate(self.missing):
            if t >= first:
                past = (np.arange(first, len(self.filled)) == t).astype(float)
                result[:, n_plain + i] = _continued(self.a, past, np.zeros(k))
        return result

    def log_probs(self, n_steps: int) -> np.ndarray:
        n = len(self.residuals)
        pivots = np.log(self.band[0, :n])
        values = -0.5 * (np.log(2 * np.pi * self.variance) + self.residuals**2 / self.variance) - pivots
        result = np.full(n_steps, np.nan)
        result[n_steps - n :] = values
        result[self.missing] = np.nan
        return result


def _regression(process: Process, polynomials: Polynomials, y: np.ndarray, k: int) -> _Regression:
    """Raises ``LinAlgError`` where the covariance has no Cholesky factor."""
    from scipy.linalg import cholesky_banded
    from scipy.linalg.lapack import dtbtrs

    a, gamma = polynomials.a, polynomials.autocovariance
    p, missing = len(a) - 1, np.flatnonzero(np.isnan(y))
    n = len(y) - p
    q = min(len(gamma), n + k) - 1
    covariance = np.repeat(gamma[: q + 1, None], n + k, axis=1)
    covariance[0] *= 1 + RIDGE
    band = cholesky_banded(covariance, lower=True, check_finite=False)
    filled = np.where(np.isnan(y), 0.0, y)
    u = np.convolve(filled, a, "valid")
    X = process.regressors(np.arange(p, len(y) + k))
    indicators = np.zeros((n, len(missing)))
    for i, t in enumerate(missing.tolist()):
        lags = np.arange(max(p - t, 0), min(p, len(y) - 1 - t) + 1)
        indicators[t + lags - p, i] = -a[lags]
    both = np.concatenate([u[:, None], X[:n], indicators], axis=1)
    whitened, _ = dtbtrs(band[:, :n], both, uplo="L")
    target, design = whitened[:, 0], whitened[:, 1:]
    beta, residuals = np.zeros(0), target
    n_values = n - len(missing)
    log_det = float(np.log(band[0, :n]).sum())
    if design.shape[1]:
        beta = np.linalg.lstsq(design, target, rcond=1e-10)[0]
        residuals = target - design @ beta
        if len(missing):  # the volume that the missing values take (Gómez, Maravall and Peña 1999)
            of_missing = np.linalg.svd(design[:, X.shape[1] :], compute_uv=False)
            log_det += float(np.log(np.maximum(of_missing, 1e-10)).sum())
    squares = float(residuals @ residuals)
    variance = squares / max(n_values - X.shape[1] - len(process.start()), 1)
    with np.errstate(divide="ignore"):
        log_prob = -0.5 * n_values * (1 + np.log(2 * np.pi * squares / max(n_values, 1))) - log_det
    filled[missing] = beta[X.shape[1] :]
    ahead = np.concatenate([X[n:], np.zeros((k, len(missing)))], axis=1)
    return _Regression(a, band, design, ahead, beta, residuals, variance, filled, missing, float(log_prob))


# -- polynomials in the lag ------------------------------------------------------------------------------------------


def lag_polynomial(numbers: np.ndarray) -> np.ndarray:
    """``1 - φ_1 B - ...``, stationary, of unconstrained numbers."""
    return np.append(1.0, -stationary_coefficients(numbers))


def _difference(lag: int) -> np.ndarray:
    polynomial = np.zeros(lag + 1)
    polynomial[0], polynomial[lag] = 1.0, -1.0
    return polynomial


def _stretched(polynomial: np.ndarray, season: int) -> np.ndarray:
    """In ``B^season`` what it was in B."""
    result = np.zeros((len(polynomial) - 1) * season + 1)
    result[::season] = polynomial
    return result


def _product(*polynomials: np.ndarray) -> np.ndarray:
    result = np.ones(1)
    for each in polynomials:
        result = np.convolve(result, each)
    return result


def _continued(a: np.ndarray, past: np.ndarray, u: np.ndarray) -> np.ndarray:
    """``(k,)`` y with ``a(B) y = u (k,)`` after its ``past (P,)``."""
    values = [*past.tolist()]
    for each in u.tolist():
        before = values[len(values) - len(a) + 1 :][::-1]
        values.append(each - float(np.dot(a[1:], before)))
    return np.array(values[len(past) :])


def _inverse_filter(a: np.ndarray, k: int) -> np.ndarray:
    """``(k, k)`` the map from u to y where y was zero before."""
    response = _continued(a, np.zeros(len(a) - 1), (np.arange(k) == 0).astype(float))
    rows, columns = np.indices((k, k))
    return np.where(rows >= columns, response[np.abs(rows - columns)], 0.0)

"""Components of structural time series, of which a series is the sum, in steps or in continuous time (Harvey 1989,
*Forecasting, structural time series models and the Kalman filter*).

A component has states of its own, and gives its matrices as functions of a few numbers, which are fitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np

from seqmodels.common.parameters import Configurable, Range
from seqmodels.inference.gaussian.lag_polynomials import in_seasonal_lags, lag_polynomial

MOST_STATES = 100_000  # of a component
START_VARIANCE = 0.1  # of a disturbance, where the variance of the series is 1
DIFFERENCE = 1e-5  # of a number, in central differences
LARGEST = 5.0  # inverse hyperbolic tangent of a partial autocorrelation, of 0.9999
START_RATE = 0.1  # of an Ornstein-Uhlenbeck process, whose correlation of neighbours is then 0.9
LOG_RATES = (-9.0, 3.0)  # from correlations that do not fall in a thousand steps, or periods, to none
START_RATE_OF_CYCLE = 0.5  # by period, after which the correlation is then 0.6


@dataclass(eq=False, repr=False)
class Component(Configurable, ABC):
    """A base class of components of a time series, with K hidden states and matrices of n fitted numbers.

    To add one, define its matrices. ``name`` is what it is called in tables. The numbers that the methods take,
    ``numbers (..., n)``, are the free parameters of the component: as many as ``start`` returns, within ``bounds``,
    with standard deviations in units of the series. Matrices have the leading axes of ``numbers``, or none if the
    numbers do not change them.
    """

    name: ClassVar[str]

    @abstractmethod
    def check(self) -> None:
        """Raise ``ValueError`` if the component has arguments that are not allowed."""

    @abstractmethod
    def start(self) -> np.ndarray:
        """Return the fitted numbers with which optimisation begins, for a series of variance 1, ``(n,)``."""

    @abstractmethod
    def observation(self) -> np.ndarray:
        """Return the weights with which the K hidden states sum to the value of the component, ``(K,)``."""

    @abstractmethod
    def transition(self, numbers: np.ndarray) -> np.ndarray:
        """Return the transition matrix, which takes K states to the mean of the next states, ``(..., K, K)``.

        ``numbers (..., n)`` are the component's fitted numbers.
        """

    @abstractmethod
    def state_covariance(self, numbers: np.ndarray) -> np.ndarray:
        """Return the covariance of the random disturbances that a step adds to the K states, ``(..., K, K)``.

        ``numbers (..., n)`` are the component's fitted numbers.
        """

    @abstractmethod
    def diffuse(self) -> np.ndarray:
        """Return True for each of K states whose first value is unknown (diffuse), ``(K,)``.

        The others start from their stationary distribution.
        """

    @property
    def has_level(self) -> bool:
        """True if the component contains the level of the series, as a random walk does; False if it moves around 0."""
        return bool(self.diffuse().any())

    @abstractmethod
    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        """Return the component's variances and coefficients by name, in raw units.

        Args:
            numbers: fitted numbers of the component, ``(n,)``.
            scale: size of a unit of the fitted series in raw units.
        """

    @abstractmethod
    def bounds(self) -> list[tuple[float, float]]:
        """Return the smallest and the largest value of each fitted number.

        Standard deviations of disturbances come last and have the bounds ``(0, inf)``.
        """


class InContinuousTime(ABC):
    """A base class of components in continuous time, whose steps may be any times apart."""

    @abstractmethod
    def over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the transition matrices and noise covariances of the states over gaps of time, both ``(n, K, K)``.

        Args:
            numbers: fitted numbers of the component.
            gaps: n lengths of time in steps of the system, at least 0, ``(n,)``.
        """


class _RandomWalks(Component, ABC):
    """A base class of components with constant transitions and states that have disturbances of their own.

    Some or all states have a disturbance, each with a variance of its own, which is fitted.
    """

    def start(self) -> np.ndarray:
        return np.full(int(self._disturbed().sum()), np.sqrt(START_VARIANCE))

    @abstractmethod
    def _disturbed(self) -> np.ndarray:
        """Return True for each of K states that has a random disturbance with a variance of its own, ``(K,)``."""

    @abstractmethod
    def _names(self) -> tuple[str, ...]:
        """Return the names of the variances of the disturbances, in the order of the component's fitted numbers."""

    def state_covariance(self, numbers: np.ndarray) -> np.ndarray:
        variances = np.zeros((*numbers.shape[:-1], len(self._disturbed())))
        variances[..., self._disturbed()] = np.square(numbers)
        return diagonal(variances)

    def diffuse(self) -> np.ndarray:
        return np.ones(len(self._disturbed()), dtype=bool)

    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        return dict(zip(self._names(), np.square(scale * numbers).tolist(), strict=True))

    def bounds(self) -> list[tuple[float, float]]:
        return [(0.0, np.inf)] * int(self._disturbed().sum())


@dataclass(eq=False, repr=False)
class LocalLevel(_RandomWalks, InContinuousTime):
    """A component that is a random walk, ``μ_t = μ_t-1 + η_t``; in continuous time it is a Wiener process."""

    name: ClassVar[str] = "level"

    def check(self) -> None:
        return None

    def _disturbed(self) -> np.ndarray:
        return np.ones(1, dtype=bool)

    def _names(self) -> tuple[str, ...]:
        return ("variance",)

    def observation(self) -> np.ndarray:
        return np.ones(1)

    def transition(self, numbers: np.ndarray) -> np.ndarray:
        return np.ones((1, 1))

    def over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones((len(gaps), 1, 1)), numbers[0] ** 2 * gaps[:, None, None]


@dataclass(eq=False, repr=False)
class Trend(_RandomWalks):
    """A level and its slope, both random walks (local linear trend), as a component of a series.

    The level is ``μ_t = μ_t-1 + ν_t-1 + η_t``, and the slope ``ν_t = ν_t-1 + ζ_t``, with Gaussian disturbances η and ζ.
    """

    name: ClassVar[str] = "trend"

    def check(self) -> None:
        return None

    def _disturbed(self) -> np.ndarray:
        return np.ones(2, dtype=bool)

    def _names(self) -> tuple[str, ...]:
        return ("level_variance", "slope_variance")

    def observation(self) -> np.ndarray:
        return np.array([1.0, 0.0])

    def transition(self, numbers: np.ndarray) -> np.ndarray:
        return np.array([[1.0, 1.0], [0.0, 1.0]])


@dataclass(eq=False, repr=False)
class Seasonal(_RandomWalks):
    """A component of seasonal effects, whose sum over a period is noise: ``γ_t = -(γ_t-1 + ... + γ_t-s+1) + ω_t``.

    Args:
        period: number of steps s in a period, 2 or more. The states are γ_t and the s - 2 effects before it.
    """

    name: ClassVar[str] = "seasonal"
    _bounded_by_data: ClassVar[Mapping[str, str]] = {"period": "longest"}

    period: Annotated[int, Range(2, MOST_STATES)]

    @property
    def has_level(self) -> bool:
        return False  # its effects sum to 0 over a period

    def check(self) -> None:
        if self.period < 2:
            raise ValueError(f"a Seasonal has period {self.period}; pass 2 steps or more")

    def _disturbed(self) -> np.ndarray:
        return np.asarray(np.arange(self.period - 1) == 0)

    def _names(self) -> tuple[str, ...]:
        return ("variance",)

    def observation(self) -> np.ndarray:
        return np.asarray(np.eye(self.period - 1)[0])

    def transition(self, numbers: np.ndarray) -> np.ndarray:
        matrix = np.eye(self.period - 1, k=-1)
        matrix[0] = -1.0
        return matrix


@dataclass(eq=False, repr=False)
class ARIMA(Component):
    """A component that is an ARIMA process with optional seasonal terms (Box and Jenkins 1970)::

        φ(B) Φ(B^s) a_t = θ(B) Θ(B^s) ε_t,   a_t = (1 - B)^d (1 - B^s)^D y_t

    The autoregression is stationary and the moving average invertible. Here B is the lag operator, y the component, a
    its differences and ε the noise. The states are ``y_t-1`` and its differences below the d-th, then the s values
    before each seasonal difference, all with an unknown (diffuse) start, and last those of a (Harvey 1989, section
    3.3).

    Args:
        p: order of the autoregression φ.
        d: number of times that the series is differenced.
        q: order of the moving average θ.
        seasonal_p, seasonal_d, seasonal_q: orders P, D and Q of the seasonal polynomials.
        season: number of steps s in a season; read only if P, D or Q is above 0.
    """

    name: ClassVar[str] = "arima"
    _bounded_by_data: ClassVar[Mapping[str, str]] = {
        **{"p": "longest", "d": "longest", "q": "longest", "season": "longest"},
        **{"seasonal_p": "longest", "seasonal_d": "longest", "seasonal_q": "longest"},
    }
    _costly: ClassVar[frozenset[str]] = frozenset({"p", "d", "q", "seasonal_p", "seasonal_d", "seasonal_q", "season"})

    p: Annotated[int, Range(0, MOST_STATES)] = 1
    d: Annotated[int, Range(0, MOST_STATES)] = 0
    q: Annotated[int, Range(0, MOST_STATES)] = 0
    seasonal_p: Annotated[int, Range(0, MOST_STATES)] = 0
    seasonal_d: Annotated[int, Range(0, MOST_STATES)] = 0
    seasonal_q: Annotated[int, Range(0, MOST_STATES)] = 0
    season: Annotated[int, Range(1, MOST_STATES)] = 1

    @property
    def n_differenced(self) -> int:
        """The number of diffuse states, ``d + s D``: as many first values of a series are lost by differencing."""
        return self.d + self.season * self.seasonal_d

    @property
    def n_lags(self) -> int:
        """The number of states of the differenced series, which depends on its longest lags.

        It is the longest autoregressive lag, or the longest moving-average lag plus one if that is larger.
        """
        return max(self.p + self.season * self.seasonal_p, self.q + self.season * self.seasonal_q + 1)

    def check(self) -> None:
        orders = self.p, self.d, self.q
        seasonal = self.seasonal_p, self.seasonal_d, self.seasonal_q
        if min(orders + seasonal) < 0:
            raise ValueError(f"an ARIMA has orders {orders} and seasonal orders {seasonal}; pass 0 or more")
        if any(seasonal) and self.season < 2:
            raise ValueError(f"an ARIMA has season {self.season}; pass 2 steps or more, or seasonal orders of 0")
        if any(seasonal) and self.n_differenced + self.n_lags > MOST_STATES:
            raise ValueError(
                f"an ARIMA of orders {orders} and {seasonal} of season {self.season} has "
                f"{self.n_differenced + self.n_lags} states, but at most {MOST_STATES} are possible; pass a smaller "
                "season or smaller orders"
            )

    def start(self) -> np.ndarray:
        n = self.p + self.q + self.seasonal_p + self.seasonal_q
        return np.append(np.zeros(n), np.sqrt(START_VARIANCE))

    def observation(self) -> np.ndarray:
        """Return the weights with which the K states sum to the value of the component, ``(K,)``."""
        seasons = [np.eye(self.season)[-1]] * self.seasonal_d
        return np.concatenate([np.ones(self.d), *seasons, np.eye(self.n_lags)[0]])

    def transition(self, numbers: np.ndarray) -> np.ndarray:
        n, d, s = self.n_differenced + self.n_lags, self.d, self.season
        matrix, observation = np.zeros((*numbers.shape[:-1], n, n)), self.observation()
        if d:
            matrix[..., :d, :d] = np.triu(np.ones((d, d)))
            matrix[..., :d, d:] = observation[d:]
        for start in range(d, self.n_differenced, s):  # what each seasonal difference is of
            matrix[..., start : start + s, start : start + s] = np.eye(s, k=-1)
            matrix[..., start, start:] = observation[start:]
        lags = matrix[..., self.n_differenced :, self.n_differenced :]
        lags[...] = np.eye(self.n_lags, k=1)
        coefficients = self._coefficients(numbers, 0)
        lags[..., : coefficients.shape[-1], 0] = coefficients
        return matrix

    def state_covariance(self, numbers: np.ndarray) -> np.ndarray:
        weights = np.zeros((*numbers.shape[:-1], self.n_differenced + self.n_lags))
        weights[..., self.n_differenced] = 1.0
        averaged = -self._coefficients(numbers, 1)
        weights[..., self.n_differenced + 1 : self.n_differenced + 1 + averaged.shape[-1]] = averaged
        outer = weights[..., :, None] * weights[..., None, :]
        return np.asarray(numbers[..., -1, None, None] ** 2 * outer)

    def diffuse(self) -> np.ndarray:
        return np.arange(self.n_differenced + self.n_lags) < self.n_differenced

    def bounds(self) -> list[tuple[float, float]]:
        return [(-LARGEST, LARGEST)] * (len(self.start()) - 1) + [(0.0, np.inf)]

    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        ar, ma, seasonal_ar, seasonal_ma = (stationary_coefficients(numbers[place]) for place in self._places())
        named = dict[str, float]()
        each = {"ar": ar, "ma": -ma, "seasonal_ar": seasonal_ar, "seasonal_ma": -seasonal_ma}
        for name, coefficients in each.items():
            named |= {f"{name}{i + 1}": value for i, value in enumerate(coefficients.tolist())}
        return named | {"variance": float((scale * numbers[-1]) ** 2)}

    def polynomials(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients of the lag polynomials ``φ(B) Φ(B^s)`` and ``θ(B) Θ(B^s)``, each from lag 0 on.

        The first is the autoregression times its seasonal part, the second the moving average times its own.

        Args:
            numbers: fitted numbers of the component, ``(n,)``.
        """
        ar, ma, seasonal_ar, seasonal_ma = (lag_polynomial(numbers[place].tolist()) for place in self._places())
        s = self.season
        return np.convolve(ar, in_seasonal_lags(seasonal_ar, s)), np.convolve(ma, in_seasonal_lags(seasonal_ma, s))

    def _places(self) -> list[slice]:
        """Return which of the fitted numbers belong to the polynomials φ, θ, Φ and Θ, as four slices in this order."""
        q = self.p + self.q
        P = q + self.seasonal_p
        return [slice(0, self.p), slice(self.p, q), slice(q, P), slice(P, P + self.seasonal_q)]

    def _coefficients(self, numbers: np.ndarray, which: int) -> np.ndarray:
        """Return the coefficients of a lag polynomial times its seasonal part, ``(..., lags)``.

        They are the c of ``1 - c_1 B - c_2 B² - ...``, from lag 1 on.

        Args:
            numbers: fitted numbers of the component, ``(..., n)``.
            which: 0 for the autoregression, ``φ(B) Φ(B^s)``; 1 for the moving average, ``θ(B) Θ(B^s)``.
        """
        places, s = self._places(), self.season
        plain = stationary_coefficients(numbers[..., places[which]])
        n, n_seasonal = plain.shape[-1], places[which + 2].stop - places[which + 2].start
        if not n_seasonal:
            return plain
        seasonal = stationary_coefficients(numbers[..., places[which + 2]])
        both = np.zeros((*numbers.shape[:-1], n + s * n_seasonal))
        both[..., :n] = plain
        for j in range(n_seasonal):
            lag = s * (j + 1)
            both[..., lag - 1] += seasonal[..., j]
            both[..., lag : lag + n] -= seasonal[..., j : j + 1] * plain
        return both


@dataclass(eq=False, repr=False)
class Diffusion(Component, InContinuousTime, ABC):
    """A base class of components whose states follow a linear stochastic differential equation, ``dz = F z dt + dB``.

    Here B is Brownian motion. Between two steps the states move on exactly (``discretised``). To add one, define F, the
    covariance that B gains in a step's time, and in closed form the transition matrix and noise covariance over any gap
    (``over``).
    """

    @abstractmethod
    def drift(self, numbers: np.ndarray) -> np.ndarray:
        """Return the drift matrix F of ``dz = F z dt + dB`` with a step as the unit of time, ``(..., K, K)``.

        ``numbers (..., n)`` are the component's fitted numbers, and z its K states.
        """

    @abstractmethod
    def spread(self, numbers: np.ndarray) -> np.ndarray:
        """Return the covariance that the noise B of ``dz = F z dt + dB`` gains in the time of a step, ``(..., K, K)``.

        ``numbers (..., n)`` are the component's fitted numbers, and z its K states.
        """

    def transition(self, numbers: np.ndarray) -> np.ndarray:
        return discretised(self.drift(numbers), self.spread(numbers))[0]

    def state_covariance(self, numbers: np.ndarray) -> np.ndarray:
        return discretised(self.drift(numbers), self.spread(numbers))[1]


@dataclass(eq=False, repr=False)
class SmoothTrend(Diffusion):
    """A component that is a smooth level μ, whose slope ν is a Wiener process: ``dμ = ν dt``, ``dν = dB``.

    The smoothed level is a cubic smoothing spline (Wahba 1978; Harvey 1989, section 8.2). Its one fitted number is the
    standard deviation that the slope gains in a step.
    """

    name: ClassVar[str] = "smooth_trend"

    def check(self) -> None:
        return None

    def start(self) -> np.ndarray:
        return np.full(1, np.sqrt(START_VARIANCE))

    def observation(self) -> np.ndarray:
        return np.array([1.0, 0.0])

    def drift(self, numbers: np.ndarray) -> np.ndarray:
        return np.array([[0.0, 1.0], [0.0, 0.0]])

    def spread(self, numbers: np.ndarray) -> np.ndarray:
        return diagonal(numbers[..., :1] ** 2 * np.array([0.0, 1.0]))

    def over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        one = np.ones_like(gaps)
        transition = np.stack([one, gaps, 0 * gaps, one], -1).reshape(-1, 2, 2)
        powers = np.stack([gaps**3 / 3, gaps**2 / 2, gaps**2 / 2, gaps], -1).reshape(-1, 2, 2)
        return transition, numbers[0] ** 2 * powers

    def diffuse(self) -> np.ndarray:
        return np.ones(2, dtype=bool)

    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        return {"variance": float((scale * numbers[0]) ** 2)}

    def bounds(self) -> list[tuple[float, float]]:
        return [(0.0, np.inf)]


@dataclass(eq=False, repr=False)
class OrnsteinUhlenbeck(Diffusion):
    """A component that is a stationary process returning to 0 at the rate θ, ``dz = -θ z dt + dB``.

    Its correlation at times δ apart is ``exp(-θ δ)`` (Uhlenbeck and Ornstein 1930). Its fitted numbers are log θ, with
    θ per step, and the stationary standard deviation.
    """

    name: ClassVar[str] = "ornstein_uhlenbeck"

    def check(self) -> None:
        return None

    def start(self) -> np.ndarray:
        return np.array([np.log(START_RATE), np.sqrt(START_VARIANCE)])

    def observation(self) -> np.ndarray:
        return np.ones(1)

    def drift(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(-np.exp(numbers[..., :1, None]))

    def spread(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(2 * np.exp(numbers[..., :1, None]) * numbers[..., 1:, None] ** 2)

    def over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        decay = np.exp(numbers[0]) * gaps[:, None, None]
        return np.exp(-decay), -(numbers[1] ** 2) * np.expm1(-2 * decay)

    def diffuse(self) -> np.ndarray:
        return np.zeros(1, dtype=bool)

    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        return {"rate": float(np.exp(numbers[0])), "variance": float((scale * numbers[1]) ** 2)}

    def bounds(self) -> list[tuple[float, float]]:
        return [LOG_RATES, (0.0, np.inf)]


@dataclass(eq=False, repr=False)
class Cycle(Diffusion):
    """A component that is a stochastic cycle, whose amplitude and phase change slowly (Harvey 1989, section 9.1).

    Its states follow ``dz = (-ρ I + ω J) z dt + dB``, with J a quarter turn. It is stationary, and its correlation at
    times δ apart is ``exp(-ρ δ) cos(ω δ)``, with ``ω = 2π / period``. Its fitted numbers are the logarithm of ρ per
    period, and the stationary standard deviation.

    Args:
        period: length of a cycle in steps, any number above 0. Seasons of another shape than a sine wave are a sum of
            cycles, of the period, its half, its third and so on.
    """

    name: ClassVar[str] = "cycle"
    period: float

    def check(self) -> None:
        if not 0 < self.period < np.inf:
            raise ValueError(f"a Cycle has period {self.period}; pass a number of steps above 0")

    def start(self) -> np.ndarray:
        return np.array([np.log(START_RATE_OF_CYCLE), np.sqrt(START_VARIANCE)])

    def observation(self) -> np.ndarray:
        return np.array([1.0, 0.0])

    def drift(self, numbers: np.ndarray) -> np.ndarray:
        frequency = 2 * np.pi / self.period
        turn = np.array([[0.0, frequency], [-frequency, 0.0]])
        return np.asarray(turn - self._rate(numbers)[..., None, None] * np.eye(2))

    def spread(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray((2 * self._rate(numbers) * numbers[..., 1] ** 2)[..., None, None] * np.eye(2))

    def over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        decay, angle = self._rate(numbers) * gaps[:, None, None], 2 * np.pi * (gaps / self.period)
        turn = np.stack([np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)], -1).reshape(-1, 2, 2)
        return np.exp(-decay) * turn, -(numbers[1] ** 2) * np.expm1(-2 * decay) * np.eye(2)

    def diffuse(self) -> np.ndarray:
        return np.zeros(2, dtype=bool)

    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        return {"rate": float(self._rate(numbers)), "variance": float((scale * numbers[1]) ** 2)}

    def bounds(self) -> list[tuple[float, float]]:
        return [LOG_RATES, (0.0, np.inf)]

    def _rate(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rate ρ of the decay ``exp(-ρ t)`` over t steps, ``(...)``, for the numbers ``(..., 2)``.

        The first of the numbers is the logarithm of the decay rate per period.
        """
        return np.asarray(np.exp(numbers[..., 0]) / self.period)


def discretised(drift: np.ndarray, spread: np.ndarray, time: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the transition matrix and noise covariance of ``dz = F z dt + dB`` over a time, both ``(..., K, K)``.

    They are ``exp(F t)`` and ``∫ exp(F s) S exp(F s)ᵀ ds`` for s from 0 to t, from one matrix exponential (Van Loan
    1978, *Computing integrals involving the matrix exponential*).

    Args:
        drift: F, ``(..., K, K)``.
        spread: S, the covariance that B gains in a unit of time, ``(..., K, K)``.
        time: the length of time t.

    >>> discretised(np.array([[0.0, 1.0], [0.0, 0.0]]), np.diag([0.0, 3.0]), 2.0)[1].round(12)
    array([[8., 6.],
           [6., 6.]])
    """
    from scipy.linalg import expm  # lazily: scipy is slow to import

    K = drift.shape[-1]
    block = np.zeros((*np.broadcast_shapes(drift.shape, spread.shape)[:-2], 2 * K, 2 * K))
    block[..., :K, :K], block[..., :K, K:], block[..., K:, K:] = -drift, spread, drift.mT
    power = expm(time * block)
    transition = np.ascontiguousarray(power[..., K:, K:].mT)
    covariance = transition @ power[..., :K, K:]
    return transition, np.asarray(0.5 * (covariance + covariance.mT))


def diagonal(values: np.ndarray) -> np.ndarray:
    """Return matrices ``(..., K, K)`` with ``values (..., K)`` on their diagonals, and 0 elsewhere."""
    return np.asarray(values[..., None] * np.eye(values.shape[-1]))


def stationary_coefficients(numbers: np.ndarray) -> np.ndarray:
    """Return coefficients of a stationary autoregression, ``(..., p)``, for any p real numbers, ``(..., p)``.

    The hyperbolic tangents of the numbers are its partial autocorrelations (Monahan 1984).
    """
    partials = np.tanh(numbers)
    coefficients = np.empty_like(partials)
    for i in range(partials.shape[-1]):
        coefficients[..., :i] -= partials[..., i : i + 1] * coefficients[..., :i][..., ::-1]
        coefficients[..., i] = partials[..., i]
    return np.asarray(coefficients)


@dataclass(frozen=True)
class Structure:
    """A sum of components that models one series, which may be observed with noise.

    Attributes:
        components: the components, such as ``LocalLevel()`` and ``Seasonal(12)``.
    """

    components: tuple[Component, ...]

    @classmethod
    def of(cls, components: Sequence[Component]) -> Structure:
        """Return the structure whose series is the sum of the given components, at least one."""
        return cls(tuple(components))

    @cached_property
    def states(self) -> list[slice]:
        """The slice of the structure's states that belongs to each component, in the order of the components."""
        return _slices([len(component.observation()) for component in self.components])

    @cached_property
    def numbers(self) -> list[slice]:
        """The slice of the structure's fitted numbers that belongs to each component, in their order."""
        return _slices([len(component.start()) for component in self.components])

    @property
    def n_states(self) -> int:
        """The number of states K of all components together."""
        return int(self.states[-1].stop)

    def start(self) -> np.ndarray:
        """Return the n fitted numbers of all components with which optimisation begins, ``(n,)``."""
        return np.concatenate([component.start() for component in self.components])

    def bounds(self) -> list[tuple[float, float]]:
        """Return the smallest and the largest value of each fitted number, for all components in turn."""
        return [bound for component in self.components for bound in component.bounds()]

    @property
    def name_of_level(self) -> str | None:
        """The name of the first component that contains the level of the series; None if all move around 0."""
        each = zip(self.components, self.names, strict=True)
        return next((name for component, name in each if component.has_level), None)

    def observation(self) -> np.ndarray:
        """Return the weights with which the K states of all components sum to the series, ``(1, K)``."""
        return np.concatenate([component.observation() for component in self.components])[None]

    def diffuse(self) -> np.ndarray:
        """Return True for each of K states whose first value is unknown (diffuse), ``(K,)``.

        The others start from their stationary distribution.
        """
        return np.concatenate([component.diffuse() for component in self.components])

    def matrices(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the transition matrix and noise covariance of the states, both ``(K, K)`` and block diagonal.

        ``numbers (n,)`` are the fitted numbers of all components.
        """
        transition, covariance = np.zeros((2, self.n_states, self.n_states))
        for component, here, which in zip(self.components, self.states, self.numbers, strict=True):
            transition[here, here] = component.transition(numbers[which])
            covariance[here, here] = component.state_covariance(numbers[which])
        return transition, covariance

    @property
    def is_continuous(self) -> bool:
        """True if all components are processes in continuous time, so that steps may be any times apart."""
        return all(isinstance(component, InContinuousTime) for component in self.components)

    def matrices_over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the transition matrices and noise covariances of the K states over gaps of time, both ``(n, K, K)``.

        Args:
            numbers: fitted numbers of all components, which must be in continuous time.
            gaps: n lengths of time in steps, ``(n,)``.
        """
        transition, covariance = np.zeros((2, len(gaps), self.n_states, self.n_states))
        for component, here, which in zip(self.components, self.states, self.numbers, strict=True):
            assert isinstance(component, InContinuousTime), "is_continuous"
            transition[:, here, here], covariance[:, here, here] = component.over(numbers[which], gaps)
        return transition, covariance

    def slopes(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return derivatives of transition matrix and noise covariance in each fitted number, both ``(n, K, K)``.

        ``numbers (n,)`` are the fitted numbers of all components, at which the derivatives are taken.
        """
        n, K = self.numbers[-1].stop, self.n_states
        of_transition, of_covariance = np.zeros((2, n, K, K))
        for component, here, which in zip(self.components, self.states, self.numbers, strict=True):
            steps = DIFFERENCE * np.eye(which.stop - which.start)
            above, below = numbers[which] + steps, numbers[which] - steps
            for slopes, of in ((of_transition, component.transition), (of_covariance, component.state_covariance)):
                slopes[which, here, here] = (of(above) - of(below)) / (2 * DIFFERENCE)
        return of_transition, of_covariance

    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        """Return variances and coefficients in raw units, by names such as ``"level_variance"``.

        Args:
            numbers: fitted numbers of all components, ``(n,)``.
            scale: size of a unit of the fitted series in raw units.
        """
        return {
            f"{name}_{what}": value
            for component, name, which in zip(self.components, self.names, self.numbers, strict=True)
            for what, value in component.named(numbers[which], scale).items()
        }

    @property
    def names(self) -> list[str]:
        """The name of each component; the second of a kind has a number, such as ``"seasonal2"``."""
        names: list[str] = []
        for component in self.components:
            kind = component.name
            n = sum(other.rstrip("0123456789") == kind for other in names)
            names.append(kind if not n else f"{kind}{n + 1}")
        return names


@dataclass(frozen=True)
class ContinuousProcess:
    """A process in continuous time: a structure whose components are all in continuous time, with its fitted numbers.

    Attributes:
        structure: the components.
        numbers: fitted numbers of all components, ``(m,)``.
    """

    structure: Structure
    numbers: np.ndarray

    def over(self, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the transition matrices and noise covariances of the K states over gaps of time, both ``(n, K, K)``.

        ``gaps (n,)`` are lengths of time in steps.
        """
        distinct, which = np.unique(gaps, return_inverse=True)
        transition, covariance = self.structure.matrices_over(self.numbers, distinct)
        return transition[which], covariance[which]

    def slopes_over(self, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return derivatives of transition matrices and noise covariances, both ``(m, n, K, K)``.

        They are in each of m fitted numbers, for K states. ``gaps (n,)`` are the lengths of time, in steps, that the
        matrices are for.
        """
        distinct, which = np.unique(gaps, return_inverse=True)
        by_number = []
        for step in DIFFERENCE * np.eye(len(self.numbers)):
            above, below = (self.structure.matrices_over(self.numbers + s, distinct) for s in (step, -step))
            by_number.append([(a - b)[which] / (2 * DIFFERENCE) for a, b in zip(above, below, strict=True)])
        transition, covariance = zip(*by_number, strict=True)
        return np.stack(transition), np.stack(covariance)


def _slices(sizes: Sequence[int]) -> list[slice]:
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]

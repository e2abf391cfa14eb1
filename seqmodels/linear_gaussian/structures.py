"""Components of structural time series (Harvey 1989, *Forecasting, structural time series models and the Kalman
filter*): what a series is the sum of, each with states and transitions of its own, in steps or in continuous time.

A component says its matrices as functions of a few numbers, which are fitted.
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
    """To add one, define its matrices; K is the number of its states.

    ``name`` is what it is called in tables. ``numbers (..., n)``: as many as ``start`` has, within ``bounds``;
    deviations are in units of the series. There are matrices for each row of numbers, or one where all have the same.
    """

    name: ClassVar[str]

    @abstractmethod
    def check(self) -> None:
        """Raise ``ValueError`` for arguments that cannot be."""

    @abstractmethod
    def start(self) -> np.ndarray:
        """The numbers that a fit begins with, for a series of variance 1."""

    @abstractmethod
    def observation(self) -> np.ndarray:
        """``(K,)`` weights of the states in the series."""

    @abstractmethod
    def transition(self, numbers: np.ndarray) -> np.ndarray:
        """``(..., K, K)`` A, which takes the states of a step to those of the next."""

    @abstractmethod
    def state_covariance(self, numbers: np.ndarray) -> np.ndarray:
        """``(..., K, K)`` covariance Q of the disturbances of a step."""

    @abstractmethod
    def diffuse(self) -> np.ndarray:
        """``(K,)`` bool: states of whose first value nothing is known; the others are stationary."""

    @property
    def has_level(self) -> bool:
        """Whether it wanders, so that the level of a series is in it; other components are around 0."""
        return bool(self.diffuse().any())

    @abstractmethod
    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        """What the numbers come to, by name, where a unit of the series is ``scale`` raw ones."""

    @abstractmethod
    def bounds(self) -> list[tuple[float, float]]:
        """Least and largest value of each number: ``(0, inf)`` of deviations of disturbances, which come last."""


class InContinuousTime(ABC):
    """A component whose states are a process in continuous time, seen after any gaps."""

    @abstractmethod
    def over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(n, K, K)`` A and Q over each of ``gaps (n,)``, 0 or more, a step of the system being 1."""


class _RandomWalks(Component, ABC):
    """Constant transitions, and disturbances of variances of their own."""

    def start(self) -> np.ndarray:
        return np.full(int(self._disturbed().sum()), np.sqrt(START_VARIANCE))

    @abstractmethod
    def _disturbed(self) -> np.ndarray:
        """``(K,)`` bool: the states that have a disturbance."""

    @abstractmethod
    def _names(self) -> tuple[str, ...]:
        """Names of the variances of the disturbances, in the order of the numbers."""

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
    """``μ_t = μ_t-1 + η_t``: a random walk; in continuous time a Wiener process."""

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
    """``μ_t = μ_t-1 + ν_t-1 + η_t``, ``ν_t = ν_t-1 + ζ_t``: a level and its slope (local linear trend)."""

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
    """``γ_t = -(γ_t-1 + ... + γ_t-s+1) + ω_t``: effects of the seasons, which sum to noise over a period.

    Args:
        period: s steps, 2 or more; there are s - 1 states, γ_t and those before.
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
    """An autoregressive integrated moving average with seasons, stationary and invertible (Box and Jenkins 1970)::

        φ(B) Φ(B^s) a_t = θ(B) Θ(B^s) ε_t,   a_t = (1 - B)^d (1 - B^s)^D y_t

    The states are ``y_t-1`` and its differences below the d-th, then the s values before each seasonal difference, all
    diffuse, and at last those of a (Harvey 1989, section 3.3).

    Args:
        p: order of the autoregression φ.
        d: how often the series is differenced.
        q: order of the moving average θ.
        seasonal_p, seasonal_d, seasonal_q: the orders P, D and Q of the seasonal polynomials.
        season: s, steps of a season; read only where one of P, D and Q is above 0.
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
        """How many first values the differences take, ``d + s D``, which is the number of diffuse states."""
        return self.d + self.season * self.seasonal_d

    @property
    def n_lags(self) -> int:
        """The number of states of a: its longest lag in a, or the longest in ε and one more."""
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
        """Return the weights of the states in y, ``(K,)``: each sum that a difference undoes, and a itself."""
        seasons = [np.eye(self.season)[-1]] * self.seasonal_d
        return np.concatenate([np.ones(self.d), *seasons, np.eye(self.n_lags)[0]])

    def transition(self, numbers: np.ndarray) -> np.ndarray:
        n, d, s = self.n_differenced + self.n_lags, self.d, self.season
        matrix, observation = np.zeros((*numbers.shape[:-1], n, n)), self.observation()
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
        (ar, ma, seasonal_ar, seasonal_ma), named = self._parts(numbers), dict[str, float]()
        each = {"ar": ar, "ma": -ma, "seasonal_ar": seasonal_ar, "seasonal_ma": -seasonal_ma}
        for name, coefficients in each.items():
            named |= {f"{name}{i + 1}": value for i, value in enumerate(coefficients.tolist())}
        return named | {"variance": float((scale * numbers[-1]) ** 2)}

    def polynomials(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``φ(B) Φ(B^s)`` and ``θ(B) Θ(B^s)`` of these numbers, coefficients from lag 0 on."""
        ar, ma, seasonal_ar, seasonal_ma = (lag_polynomial(numbers[place].tolist()) for place in self._places())
        s = self.season
        return np.convolve(ar, in_seasonal_lags(seasonal_ar, s)), np.convolve(ma, in_seasonal_lags(seasonal_ma, s))

    def _parts(self, numbers: np.ndarray) -> list[np.ndarray]:
        """The stationary coefficients of φ, -θ, Φ and -Θ, each ``(..., order)``."""
        return [stationary_coefficients(numbers[..., place]) for place in self._places()]

    def _places(self) -> list[slice]:
        """Where the numbers of φ, θ, Φ and Θ stand."""
        return _slices([self.p, self.q, self.seasonal_p, self.seasonal_q])

    def _coefficients(self, numbers: np.ndarray, which: int) -> np.ndarray:
        """The coefficients of 1 minus a polynomial and its seasonal one multiplied: the autoregression (0) or the
        moving average (1), ``(..., longest lag)``.
        """
        parts, s = self._parts(numbers), self.season
        plain, seasonal = parts[which], parts[which + 2]
        n, n_seasonal = plain.shape[-1], seasonal.shape[-1]
        both = np.zeros((*numbers.shape[:-1], n + s * n_seasonal))
        both[..., :n] = plain
        for j in range(n_seasonal):
            lag = s * (j + 1)
            both[..., lag - 1] += seasonal[..., j]
            both[..., lag : lag + n] -= seasonal[..., j : j + 1] * plain
        return both


@dataclass(eq=False, repr=False)
class Diffusion(Component, InContinuousTime, ABC):
    """States of a linear stochastic differential equation, ``dz = F z dt + dB``.

    Between two steps ``z`` moves on exactly (``discretised``). To add one, define F, the covariance that B gains in a
    step's time, and in closed form what they come to over any gap (``over``).
    """

    @abstractmethod
    def drift(self, numbers: np.ndarray) -> np.ndarray:
        """``(..., K, K)`` F of ``dz = F z dt + dB``, for a step's time."""

    @abstractmethod
    def spread(self, numbers: np.ndarray) -> np.ndarray:
        """``(..., K, K)`` covariance that B gains in a step's time."""

    def transition(self, numbers: np.ndarray) -> np.ndarray:
        return discretised(self.drift(numbers), self.spread(numbers))[0]

    def state_covariance(self, numbers: np.ndarray) -> np.ndarray:
        return discretised(self.drift(numbers), self.spread(numbers))[1]


@dataclass(eq=False, repr=False)
class SmoothTrend(Diffusion):
    """``dμ = ν dt``, ``dν = dB``: a level whose slope is a Wiener process (Wahba 1978; Harvey 1989, section 8.2).

    Given all steps the level is a cubic smoothing spline. Its number is the deviation that the slope gains in a step.
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
    """``dz = -θ z dt + dB``: stationary, of correlation ``exp(-θ δ)`` at times δ apart (Uhlenbeck and Ornstein 1930).

    Its numbers are log θ, θ by step, and the stationary deviation.
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
    """``dz = (-ρ I + ω J) z dt + dB``, J a quarter turn: a stochastic cycle, whose amplitude and phase change slowly
    (Harvey 1989, section 9.1).

    It is stationary, of correlation ``exp(-ρ δ) cos(ω δ)`` at times δ apart, and ``ω = 2π / period``. Its numbers are
    the logarithm of ρ by period, and the stationary deviation.

    Args:
        period: of one turn, in steps; any number above 0. Seasons of another shape than a sine wave are a sum of
            cycles, of the period, its half, its third.
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
        """``(...)`` ρ, of the decay ``exp(-ρ t)`` over t steps."""
        return np.asarray(np.exp(numbers[..., 0]) / self.period)


def discretised(drift: np.ndarray, spread: np.ndarray, time: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """``(..., K, K)`` A and Q over a time: ``exp(F t)`` and ``∫ exp(F s) S exp(F s)ᵀ ds``, s from 0 to t, by one
    exponential (Van Loan 1978, *Computing integrals involving the matrix exponential*).

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
    """``(..., K, K)`` matrices with ``values (..., K)`` on their diagonals, and 0 elsewhere."""
    return np.asarray(values[..., None] * np.eye(values.shape[-1]))


def stationary_coefficients(numbers: np.ndarray) -> np.ndarray:
    """``(..., p)`` φ of a stationary autoregression, of unconstrained numbers: the inverse hyperbolic tangents of its
    partial autocorrelations (Monahan 1984).
    """
    partials = np.tanh(numbers)
    coefficients = np.empty_like(partials)
    for i in range(partials.shape[-1]):
        coefficients[..., :i] -= partials[..., i : i + 1] * coefficients[..., :i][..., ::-1]
        coefficients[..., i] = partials[..., i]
    return np.asarray(coefficients)


@dataclass(frozen=True)
class Structure:
    """A sum of components, beside noise of the observation or without."""

    components: tuple[Component, ...]

    @classmethod
    def of(cls, components: Sequence[Component]) -> Structure:
        """Of one component or more."""
        return cls(tuple(components))

    @cached_property
    def states(self) -> list[slice]:
        """The states of each component, in their order."""
        return _slices([len(component.observation()) for component in self.components])

    @cached_property
    def numbers(self) -> list[slice]:
        """The fitted numbers of each component, in their order."""
        return _slices([len(component.start()) for component in self.components])

    @property
    def n_states(self) -> int:
        """K, of all components together."""
        return int(self.states[-1].stop)

    def start(self) -> np.ndarray:
        """The numbers that a fit begins with."""
        return np.concatenate([component.start() for component in self.components])

    def bounds(self) -> list[tuple[float, float]]:
        """Least and largest value of each number, of all components in turn."""
        return [bound for component in self.components for bound in component.bounds()]

    @property
    def name_of_level(self) -> str | None:
        """The first component that the level of the series is in; None: all are around 0."""
        each = zip(self.components, self.names, strict=True)
        return next((name for component, name in each if component.has_level), None)

    def observation(self) -> np.ndarray:
        """``(1, K)`` weights of the states in the series, of all components in turn."""
        return np.concatenate([component.observation() for component in self.components])[None]

    def diffuse(self) -> np.ndarray:
        """``(K,)`` bool: states of whose first value nothing is known."""
        return np.concatenate([component.diffuse() for component in self.components])

    def matrices(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A and Q, block diagonal."""
        transition, covariance = np.zeros((2, self.n_states, self.n_states))
        for component, here, which in zip(self.components, self.states, self.numbers, strict=True):
            transition[here, here] = component.transition(numbers[which])
            covariance[here, here] = component.state_covariance(numbers[which])
        return transition, covariance

    @property
    def is_continuous(self) -> bool:
        """Whether all components are processes in continuous time, so that steps may be any times apart."""
        return all(isinstance(component, InContinuousTime) for component in self.components)

    def matrices_over(self, numbers: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(n, K, K)`` A and Q over each of ``gaps (n,)``; all components are in continuous time."""
        transition, covariance = np.zeros((2, len(gaps), self.n_states, self.n_states))
        for component, here, which in zip(self.components, self.states, self.numbers, strict=True):
            assert isinstance(component, InContinuousTime), "is_continuous"
            transition[:, here, here], covariance[:, here, here] = component.over(numbers[which], gaps)
        return transition, covariance

    def slopes(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of A and Q in each number, both ``(n, K, K)``."""
        n, K = self.numbers[-1].stop, self.n_states
        of_transition, of_covariance = np.zeros((2, n, K, K))
        for component, here, which in zip(self.components, self.states, self.numbers, strict=True):
            steps = DIFFERENCE * np.eye(which.stop - which.start)
            above, below = numbers[which] + steps, numbers[which] - steps
            for slopes, of in ((of_transition, component.transition), (of_covariance, component.state_covariance)):
                slopes[which, here, here] = (of(above) - of(below)) / (2 * DIFFERENCE)
        return of_transition, of_covariance

    def named(self, numbers: np.ndarray, scale: float) -> dict[str, float]:
        """What the numbers come to, in raw units, by component and name."""
        return {
            f"{name}_{what}": value
            for component, name, which in zip(self.components, self.names, self.numbers, strict=True)
            for what, value in component.named(numbers[which], scale).items()
        }

    @property
    def names(self) -> list[str]:
        """Of the components; the second of a kind is ``"seasonal2"``, and so on."""
        names: list[str] = []
        for component in self.components:
            kind = component.name
            n = sum(other.rstrip("0123456789") == kind for other in names)
            names.append(kind if not n else f"{kind}{n + 1}")
        return names


@dataclass(frozen=True)
class ContinuousProcess:
    """A structure of which all components are in continuous time, with its numbers."""

    structure: Structure
    numbers: np.ndarray

    def over(self, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(n, K, K)`` A and Q over each of ``gaps (n,)``; those that are the same are computed once."""
        distinct, which = np.unique(gaps, return_inverse=True)
        transition, covariance = self.structure.matrices_over(self.numbers, distinct)
        return transition[which], covariance[which]

    def slopes_over(self, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of both in each number, ``(m, n, K, K)``."""
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

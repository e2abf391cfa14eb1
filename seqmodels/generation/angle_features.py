"""The distribution of each angle of a step: its direction, shortest arcs and scores, from trigonometric moments.

The moments ``φ_j = E exp(i j x)`` of a mixture are the mean of those of its components, and say all of it:
``p(x) = (1 + 2 Σ_j Re φ_j exp(-i j x)) / 2π``. Reference: Mardia and Jupp (2000), *Directional statistics*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmodels.generation.feature_distributions import FeatureDistributions

TURN = 2 * np.pi
POINTS_PER_MOMENT, LEAST_POINTS = 8, 1024  # of the grid on which arcs and medians are sought
NO_DIRECTION = 1e-9  # length of a mean resultant below which no direction is more probable than its opposite
N_NEWTON = 30
AS_SHORT = 1e-9  # of a turn, by which two arcs may differ and are both the shortest
SMOOTHING = 0.25  # of the deviation of draws and n^(-1/5), the deviation of the density that each stands for


@dataclass(frozen=True)
class AngleFeatures(FeatureDistributions):
    """Distributions on the circle, of angles in radians.

    ``mean`` is the direction of the mean resultant, NaN where there is none. A quantile of level q below a half is the
    lower end of the shortest arc that holds the probability ``1 - 2 q``, and that of ``1 - q`` its upper end; of a half
    it is the median direction, which halves the distribution at the least mean distance. Ends are numbers in increasing
    order on the turn on which the middle of the arc is nearest to the mean: an arc across π reads 3.0 to 3.3.

    Args:
        moments: ``(J, D)`` complex, ``φ_1 .. φ_J`` of each feature; those after J are zero.
    """

    moments: np.ndarray

    @classmethod
    def of_draws(cls, x: np.ndarray) -> AngleFeatures:
        """Return the distribution of draws ``x (n, D)``, each smoothed by a narrow wrapped Gaussian around it."""
        resultant = np.clip(np.abs(np.exp(1j * x).mean(0)), 1e-12, 1 - 1e-12)
        deviation = np.clip(SMOOTHING * np.sqrt(-2 * np.log(resultant)) * len(x) ** -0.2, 1e-3, 1.0)
        order = np.arange(1.0, np.ceil(8 / deviation.min()) + 1)[:, None]
        each = np.stack([np.exp(1j * j * x).mean(0) for j in order[:, 0]])
        return cls(each * np.exp(-0.5 * (order * deviation) ** 2))

    @property
    def n_features(self) -> int:
        return int(self.moments.shape[1])

    @property
    def are_angles(self) -> tuple[bool, ...]:
        return (True,) * self.n_features

    @property
    def mean(self) -> np.ndarray:
        first = self.moments[0]
        return np.where(np.abs(first) > NO_DIRECTION, np.angle(first), np.nan)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the probability of an angle from -π to ``x``."""
        at = np.clip(np.asarray(x, dtype=np.float64), -np.pi, np.pi)
        start = self._integral(np.full_like(at, -np.pi))
        return np.asarray(np.clip(self._integral(at) - start, 0.0, 1.0))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.stack([_Circle.of(self.moments[:, d]).quantiles(levels) for d in range(self.n_features)], axis=-1)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """``E d(x, y) - ½ E d(x, x')`` of the distance d along the circle, from 0 to π.

        Reference: Grimit, Gneiting, Berrocal and Johnson (2006), *The continuous ranked probability score for circular
        variables*.
        """
        order = np.arange(1.0, len(self.moments) + 1)[:, None]
        weight = np.where(order % 2 == 1, 4 / (np.pi * order**2), 0.0)  # d(x, 0) = π/2 - Σ_odd 4/(π j²) cos(j x)
        to_truth = 0.5 * np.pi - (weight * (self.moments * np.exp(-1j * order * y)).real).sum(0)
        spread = 0.5 * np.pi - (weight * np.abs(self.moments) ** 2).sum(0)
        return np.asarray(to_truth - 0.5 * spread)

    def on_turn_of(self, y: np.ndarray, near: np.ndarray) -> np.ndarray:
        return np.asarray(near + wrapped(y - near))

    def _integral(self, x: np.ndarray) -> np.ndarray:
        """``(..., D)`` the density's integral from 0 to ``x (..., D)``."""
        order = np.arange(1.0, len(self.moments) + 1)[:, None]
        waves = (self.moments * (np.exp(-1j * order * x[..., None, :]) - 1) / (-1j * order)).real.sum(-2)
        return np.asarray((x + 2 * waves) / TURN)


def wrapped(x: np.ndarray | float) -> np.ndarray:
    """The same angles from -π to π."""
    return np.asarray(x - TURN * np.round(x / TURN))


@dataclass(frozen=True)
class _Circle:
    """One distribution, with its cdf and density on a grid of M points from 0 to 2π.

    Args:
        moments: ``(J,)``.
        cdf: ``(M + 1,)`` from 0 to 1, the integral from 0.
        density: ``(M,)``.
        middle: the direction about which arcs are written: the mean, or where there is none the mode.
    """

    moments: np.ndarray
    cdf: np.ndarray
    density: np.ndarray
    middle: float

    @classmethod
    def of(cls, moments: np.ndarray) -> _Circle:
        n = max(LEAST_POINTS, 1 << int(np.ceil(np.log2(POINTS_PER_MOMENT * len(moments)))))
        order = np.arange(1.0, len(moments) + 1)
        density = (1 + 2 * _waves(moments, n)) / TURN
        integral = _waves(moments / (-1j * order), n)
        grid = np.arange(n) * TURN / n
        cdf = np.append((grid + 2 * (integral - integral[0])) / TURN, 1.0)
        has_mean = abs(moments[0]) > NO_DIRECTION
        middle = float(np.angle(moments[0])) if has_mean else float(wrapped(grid[density.argmax()]))
        return cls(moments, np.maximum.accumulate(cdf), density, middle)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """``(Q,)`` ends of arcs, and the median direction."""
        result = []
        for level in np.asarray(levels, dtype=np.float64):
            if level == 0.5:
                result.append(self.middle + float(wrapped(self._median() - self.middle)))
                continue
            low, high = self._shortest_arc(abs(1 - 2 * level))
            turns = np.round((self.middle - 0.5 * (low + high)) / TURN)
            result.append((low if level < 0.5 else high) + TURN * turns)
        return np.array(result)

    def _shortest_arc(self, probability: float) -> tuple[float, float]:
        n = len(self.density)
        grid = np.arange(2 * n + 1) * TURN / n
        twice = np.append(self.cdf[:-1], 1 + self.cdf)
        ends = np.interp(twice[:n] + probability, twice, grid)
        lengths = ends - grid[:n]
        shortest = np.flatnonzero(lengths <= lengths.min() + AS_SHORT * TURN)
        centres = wrapped(0.5 * (grid[shortest] + ends[shortest]) - self.middle)
        i = shortest[np.abs(centres).argmin()]
        start = np.array([grid[i], ends[i]])
        at = self._as_short_as_can_be(start, probability, 2 * TURN / n)
        low, high = start if at is None else at
        return float(low), self._with_probability(float(low), float(high), probability)

    def _as_short_as_can_be(self, start: np.ndarray, probability: float, radius: float) -> np.ndarray | None:
        """The arc near ``start``, both its ends, that holds the probability and has equal densities at its ends.

        By Newton's method; None where it leads away, as on a uniform distribution, of which every arc is the shortest.
        """
        at = start
        for _ in range(N_NEWTON):
            p, slope = self._density(at), self._slope(at)
            equations = np.array([np.diff(self._integral(at))[0] - probability, p[1] - p[0]])
            inverse = np.array([[slope[1], -p[1]], [slope[0], -p[0]]])
            determinant = p[1] * slope[0] - p[0] * slope[1]
            step = inverse @ equations / determinant if determinant else np.full(2, np.inf)
            at = at - step
            if not (np.abs(at - start) < radius).all():
                return None
            if np.abs(step).max() < 1e-15:
                break
        return at

    def _with_probability(self, a: float, b: float, probability: float) -> float:
        """The b near this one at which the arc from a holds the probability."""
        for _ in range(N_NEWTON):
            low, high = self._integral(np.array([a, b]))
            density = float(self._density(np.array([b]))[0])
            step = (high - low - probability) / density if density > 0 else 0.0
            if abs(step) > TURN / len(self.density) or abs(step) < 1e-15:
                break
            b -= step
        return b

    def _median(self) -> float:
        n = len(self.density)
        order = np.arange(1, len(self.moments) + 1)
        odd = np.where(order % 2 == 1, 4 / (np.pi * order**2), 0.0)
        distance = -_waves(odd * self.moments, n)
        x = float(distance.argmin()) * TURN / n
        for _ in range(N_NEWTON):  # of which half the circle on either side holds a half
            at = np.array([x, x - np.pi])
            p = self._density(at)
            step = (-np.diff(self._integral(at))[0] - 0.5) / (p[0] - p[1]) if p[0] > p[1] else 0.0
            if abs(step) > TURN / n or abs(step) < 1e-15:
                break
            x -= step
        return x

    def _density(self, x: np.ndarray) -> np.ndarray:
        return np.asarray((1 + 2 * self._sum(self.moments, x)) / TURN)

    def _slope(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(2 * self._sum(-1j * np.arange(1.0, len(self.moments) + 1) * self.moments, x) / TURN)

    def _integral(self, x: np.ndarray) -> np.ndarray:
        """From a constant, the density's integral."""
        of_waves = self.moments / (-1j * np.arange(1.0, len(self.moments) + 1))
        return np.asarray((x + 2 * self._sum(of_waves, x)) / TURN)

    def _sum(self, coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
        order = np.arange(1.0, len(coefficients) + 1)
        return np.asarray((np.exp(-1j * np.multiply.outer(x, order)) @ coefficients).real)


def _waves(coefficients: np.ndarray, n: int) -> np.ndarray:
    """``(n,)`` ``Σ_j Re c_j exp(-i j x)`` at n points from 0 to 2π, by a Fourier transform."""
    spectrum = np.zeros(n // 2 + 1, dtype=np.complex128)
    spectrum[1 : len(coefficients) + 1] = coefficients.conj()
    return np.fft.irfft(spectrum, n) * n / 2

"""The distribution of each angle of a step, given by its trigonometric moments: directions, shortest arcs and scores.

The moments ``φ_j = E exp(i j x)`` of a mixture are the weighted means of its components' moments, and they determine
the density: ``p(x) = (1 + 2 Σ_j Re φ_j exp(-i j x)) / 2π``. Reference: Mardia and Jupp (2000), *Directional
statistics*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmodels.generation.feature_distributions import FeatureDistributions

TURN = 2 * np.pi
POINTS_PER_MOMENT, LEAST_POINTS = 8, 1024  # size of the grid on which arcs and medians are searched
NO_DIRECTION = 1e-9  # length of a mean resultant below which no direction is more probable than its opposite
N_NEWTON = 30
AS_SHORT = 1e-9  # arcs whose lengths differ by less than this part of a turn count as equally short
SMOOTHING = 0.25  # width of the kernel of each draw, as a multiple of the deviation of the draws times n^(-1/5)


@dataclass(frozen=True)
class AngleFeatures(FeatureDistributions):
    """The distributions of D angles in radians, one for each feature, given by their trigonometric moments.

    ``mean`` is the direction of the mean resultant, NaN if there is none. The quantile of a level q below one half is
    the lower end of the shortest arc that has probability ``1 - 2 q``, and the quantile of ``1 - q`` is its upper end.
    The quantile of one half is the median direction, which halves the distribution and has the smallest mean distance.
    An arc is written as increasing numbers around its mean: an arc across π reads 3.0 to 3.3.

    Args:
        moments: trigonometric moments ``φ_j = E exp(i j x)`` of each feature for j = 1 to J, complex, ``(J, D)``; later
            moments are zero. For ``cdf`` they may be those of n steps, ``(n, J, D)``.
    """

    moments: np.ndarray

    @classmethod
    def of_draws(cls, x: np.ndarray) -> AngleFeatures:
        """Estimate the distributions of D angles from draws, smoothed by a narrow wrapped Gaussian.

        Args:
            x: n draws of each angle in radians, ``(n, D)``.
        """
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
        """Return the probability that each angle lies between -π and ``x``.

        Args:
            x: angles for each of the D features, ``(..., D)``; they are clipped to the range -π to π.

        Returns:
            The probabilities, ``(..., D)``.
        """
        at = np.clip(np.asarray(x, dtype=np.float64), -np.pi, np.pi)
        start = self._integral(np.full_like(at, -np.pi))
        return np.asarray(np.clip(self._integral(at) - start, 0.0, 1.0))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.stack([_Circle.of(self.moments[:, d]).quantiles(levels) for d in range(self.n_features)], axis=-1)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the circular continuous ranked probability score (CRPS) of observed angles, ``(D,)`` in radians.

        The best score is 0. It is ``E d(x, y) - ½ E d(x, x')`` for independent x and x' from the distribution of a
        feature, where d is the distance along the circle, 0 to π. Reference: Grimit, Gneiting, Berrocal and Johnson
        (2006), *The continuous ranked probability score for circular variables*.

        Args:
            y: observed angle of each of the D features, ``(D,)``.
        """
        order = np.arange(1.0, len(self.moments) + 1)[:, None]
        weight = np.where(order % 2 == 1, 4 / (np.pi * order**2), 0.0)  # d(x, 0) = π/2 - Σ_odd 4/(π j²) cos(j x)
        to_truth = 0.5 * np.pi - (weight * (self.moments * np.exp(-1j * order * y)).real).sum(0)
        spread = 0.5 * np.pi - (weight * np.abs(self.moments) ** 2).sum(0)
        return np.asarray(to_truth - 0.5 * spread)

    def on_turn_of(self, y: np.ndarray, near: np.ndarray) -> np.ndarray:
        return np.asarray(near + wrapped(y - near))

    def _integral(self, x: np.ndarray) -> np.ndarray:
        """Return the integral of each of the D densities from 0 to the angles ``x (..., D)``, ``(..., D)``."""
        order = np.arange(1.0, self.moments.shape[-2] + 1)[:, None]
        waves = (self.moments * (np.exp(-1j * order * x[..., None, :]) - 1) / (-1j * order)).real.sum(-2)
        return np.asarray((x + 2 * waves) / TURN)


def wrapped(x: np.ndarray | float) -> np.ndarray:
    """Return the angles ``x`` shifted by multiples of 2π into the range -π to π."""
    return np.asarray(x - TURN * np.round(x / TURN))


@dataclass(frozen=True)
class _Circle:
    """The distribution of one angle, with its cdf and density on a grid of M equally spaced points from 0 to 2π.

    Args:
        moments: trigonometric moments ``φ_j = E exp(i j x)`` for j = 1 to J, ``(J,)``.
        cdf: integral of the density from 0 to each point, ``(M + 1,)``.
        density: density at each point, ``(M,)``.
        middle: the mean direction, or the mode if there is no mean; arcs are shifted by multiples of 2π to be near it.
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
        """Return the quantiles of the angle: ends of shortest arcs and, at one half, the median direction.

        Level q below one half gives the lower end of the shortest arc with probability ``1 - 2 q``, and level ``1 - q``
        gives its upper end.

        Args:
            levels: levels of the quantiles, ``(Q,)``.

        Returns:
            The angles in radians, ``(Q,)``, shifted by multiples of 2π to be near ``middle``.
        """
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
        """Return the ends of the arc close to ``start`` that has a given probability and equal densities at both ends.

        The shortest arc with this probability is such an arc.

        Args:
            start: ends of an arc close to the shortest one, ``(2,)``.
            probability: probability of the arc.
            radius: largest distance of the result from ``start``.

        Returns:
            The ends, ``(2,)``, found by Newton's method, or None if it leaves ``radius``, as it may on a uniform
            distribution, where every arc is a shortest one.
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
        """Return the end of an arc that has a given probability, found by Newton's method.

        Args:
            a: where the arc begins.
            b: estimate of its end.
            probability: probability of the arc.
        """
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
        for _ in range(N_NEWTON):  # Newton steps to the direction with probability 1/2 on either side
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
        """Return the integral of the density up to angles ``x``, plus a constant; its differences are probabilities."""
        of_waves = self.moments / (-1j * np.arange(1.0, len(self.moments) + 1))
        return np.asarray((x + 2 * self._sum(of_waves, x)) / TURN)

    def _sum(self, coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
        order = np.arange(1.0, len(coefficients) + 1)
        return np.asarray((np.exp(-1j * np.multiply.outer(x, order)) @ coefficients).real)


def _waves(coefficients: np.ndarray, n: int) -> np.ndarray:
    """Return ``Σ_j Re c_j exp(-i j x)`` at n points x from 0 to 2π, ``(n,)``, computed by a Fourier transform.

    Args:
        coefficients: complex coefficients c_j for j = 1 to J, ``(J,)``.
        n: number of points.
    """
    spectrum = np.zeros(n // 2 + 1, dtype=np.complex128)
    spectrum[1 : len(coefficients) + 1] = coefficients.conj()
    return np.fft.irfft(spectrum, n) * n / 2

"""The distribution of each feature of a step in raw units: means, cdfs, quantiles and CRPS.

They are exact if the observation knows the cdf of a feature, and estimated from draws otherwise. Angles have a module
of their own, ``angle_features``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.cells import Cells
from seqmodels.encodings.step_maps import inverse_power, log_slope, power
from seqmodels.observations import Observation
from seqmodels.observations.quantile_search import quantiles_by_search
from seqmodels.sequences.measure import is_atom

MAX_PAIRED = 256  # most Gaussians for an exact CRPS, which needs all pairs of them
MAX_INTEGRATED = 64  # most components of other densities for a CRPS by integration
MAX_ITERATIONS = 200  # of a root search that at least halves its step each time
TOLERANCE = 1e-9  # of a quantile, in units of the smallest deviation of the feature's components
N_PARTS, N_NODES = 50, 16  # parts of an integral over h, and nodes of each
LARGEST_DEGREES = 1e15  # stands for infinity where a formula takes finite degrees of freedom
SMALLEST = float(np.finfo(np.float64).tiny)
MOST_EDGES = 100  # most edges of cells at which an integral is divided
TAIL = 1e-14  # probability of the values that are left out of a sum or an integral
EDGE_LEVELS = 1 / (1 + np.exp(-np.linspace(-32.0, 32.0, 33)))  # levels of the quantiles that divide an integral
MAX_HALVINGS, INTEGRAL_TOLERANCE = 40, 1e-9  # halvings of a part; largest change, relative to the whole integral
TAIL_STEP = 4.0  # difference in log-odds between the fifth last and the third last of EDGE_LEVELS
STEEPEST_TAIL = 0.99  # a tail with a larger slope of log quantile against log level has no mean
MOST_POINTS = 20_000  # most grid points between two quantiles, times components, that are summed one by one
ON_GRID = 1e-6  # of a cell; a value this close to a point of the grid counts as the point


class FeatureDistributions(ABC):
    """The distribution of each of D features of a step in raw units; to add a kind, define the abstract methods."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The number D of features, each of which has a distribution."""

    @property
    def are_angles(self) -> tuple[bool, ...]:
        """A tuple that is True for each feature that is an angle."""
        return (False,) * self.n_features

    @property
    @abstractmethod
    def mean(self) -> np.ndarray:
        """The mean of each feature in raw units, ``(D,)``, NaN if there is none; for an angle, the mean direction."""

    @abstractmethod
    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the cumulative distribution function of each feature, ``P(X_d <= x_d)``.

        Args:
            x: values of the D features in raw units, ``(..., D)``.

        Returns:
            The probabilities, ``(..., D)``.
        """

    @abstractmethod
    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return the quantiles of each of the D features at given levels, ``(Q, D)``.

        They are the least values at which the cdf reaches a level. For angles, levels q and 1 - q give the ends of the
        shortest arc with probability ``1 - 2 q``, and level 0.5 gives the median direction.

        Args:
            levels: levels of the quantiles, ``(Q,)``.
        """

    @abstractmethod
    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score (CRPS) of observed values, ``(D,)``.

        For the cdf F of a feature it is ``∫ (F(x) - 1{x >= y})² dx``, in the unit of the feature; 0 is best. Matheson
        and Winkler (1976); Gneiting and Raftery (2007), *Strictly proper scoring rules, prediction, and estimation*.

        Args:
            y: observed value of each of the D features, ``(D,)``.
        """

    def crps_or_estimate(self, y: np.ndarray, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the CRPS of observed values, or an estimate of it from draws if the exact score takes long, ``(D,)``.

        The CRPS is the continuous ranked probability score, of which 0 is best.

        Args:
            y: observed value of each of the D features, ``(D,)``.
            draw: function that returns n draws of all features, ``(n, D)``; it is called only for an estimate.
        """
        return self.crps(y)

    def on_turn_of(self, y: np.ndarray, near: np.ndarray) -> np.ndarray:
        """Return ``y`` with angles shifted by multiples of 2π to be nearest to ``near``; other features are unchanged.

        Args:
            y: values of the D features, ``(..., D)``.
            near: values that the angles shall be near, ``(..., D)``.
        """
        return y


@dataclass(frozen=True)
class LocationScaleFeatures(FeatureDistributions):
    """The distributions of D features that are mixtures of C densities of one form, each with a location and a scale.

    Attributes:
        weights: weight of each component, the same for all features, ``(C,)``.
        loc: location of each component, which is its mean, ``(C, D)``.
        scale: scale of each component, ``(C, D)``.
    """

    weights: np.ndarray
    loc: np.ndarray
    scale: np.ndarray

    @property
    def n_features(self) -> int:
        return int(self.loc.shape[1])

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.weights @ self.loc)

    def moved(self, shift: np.ndarray, scale: np.ndarray) -> Self:
        """Return the distributions of ``shift + scale · x``, with a different map for each group of components.

        Args:
            shift, scale: the maps, each ``(r, D)``. The components are divided into r consecutive groups of equal size,
                one for each map.
        """
        n = len(self.weights) // len(shift)
        shift, scale = np.repeat(shift, n, axis=0), np.repeat(scale, n, axis=0)
        return replace(self, loc=shift + scale * self.loc, scale=scale * self.scale)

    def _z(self, x: np.ndarray) -> np.ndarray:
        """Return values of D features standardised by the location and scale of each component, ``(..., D, C)``.

        Args:
            x: the values, ``(..., D)``.
        """
        return np.asarray((np.asarray(x)[..., None] - self.loc.T) / self.scale.T)


@dataclass(frozen=True)
class GaussianFeatures(LocationScaleFeatures):
    """The distributions of D features that are mixtures of C Gaussians with the same weights.

    Attributes:
        weights: weight of each component, ``(C,)``.
        loc: mean of each component, ``(C, D)``.
        scale: standard deviation of each component, ``(C, D)``.

    >>> GaussianFeatures(np.ones(1), np.zeros((1, 1)), np.ones((1, 1))).quantiles(np.array([0.5, 0.975])).round(4)
    array([[0.  ],
           [1.96]])
    """

    def cdf(self, x: np.ndarray) -> np.ndarray:
        from scipy import special

        return np.asarray(special.ndtr(self._z(x)) @ self.weights)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.asarray(_mixture_quantiles(self.weights[None], self.loc[None], self.scale[None], levels)[0])

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score (CRPS) of observed values in closed form, ``(D,)``.

        It is computed from all pairs of components (Grimit et al. 2006, eq. 5).

        Args:
            y: observed value of each of the D features, ``(D,)``.
        """
        to_truth = self.weights @ _mean_distance(y - self.loc, self.scale)
        spread = np.stack([self._mean_pair_distance(d) for d in range(self.loc.shape[1])])
        return np.asarray(to_truth - 0.5 * spread)

    def crps_or_estimate(self, y: np.ndarray, draw: Callable[[], np.ndarray]) -> np.ndarray:
        return self.crps(y) if len(self.weights) <= MAX_PAIRED else crps_of_draws(draw(), y)

    def _mean_pair_distance(self, d: int) -> float:
        loc, scale = self.loc[:, d], self.scale[:, d]
        distances = _mean_distance(loc[:, None] - loc, np.hypot(scale[:, None], scale))
        return float(self.weights @ distances @ self.weights)


@dataclass(frozen=True)
class StudentFeatures(LocationScaleFeatures):
    """The distributions of D features that are mixtures of C Student t densities with the same weights.

    Attributes:
        weights: weight of each component, ``(C,)``.
        loc: location of each component, ``(C, D)``.
        scale: scale of each component, ``(C, D)``.
        degrees: degrees of freedom of each component, above 1, ``(C,)``; infinite for a Gaussian.

    >>> one = StudentFeatures(np.ones(1), np.zeros((1, 1)), np.ones((1, 1)), np.array([22.0]))
    >>> one.quantiles(np.array([0.5, 0.975])).round(4)
    array([[0.    ],
           [2.0739]])
    """

    degrees: np.ndarray

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_cdf(self._z(x), self.degrees) @ self.weights)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        weights, loc, scale = self.weights[None], self.loc[None], self.scale[None]
        return np.asarray(_mixture_quantiles(weights, loc, scale, levels, self.degrees)[0])

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score (CRPS) of observed values, ``(D,)``.

        It is ``E|X - y| - ∫ F (1 - F)`` for the cdf F. The first term has a closed form, and the integral is numerical,
        between far quantiles of the components.

        Args:
            y: observed value of each of the D features, ``(D,)``.
        """
        to_truth = self.weights @ _mean_distance(y - self.loc, self.scale, self.degrees[:, None])
        levels = EDGE_LEVELS[:, None, None]
        edges = self.loc + self.scale * _quantile(levels, self.degrees[:, None])  # (E, C, D)
        spread = [self._spread(d, np.unique(edges[..., d])) for d in range(self.n_features)]
        return np.asarray(to_truth - spread)

    def crps_or_estimate(self, y: np.ndarray, draw: Callable[[], np.ndarray]) -> np.ndarray:
        return self.crps(y) if len(self.weights) <= MAX_INTEGRATED else crps_of_draws(draw(), y)

    def _spread(self, d: int, edges: np.ndarray) -> float:
        """Return ``∫ F (1 - F)`` for the cdf F of feature d, over a range that increasing ``edges (E,)`` divide."""

        def integrand(x: np.ndarray) -> np.ndarray:
            cdf = _cdf((x[..., None] - self.loc[:, d]) / self.scale[:, d], self.degrees) @ self.weights
            return np.asarray(cdf * (1 - cdf))

        return _adaptive_integral(integrand, edges)


def quantiles_of_steps(steps: Sequence[FeatureDistributions], levels: np.ndarray) -> list[np.ndarray]:
    """Return the quantiles of the D features of each of several steps, a list of arrays ``(Q, D)``.

    Mixtures of the same number of Gaussians are computed together, which is faster.

    Args:
        steps: distributions of the features, one for each step.
        levels: levels of the quantiles, ``(Q,)``.
    """
    quantiles: dict[int, np.ndarray] = {}
    alike: dict[tuple[int, ...], list[int]] = {}
    for h, step in enumerate(steps):
        if isinstance(step, GaussianFeatures):
            alike.setdefault(step.loc.shape, []).append(h)
        else:
            quantiles[h] = step.quantiles(levels)
    for numbers in alike.values():
        each = [step for step in (steps[h] for h in numbers) if isinstance(step, GaussianFeatures)]
        weights, loc, scale = (np.stack([getattr(x, name) for x in each]) for name in ("weights", "loc", "scale"))
        quantiles.update(zip(numbers, _mixture_quantiles(weights, loc, scale, levels), strict=True))
    return [quantiles[h] for h in range(len(steps))]


def _mixture_quantiles(
    weights: np.ndarray, loc: np.ndarray, scale: np.ndarray, levels: np.ndarray, degrees: np.ndarray | None = None
) -> np.ndarray:
    """Return the quantiles of the D features of k mixtures of C Gaussians, or t densities, at Q levels, ``(k, Q, D)``.

    Args:
        weights: weights of the components, ``(k, C)``.
        loc, scale: means and standard deviations, or locations and scales, each ``(k, C, D)``.
        levels: levels of the quantiles, ``(Q,)``.
        degrees: degrees of freedom of the components, ``(C,)``; None if all are Gaussian.
    """
    from scipy import special

    of_each = _quantile(levels[:, None, None], None if degrees is None else degrees[:, None])
    each = loc[:, None] + scale[:, None] * of_each  # (k, Q, C, D) of each component
    if weights.shape[1] == 1:
        return np.asarray(each[:, :, 0])
    low, high = each.min(2), each.max(2)  # a quantile of the mixture lies between those of its components
    mean = np.matmul(weights[:, None], loc)  # (k, 1, D)
    variance = np.matmul(weights[:, None], scale**2 + (loc - mean) ** 2)
    x = np.clip(mean + np.sqrt(variance) * special.ndtri(levels)[:, None], low, high)
    quantiles: np.ndarray = x.copy()
    rows = np.arange(len(x))
    loc, scale = (each.transpose(0, 2, 1)[:, None] for each in (loc, scale))  # (k, 1, D, C)
    step, weights, is_found = high - low, weights[:, None, :, None], np.zeros(x.shape, dtype=bool)
    for _ in range(MAX_ITERATIONS):  # Newton's, or where it does not converge fast enough a halving of the bracket
        z = (x[..., None] - loc) / scale
        excess = np.matmul(_cdf(z, degrees), weights)[..., 0] - levels[:, None]
        density = np.matmul(_density(z, degrees) / scale, weights)[..., 0]
        low, high = np.where(excess <= 0, x, low), np.where(excess >= 0, x, high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = x - excess / density
        converges = (newton >= low) & (newton <= high) & (2 * np.abs(excess) <= step * density)
        following = np.where(converges, newton, 0.5 * (low + high))
        following = np.where(is_found, x, following)  # found quantiles stay while others of the row are searched
        step, x = np.abs(following - x), following
        quantiles[rows] = x
        is_found |= step <= TOLERANCE * scale.min(-1)
        is_unfinished = ~is_found.all((1, 2))
        if not is_unfinished.any():
            break
        if not is_unfinished.all():
            rows, x, low, high, step, loc, scale, weights, is_found = (
                each[is_unfinished] for each in (rows, x, low, high, step, loc, scale, weights, is_found)
            )
    return quantiles


def _cdf(z: np.ndarray, degrees: np.ndarray | None) -> np.ndarray:
    """Return the cdf of standard normal variables, or of Student's with some ``degrees`` of freedom, elementwise."""
    from scipy import special

    normal: np.ndarray = special.ndtr(z)
    if degrees is None:
        return normal
    return np.where(np.isinf(degrees), normal, special.stdtr(np.minimum(degrees, LARGEST_DEGREES), z))


def _quantile(levels: np.ndarray, degrees: np.ndarray | None) -> np.ndarray:
    """Return the quantiles of standard normal variables, or of Student's with some ``degrees`` of freedom."""
    from scipy import special

    normal: np.ndarray = special.ndtri(levels)
    if degrees is None:
        return normal
    return np.where(np.isinf(degrees), normal, special.stdtrit(np.minimum(degrees, LARGEST_DEGREES), levels))


def _standard_density(z: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))


def _density(z: np.ndarray, degrees: np.ndarray | None) -> np.ndarray:
    """Return the density of standard normal variables, or of Student's with some ``degrees`` of freedom."""
    normal = _standard_density(z)
    if degrees is None:
        return normal
    from scipy import special

    nu = np.minimum(degrees, LARGEST_DEGREES)
    log_constant = -special.betaln(0.5, 0.5 * nu) - 0.5 * np.log(nu)
    return np.where(np.isinf(degrees), normal, np.exp(log_constant - 0.5 * (nu + 1) * np.log1p(z * z / nu)))


def _mean_distance(mean: np.ndarray, deviation: np.ndarray, degrees: np.ndarray | None = None) -> np.ndarray:
    """Return ``E|X|`` for ``X ~ N(mean, deviation²)``, or of Student's t with this location and scale."""
    z, factor = mean / deviation, np.ones(())
    if degrees is not None:
        nu = np.minimum(degrees, LARGEST_DEGREES)
        factor = np.where(np.isinf(degrees), 1.0, (nu + z * z) / (nu - 1))
    return np.asarray(2 * deviation * factor * _density(z, degrees) + mean * (2 * _cdf(z, degrees) - 1))


@dataclass(frozen=True)
class ObservedFeatures(FeatureDistributions, ABC):
    """The distributions of D features as mixtures of C distributions of one family, whose cdfs have a closed form.

    Args:
        observation: the family.
        output_parameters: the P parameters of each component, ``(C, P)`` float64.
        weights: weights of the components, which sum to one, ``(C,)``.
        shift, scale: raw values are ``shift + scale · z`` for the values z of the family; ``(1, D)``, or ``(C, D)``
            with one map for each component.
    """

    observation: Observation
    output_parameters: Tensor
    weights: np.ndarray
    shift: np.ndarray
    scale: np.ndarray

    @property
    def n_features(self) -> int:
        return int(self.shift.shape[1])

    @property
    def mean(self) -> np.ndarray:
        means = self.observation.marginal_means(self.output_parameters).numpy()
        is_used = self.weights[:, None] > 0
        return np.asarray(np.where(is_used, self.weights[:, None] * (self.shift + self.scale * means), 0.0).sum(0))

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return self._mixed(self.observation.marginal_cdfs(self.output_parameters, self._encoded(x)).numpy())

    def crps_or_estimate(self, y: np.ndarray, draw: Callable[[], np.ndarray]) -> np.ndarray:
        return self.crps(y) if len(self.weights) <= MAX_INTEGRATED else crps_of_draws(draw(), y)

    def _encoded(self, x: np.ndarray) -> Tensor:
        """Return raw values of D features as values of each of C components, ``(x - shift) / scale``, ``(..., C, D)``.

        Args:
            x: the raw values, ``(..., D)``.
        """
        return torch.as_tensor((np.asarray(x, dtype=np.float64)[..., None, :] - self.shift) / self.scale)

    def _cdf_of_feature(self, x: np.ndarray, d: int) -> np.ndarray:
        """Return the mixture's cdf of one feature at given values.

        For values on a grid it is a smooth function between the points, not a step function.

        Args:
            x: values, an array of any shape.
            d: index of the feature.
        """
        all_features = np.repeat(x[..., None], self.n_features, axis=-1)
        each = self.observation.marginal_cdfs(self.output_parameters, self._encoded(all_features)).numpy()
        return np.asarray(each[..., d] @ self.weights)

    def _mixed(self, each: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("c,...cd->...d", self.weights, each))


@dataclass(frozen=True)
class DensityFeatures(ObservedFeatures):
    """The distributions of D features as mixtures of Student t, gamma, log-normal or beta densities.

    Amounts are 0 with some probability, and have a density above 0.

    Args:
        powers: power λ of each feature's transformation ``h(x) = (sign(x) |x|^λ - 1) / λ``, ``(D,)``, if the mixture is
            the distribution of h(x) for raw values x; None if it is that of x.
    """

    powers: np.ndarray | None = None

    @property
    def mean(self) -> np.ndarray:
        if self.powers is None:
            return super().mean
        edges = self.quantiles(EDGE_LEVELS)
        return np.array([self._mean_of_feature(d, edges[:, d]) for d in range(self.n_features)])

    def moved(self, shift: np.ndarray, scale: np.ndarray) -> DensityFeatures:
        """Return the distributions of ``shift + scale · x``, with a different map for each group of components.

        Args:
            shift, scale: the maps, each ``(r, D)``. The components are divided into r consecutive groups of equal size,
                one for each map.
        """
        assert self.powers is None, "an encoding scales what it has transformed"
        n = len(self.weights) // len(shift)
        shift, scale = np.repeat(shift, n, axis=0), np.repeat(scale, n, axis=0)
        return replace(self, shift=shift + scale * self.shift, scale=scale * self.scale)

    def density(self, x: np.ndarray) -> np.ndarray:
        """Return the density of each of the D features at raw values ``x (..., D)``, ``(..., D)``; 0 where the cdf
        jumps.
        """
        log_probs = self.observation.marginal_log_probs(self.output_parameters, self._encoded(x))
        is_jump = is_atom(np.asarray(x), self.observation.values(self.n_features))
        of_base = np.where(is_jump, 0.0, self._mixed(np.exp(log_probs.cpu().numpy()) / self.scale))
        return of_base if self.powers is None else of_base * np.exp(log_slope(np.asarray(x), self.powers))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        if self.powers is not None:  # h increases
            return inverse_power(replace(self, powers=None).quantiles(levels), self.powers)
        shape = (self.shift.shape[1],)
        quantiles = quantiles_by_search(lambda x: (self.cdf(x), self.density(x)), levels, shape)
        is_amount = np.array([value == "amounts" for value in self.observation.values(self.n_features)])
        return np.where(is_amount, np.maximum(quantiles, 0.0), quantiles)  # numbers next to 0 were rounded to it

    def _encoded(self, x: np.ndarray) -> Tensor:
        if self.powers is not None:
            x = np.nan_to_num(power(np.asarray(x, dtype=np.float64), self.powers), nan=-np.inf)
        return super()._encoded(x)

    def _mean_of_feature(self, d: int, edges: np.ndarray) -> float:
        """Return the mean of one feature by integration of its cdf, or NaN if its tails are too heavy for a mean.

        In a tail, ``P(|x| > q) ~ q^(-1 / s)``; s is estimated from the outer quantiles, and from s = 1 on there is no
        mean.

        Args:
            d: index of the feature.
            edges: its quantiles at ``EDGE_LEVELS``.
        """
        if not np.isfinite(edges).all():
            return np.nan
        middle = edges[len(edges) // 2]
        result = middle
        for side, sign in ((edges[: len(edges) // 2 + 1], -1.0), (edges[len(edges) // 2 :], 1.0)):
            away = np.sort(np.abs(side - middle))
            slope = np.log(away[-3] / away[-5]) / TAIL_STEP if away[-5] > 0 else 0.0
            if slope > STEEPEST_TAIL:
                return np.nan
            within = _adaptive_integral(lambda x, sign=sign: self._beyond(x, d, sign), side)  # type: ignore[misc]
            result += sign * (within + EDGE_LEVELS[0] * away[-1] * slope / (1 - slope))
        return float(result)

    def _beyond(self, x: np.ndarray, d: int, sign: float) -> np.ndarray:
        """Return the probability that feature d lies above ``x``, or at or below it if ``sign`` is -1."""
        below = self._cdf_of_feature(x, d)
        return 1 - below if sign > 0 else below

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score (CRPS) of observed values by numerical integration, ``(D,)``.

        The integral is divided at quantiles, and its parts are refined where a component is narrow.

        Args:
            y: observed value of each of the D features, ``(D,)``.
        """
        edges = self.quantiles(EDGE_LEVELS)
        middle = np.clip(y, edges[0], edges[-1])
        each = [self._crps_within(d, edges[:, d], float(middle[d])) for d in range(len(y))]
        return np.asarray(np.array(each) + np.abs(y - middle))

    def _crps_within(self, d: int, edges: np.ndarray, y: float) -> float:
        """Return the CRPS of one feature over a range of values, ``∫ (F(x) - 1{x >= y})² dx`` for its cdf F.

        Args:
            d: index of the feature.
            edges: E increasing values that divide the range, which contains y, ``(E,)``.
            y: observed value.
        """
        if np.isnan(y):
            return np.nan
        if not np.isfinite(edges).all():
            return np.inf  # a tail so heavy that its integral is infinite
        below, above = np.append(edges[edges < y], y), np.append(y, edges[edges > y])
        return _adaptive_integral(lambda x: self._cdf_of_feature(x, d) ** 2, below) + _adaptive_integral(
            lambda x: (1 - self._cdf_of_feature(x, d)) ** 2, above
        )


@dataclass(frozen=True)
class GridFeatures(ObservedFeatures):
    """The distributions of D features as mixtures of distributions of whole numbers or of values on a regular grid.

    Args:
        widths: distance between neighbouring values of each feature, ``(D,)``.
    """

    widths: np.ndarray

    def cdf(self, x: np.ndarray) -> np.ndarray:
        # The nearest value to half a cell below x is the last one that is not above x.
        below = self._nearest(np.asarray(x, dtype=np.float64) - (0.5 - ON_GRID) * self.widths)
        return super().cdf(below)

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """Return the values of the grid nearest to raw values of D features, ``x (..., D)``."""
        if self.observation.grid(len(self.widths)) is None:
            return np.asarray(np.round(x)) + 0.0  # not -0
        encoded = self.observation.nearest(torch.as_tensor((x - self.shift[0]) / self.scale[0])).numpy()
        return np.asarray(np.where(np.isfinite(x), self.shift[0] + self.scale[0] * encoded, x))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        result = quantiles_by_search(lambda x: (self.cdf(x), np.zeros_like(x)), levels, self.widths.shape)
        return self._nearest(result)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score (CRPS) of observed values as a sum over the grid, ``(D,)``.

        An integral replaces the sum between quantiles that are many values apart.

        Args:
            y: observed value of each of the D features, ``(D,)``.
        """
        edges = self.quantiles(EDGE_LEVELS)
        return np.array([self._crps_of_feature(d, edges[:, d], float(y[d])) for d in range(len(y))])

    def _crps_of_feature(self, d: int, edges: np.ndarray, y: float) -> float:
        if np.isnan(y):
            return np.nan
        middle, width = float(np.clip(y, edges[0], edges[-1])), float(self.widths[d])
        most = MOST_POINTS // len(self.weights)
        total = abs(y - middle)
        for low, high in pairwise(np.unique(np.append(edges, middle))):
            is_above, n = low >= middle, round((high - low) / width)

            def squared(x: np.ndarray, is_above: bool = is_above) -> np.ndarray:
                return (self._cdf_of_feature(x, d) - is_above) ** 2

            if n <= most:
                total += width * squared(low + width * np.arange(n)).sum()
            else:  # Σ f(k), from low to before high, is an integral from half a width below each
                total += _adaptive_integral(squared, np.array([low, high]) - 0.5 * width)
        return float(total)


@dataclass(frozen=True)
class EmpiricalFeatures(FeatureDistributions):
    """The empirical distributions of D features, each a step function with equal jumps at n draws.

    Args:
        x: the draws in raw units, ``(n, D)``.
    """

    x: np.ndarray

    @property
    def n_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.x.mean(0))

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return np.asarray((self.x <= np.asarray(x)[..., None, :]).mean(-2))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.asarray(np.quantile(self.x, levels, axis=0, method="inverted_cdf"))

    def crps(self, y: np.ndarray) -> np.ndarray:
        return crps_of_draws(self.x, y)


@dataclass(frozen=True)
class JoinedFeatures(FeatureDistributions):
    """The distributions of all features of a step, joined from those of consecutive groups of features.

    Args:
        groups: distributions of each group, in the order of the features.
    """

    groups: Sequence[FeatureDistributions]

    @property
    def n_features(self) -> int:
        return sum(group.n_features for group in self.groups)

    @property
    def are_angles(self) -> tuple[bool, ...]:
        return tuple(is_angle for group in self.groups for is_angle in group.are_angles)

    @property
    def mean(self) -> np.ndarray:
        return np.concatenate([group.mean for group in self.groups])

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([group.cdf(part) for group, part in zip(self.groups, self._split(x), strict=True)], -1)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.concatenate([group.quantiles(levels) for group in self.groups], -1)

    def crps(self, y: np.ndarray) -> np.ndarray:
        return np.concatenate([group.crps(part) for group, part in zip(self.groups, self._split(y), strict=True)])

    def crps_or_estimate(self, y: np.ndarray, draw: Callable[[], np.ndarray]) -> np.ndarray:
        def draws_of(i: int) -> Callable[[], np.ndarray]:
            return lambda: self._split(draw())[i]

        parts = enumerate(zip(self.groups, self._split(y), strict=True))
        return np.concatenate([group.crps_or_estimate(part, draws_of(i)) for i, (group, part) in parts])

    def _split(self, x: np.ndarray) -> list[np.ndarray]:
        return np.split(np.asarray(x), np.cumsum([group.n_features for group in self.groups])[:-1], axis=-1)

    def on_turn_of(self, y: np.ndarray, near: np.ndarray) -> np.ndarray:
        parts = zip(self.groups, self._split(y), self._split(near), strict=True)
        return np.concatenate([group.on_turn_of(*part) for group, *part in parts], -1)


@dataclass(frozen=True)
class PowerFeatures(FeatureDistributions):
    """The distributions of D features whose power transformations have known distributions.

    The transformation of a raw value x is ``h(x) = (sign(x) |x|^λ - 1) / λ``, or ``log x`` for λ = 0. Because h
    increases, cdf and quantiles follow directly from those of h(x); means and scores are integrals over h by
    Gauss-Legendre quadrature.

    Args:
        base: distributions of h(x).
        powers: power λ of each feature, ``(D,)``.
    """

    base: FeatureDistributions
    powers: np.ndarray

    @property
    def n_features(self) -> int:
        return self.base.n_features

    @property
    def mean(self) -> np.ndarray:
        """The mean of each feature in raw units, ``(D,)``, as ``∫_0^∞ (1 - F) dx - ∫_-∞^0 F dx`` for its cdf F.

        The outermost probability ``TAIL`` at each end is left out of the integrals.
        """
        low, high = self.base.quantiles(np.array([TAIL, 1 - TAIL]))
        origin = np.clip(power(np.zeros_like(low), self.powers), low, high)  # h(0), -∞ of a logarithm
        at_origin = inverse_power(origin, self.powers)
        above = _integral(lambda h: (1 - self.base.cdf(h)) * self._slope(h), origin, high)
        below = _integral(lambda h: self.base.cdf(h) * self._slope(h), low, origin)
        return np.asarray(at_origin + above - below)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return self.base.cdf(np.nan_to_num(power(np.asarray(x), self.powers), nan=-np.inf))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return inverse_power(self.base.quantiles(levels), self.powers)

    def crps(self, y: np.ndarray) -> np.ndarray:
        low, high = self.base.quantiles(np.array([TAIL, 1 - TAIL]))
        h = np.nan_to_num(power(y, self.powers), nan=-np.inf)
        middle = np.clip(h, low, high)
        below = _integral(lambda h: self.base.cdf(h) ** 2 * self._slope(h), low, middle)
        above = _integral(lambda h: (1 - self.base.cdf(h)) ** 2 * self._slope(h), middle, high)
        outside = np.abs(y - inverse_power(middle, self.powers))  # where F is 0 or 1
        return np.asarray(below + above + outside)

    def _slope(self, h: np.ndarray) -> np.ndarray:
        """Return the derivative ``dx / dh`` at values h of the power transformation h(x), ``h (..., D)``."""
        return np.asarray(np.exp(-log_slope(inverse_power(h, self.powers), self.powers)))


@dataclass(frozen=True)
class CellFeatures(FeatureDistributions):
    """The distributions of D features that are predicted as histograms over the cells of a partition of the reals.

    Each is a mixture of r histograms; histogram i is the distribution of z for raw values ``x = shift_i + scale_i z``.

    Args:
        cells: the partition of each feature: edges of the cells, and how values are distributed within each.
        weights: weights of the histograms, which sum to one, ``(r,)``.
        probabilities: for each feature, the probabilities of its k cells in each histogram, ``(r, k)``.
        shift, scale: map from z to raw values for each histogram, ``(r, D)``.
    """

    cells: Sequence[Cells]
    weights: np.ndarray
    probabilities: Sequence[np.ndarray]
    shift: np.ndarray
    scale: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.cells)

    @property
    def mean(self) -> np.ndarray:
        of_cells = [p @ cells.means for cells, p in zip(self.cells, self.probabilities, strict=True)]
        return np.asarray(self.weights @ (self.shift + self.scale * np.stack(of_cells, -1)))

    def cdf(self, x: np.ndarray) -> np.ndarray:
        z = (np.asarray(x, dtype=np.float64)[..., None, :] - self.shift) / self.scale  # (..., r, D)
        return np.stack([self._cdf_of_feature(z[..., d], d) for d in range(len(self.cells))], axis=-1)

    def _cdf_of_feature(self, z: np.ndarray, d: int) -> np.ndarray:
        """Return the mixture's cdf of one feature, with each histogram evaluated at a value of its own.

        Args:
            z: values in the units of each of the r histograms, ``(..., r)``.
            d: index of the feature.

        Returns:
            The probabilities, ``(...)``.
        """
        cells, p = self.cells[d], self.probabilities[d]
        cell, row = cells.cell(z), np.arange(len(p))
        below = np.cumsum(p, axis=1) - p
        return np.asarray((below[row, cell] + p[row, cell] * cells.cdf(z, cell)) @ self.weights)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return the quantiles of each of the D features at given levels, ``(Q, D)``.

        They are found by bisection between those of the r histograms; for a single histogram they have a closed form.

        Args:
            levels: levels of the quantiles, ``(Q,)``.
        """
        each = np.stack([self._quantiles_of_feature(levels, d) for d in range(len(self.cells))], axis=-1)
        each = self.shift + self.scale * each  # (Q, r, D)
        low, high = each.min(1), each.max(1)
        for _ in range(MAX_ITERATIONS):
            if (high - low <= TOLERANCE * self.scale.min(0)).all():
                break
            middle = 0.5 * (low + high)
            reached = self.cdf(middle) >= np.asarray(levels)[:, None]
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return np.asarray(high)

    def _quantiles_of_feature(self, levels: np.ndarray, d: int) -> np.ndarray:
        """Return the quantiles of one feature in each of the r histograms, ``(Q, r)``, in the histograms' units.

        Args:
            levels: levels of the quantiles, ``(Q,)``.
            d: index of the feature.
        """
        cells, p = self.cells[d], self.probabilities[d]
        above = np.cumsum(p, axis=1)
        level = np.asarray(levels)[:, None]
        cell = np.minimum((above[None] < level[..., None]).sum(-1), cells.n_cells - 1)  # (Q, r)
        row = np.arange(len(p))
        within = (level - (above - p)[row, cell]) / np.maximum(p[row, cell], SMALLEST)
        return cells.quantile(np.clip(within, TAIL, 1 - TAIL), cell)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score (CRPS) of observed values by quadrature, ``(D,)``.

        The range of Gauss-Legendre quadrature is divided at the edges of cells, between which it is exact; of more than
        ``MOST_EDGES`` edges, only some are used.

        Args:
            y: observed value of each of the D features, ``(D,)``.
        """
        low, high = self.quantiles(np.array([TAIL, 1 - TAIL]))
        middle = np.clip(y, low, high)
        each = [self._crps_within(d, *(float(at[d]) for at in (low, middle, high))) for d in range(len(self.cells))]
        return np.asarray(np.array(each) + np.abs(y - middle))

    def _crps_within(self, d: int, low: float, y: float, high: float) -> float:
        """Return the CRPS of one feature over a range of values, ``∫ (F(x) - 1{x >= y})² dx`` for its cdf F.

        Args:
            d: index of the feature.
            low: lower end of the range.
            y: observed value, within the range.
            high: upper end of the range.
        """
        shift, scale = self.shift[:, d], self.scale[:, d]
        inner = np.sort((shift[:, None] + scale[:, None] * self.cells[d].edges).ravel())
        inner = inner[(inner > low) & (inner < high)][:: max(1, len(inner) // MOST_EDGES)]
        ends = np.unique(np.concatenate([np.linspace(low, high, N_PARTS + 1), inner, [y]]))
        nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
        x = ends[:-1, None] + np.diff(ends)[:, None] * 0.5 * (1 + nodes)
        f = self._cdf_of_feature((x[..., None] - shift) / scale, d)
        return float((0.5 * np.diff(ends)[:, None] * weights * (f - (x >= y)) ** 2).sum())


def _integral(f: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the integral of a function for each of D features by Gauss-Legendre quadrature, ``(D,)``.

    The range is divided into ``N_PARTS`` parts of ``N_NODES`` nodes.

    Args:
        f: function that maps N points of each feature, ``(N, D)``, to values of the same shape.
        low, high: limits of the integral, each ``(D,)``.
    """
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
    within = ((np.arange(N_PARTS)[:, None] + 0.5 * (1 + nodes)) / N_PARTS).reshape(-1, 1)  # (N, 1), from 0 to 1
    values = f(low + (high - low) * within)
    return np.asarray((high - low) * 0.5 / N_PARTS * (np.tile(weights, N_PARTS) @ values))


def _adaptive_integral(f: Callable[[np.ndarray], np.ndarray], ends: np.ndarray) -> float:
    """Return the integral of a function over a range by Gauss-Legendre quadrature.

    Each interval of the range is halved until halving it no longer changes its integral.

    Args:
        f: function that maps an array of points to values of the same shape.
        ends: E increasing points that divide the range into E - 1 intervals, ``(E,)``.
    """
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)

    def by_rule(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        half = 0.5 * (b - a)[:, None]
        return np.asarray((half * f(a[:, None] + half * (1 + nodes))) @ weights)

    a, b = ends[:-1], ends[1:]
    whole, total = by_rule(a, b), 0.0
    for _ in range(MAX_HALVINGS):
        middle = 0.5 * (a + b)
        left, right = by_rule(a, middle), by_rule(middle, b)
        is_done = np.abs(left + right - whole) <= INTEGRAL_TOLERANCE * abs(total + whole.sum())
        total += float((left + right)[is_done].sum())
        a, b = (np.concatenate(each) for each in ((a[~is_done], middle[~is_done]), (middle[~is_done], b[~is_done])))
        whole = np.concatenate([left[~is_done], right[~is_done]])
        if not len(whole):
            break
    return total + float(whole.sum())


def crps_of_draws(draws: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return an unbiased estimate of the continuous ranked probability score (CRPS) from independent draws, ``(D,)``.

    It is ``1/n Σ_i |x_i - y| - 1/(2 n (n-1)) Σ_ij |x_i - x_j|`` (Gneiting and Raftery 2007), with n - 1 as in Ferro
    (2014), *Fair scores for ensemble forecasts*, so that its mean does not depend on n. It is NaN for fewer than two
    draws.

    Args:
        draws: n draws of D features from the predicted distribution, ``(n, D)``.
        y: observed value of each feature, ``(D,)``.
    """
    n = len(draws)
    if n < 2:
        return np.full(np.shape(y), np.nan)
    ordered = np.sort(draws, axis=0)
    rank = np.arange(n).reshape(-1, *[1] * (ordered.ndim - 1))
    pairs = ((2 * rank - n + 1) * ordered).sum(0)  # Σ_{i<j} |x_i - x_j|
    return np.asarray(np.abs(draws - y).mean(0) - pairs / (n * (n - 1)))

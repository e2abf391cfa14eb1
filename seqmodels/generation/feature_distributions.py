"""The distribution of each feature of a step by itself, in raw units: means, cdfs, quantiles, and their CRPS.

Of a mixture of Gaussians or of distributions of whole numbers it is exact; of any other observation it is that of
draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.cells import Cells, ProductCells
from seqmodels.encodings.step_maps import StepMap, inverse_power, log_slope, power
from seqmodels.generation.cursor import Prediction
from seqmodels.observations import Columns, Observation

MAX_ITERATIONS = 200  # of a root search that halves its step each time
TOLERANCE = 1e-9  # of a quantile, in units of the smallest deviation of the feature's components
LARGEST_COUNT = 2.0**52  # above it whole numbers are not told apart
N_PARTS, N_NODES = 50, 16  # of an integral over h
SMALLEST = float(np.finfo(np.float64).tiny)
MOST_EDGES = 100  # of cells, between which an integral has parts of its own
TAIL = 1e-14  # probability of the counts that are left out of an infinite sum


class FeatureDistributions(ABC):
    """One distribution for each of D features of a step. To add one, define the methods below."""

    @property
    @abstractmethod
    def mean(self) -> np.ndarray:
        """``(D,)``: the mean of each feature, in raw units."""

    @abstractmethod
    def cdf(self, x: np.ndarray) -> np.ndarray:
        """``(..., D)``: P(X_d <= x_d) of each feature of ``x (..., D)``."""

    @abstractmethod
    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """``(Q, D)``: for each of ``levels (Q,)`` the least value at which the cdf reaches it."""

    @abstractmethod
    def crps(self, y: np.ndarray) -> np.ndarray:
        """``(D,)`` continuous ranked probability score of what was observed, ``y (D,)``: ``∫ (F(x) - 1{x >= y})² dx``.

        In units of the feature; 0 is best. Matheson & Winkler (1976); Gneiting & Raftery (2007), *Strictly proper
        scoring rules, prediction, and estimation*.
        """


@dataclass(frozen=True)
class GaussianFeatures(FeatureDistributions):
    """Mixtures of C Gaussians: ``weights (C,)``, ``loc`` and ``scale (C, D)``.

    >>> GaussianFeatures(np.ones(1), np.zeros((1, 1)), np.ones((1, 1))).quantiles(np.array([0.5, 0.975])).round(4)
    array([[0.  ],
           [1.96]])
    """

    weights: np.ndarray
    loc: np.ndarray
    scale: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.weights @ self.loc)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        from scipy import special

        return np.asarray(special.ndtr(self._z(x)) @ self.weights)

    def moved(self, shift: np.ndarray, scale: np.ndarray) -> GaussianFeatures:
        """That of ``shift + scale x``, for r equal parts of the components ``(r, D)`` of both."""
        n = len(self.weights) // len(shift)
        shift, scale = np.repeat(shift, n, axis=0), np.repeat(scale, n, axis=0)
        return GaussianFeatures(self.weights, shift + scale * self.loc, scale * self.scale)

    def _z(self, x: np.ndarray) -> np.ndarray:
        """``(..., D, C)`` standardised by each component."""
        return np.asarray((np.asarray(x)[..., None] - self.loc.T) / self.scale.T)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        from scipy import special

        each = self.loc + self.scale * special.ndtri(levels)[:, None, None]  # (Q, C, D) of each component
        if len(self.weights) == 1:
            return np.asarray(each[:, 0])
        low, high = each.min(1), each.max(1)  # the mixture's lies between those of its components
        variance = self.weights @ (self.scale**2 + (self.loc - self.mean) ** 2)
        x = np.clip(self.mean + np.sqrt(variance) * special.ndtri(levels)[:, None], low, high)
        step, peaks = high - low, self.weights / self.scale.T  # (D, C)
        for _ in range(MAX_ITERATIONS):  # Newton's, or where it does not converge fast enough a halving of the bracket
            z = self._z(x)
            excess, density = special.ndtr(z) @ self.weights - levels[:, None], (_standard_density(z) * peaks).sum(-1)
            low, high = np.where(excess <= 0, x, low), np.where(excess >= 0, x, high)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = x - excess / density
            converges = (newton >= low) & (newton <= high) & (2 * np.abs(excess) <= step * density)
            following = np.where(converges, newton, 0.5 * (low + high))
            step, x = np.abs(following - x), following
            if (step <= TOLERANCE * self.scale.min(0)).all():
                break
        return np.asarray(x)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """In closed form, from all pairs of components (Grimit et al. 2006, eq. 5)."""
        to_truth = self.weights @ _mean_distance(y - self.loc, self.scale)
        spread = np.stack([self._mean_pair_distance(d) for d in range(self.loc.shape[1])])
        return np.asarray(to_truth - 0.5 * spread)

    def _mean_pair_distance(self, d: int) -> float:
        loc, scale = self.loc[:, d], self.scale[:, d]
        distances = _mean_distance(loc[:, None] - loc, np.hypot(scale[:, None], scale))
        return float(self.weights @ distances @ self.weights)


def _standard_density(z: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))


def _mean_distance(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """``E|X|`` of ``X ~ N(mean, deviation²)``."""
    from scipy import special

    z = mean / deviation
    return np.asarray(2 * deviation * _standard_density(z) + mean * (2 * special.ndtr(z) - 1))


@dataclass(frozen=True)
class WholeNumberFeatures(FeatureDistributions):
    """Mixtures of distributions over 0, 1, 2, ...: ``weights (C,)``, ``means (C, D)``; bits or Poisson counts."""

    weights: np.ndarray
    means: np.ndarray
    are_bits: bool

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.weights @ self.means)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        from scipy import special

        below = np.floor(np.asarray(x))[..., None, :]  # (..., 1, D)
        if self.are_bits:
            each = np.where(below < 0, 0.0, np.where(below < 1, 1 - self.means, 1.0))
        else:  # of a mean of 0 all is at 0
            each = np.where(below < 0, 0.0, special.gammaincc(np.maximum(below, 0) + 1, self.means))
        return np.asarray(np.einsum("c,...cd->...d", self.weights, each))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        level = levels[:, None]
        low = np.full((len(levels), self.means.shape[1]), -1.0)  # the cdf is below the level here, and reaches it above
        high = np.ones_like(low)
        while (short := (self.cdf(high) < level) & (high < LARGEST_COUNT)).any():
            high = np.where(short, 2 * high, high)
        while (high - low > 1).any():
            middle = np.floor(0.5 * (low + high))
            reached = self.cdf(middle) >= level
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return high

    def crps(self, y: np.ndarray) -> np.ndarray:
        """The sum over whole numbers, of which the last have less than ``TAIL``."""
        largest = int(max(self.quantiles(np.array([1 - TAIL])).max(), np.max(y)))
        values = np.arange(largest + 1.0)[:, None]
        return np.asarray(((self.cdf(np.broadcast_to(values, (largest + 1, len(y)))) - (values >= y)) ** 2).sum(0))


@dataclass(frozen=True)
class EmpiricalFeatures(FeatureDistributions):
    """That of n draws, ``x (n, D)``."""

    x: np.ndarray

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
    """Of groups of features, side by side."""

    groups: Sequence[FeatureDistributions]

    @property
    def mean(self) -> np.ndarray:
        return np.concatenate([group.mean for group in self.groups])

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([group.cdf(part) for group, part in zip(self.groups, self._split(x), strict=True)], -1)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.concatenate([group.quantiles(levels) for group in self.groups], -1)

    def crps(self, y: np.ndarray) -> np.ndarray:
        return np.concatenate([group.crps(part) for group, part in zip(self.groups, self._split(y), strict=True)])

    def _split(self, x: np.ndarray) -> list[np.ndarray]:
        return np.split(np.asarray(x), np.cumsum([len(group.mean) for group in self.groups])[:-1], axis=-1)


@dataclass(frozen=True)
class PowerFeatures(FeatureDistributions):
    """Of x whose h(x), a power transformation by ``powers (D,)``, has the distribution ``base`` in closed form.

    h increases, so that cdf and quantiles are those of ``base``; means and scores are integrals over h by Gauss and
    Legendre's rule.
    """

    base: FeatureDistributions
    powers: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """``∫_0^∞ (1 - F) dx - ∫_-∞^0 F dx``, over the range of all but ``TAIL``."""
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
        """``dx / dh``, by which an integral over x becomes one over transformed values."""
        return np.asarray(np.exp(-log_slope(inverse_power(h, self.powers), self.powers)))


@dataclass(frozen=True)
class CellFeatures(FeatureDistributions):
    """Mixtures of r parts, each of which says how probable the cells of z are, where ``x = shift + scale z``.

    Args:
        cells: of each feature.
        weights: ``(r,)``, which sum to one.
        probabilities: for each feature ``(r, k)`` of its cells.
        shift, scale: ``(r, D)``.
    """

    cells: Sequence[Cells]
    weights: np.ndarray
    probabilities: Sequence[np.ndarray]
    shift: np.ndarray
    scale: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        of_cells = [p @ cells.means for cells, p in zip(self.cells, self.probabilities, strict=True)]
        return np.asarray(self.weights @ (self.shift + self.scale * np.stack(of_cells, -1)))

    def cdf(self, x: np.ndarray) -> np.ndarray:
        z = (np.asarray(x, dtype=np.float64)[..., None, :] - self.shift) / self.scale  # (..., r, D)
        return np.stack([self._cdf_of_feature(z[..., d], d) for d in range(len(self.cells))], axis=-1)

    def _cdf_of_feature(self, z: np.ndarray, d: int) -> np.ndarray:
        """Of the mixture, at the ``z (..., r)`` of each part."""
        cells, p = self.cells[d], self.probabilities[d]
        cell, row = cells.cell(z), np.arange(len(p))
        below = np.cumsum(p, axis=1) - p
        return np.asarray((below[row, cell] + p[row, cell] * cells.cdf(z, cell)) @ self.weights)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Of one part in closed form; else by halving the range of the quantiles of all parts."""
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
        """``(Q, r)`` z of each part."""
        cells, p = self.cells[d], self.probabilities[d]
        above = np.cumsum(p, axis=1)
        level = np.asarray(levels)[:, None]
        cell = np.minimum((above[None] < level[..., None]).sum(-1), cells.n_cells - 1)  # (Q, r)
        row = np.arange(len(p))
        within = (level - (above - p)[row, cell]) / np.maximum(p[row, cell], SMALLEST)
        return cells.quantile(np.clip(within, TAIL, 1 - TAIL), cell)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """By Gauss and Legendre's rule between edges, where it is exact; of more than ``MOST_EDGES`` some are taken."""
        low, high = self.quantiles(np.array([TAIL, 1 - TAIL]))
        middle = np.clip(y, low, high)
        each = [self._crps_within(d, *(float(at[d]) for at in (low, middle, high))) for d in range(len(self.cells))]
        return np.asarray(np.array(each) + np.abs(y - middle))

    def _crps_within(self, d: int, low: float, y: float, high: float) -> float:
        """``∫ (F(x) - 1{x >= y})² dx`` of feature d from ``low`` to ``high``."""
        shift, scale = self.shift[:, d], self.scale[:, d]
        inner = np.sort((shift[:, None] + scale[:, None] * self.cells[d].edges).ravel())
        inner = inner[(inner > low) & (inner < high)][:: max(1, len(inner) // MOST_EDGES)]
        ends = np.unique(np.concatenate([np.linspace(low, high, N_PARTS + 1), inner, [y]]))
        nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
        x = ends[:-1, None] + np.diff(ends)[:, None] * 0.5 * (1 + nodes)
        f = self._cdf_of_feature((x[..., None] - shift) / scale, d)
        return float((0.5 * np.diff(ends)[:, None] * weights * (f - (x >= y)) ** 2).sum())


def _integral(f: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """``(D,)`` of each feature from ``low`` to ``high (D,)``, in ``N_PARTS`` equal parts of ``N_NODES`` nodes each."""
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
    within = ((np.arange(N_PARTS)[:, None] + 0.5 * (1 + nodes)) / N_PARTS).reshape(-1, 1)  # (N, 1), from 0 to 1
    values = f(low + (high - low) * within)
    return np.asarray((high - low) * 0.5 / N_PARTS * (np.tile(weights, N_PARTS) @ values))


def crps_of_draws(draws: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(D,)`` CRPS of what was observed, ``y (D,)``, estimated from n independent ``draws (n, D)`` without bias.

    ``1/n Σ_i |x_i - y| - 1/(2 n (n-1)) Σ_ij |x_i - x_j|``: Gneiting & Raftery (2007), with n - 1 as in Ferro (2014),
    *Fair scores for ensemble forecasts*: its mean does not depend on n. NaN of fewer than two draws.
    """
    n = len(draws)
    if n < 2:
        return np.full(np.shape(y), np.nan)
    ordered = np.sort(draws, axis=0)
    rank = np.arange(n).reshape(-1, *[1] * (ordered.ndim - 1))
    pairs = ((2 * rank - n + 1) * ordered).sum(0)  # Σ_{i<j} |x_i - x_j|
    return np.asarray(np.abs(draws - y).mean(0) - pairs / (n * (n - 1)))


# -- from predictions -----------------------------------------------------------------------------------------


def feature_distributions(
    prediction: Prediction,
    rows: slice,
    weights: np.ndarray,
    shift: Tensor,
    scale: Tensor,
    step: StepMap | None = None,
) -> FeatureDistributions | None:
    """The mixture of some rows' predictions of the next vector, given that there is one.

    Args:
        prediction: of n sequences.
        rows: r of them.
        weights: ``(r,)`` of the rows, not all zero.
        shift, scale: ``(D,)`` float64, from encoded to raw units.
        step: of a series instead, by which each row's vector is encoded, perhaps as the number of its cell.

    Returns:
        None where the observation has no cdf in closed form, or of a series is no mixture of Gaussians.
    """
    if step is not None and step.cells is not None:
        return _of_cells(prediction, rows, weights, step, step.cells)
    table = prediction.output_parameters[rows].double()  # (r, K, P)
    log_weights = prediction.weights()[rows].double().log() + torch.as_tensor(weights).log().to(table)[:, None]
    kept = (log_weights > -torch.inf).flatten()
    past = prediction.past
    if past is not None:
        past = past[rows].double()[:, None].expand(-1, table.shape[1], -1, -1).flatten(0, 1)[kept]
    log_weights = log_weights.flatten()[kept].log_softmax(0)
    encoded = _of_observation(prediction.observation, table.flatten(0, 1)[kept], log_weights, past, shift, scale)
    if step is None or encoded is None:
        return encoded
    row_of_each = np.repeat(np.arange(len(table)), table.shape[1])[kept.cpu().numpy()]
    raw = _raw(encoded, *(np.asarray(each)[rows][row_of_each] for each in (step.shift, step.scale)))
    return raw if raw is None or step.powers is None else PowerFeatures(raw, step.powers)


def _of_cells(
    prediction: Prediction, rows: slice, weights: np.ndarray, step: StepMap, cells: ProductCells
) -> FeatureDistributions:
    """The mixture of some rows' predictions of a cell, each with a map of its own; rows of one map are one part."""
    log_probs = prediction.log_probs(with_end=False).cpu().numpy()[rows]
    kept = weights > 0
    p, weights = np.exp(log_probs[kept]), weights[kept] / weights[kept].sum()
    shift, scale = (np.broadcast_to(each, (len(log_probs), each.shape[1]))[kept] for each in (step.shift, step.scale))
    maps, part = np.unique(np.concatenate([shift, scale], axis=1), axis=0, return_inverse=True)
    sums = np.zeros((len(maps), p.shape[1]))
    np.add.at(sums, part.reshape(-1), weights[:, None] * p)
    shift, scale = np.split(maps, 2, axis=1)
    of_parts = sums.sum(1)
    marginals = cells.marginals(sums / of_parts[:, None])
    features = CellFeatures(cells.features, of_parts / of_parts.sum(), marginals, shift, scale)
    return features if step.powers is None else PowerFeatures(features, step.powers)


def _raw(encoded: FeatureDistributions, shift: np.ndarray, scale: np.ndarray) -> FeatureDistributions | None:
    """Of raw values, from those of encoded ones: ``shift, scale (r, D)`` of r equal parts of the components."""
    if isinstance(encoded, JoinedFeatures):
        at = np.cumsum([len(group.mean) for group in encoded.groups])[:-1]
        parts = zip(encoded.groups, np.split(shift, at, axis=1), np.split(scale, at, axis=1), strict=True)
        groups = [_raw(*each) for each in parts]
        known = [group for group in groups if group is not None]
        return JoinedFeatures(known) if len(known) == len(groups) else None
    return encoded.moved(shift, scale) if isinstance(encoded, GaussianFeatures) else None


def _of_observation(
    observation: Observation,
    output_parameters: Tensor,
    log_weights: Tensor,
    past: Tensor | None,
    shift: Tensor,
    scale: Tensor,
) -> FeatureDistributions | None:
    if isinstance(observation, Columns):
        groups = [
            _of_observation(
                g.observation,
                output_parameters[:, g.outputs],
                log_weights,
                g.before(past),
                shift[g.columns],
                scale[g.columns],
            )
            for g in observation.parts()
        ]
        known = [group for group in groups if group is not None]
        return JoinedFeatures(known) if len(known) == len(groups) else None
    return _of_mixture(
        observation.distribution(output_parameters, log_weights=log_weights, past=past, shift=shift, scale=scale)
    )


def _of_mixture(mixture: Any) -> FeatureDistributions | None:
    """Of a mixture as ``Observation.distribution`` returns it; None of one that torch does not know."""
    from torch import distributions

    if not isinstance(mixture, distributions.MixtureSameFamily):
        return None
    component = mixture.component_distribution
    base = component.base_dist if isinstance(component, distributions.Independent) else component
    weights, means = (each.double().cpu().numpy() for each in (mixture.mixture_distribution.probs, component.mean))
    if isinstance(
        base, distributions.Normal | distributions.MultivariateNormal | distributions.LowRankMultivariateNormal
    ):
        return GaussianFeatures(weights, means, component.variance.double().sqrt().cpu().numpy())
    if isinstance(base, distributions.Poisson | distributions.Bernoulli):
        return WholeNumberFeatures(weights, means, isinstance(base, distributions.Bernoulli))
    return None

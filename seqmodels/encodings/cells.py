"""Partitions of the real line into cells, and the density of a value given its cell.

``p(z) = P(cell of z) p(z | cell of z)``. The density is uniform within a cell that has two ends and exponential in the
two outer cells. So it integrates to one for any probabilities of the cells, and is zero nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

Placement = Literal["quantiles", "widths", "lloyd-max"]

MAX_ITERATIONS = 200  # of Lloyd's algorithm
PRIOR_EXCESSES = 1.0  # number of pseudo-values, one deviation beyond the edge, in the estimate of a tail's scale


@dataclass(frozen=True)
class Cells:
    """A partition of the real line into k cells for one feature, with a density of values in each cell.

    Cells are numbered from below; each contains its lower end but not its upper end.

    Args:
        edges: increasing edges between the cells, ``(k - 1,)``.
        tails: mean distances from the edge of values in the lowest and the highest cell, where densities are
            exponential, ``(2,)``; in other cells they are uniform.
    """

    edges: np.ndarray
    tails: np.ndarray

    @classmethod
    def learn(cls, values: np.ndarray, n: int, placement: Placement, min_width: float) -> Cells:
        """Return at most ``n`` cells for the values of a feature, none narrower than ``min_width``.

        Args:
            values: training values, at least two of them different, ``(N,)``.
            n: largest number of cells.
            placement: rule for the edges: ``"quantiles"`` puts about as many values in each cell, ``"widths"`` makes
                cells of equal width, ``"lloyd-max"`` minimises squared distances to the means of cells.
            min_width: smallest width of a cell.
        """
        ordered = np.sort(values)
        edges = _apart(_EDGES[placement](ordered, n), min_width)
        low, high = np.searchsorted(ordered, edges[[0, -1]])
        scale = float(values.std())
        excesses = edges[0] - ordered[:low], ordered[high:] - edges[-1]
        tails = [(each.sum() + PRIOR_EXCESSES * scale) / (len(each) + PRIOR_EXCESSES) for each in excesses]
        return cls(edges, np.array(tails))

    @property
    def n_cells(self) -> int:
        return len(self.edges) + 1

    def cell(self, z: np.ndarray) -> np.ndarray:
        """Return the number of the cell that contains each value, as integers in the shape of ``z``."""
        return np.asarray(np.searchsorted(self.edges, z, side="right"))

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Return the log-density of each value given the cell that contains it in nats, in the shape of ``z``."""
        cell = self.cell(z)
        below, above = self._in_tail(z)
        left, right = self.tails
        inner = -np.log(self._widths)[cell]
        return self._select(cell, -below - np.log(left), inner, -above - np.log(right))

    def cdf(self, z: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Return the cumulative probability of values given the cells that they lie in, elementwise.

        Args:
            z: the values; one that lies outside its cell gives 0 or 1.
            cell: numbers of the cells, in the shape of ``z``.
        """
        below, above = self._in_tail(z)
        inner = np.clip((z - self._lower[cell]) / self._widths[cell], 0, 1)
        return self._select(cell, np.exp(-below), inner, -np.expm1(-above))

    def quantile(self, u: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Return the quantiles of the values within cells, elementwise; the inverse of ``cdf``.

        Args:
            u: levels of the quantiles, between 0 and 1.
            cell: numbers of the cells, in the shape of ``u``.
        """
        left, right = self.tails
        inner = self._lower[cell] + self._widths[cell] * u
        return self._select(cell, self.edges[0] + left * np.log(u), inner, self.edges[-1] - right * np.log1p(-u))

    @property
    def means(self) -> np.ndarray:
        """The mean of the density in each cell, ``(k,)``."""
        middle = 0.5 * (self.edges[1:] + self.edges[:-1])
        return np.concatenate([[self.edges[0] - self.tails[0]], middle, [self.edges[-1] + self.tails[1]]])

    @property
    def variances(self) -> np.ndarray:
        """The variance of the density in each cell, ``(k,)``."""
        return np.concatenate([self.tails[:1] ** 2, np.diff(self.edges) ** 2 / 12, self.tails[1:] ** 2])

    @property
    def _lower(self) -> np.ndarray:
        """The lower end of each cell, ``(k,)``; an arbitrary number for the lowest cell, which has none."""
        return np.concatenate([self.edges[:1], self.edges])

    @property
    def _widths(self) -> np.ndarray:
        """The width of each cell, ``(k,)``; 1 for the two outer cells, which have none."""
        return np.concatenate([[1.0], np.diff(self.edges), [1.0]])

    def _in_tail(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how far values lie below the first edge and above the last one, each in the shape of ``z``.

        Distances are in units of the mean distance in that outermost cell; they are 0 elsewhere.
        """
        below, above = np.maximum(self.edges[0] - z, 0), np.maximum(z - self.edges[-1], 0)
        return below / self.tails[0], above / self.tails[1]

    def _select(self, cell: np.ndarray, lowest: np.ndarray, inner: np.ndarray, highest: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(cell == 0, lowest, np.where(cell == self.n_cells - 1, highest, inner)))


@dataclass(frozen=True)
class ProductCells:
    """The cells of D quantised features taken together, with one symbol for each combination of one cell per feature.

    Given the symbol, the features are independent.

    Args:
        features: the cells of each feature.
    """

    features: tuple[Cells, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(each.n_cells for each in self.features)

    @property
    def n_symbols(self) -> int:
        """The number of symbols, which is the product of the numbers of cells of all features."""
        return math.prod(self.sizes)

    def symbols(self, z: np.ndarray) -> np.ndarray:
        """Return the symbol, the number of the combination of cells, of each vector, ``(n,)`` int64.

        Args:
            z: vectors of D features, ``(n, D)``.
        """
        each = tuple(cells.cell(column) for cells, column in zip(self.features, z.T, strict=True))
        return np.asarray(np.ravel_multi_index(each, self.sizes), dtype=np.int64)

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Return the log-density of each value given the cell that contains it in nats, ``(n, D)``.

        Args:
            z: vectors of D features, ``(n, D)``.
        """
        each = [cells.log_density(column) for cells, column in zip(self.features, z.T, strict=True)]
        return np.stack(each, axis=1)

    def values(self, symbols: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Return vectors ``(n, D)`` in the cells that symbols stand for, at given quantiles of these cells.

        Args:
            symbols: numbers of combinations of cells, ``(n,)``.
            u: level of the quantile of each of D features within its cell, between 0 and 1, ``(n, D)``.
        """
        cells = np.unravel_index(symbols, self.sizes)
        each = [c.quantile(at, cell) for c, at, cell in zip(self.features, u.T, cells, strict=True)]
        return np.stack(each, axis=1)

    def marginals(self, probabilities: np.ndarray) -> list[np.ndarray]:
        """Return the probabilities of the cells of each feature, one array ``(..., k)`` per feature with its k cells.

        Args:
            probabilities: probabilities of the V symbols, which are combinations of cells, ``(..., V)``.
        """
        table = probabilities.reshape(*probabilities.shape[:-1], *self.sizes)
        n, d = probabilities.ndim - 1, len(self.sizes)
        return [table.sum(tuple(n + other for other in range(d) if other != f)) for f in range(d)]


def shares_within(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return uniform random numbers strictly between 0 and 1, used as quantiles of random values within their cells.

    Args:
        rng: source of random numbers.
        shape: shape of the result.
    """
    return np.maximum(rng.random(shape), 2.0**-54)


# -- where the edges are -----------------------------------------------------------------------------------------


def _at_quantiles(ordered: np.ndarray, n: int) -> np.ndarray:
    """Return at most n - 1 edges that leave about as many values in each of n cells.

    Args:
        ordered: the values in increasing order, ``(N,)``.
        n: largest number of cells.
    """
    distinct, counts = np.unique(ordered, return_counts=True)
    before = np.cumsum(counts)[:-1]  # how many values are below the middle of two neighbours
    target = len(ordered) * np.arange(1, n) / n
    above = np.clip(np.searchsorted(before, target), 0, len(before) - 1)
    below = np.maximum(above - 1, 0)
    nearest = np.where(target - before[below] < before[above] - target, below, above)
    return np.asarray(_middles(distinct)[np.unique(nearest)])


def _at_equal_widths(ordered: np.ndarray, n: int) -> np.ndarray:
    return np.linspace(ordered[0], ordered[-1], n + 1)[1:-1]


def _at_least_squares(ordered: np.ndarray, n: int) -> np.ndarray:
    """Return at most n - 1 edges of n cells that minimise the squared distances of values to the means of their cells.

    References: Lloyd (1982), *Least squares quantization in PCM*; Max (1960).

    Args:
        ordered: the values in increasing order, ``(N,)``.
        n: largest number of cells.
    """
    sums = np.concatenate([[0.0], np.cumsum(ordered - ordered[0])])
    edges = _at_quantiles(ordered, n)
    for _ in range(MAX_ITERATIONS):
        at = np.unique(np.concatenate([[0], np.searchsorted(ordered, edges), [len(ordered)]]))
        following = _middles(ordered[0] + np.diff(sums[at]) / np.diff(at))
        if np.array_equal(following, edges):
            break
        edges = following
    return edges


_EDGES = {"quantiles": _at_quantiles, "widths": _at_equal_widths, "lloyd-max": _at_least_squares}


def _middles(values: np.ndarray) -> np.ndarray:
    return values[:-1] + 0.5 * np.diff(values)


def _apart(edges: np.ndarray, min_width: float) -> np.ndarray:
    """Return the edges that are left after those closer than ``min_width`` to the last kept one are dropped.

    Args:
        edges: edges of cells in increasing order.
        min_width: smallest distance.
    """
    kept = [edges[0]]
    for edge in edges[1:]:
        if edge - kept[-1] >= min_width:
            kept.append(edge)
    return np.array(kept)

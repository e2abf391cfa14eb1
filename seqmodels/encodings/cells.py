"""A partition of the line into cells, and the density of a value given the cell that it is in.

``p(z) = P(cell of z) p(z | cell of z)``: uniform within a cell that has two ends, exponential in the outer two, so that
whatever the probabilities of the cells are the density integrates to one over the reals, and is zero nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Placement = Literal["quantiles", "widths", "lloyd-max"]
PLACEMENTS = get_args(Placement)

MAX_ITERATIONS = 200  # of Lloyd's algorithm
PRIOR_EXCESSES = 1.0  # how many values a deviation beyond the last edge the scale of a tail is learned with


@dataclass(frozen=True)
class Cells:
    """k cells of one feature, numbered from below; each has its lower end, but not its upper.

    Args:
        edges: ``(k - 1,)`` that rise, between the cells.
        tails: ``(2,)`` the mean distances of values in the lowest and the highest cell to its edge.
    """

    edges: np.ndarray
    tails: np.ndarray

    @classmethod
    def learn(cls, values: np.ndarray, n: int, placement: Placement, min_width: float) -> Cells:
        """At most ``n`` cells, none narrower than ``min_width``, of ``values (N,)`` of which two at least differ."""
        ordered = np.sort(values)
        edges = _apart(_EDGES[placement](ordered, n), min_width)
        low, high = np.searchsorted(ordered, edges[[0, -1]])
        scale = float(values.std())
        excesses = edges[0] - ordered[:low], ordered[high:] - edges[-1]
        tails = [(each.sum() + PRIOR_EXCESSES * scale) / (len(each) + PRIOR_EXCESSES) for each in excesses]
        return cls(edges, np.array(tails))

    @property
    def n_cells(self) -> int:
        """k, one more than there are edges."""
        return len(self.edges) + 1

    def cell(self, z: np.ndarray) -> np.ndarray:
        """The number of the cell of each value."""
        return np.asarray(np.searchsorted(self.edges, z, side="right"))

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """``log p(z | cell of z)`` of each value."""
        cell = self.cell(z)
        below, above = self._in_tail(z)
        left, right = self.tails
        inner = -np.log(self._widths)[cell]
        return self._select(cell, -below - np.log(left), inner, -above - np.log(right))

    def cdf(self, z: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """``P(value <= z | cell)``, from 0 to 1, of each value and a cell that it need not be in."""
        below, above = self._in_tail(z)
        inner = np.clip((z - self._lower[cell]) / self._widths[cell], 0, 1)
        return self._select(cell, np.exp(-below), inner, -np.expm1(-above))

    def quantile(self, u: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """The value at which ``cdf`` of the cell is ``u``, above 0 and below 1."""
        left, right = self.tails
        inner = self._lower[cell] + self._widths[cell] * u
        return self._select(cell, self.edges[0] + left * np.log(u), inner, self.edges[-1] - right * np.log1p(-u))

    @property
    def means(self) -> np.ndarray:
        """``(k,)`` of the values in each cell."""
        middle = 0.5 * (self.edges[1:] + self.edges[:-1])
        return np.concatenate([[self.edges[0] - self.tails[0]], middle, [self.edges[-1] + self.tails[1]]])

    @property
    def variances(self) -> np.ndarray:
        """``(k,)`` of the values in each cell."""
        return np.concatenate([self.tails[:1] ** 2, np.diff(self.edges) ** 2 / 12, self.tails[1:] ** 2])

    @property
    def _lower(self) -> np.ndarray:
        """``(k,)`` lower ends; of the lowest cell, which has none, any."""
        return np.concatenate([self.edges[:1], self.edges])

    @property
    def _widths(self) -> np.ndarray:
        """``(k,)`` widths; of the outer cells, which have none, any."""
        return np.concatenate([[1.0], np.diff(self.edges), [1.0]])

    def _in_tail(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far values are below the first edge and above the last, in units of the tails; 0 where they are not."""
        below, above = np.maximum(self.edges[0] - z, 0), np.maximum(z - self.edges[-1], 0)
        return below / self.tails[0], above / self.tails[1]

    def _select(self, cell: np.ndarray, lowest: np.ndarray, inner: np.ndarray, highest: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(cell == 0, lowest, np.where(cell == self.n_cells - 1, highest, inner)))


@dataclass(frozen=True)
class ProductCells:
    """Cells of D features together, given by the cells of each: one symbol for each combination.

    Given the symbol the features are independent.
    """

    features: tuple[Cells, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """``(D,)`` numbers of cells."""
        return tuple(each.n_cells for each in self.features)

    @property
    def n_symbols(self) -> int:
        """V, the product of ``sizes``."""
        return math.prod(self.sizes)

    def symbols(self, z: np.ndarray) -> np.ndarray:
        """``(n,)`` int64 of ``z (n, D)``."""
        each = tuple(cells.cell(column) for cells, column in zip(self.features, z.T, strict=True))
        return np.asarray(np.ravel_multi_index(each, self.sizes), dtype=np.int64)

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """``(n, D)`` ``log p(z_d | cell of z_d)``."""
        each = [cells.log_density(column) for cells, column in zip(self.features, z.T, strict=True)]
        return np.stack(each, axis=1)

    def values(self, symbols: np.ndarray, u: np.ndarray) -> np.ndarray:
        """``(n, D)`` values in the cells of ``symbols (n,)``, at which the cdfs of the cells are ``u (n, D)``."""
        cells = np.unravel_index(symbols, self.sizes)
        each = [c.quantile(at, cell) for c, at, cell in zip(self.features, u.T, cells, strict=True)]
        return np.stack(each, axis=1)

    def marginals(self, probabilities: np.ndarray) -> list[np.ndarray]:
        """For each feature ``(..., k)`` probabilities of its cells, from those of the symbols ``(..., V)``."""
        table = probabilities.reshape(*probabilities.shape[:-1], *self.sizes)
        n, d = probabilities.ndim - 1, len(self.sizes)
        return [table.sum(tuple(n + other for other in range(d) if other != f)) for f in range(d)]


def shares_within(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Independent uniform numbers, above 0 and below 1: what share of the probability of a cell is below a value."""
    return np.maximum(rng.random(shape), 2.0**-54)


# -- where the edges are -----------------------------------------------------------------------------------------


def _at_quantiles(ordered: np.ndarray, n: int) -> np.ndarray:
    """Between different values, so that about as many are in each cell."""
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
    """Those of Lloyd (1982), *Least squares quantization in PCM*, and Max (1960): halfway between means of cells."""
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
    """Those of rising ``edges`` that are ``min_width`` from the one kept before."""
    kept = [edges[0]]
    for edge in edges[1:]:
        if edge - kept[-1] >= min_width:
            kept.append(edge)
    return np.array(kept)

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad

from seqmodels.encodings.cells import Cells, Placement, ProductCells, shares_within

RNG = np.random.default_rng(0)
VALUES = {
    "normal": RNG.normal(size=200),
    "heavy": 1e6 * RNG.standard_t(1.5, size=500),
    "whole": RNG.poisson(2.0, size=300).astype(np.float64),
    "zeros": np.where(RNG.random(200) < 0.7, 0.0, RNG.exponential(size=200)),
    "two": np.array([3.0, 3.0, 4.0]),
    "far": 1e6 + RNG.normal(size=50),
    "small": 1e-9 * RNG.gamma(1.0, size=40),
}


def learned(name: str, placement: Placement, n: int = 8) -> Cells:
    values = VALUES[name]
    return Cells.learn(values, n, placement, 1e-3 * float(values.std()))


def mass(cells: Cells, cell: int) -> float:
    """Of a cell's density, by quadrature over its width, or over multiples of the scale of its tail."""

    def density(v: float) -> float:
        return float(np.exp(cells.log_density(np.array([origin + scale * v]))[0])) * abs(scale)

    if 0 < cell < cells.n_cells - 1:
        origin, scale = cells.edges[cell - 1], cells.edges[cell] - cells.edges[cell - 1]
        return float(quad(density, 0, 1)[0])
    origin, scale = (cells.edges[0], -cells.tails[0]) if cell == 0 else (cells.edges[-1], cells.tails[1])
    return float(quad(density, 0, np.inf, epsabs=1e-11, epsrel=1e-11)[0])


@pytest.mark.parametrize("placement", get_args(Placement))
@pytest.mark.parametrize("name", VALUES)
def test_the_density_of_each_cell_integrates_to_one(name: str, placement: Placement) -> None:
    cells = learned(name, placement)
    assert 2 <= cells.n_cells <= 8
    assert (np.diff(cells.edges) >= 0.999e-3 * VALUES[name].std()).all()
    for cell in range(cells.n_cells):
        assert abs(mass(cells, cell) - 1) < 1e-9, cell


def test_densities_and_moments_by_hand() -> None:
    cells = Cells(np.array([0.0, 2.0, 3.0]), np.array([4.0, 0.5]))
    z = np.array([-8.0, 0.0, 1.5, 2.5, 3.0, 4.0])
    assert_array_equal(cells.cell(z), [0, 1, 1, 2, 3, 3])
    by_hand = [np.exp(-8 / 4) / 4, 0.5, 0.5, 1.0, 2.0, 2 * np.exp(-2)]
    assert_allclose(cells.log_density(z), np.log(by_hand), rtol=1e-14)
    for cell in range(4):
        u = np.linspace(0.001, 0.999, 100_001)
        drawn = cells.quantile(u, np.full(len(u), cell))
        assert_allclose(cells.cdf(drawn, np.full(len(u), cell)), u, atol=1e-12)
        assert (cells.cell(drawn) == cell).all()
    u = (np.arange(200_000) + 0.5) / 200_000
    each = np.array([cells.quantile(u, np.full(len(u), cell)) for cell in range(4)])
    assert_allclose(each.mean(1), cells.means, rtol=1e-4)
    assert_allclose(each.var(1), cells.variances, rtol=1e-3)


def test_cells_at_quantiles_hold_as_many_values_each_and_repeated_ones_have_one_of_their_own() -> None:
    cells = learned("normal", "quantiles")
    assert_array_equal(np.bincount(cells.cell(VALUES["normal"])), [25] * 8)
    cells = learned("zeros", "quantiles")
    is_zero = VALUES["zeros"] == 0
    assert set(cells.cell(VALUES["zeros"][is_zero])).isdisjoint(cells.cell(VALUES["zeros"][~is_zero]))
    whole = Cells.learn(VALUES["whole"], 100, "quantiles", 1e-3)
    assert_array_equal(whole.edges, np.arange(VALUES["whole"].max()) + 0.5)


def test_cells_of_equal_widths_and_of_least_squares() -> None:
    values = VALUES["heavy"]
    edges = learned("heavy", "widths").edges
    assert_allclose(edges, np.linspace(values.min(), values.max(), 9)[1:-1], rtol=1e-12)
    cells = learned("heavy", "lloyd-max")
    means = np.array([values[cells.cell(values) == k].mean() for k in range(cells.n_cells)])
    assert_allclose(cells.edges, 0.5 * (means[1:] + means[:-1]), rtol=1e-12)
    error = [((values - _means(c, values)[c.cell(values)]) ** 2).sum() for c in (learned("heavy", "quantiles"), cells)]
    assert error[1] < 0.5 * error[0]


def _means(cells: Cells, values: np.ndarray) -> np.ndarray:
    return np.array([values[cells.cell(values) == k].mean() for k in range(cells.n_cells)])


def test_the_tails_have_the_mean_of_many_values_there() -> None:
    values = RNG.exponential(size=20_000)
    cells = Cells.learn(values, 4, "quantiles", 1e-3)
    assert_allclose(cells.means, _means(cells, values), rtol=0.1)
    assert_allclose(cells.means[[0, -1]], _means(cells, values)[[0, -1]], rtol=2e-3)


def test_symbols_of_several_features_are_the_combinations_of_their_cells() -> None:
    first, second = learned("normal", "quantiles", 3), learned("heavy", "quantiles", 4)
    both = ProductCells((first, second))
    z = np.stack([RNG.choice(VALUES["normal"], 500), RNG.choice(VALUES["heavy"], 500)], axis=1)
    symbols = both.symbols(z)
    assert both.n_symbols == 12
    assert_array_equal(symbols, 4 * first.cell(z[:, 0]) + second.cell(z[:, 1]))
    by_feature = np.stack([first.log_density(z[:, 0]), second.log_density(z[:, 1])], axis=1)
    assert_allclose(both.log_density(z), by_feature)
    assert_array_equal(both.symbols(both.values(symbols, shares_within(RNG, z.shape))), symbols)
    p = RNG.dirichlet(np.ones(12), size=2)
    by_first, by_second = both.marginals(p)
    assert_allclose(by_first, p.reshape(2, 3, 4).sum(2))
    assert_allclose(by_second, p.reshape(2, 3, 4).sum(1))


def test_edges_keep_the_least_width_from_the_one_kept_before() -> None:
    """Of edges at 1, 2, ..., 7 a width of 2, which counts as far enough, keeps every second."""
    values = np.arange(9.0)
    assert Cells.learn(values, 8, "widths", 1.0).edges.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert Cells.learn(values, 8, "widths", 2.0).edges.tolist() == [1, 3, 5, 7]
    assert Cells.learn(values, 8, "widths", 2.5).edges.tolist() == [1, 4, 7]
    assert Cells.learn(values, 8, "widths", 9.0).edges.tolist() == [1]

"""``MultivariateStudentT`` against scipy's density."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import seqmodels as sm
from seqmodels.observations.gaussian import shape_of_covariance

DENSITY = sm.observations.MultivariateStudentT()


def parts(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    return rng.normal(size=size), root @ root.T + 0.1 * np.eye(size), 3.7


def table_of(location: np.ndarray, scale: np.ndarray, nu: float) -> torch.Tensor:
    shape = shape_of_covariance(torch.tensor(scale))
    return torch.cat([torch.tensor(location), shape, torch.tensor([np.log(nu)])])


def twin(location: np.ndarray, scale: np.ndarray, nu: float) -> Any:
    return stats.multivariate_t(location, scale, df=nu)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_densities_are_those_of_scipy_and_missing_values_are_summed_out(size: int) -> None:
    location, scale, nu = parts(size)
    x = np.concatenate([np.random.default_rng(1).normal(size=(20, size)), np.full((1, size), 1e9), location[None]])
    table = table_of(location, scale, nu)
    assert len(table) == DENSITY.n_output_parameters(size)
    np.testing.assert_allclose(DENSITY.log_prob(table, torch.tensor(x)), twin(location, scale, nu).logpdf(x), 1e-10)
    for d in range(size):
        kept = np.delete(np.arange(size), d)
        without = np.where(np.arange(size) == d, np.nan, x)
        expected = twin(location[kept], scale[np.ix_(kept, kept)], nu).logpdf(x[:, kept]) if size > 1 else np.zeros(22)
        np.testing.assert_allclose(DENSITY.log_prob(table, torch.tensor(without)), expected.reshape(-1), 1e-9, 1e-12)


def test_features_by_themselves_are_those_of_scipy() -> None:
    location, scale, nu = parts(3)
    x, table = np.random.default_rng(2).normal(size=(10, 3)), table_of(location, scale, nu)
    each = stats.t(nu, location, np.sqrt(np.diagonal(scale)))
    np.testing.assert_allclose(DENSITY.marginal_cdfs(table, torch.tensor(x)), each.cdf(x), 1e-10)
    np.testing.assert_allclose(DENSITY.marginal_log_probs(table, torch.tensor(x)), each.logpdf(x), 1e-10)
    np.testing.assert_allclose(DENSITY.marginal_means(table), location)
    assert DENSITY.marginal_means(table_of(location, scale, 0.9)).isnan().all()


def test_draws_are_of_the_density() -> None:
    location, scale, nu = parts(2)
    table = table_of(location, scale, nu).expand(20_000, -1)
    drawn = DENSITY.sample(table, None, torch.Generator().manual_seed(0)).numpy() - location
    squares = np.einsum("nd,nd->n", drawn @ np.linalg.inv(scale), drawn)
    assert stats.kstest(squares / 2, stats.f(2, nu).cdf).pvalue > 0.01
    np.testing.assert_allclose(drawn.T @ (drawn / squares[:, None]) / len(drawn), scale / 2, atol=0.05 * scale.max())


def test_a_temperature_is_a_power_of_the_density() -> None:
    table, x = table_of(*parts(2)), torch.randn(8, 2, generator=torch.Generator().manual_seed(0)).double()
    ratio = DENSITY.log_prob(DENSITY.tempered(table, 0.7), x) - DENSITY.log_prob(table, x) / 0.7
    np.testing.assert_allclose(ratio, ratio[:1].expand(8), rtol=1e-10)
    with pytest.raises(ValueError, match="pass a lower one"):
        DENSITY.tempered(table, 4.0)


def test_a_scale_multiplies_the_matrix_and_a_floor_bounds_it() -> None:
    location, scale, nu = parts(2)
    moved = DENSITY.scaled(table_of(location, scale, nu), torch.tensor(0.5).double())
    np.testing.assert_allclose(moved, table_of(location, np.e * scale, nu), rtol=1e-10)
    flat = table_of(location, np.diag([1.0, 1e-9]), nu)
    assert DENSITY.floor_hits(flat, 2)
    assert not DENSITY.floor_hits(moved, 2)
    raised = DENSITY.on_floor(flat, 2, 4.0)
    assert DENSITY.log_prob(raised, torch.tensor(location)) < DENSITY.log_prob(flat, torch.tensor(location))
    assert DENSITY.with_floor(4.0).min_covariance == 4e-4


def test_pyros_distribution_is_the_same() -> None:
    location, scale, nu = parts(2)
    shift, unit = torch.tensor([1e3, 0.0]).double(), torch.tensor([2.0, 0.1]).double()
    known = {"log_weights": torch.zeros(1).double(), "past": None, "shift": shift, "scale": unit}
    distribution = DENSITY.distribution(table_of(location, scale, nu)[None], **known)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).double()
    expected = DENSITY.log_prob(table_of(location, scale, nu), x) - unit.log().sum()
    np.testing.assert_allclose(distribution.log_prob(shift + unit * x), expected, rtol=1e-9)
    np.testing.assert_allclose(distribution.mean, shift.numpy() + unit.numpy() * location)
    np.testing.assert_allclose(distribution.variance, unit.numpy() ** 2 * np.diagonal(scale) * nu / (nu - 2), rtol=1e-9)

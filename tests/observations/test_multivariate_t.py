from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from seqmodels.observations import gaussian, multivariate_t
from seqmodels.observations.gaussian import ShapeType

SIGMA = np.array([[0.5, 0.2, -0.1], [0.2, 0.4, 0.1], [-0.1, 0.1, 0.3]])
LOCATION = np.array([1.0, -2.0, 0.5])
DEGREES, FACTOR, FLOOR = 4.5, 1.7, 1e-6


def shape_of(kind: ShapeType) -> torch.Tensor:
    sigma = torch.as_tensor(SIGMA)
    return sigma.diagonal().log() if kind == "diag" else gaussian.shape_of_covariance(sigma)


def spread(*is_t: bool) -> multivariate_t.Spread:
    numbers = (torch.full((len(is_t),), value, dtype=torch.float64) for value in (DEGREES, FACTOR))
    return multivariate_t.Spread(*numbers, torch.tensor(is_t))


def by_scipy(x: np.ndarray, kind: ShapeType, kept: list[int]) -> float:
    if kind == "diag":
        scale = np.sqrt(FACTOR * np.diag(SIGMA))
        return float(stats.t(DEGREES, LOCATION, scale).logpdf(x)[kept].sum())
    matrix = FACTOR * SIGMA[np.ix_(kept, kept)]
    return float(stats.multivariate_t(LOCATION[kept], matrix, DEGREES).logpdf(x[kept]))


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_the_density_is_scipys_with_and_without_missing_features_and_gaussian_rows(kind: ShapeType) -> None:
    x = np.random.default_rng(0).normal(size=(3, 3)) * [[1.0], [1.0], [1e5]]
    arguments = (torch.as_tensor(LOCATION), shape_of(kind), kind, FLOOR)
    found = multivariate_t.log_density(torch.as_tensor(x), *arguments, spread(True, False, True))
    sigma = np.diag(np.diag(SIGMA)) if kind == "diag" else SIGMA
    normal = stats.multivariate_normal(LOCATION, sigma).logpdf(x[1])
    expected = [by_scipy(x[0], kind, [0, 1, 2]), normal, by_scipy(x[2], kind, [0, 1, 2])]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    missing = x.copy()
    missing[[0, 2], 1], missing[1] = np.nan, np.nan
    found = multivariate_t.log_density(torch.as_tensor(missing), *arguments, spread(True, True, True))
    np.testing.assert_allclose(found, [by_scipy(x[0], kind, [0, 2]), 0.0, by_scipy(x[2], kind, [0, 2])], rtol=1e-12)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_each_feature_given_the_others_is_the_joint_density_over_its_integral(kind: ShapeType) -> None:
    x = np.array([0.3, -1.0, 2.0])
    arguments = (torch.as_tensor(LOCATION), shape_of(kind), kind, FLOOR, spread(True))
    found = multivariate_t.full_conditionals(torch.as_tensor(x)[None], *arguments)

    def joint(value: float, d: int) -> float:
        return float(np.exp(by_scipy(np.where(np.arange(3) == d, value, x), kind, [0, 1, 2])))

    others = [np.log(integrate.quad(lambda v, d=d: joint(v, d), -np.inf, np.inf)[0]) for d in range(3)]
    np.testing.assert_allclose(found.others[0], others, rtol=1e-6)
    np.testing.assert_allclose(found.each[0], by_scipy(x, kind, [0, 1, 2]) - np.array(others), rtol=1e-6)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_draws_have_the_distribution(kind: ShapeType) -> None:
    n = 4000
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    location, shape = torch.as_tensor(LOCATION).expand(n, -1), shape_of(kind).expand(n, -1)
    drawn = multivariate_t.draw(location, shape, kind, FLOOR, spread(*[True] * n), noise, generator).numpy()
    for d, scale in enumerate(np.sqrt(FACTOR * np.diag(SIGMA))):
        assert stats.kstest(drawn[:, d], stats.t(DEGREES, LOCATION[d], scale).cdf).pvalue > 0.01
    # Features of one t density are large together, those of independent ones are not.
    sizes = np.abs((drawn - LOCATION) / np.sqrt(np.diag(SIGMA)))
    dependence = stats.spearmanr(sizes[:, 0], sizes[:, 2]).statistic
    assert abs(dependence) < 0.05 if kind == "diag" else dependence > 0.1
    gaussian_rows = multivariate_t.draw(location, shape, kind, FLOOR, spread(*[False] * n), noise, generator)
    np.testing.assert_array_equal(gaussian_rows, gaussian.draw(location, shape, kind, FLOOR, noise))

"""Compiled likelihoods of linear processes against whole covariances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, stats

from seqmodels.evaluation.forecasting.linear_process import SeasonalARIMA, StructuralProcess
from seqmodels.inference.gaussian.compiled_processes import RIDGE, explain_start, invert, loss_of, whiten
from seqmodels.inference.gaussian.lag_polynomials import autocovariance


def covariance_of(gamma: np.ndarray, n: int) -> np.ndarray:
    return linalg.toeplitz(np.concatenate([gamma, np.zeros(n)])[:n])


@pytest.mark.parametrize("n", [3, 8, 60])
@pytest.mark.parametrize("theta", [[1.0], [1.0, -0.7], [1.0, 0.9, 0.2, 0.0, 0.5], [1.0, 0.0, 0.0, -0.8]])
def test_series_are_whitened_by_the_factor_of_their_covariance(theta: list[float], n: int) -> None:
    gamma, columns = autocovariance(np.array(theta)), np.random.default_rng(0).normal(size=(2, n))
    factor = np.linalg.cholesky(covariance_of(gamma, n) + RIDGE * gamma[0] * np.eye(n))
    white = columns.copy()
    assert whiten(gamma, white) == pytest.approx(np.log(np.diag(factor)).sum(), abs=1e-9)
    np.testing.assert_allclose(white, np.linalg.solve(factor, columns.T).T, atol=1e-8)


@pytest.mark.parametrize("gamma", [[1.0, 0.6], [1.0, 0.0, 0.6]])
def test_what_is_no_covariance_has_no_factor(gamma: list[float]) -> None:
    assert np.isnan(whiten(np.array(gamma), np.ones((1, 20))))


@pytest.mark.parametrize("n", [3, 8, 60])
@pytest.mark.parametrize("theta", [[1.0], [1.0, -0.7], [1.0, 0.4, 0.0, -0.8, -0.32], [1.0, 0.0, 0.0, 0.999]])
def test_the_unknown_start_is_explained(theta: list[float], n: int) -> None:
    """Products of the series are those by the inverse covariance; here the target, the first row, stands last."""
    theta_, series = np.array(theta), np.random.default_rng(0).normal(size=(3, n))
    covariance = covariance_of(autocovariance(theta_), n)
    columns = series.copy()
    invert(theta_, columns)
    rows = columns[[1, 2, 0]]
    products = rows @ rows.T
    log_det = explain_start(theta_, columns, products)
    assert log_det == pytest.approx(0.5 * np.linalg.slogdet(covariance)[1], abs=1e-9)
    rows = series[[1, 2, 0]]
    np.testing.assert_allclose(products, rows @ np.linalg.solve(covariance, rows.T), rtol=1e-8, atol=1e-9)


def test_the_loss_is_minus_the_gaussian_density() -> None:
    """Of an ARMA of a series about a level, given its first value, at the best level and variance."""
    y, numbers = np.random.default_rng(0).normal(size=30).cumsum(), np.array([0.7, -0.3])
    space = SeasonalARIMA((1, 0, 1), has_constant=True).search_space()
    phi, theta = np.tanh(numbers[0]), np.array([1.0, -np.tanh(numbers[1])])
    u, covariance = y[1:] - phi * y[:-1], covariance_of(autocovariance(theta), 29)
    level = np.linalg.solve(covariance, np.ones(29)) @ u / np.linalg.solve(covariance, np.ones(29)).sum()
    variance = (u - level) @ np.linalg.solve(covariance, u - level) / 29
    expected = stats.multivariate_normal.logpdf(u, np.full(29, level), variance * covariance)
    loss = loss_of(numbers, space.orders, space.parts, space.is_damped, y[None], np.ones((1, 30)), 0, 0.0)
    assert -30 * loss == pytest.approx(expected)


def test_a_process_without_noise_is_impossible() -> None:
    space = StructuralProcess().search_space()
    arguments = space.orders, space.parts, space.is_damped, np.zeros((1, 20)), np.zeros((0, 20)), 0, 0.0
    assert loss_of(np.array([-1.0]), *arguments) == 1e10

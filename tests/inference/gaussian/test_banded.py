"""Banded products against dense covariances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.signal import lfilter

from seqmodels.inference.gaussian.banded import ARMAFactor, log_probs_given_prior, missing_columns
from seqmodels.inference.gaussian.lag_polynomials import differences, in_seasonal_lags, lag_polynomial


def dense_factor(ar: np.ndarray, ma: np.ndarray, n_steps: int) -> np.ndarray:
    """Of the covariance of a stationary ARMA process, summed over its past noise."""
    weights = lfilter(ma, ar, np.arange(2_000) == 0)
    return np.linalg.cholesky(toeplitz([weights[k:] @ weights[: len(weights) - k] for k in range(n_steps)]))


@pytest.mark.parametrize(
    ("orders", "season", "n_steps"),
    [
        ((0, 0, 0, 0), 1, 3),
        ((1, 1, 0, 0), 1, 20),
        ((0, 2, 0, 1), 4, 25),
        ((1, 1, 1, 1), 4, 30),
        ((2, 1, 1, 0), 4, 8),  # of which six are the head
        ((2, 1, 1, 0), 4, 5),  # fewer than the head has
        ((3, 2, 0, 0), 1, 1),
    ],
)
def test_steps_are_whitened_as_by_the_dense_covariance(
    orders: tuple[int, int, int, int], season: int, n_steps: int
) -> None:
    rng = np.random.default_rng(0)
    p, q, P, Q = (lag_polynomial((0.5 * rng.normal(size=n)).tolist()) for n in orders)
    ar, ma = np.convolve(p, in_seasonal_lags(P, season)), np.convolve(q, in_seasonal_lags(Q, season))
    dense, factor, columns = (
        dense_factor(ar, ma, n_steps),
        ARMAFactor.of(ar, ma, n_steps),
        rng.normal(size=(n_steps, 3)),
    )
    np.testing.assert_allclose(factor.diagonal, np.diagonal(dense), rtol=1e-11)
    np.testing.assert_allclose(factor.whitened(columns), np.linalg.solve(dense, columns), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("n_coefficients", [0, 3])
def test_each_step_has_its_density_given_those_before(n_coefficients: int) -> None:
    rng, n = np.random.default_rng(0), 70  # more than two blocks
    white, design = rng.normal(size=(n, 2)), rng.normal(size=(n, n_coefficients))
    mean, root = rng.normal(size=n_coefficients), rng.normal(size=(n_coefficients, n_coefficients))
    factor = np.linalg.cholesky(np.eye(n) + design @ root @ root.T @ design.T)
    squares, log_deviations = log_probs_given_prior(white, design, mean, root)
    expected = np.linalg.solve(factor, white - (design @ mean)[:, None])
    np.testing.assert_allclose(squares, expected**2, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(log_deviations, np.log(np.diagonal(factor)), rtol=1e-9, atol=1e-12)


def test_a_missing_value_is_a_column_of_its_differences() -> None:
    a, y = differences(1, 1, 4), np.random.default_rng(0).normal(size=20)
    for t in (0, 3, 10, 19):
        without = np.where(np.arange(20) == t, 0.0, y)
        column = missing_columns(a, 20, np.array([t]))[:, 0]
        np.testing.assert_allclose(
            np.convolve(without, a, "valid") - y[t] * column, np.convolve(y, a, "valid"), atol=1e-12
        )

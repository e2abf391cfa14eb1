from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from seqmodels.encodings.tail_likelihood import (
    N_FITS,
    autoregression,
    difference_polynomial,
    impulse_responses,
    tail_log_probs,
)

WALK = 20 + np.cumsum(np.random.default_rng(0).normal(size=120))


def by_simulation_of_companion(x: np.ndarray, order: int, season: int | None, n_ahead: int) -> np.ndarray:
    """The same densities by the companion matrix of the autoregression of values, one origin after the other."""
    polynomial, start = difference_polynomial(order, season), len(x) // 2
    edges = np.linspace(start, len(x), N_FITS + 1).astype(int)
    result = np.full((len(x) - start, n_ahead), np.nan)
    for t in range(start, len(x)):
        first = edges[edges <= t][-1]
        fitted = autoregression(np.convolve(x, polynomial, "valid")[: first - len(polynomial) + 1])
        assert fitted is not None
        constant, coefficients, variance = fitted
        weights = -np.convolve([1.0, *-coefficients], polynomial)[1:]
        m = max(1, len(weights))
        companion, noise = np.eye(m, k=-1), np.zeros((m, m))
        companion[0, : len(weights)], noise[0, 0] = weights, variance
        state, spread = x[t - 1 - np.arange(m)], np.zeros((m, m))
        for h in range(n_ahead):
            state, spread = companion @ state, companion @ spread @ companion.T + noise
            state[0] += constant
            if t + h < len(x):
                density = stats.t(4, state[0], np.sqrt(spread[0, 0] / 2))  # whose variance is 2
                result[t - start, h] = density.logpdf(x[t + h])
    return result


@pytest.mark.parametrize(("order", "season"), [(0, None), (1, None), (2, None), (0, 5), (1, 5)])
def test_densities_are_those_of_the_companion_matrix(order: int, season: int | None) -> None:
    found = tail_log_probs(WALK, log=False, order=order, season=season, n_ahead=4)
    assert_allclose(found, by_simulation_of_companion(WALK, order, season, 4), rtol=1e-8)


def test_those_of_logarithms_are_of_raw_values() -> None:
    x = np.exp(WALK / 20)
    found = tail_log_probs(x, log=True, order=1, season=None, n_ahead=2)
    of_logs = tail_log_probs(np.log(x), log=False, order=1, season=None, n_ahead=2)
    assert_allclose(found[:, 0], of_logs[:, 0] - np.log(x[60:]), rtol=1e-9)
    assert_allclose(found[:-1, 1], of_logs[:-1, 1] - np.log(x[61:]), rtol=1e-9)
    in_other_units = tail_log_probs(8 * x, log=True, order=1, season=None, n_ahead=2)
    assert_allclose(in_other_units, found - np.log(8), rtol=1e-9)


def test_the_order_of_an_autoregression_is_that_of_bic() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)
    constant, coefficients, variance = autoregression(3 + noise) or (0.0, np.zeros(9), 0.0)
    assert_allclose([constant, variance], [3 + noise[1:].mean(), noise[1:].var(ddof=1)], rtol=1e-9)
    assert len(coefficients) == 0
    x = np.zeros(400)
    for t in range(1, 400):
        x[t] = 0.8 * x[t - 1] + noise[t]
    constant, coefficients, variance = autoregression(x) or (0.0, np.zeros(9), 0.0)
    expected = stats.linregress(x[:-1], x[1:])
    assert_allclose([constant, coefficients[0]], [expected.intercept, expected.slope], rtol=1e-9)


def test_responses_of_a_seasonal_walk() -> None:
    weights = -difference_polynomial(1, 3)[1:]
    assert impulse_responses(weights, 7).tolist() == [1, 1, 1, 2, 2, 2, 3]
    assert impulse_responses(np.empty(0), 3).tolist() == [1, 0, 0]


@pytest.mark.parametrize("x", [np.arange(100.0), np.r_[np.zeros(60), WALK[:40]], WALK[:12]])
def test_what_has_no_density_is_refused(x: np.ndarray) -> None:
    assert np.isneginf(tail_log_probs(x, log=False, order=1, season=None, n_ahead=3)).all()

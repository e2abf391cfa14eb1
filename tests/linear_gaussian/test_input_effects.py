"""What inputs add, and its standard error, against generalised least squares with dense covariances."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm

N = 50


def data() -> sm.Sequences:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(N, 2)) * [1.0, 30.0] + [5.0, 100.0]
    x = 140 + 0.5 * rng.normal(size=N).cumsum() + u @ [4.0, -0.2] + rng.normal(size=N)
    return sm.Sequences([x[:, None]], inputs=[u], input_names=["price", "rain"], features=["sales"])


def least_squares(X: sm.Sequences, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and standard errors of a regression with a constant and noise of this covariance."""
    assert X.inputs is not None
    design = np.column_stack([X.inputs[0], np.ones(N)])
    weighted = np.linalg.solve(covariance, design)
    of_all = np.linalg.inv(design.T @ weighted)
    return (of_all @ weighted.T @ np.asarray(X[0])[:, 0])[:2], np.sqrt(np.diagonal(of_all))[:2]


def test_a_local_level_is_a_regression_with_a_walk_for_noise() -> None:
    X = data()
    model = sm.LinearGaussian.local_level(observation_inputs=True).fit(X)
    variances, t = model.components_, np.arange(N)
    walk = variances["level_variance"] * np.minimum(t[:, None], t)
    slopes, errors = least_squares(X, walk + variances["noise_variance"] * np.eye(N))
    frame = model.input_effects(X, level=0.9)
    assert frame[["input", "feature"]].to_numpy().tolist() == [["price", "sales"], ["rain", "sales"]]
    assert_allclose(frame["estimate"], slopes, rtol=1e-4)
    assert_allclose(frame["standard_error"], errors, rtol=1e-6)
    assert_allclose(frame["ci_high"] - frame["estimate"], 1.6448536 * frame["standard_error"])
    doubled = sm.Sequences([10 * np.asarray(X[0])], inputs=[u / 2 for u in X.inputs or []], input_names=["a", "b"])
    in_other_units = sm.LinearGaussian.local_level(observation_inputs=["b"]).fit(doubled)
    assert in_other_units.input_effects(doubled)["input"].tolist() == ["b"]


@pytest.mark.slow
def test_a_stationary_system_is_a_regression_with_an_autoregression_for_noise() -> None:
    rng = np.random.default_rng(1)
    u, noise = rng.normal(size=(N, 2)), rng.normal(size=N + 1)
    x = 5 + u @ [2.0, -1.0] + noise[1:] + 0.8 * noise[:-1]
    X = sm.Sequences([x[:, None]], inputs=[u])
    model = sm.LinearGaussian(1, "stationary", observation_inputs=True, max_iter=100, tol=1e-8, n_init=1).fit(X)
    matrices = (model.transition_, model.state_covariance_, model.observation_matrix_, model.observation_covariance_)
    a, q, c, r = (float(np.ravel(each)[0]) for each in matrices)
    lag = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
    slopes, errors = least_squares(X, c**2 * q / (1 - a**2) * a**lag + r * np.eye(N))
    frame = model.input_effects(X)
    assert_allclose(frame["standard_error"], errors, rtol=1e-6)
    assert_allclose(frame["estimate"], slopes, atol=0.25 * errors.min())


def test_slopes_away_from_the_maximum_are_warned_of_and_others_refused() -> None:
    X = data()
    model = sm.LinearGaussian.local_level(observation_inputs=True, max_iter=1).fit(X)
    with pytest.warns(UserWarning, match="the slopes are not at the maximum of their likelihood on these data"):
        model.input_effects(X.map(lambda x: x + 7 * np.arange(N)[:, None] % 5, inputs="keep"))
    with pytest.raises(ValueError, match="the model has no observation_inputs"):
        sm.LinearGaussian.local_level(max_iter=1).fit(X).input_effects(X)
    with pytest.raises(ValueError, match=r"level is 2; pass a probability"):
        model.input_effects(X, level=2)
    k = model.n_parameters_
    log_prob = model.log_prob(X).sum()
    assert_allclose([model.aic(X), model.bic(X)], [2 * k - 2 * log_prob, k * np.log(N) - 2 * log_prob])

"""Derivatives of the diffuse log-likelihood against differences of the likelihood itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seqmodels.inference.gaussian import compiled_gradient
from seqmodels.inference.gaussian.diffuse import diffuse_moments
from seqmodels.inference.gaussian.diffuse_gradient import DiffuseGradient, UnivariateSystem, diffuse_gradient
from seqmodels.inference.gaussian.kalman import SequenceGroup, grouped
from seqmodels.linear_gaussian.parameters import SystemParameters
from tests.linear_gaussian.dense import diagonal, random_parameters

WEIGHTS = np.array([0.5, 2.0])
DIRECTIONS = np.eye(3)[:2]  # the third element is known
EVERY = np.argwhere(np.ones((3, 3)))


def problem(*, missing: bool) -> tuple[SystemParameters, SequenceGroup]:
    rng = np.random.default_rng(1)
    start = np.zeros((3, 3))
    start[2, 2] = 0.7
    parameters = diagonal(random_parameters(0, 3, 2))
    parameters = replace(parameters, initial_mean=np.array([0.0, 0.0, 0.4]), initial_covariance=start)
    x = [rng.normal(size=(9, 2)) for _ in WEIGHTS]
    for each in x:
        each[[0, 3, 3, 5], [1, 0, 1, 0]] = np.nan if missing else 0.3
    (group,) = grouped([each - parameters.intercept for each in x])
    return parameters, group


def univariate(p: SystemParameters) -> UnivariateSystem:
    return UnivariateSystem(
        *(p.transition[None], p.state_covariance[None]),
        *(p.observation, np.diagonal(p.observation_covariance).copy()),
        *(p.initial_mean, p.initial_covariance),
    )


def derivatives_of(parameters: SystemParameters, group: SequenceGroup, directions: np.ndarray) -> DiffuseGradient:
    return diffuse_gradient(univariate(parameters), group, WEIGHTS, directions, EVERY, EVERY)


def log_prob(parameters: SystemParameters, group: SequenceGroup, directions: np.ndarray) -> float:
    return float(WEIGHTS @ diffuse_moments(parameters.system, group, directions, smooths=False).log_prob)


def differences(parameters: SystemParameters, group: SequenceGroup, directions: np.ndarray, name: str) -> np.ndarray:
    """Central differences in each element; of covariances in both elements at once, each half of it."""
    array = getattr(parameters, name)
    slopes = np.zeros_like(array)
    for index in np.ndindex(*array.shape):
        sides = []
        for sign in (1, -1):
            moved = array.copy()
            for element in (index, index[::-1] if name.endswith("covariance") else index):
                moved[element] += sign * 5e-6
            sides.append(log_prob(replace(parameters, **{name: moved}), group, directions))
        slopes[index] = (sides[0] - sides[1]) / 2e-5
    return slopes


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("directions", [DIRECTIONS, DIRECTIONS[:0]])
def test_derivatives_are_differences(missing: bool, directions: np.ndarray) -> None:
    parameters, group = problem(missing=missing)
    if not len(directions):  # whose first state is known in part
        parameters = replace(parameters, initial_covariance=random_parameters(3, 3, 2).initial_covariance)
    derivatives = derivatives_of(parameters, group, directions)
    assert derivatives.log_prob == pytest.approx(log_prob(parameters, group, directions), rel=1e-12)
    close: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}
    for name, ours in (("transition", derivatives.transition), ("state_covariance", derivatives.state_covariance)):
        np.testing.assert_allclose(ours.reshape(3, 3), differences(parameters, group, directions, name), **close)
    noise = np.diagonal(differences(parameters, group, directions, "observation_covariance"))
    np.testing.assert_allclose(derivatives.noise, noise, **close)
    if not len(directions):
        start = differences(parameters, group, directions, "initial_covariance")
        np.testing.assert_allclose(derivatives.initial_covariance, start, **close)
    for i in range(0, len(group.x), 5):
        for d in range(2):
            sides = []
            for sign in (1, -1):
                x = group.x.copy()
                x[i, d] += sign * 1e-5
                sides.append(log_prob(parameters, replace(group, x=x), directions))
            by_value = WEIGHTS[i % 2] * derivatives.values[i, d]
            assert by_value == pytest.approx((sides[1] - sides[0]) / 2e-5, rel=1e-6, abs=1e-7)


def test_a_variance_of_zero_has_a_derivative() -> None:
    parameters, group = problem(missing=False)
    at_zero = replace(parameters, state_covariance=np.zeros((3, 3)))
    slope = np.diagonal(derivatives_of(at_zero, group, DIRECTIONS).state_covariance.reshape(3, 3))
    for k in range(3):
        moved = 1e-7 * np.diag(np.arange(3) == k)
        above = log_prob(replace(at_zero, state_covariance=moved), group, DIRECTIONS)
        assert slope[k] == pytest.approx((above - log_prob(at_zero, group, DIRECTIONS)) / 1e-7, rel=1e-3)


def test_plain_python_gives_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, group = problem(missing=True)
    compiled = derivatives_of(parameters, group, DIRECTIONS)
    for name in ("set_to_product", "add_outer", "weighted_dot", "set_to_combination"):
        monkeypatch.setattr(compiled_gradient, name, getattr(compiled_gradient, f"_{name}_at_once"))
    for name in ("filter_columns", "gradient_columns"):
        function = getattr(compiled_gradient, name)
        monkeypatch.setattr(compiled_gradient, name, getattr(function, "py_func", function))
    plain = derivatives_of(parameters, group, DIRECTIONS)
    for ours, theirs in zip(vars(compiled).values(), vars(plain).values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)

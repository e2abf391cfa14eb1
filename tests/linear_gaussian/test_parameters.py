"""Which parameters are free, what bounds them, and what a file may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seqmodels.inference.gaussian.kalman import Gains, filter_group, grouped
from seqmodels.linear_gaussian.parameters import (
    Form,
    StateNoiseType,
    SystemParameters,
    TransitionType,
    stationary_covariance,
)
from tests.linear_gaussian.dense import diagonal, random_parameters


@pytest.mark.parametrize(
    ("transition", "state_noise"),
    [("full", "full"), ("full", "diag"), ("full", "identity"), ("diag", "diag"), ("diag", "identity")],
)
def test_parameters_are_counted_less_changes_of_basis(transition: TransitionType, state_noise: StateNoiseType) -> None:
    """As many as the log-probabilities of some series have independent derivatives."""
    K, D, rng = 2, 3, np.random.default_rng(0)
    base = diagonal(random_parameters(1, K, D))
    if transition == "diag":
        base = replace(base, transition=np.diag([0.8, -0.3]))
    noise = {"full": base.state_covariance, "diag": np.diag([0.5, 1.2]), "identity": np.eye(K)}
    base = replace(base, state_covariance=noise[state_noise])
    (group,) = grouped([2 * rng.normal(size=(9, D)) for _ in range(60)])

    def log_probs(parameters: SystemParameters) -> np.ndarray:
        shifted = replace(group, x=group.x - parameters.intercept)
        nats = filter_group(parameters.system, Gains.of(parameters.system, 9), shifted).log_prob
        return np.asarray(nats.reshape(9, 60).sum(0))

    derivatives, step = [], 1e-5
    free = {
        "transition": np.ones((K, K), bool) if transition == "full" else np.eye(K, dtype=bool),
        "state_covariance": {"full": np.tri(K), "diag": np.eye(K), "identity": np.zeros((K, K))}[state_noise] > 0,
        "observation": np.ones((D, K), bool),
        "intercept": np.ones(D, bool),
        "observation_covariance": np.eye(D, dtype=bool),
        "initial_mean": np.ones(K, bool),
        "initial_covariance": np.tri(K, dtype=bool),
    }
    for name, where in free.items():
        for index in np.argwhere(where):
            sides = []
            for sign in (1, -1):
                value = getattr(base, name).copy()
                value[tuple(index)] += sign * step
                if name.endswith("covariance") and index[0] != index[1]:
                    value[tuple(index[::-1])] += sign * step
                sides.append(log_probs(replace(base, **{name: value})))
            derivatives.append((sides[0] - sides[1]) / (2 * step))
    matrix = np.stack(derivatives)
    singular = np.linalg.svd(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))[1]
    rank = int((singular > 1e-6 * singular[0]).sum())
    form = Form("learned", transition, state_noise, "diag", True, 1e-6)
    assert form.n_parameters(K, D) == rank
    assert replace(form, start="stationary").n_parameters(K, D) == rank - K - K * (K + 1) // 2


def test_a_stationary_covariance_stays() -> None:
    parameters = random_parameters(0, 4, 1)
    transition = parameters.transition / 0.9 * (1 - 1e-6)
    covariance = stationary_covariance(transition, parameters.state_covariance)
    again = transition @ covariance @ transition.T + parameters.state_covariance
    np.testing.assert_allclose(again, covariance, rtol=1e-12)
    with pytest.raises(ValueError, match="no distribution is stationary"):
        stationary_covariance(parameters.transition / 0.9, parameters.state_covariance)


def test_eigenvalues_are_raised_to_the_floor() -> None:
    form = Form("learned", "full", "full", "full", True, 0.5)
    covariance = np.array([[1.0, 0.9], [0.9, 1.0]])
    floored = form.floored(covariance)
    np.testing.assert_allclose(np.linalg.eigvalsh(floored), [0.5, 1.9])
    assert (form.floor_hits(floored), form.floor_hits(covariance + np.eye(2))) == (1, 0)
    np.testing.assert_array_equal(form.floored(covariance + np.eye(2)), covariance + np.eye(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition": np.full((2, 2), np.nan)}, "'transition' has numbers that are not finite"),
        ({"observation": np.zeros((2, 2))}, "'observation' is an array of float64, shape"),
        ({"state_covariance": np.diag([1.0, -1.0])}, "'state_covariance' is no covariance: an eigenvalue"),
        ({"initial_covariance": np.array([[1.0, 0.5], [0.0, 1.0]])}, "it is not symmetric"),
        ({"intercept": None}, "the file has no array 'intercept'"),
    ],
)
def test_a_file_that_no_fit_wrote_is_refused(changes: dict[str, Any], message: str) -> None:
    arrays = {**random_parameters(0, 2, 3).arrays(), **changes}
    with pytest.raises(ValueError, match=message):
        SystemParameters.from_arrays(arrays, 2, 3, (0, 0))
    assert SystemParameters.from_arrays(random_parameters(0, 2, 3).arrays(), 2, 3, (0, 0)).observation.shape == (3, 2)

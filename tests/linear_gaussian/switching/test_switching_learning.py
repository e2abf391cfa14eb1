"""Variational EM: its bound never falls, of one regime it is EM, and it finds regimes again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.linear_gaussian import SwitchingLinearGaussian
from seqmodels.linear_gaussian.switching.learning import m_step
from seqmodels.linear_gaussian.switching.parameters import SwitchingForm, SwitchingParameters
from seqmodels.linear_gaussian.switching.variational import (
    RegimeBatch,
    RegimeTables,
    expected_log_densities,
    statistics_of,
    variational_step,
)
from tests.linear_gaussian.switching.enumerated import given_path, random_parameters

TURNS = {
    "initial": [0.5, 0.5],
    "regime_transition": [[0.95, 0.05], [0.05, 0.95]],
    "transition": [
        [[np.cos(0.2), -np.sin(0.2)], [np.sin(0.2), np.cos(0.2)]],
        [[np.cos(1.2), -np.sin(1.2)], [np.sin(1.2), np.cos(1.2)]],
    ],
    "state_covariance": 0.02 * np.eye(2),
    "observation_matrix": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
    "observation_covariance": 0.05 * np.eye(3),
    "initial_mean": [1.0, 0.0],
    "initial_covariance": np.eye(2),
}


@pytest.fixture(scope="module")
def rotations() -> tuple[SwitchingLinearGaussian, list[np.ndarray], list[np.ndarray]]:
    """A slow and a fast rotation, and draws of them."""
    model = SwitchingLinearGaussian.from_parameters(**TURNS)
    drawn = model.sample(24, length=60, random_state=1)
    return model, drawn[:16], drawn[16:]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "options",
    [
        {"switching": "dynamics"},
        {"switching": "observation", "n_regimes": 3},
        {"switching": "both", "observation_noise": "full"},
        {"switching": "both", "n_states": 1, "n_init": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("missing", [False, True])
def test_the_bound_never_falls(rotations: Any, options: dict[str, Any], missing: bool) -> None:
    x = [each.copy() for each in rotations[1][:6]]
    if missing and options.get("observation_noise") != "full":
        x[0][3, 1] = x[2][5] = x[3][0, 0] = np.nan
    model = SwitchingLinearGaussian(**{"max_iter": 8, "tol": 0, "particle_steps": 0, **options}).fit(x, validation=None)
    objective = model.history_["objective"].to_numpy()
    assert len(objective) == 9
    assert (np.diff(objective) > -1e-9).all()
    assert objective[-1] > objective[0] + 1e-3


@pytest.mark.parametrize("noise", ["diag", "full"])
def test_of_one_regime_it_is_a_linear_gaussian_system(rotations: Any, noise: Any) -> None:
    _, x, test = rotations
    shared = {"n_states": 2, "observation_noise": noise, "max_iter": 6, "tol": 0}
    one, system = SwitchingLinearGaussian(1, **shared).fit(x), sm.LinearGaussian(**shared).fit(x)
    assert_allclose(one.history_["objective"], system.history_["objective"], rtol=0, atol=1e-10)
    assert_allclose(one.transition_[0], system.transition_, atol=1e-8)
    assert_allclose(one.observation_covariance_[0], system.observation_covariance_, atol=1e-8)
    for a, b in zip(one.log_prob_steps(test), system.log_prob_steps(test), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-9)
    assert_allclose(one.bound(test), system.log_prob(test), rtol=1e-10)
    assert one.score_error(test) == 0
    assert one.n_parameters_ == system.n_parameters_


@pytest.mark.slow
def test_it_finds_regimes_again_and_their_likelihood(rotations: Any) -> None:
    true, x, test = rotations
    model = SwitchingLinearGaussian(2, 2, max_iter=40, n_init=2, particle_steps=10).fit(x)
    assert model.score(test) > true.score(test) - 0.05
    assert model.score(test) > sm.LinearGaussian(2).fit(x).score(test) + 0.2
    turns = sorted(np.abs(np.angle(np.linalg.eigvals(A)))[0] for A in model.transition_)
    assert_allclose(turns, [0.2, 1.2], atol=0.05)


def test_numbers_are_counted_up_to_the_basis_and_origin_of_states() -> None:
    """The rank of the change of moments of x by the parameters, of a small system."""
    S, K, D, T = 2, 1, 2, 4
    rng = np.random.default_rng(0)
    shapes = SwitchingParameters.shapes(S, K, D)
    start = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    x = [rng.normal(size=(T, D)) for _ in range(60)]

    def system(u: np.ndarray) -> SwitchingLinearGaussian:
        logit, rows = np.append(u[0], 0.0), np.stack([np.append(u[1], 0.0), np.append(u[2], 0.0)])
        A, b, Q, C, d, R, m, P = np.split(u[3:], np.cumsum([2, 2, 2, 2, 2, 2, 1]))
        return SwitchingLinearGaussian.from_parameters(
            initial=np.exp(logit) / np.exp(logit).sum(),
            regime_transition=np.exp(rows) / np.exp(rows).sum(1, keepdims=True),
            transition=A.reshape(2, 1, 1),
            drift=b.reshape(2, 1),
            state_covariance=np.exp(Q).reshape(2, 1, 1),
            observation_matrix=C.reshape(2, 1),
            intercept=d,
            observation_covariance=np.diag(np.exp(R)),
            initial_mean=m,
            initial_covariance=np.exp(P).reshape(1, 1),
            n_particles=S**T,
        )

    assert set(start) == set(shapes)
    u = rng.normal(size=3 + 2 * 6 + 2)
    steps = 1e-4 * np.eye(len(u))
    slopes = np.stack([(system(u + h).log_prob(x) - system(u - h).log_prob(x)) / 2e-4 for h in steps], 1)
    singular = np.linalg.svd(slopes, compute_uv=False)
    rank = int((singular > 1e-6 * singular[0]).sum())
    assert rank == SwitchingForm("dynamics", "diag", 1e-6).n_parameters(S, K, D)
    assert rank == len(u) - 2  # the scale of the state, and its origin


@pytest.mark.parametrize("switching", ["dynamics", "observation", "both"])
def test_no_parameters_near_those_of_an_m_step_are_likelier(switching: Any) -> None:
    p, rng = random_parameters(1, 2, 2, 2, full=False), np.random.default_rng(0)
    batch = RegimeBatch.of([rng.normal(size=(40, 2)) for _ in range(3)], np.ones(3))
    form = SwitchingForm(switching, "full", 1e-6)
    gamma = rng.dirichlet(np.ones(2), size=len(batch.x))
    step = variational_step(RegimeTables.of(p), batch, gamma)

    def expected(q: SwitchingParameters) -> float:
        arrays = (batch, step.states, step.moves, step.seen)
        return float((step.regimes.gamma * expected_log_densities(RegimeTables.of(q), *arrays)).sum())

    found = m_step(p, form, statistics_of(batch, step, by_feature=False))
    largest = expected(found)
    of_dynamics, of_observation = ("transition", "drift", "state_covariance"), ("observation", "intercept")
    free = of_dynamics * form.dynamics_switch + (*of_observation, "observation_covariance") * form.observation_switches
    for name in free:
        for _ in range(10):
            change = 1e-3 * rng.normal(size=getattr(found, name).shape)
            if name.endswith("covariance"):
                change = change + change.swapaxes(1, 2)
            for moved in (change, -change):
                assert expected(replace(found, **{name: getattr(found, name) + moved})) < largest


def test_an_m_step_has_the_transitions_between_regimes_of_all_paths() -> None:
    """Where observations do not depend on states, and states not on regimes, mean field is exact."""
    p, rng = random_parameters(2, 2, 1, 2), np.random.default_rng(1)
    one = {name: np.repeat(getattr(p, name)[:1], 2, 0) for name in ("transition", "drift", "state_covariance")}
    p = replace(p, **one, observation=np.zeros_like(p.observation))
    x, weights = [2 * rng.normal(size=(n, 2)) for n in (5, 1, 4, 5)], np.array([1.0, 2.0, 0.5, 3.0])
    first, counts = np.zeros(2), np.zeros((2, 2))
    for each, weight in zip(x, weights, strict=True):
        paths = list(product(range(2), repeat=len(each)))
        log_p = np.array([given_path(p, path, each) + np.log(p.initial[path[0]]) for path in paths])
        log_p += [sum(np.log(p.regime_transition[pair]) for pair in pairwise(path)) for path in paths]
        posterior = np.exp(log_p - np.logaddexp.reduce(log_p))
        for path, share in zip(paths, posterior, strict=True):
            first[path[0]] += weight * share
            for pair in pairwise(path):
                counts[pair] += weight * share
    batch = RegimeBatch.of(x, weights)
    step = variational_step(RegimeTables.of(p), batch, np.full((len(batch.x), 2), 0.5))
    found = m_step(p, SwitchingForm("observation", "full", 1e-6), statistics_of(batch, step, by_feature=False))
    assert_allclose(found.regime_transition, counts / counts.sum(1, keepdims=True), rtol=1e-10)
    assert_allclose(found.initial, first / weights.sum(), rtol=1e-10)


def test_matrices_of_a_regime_with_few_steps_stay_and_those_of_all_regimes_are_learned() -> None:
    """All five steps are in regime 0: fewer than two for each of the three regressors."""
    p, x = random_parameters(3, 2, 2, 2, full=False), np.random.default_rng(2).normal(size=(5, 2))
    p = replace(p, initial=np.array([1.0, 0.0]), regime_transition=np.eye(2))
    batch = RegimeBatch.of([x[:2], x[2:4], x[4:]], np.ones(3))
    step = variational_step(RegimeTables.of(p), batch, np.tile([1.0, 0.0], (5, 1)))
    sums = statistics_of(batch, step, by_feature=False)
    shared, own = (m_step(p, SwitchingForm(each, "diag", 1e-6), sums) for each in ("observation", "both"))
    of_observation = ("observation", "intercept", "observation_covariance")
    for name in ("transition", "drift", "state_covariance", *of_observation):
        np.testing.assert_array_equal(getattr(own, name), getattr(p, name))
    moved = sums.moves.sum(0)
    slopes = np.linalg.solve(moved[2:4, 2:4], moved[2:4, :2]).T
    assert_allclose(shared.transition, np.stack([slopes, slopes]), rtol=1e-8)

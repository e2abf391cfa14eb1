"""EM: the log-probability never falls, whatever the form, the start and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np
import pytest

from seqmodels.linear_gaussian.learning.em import SystemEM, SystemObjective, m_step, regression
from seqmodels.linear_gaussian.learning.initialise import starts
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.training import FitResult, StopRule, run_em
from tests.linear_gaussian.dense import dense, diagonal, random_parameters

FORMS = [
    Form(start, transition, state_noise, noise, intercept, 1e-6)
    for (start, noise, intercept), (transition, state_noise) in product(
        [
            ("learned", "diag", True),
            ("stationary", "full", False),
            ("diffuse", "diag", False),
            ("diffuse", "full", True),
        ],
        [("full", "full"), ("full", "diag"), ("full", "identity"), ("diag", "diag"), ("diag", "identity")],
    )
]


def data_of(
    seed: int, *, missing: bool, n_features: int = 3, n_inputs: int = 0, lengths: Sequence[int] = (30, 12, 4, 25)
) -> SystemData:
    rng = np.random.default_rng(seed)
    values = []
    for n in lengths:
        z = rng.normal(size=(n, n_features)).cumsum(0) / 3
        values.append(z @ rng.normal(size=(n_features, n_features)) + rng.normal(size=(n, n_features)))
        values[-1][rng.random(values[-1].shape) < (0.2 if missing else 0.0)] = np.nan
    inputs = [rng.normal(size=(len(x), n_inputs)) for x in values] if n_inputs else None
    return SystemData(values, np.array([1.0, 2.0, 1.0, 0.5]), inputs)


def run(form: Form, data: SystemData, start: SystemParameters, steps: int = 12) -> FitResult[SystemParameters]:
    return run_em(SystemEM(SystemObjective(form, 100.0, 0.0), data), [start], StopRule(steps, 0.0))[0]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_log_probability_never_falls(form: Form, missing: bool) -> None:
    data = data_of(0, missing=missing, lengths=(14, 7, 4, 11))
    of_number = starts(data.values, 2, form, 7)
    for number in range(3):
        for start in of_number(number):
            fit = run(form, data, start, 4)
            objectives = np.array([row["objective"] for row in fit.rows])
            assert len(objectives) == 5
            assert (np.diff(objectives) >= -1e-9).all()
            assert objectives[-1] > objectives[0]
            p = fit.parameters
            if form.transition == "diag":
                assert not (p.transition - np.diag(np.diagonal(p.transition))).any()
            if form.state_noise == "identity":
                np.testing.assert_array_equal(p.state_covariance, np.eye(2))
            if form.observation_noise == "diag":
                assert not (p.observation_covariance - np.diag(np.diagonal(p.observation_covariance))).any()
            if not form.intercept:
                assert not p.intercept.any()


def test_with_inputs_it_never_falls_and_finds_their_slopes() -> None:
    rng = np.random.default_rng(1)
    form = Form("learned", "full", "full", "diag", True, 1e-6, None, (0,), (1,))
    inputs = [rng.normal(size=(200, 2)) for _ in range(3)]
    values, slopes = [], np.array([1.5, -2.0])
    for u in inputs:
        z = np.zeros(200)
        for t in range(1, 200):
            z[t] = 0.6 * z[t - 1] + 2.0 * u[t, 0] + 0.3 * rng.normal()
        values.append(z[:, None] * [1.0, -1.0] + u[:, 1:] * slopes + 0.3 * rng.normal(size=(200, 2)))
    data = SystemData(values, np.ones(3), inputs)
    fit = run(form, data, starts(values, 1, form, 0, inputs)(0)[0], steps=200)
    objectives = np.array([row["objective"] for row in fit.rows])
    assert (np.diff(objectives) >= -1e-9).all()
    p = fit.parameters
    np.testing.assert_allclose(p.observation_slopes[:, 0], slopes, atol=0.1)
    np.testing.assert_allclose(p.observation @ p.state_slopes, [[2.0], [-2.0]], atol=0.1)
    assert p.transition[0, 0] == pytest.approx(0.6, abs=0.05)


@pytest.mark.slow
def test_it_finds_the_system_that_drew_the_data() -> None:
    truth = random_parameters(5, 2, 3)
    rng, values = np.random.default_rng(0), []
    for _ in range(20):
        z, rows = rng.multivariate_normal(truth.initial_mean, truth.initial_covariance), []
        for _ in range(150):
            noise = rng.multivariate_normal(np.zeros(3), truth.observation_covariance)
            rows.append(truth.observation @ z + truth.intercept + noise)
            z = truth.transition @ z + rng.multivariate_normal(np.zeros(2), truth.state_covariance)
        values.append(np.stack(rows))
    form, data = Form("learned", "full", "full", "full", True, 1e-6), SystemData(values, np.ones(20))
    fit = run(form, data, starts(values, 2, form, 0)(0)[0], steps=150)
    found, at_truth = fit.rows[-1]["log_prob"], float(e_step(truth, form, data).log_prob) / 100.0
    # Twice what is gained is a chi-square of as many degrees as there are free parameters, 23.
    assert 0.0 < 2 * 100.0 * (found - at_truth) < 60.0
    eigenvalues = [np.sort_complex(np.linalg.eigvals(p.transition)) for p in (fit.parameters, truth)]
    np.testing.assert_allclose(eigenvalues[0], eigenvalues[1], atol=0.05)


def test_an_m_step_is_the_maximum_and_the_floor_holds() -> None:
    data = data_of(3, missing=True)
    form = Form("learned", "full", "full", "diag", True, 0.5)
    start = starts(data.values, 2, form, 1)(1)[0]
    statistics = e_step(start, form, data)
    moved = m_step(start, form, statistics)
    again = m_step(moved, form, statistics)  # the same expectations
    for name in ("transition", "state_covariance", "observation_covariance", "initial_mean", "initial_covariance"):
        np.testing.assert_allclose(getattr(again, name), getattr(moved, name), rtol=1e-9, atol=1e-9)
    variances = np.diagonal(run(form, data, start, 30).parameters.observation_covariance)
    assert (variances >= 0.5).all()
    assert form.floor_hits(np.diag(variances)) == int((variances < 0.5 + 1e-6).sum()) > 0


@pytest.mark.parametrize("noise", ["diag", "full"])
def test_an_m_step_is_the_regression_on_states_with_their_joint_posterior(noise: Literal["diag", "full"]) -> None:
    data = data_of(4, missing=noise == "diag", lengths=(6, 4, 5), n_features=3)
    data = replace(data, weights=np.array([1.0, 2.0, 0.5]))
    start = random_parameters(1, 2, 3)
    start = diagonal(start) if noise == "diag" else start
    form = Form("learned", "full", "full", noise, True, 1e-6)
    found = m_step(start, form, e_step(start, form, data))
    posteriors = [dense(start, x) for x in data.values]
    now, before = np.zeros((2, 2)), np.zeros((2, 2))
    for w, z in zip(data.weights, posteriors, strict=True):
        for t in range(1, len(z.means)):
            now += w * (np.outer(z.means[t], z.means[t - 1]) + z.covariances[t, :, t - 1])
            before += w * (np.outer(z.means[t - 1], z.means[t - 1]) + z.covariances[t - 1, :, t - 1])
    A, Q, n_moves = now @ np.linalg.inv(before), np.zeros((2, 2)), 0.0
    for w, z in zip(data.weights, posteriors, strict=True):
        for t in range(1, len(z.means)):
            error, both = z.means[t] - A @ z.means[t - 1], np.concatenate([np.eye(2), -A], 1)
            pair = z.covariances[t - 1 : t + 1, :, t - 1 : t + 1][::-1, :, ::-1].reshape(4, 4)
            Q, n_moves = Q + w * (np.outer(error, error) + both @ pair @ both.T), n_moves + w
    np.testing.assert_allclose(found.transition, A, rtol=1e-8)
    np.testing.assert_allclose(found.state_covariance, Q / n_moves, rtol=1e-8)

    # Each feature is regressed on the steps where it is observed, which are all steps unless R is diagonal.
    R, C, d = np.zeros((3, 3)), np.zeros((3, 2)), np.zeros(3)
    m = np.concatenate([z.means for z in posteriors])
    V = np.concatenate([np.stack([z.covariances[t, :, t] for t in range(len(z.means))]) for z in posteriors])
    x, w = np.concatenate(data.values), np.repeat(data.weights, [len(each) for each in data.values])
    seen = ~np.isnan(x)
    for f in range(3):
        h = np.concatenate([m, np.ones((len(m), 1))], 1)[seen[:, f]]
        gram = (w[seen[:, f], None] * h).T @ h
        gram[:2, :2] += np.einsum("n,nij->ij", w[seen[:, f]], V[seen[:, f]])
        slopes = np.linalg.solve(gram, (w * x[:, f])[seen[:, f]] @ h)
        C[f], d[f] = slopes[:2], slopes[2]
    for f, g in product(range(3), repeat=2):
        here = seen[:, f] & seen[:, g]
        errors = (x - m @ C.T - d)[here]
        spread = np.einsum("i,nij,j->n", C[f], V[here], C[g])
        R[f, g] = w[here] @ (errors[:, f] * errors[:, g] + spread) / w[here].sum()
    np.testing.assert_allclose(found.observation, C, rtol=1e-8)
    np.testing.assert_allclose(found.intercept, d, rtol=1e-8)
    np.testing.assert_allclose(found.observation_covariance, R if noise == "full" else R * np.eye(3), rtol=1e-8)


def test_what_nothing_tells_of_stays_as_it_is() -> None:
    form = Form("learned", "full", "full", "diag", True, 1e-6)
    values = [np.array([[1.0, np.nan]]), np.array([[2.0, np.nan]])]
    start = random_parameters(0, 2, 2)
    start = replace(start, observation_covariance=np.diag([0.5, 0.7]))
    moved = m_step(start, form, e_step(start, form, SystemData(values, np.ones(2))))
    np.testing.assert_array_equal(moved.transition, start.transition)
    np.testing.assert_array_equal(moved.observation[1], start.observation[1])
    assert moved.observation_covariance[1, 1] == 0.7
    assert moved.observation_covariance[0, 0] != 0.5


def test_a_regression_leaves_out_what_is_not_free() -> None:
    rng = np.random.default_rng(0)
    h, x = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    is_free = np.array([[True, False, True], [False, True, True]])
    found = regression(x.T @ h, h.T @ h, is_free)
    assert not found[~is_free].any()
    for row, free, target in zip(found, is_free, x.T, strict=True):
        np.testing.assert_allclose(row[free], np.linalg.lstsq(h[:, free], target)[0], rtol=1e-10)

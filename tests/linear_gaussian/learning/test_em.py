"""EM: the log-probability never falls, whatever the form, the start and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from seqmodels.linear_gaussian.learning.em import SystemEM, SystemObjective, m_step, regression
from seqmodels.linear_gaussian.learning.initialise import starts
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.training import FitResult, StopRule, run_em
from tests.linear_gaussian.dense import random_parameters

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

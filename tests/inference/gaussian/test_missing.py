"""Sequences that miss values each in its own places: sums and figures are those of one pattern at a time."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.gaussian import missing
from seqmodels.inference.gaussian.missing import log_probs_of_block, missing_blocks, sums_of_block
from seqmodels.linear_gaussian.learning.statistics import Statistics, SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from tests.linear_gaussian.dense import dense, diagonal, random_parameters

pytestmark = pytest.mark.skipif(not is_compiling(), reason="numba is not installed")
LENGTHS = (5, 9, 1, 9, 3, 7, 2)


def problem(n_states: int = 3, n_features: int = 4, offset: float = 0.0) -> tuple[SystemParameters, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    parameters = diagonal(random_parameters(0, n_states, n_features))
    x = [offset + rng.normal(size=(n, n_features)) for n in LENGTHS]
    for each in x:
        each[rng.random(each.shape) < 0.4] = np.nan
    x[1][4] = np.nan  # a step without any value
    x[4][:, -1] = np.nan
    return parameters, x


def test_figures_and_sums_are_those_of_the_joint_gaussian() -> None:
    parameters, x = problem()
    weights = np.random.default_rng(1).random(len(x))
    (block,) = missing_blocks(x, np.arange(len(x)), weights)
    sums = sums_of_block(parameters.system, parameters.intercept, block)
    log_probs = dict(zip(block.numbers.tolist(), sums.log_prob.T, strict=True))
    np.testing.assert_allclose(
        log_probs_of_block(parameters.system, parameters.intercept, block), sums.log_prob, rtol=1e-12, atol=1e-12
    )
    now, across, by_feature = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros((4, 3, 3))
    for i, each in enumerate(x):
        expected = dense(parameters, each)
        assert log_probs[i].sum() == pytest.approx(expected.log_prob, rel=1e-12)
        for t in range(len(each)):
            square = expected.covariances[t, :, t] + np.outer(expected.means[t], expected.means[t])
            now += (t > 0) * weights[i] * square
            by_feature += weights[i] * ~np.isnan(each[t])[:, None, None] * square
            if t > 0:
                before = np.outer(expected.means[t], expected.means[t - 1])
                across += weights[i] * (expected.covariances[t, :, t - 1] + before)
    np.testing.assert_allclose(sums.now_now, now, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sums.now_before, across, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sums.state_state, by_feature, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("n_states", "n_features", "offset"), [(3, 4, 0.0), (1, 1, 0.0), (5, 9, 1e3)])
def test_the_e_step_is_that_of_patterns(n_states: int, n_features: int, offset: float) -> None:
    parameters, x = problem(n_states, n_features, offset)
    parameters = replace(parameters, intercept=parameters.intercept + offset)
    form, weights = Form("learned", "full", "full", "diag", True, 1e-6), np.random.default_rng(1).random(len(x))
    blocks, patterns = SystemData(x, weights), SystemData(x, weights)
    assert sum(len(block.numbers) for block in blocks.missing) >= 5
    vars(patterns)["missing"] = []
    ours, theirs = (e_step(parameters, form, each) for each in (blocks, patterns))
    for f in fields(Statistics):
        np.testing.assert_allclose(getattr(ours, f.name), getattr(theirs, f.name), rtol=1e-10, atol=1e-10)


def test_noise_of_states_may_be_singular_and_lengths_differ_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a sequence's end nothing grows, though the transition does; and blocks have few steps."""
    parameters, _ = problem()
    direction = np.array([1.0, -0.5, 0.0])
    parameters = replace(
        parameters, transition=30 * parameters.transition, state_covariance=np.outer(direction, direction)
    )
    rng = np.random.default_rng(3)
    x = [rng.normal(size=(n, 4)) for n in (2, 3, 600)]
    for i, each in enumerate(x):
        each[0, i] = np.nan
    form, data = Form("learned", "full", "full", "diag", True, 1e-6), SystemData(x, np.ones(3))
    with np.errstate(all="raise"):
        statistics = e_step(parameters, form, data)
    assert all(np.isfinite(getattr(statistics, f.name)).all() for f in fields(Statistics))
    monkeypatch.setattr(missing, "MOST_STEPS", 600)
    few = SystemData(x, np.ones(3))
    assert [len(block.numbers) for block in few.missing] == [1, 2]
    for f in fields(Statistics):
        np.testing.assert_allclose(getattr(e_step(parameters, form, few), f.name), getattr(statistics, f.name))

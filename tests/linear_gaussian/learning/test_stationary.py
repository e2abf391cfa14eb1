"""The M-step of a stationary start."""

from __future__ import annotations

import numpy as np
import pytest

from seqmodels.linear_gaussian.learning.em import m_step
from seqmodels.linear_gaussian.learning.initialise import starts
from seqmodels.linear_gaussian.learning.stationary import _Loss, with_stationary_start
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, StateNoiseType, TransitionType
from tests.linear_gaussian.dense import random_parameters

FORMS: list[tuple[TransitionType, StateNoiseType]] = [
    ("full", "full"),
    ("full", "diag"),
    ("full", "identity"),
    ("diag", "diag"),
]


def short_sequences() -> SystemData:
    """Of three steps, so that first states say much of the dynamics."""
    rng = np.random.default_rng(0)
    return SystemData([rng.normal(size=(3, 2)).cumsum(0) for _ in range(40)], np.ones(40))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("transition", "state_noise"), FORMS)
def test_an_m_step_ends_where_the_gradient_is_zero(transition: TransitionType, state_noise: StateNoiseType) -> None:
    form, data = Form("stationary", transition, state_noise, "diag", True, 1e-6), short_sequences()
    start = starts(data.values, 2, form, 0)(1)[0]
    statistics = e_step(start, form, data)
    loss, moved = _Loss(form, statistics, 2), start
    for _ in range(20):
        moved = m_step(moved, form, statistics)
    before, after = (loss(loss.numbers_of(p))[0] for p in (start, moved))
    assert after < before
    assert np.abs(loss(loss.numbers_of(moved))[1]).max() < 1e-4
    again = with_stationary_start(moved)
    np.testing.assert_allclose(moved.initial_covariance, again.initial_covariance, rtol=1e-10)
    spread = moved.transition @ moved.initial_covariance @ moved.transition.T + moved.state_covariance
    np.testing.assert_allclose(moved.initial_covariance, spread, rtol=1e-9)
    assert not moved.initial_mean.any()


def test_the_gradient_is_that_of_the_loss() -> None:
    form, data = Form("stationary", "full", "full", "full", True, 1e-6), short_sequences()
    parameters = with_stationary_start(random_parameters(2, 2, 2))
    loss = _Loss(form, e_step(parameters, form, data), 2)
    numbers = loss.numbers_of(parameters)
    for i, expected in enumerate(loss(numbers)[1]):
        step = 1e-6 * np.eye(len(numbers))[i]
        assert (loss(numbers + step)[0] - loss(numbers - step)[0]) / 2e-6 == pytest.approx(expected, rel=1e-5, abs=1e-7)

"""Where EM starts: valid systems for any data, and better than chance."""

from __future__ import annotations

import numpy as np
import pytest

from seqmodels.linear_gaussian.learning.initialise import starts
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, StateNoiseType, TransitionType


def oscillation(n: int = 300) -> list[np.ndarray]:
    """Two phases of one oscillation in three features, and noise."""
    rng = np.random.default_rng(0)
    phase = 0.3 * np.arange(n) + 0.1 * rng.normal(size=n).cumsum()
    return [np.stack([np.cos(phase), np.sin(phase), np.cos(phase + 1)], 1) + 0.3 * rng.normal(size=(n, 3))]


UNLIKE = {
    "an oscillation": oscillation(),
    "one feature": [x[:, :1] for x in oscillation()],
    "single steps": [np.random.default_rng(i).normal(size=(1, 2)) for i in range(5)],
    "one short sequence": [np.array([[0.1, 2.0], [0.5, -1.0]])],
    "white noise": [np.random.default_rng(0).normal(size=(50, 2))],
    "a random walk": [np.random.default_rng(0).normal(size=(200, 1)).cumsum(0)],
    "the same twice": [np.repeat(oscillation(40)[0][:, :1], 2, 1)],
    "mostly missing": [np.where(np.random.default_rng(1).random((60, 3)) < 0.8, np.nan, oscillation(60)[0])],
}


@pytest.mark.parametrize("start", ["learned", "stationary"])
@pytest.mark.parametrize(("transition", "state_noise"), [("full", "full"), ("full", "identity"), ("diag", "diag")])
@pytest.mark.parametrize("name", UNLIKE)
def test_any_data_have_a_start(name: str, transition: TransitionType, state_noise: StateNoiseType, start: str) -> None:
    values = UNLIKE[name]
    form = Form(start, transition, state_noise, "diag", True, 1e-6)  # type: ignore[arg-type]
    for n_states in (1, 4):
        of_number = starts(values, n_states, form, 3)
        for parameters in [*of_number(0), *of_number(1)]:
            assert np.isfinite(e_step(parameters, form, SystemData(values, np.ones(len(values)))).log_prob)
            if start == "stationary":
                assert np.abs(np.linalg.eigvals(parameters.transition)).max() < 1


def test_an_oscillation_is_found_before_em() -> None:
    form = Form("learned", "full", "full", "diag", True, 1e-6)
    of_number = starts(oscillation(), 2, form, 0)
    angles = [np.abs(np.angle(np.linalg.eigvals(p.transition))).max() for p in of_number(0)]
    assert min(abs(angle - 0.3) for angle in angles) < 0.05
    log_probs = [
        float(e_step(p, form, SystemData(oscillation(), np.ones(1))).log_prob)
        for number in range(4)
        for p in of_number(number)
    ]
    assert max(log_probs[:2]) > max(log_probs[2:])


def test_starts_repeat_by_seed() -> None:
    form = Form("learned", "full", "full", "diag", True, 1e-6)
    one, same, other = (starts(oscillation(), 2, form, seed)(1)[0] for seed in (0, 0, 1))
    np.testing.assert_allclose(one.transition, same.transition, rtol=1e-9, atol=1e-9)
    assert (one.transition != other.transition).any()

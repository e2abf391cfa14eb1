"""The sums of an E-step: their gradient is that of the log-probability, and they add over sequences."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from seqmodels.inference.gaussian.kalman import Gains, filter_group
from seqmodels.linear_gaussian.learning.statistics import Statistics, SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, NoiseType, SystemParameters
from tests.linear_gaussian.dense import diagonal, random_parameters

K, D, LENGTHS = 2, 3, (5, 1, 8, 8)
STEP = 1e-5


def form_of(noise: NoiseType = "full", *, reads: bool = False) -> Form:
    inputs = ((0,), (1, 0)) if reads else ((), ())
    return Form("learned", "full", "full", noise, True, 1e-6, None, *inputs)


def problem(noise: NoiseType, *, missing: bool, reads: bool) -> tuple[SystemParameters, Form, SystemData]:
    rng = np.random.default_rng(0)
    parameters = random_parameters(3, K, D)
    parameters = diagonal(parameters) if noise == "diag" else parameters
    x = [2 * rng.normal(size=(n, D)) for n in LENGTHS]
    for each in x[1:]:
        each[rng.random(each.shape) < (0.3 if missing else 0.0)] = np.nan
    inputs = [rng.normal(size=(n, 2)) for n in LENGTHS] if reads else None
    if reads:
        slopes = {"state_slopes": rng.normal(size=(K, 1)), "observation_slopes": rng.normal(size=(D, 2))}
        parameters = replace(parameters, **slopes)
    return parameters, form_of(noise, reads=reads), SystemData(x, np.array([1.0, 2.0, 0.5, 1.5]), inputs)


def log_prob(parameters: SystemParameters, form: Form, data: SystemData) -> float:
    total = 0.0
    for group, _ in data.groups(parameters, form):
        gains = Gains.of(parameters.system, group.packing.n_steps, group.observed)
        weights = data.weights[group.numbers][group.packing.order][group.packing.ranks]
        total += float(weights @ filter_group(parameters.system, gains, group).log_prob)
    return total


def gradients(parameters: SystemParameters, s: Statistics) -> dict[str, np.ndarray]:
    """Of the expected log-probability of states and observations: of regressions, their noise, and the start."""
    p, n_inputs = parameters, parameters.observation_slopes.shape[1]
    dynamics = np.concatenate([p.transition, p.state_slopes], 1)
    precision = np.linalg.inv(p.state_covariance)
    of_dynamics = precision @ (s.now_before - dynamics @ s.before_before)
    cross = dynamics @ s.now_before.T
    moved = s.now_now - cross - cross.T + dynamics @ s.before_before @ dynamics.T
    # What is observed is less the intercept and inputs: their coefficients are zeros.
    emission = np.concatenate([p.observation, np.zeros((D, 1 + n_inputs))], 1)
    noise = np.linalg.inv(p.observation_covariance)
    blocks = np.broadcast_to(s.state_state, (D, *s.state_state.shape[1:]))
    left = s.seen_state - np.stack([row @ block for row, block in zip(emission, blocks, strict=True)])
    of_emission = noise @ left
    start = np.linalg.inv(p.initial_covariance)
    crossed = np.stack([row @ total for row, total in zip(emission, s.seen_state, strict=True)])  # of the diagonal
    if len(s.n_seen) == 1:
        both = emission @ s.seen_state.T
        residual = s.seen_seen - both - both.T + emission @ s.state_state[0] @ emission.T
        of_noise = 0.5 * noise @ (residual @ noise - s.n_seen[0] * np.eye(D))
    else:
        squares = np.stack([row @ block @ row for row, block in zip(emission, blocks, strict=True)])
        residual = np.diagonal(s.seen_seen) - 2 * crossed + squares
        of_noise = np.diag(0.5 * (residual * np.diagonal(noise) - s.n_seen) * np.diagonal(noise))
    return {
        "observation_covariance": of_noise,
        "transition": of_dynamics[:, :K],
        "state_slopes": of_dynamics[:, K:],
        "state_covariance": 0.5 * precision @ (moved @ precision - s.n_moves * np.eye(K)),
        "observation": of_emission[:, :K],
        "intercept": of_emission[:, K],
        "observation_slopes": of_emission[:, K + 1 :],
        "initial_mean": start @ (s.first - s.n_first * p.initial_mean),
    }


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("noise", ["diag", "full"])
def test_the_gradient_is_that_of_the_log_probability(noise: NoiseType, missing: bool, reads: bool) -> None:
    """Fisher's identity, by central differences: any wrong sum shows."""
    parameters, form, data = problem(noise, missing=missing, reads=reads)
    statistics = e_step(parameters, form, data)
    assert float(statistics.log_prob) == pytest.approx(log_prob(parameters, form, data), rel=1e-12)
    for name, gradient in gradients(parameters, statistics).items():
        value = getattr(parameters, name)
        for index in np.ndindex(value.shape):
            if name == "observation_covariance" and noise == "diag" and index[0] != index[1]:
                continue
            sides = []
            for sign in (1, -1):
                moved = value.copy()
                moved[index] += sign * STEP
                if name.endswith("covariance") and index[0] != index[1]:
                    moved[index[::-1]] += sign * STEP
                sides.append(log_prob(replace(parameters, **{name: moved}), form, data))
            factor = 2.0 if name.endswith("covariance") and index[0] != index[1] else 1.0
            expected = (sides[0] - sides[1]) / (2 * STEP)
            assert factor * gradient[index] == pytest.approx(expected, rel=1e-5, abs=1e-5), (name, index)


def test_sums_add_and_weights_are_repetitions() -> None:
    parameters, form, data = problem("full", missing=True, reads=False)
    whole = e_step(parameters, form, replace(data, weights=np.array([1.0, 2.0, 0.0, 1.0])))
    once = [SystemData([x], np.ones(1)) for x in (data.values[i] for i in (0, 1, 1, 3))]
    parts = [e_step(parameters, form, each) for each in once]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    for f in fields(Statistics):
        np.testing.assert_allclose(getattr(whole, f.name), getattr(total, f.name), rtol=1e-10, atol=1e-10)
    nothing = Statistics.zero(parameters, form)
    for f in fields(Statistics):
        assert getattr(nothing, f.name).shape == getattr(whole, f.name).shape


def test_a_diffuse_start_refuses_what_does_not_determine_it() -> None:
    parameters, form, _ = problem("full", missing=False, reads=False)
    data = SystemData([np.ones((3, D)), np.full((2, D), np.nan)], np.ones(2))
    with pytest.raises(ValueError, match="sequence 1 has 2 steps, which do not determine"):
        e_step(parameters, replace(form, start="diffuse"), data)


def test_sums_of_a_diffuse_start_are_the_limit_of_a_broad_one() -> None:
    parameters, form, data = problem("full", missing=False, reads=True)
    data = SystemData(
        [data.values[i] for i in (0, 2, 3)], np.array([1.0, 2.0, 0.5]), [data.inputs[i] for i in (0, 2, 3)]
    )
    found = []
    for kappa in (1e5, 2e5):
        broad = replace(parameters, initial_mean=np.zeros(K), initial_covariance=kappa * np.eye(K))
        found.append(e_step(broad, form, data))
    diffuse = e_step(parameters, replace(form, start="diffuse"), data)
    for f in fields(Statistics):
        near, far = (getattr(each, f.name) for each in found)
        limit = 2 * far - near
        if f.name == "log_prob":
            limit = limit + 0.5 * K * data.weights.sum() * (2 * np.log(2e5) - np.log(1e5))
        np.testing.assert_allclose(getattr(diffuse, f.name), limit, rtol=1e-5, atol=1e-5)

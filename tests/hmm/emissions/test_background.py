"""EM of autoregressions with a background, beside a plain program from its equations; steps ahead, over all jumps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

import seqmodels as sm
from seqmodels.hmm.cursor import gaussian_steps
from seqmodels.hmm.emissions import AutoregressiveEmission
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import gaussian
from tests.past_steps import past_steps

ORDER, D, W, RIDGE = 2, 2, 0.05, 1e-3


def jumping(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.zeros((n, D))
    for t in range(ORDER, n):
        x[t] = 1.2 * x[t - 1] - 0.4 * x[t - 2] + 0.1 * rng.normal(size=D)
        if rng.random() < 0.04:
            x[t] = x[t - 1] + 4.0 * rng.normal(size=D)
    return x


def plain_em(
    z: np.ndarray, x: np.ndarray, last: np.ndarray, start: tuple[np.ndarray, np.ndarray], n_penalised: int, n_steps: int
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Weighted least squares by turns with the probability that each step follows the regression ``x ≈ B z``."""
    penalty = np.diag([RIDGE] * n_penalised + [0.0] * (z.shape[1] - n_penalised))
    (b, covariance), objective = start, []
    jump = np.array([W * stats.multivariate_normal(m, 10 * np.eye(D)).pdf(v) for m, v in zip(last, x, strict=True)])
    for _ in range(n_steps):
        follows = (1 - W) * np.array(
            [stats.multivariate_normal(b @ u, covariance).pdf(v) for u, v in zip(z, x, strict=True)]
        )
        objective.append(float(np.log(follows + jump).sum()))
        r = follows / (follows + jump)
        b = np.linalg.solve((z * r[:, None]).T @ z + penalty, (z * r[:, None]).T @ x).T
        rest = x - z @ b.T
        covariance = ((rest * r[:, None]).T @ rest + RIDGE * b[:, :n_penalised] @ b[:, :n_penalised].T) / r.sum()
    return b, covariance, objective


@pytest.mark.parametrize("with_inputs", [False, True])
def test_em_is_a_plain_programs(with_inputs: bool) -> None:
    x, n_steps = jumping(150), 6
    inputs = np.random.default_rng(1).normal(size=(150, 1))
    inputs -= inputs.mean(0)  # ``intercepts_`` are those at the mean of the inputs
    x += 0.3 * inputs if with_inputs else 0.0
    x = (x - x.mean(0)) / x.std(0)
    observation = sm.AutoregressiveGaussian(ORDER, ridge=RIDGE, background=W)
    options = {"input_effects": sm.hmm.ChainInputEffects(emissions=True)} if with_inputs else {}
    data = sm.Sequences([x], inputs=[inputs]) if with_inputs else sm.Sequences([x])
    models = [
        sm.HMM(1, observation=observation, max_iter=n, tol=0.0, dtype="float64", **options).fit(data)  # type: ignore[arg-type]
        for n in (0, n_steps)
    ]
    past = np.concatenate([x[:-2], x[1:-1]], axis=1)
    z = np.concatenate([past, np.ones((148, 1)), *([inputs[2:]] if with_inputs else [])], axis=1)
    start = np.concatenate([models[0].coefficients_[0], models[0].intercepts_[0][:, None]], axis=1)
    start = np.pad(start, ((0, 0), (0, int(with_inputs))))
    before = (start, models[0].covariances_[0])
    b, covariance, objective = plain_em(z, x[2:], x[1:-1], before, ORDER * D, n_steps)
    assert_allclose(models[1].coefficients_[0], b[:, : ORDER * D], atol=1e-9)
    assert_allclose(models[1].intercepts_[0], b[:, ORDER * D], atol=1e-9)
    assert_allclose(models[1].covariances_[0], covariance, atol=1e-9)
    gains = np.diff(models[1].history_["log_prob"]) * len(x)
    assert_allclose(gains[: n_steps - 1], np.diff(objective), atol=1e-7)
    assert gains[0] > 1  # there was something to learn


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("hole", [False, True])
def test_densities_and_weights_are_the_observations(dtype: torch.dtype, hole: bool) -> None:
    """Also of jumps so far that either density underflows, of first steps and where values are missing."""
    observation = sm.AutoregressiveGaussian(ORDER, background=W)
    emission = AutoregressiveEmission(observation, D)
    x = torch.as_tensor(jumping(40)).to(dtype)
    x[20] += 1e5
    past = past_steps(x.unsqueeze(0), ORDER)
    assert past is not None
    past = past[0]
    if hole:
        x[30, 0] = torch.nan
    generator = torch.Generator().manual_seed(0)
    table = 0.3 * torch.randn(3, observation.n_output_parameters(D), generator=generator, dtype=torch.float64)
    table = emission.tie(table)
    wanted = observation.log_prob(table, x.double().unsqueeze(1), past.double().unsqueeze(1))
    rtol = 1e-10 if dtype == torch.float64 else 1e-5
    assert_allclose(emission.log_prob(table, x, past, dtype), wanted, rtol=rtol, atol=rtol)
    densities, memo = emission.evaluate(table, x, past, dtype, Scratch())
    assert_allclose(densities.log(), wanted, rtol=rtol, atol=rtol)
    regressions = observation.clone().set_params(background=0.0)
    follows = regressions.log_prob(table, x.double().unsqueeze(1), past.double().unsqueeze(1)) + math.log1p(-W)
    assert_allclose(memo.share, (follows - wanted).exp(), atol=1e-10 if dtype == torch.float64 else 2e-5)
    gamma = torch.rand(40, 3, generator=generator, dtype=torch.float64)
    (sums,) = emission.statistics(table, x.double(), past.double(), gamma)
    emission_of_regressions = AutoregressiveEmission(regressions, D)
    weighted = gamma * (follows - wanted).exp()
    (by_weights,) = emission_of_regressions.statistics(table, x.double(), past.double(), weighted)
    assert_allclose(sums, by_weights, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_states", [1, 2])
@pytest.mark.parametrize("hole", [False, True])
def test_the_objective_never_falls_and_is_the_score(n_states: int, hole: bool) -> None:
    x = jumping(200, seed=2)
    if hole:
        x[np.random.default_rng(0).random(x.shape) < 0.1] = np.nan
    observation = sm.AutoregressiveGaussian(1, predictive="plug-in")
    model = sm.HMM(n_states, observation=observation, max_iter=15, tol=0.0, dtype="float64", n_init=1)
    model.fit([x])
    objective = model.history_["objective"].to_numpy()
    assert (np.diff(objective) > -1e-9).all()
    assert objective[-1] > objective[0]
    assert model.score([x]) == pytest.approx(model.history_["log_prob"].iloc[-1], rel=1e-9)
    half = model.stream()
    steps = [half.update(frame) for frame in x]
    assert_allclose(steps, model.log_prob_steps([x])[0], rtol=1e-8, atol=1e-9)


def test_steps_ahead_have_the_moments_of_all_paths() -> None:
    """Every choice of regression or jump at each of three steps is a linear-Gaussian path of its own."""
    w, k = 0.2, 3
    observation = sm.AutoregressiveGaussian(ORDER, background=w)
    matrix = torch.tensor([[0.3, 0.1, 0.5, -0.2], [0.0, -0.3, 0.2, 0.6]]).double()
    noise = torch.tensor([[0.5, 0.2], [0.2, 0.4]]).double()
    shape = gaussian.shape_of_covariance(noise)
    row = observation.pack(matrix, torch.tensor([1.0, -2.0]).double(), shape, torch.zeros(2).double(), shape)
    past = torch.tensor([[[1.0, 2.0], [3.0, -1.0]], [[0.0, 0.0], [5.0, 5.0]]]).double()
    steps = gaussian_steps(observation, row, past, k)
    for sequence, (h, step) in itertools.product(range(2), enumerate(steps, start=1)):
        total, first, second, free = 0.0, np.zeros(D), np.zeros((D, D)), None
        for jumps in itertools.product([False, True], repeat=h):
            mean, spread = past[sequence].flatten().numpy(), np.zeros((4, 4))
            for jump in jumps:
                rows = np.eye(4)[2:] if jump else matrix.numpy()
                a = np.concatenate([np.eye(4)[2:], rows])
                mean, spread = a @ mean, a @ spread @ a.T
                mean[2:] += 0.0 if jump else np.array([1.0, -2.0])
                spread[2:, 2:] += 10 * np.eye(2) if jump else noise.numpy()
            mean, spread = mean[2:], spread[2:, 2:]
            if not any(jumps):
                free = mean, spread
                continue
            p = w ** sum(jumps) * (1 - w) ** (h - sum(jumps))
            total, first, second = total + p, first + p * mean, second + p * (spread + np.outer(mean, mean))
        assert free is not None
        assert_allclose(step.log_weights[sequence].exp(), [(1 - w) ** h, total], rtol=1e-12)
        assert_allclose(step.means[sequence, 0], free[0], rtol=1e-12)
        assert_allclose(step.covariances[sequence, 0], free[1], rtol=1e-12)
        mean = first / total
        assert_allclose(step.means[sequence, 1], mean, rtol=1e-12)
        assert_allclose(step.covariances[sequence, 1], second / total - np.outer(mean, mean), rtol=1e-10, atol=1e-10)


def test_the_mean_of_the_states_forecast_is_that_of_the_steps_ahead() -> None:
    x = jumping(100)
    observation = sm.AutoregressiveGaussian(ORDER, background=0.1)
    model = sm.HMM(1, observation=observation, max_iter=3, dtype="float64").fit([x])
    assert_allclose(model.forecast_states([x], 5)[0].mean.ravel(), model.forecast([x], 5).frame["mean"], rtol=1e-9)

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import seqmodels as sm
from seqmodels.observations import AutoregressiveGaussian, gaussian
from seqmodels.observations.gaussian import CovarianceType
from tests.past_steps import past_steps

TYPES: list[CovarianceType] = ["diag", "full"]
P, D = 2, 2
A1 = np.array([[0.5, -0.2], [0.1, 0.3]])  # of x_{t-1}
A2 = np.array([[-0.3, 0.0], [0.2, 0.1]])  # of x_{t-2}
INTERCEPT, FIRST_MEAN = np.array([0.2, -1.0]), np.array([3.0, 4.0])
SIGMA = {"full": np.array([[0.5, 0.2], [0.2, 0.4]]), "diag": np.diag([0.5, 0.4])}
FIRST_SIGMA = {"full": np.array([[2.0, -0.5], [-0.5, 1.0]]), "diag": np.diag([2.0, 1.0])}


def shape_of(kind: CovarianceType, covariance: np.ndarray) -> Tensor:
    tensor = torch.as_tensor(covariance)
    return gaussian.shape_of_covariance(tensor) if kind == "full" else tensor.diagonal().log()


def var(kind: CovarianceType, background: float = 0.0) -> tuple[AutoregressiveGaussian, Tensor]:
    observation = AutoregressiveGaussian(P, kind, background=background)
    coefficients = torch.as_tensor(np.concatenate([A2, A1], axis=1))  # oldest step first
    parts = (INTERCEPT, shape_of(kind, SIGMA[kind]), FIRST_MEAN, shape_of(kind, FIRST_SIGMA[kind]))
    return observation, observation.pack(coefficients, *(torch.as_tensor(part) for part in parts))


def simulated(n: int = 8) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, D))


def by_hand(x: np.ndarray, kind: CovarianceType) -> list[float]:
    first = stats.multivariate_normal(FIRST_MEAN, FIRST_SIGMA[kind])
    steps = [float(first.logpdf(x[t])) for t in range(P)]
    for t in range(P, len(x)):
        mean = A1 @ x[t - 1] + A2 @ x[t - 2] + INTERCEPT
        steps.append(float(stats.multivariate_normal(mean, SIGMA[kind]).logpdf(x[t])))
    return steps


@pytest.mark.parametrize("kind", TYPES)
def test_density_is_a_vars(kind: CovarianceType) -> None:
    observation, output_parameters = var(kind)
    assert (observation.n_past, observation.sums_out_missing) == (P, False)
    x = torch.as_tensor(simulated())
    found = observation.log_prob(output_parameters, x, past_steps(x.unsqueeze(0), P)[0])  # type: ignore[index]
    np.testing.assert_allclose(found, by_hand(x.numpy(), kind), rtol=1e-10)


@pytest.mark.parametrize("kind", TYPES)
def test_pack_undoes_unpack_and_sizes_agree(kind: CovarianceType) -> None:
    observation, output_parameters = var(kind)
    assert output_parameters.shape == (observation.n_output_parameters(D),)
    torch.testing.assert_close(observation.pack(*observation.unpack(output_parameters, D)), output_parameters)
    start = observation.starting_point(D, torch.Generator())
    assert start.shape == output_parameters.shape
    assert not observation.floor_hits(start, D)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("begun", [True, False])
def test_draws_have_the_conditional_moments(kind: CovarianceType, begun: bool) -> None:
    observation, output_parameters = var(kind)
    x = simulated(P)
    past = torch.as_tensor(x).clone()
    if not begun:
        past[0] = math.nan  # one step of the two is missing: still the beginning
    n = 40_000
    generator = torch.Generator().manual_seed(0)
    drawn = observation.sample(output_parameters.expand(n, -1), past.expand(n, -1, -1), generator)
    mean = A1 @ x[1] + A2 @ x[0] + INTERCEPT if begun else FIRST_MEAN
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), (SIGMA if begun else FIRST_SIGMA)[kind], atol=0.04)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("begun", [True, False])
def test_pyros_distribution_is_in_raw_units(kind: CovarianceType, begun: bool) -> None:
    observation, output_parameters = var(kind)
    states = torch.stack([output_parameters, output_parameters + 0.1])
    weights = torch.tensor([0.6, 0.4]).double()
    past = torch.as_tensor(simulated(P)).unsqueeze(0) if begun else torch.full((1, P, D), math.nan).double()
    shift, scale = torch.tensor([100.0, -3.0]).double(), torch.tensor([20.0, 0.1]).double()
    x = torch.as_tensor(simulated(6))
    each = observation.log_prob(states, x.unsqueeze(1), past)
    ours = torch.logsumexp(weights.log() + each, -1) - scale.log().sum()
    found = observation.distribution(states, log_weights=weights.log(), past=past, shift=shift, scale=scale)
    torch.testing.assert_close(found.log_prob(shift + scale * x), ours)


@pytest.mark.parametrize("kind", TYPES)
def test_an_incomplete_past_leaves_gradients_finite(kind: CovarianceType) -> None:
    observation, output_parameters = var(kind)
    leaf = output_parameters.clone().requires_grad_()
    x = torch.as_tensor(simulated(P))
    past = past_steps(x.unsqueeze(0), P)
    observation.log_prob(leaf, x.unsqueeze(0), past).sum().backward()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()
    coefficients, intercept, shape, first_mean, first_shape = observation.unpack(leaf.grad, D)
    assert all((part == 0).all() for part in (coefficients, intercept, shape))  # only first steps were seen
    assert all((part != 0).any() for part in (first_mean, first_shape))


@pytest.mark.parametrize("kind", TYPES)
def test_the_floor_bounds_the_density(kind: CovarianceType) -> None:
    observation = AutoregressiveGaussian(1, kind, min_covariance=1e-2, background=0.0)
    output_parameters = torch.zeros(observation.n_output_parameters(D)).double()
    coefficients, intercept, shape, *first = observation.unpack(output_parameters, D)
    shape = shape.clone()
    shape[:D] = 50.0 if kind == "full" else -50.0
    narrow = observation.pack(coefficients, intercept, shape, *first)
    x = torch.zeros(D).double()
    highest = -0.5 * D * math.log(2 * math.pi * 1e-2)
    assert float(observation.log_prob(narrow, x, torch.zeros(1, D).double())) == pytest.approx(highest)
    assert observation.floor_hits(torch.stack([narrow, output_parameters]), D).tolist() == [True, False]


def test_without_an_intercept_a_regression_is_through_zero() -> None:
    rng = np.random.default_rng(0)
    x = 5.0 + rng.normal(size=(200, 1))
    through_zero = sm.HMM(
        1,
        observation=AutoregressiveGaussian(1, ridge=0.0, intercept=False, background=0.0),
        encoding=sm.encodings.Standardize(with_mean=False),
    ).fit([x])
    assert through_zero.intercepts_[0, 0] == 0.0
    slope = float((x[1:] * x[:-1]).sum() / (x[:-1] ** 2).sum())
    assert through_zero.coefficients_[0, 0, 0] == pytest.approx(slope, rel=1e-9)
    through_mean = sm.HMM(1, observation=AutoregressiveGaussian(1, ridge=0.0, intercept=False, background=0.0)).fit([x])
    level = through_mean.intercepts_[0, 0] / (1 - through_mean.coefficients_[0, 0, 0])
    assert level == pytest.approx(float(x.mean()), rel=1e-9)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (AutoregressiveGaussian(1, "tied"), 'covariance_type="tied" shares one matrix over the states of an HMM'),
        (AutoregressiveGaussian(1, intercept=False), "intercept=False applies to the regressions of an HMM"),
    ],
)
def test_what_is_of_states_is_refused_by_a_network(observation: AutoregressiveGaussian, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.LSTM(d_model=4, max_steps=1, observation=observation).fit([simulated(20)])


def test_a_state_cannot_be_frozen_apart_from_the_covariance_it_shares() -> None:
    with pytest.raises(ValueError, match="covariance_type='tied' is one covariance for all states"):
        sm.HMM(
            2,
            observation=AutoregressiveGaussian(1, "tied"),
            training=sm.hmm.ChainTraining(frozen=sm.hmm.Frozen(emission=[0])),
            warm_start=True,
        ).fit([simulated(20)])


def test_a_unit_root_keeps_the_level_of_a_walk() -> None:
    """Least squares draws a walk to the mean of what it saw."""
    rng = np.random.default_rng(0)
    walk = [100 + np.cumsum(rng.normal(size=(300, 1)), axis=0)]
    free, fixed = (
        sm.HMM(1, observation=AutoregressiveGaussian(3, unit_root=u), dtype="float64", max_iter=5).fit(walk)
        for u in (0.0, 1e6)
    )
    assert float(fixed.coefficients_[0].sum()) == pytest.approx(1.0, abs=1e-3)
    assert float(free.coefficients_[0].sum()) < 0.995
    far = np.full((5, 1), 200.0)  # a level that was not in the training data
    assert fixed.forecast([far], 20).frame["mean"].iloc[-1] == pytest.approx(200, abs=5)
    assert free.forecast([far], 20).frame["mean"].iloc[-1] < 190
    with pytest.raises(ValueError, match="unit_root of AutoregressiveGaussian is -1"):
        sm.HMM(1, observation=AutoregressiveGaussian(unit_root=-1.0)).fit(walk)

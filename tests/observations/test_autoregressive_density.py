from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import seqmodels as sm
from seqmodels.common.storage import build, describe
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
    observation = AutoregressiveGaussian(1, ridge=0.0, intercept=False, background=0.0)
    through_mean = sm.HMM(1, observation=observation).fit([x])
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


# -- the background --------------------------------------------------------------------------------------------------

W = 0.2


def with_jumps(x: np.ndarray, past: np.ndarray, kind: CovarianceType) -> float:
    """``log p(x | past)`` of one step with a background, by scipy; NaN in x is missing, NaN in the past before it."""
    seen = ~np.isnan(x)
    begun = not np.isnan(past).any()
    mean = A1 @ past[1] + A2 @ past[0] + INTERCEPT if begun else FIRST_MEAN
    covariance, centre = (SIGMA if begun else FIRST_SIGMA)[kind], past[1] if begun else np.zeros(D)
    each = [
        stats.multivariate_normal(m[seen], c[np.ix_(seen, seen)]).pdf(x[seen])
        for m, c in ((mean, covariance), (centre, 10 * np.eye(D)))
    ]
    return math.log((1 - W) * each[0] + W * each[1])


@pytest.mark.parametrize("kind", TYPES)
def test_with_a_background_the_density_is_that_of_a_step_or_a_jump(kind: CovarianceType) -> None:
    observation, output_parameters = var(kind, W)
    x = simulated()
    x[5] += 20.0
    x[7, 1] = np.nan
    padded = np.concatenate([np.full((P, D), np.nan), x])
    past = np.stack([padded[t : t + P] for t in range(len(x))])
    found = observation.log_prob(output_parameters, torch.as_tensor(x), torch.as_tensor(past))
    np.testing.assert_allclose(found, [with_jumps(*each, kind) for each in zip(x, past, strict=True)], rtol=1e-10)
    each, others = observation.full_conditionals(output_parameters, torch.as_tensor(x), torch.as_tensor(past))
    without = x.copy()
    without[:, 0] = np.nan
    of_others = [with_jumps(*pair, kind) for pair in zip(without, past, strict=True) if not np.isnan(pair[0]).all()]
    np.testing.assert_allclose(others[: len(x) - 1, 0], of_others, rtol=1e-10)
    np.testing.assert_allclose((each + others)[: len(x) - 1, 0], found[: len(x) - 1], rtol=1e-10)


@pytest.mark.parametrize("kind", TYPES)
def test_an_uncertain_past_moves_the_regression_and_not_the_jumps(kind: CovarianceType) -> None:
    observation, output_parameters = var(kind, W)
    x, spread = torch.as_tensor(simulated(P + 1)), 0.3 * torch.eye(P * D).double()
    past = observation.join_past(x[:P].flatten(), spread)
    mean = A1 @ x[1].numpy() + A2 @ x[0].numpy() + INTERCEPT
    matrix = np.concatenate([A2, A1], axis=1)
    regression = stats.multivariate_normal(mean, SIGMA[kind] + 0.3 * matrix @ matrix.T).pdf(x[P])
    jump = stats.multivariate_normal(x[1], 10 * np.eye(D)).pdf(x[P])
    found = float(observation.log_prob(output_parameters, x[P], past))
    assert found == pytest.approx(math.log((1 - W) * regression + W * jump), rel=1e-10)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("begun", [True, False])
def test_pyros_distribution_and_draws_have_the_background(kind: CovarianceType, begun: bool) -> None:
    observation, output_parameters = var(kind, W)
    states = torch.stack([output_parameters, output_parameters + 0.1])
    log_weights = torch.tensor([0.6, 0.4]).double().log()
    past = torch.as_tensor(simulated(P)).unsqueeze(0) if begun else torch.full((1, P, D), math.nan).double()
    shift, scale = torch.tensor([100.0, -3.0]).double(), torch.tensor([20.0, 0.1]).double()
    x = torch.as_tensor(10 * simulated(6))
    each = observation.log_prob(states, x.unsqueeze(1), past)
    ours = torch.logsumexp(log_weights + each, -1) - scale.log().sum()
    found = observation.distribution(states, log_weights=log_weights, past=past, shift=shift, scale=scale)
    torch.testing.assert_close(found.log_prob(shift + scale * x), ours)
    n = 20_000
    generator = torch.Generator().manual_seed(0)
    drawn = observation.sample(output_parameters.expand(n, -1), past.expand(n, -1, -1), generator).numpy()[:, 0]
    mean = (A1 @ past[0, 1].numpy() + A2 @ past[0, 0].numpy() + INTERCEPT if begun else FIRST_MEAN)[0]
    deviation = math.sqrt((SIGMA if begun else FIRST_SIGMA)[kind][0, 0])
    centre = float(past[0, 1, 0]) if begun else 0.0

    def cdf(value: np.ndarray) -> np.ndarray:
        return np.asarray(
            (1 - W) * stats.norm.cdf(value, mean, deviation) + W * stats.norm.cdf(value, centre, math.sqrt(10))
        )

    assert stats.kstest(drawn, cdf).pvalue > 0.01


def test_a_jump_costs_tens_of_nats_and_other_steps_a_thousandth() -> None:
    rng = np.random.default_rng(0)
    smooth = np.sin(np.arange(300) / 10)[:, None] + 0.01 * rng.normal(size=(300, 1))
    jumps = smooth.copy()
    jumps[280:] += 30.0 * smooth.std()
    robust, plain = (
        sm.HMM(1, observation=AutoregressiveGaussian(2, background=w, predictive="plug-in")).fit([smooth[:200]])
        for w in (AutoregressiveGaussian().background, 0.0)
    )
    steps, of_plain = (model.log_prob_steps([jumps])[0] for model in (robust, plain))
    assert steps[280] > -60
    assert of_plain[280] < -10_000
    assert of_plain[:280].mean() - steps[:280].mean() == pytest.approx(0.001, abs=2e-4)


def test_a_background_is_a_probability_and_older_files_have_none(tmp_path: Path) -> None:
    model = sm.HMM(1, observation=AutoregressiveGaussian(1), max_iter=2).fit([simulated(30)])
    model.save(tmp_path / "new.safetensors")
    assert sm.load(tmp_path / "new.safetensors").observation_.background == 0.001
    described = describe(AutoregressiveGaussian(1))
    del described["params"]["background"], described["params"]["predictive"]
    older = build(described, {"AutoregressiveGaussian": AutoregressiveGaussian})
    assert older.get_params() == AutoregressiveGaussian(1, background=0.0, predictive="plug-in").get_params()
    for wrong in (-0.1, 1.0):
        with pytest.raises(ValueError, match="pass a probability of 0 or more, and below 1"):
            sm.HMM(1, observation=AutoregressiveGaussian(background=wrong)).fit([simulated(30)])

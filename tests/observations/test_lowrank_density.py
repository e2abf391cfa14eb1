"""Mixtures of Gaussians of covariance ``diag(v) + W Wᵀ`` against torch's LowRankMultivariateNormal."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal

import seqmodels as sm
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture, gaussian

M, D, R, FLOOR = 3, 5, 2, 1e-4


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def mixture(rank: int = R) -> tuple[GaussianMixture, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The observation, its parameters, and what they say: log-weights, means, variances, W."""
    observation = GaussianMixture(M, "lowrank", FLOOR, rank=rank)
    log_weights, means = torch.log_softmax(noise(M, seed=1), -1), 2 * noise(M, D, seed=2)
    log_variances, w = noise(M, D, seed=3), 1.5 * noise(M, D, rank, seed=4)
    output_parameters = observation.pack(log_weights, means, torch.cat([log_variances, w.flatten(-2)], -1))
    return observation, output_parameters, log_weights, means, log_variances.exp(), w


def test_a_covariance_times_a_factor() -> None:
    """A temperature of 4 gives four times the covariance."""
    log_variances, w = noise(D, seed=3), 1.5 * noise(D, R, seed=4)
    shape = torch.cat([log_variances, w.flatten()])
    log_scaled, factor = gaussian.unpack_lowrank(gaussian.scaled(shape, D, "lowrank", 4.0), D, FLOOR)
    covariance = torch.diag(log_scaled.exp()) + factor @ factor.T
    torch.testing.assert_close(covariance, 4 * (torch.diag(log_variances.exp()) + w @ w.T))


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_density_is_torchs(rank: int) -> None:
    observation, output_parameters, log_weights, means, variances, w = mixture(rank)
    x = 2 * noise(7, D)
    theirs = LowRankMultivariateNormal(means, w, variances).log_prob(x.unsqueeze(1))
    ours = observation.log_prob(output_parameters, x)
    torch.testing.assert_close(ours, torch.logsumexp(log_weights + theirs, -1), rtol=1e-10, atol=1e-10)
    assert observation.log_prob(output_parameters.expand(4, 1, -1), x).shape == (4, 7)
    assert output_parameters.shape == (observation.n_output_parameters(D),) == (M * (1 + D + D + D * rank),)


def test_missing_features_are_rows_left_out() -> None:
    observation, output_parameters, log_weights, means, variances, w = mixture()
    x = noise(1, D)[0]
    for seen in ([0, 2, 3], [4], [0, 1, 2, 3, 4]):
        holed = torch.full((D,), torch.nan).double()
        holed[seen] = x[seen]
        theirs = LowRankMultivariateNormal(means[:, seen], w[:, seen], variances[:, seen]).log_prob(x[seen])
        expected = torch.logsumexp(log_weights + theirs, -1)
        torch.testing.assert_close(observation.log_prob(output_parameters, holed), expected, rtol=1e-10, atol=1e-10)
    leaf = output_parameters.clone().requires_grad_()
    nothing = observation.log_prob(leaf, torch.full((D,), torch.nan).double())
    assert nothing.item() == pytest.approx(0.0, abs=1e-12)
    nothing.backward()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()


def test_float32_keeps_its_digits_where_one_direction_is_wide() -> None:
    """|z|² - |...|² would lose all of them: both are about 1e8."""
    shape = torch.cat([torch.full((D,), -4.0), 100 * noise(D, 1, seed=4).flatten().float()])
    w = shape[D:].double().unsqueeze(-1)
    x = 2 * w[:, 0] + 0.1 * noise(D)
    exact = MultivariateNormal(torch.zeros(D).double(), w @ w.T + math.exp(-4) * torch.eye(D).double()).log_prob(x)
    found = gaussian.log_density(x.float(), torch.zeros(D), shape, "lowrank", FLOOR)
    assert float(found) == pytest.approx(float(exact), abs=1e-2)


def test_draws_have_the_mean_and_the_covariance() -> None:
    observation, output_parameters, log_weights, means, variances, w = mixture()
    drawn = observation.sample(output_parameters.expand(40_000, -1), None, torch.Generator().manual_seed(0))
    p = log_weights.exp()
    mean = p @ means
    matrices = torch.diag_embed(variances) + w @ w.mT + means.unsqueeze(-1) * means.unsqueeze(-2)
    covariance = torch.einsum("m,mij->ij", p, matrices) - torch.outer(mean, mean)
    torch.testing.assert_close(drawn.mean(0), mean, rtol=0, atol=0.06)
    torch.testing.assert_close(torch.cov(drawn.T), covariance, rtol=0.03, atol=0.2)


def test_pyros_distribution_is_in_raw_units() -> None:
    observation, output_parameters, *_ = mixture()
    states = torch.stack([output_parameters, output_parameters + 0.1 * noise(len(output_parameters), seed=8)])
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    shift, scale = 100 * noise(D, seed=5), noise(D, seed=6).exp()
    found = observation.distribution(states, log_weights=weights.log(), past=None, shift=shift, scale=scale)
    z = noise(6, D)
    ours = torch.logsumexp(weights.log() + observation.log_prob(states, z.unsqueeze(1)), -1) - scale.log().sum()
    torch.testing.assert_close(found.log_prob(shift + scale * z), ours, rtol=1e-10, atol=1e-10)


def test_the_floor_bounds_the_density_and_is_counted() -> None:
    observation = GaussianMixture(1, "lowrank", FLOOR, rank=R)
    shape = torch.cat([torch.full((1, D), -1e3), torch.zeros(1, D * R)], -1).double()
    output_parameters = observation.pack(torch.zeros(1).double(), torch.zeros(1, D).double(), shape)
    highest = -0.5 * D * math.log(2 * math.pi * FLOOR)
    assert float(observation.log_prob(output_parameters, torch.zeros(D).double())) == pytest.approx(highest)
    shape[0, 1:D] = 0.0
    one = observation.pack(torch.zeros(1).double(), torch.zeros(1, D).double(), shape)
    shape[0, 0] = math.log(FLOOR) + 1e-3
    none = observation.pack(torch.zeros(1).double(), torch.zeros(1, D).double(), shape)
    assert observation.floor_hits(torch.stack([output_parameters, one, none]), D).tolist() == [True, True, False]


def test_networks_start_off_the_saddle_at_zero() -> None:
    observation = GaussianMixture(M, "lowrank", rank=R)
    start = observation.starting_point(D, torch.Generator().manual_seed(0)).requires_grad_()
    observation.log_prob(start, noise(50, D).float()).sum().backward()
    assert start.grad is not None
    assert (observation.unpack(start.grad, D)[2] != 0).all()
    assert observation.sample(start.detach().expand(4, -1), None, torch.Generator()).shape == (4, D)
    assert not observation.floor_hits(start, D)


def test_a_network_learns_a_common_direction() -> None:
    """Four features that are one number and a little noise: a diagonal pays for each of them."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(30, 1)) + 0.3 * rng.normal(size=(30, 4)) for _ in range(40)]
    same = {"d_model": 4, "max_steps": 100, "batch_size": 20, "lr": 0.03}
    scores = {
        kind: sm.GRU(observation=GaussianMixture(1, kind), **same).fit(X[:20], validation=None).score(X[20:])
        for kind in ("diag", "lowrank")
    }
    exact = MultivariateNormal(torch.zeros(4), torch.ones(4, 4) + 0.09 * torch.eye(4))
    assert scores["diag"] < -5
    assert scores["lowrank"] == pytest.approx(-float(exact.entropy()), abs=0.4)


def test_hmms_refuse_it_and_ranks_are_checked() -> None:
    X = [noise(6, 2).numpy(), noise(5, 2, seed=1).numpy()]
    with pytest.raises(ValueError, match="covariance_type='lowrank' is for networks; under an HMM use 'full'"):
        sm.HMM(2, observation=GaussianMixture(2, "lowrank")).fit(X)
    with pytest.raises(ValueError, match='covariance_type is \'lowrank\'; pass "diag", "spherical", "full" or "tied"'):
        sm.HMM.from_parameters(
            [1.0], [[1.0]], means=np.zeros((1, 2)), covariances=np.ones((1, 2)), covariance_type="lowrank"
        )
    with pytest.raises(ValueError, match="rank is 3; pass at least 1, and at most 2"):
        sm.LSTM(max_steps=1, observation=GaussianMixture(2, "lowrank", rank=3)).fit(X)
    for covariance_type in ("lowrank", "diag"):
        with pytest.raises(ValueError, match="rank of GaussianMixture is -1; pass an integer from 1 on"):
            sm.LSTM(max_steps=1, observation=GaussianMixture(2, covariance_type, rank=-1)).fit(X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"covariance_type of .* is 'lowrank'; pass .diag., .full. or .tied."):
        sm.LSTM(max_steps=1, observation=AutoregressiveGaussian(1, "lowrank")).fit(X)  # type: ignore[arg-type]

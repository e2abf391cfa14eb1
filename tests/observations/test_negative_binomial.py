"""The negative binomial distribution: its Poisson limit, zeros alone, and sizes by EM at counts of any magnitude."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize, stats

import seqmodels as sm
from seqmodels.hmm.emissions import emission_of
from seqmodels.observations import NegativeBinomial

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [1e-3, 0.7, 19.9, 20.1, 1e4])
@pytest.mark.parametrize("mean", [0.01, 3.0, 1e5])
def test_log_probs_keep_their_digits(size: float, mean: float) -> None:
    row = torch.tensor([np.log(mean), np.log(size)], dtype=torch.float64)
    x = np.array([0.0, 1.0, 7.0, 90_000.0])
    found = NegativeBinomial().log_prob(row, torch.as_tensor(x)[:, None])
    assert_allclose(found, stats.nbinom(size, size / (size + mean)).logpmf(x), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mean", [0.01, 3.0, 300.0])
def test_the_largest_size_is_poissons(mean: float) -> None:
    row = torch.tensor([np.log(mean), 100.0], dtype=torch.float64)
    x = np.array([0.0, 1.0, 7.0, 310.0])
    found = NegativeBinomial().log_prob(row, torch.as_tensor(x)[:, None])
    assert_allclose(found, stats.poisson(mean).logpmf(x), rtol=2e-6, atol=1e-3)


def test_counts_that_vary_like_poissons_come_to_the_limit() -> None:
    X = [RNG.binomial(20, 0.3, (100, 1)).astype(float) for _ in range(3)]  # less than Poisson's
    model = sm.HMM(1, observation=NegativeBinomial(), dtype="float64").fit(X)
    assert model.dispersions_[0, 0] == pytest.approx(1e-8, rel=1e-3)
    poisson = sm.HMM(1, observation=sm.Poisson(), dtype="float64").fit(X)
    assert model.score(X) == pytest.approx(poisson.score(X), abs=1e-7)
    assert model.measure_ == poisson.measure_


def test_a_state_of_zeros_does_not_forbid_other_counts() -> None:
    X = [np.repeat(RNG.integers(0, 2, 12), 6)[:, None] * RNG.poisson(30.0, (72, 1)).astype(float) for _ in range(4)]
    model = sm.HMM(2, observation=NegativeBinomial(), n_init=2, dtype="float64").fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert np.isfinite(model.score([np.array([[0.0], [1.0], [0.0]])]))
    emission, x = emission_of(NegativeBinomial(), 1), torch.zeros(10, 1, dtype=torch.float64)
    table = emission.maximise(emission.statistics(x[:1].expand(1, 2), x, None, x + 1), x[:1].expand(1, 2))
    assert table[0, 0] == -40
    assert NegativeBinomial().log_prob(table, torch.tensor([[0.0], [1.0]])).tolist() == pytest.approx([0, -40], abs=1)


@pytest.mark.parametrize(("mean", "size"), [(3.0, 0.3), (400.0, 2.0), (5e6, 0.8)])
def test_sizes_are_the_most_likely_at_counts_of_any_magnitude(mean: float, size: float) -> None:
    X = [stats.nbinom(size, size / (size + mean)).rvs((80, 1), random_state=i).astype(float) for i in range(4)]
    model = sm.HMM(1, observation=NegativeBinomial(), dtype="float64", tol=1e-12).fit(X)
    x = np.concatenate(X)[:, 0]

    def loss(log_size: float) -> float:
        r = np.exp(log_size)
        return float(-stats.nbinom(r, r / (r + x.mean())).logpmf(x).mean())

    best = optimize.minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10})
    assert model.score(X) == pytest.approx(-best.fun, abs=1e-8)
    assert 1 / model.dispersions_[0, 0] == pytest.approx(np.exp(best.x), rel=1e-3)
    assert len(model.history_) < 20


def test_a_step_is_up_in_the_likelihood_from_any_size() -> None:
    emission = emission_of(NegativeBinomial(), 1)
    x = torch.as_tensor(stats.nbinom(2.0, 0.002).rvs((300, 1), random_state=0).astype(float))
    ones = torch.ones(300, 1, dtype=torch.float64)
    for log_size in (-6.0, 0.0, 5.0, 15.0):
        table, score = torch.tensor([[float(x.mean().log()), log_size]], dtype=torch.float64), -np.inf
        for _ in range(6):
            following = float(NegativeBinomial().log_prob(table, x).mean())
            assert following >= score - 1e-12
            score, table = following, emission.maximise(emission.statistics(table, x, None, ones), table)


def test_counts_are_not_scaled_and_others_are_refused() -> None:
    X = [RNG.poisson(3.0, (20, 2)).astype(float) for _ in range(3)]
    model = sm.HMM(2, observation=NegativeBinomial(), max_iter=3).fit(X)
    assert model.measure_.space == "N^2"
    with pytest.raises(ValueError, match="which must be a count"):
        model.score([np.array([[0.5, 1.0]])])

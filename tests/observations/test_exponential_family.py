"""Bernoulli and Poisson against scipy, by sums over all values, and where something is certain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from seqmodels.observations import Bernoulli, Poisson
from seqmodels.observations.exponential_family import ExponentialFamily

INF, NAN = torch.inf, torch.nan
ETA = torch.tensor([[0.3, -2.0, 1.1], [4.0, 0.0, -1.0]], dtype=torch.float64)  # two states, three features
FAMILIES: list[ExponentialFamily] = [Bernoulli(), Poisson()]
both = pytest.mark.parametrize("family", FAMILIES, ids=repr)


def values(family: ExponentialFamily) -> torch.Tensor:
    largest = 1 if isinstance(family, Bernoulli) else 400
    return torch.arange(largest + 1, dtype=torch.float64)


def test_log_prob_is_scipys() -> None:
    bits, counts = torch.tensor([[1.0, 0.0, 1.0]]).double(), torch.tensor([[3.0, 0.0, 11.0]]).double()
    p, rates = torch.sigmoid(ETA).numpy(), ETA.exp().numpy()
    np.testing.assert_allclose(Bernoulli().log_prob(ETA, bits), stats.bernoulli.logpmf(bits, p).sum(-1))
    np.testing.assert_allclose(Poisson().log_prob(ETA, counts), stats.poisson.logpmf(counts, rates).sum(-1))


@both
def test_probabilities_sum_to_one_and_the_mean_is_the_expected_value(family: ExponentialFamily) -> None:
    x = values(family)
    p = family.log_prob(ETA[:, :1].unsqueeze(1), x.unsqueeze(-1)).exp()  # (states, values)
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(p @ x, family.expected_value(ETA[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(family.natural_parameter(family.expected_value(ETA)), ETA, rtol=1e-12)
    linear = x * ETA[:, :1] - family.log_normaliser(ETA[:, :1]) + family.log_base_measure(x)
    np.testing.assert_allclose(linear.exp(), p, rtol=1e-9)


@both
def test_missing_values_are_summed_out(family: ExponentialFamily) -> None:
    x = torch.tensor([1.0, NAN, 0.0]).double()
    filled = torch.stack([torch.tensor([1.0, float(v), 0.0]).double() for v in values(family)])
    total = family.log_prob(ETA.unsqueeze(1), filled).logsumexp(1)
    np.testing.assert_allclose(family.log_prob(ETA, x), total, rtol=1e-12)
    assert family.log_prob(ETA, torch.full((3,), NAN)).tolist() == [0.0, 0.0]


def test_what_is_certain_is_exact_and_has_finite_gradients() -> None:
    eta = torch.tensor([[-INF, INF]], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [NAN, NAN]]).double()
    found = Bernoulli().log_prob(eta, x)
    assert found.tolist() == [0.0, -INF, -INF, 0.0]
    found[0].backward()
    assert eta.grad is not None
    assert torch.isfinite(eta.grad).all()
    never = torch.tensor([[-INF]], dtype=torch.float64)
    assert Poisson().log_prob(never, torch.tensor([[0.0], [2.0]]).double()).tolist() == [0.0, -INF]


@both
def test_draws_have_the_mean_and_the_variance(family: ExponentialFamily) -> None:
    drawn = family.sample(ETA[:1].expand(20_000, -1), None, torch.Generator().manual_seed(0))
    mean = family.expected_value(ETA[0])
    variance = mean * (1 - mean) if isinstance(family, Bernoulli) else mean
    assert drawn.dtype == torch.float64
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(drawn.var(0), variance, atol=0.1)


@both
def test_pyros_distribution_mixes_states(family: ExponentialFamily) -> None:
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    certain = ETA.clone()
    certain[0, 0] = -INF
    x = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    for eta in (ETA, certain):
        found = family.distribution(
            eta, log_weights=weights.log(), past=None, shift=torch.zeros(3), scale=torch.ones(3)
        )
        ours = torch.logsumexp(weights.log() + family.log_prob(eta, x.unsqueeze(1)), -1)
        torch.testing.assert_close(found.log_prob(x), ours)
        torch.testing.assert_close(found.mean, weights @ family.expected_value(eta))


def test_networks_start_at_the_mean() -> None:
    generator = torch.Generator()
    assert Bernoulli().starting_point(3, generator).tolist() == [0.0, 0.0, 0.0]
    start = Poisson(mean=[2.0, 5.0]).starting_point(2, generator)
    np.testing.assert_allclose(start.exp(), [2.0, 5.0], rtol=1e-6)
    assert start.dtype == torch.float32


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Bernoulli(-1.0), "pseudocount is -1.0; pass a number from 0 on"),
        (Poisson(np.nan), "pseudocount is nan"),
        (Bernoulli(mean=1.0), "mean is 1.0; pass numbers above 0 and below 1.0"),
        (Poisson(mean=0.0), "mean is 0.0; pass numbers above 0 and below inf"),
        (Bernoulli(mean=[0.5, 0.5]), r"mean has shape \(2,\) but there are 3 features"),
    ],
)
def test_hyperparameters_that_cannot_be(family: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.check(3)

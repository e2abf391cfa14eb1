"""Zero-inflated counts: by sums over all values, against a search of the maximum, and where values are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize, stats

import seqmodels as sm
from seqmodels.hmm.emissions import emission_of
from seqmodels.observations import NegativeBinomial, Observation, ZeroInflated

RNG = np.random.default_rng(0)
INNER = [sm.Poisson(), NegativeBinomial()]
both = pytest.mark.parametrize("inner", INNER, ids=repr)
LOGITS, RATES = np.array([-1.0, 0.5]), np.array([4.0, 0.7])


def frames(n: int) -> np.ndarray:
    x = RNG.poisson(RATES, (n, 2)).astype(float)
    return np.where(RNG.random((n, 2)) < 1 / (1 + np.exp(-LOGITS)), 0.0, x)


X = [frames(80) for _ in range(4)]


def test_log_probs_are_those_of_the_mixture_and_sum_to_one() -> None:
    row = torch.tensor([*LOGITS, *np.log(RATES)], dtype=torch.float64)
    w, x = 1 / (1 + np.exp(-LOGITS)), frames(30)
    expected = np.log(np.where(x == 0, w, 0) + (1 - w) * stats.poisson(RATES).pmf(x)).sum(1)
    observation = ZeroInflated(sm.Poisson())
    assert_allclose(observation.log_prob(row, torch.as_tensor(x)), expected, rtol=1e-10)
    missing = torch.tensor([[np.nan, 2.0]], dtype=torch.float64)
    first = torch.stack([torch.arange(60.0).double(), torch.full((60,), 2.0).double()], 1)
    assert_allclose(observation.log_prob(row, missing), observation.log_prob(row, first).logsumexp(0), rtol=1e-10)
    drawn = observation.sample(row.expand(20_000, 4), None, torch.Generator().manual_seed(0))
    assert_allclose((drawn == 0).double().mean(0), w + (1 - w) * np.exp(-RATES), atol=0.015)
    assert_allclose(drawn.mean(0), (1 - w) * RATES, atol=0.06)


@pytest.mark.slow
def test_one_state_is_the_estimate_of_maximum_likelihood() -> None:
    model = sm.HMM(1, observation=ZeroInflated(sm.Poisson()), dtype="float64", tol=1e-10, max_iter=500).fit(X)
    x, best = np.concatenate(X), 0.0
    for d in range(2):

        def loss(theta: np.ndarray, x: np.ndarray = x[:, d]) -> float:
            w = 1 / (1 + np.exp(-theta[0]))
            return float(-np.log(np.where(x == 0, w, 0) + (1 - w) * stats.poisson.pmf(x, np.exp(theta[1]))).mean())

        best -= optimize.minimize(loss, [LOGITS[d], np.log(RATES[d])], method="Nelder-Mead", tol=1e-8).fun
    assert model.score(X) == pytest.approx(best, abs=1e-6)
    assert_allclose(model.zero_weights_[0], 1 / (1 + np.exp(-LOGITS)), atol=0.12)
    assert_allclose(model.rates_[0], RATES, rtol=0.2)


@both
def test_em_never_goes_down_and_missing_values_are_left_out(inner: Observation, tmp_path: Path) -> None:
    holes = [x.copy() for x in X]
    holes[0][3, 0] = holes[1][5] = np.nan
    model = sm.HMM(2, observation=ZeroInflated(inner), max_iter=10, n_init=1, tol=0.0, dtype="float64").fit(holes)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.measure_.space == "N^2"
    assert model.zero_weights_.shape == (2, 2)
    model.save(tmp_path / "model")
    np.testing.assert_allclose(sm.load(tmp_path / "model").log_prob(holes), model.log_prob(holes), rtol=1e-12)
    emission = emission_of(ZeroInflated(inner), 2)
    x, table = torch.as_tensor(holes[0]), model.parameters_.table
    gamma = torch.rand(len(x), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = emission.statistics(table, x, None, gamma)
    pairs = zip(x.split(30), gamma.split(30), strict=True)
    parts = [emission.statistics(table, part, None, weights) for part, weights in pairs]
    for i, sums in enumerate(whole):
        assert_allclose(sum(part[i] for part in parts), sums, rtol=1e-10, atol=1e-12)
    gamma[:, 1] = 0
    kept = emission.maximise(emission.statistics(table, x, None, gamma), table)
    assert_allclose(kept[1], table[1])


@both
def test_networks_take_it(inner: Observation) -> None:
    network = sm.LSTM(d_model=4, max_steps=3, observation=ZeroInflated(inner)).fit(X)
    assert np.isfinite(network.score(network.sample(length=9, random_state=0)))


def test_what_is_not_of_counts_is_refused() -> None:
    for wrong in (sm.GaussianMixture(1), sm.Bernoulli(), ZeroInflated(sm.Poisson()), 3):
        with pytest.raises(ValueError, match="pass a distribution of counts, such as Poisson"):
            ZeroInflated(wrong).check(2)  # type: ignore[arg-type]

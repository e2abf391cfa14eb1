"""Zero-inflated counts and amounts: by sums over all values, against searches of the maximum, with missing values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize, special, stats

import seqmodels as sm
from seqmodels.hmm.emissions import emission_of
from seqmodels.observations import Gamma, LogNormal, NegativeBinomial, Observation, ZeroInflated

RNG = np.random.default_rng(0)
LOGITS, RATES = np.array([-1.0, 0.5]), np.array([4.0, 0.7])


def frames(n: int) -> np.ndarray:
    x = RNG.poisson(RATES, (n, 2)).astype(float)
    return np.where(RNG.random((n, 2)) < 1 / (1 + np.exp(-LOGITS)), 0.0, x)


def amounts(n: int) -> np.ndarray:
    return np.where(RNG.random((n, 2)) < [0.3, 0.6], 0.0, RNG.gamma(2.0, [5.0, 0.1], (n, 2)))


X, AMOUNTS = [frames(80) for _ in range(4)], [amounts(80) for _ in range(4)]
INNER = [(sm.Poisson(), X), (NegativeBinomial(), X), (Gamma(), AMOUNTS), (LogNormal(), AMOUNTS)]
each = pytest.mark.parametrize(("inner", "data"), INNER, ids=[repr(inner) for inner, _ in INNER])


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


TWINS = [
    (Gamma(), [np.log(2.0), np.log(10.0)], stats.gamma(2.0, scale=5.0)),
    (LogNormal(), [1.5, np.log(0.7)], stats.lognorm(0.7, scale=np.exp(1.5))),
]


@pytest.mark.parametrize(("inner", "row", "twin"), TWINS, ids=["gamma", "log-normal"])
def test_amounts_are_0_with_a_probability_and_have_scipys_density_above(
    inner: Observation, row: list[float], twin: Any
) -> None:
    observation, w = ZeroInflated(inner), 0.3
    table = torch.tensor([np.log(w / (1 - w)), *row], dtype=torch.float64)
    x = np.array([0.0, 1e-3, 2.5, 9.0, 80.0])
    at = torch.as_tensor(x[:, None])
    expected = np.where(x == 0, np.log(w), np.log1p(-w) + twin.logpdf(np.where(x == 0, 1.0, x)))
    assert_allclose(observation.log_prob(table, at), expected, rtol=1e-9)
    assert observation.log_prob(table, torch.tensor([[torch.nan]]).double()) == 0
    below_0 = torch.tensor([[-1e-9]], dtype=torch.float64)
    assert_allclose(observation.marginal_cdfs(table, torch.cat([below_0, at]))[:, 0], [0, *(w + (1 - w) * twin.cdf(x))])
    assert_allclose(observation.marginal_means(table), [(1 - w) * twin.mean()], rtol=1e-9)
    drawn = observation.sample(table.expand(20_000, 3), None, torch.Generator().manual_seed(1)).numpy()[:, 0]
    assert (drawn == 0).mean() == pytest.approx(w, abs=0.015)
    assert stats.kstest(drawn[drawn > 0], twin.cdf).pvalue > 0.01


def test_one_state_of_amounts_is_the_share_of_zeros_and_scipys_fit_of_the_others() -> None:
    model = sm.HMM(1, observation=ZeroInflated(Gamma()), dtype="float64", tol=1e-10).fit(AMOUNTS)
    for d, x in enumerate(np.concatenate(AMOUNTS).T):
        shape, _, scale = stats.gamma.fit(x[x > 0], floc=0)
        found = model.zero_weights_[0, d], model.shapes_[0, d], model.rates_[0, d]
        assert_allclose(found, [(x == 0).mean(), shape, 1 / scale], rtol=1e-5)


def test_em_reaches_the_maximum_of_a_plain_likelihood() -> None:
    """The forward algorithm written out, maximised by scipy from where EM ended and from a point beside it."""
    rng = np.random.default_rng(3)
    z = np.cumsum(rng.random(300) < 0.1) % 2
    x = np.where(rng.random(300) < np.where(z, 0.4, 0.05), 0.0, rng.gamma(2.0 + z, np.where(z, 0.5, 4.0)))

    def loss(theta: np.ndarray) -> float:
        w, stay = 1 / (1 + np.exp(-theta[:2])), 1 / (1 + np.exp(-theta[2:4]))
        shape, rate = np.exp(theta[4:6]), np.exp(theta[6:8])
        density = (1 - w) * stats.gamma.pdf(np.where(x > 0, x, 1.0)[:, None], shape, scale=1 / rate)
        b = np.where(x[:, None] == 0, w, density)
        alpha, total = np.array([first, 1 - first]), 0.0
        transition = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
        for t, of_step in enumerate(b):
            alpha = (alpha if t == 0 else alpha @ transition) * of_step
            total, alpha = total + np.log(alpha.sum()), alpha / alpha.sum()
        return float(-total)

    options = {"dtype": "float64", "tol": 1e-10, "max_iter": 2000, "random_state": 0, "start": "free"}
    model = sm.HMM(2, observation=ZeroInflated(Gamma()), **options).fit([x[:, None]])
    first = model.initial_[0]
    ends = [model.zero_weights_[:, 0], np.diag(model.transition_)]
    found = np.concatenate([special.logit(each) for each in ends] + [np.log(model.shapes_), np.log(model.rates_)], None)
    assert loss(found) == pytest.approx(-model.log_prob([x[:, None]])[0], rel=1e-9)
    for start in (found, found + 0.1 * rng.normal(size=8)):
        assert optimize.minimize(loss, start, method="BFGS").fun > loss(found) - 1e-4


@pytest.mark.parametrize("X", [AMOUNTS, [x[:, :1] for x in AMOUNTS]], ids=["two features", "one"])
def test_another_unit_changes_the_density_and_no_probability(X: list[np.ndarray]) -> None:
    observation = ZeroInflated(Gamma())
    steps = sm.HMM(2, observation=observation, max_iter=5, n_init=1, dtype="float64").fit(X)
    scaled = sm.HMM(2, observation=observation, max_iter=5, n_init=1, dtype="float64").fit([8 * x for x in X])
    for x, old, new in zip(X, steps.log_prob_steps(X), scaled.log_prob_steps([8 * x for x in X]), strict=True):
        assert_allclose(new, old - np.log(8) * (x > 0).sum(1), atol=1e-9)
    stream = steps.stream()
    assert_allclose([stream.update(x) for x in X[0]], steps.log_prob_steps(X)[0], atol=1e-9)
    predicted = steps.predict_next(X[0][:5])
    assert_allclose(predicted.log_prob(torch.as_tensor(X[0][:9])), _next(steps, X[0]), atol=1e-9)


def _next(model: sm.HMM, x: np.ndarray) -> list[float]:
    """Return the log-density of each of nine frames if it came after the first five."""
    return [model.log_prob_steps([np.vstack([x[:5], frame])])[0][-1] for frame in x[:9]]


def test_amounts_are_not_comparable_with_reals() -> None:
    models = {"amounts": sm.HMM(1, observation=ZeroInflated(Gamma())), "reals": sm.HMM(1)}
    with pytest.warns(UserWarning, match="feature 0 is 0 in"):
        models["reals"].fit(AMOUNTS)
    models["amounts"].fit(AMOUNTS)  # without a warning of repeats: a zero has a probability
    with pytest.raises(sm.IncomparableError, match=re.escape("space is 'R^2'")):
        sm.compare(models, AMOUNTS, baseline="amounts")


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


@each
def test_em_never_goes_down_and_missing_values_are_left_out(
    inner: Observation, data: list[np.ndarray], tmp_path: Path
) -> None:
    holes = [x.copy() for x in data]
    holes[0][3, 0] = holes[1][5] = np.nan
    model = sm.HMM(2, observation=ZeroInflated(inner), max_iter=10, n_init=1, tol=0.0, dtype="float64").fit(holes)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.measure_.space == ("N^2" if data is X else "({0}+R)^2")
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


@each
def test_networks_take_it(inner: Observation, data: list[np.ndarray]) -> None:
    network = sm.LSTM(d_model=4, max_steps=3, observation=ZeroInflated(inner)).fit(data)
    assert np.isfinite(network.score(network.sample(length=9, random_state=0)))


def test_what_is_neither_of_counts_nor_of_positive_values_is_refused() -> None:
    for wrong in (sm.GaussianMixture(1), sm.Bernoulli(), ZeroInflated(sm.Poisson()), 3):
        with pytest.raises(ValueError, match="pass a distribution of counts, such as Poisson"):
            ZeroInflated(wrong).check(2)  # type: ignore[arg-type]

"""Families of durations: against scipy's distributions, and M-steps against a search over all their parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize

from seqmodels.hmm.semi_markov.durations import DurationFamily, DurationName, duration_family

Array = NDArray[np.float64]
LONGEST = 12
NAMES: tuple[DurationName, ...] = ("negative-binomial", "poisson", "logarithmic", "categorical")


def value(family: DurationFamily, counts: Array, n_biased: float, row: Array) -> float:
    """What the M-step maximises, of one state."""
    log_p = family.log_pmf(torch.tensor(row)[None])[0].numpy()
    mean = np.exp(log_p) @ np.arange(1, LONGEST + 1)
    return float(counts[counts > 0] @ log_p[counts > 0] - n_biased * np.log(mean))


def searched(name: DurationName, family: DurationFamily, counts: Array, n_biased: float) -> float:
    """The maximum that a general search finds."""
    size = family.n_free if name != "categorical" else LONGEST

    def row(free: Array) -> Array:
        if name == "categorical":
            exp = np.exp(free - free.max())
            return np.asarray(exp / exp.sum())
        if name == "logarithmic":
            return -np.exp(free)
        return free if name == "poisson" else np.array([free[0], -np.exp(free[1])])

    results = [
        minimize(lambda free: -value(family, counts, n_biased, row(free)), start, method="BFGS").fun
        for start in np.random.default_rng(0).normal(size=(4, size))
    ]
    return -min(results)


def counts_of(seed: int) -> Array:
    return np.random.default_rng(seed).gamma(1.0, size=LONGEST) * np.exp(-0.2 * np.arange(LONGEST)) * 10


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_biased", [0.0, 7.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_m_step_finds_the_maximum(name: DurationName, n_biased: float, seed: int) -> None:
    family, counts = duration_family(name, LONGEST, 0.0), counts_of(seed)
    if name == "logarithmic":  # else the maximum is at p = 1
        counts = counts * np.exp(-0.4 * np.arange(LONGEST))
    before = family.with_mean(torch.tensor([3.0]))
    after = family.maximise(torch.tensor(counts)[None], torch.tensor([n_biased]), before)
    found = value(family, counts, n_biased, after[0].numpy())
    assert found > value(family, counts, n_biased, before[0].numpy()) + 1e-3
    assert_allclose(found, searched(name, family, counts, n_biased), rtol=0, atol=1e-6)


def test_states_that_are_hardly_ever_first_have_the_shares_of_their_counts() -> None:
    rng = np.random.default_rng(0)
    counts, n_biased = torch.tensor(10 * rng.random((40, LONGEST))), torch.tensor(10 ** rng.uniform(-18, -14, 40))
    family = duration_family("categorical", LONGEST, 0.0)
    after = family.maximise(counts, n_biased, torch.full((40, LONGEST), 1 / LONGEST, dtype=torch.float64))
    assert_allclose(after, counts / counts.sum(1, keepdim=True), rtol=1e-11)


def test_the_distributions_are_those_of_scipy_cut_off() -> None:
    d = np.arange(LONGEST)
    cases: dict[DurationName, tuple[list[float], Array]] = {
        "poisson": ([np.log(3.5)], stats.poisson.pmf(d, 3.5)),
        "negative-binomial": ([np.log(2.5), np.log(0.6)], stats.nbinom.pmf(d, 2.5, 0.4)),
        "logarithmic": ([np.log(0.8)], stats.logser.pmf(d + 1, 0.8)),
    }
    for name, (row, pmf) in cases.items():
        log_pmf = duration_family(name, LONGEST, 0.0).log_pmf(torch.tensor([row], dtype=torch.float64))
        assert_allclose(log_pmf[0].exp(), pmf / pmf.sum(), rtol=1e-12)


@pytest.mark.parametrize("name", [*NAMES, "geometric"])
def test_probabilities_sum_to_one_wherever_em_starts(name: DurationName) -> None:
    family = duration_family(name, LONGEST, 0.0)
    table = family.with_mean(torch.tensor([1.0, 2.5, 400.0]))
    family.check(table)
    assert_allclose(family.log_pmf(table).exp().sum(1), 1.0, rtol=1e-12)
    assert table.shape == (3, family.n_columns)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at", [0, LONGEST - 1])
def test_one_duration_alone_and_none_at_all(name: DurationName, at: int) -> None:
    family = duration_family(name, LONGEST, 0.0)
    before = family.with_mean(torch.tensor([3.0, 3.0]))
    counts = torch.zeros(2, LONGEST, dtype=torch.float64)
    counts[0, at] = 5.0
    after = family.maximise(counts, torch.tensor([1.0, 0.0]), before)
    family.check(after)
    assert torch.isfinite(after).all()
    assert_allclose(after[1], before[1])
    assert family.log_pmf(after)[0, at] > family.log_pmf(before)[0, at]


def test_logarithmic_durations_start_at_the_mean_where_they_can() -> None:
    family = duration_family("logarithmic", LONGEST, 0.0)
    pmf = family.log_pmf(family.with_mean(torch.tensor([1.5, 2.25, 400.0]))).exp()
    means = pmf @ torch.arange(1.0, LONGEST + 1, dtype=torch.float64)
    longest = LONGEST / (1 / np.arange(1, LONGEST + 1)).sum()  # of p = 1
    assert_allclose(means, [1.5, 2.25, longest], rtol=1e-6)


def test_a_pseudocount_keeps_durations_possible() -> None:
    family = duration_family("categorical", 4, 0.5)
    before = family.with_mean(torch.tensor([2.0]))
    after = family.maximise(torch.tensor([[3.0, 0.0, 0.0, 1.0]]).double(), torch.zeros(1), before)
    assert_allclose(after[0], np.array([3.5, 0.5, 0.5, 1.5]) / 6)
    assert_allclose(float(family.log_prior(after)), 0.5 * np.log(after[0].numpy()).sum())


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match="durations is 'weibull'; pass one of 'negative-binomial'"):
        duration_family("weibull", 4, 0.0)  # type: ignore[arg-type]

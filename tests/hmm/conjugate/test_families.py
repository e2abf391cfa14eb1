"""Every conjugate family, by what has a closed form: one state's evidence, and expectations over draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import betaln

import seqmodels as sm
from seqmodels.hmm import ConjugatePrior
from seqmodels.hmm.conjugate import conjugate_of
from seqmodels.inference.chains.scratch import Scratch

COUNT, MEAN_COUNT, MEAN, VARIANCE = 2.5, 0.4, 0.3, 1.7  # of a prior
VECTORS = ConjugatePrior(count=COUNT, mean_count=MEAN_COUNT, mean=MEAN, covariance=VARIANCE, initial=1, transition=1)
Evidence = Callable[[np.ndarray], float]


def student_evidence(x: np.ndarray) -> float:
    """Diagonal Gaussians: each value given those before it is Student's t."""
    total = 0.0
    for column in x.T:
        mean, count, shape, rate = MEAN, MEAN_COUNT, COUNT / 2, COUNT / 2 * VARIANCE
        for value in column[~np.isnan(column)]:
            scale = np.sqrt(rate / shape * (count + 1) / count)
            total += stats.t.logpdf(value, 2 * shape, mean, scale)
            rate += 0.5 * count / (count + 1) * (value - mean) ** 2
            mean, count, shape = (count * mean + value) / (count + 1), count + 1, shape + 0.5
    return total


def multivariate_student_evidence(x: np.ndarray) -> float:
    """Full Gaussians: each frame given those before it is multivariate t."""
    d = x.shape[1]
    mean, count, freedom = np.full(d, MEAN), MEAN_COUNT, COUNT + d - 1
    scatter, total = freedom * VARIANCE * np.eye(d), 0.0
    for frame in x:
        df = freedom - d + 1
        total += stats.multivariate_t.logpdf(frame, mean, scatter * (count + 1) / (count * df), df)
        scatter = scatter + count / (count + 1) * np.outer(frame - mean, frame - mean)
        mean, count, freedom = (count * mean + frame) / (count + 1), count + 1, freedom + 1
    return float(total)


def negative_binomial_evidence(x: np.ndarray) -> float:
    total = 0.0
    for column in x.T:
        shape, rate = COUNT * MEAN, COUNT
        for value in column:
            total += stats.nbinom.logpmf(value, shape, rate / (rate + 1))
            shape, rate = shape + value, rate + 1
    return total


def beta_evidence(x: np.ndarray) -> float:
    on, off = COUNT * MEAN, COUNT * (1 - MEAN)
    return float(sum(betaln(on + c.sum(), off + len(c) - c.sum()) - betaln(on, off) for c in x.T))


def dirichlet_evidence(x: np.ndarray) -> float:
    concentrations, total = np.full(3, COUNT / 3), 0.0
    for symbol in x:
        total += np.log(concentrations[symbol] / concentrations.sum())
        concentrations[symbol] += 1
    return float(total)


RNG = np.random.default_rng(0)
PLAIN = ConjugatePrior(count=COUNT, mean=MEAN, initial=1, transition=1)
CASES: dict[str, tuple[Any, ConjugatePrior, np.ndarray, Evidence]] = {
    "diagonal": (sm.GaussianMixture(1), VECTORS, RNG.normal(size=(40, 2)) * 2, student_evidence),
    "full": (sm.GaussianMixture(1, "full"), VECTORS, RNG.normal(size=(40, 3)), multivariate_student_evidence),
    "poisson": (sm.Poisson(), PLAIN, RNG.poisson(3.0, (30, 2)).astype(float), negative_binomial_evidence),
    "bernoulli": (sm.Bernoulli(), PLAIN, (RNG.random((30, 2)) < 0.2).astype(float), beta_evidence),
    "categorical": (sm.Categorical(), ConjugatePrior(count=COUNT), RNG.integers(0, 3, 50), dirichlet_evidence),
    "columns": (
        sm.Columns([(sm.GaussianMixture(1), 1), (sm.Poisson(), 1), (sm.GaussianMixture(1, "full"), 2)]),
        VECTORS,
        np.hstack([RNG.normal(size=(30, 1)), RNG.poisson(3.0, (30, 1)), RNG.normal(size=(30, 2))]),
        lambda x: (
            student_evidence(x[:, :1]) + negative_binomial_evidence(x[:, 1:2]) + multivariate_student_evidence(x[:, 2:])
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_of_one_state_the_bound_is_the_evidence(name: str) -> None:
    observation, prior, x, evidence = CASES[name]
    model = sm.HMM(
        1,
        observation=observation,
        algorithm="variational",
        training=sm.hmm.ChainTraining(prior=prior),
        length="given",
        dtype="float64",
    )
    model.fit([x])
    expected = evidence(x)
    if isinstance(observation, sm.GaussianMixture | sm.Columns):
        shift, scale = model.encoding_.affine()
        expected = evidence((x - shift) / scale) - len(x) * np.log(scale).sum()
    assert model.lower_bound_ == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("observation", "n_features"),
    [
        (sm.GaussianMixture(1), 2),
        (sm.GaussianMixture(1), 1),
        (sm.Columns([(sm.GaussianMixture(1), 1), (sm.GaussianMixture(1), 1)]), 2),
    ],
)
def test_missing_values_of_diagonal_gaussians_drop_out_of_the_evidence(observation: Any, n_features: int) -> None:
    x = CASES["diagonal"][2].copy()
    x[3, 0] = x[7, 1] = x[8] = np.nan
    x = x[:, :n_features]
    model = sm.HMM(
        1,
        observation=observation,
        algorithm="variational",
        training=sm.hmm.ChainTraining(prior=VECTORS),
        dtype="float64",
    ).fit([x])
    shift, scale = model.encoding_.affine()
    log_det = ((~np.isnan(x)) * np.log(scale)).sum()
    assert model.lower_bound_ == pytest.approx(student_evidence((x - shift) / scale) - log_det, rel=1e-10)


FAMILIES: dict[str, tuple[Any, int, ConjugatePrior]] = {
    "diagonal": (sm.GaussianMixture(1), 2, VECTORS),
    "diagonal mixture": (sm.GaussianMixture(3), 2, VECTORS),
    "full": (sm.GaussianMixture(1, "full"), 2, VECTORS),
    "full mixture": (sm.GaussianMixture(2, "full"), 2, VECTORS),
    "poisson": (sm.Poisson(), 2, PLAIN),
    "bernoulli": (sm.Bernoulli(), 2, PLAIN),
    "columns": (sm.Columns([(sm.GaussianMixture(1), 1), (sm.GaussianMixture(1, "full"), 1)]), 2, VECTORS),
    "categorical": (sm.Categorical(), 3, ConjugatePrior(count=COUNT)),
}


def frames(observation: Any, n: int) -> torch.Tensor:
    rng = np.random.default_rng(1)
    if isinstance(observation, sm.Categorical):
        return torch.tensor(rng.integers(0, 3, n))
    x = {sm.Poisson: rng.poisson(2.0, (n, 2)), sm.Bernoulli: rng.random((n, 2)) < 0.4}
    return torch.tensor(x.get(type(observation), rng.normal(size=(n, 2)))).double()


@pytest.mark.parametrize("name", [name for name in FAMILIES if "mixture" not in name])
def test_densities_are_the_expectations_of_logarithms(name: str) -> None:
    """Of several components a frame's own is hidden, so that only a bound is known."""
    observation, size, prior = FAMILIES[name]
    family, x, n = conjugate_of(observation, size), frames(observation, 12), 400
    statistics = family.emission.statistics(
        family.mean(family.prior(prior, 2)), x, None, torch.tensor([[3.0, 1.0]]).double().expand(12, 2)
    )
    hyper = family.updated(family.prior(prior, 2), statistics)
    emission, table = family.expected_emission(hyper, family.mean(hyper))
    ours = emission.evaluate(table, x, None, torch.float64, Scratch())[0].log()
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack(
        [family.emission.log_prob(family.draw(hyper, generator), x, None, torch.float64) for _ in range(n)]
    )
    errors = (ours - draws.mean(0)).abs() / (draws.std(0) / n**0.5 + 1e-12)
    assert float(errors.max()) < 4.5


@pytest.mark.parametrize("name", FAMILIES)
def test_a_posterior_of_many_frames_draws_near_its_mean(name: str) -> None:
    observation, size, prior = FAMILIES[name]
    family, x = conjugate_of(observation, size), frames(observation, 60)
    start = family.prior(prior, 1)
    statistics = family.emission.statistics(family.mean(start), x, None, torch.full((60, 1), 1000.0).double())
    hyper = family.updated(start, statistics)
    generator = torch.Generator().manual_seed(0)
    mean = family.emission.log_prob(family.mean(hyper), x, None, torch.float64)
    drawn = family.emission.log_prob(family.draw(hyper, generator), x, None, torch.float64)
    torch.testing.assert_close(drawn, mean, rtol=0.02, atol=0.12)
    assert float(family.divergence(hyper, start)) > 0
    torch.testing.assert_close(family.divergence(start, start), torch.zeros(1).double(), atol=1e-10, rtol=0)


def test_observations_without_a_conjugate_prior_are_refused() -> None:
    for observation, message in (
        (sm.observations.StudentT(), "no conjugate prior"),
        (sm.GaussianMixture(1, "tied"), "no conjugate prior"),
        (sm.GaussianMixture(1, background=0.1), "background"),
        (sm.GaussianMixture(1, prior=sm.observations.PseudoFrames()), "prior"),
        (sm.Categorical(0.5), "pseudocount"),
    ):
        with pytest.raises(ValueError, match=message):
            conjugate_of(observation, 2)

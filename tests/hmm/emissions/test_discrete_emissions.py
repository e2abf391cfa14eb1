"""EM for Bernoulli, Poisson and Columns: against the observation, hmmlearn, enumeration, and by search."""

from __future__ import annotations

from typing import Any

import hmmlearn.hmm
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import Tensor

from seqmodels import HMM, Sequences
from seqmodels.hmm.emissions import Emission, categorical, emission_of
from seqmodels.observations import (
    AutoregressiveGaussian,
    Bernoulli,
    Categorical,
    Columns,
    GaussianMixture,
    Observation,
    Poisson,
)
from tests.inference.chains.enumeration import enumerate_paths
from tests.past_steps import past_steps

K, D, N = 3, 4, 40
F64 = torch.float64
INF = torch.inf
OBSERVATIONS: list[Observation] = [
    Bernoulli(),
    Bernoulli(0.7, [0.1, 0.5, 0.9, 0.3]),
    Poisson(),
    Poisson(0.7, 2.5),
    Columns([(Poisson(0.3), 1), (GaussianMixture(2), 2), (Bernoulli(), 1)]),
    Columns([(Bernoulli(), 1), (AutoregressiveGaussian(1), 2), (Poisson(), 1)]),
]
every_observation = pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
simple = pytest.mark.parametrize("observation", OBSERVATIONS[:4], ids=repr)


def frames(observation: Observation, n: int, generator: torch.Generator) -> Tensor:
    columns = {
        "reals": lambda: torch.randn(n, generator=generator, dtype=F64),
        "bits": lambda: torch.randint(2, (n,), generator=generator).double(),
        "counts": lambda: torch.poisson(torch.full((n,), 3.0, dtype=F64), generator=generator),
    }
    return torch.stack([columns[value]() for value in observation.values(D)], dim=1)


def random_case(observation: Observation, seed: int = 0) -> tuple[Emission, Tensor, Tensor, Tensor | None, Tensor]:
    """An emission, a table for it, N frames, their past, and posteriors."""
    generator = torch.Generator().manual_seed(seed)
    x = frames(observation, N, generator)
    gamma = torch.rand(N, K, generator=generator, dtype=F64) ** 3
    table = 0.5 * torch.randn(K, observation.n_output_parameters(D), generator=generator, dtype=F64)
    if observation.n_past:
        table[:, -6:-1] = table[0, -6:-1]  # the Gaussian of the first frames, which all states share
    past = past_steps(x.unsqueeze(0), observation.n_past)
    return emission_of(observation, D), table, x, None if past is None else past[0], gamma / gamma.sum(1, keepdim=True)


def holed(x: Tensor) -> Tensor:
    x = x.clone()
    x[::3, 0], x[1::4, 1:], x[5] = torch.nan, torch.nan, torch.nan
    return x


# -- E-step ------------------------------------------------------------------------------------------------


@every_observation
def test_log_prob_is_the_observations(observation: Observation) -> None:
    emission, table, x, past, _ = random_case(observation)
    before = None if past is None else past.unsqueeze(1)
    for frames in (x, holed(x)) if observation.sums_out_missing else (x,):
        wanted = observation.log_prob(table, frames.unsqueeze(1), before)
        assert_allclose(emission.log_prob(table, frames, past, F64), wanted, rtol=1e-10, atol=1e-10)


def test_what_is_certain_is_exact() -> None:
    table = torch.tensor([[-INF, 0.3], [INF, -1.0], [0.2, 0.1]], dtype=F64)
    x = torch.tensor([[0, 1], [1, 1], [torch.nan, 0], [1, torch.nan]], dtype=F64)
    for rows in (slice(None), slice(2)):  # with missing values, and without
        found = emission_of(Bernoulli(), 2).log_prob(table, x[rows], None, F64)
        assert_allclose(found, Bernoulli().log_prob(table, x[rows].unsqueeze(1)), rtol=1e-12)
    assert torch.isneginf(found).sum() == 2
    counts, table = torch.tensor([[0.0], [2.0]], dtype=F64), torch.tensor([[-INF], [1.0]], dtype=F64)
    found = emission_of(Poisson(), 1).log_prob(table, counts, None, F64)
    assert_allclose(found, Poisson().log_prob(table, counts.unsqueeze(1)))


def test_large_counts_are_exact_in_float32() -> None:
    x = torch.tensor([[1e5], [1.002e5]])
    table = torch.tensor([[1e5]], dtype=F64).log()
    wanted = stats.poisson.logpmf(x.double(), 1e5)
    assert_allclose(emission_of(Poisson(), 1).log_prob(table, x, None, torch.float32), wanted, rtol=1e-5)


@every_observation
def test_statistics_add_and_float32_is_close(observation: Observation) -> None:
    emission, table, x, past, gamma = random_case(observation)
    if observation.sums_out_missing:
        x = holed(x)
    whole = emission.statistics(table, x, past, gamma)
    parts = [
        emission.statistics(table, x[rows], None if past is None else past[rows], gamma[rows])
        for rows in torch.arange(N).split(11)
    ]
    narrow = emission.statistics(table, x.float(), None if past is None else past.float(), gamma.float())
    assert len(whole) == emission.n_statistics
    for total, low, *pieces in zip(whole, narrow, *parts, strict=True):
        assert total.dtype == low.dtype == F64
        assert_allclose(torch.stack(pieces).sum(0), total, rtol=1e-12, atol=1e-12)
        assert_allclose(low, total, rtol=1e-4, atol=1e-4)


# -- M-step ------------------------------------------------------------------------------------------------


@simple
def test_m_step_by_hand(observation: Any) -> None:
    emission, table, x, _, gamma = random_case(observation)
    x = holed(x)
    new = emission.maximise(emission.statistics(table, x, None, gamma), table)
    raw = emission.raw_parameters(new, np.zeros(D), np.ones(D))[observation.parameter_name]
    a, m = observation.pseudocount, np.broadcast_to(observation.mean, D)
    for k in range(K):
        for d in range(D):
            seen = ~torch.isnan(x[:, d]).numpy()
            g, v = gamma[seen, k].numpy(), x[seen, d].numpy()
            assert_allclose(raw[k, d], (g @ v + a * m[d]) / (g.sum() + a), rtol=1e-12)


@pytest.mark.parametrize(
    "observation",
    [*OBSERVATIONS[:4], Columns([(Poisson(0.3), 2), (GaussianMixture(1), 1), (Bernoulli(0.2), 1)])],
    ids=repr,
)
def test_no_step_from_the_m_step_goes_up(observation: Observation) -> None:
    """The prior that the M-step uses is the density that ``log_prior`` says."""
    emission, table, x, _, gamma = random_case(observation)

    def expected(table: Tensor) -> float:
        each = observation.log_prob(table, x.unsqueeze(1))
        return float((gamma * each).sum()) + emission.log_prior(table)

    best = emission.maximise(emission.statistics(table, x, None, gamma), table)
    top, generator = expected(best), torch.Generator().manual_seed(2)
    assert top > expected(table) + 1
    for _ in range(50):
        assert expected(best + 1e-3 * torch.randn(best.shape, generator=generator, dtype=F64)) < top


@simple
def test_log_prior_is_a_log_density(observation: Any) -> None:
    """Beta and Gamma, up to a constant."""
    emission, table, *_ = random_case(observation)
    a, m = observation.pseudocount, np.broadcast_to(observation.mean, D)
    value = observation.expected_value(table).numpy()
    if isinstance(observation, Bernoulli):
        density = stats.beta.logpdf(value, 1 + a * m, 1 + a * (1 - m)).sum((0, 1))
        constant = stats.beta.logpdf(0.5 + 0 * value, 1 + a * m, 1 + a * (1 - m)).sum() - K * D * a * np.log(0.5)
    else:
        density = stats.gamma.logpdf(value, 1 + a * m, scale=1 / a if a else 1e9).sum()
        constant = stats.gamma.logpdf(1 + 0 * value, 1 + a * m, scale=1 / a if a else 1e9).sum() + K * D * a
    assert_allclose(emission.log_prior(table), density - constant, rtol=1e-9, atol=1e-6)


@simple
def test_what_no_frame_shows_stays_or_is_the_priors(observation: Any) -> None:
    emission, table, x, _, gamma = random_case(observation)
    gamma[:, 1] = 0.0
    x[:, 2] = torch.nan
    new = emission.maximise(emission.statistics(table, x, None, gamma), table)
    prior = observation.natural_parameter(observation.prior_mean(D))
    kept = table if observation.pseudocount == 0 else prior.expand(K, D)
    assert_allclose(new[1], kept[1], rtol=1e-12)
    assert_allclose(new[:, 2], kept[:, 2], rtol=1e-12)


def test_names_that_two_groups_share_are_numbered() -> None:
    emission, table, *_ = random_case(Columns([(Poisson(), 1), (Bernoulli(), 1), (Poisson(), 2)]))
    raw = emission.raw_parameters(table, np.zeros(D), np.ones(D))
    assert {name: value.shape for name, value in raw.items()} == {
        "rates_0_": (K, 1),
        "probabilities_": (K, 1),
        "rates_2_": (K, 2),
    }
    assert emission.n_parameters(K) == K * D


# -- the whole HMM -----------------------------------------------------------------------------------------


def data(observation: Observation, lengths: tuple[int, ...] = (30, 1, 47, 18)) -> list[np.ndarray]:
    """Two regimes in runs of about six."""
    rng, result = np.random.default_rng(3), []
    for n in lengths:
        z = np.repeat(rng.integers(2, size=n // 6 + 1), 6)[:n, None]
        columns = {
            "reals": lambda z=z: 7 + 3 * z + rng.normal(size=z.shape),
            "bits": lambda z=z: rng.random(z.shape) < 0.2 + 0.6 * z,
            "counts": lambda z=z: rng.poisson(1 + 5 * z),
        }
        result.append(np.hstack([columns[value]() for value in observation.values(D)]).astype(float))
    return result


@every_observation
def test_the_likelihood_is_the_sum_over_paths(observation: Observation) -> None:
    x = data(observation)
    model = HMM(2, observation=observation, dtype="float64", max_iter=3).fit(x)
    part = x[0][:6]
    if observation.sums_out_missing:
        part[2, 1] = part[4] = np.nan
    encoded = torch.as_tensor(model.encoding_.encode(part))
    past = past_steps(encoded.unsqueeze(0), observation.n_past)
    before = None if past is None else past[0].unsqueeze(1)
    b = observation.log_prob(model.parameters_.table, encoded.unsqueeze(1), before).exp().numpy()
    found = enumerate_paths(model.initial_, model.transition_, b)
    assert_allclose(model.log_prob([part]), found.log_prob + np.sum(model.encoding_.log_det(part)), rtol=1e-10)
    assert_allclose(model.posterior([part])[0], found.gamma, atol=1e-10)


@pytest.mark.quick_cases(2)
@every_observation
def test_em_increases_the_likelihood_and_finds_the_regimes(observation: Observation) -> None:
    x = data(observation)
    model = HMM(2, observation=observation, dtype="float64", tol=0.0, max_iter=20, pseudocount=0.1).fit(x)
    steps = np.diff(model.history_["objective"])
    assert (steps > -1e-10).all()
    assert model.score(x) > HMM(1, observation=observation, dtype="float64").fit(x).score(x) + 0.05


def test_a_starts_bits_are_possible_wherever_they_were_seen() -> None:
    x = [np.array([[0.0, 1.0, 0.0]] * 5 + [[1.0, 0.0, 0.0]] * 5)]
    model = HMM(2, observation=Bernoulli(), max_iter=0).fit(x)
    assert (model.probabilities_[:, :2] > 0).all()
    assert (model.probabilities_[:, 2] == 0).all()
    assert np.isfinite(model.score(x))
    assert model.fit(x).score([np.array([[0.0, 0.0, 1.0]])]) == -np.inf


@pytest.mark.parametrize("n_iter", [1, 10])
def test_poisson_em_is_hmmlearns(n_iter: int) -> None:
    x = data(Poisson())
    our = HMM(2, observation=Poisson(), start="free", tol=0.0, max_iter=0, n_init=1).fit(x)
    their = hmmlearn.hmm.PoissonHMM(
        2, init_params="", n_iter=n_iter, tol=-np.inf, lambdas_prior=0.0, lambdas_weight=0.0
    )
    their.startprob_, their.transmat_, their.lambdas_ = our.initial_, our.transition_, our.rates_
    our.set_params(max_iter=n_iter, warm_start=True).fit(x)
    their.fit(np.concatenate(x).astype(int), Sequences(x).n_units)
    assert_allclose(our.rates_, their.lambdas_, rtol=1e-9)
    assert_allclose(our.transition_, their.transmat_, rtol=1e-9, atol=1e-12)
    assert_allclose(our.log_prob(x).sum(), their.score(np.concatenate(x).astype(int), Sequences(x).n_units), rtol=1e-10)


def test_a_floor_in_a_group_is_warned_of() -> None:
    x = data(Columns([(GaussianMixture(1), 3), (Bernoulli(), 1)]))
    observation = Columns([(GaussianMixture(1, min_covariance=5.0), 3), (Bernoulli(), 1)])
    with pytest.warns(UserWarning, match="2 state.* min_covariance=5.0"):
        HMM(2, observation=observation, max_iter=2).fit(x)


@pytest.mark.parametrize("one_hot_up_to", [0, 7])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_counts_of_symbols_on_a_gpu_are_those_of_the_cpu(
    one_hot_up_to: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(categorical, "ONE_HOT_UP_TO", one_hot_up_to)
    monkeypatch.setattr(categorical, "ON_GPU", 7 * 1024)  # two parts
    generator = torch.Generator().manual_seed(0)
    x, gamma = torch.randint(7, (1500,), generator=generator), torch.rand(1500, K, generator=generator, dtype=dtype)
    (expected,) = emission_of(Categorical(), 7).statistics(torch.zeros(K, 7), x, None, gamma)
    assert_allclose(categorical.counts_on_gpu(x, gamma, 7), expected, rtol=1e-6 if dtype == torch.float32 else 1e-13)


def test_a_bit_that_is_always_on_is_certain_however_its_sums_are_rounded() -> None:
    emission = emission_of(Bernoulli(), 2)
    sums = torch.tensor([[np.nextafter(3.0, 4), 1.5, 3.0, 3.0]], dtype=torch.float64)  # one above the frames
    assert emission.maximise((sums,), torch.zeros(1, 2, dtype=torch.float64)).tolist() == [[np.inf, 0.0]]

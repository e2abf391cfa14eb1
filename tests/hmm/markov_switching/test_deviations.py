"""Densities of deviations are what the equation says, and an M-step never lowers what it maximises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

from seqmodels.hmm.markov_switching.deviations import DeviationEmission
from seqmodels.inference.chains.lagged_states import tuples
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import AutoregressiveGaussian

K, ORDER, D, N = 3, 2, 2, 40
RNG = np.random.default_rng(0)


def emission(*, switching_ar: bool = True, switching_variance: bool = True, floor: float = 1e-6) -> DeviationEmission:
    observation = AutoregressiveGaussian(ORDER, "diag", min_covariance=floor, ridge=0.0, background=0.0)
    return DeviationEmission(observation, D, switching_ar=switching_ar, switching_variance=switching_variance)


def table_of(model: DeviationEmission, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    mean, coefficients = rng.normal(size=(K, D)), 0.4 * rng.normal(size=(K, ORDER, D))
    log_variance = rng.normal(size=(K, D))
    if not model.switching_ar:
        coefficients[:] = coefficients[0]
    if not model.switching_variance:
        log_variance[:] = log_variance[0]
    first = np.broadcast_to(rng.normal(size=(2, 1, D)), (2, K, D))
    return model.pack(*(torch.tensor(np.ascontiguousarray(a)) for a in (mean, coefficients, log_variance, *first)))


def frames() -> tuple[torch.Tensor, torch.Tensor]:
    """Of one sequence, and those before each, the oldest first."""
    return with_past(RNG.normal(size=(N, D)))


def with_past(x: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    padded = np.concatenate([np.full((ORDER, D), np.nan), x])
    return torch.tensor(x), torch.tensor(np.stack([padded[i : i + len(x)] for i in range(ORDER)], 1))


def test_densities_are_those_of_the_equation() -> None:
    model, (x, past) = emission(), frames()
    table = table_of(model, 1)
    mean, coefficients, log_variance, first_mean, first_log_variance = (t.numpy() for t in model.unpack(table))
    log_b = model.log_prob(table, x, past, torch.float64)
    assert log_b.shape == (N, K ** (ORDER + 1))
    for s, z in enumerate(tuples(K, ORDER).tolist()):
        for t in range(N):
            if t < ORDER:
                loc, deviation = first_mean[0], np.exp(first_log_variance[0] / 2)
            else:
                deviations = [x[t - lag].numpy() - mean[z[lag]] for lag in range(1, ORDER + 1)]
                loc = mean[z[0]] + sum(c * d for c, d in zip(coefficients[z[0]], deviations, strict=True))
                deviation = np.exp(log_variance[z[0]] / 2)
            assert_allclose(log_b[t, s], stats.norm.logpdf(x[t], loc, deviation).sum(), rtol=0, atol=1e-11)
    by_observation = model.observation.log_prob(model.of_tuples(table).unsqueeze(1), x, past).T
    assert_allclose(log_b, by_observation, rtol=0, atol=1e-11)
    assert_allclose(model.evaluate(table, x, past, torch.float64, Scratch())[0].log(), log_b, rtol=1e-12, atol=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("switching_variance", [False, True])
@pytest.mark.parametrize("switching_ar", [False, True])
@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_an_m_step_never_lowers_the_expected_log_likelihood(
    switching_ar: bool, switching_variance: bool, floor: float
) -> None:
    model = emission(switching_ar=switching_ar, switching_variance=switching_variance, floor=floor)
    x, past = frames()
    gamma = torch.tensor(np.random.default_rng(3).dirichlet(np.full(K ** (ORDER + 1), 0.2), N))
    statistics = model.statistics(table_of(model, 2), x, past, gamma)
    late = torch.arange(N) >= ORDER

    def value(table: torch.Tensor) -> float:
        return float((gamma * model.log_prob(table, x, past, torch.float64))[late].sum())

    table = table_of(model, 2)
    table[:, -2 * D :] = table[0, -2 * D :]
    gains = []
    for _ in range(30):
        updated = model.maximise(statistics, table)
        gains.append(value(updated) - value(table))
        table = updated
    assert min(gains) > -1e-10
    assert gains[0] > 0.1
    assert gains[-1] < 1e-3
    model.check_table(table)
    for _ in range(30):
        table = model.maximise(statistics, table)
    best, (mean, coefficients, log_variance, *first) = value(table), model.unpack(table)
    for seed in range(8):
        noise = torch.Generator().manual_seed(seed)
        changed = [
            1e-3 * torch.randn(each.shape, generator=noise).double() for each in (mean, coefficients, log_variance)
        ]
        if not switching_ar:
            changed[1] = changed[1][:1].expand_as(changed[1])
        if not switching_variance:
            changed[2] = changed[2][:1].expand_as(changed[2])
        moved = [a + b for a, b in zip((mean, coefficients, log_variance), changed, strict=True)]
        assert value(model.pack(*moved, *first)) < best + 1e-5


def test_a_start_has_the_gaussian_of_first_steps_and_two_average_ones() -> None:
    rng = np.random.default_rng(1)
    sequences = [3.0 * rng.normal(size=(n, D)) for n in (9, 12, 15)]
    x, past = (torch.cat(each) for each in zip(*(with_past(item) for item in sequences), strict=True))
    labels = torch.arange(len(x)) % K
    table = emission().from_labels(x, past, labels, K, torch.Generator())
    first_mean, first_log_variance = emission().unpack(table)[3:]
    every, early = np.concatenate(sequences), np.concatenate([item[:ORDER] for item in sequences])
    mean = (early.sum(0) + 2 * every.mean(0)) / (len(early) + 2)
    variance = (np.square(early - mean).sum(0) + 2 * every.var(0)) / (len(early) + 2)
    assert_allclose(first_mean, np.tile(mean, (K, 1)), rtol=1e-12)
    assert_allclose(first_log_variance.exp(), np.tile(variance, (K, 1)), rtol=1e-12)


def test_a_state_without_steps_keeps_its_regression() -> None:
    model, (x, past) = emission(), frames()
    states = tuples(K, ORDER)
    gamma = torch.zeros(N, K ** (ORDER + 1), dtype=torch.float64)
    gamma[:, (states != 2).all(1)] = 1 / 8
    before = table_of(model, 1)
    after = model.maximise(model.statistics(before, x, past, gamma), before)
    assert bool(torch.isfinite(after).all())
    assert_allclose(after[2], before[2], rtol=1e-12)
    assert not np.allclose(after[0], before[0])


def test_wrong_tables_are_refused() -> None:
    model = emission(switching_ar=False)
    table = table_of(model, 0)
    model.check_table(table)
    with pytest.raises(ValueError, match="a state has 11 numbers in the file; it should have 12"):
        model.check_table(table[:, 1:])
    with pytest.raises(ValueError, match="should be finite"):
        model.check_table(torch.where(table == table[0, 0], torch.nan, table))
    table[1, D] += 1.0
    with pytest.raises(ValueError, match="the file has different numbers by state for parameters"):
        model.check_table(table)

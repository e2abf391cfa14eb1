"""Rows of several observations against each observation alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm

GENERATOR = torch.Generator().manual_seed(0)
MIXTURE, REGRESSION = sm.GaussianMixture(2, "full"), sm.AutoregressiveGaussian(2)
BOTH = sm.observations.OneOf([MIXTURE, REGRESSION])
SIZE, N = 3, 4
TABLES = [
    0.5 * torch.randn(N, 2, o.n_output_parameters(SIZE), generator=GENERATOR, dtype=torch.float64)
    for o in (MIXTURE, REGRESSION)
]
X = torch.randn(N, 1, SIZE, generator=GENERATOR, dtype=torch.float64)
PAST = torch.randn(N, 1, 2, SIZE, generator=GENERATOR, dtype=torch.float64)
ROWS = BOTH.join(TABLES)


def test_each_row_has_the_density_of_its_observation() -> None:
    expected = torch.cat([MIXTURE.log_prob(TABLES[0], X), REGRESSION.log_prob(TABLES[1], X, PAST)], dim=1)
    assert ROWS.shape == (N, 4, BOTH.n_output_parameters(SIZE))
    assert_allclose(BOTH.log_prob(ROWS, X, PAST), expected, rtol=1e-12)
    order = torch.tensor([2, 0, 3, 1])  # rows in any order
    assert_allclose(BOTH.log_prob(ROWS[:, order], X, PAST), expected[:, order], rtol=1e-12)


def test_full_conditionals_are_those_of_each() -> None:
    found = BOTH.full_conditionals(ROWS, X, PAST)
    each = [MIXTURE.full_conditionals(TABLES[0], X), REGRESSION.full_conditionals(TABLES[1], X, PAST)]
    assert_allclose(found.each, torch.cat([e.each for e in each], 1), rtol=1e-12)
    assert_allclose(found.others, torch.cat([e.others for e in each], 1), rtol=1e-12)


def test_draws_are_those_of_each() -> None:
    index = torch.tensor([0, 3] * 3_000)
    rows, past = ROWS[0, index], PAST[0].expand(len(index), -1, -1)
    drawn = BOTH.sample(rows, past, torch.Generator().manual_seed(1))
    alone = [
        MIXTURE.sample(TABLES[0][0, :1].expand(6_000, -1), None, torch.Generator().manual_seed(2)),
        REGRESSION.sample(TABLES[1][0, 1:].expand(6_000, -1), PAST[0].expand(6_000, -1, -1), GENERATOR),
    ]
    for i, expected in enumerate(alone):
        part = drawn[i::2]
        error = 5 * expected.std(0) / len(part) ** 0.5
        assert ((part.mean(0) - expected.mean(0)).abs() < error).all()


def test_temperature_is_that_of_each() -> None:
    found = BOTH.tempered(ROWS, 2.0)
    expected = BOTH.join([MIXTURE.tempered(TABLES[0], 2.0), REGRESSION.tempered(TABLES[1], 2.0)])
    assert_allclose(found, expected, rtol=1e-12)


def test_missing_values_need_observations_that_all_look_at_no_past() -> None:
    assert not BOTH.sums_out_missing
    assert sm.observations.OneOf([MIXTURE, sm.GaussianMixture(1)]).sums_out_missing


def test_densities_and_probabilities_do_not_mix() -> None:
    with pytest.raises(ValueError, match="values of different kinds"):
        sm.observations.OneOf([MIXTURE, sm.Bernoulli()]).check(SIZE)
    with pytest.raises(ValueError, match="must emit vectors"):
        sm.observations.OneOf([sm.Categorical()]).check(SIZE)
    with pytest.raises(ValueError, match="observations is empty"):
        sm.observations.OneOf([]).check(SIZE)


@pytest.mark.parametrize("wrong", [[None], [MIXTURE, None], 3, None])
def test_what_are_no_observations_is_refused(wrong: Any) -> None:
    x = [np.random.default_rng(0).normal(size=(9, SIZE))]
    for model in (sm.HMM(2), sm.GRU(d_model=2, max_steps=1)):
        with pytest.raises(ValueError, match=r"observations .*is .*; pass a list of [Oo]bservation"):
            model.set_params(observation=sm.observations.OneOf(wrong)).fit(x)


@pytest.mark.parametrize("network", [sm.GRU(d_model=2), sm.Transformer(d_model=2, n_heads=1)])
def test_a_network_does_not_learn_it(network: Any) -> None:
    with pytest.raises(ValueError, match=r"no network learns OneOf.*a Mixture of networks of one observation each"):
        network.clone().set_params(max_steps=1, observation=BOTH).fit([np.random.default_rng(0).normal(size=(9, SIZE))])

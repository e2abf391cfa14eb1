"""A product over groups of columns: of densities, draws, and Pyro's distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seqmodels.observations import AutoregressiveGaussian, Bernoulli, Categorical, Columns, GaussianMixture, Poisson

F64 = torch.float64
GROUPS: list[Any] = [
    (AutoregressiveGaussian(2), 2),
    (Bernoulli(), 3),
    (AutoregressiveGaussian(1, "diag"), 1),
    (Poisson(), 1),
]
COLUMNS, SIZE = Columns(GROUPS), 7


def case(n_states: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Parameters, a step and its past."""
    generator = torch.Generator().manual_seed(0)
    output_parameters = 0.5 * torch.randn(n_states, COLUMNS.n_output_parameters(SIZE), generator=generator, dtype=F64)
    x = torch.cat([torch.randn(2, generator=generator, dtype=F64), torch.tensor([1, 0, 1, -0.7, 3], dtype=F64)])
    return output_parameters, x, torch.randn(2, SIZE, generator=generator, dtype=F64)


def test_log_prob_is_the_sum_of_the_groups() -> None:
    output_parameters, x, past = case()
    total, column, row = torch.zeros(3, dtype=F64), 0, 0
    for observation, n in GROUPS:
        width = observation.n_output_parameters(n)
        before = past[-observation.n_past :, column : column + n] if observation.n_past else None
        total += observation.log_prob(output_parameters[:, row : row + width], x[column : column + n], before)
        column, row = column + n, row + width
    assert (column, row) == (SIZE, COLUMNS.n_output_parameters(SIZE))
    torch.testing.assert_close(COLUMNS.log_prob(output_parameters, x, past), total)
    assert (COLUMNS.n_past, COLUMNS.sums_out_missing) == (2, False)
    assert COLUMNS.values(SIZE) == ("reals", "reals", "bits", "bits", "bits", "reals", "counts")


def test_missing_groups_are_summed_out() -> None:
    columns = Columns([(GaussianMixture(2), 2), (Bernoulli(), 1)])
    assert columns.sums_out_missing
    output_parameters, nan = case()[0][:, : columns.n_output_parameters(3)], torch.nan
    alone = GaussianMixture(2).log_prob(output_parameters[:, :-1], torch.tensor([0.3, nan], dtype=F64))
    torch.testing.assert_close(columns.log_prob(output_parameters, torch.tensor([0.3, nan, nan], dtype=F64)), alone)


def test_pyros_distribution_mixes_products() -> None:
    output_parameters, x, past = case()
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=F64)
    shift, scale = torch.zeros(SIZE, dtype=F64), torch.ones(SIZE, dtype=F64)
    shift[:2], scale[:2] = 5.0, 2.0
    found = COLUMNS.distribution(
        output_parameters, log_weights=weights.log(), past=past.expand(1, -1, -1), shift=shift, scale=scale
    )
    ours = torch.logsumexp(weights.log() + COLUMNS.log_prob(output_parameters, x, past), 0) - 2 * np.log(2)
    torch.testing.assert_close(found.log_prob(shift + scale * x), ours)
    assert found.log_prob((shift + scale * x).expand(4, 1, -1)).shape == (4, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = found.sample((400,))
        assert found.sample().shape == (SIZE,)
    error = (found.variance / 400).sqrt()
    assert ((drawn.mean(0) - found.mean).abs() < 4 * error).all()
    np.testing.assert_allclose(drawn.var(0) / found.variance, 1.0, atol=0.4)


def test_draws_are_each_groups() -> None:
    output_parameters, _, past = case(1)
    n = 4_000
    generator = torch.Generator().manual_seed(1)
    drawn = COLUMNS.sample(output_parameters.expand(n, -1), past.expand(n, -1, -1), generator)
    ones, zeros = torch.ones(SIZE, dtype=F64), torch.zeros(SIZE, dtype=F64)
    exact = COLUMNS.distribution(
        output_parameters, log_weights=ones[:1].log(), past=past.expand(1, -1, -1), shift=zeros, scale=ones
    )
    assert drawn.shape == (n, SIZE)
    assert ((drawn.mean(0) - exact.mean).abs() < 4 * (exact.variance / n).sqrt()).all()


def test_starting_point_and_floors_are_the_groups() -> None:
    columns = Columns([(Poisson(mean=4.0), 1), (GaussianMixture(1, min_covariance=0.1), 1)])
    start = columns.starting_point(2, torch.Generator().manual_seed(0))
    assert start[0].exp() == pytest.approx(4.0)
    low = start.clone()
    low[-1] = np.log(0.1)
    assert columns.floor_hits(torch.stack([start, low]), 2).tolist() == [False, True]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "groups is empty"),
        ([(Categorical(), 3)], "group 0, .* emits symbols; every group must emit vectors"),
        ([(Poisson(), 3), (Bernoulli(), 0)], "group 1, .* has 0 features"),
        ([(Poisson(-1), 3)], "pseudocount is -1"),
        ([(Poisson(), 2), (Bernoulli(), 2)], "have 4 features but the sequences have 3; they must agree"),
    ],
)
def test_groups_that_cannot_be(groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Columns(groups).check(3)


def test_nested_parameters() -> None:
    columns = Columns([(GaussianMixture(2), 2), (Bernoulli(), 1)])
    assert columns.get_params()["groups__0__n_components"] == 2
    changed = columns.clone().set_params(groups__1__pseudocount=0.5)
    assert repr(changed) == "Columns(groups=[(GaussianMixture(n_components=2), 2), (Bernoulli(pseudocount=0.5), 1)])"
    assert columns.get_params()["groups__1__pseudocount"] == 0.0
    for name in ("groups__2__pseudocount", "groups__1", "groups__first"):
        with pytest.raises(ValueError, match="which has no parameters of its own to set"):
            columns.set_params(**{name: 1})

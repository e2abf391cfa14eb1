"""Divergences and draws of conjugate distributions, against torch's, scipy's and averages of draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Dirichlet, Gamma, kl_divergence

from seqmodels.hmm.conjugate.distributions import (
    dirichlet_divergence,
    draw_dirichlet,
    draw_gamma,
    draw_wishart,
    expected_log,
    expected_log_det,
    gamma_divergence,
    wishart_divergence,
)

SCATTER = [[2.0, 0.3], [0.3, 0.7]]
OTHER_SCATTER = [[1.0, -0.2], [-0.2, 1.5]]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_divergence_of_dirichlet_distributions_is_that_of_torch() -> None:
    q, p = tensor([[0.3, 2.0, 5.0], [1.0, 1.0, 1.0]]), tensor([[1.0, 0.5, 0.5], [1.0, 1.0, 1.0]])
    torch.testing.assert_close(dirichlet_divergence(q, p), kl_divergence(Dirichlet(q), Dirichlet(p)))


def test_what_is_ruled_out_has_no_part_in_a_divergence() -> None:
    q, p = tensor([0.3, 0.0, 2.0]), tensor([1.0, 0.0, 0.5])
    with_zeros, without = dirichlet_divergence(q, p), dirichlet_divergence(q[[0, 2]], p[[0, 2]])
    torch.testing.assert_close(with_zeros, without)
    assert expected_log(q)[1] == -torch.inf


def test_the_divergence_of_gamma_distributions_is_that_of_torch() -> None:
    a, b, a0, b0 = tensor([0.5, 3.0]), tensor([2.0, 0.1]), tensor([1.0, 2.0]), tensor([1.0, 4.0])
    torch.testing.assert_close(gamma_divergence(a, b, a0, b0), kl_divergence(Gamma(a, b), Gamma(a0, b0)))


def test_a_wishart_distribution_of_one_feature_is_a_gamma_distribution() -> None:
    freedom, scatter, freedom0, scatter0 = tensor(5.0), tensor([[2.0]]), tensor(1.5), tensor([[0.7]])
    of_gammas = gamma_divergence(freedom / 2, scatter[0, 0] / 2, freedom0 / 2, scatter0[0, 0] / 2)
    torch.testing.assert_close(wishart_divergence(freedom, scatter, freedom0, scatter0), of_gammas)


def test_the_divergence_of_wishart_distributions_is_the_average_over_draws() -> None:
    freedom, scatter, freedom0, scatter0 = 6.0, np.array(SCATTER), 2.5, np.array(OTHER_SCATTER)
    q, p = stats.wishart(freedom, np.linalg.inv(scatter)), stats.wishart(freedom0, np.linalg.inv(scatter0))
    draws = q.rvs(5_000, random_state=0)
    ratios = q.logpdf(np.moveaxis(draws, 0, -1)) - p.logpdf(np.moveaxis(draws, 0, -1))
    log_dets = np.linalg.slogdet(draws)[1]
    ours = float(wishart_divergence(tensor(freedom), tensor(SCATTER), tensor(freedom0), tensor(OTHER_SCATTER)))
    assert abs(ours - ratios.mean()) < 4 * ratios.std() / np.sqrt(len(ratios))
    of_log_det = float(expected_log_det(tensor(freedom), tensor(SCATTER)))
    assert abs(of_log_det - log_dets.mean()) < 4 * log_dets.std() / np.sqrt(len(ratios))


def test_draws_have_the_expectations_of_their_distributions() -> None:
    generator, n = torch.Generator().manual_seed(0), 20_000
    concentrations = tensor([0.5, 0.0, 3.0])
    rows = draw_dirichlet(concentrations.expand(n, -1), generator)
    torch.testing.assert_close(rows.sum(1), torch.ones(n, dtype=torch.float64))
    assert float(rows[:, 1].max()) == 0.0
    assert rows[:, 0].mean().item() == pytest.approx(0.5 / 3.5, abs=0.01)
    assert draw_gamma(tensor([2.5] * n), generator).mean().item() == pytest.approx(2.5, abs=0.05)
    precisions = draw_wishart(tensor(6.0).expand(n), tensor(SCATTER).expand(n, -1, -1), generator)
    torch.testing.assert_close(precisions.mean(0), 6.0 * torch.linalg.inv(tensor(SCATTER)), rtol=0.03, atol=0.05)
    log_dets = torch.logdet(precisions)
    error = 4 * float(log_dets.std()) / n**0.5
    assert float(log_dets.mean()) == pytest.approx(float(expected_log_det(tensor(6.0), tensor(SCATTER))), abs=error)

"""One step of the filter against sums over a grid of offsets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm

from seqmodels.wrappers.offsets.filtering import (
    Belief,
    LinearMixture,
    evidence,
    factor_of_one_plus_gram,
    predicted_precisions,
    square_root,
    updated,
)

GRID = np.linspace(-30, 30, 200_001)


def tensor(values: object) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def mixture() -> LinearMixture:
    """Of two components with slopes 1 and 0.3, in one feature."""
    return LinearMixture(
        tensor([[0.6, 0.4]]).log(),
        tensor([[[0.5], [-1.0]]]),
        tensor([[[[1.0]], [[0.3]]]]),
        1 / tensor([[[[0.7]], [[0.4]]]]),
    )


def test_a_step_keeps_mean_and_covariance_of_the_exact_posterior() -> None:
    belief, x = Belief(tensor([[0.2]]), tensor([[[1.5]]])), 0.9
    log_joint, after = updated(mixture(), belief, tensor([[x]]))
    prior = norm(0.2, np.sqrt(1.5)).pdf(GRID)
    each = [
        weight * norm(mean + slope * (GRID - 0.2), deviation).pdf(x) * prior
        for weight, mean, slope, deviation in ((0.6, 0.5, 1.0, 0.7), (0.4, -1.0, 0.3, 0.4))
    ]
    width = GRID[1] - GRID[0]
    assert_allclose(log_joint[0].exp(), [p.sum() * width for p in each], rtol=1e-9)
    posterior = sum(each) / sum(p.sum() for p in each)
    mean = posterior @ GRID
    assert_allclose(after.mean[0, 0], mean, rtol=1e-9)
    assert_allclose(after.covariance[0, 0, 0], posterior @ (GRID - mean) ** 2, rtol=1e-9)
    variances = predicted_precisions(mixture(), belief)[0, :, 0, 0] ** -2
    assert_allclose(variances, [0.7**2 + 1.5, 0.4**2 + 0.09 * 1.5], rtol=1e-12)


def test_evidence_is_the_gradient_in_the_offset() -> None:
    b = tensor([[0.0]]).requires_grad_()
    at = mixture()
    moved = LinearMixture(at.log_weights, at.means + (at.slopes @ b[:, None, :, None])[..., 0], at.slopes, at.factors)
    log_joint, _, gradient = evidence(moved, tensor([[0.9]]))
    (expected,) = torch.autograd.grad(torch.logsumexp(log_joint, -1).sum(), b)
    assert_allclose(gradient.detach(), expected, rtol=1e-10)


def test_a_step_without_values_says_nothing() -> None:
    belief = Belief(tensor([[0.2]]), tensor([[[1.5]]]))
    log_joint, after = updated(mixture(), belief, tensor([[np.nan]]))
    assert_allclose(log_joint.exp(), [[0.6, 0.4]], rtol=1e-12)
    assert_allclose((after.mean, after.covariance[..., 0]), (belief.mean, belief.covariance[..., 0]), rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e6, 1e12])
def test_factors_hold_where_squares_do_not(size: float) -> None:
    matrix = tensor(np.random.default_rng(0).normal(size=(4, 3, 3)))
    matrix[:, :, 0] = size * matrix[:, :, 1]  # two columns that are nearly one
    factor = factor_of_one_plus_gram(matrix)
    gram = np.eye(3) + (matrix.mT @ matrix).numpy()
    assert (factor.diagonal(dim1=-2, dim2=-1) > 0).all()
    assert_allclose((factor @ factor.mT).numpy(), gram, rtol=1e-9, atol=1e-9 * size)
    singular = tensor(np.ones((1, 3, 3)))
    root = square_root(singular)
    assert_allclose(root @ root.mT, singular, atol=1e-12)

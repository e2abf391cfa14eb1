"""Multinomial logistic regression on expected counts, against scipy and where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

from seqmodels.hmm.emissions.logistic import multinomial_logistic


def data(seed: int, n: int, j: int, u: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    design = np.concatenate([np.ones((n, 1)), rng.normal(size=(n, u))], 1)
    return torch.tensor(rng.gamma(0.5, size=(n, j))), torch.tensor(design)


def value(counts: torch.Tensor, design: torch.Tensor, coefficients: torch.Tensor, ridge: float = 0.0) -> float:
    slopes = coefficients[:, 1:]
    of_data = (counts * torch.log_softmax(design @ coefficients.T, 1)).sum()
    return float(of_data - 0.5 * ridge * (slopes - slopes.mean(0)).square().sum())


@pytest.mark.parametrize("ridge", [0.0, 3.0])
@pytest.mark.parametrize(("j", "u"), [(2, 1), (4, 2)])
def test_the_maximum_that_scipy_finds(j: int, u: int, ridge: float) -> None:
    counts, design = data(0, 80, j, u)
    start = torch.zeros(j, u + 1, dtype=torch.float64)
    found = multinomial_logistic(counts, design, start, ridge=ridge)
    assert torch.equal(found[0], start[0])

    def loss(flat: np.ndarray) -> float:
        free = torch.tensor(flat).view(j - 1, u + 1)
        return -value(counts, design, torch.cat([start[:1], free]), ridge)

    best = scipy.optimize.minimize(loss, np.zeros((j - 1) * (u + 1)), tol=1e-10)
    assert value(counts, design, found, ridge) >= -best.fun - 1e-9
    np.testing.assert_allclose(found[1:].ravel(), best.x, atol=1e-3)


def test_never_worse_and_counts_at_zero() -> None:
    counts, design = data(1, 30, 3, 2)
    start = torch.tensor(np.random.default_rng(2).normal(size=(3, 3)) * 8)
    start[0] = 0.0
    assert value(counts, design, multinomial_logistic(counts, design, start)) > value(counts, design, start)
    extra = torch.tensor([5.0, 0.0, 1.0], dtype=torch.float64)
    zero = torch.eye(1, 3, dtype=torch.float64)
    beside = multinomial_logistic(torch.cat([counts, extra[None]]), torch.cat([design, zero]), start)
    assert torch.allclose(multinomial_logistic(counts, design, start, at_zero=extra), beside, atol=1e-7)


def test_without_counts_and_where_inputs_separate() -> None:
    counts, design = data(3, 20, 3, 1)
    start = torch.tensor([[0.0, 0.0], [0.3, 1.0], [-0.2, 0.5]], dtype=torch.float64)
    assert torch.equal(multinomial_logistic(torch.zeros_like(counts), design, start), start)
    separated = torch.nn.functional.one_hot((design[:, 1] > 0).long(), 2).double()
    found = multinomial_logistic(separated, design, torch.zeros(2, 2, dtype=torch.float64))
    assert torch.isfinite(found).all()
    assert value(separated, design, found) > -1e-3

"""The maximum of the marginal likelihood beside a grid of values that a plain program computes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from seqmodels.hmm.learning.marginal_likelihood import (
    WEAK,
    MarginalLikelihood,
    Maximum,
    VarianceScale,
    symmetric_rank_one,
)

LARGEST = 10.0


@dataclass(frozen=True)
class Binomial:
    """The log-likelihood of ``y_g`` successes in ``n_g`` trials of each group, with log-odds ``u_0 + u_g``."""

    y: Tensor
    n: Tensor

    @property
    def design(self) -> Tensor:
        return torch.cat([torch.ones(len(self.y), 1, dtype=torch.float64), torch.eye(len(self.y)).double()], 1)

    def _p(self, u: Tensor) -> tuple[Tensor, Tensor]:
        eta = self.design @ u
        return eta, torch.sigmoid(eta)

    def value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        eta, p = self._p(u)
        value = self.y * eta - self.n * torch.nn.functional.softplus(eta)
        return float(value.sum()), self.design.T @ (self.y - self.n * p)

    def derivatives(self, u: Tensor) -> tuple[float, Tensor, Tensor]:
        _, p = self._p(u)
        return *self.value_and_gradient(u), self.design.T @ ((self.n * p * (1 - p))[:, None] * self.design)

    def information_gradient(self, u: Tensor, covariance: Tensor) -> Tensor:
        _, p = self._p(u)
        of_groups = (self.design @ covariance * self.design).sum(1)
        return self.design.T @ (of_groups * self.n * p * (1 - p) * (1 - 2 * p))


def marginal(y: list[float], n: list[float], *, restricted: bool = True) -> MarginalLikelihood:
    objective = Binomial(torch.tensor(y, dtype=torch.float64), torch.tensor(n, dtype=torch.float64))
    block, first = torch.arange(1, len(y) + 1), 0 if restricted else 1
    weak = torch.zeros(len(y) + 1, dtype=torch.float64)
    weak[0] = WEAK
    inner = torch.arange(first, len(y) + 1)
    return MarginalLikelihood(
        objective, [block], inner, torch.zeros_like(weak), weak, torch.tensor([LARGEST], dtype=torch.float64)
    )


def plain(y: list[float], n: list[float], sd: float) -> float:
    """V of an intercept and one effect for each group with a given deviation, by BFGS and an explicit Hessian."""
    Z = np.concatenate([np.ones((len(y), 1)), np.eye(len(y))], 1)
    penalty = np.array([WEAK] + [sd**-2] * len(y))

    def minus(u: np.ndarray) -> float:
        eta = Z @ u
        return float(-(np.array(y) @ eta - np.array(n) @ np.logaddexp(0, eta)) + 0.5 * penalty @ u**2)

    def slope(u: np.ndarray) -> np.ndarray:
        return -Z.T @ (np.array(y) - np.array(n) / (1 + np.exp(-Z @ u))) + penalty * u

    u = minimize(minus, np.zeros(len(penalty)), jac=slope, options={"gtol": 1e-9, "maxiter": 2000}).x
    p = 1 / (1 + np.exp(-Z @ u))
    H = Z.T @ ((np.array(n) * p * (1 - p))[:, None] * Z) + np.diag(penalty)
    return -minus(u) - len(y) * np.log(sd) - 0.5 * np.linalg.slogdet(H)[1] + 0.5 * np.log(2 * np.pi)


def maximum(y: list[float], n: list[float], **options: bool) -> Maximum:
    return marginal(y, n, **options).maximise(torch.zeros(len(y) + 1, dtype=torch.float64))


@pytest.mark.parametrize(
    ("y", "n"),
    [
        ([2, 5, 9, 4, 7], [12] * 5),  # groups that differ
        ([5, 6, 5, 6, 5], [12] * 5),  # that do not
        ([0, 0, 0, 0], [10] * 4),  # no success at all, so that the intercept has no maximum without its prior
        ([0, 0, 3], [4, 5, 9]),
    ],
)
def test_the_maximum_is_the_largest_of_a_grid(y: list[float], n: list[float]) -> None:
    found = maximum(y, n)
    grid = np.exp(np.linspace(np.log(1e-3), np.log(LARGEST), 60))
    values = [plain(y, n, sd) for sd in grid]
    assert found.converged
    sd = float((-0.5 * found.log_precision).exp())
    np.testing.assert_allclose(found.value, plain(y, n, sd), atol=1e-6)
    assert max(values) - 1e-4 < found.value < max(values) + 2e-3


def test_groups_that_are_separated_bring_the_deviation_to_its_bound() -> None:
    found = maximum([0, 10, 0, 10], [10] * 4)
    assert found.converged
    np.testing.assert_allclose(float((-0.5 * found.log_precision).exp()), LARGEST)
    assert found.is_largest.tolist() == [True]
    assert found.is_flat.tolist() == [False]
    assert plain([0, 10, 0, 10], [10] * 4, LARGEST) > plain([0, 10, 0, 10], [10] * 4, 0.9 * LARGEST)


@pytest.mark.parametrize(
    ("y", "n", "flat"),
    [
        ([0, 0, 0], [0] * 3, True),
        ([0] * 4, [10] * 4, True),
        ([2, 9], [12] * 2, False),
        ([5, 6, 5, 6, 5], [12] * 5, False),
    ],
)
def test_a_deviation_is_flat_where_zero_and_the_bound_are_as_likely(y: list[float], n: list[float], flat: bool) -> None:
    found = maximum(y, n)
    fall = max(found.value - plain(y, n, sd) for sd in (1e-4, LARGEST))
    assert (fall < 0.1) == flat
    assert found.is_flat.tolist() == [flat]


def test_a_deviation_is_held_and_its_likely_values_end_where_the_likelihood_has_fallen() -> None:
    y, n = [5.0, 6.0, 5.0, 6.0, 5.0], [12.0] * 5
    m = marginal(y, n)
    held = m.maximise(torch.zeros(6, dtype=torch.float64), held=(0, -2 * np.log(0.7)))
    np.testing.assert_allclose([float(held.log_precision), held.value], [-2 * np.log(0.7), plain(y, n, 0.7)], rtol=1e-7)
    found = m.maximise(torch.zeros(6, dtype=torch.float64))
    objective = Binomial(torch.tensor(y), torch.tensor(n))
    m = replace(m, base=found.u, objective=Moved(objective, found.u))
    end = m.largest_likely(found.log_precision, 0, 1.92)
    np.testing.assert_allclose(plain(y, n, end), found.value - 1.92, atol=5e-3)
    assert m.largest_likely(found.log_precision, 0, 50.0) == np.inf


@dataclass(frozen=True)
class Moved:
    """An objective of numbers that are zero at ``at``."""

    objective: Binomial
    at: Tensor

    def value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        return self.objective.value_and_gradient(self.at + u)

    def derivatives(self, u: Tensor) -> tuple[float, Tensor, Tensor]:
        return self.objective.derivatives(self.at + u)

    def information_gradient(self, u: Tensor, covariance: Tensor) -> Tensor:
        return self.objective.information_gradient(self.at + u, covariance)


def test_the_spread_is_a_variance_near_zero_and_minus_a_log_precision_beyond() -> None:
    flat = torch.tensor([2.0, 2.0, 2.0], dtype=torch.float64)
    spread, outer = VarianceScale(flat - 9, flat + 9, flat), torch.tensor([0.3, 8.0, 2.5, -1.0], dtype=torch.float64)
    np.testing.assert_allclose(spread.of(outer), [0.3, np.exp(-6), np.exp(-0.5), 4.0])
    np.testing.assert_allclose(spread.log_precision(spread.of(outer)[1:]), outer[1:])
    of_outer, step = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), 1e-6
    for i in range(4):  # of the function whose gradient by φ and log-precisions is of_outer
        moved = spread.of(outer)
        moved[i] += step
        back = torch.cat([moved[:1], spread.log_precision(moved[1:])])
        difference = float(of_outer @ (back - outer)) / step
        np.testing.assert_allclose(difference, spread.gradient(of_outer, outer)[i], rtol=1e-3)


def test_an_update_of_rank_one_takes_the_step_to_the_change() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    matrix, step, change = matrix + matrix.T, torch.arange(1.0, 5).double(), torch.ones(4, dtype=torch.float64)
    updated = symmetric_rank_one(matrix, step, change)
    torch.testing.assert_close(updated @ step, change)
    torch.testing.assert_close(updated, updated.T)
    assert torch.linalg.matrix_rank(updated - matrix) == 1
    assert symmetric_rank_one(matrix, 1e-6 * step, change) is matrix

"""Probabilities of intervals by quadrature: beside scipy's cdfs, in the tails, by gradients, and moments within."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import integrate

from seqmodels.observations.line_densities import LineDensity
from tests.observations.independent_densities import DENSITIES, Density

LINES = pytest.mark.parametrize("density", [d for d in DENSITIES if isinstance(d.observation, LineDensity)], ids=str)


def intervals(density: Density, state: int, d: int) -> np.ndarray:
    """``(n, 2)`` narrow and wide ones, in both tails and open, of one feature's quantiles."""
    q = density.twin(np.array(density.states)[state, :, d]).ppf
    least, most = density.support
    ends = [(q(0.2), q(0.201)), (q(0.3), q(0.9)), (q(1e-4), q(2e-3)), (q(0.99), q(0.9999)), (q(1e-6), q(1 - 1e-6))]
    return np.array([*ends, (-1.0 if np.isfinite(least) else -np.inf, q(0.4)), (q(0.7), np.inf), (least, most)])


@LINES
@pytest.mark.parametrize(("state", "d"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_probabilities_are_those_of_the_cdf_and_moments_those_within(density: Density, state: int, d: int) -> None:
    line = density.observation
    assert isinstance(line, LineDensity)
    theta, twin = density.theta[state, :, d : d + 1], density.twin(np.array(density.states)[state, :, d])
    cells = intervals(density, state, d)
    low, high = (torch.tensor(end).unsqueeze(-1) for end in cells.T)
    found = line.feature_interval_log_prob(theta, low, high).squeeze(-1)
    # The difference on the side where both are small.
    below, above = twin.cdf(cells), twin.sf(cells)
    p = np.where(below[:, 0] < 0.5, below[:, 1] - below[:, 0], above[:, 0] - above[:, 1])
    assert_allclose(found, np.log(p), rtol=1e-10, atol=1e-12)
    moments = line.interval_moments(theta, low, high)[..., 0].numpy()
    for i in range(3):
        a, b = np.clip(cells[i], *density.support)

        def weighted(x: float, s: int) -> float:
            return float(line.moments(theta, torch.tensor([x], dtype=torch.float64))[s, 0]) * float(twin.pdf(x))

        for s in range(moments.shape[1]):
            expected = integrate.quad(weighted, a, b, args=(s,), epsrel=1e-11, limit=200)[0] / p[i]
            assert_allclose(moments[i, s], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.quick_cases(1)
@LINES
def test_gradients_are_those_of_differences_and_finite_far_away(density: Density) -> None:
    line = density.observation
    assert isinstance(line, LineDensity)
    cells = intervals(density, 0, 0)
    low, high = (torch.tensor(end).unsqueeze(-1) for end in cells.T)
    theta = density.theta[0, :, :1].clone().requires_grad_()
    for i in range(len(cells)):
        (gradient,) = torch.autograd.grad(line.feature_interval_log_prob(theta, low[i], high[i]).sum(), theta)
        for q in range(len(theta)):
            step = torch.zeros_like(theta.detach())
            step[q] = 1e-5
            up, down = (
                float(line.feature_interval_log_prob(theta.detach() + s * step, low[i], high[i])) for s in (1, -1)
            )
            assert_allclose(float(gradient[q]), (up - down) / 2e-5, rtol=1e-5, atol=1e-8)
    scale = 1.0 if np.isfinite(density.support[1]) else 1e6
    far = torch.tensor([[scale * (1 - 1e-6)]]), torch.tensor([[scale]])
    log_prob = line.feature_interval_log_prob(theta, *(end.double() for end in far))
    (gradient,) = torch.autograd.grad(log_prob.sum(), theta)
    assert log_prob.isfinite().all()
    assert gradient.isfinite().all()


@LINES
def test_a_narrow_interval_has_the_density_times_its_width(density: Density) -> None:
    line = density.observation
    assert isinstance(line, LineDensity)
    x = torch.tensor(density.twin(np.array(density.states)[0, :, 0]).ppf([[0.1], [0.5], [0.9]]))
    theta, low, high = density.theta[0, :, :1], x, x + 1e-10
    log_prob = line.feature_interval_log_prob(theta, low, high) - (high - low).log()
    assert_allclose(log_prob, line.feature_log_prob(theta, 0.5 * (low + high)), rtol=1e-9, atol=1e-9)


@LINES
def test_one_interval_after_the_other_is_as_all_together(density: Density) -> None:
    line = density.observation
    assert isinstance(line, LineDensity)
    cells = intervals(density, 1, 0)
    low, high = (torch.tensor(end)[:, None, None].expand(-1, 1, 2) for end in cells.T)
    together = line.feature_interval_log_prob(density.theta, low, high)  # (n, 2 states, 2 features)
    for i, k, d in np.ndindex(*together.shape):
        alone = line.feature_interval_log_prob(density.theta[k, :, d : d + 1], low[i, 0, :1], high[i, 0, :1])
        assert_allclose(float(alone), float(together[i, k, d]), rtol=1e-14, atol=1e-15)

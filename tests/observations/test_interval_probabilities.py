"""Probabilities of intervals under Gaussians to all digits, their gradients, and moments within an interval."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import Tensor

from seqmodels.observations.interval_probabilities import (
    gaussian_moments,
    log_gaussian_probability,
    log_normal_probability,
    log_one_minus_exp,
)

INF = np.inf
MIDDLES = (0.0, 0.3, -2.0, 5.0, -9.0, 20.0, -35.0, 100.0, -1000.0)
WIDTHS = (1e-4, 0.3, 0.49, 0.6, 3.0, 100.0)
INTERVALS = [
    *((m - w / 2, m + w / 2) for m in MIDDLES for w in WIDTHS),
    *((-INF, 3.0), (-INF, -40.0), (2.0, INF), (50.0, INF), (-INF, 9.0), (-INF, INF)),
]


def tensors(intervals: list[tuple[float, float]]) -> tuple[Tensor, Tensor]:
    low, high = np.array(intervals).T
    return torch.tensor(low), torch.tensor(high)


def logarithm(low: float, high: float) -> float:
    """``log p`` with 60 digits."""
    with mpmath.workdps(60):
        if low + high > 0:
            low, high = -high, -low
        return float(mpmath.log(mpmath.ncdf(high) - mpmath.ncdf(low)))


def test_every_digit_far_out_and_in_the_middle() -> None:
    found = log_normal_probability(*tensors(INTERVALS))
    finite = [(a, b) for a, b in INTERVALS if np.isfinite(a) and np.isfinite(b)]
    assert_allclose(found[: len(finite)], [logarithm(a, b) for a, b in finite], rtol=1e-12, atol=1e-15)
    one_sided = [(-INF, 3.0), (-INF, -40.0), (2.0, INF), (50.0, INF), (-INF, 9.0)]
    expected = [stats.norm.logcdf(b) if a == -INF else stats.norm.logsf(a) for a, b in one_sided]
    assert_allclose(found[len(finite) : -1], expected, rtol=1e-12)
    assert log_normal_probability(*tensors([(-INF, INF), (-50.0, 50.0)])).tolist() == [0.0, 0.0]


def test_a_narrow_interval_has_the_density_times_its_width() -> None:
    for middle in MIDDLES:
        low, high = tensors([(middle, middle + w) for w in (1e-7, 1e-9, 1e-11)])
        mean, log_deviation = torch.zeros(1).double(), torch.full((1,), 0.3).double()
        found = log_gaussian_probability(low, high, mean, log_deviation) - (high - low).log()
        expected = stats.norm.logpdf(0.5 * (low + high), scale=float(log_deviation.exp()))
        assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_and_those_of_differences(dtype: torch.dtype) -> None:
    low, high = tensors(INTERVALS)
    mean, log_deviation = (torch.full(low.shape, x, dtype=dtype, requires_grad=True) for x in (0.7, -0.4))
    log_gaussian_probability(low, high, mean.double(), log_deviation.double()).sum().backward()
    assert mean.grad is not None
    assert log_deviation.grad is not None
    assert mean.grad.isfinite().all()
    assert log_deviation.grad.isfinite().all()
    if dtype == torch.float32:
        return
    step = 1e-5
    for parameter, shift in ((mean, (step, 0.0)), (log_deviation, (0.0, step))):
        up, down = (
            log_gaussian_probability(low, high, mean.detach() + s * shift[0], log_deviation.detach() + s * shift[1])
            for s in (1, -1)
        )
        assert_allclose(parameter.grad, (up - down) / (2 * step), rtol=1e-5, atol=1e-6)


def test_moments_are_those_of_truncated_gaussians() -> None:
    intervals = [(-0.5, 0.2), (1.0, INF), (-INF, -0.3), (-7.0, 9.0), (5.0, 5.5), (-INF, INF)]
    low, high = tensors(intervals)
    first, second = gaussian_moments(
        2 * low + 1, 2 * high + 1, torch.tensor(1.0).double(), torch.tensor(2.0).double().log()
    )
    truncated = [stats.truncnorm(a, b, loc=1.0, scale=2.0) for a, b in intervals]
    assert_allclose(first, [each.mean() for each in truncated], rtol=1e-9, atol=1e-12)
    assert_allclose(second, [each.moment(2) for each in truncated], rtol=1e-9)
    # Far in a tail, where the definition cancels: 1 / a beyond the end, but for terms of 1 / a³.
    far, _ = gaussian_moments(*tensors([(1e4, INF)]), torch.zeros(1).double(), torch.zeros(1).double())
    assert_allclose(far - 1e4, [1e-4], rtol=1e-6)


def test_missing_values_have_probability_one_and_no_gradient() -> None:
    mean = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    missing = torch.tensor([np.nan])
    log_prob = log_gaussian_probability(missing, missing, mean, torch.zeros(1).double())
    log_prob.sum().backward()
    assert (log_prob.tolist(), mean.grad) == ([0.0], torch.zeros(1))


def test_log_one_minus_exp_keeps_its_digits() -> None:
    d = torch.tensor([1e-12, 0.1, 0.7, 3.0, 50.0], dtype=torch.float64)
    assert_allclose(log_one_minus_exp(d), [*np.log(-np.expm1(-d[:-1].numpy())), -np.exp(-50.0)], rtol=1e-12)

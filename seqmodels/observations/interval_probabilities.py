"""Probabilities ``log(F(b) - F(a))`` of intervals under Gaussians, and moments within intervals, to full precision.

F(b) - F(a) loses its digits if both are near 1 or near each other. So an interval above the mean is mirrored below it,
``log F`` is computed without F, and narrow intervals are integrated by Gauss-Legendre quadrature. This also covers the
tails and intervals with an infinite end.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.constants import LOG_2PI

NARROW = 0.5  # bound of the width in deviations and of the change of the log-density; few nodes then suffice
N_NODES = 16  # for a narrow interval
N_NODES_OF_MOMENTS = 48  # for an interval of any width
NEGLIGIBLE = 40.0  # nats below the largest density of an interval, because adding e^-40 does not change a float64


@cache
def gauss_legendre(n: int) -> tuple[Tensor, Tensor]:
    """Return the nodes of Gauss-Legendre quadrature on -1 to 1 and the logarithms of their weights, each ``(n,)``.

    Weights sum to one, so that the quadrature computes a mean. Both arrays are float64 on the CPU.

    Args:
        n: number of nodes.
    """
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return torch.as_tensor(nodes), torch.as_tensor(np.log(weights / 2))


def log_one_minus_exp(d: Tensor) -> Tensor:
    """Return ``log(1 - e^-d)``, elementwise, for d > 0 (Mächler 2012, *Accurately computing log(1 - exp(-|a|))*)."""
    is_small = d < math.log(2)
    small, large = torch.where(is_small, d, 0.5), torch.where(is_small, 1.0, d)
    return torch.where(is_small, torch.log(-torch.expm1(-small)), torch.log1p(-torch.exp(-large)))


def log_normal_probability(low: Tensor, high: Tensor, width: Tensor | None = None) -> Tensor:
    """Return ``log(Φ(high) - Φ(low))``, the log-probability of intervals of a standard normal, ``(...)`` float64.

    The derivatives are finite.

    Args:
        low, high: ends of the intervals, low below high; both may be infinite.
        width: ``high - low`` if the caller knows it to more digits; None computes it.
    """
    mirrored = low + high > 0  # not where both are infinite, whose sum is NaN
    a, b = torch.where(mirrored, -high, low), torch.where(mirrored, -low, high)
    has_low, has_high = a > -math.inf, b < math.inf
    width = torch.where(has_low & has_high, b - a if width is None else width, math.inf)
    is_narrow = width * (1 + a.abs()) < NARROW
    # Where a formula does not hold, a harmless value is substituted, because its gradient would be NaN otherwise.
    middle = torch.where(is_narrow, 0.5 * (a + b), 0.0)
    narrow = _narrow(middle, torch.where(is_narrow, width, 1.0))
    is_wide = has_low & has_high & ~is_narrow
    below, above = torch.where(is_wide, a, -1.0), torch.where(is_narrow | ~has_high, 1.0, b)
    log_above = torch.special.log_ndtr(above)
    between = log_above + log_one_minus_exp(log_above - torch.special.log_ndtr(torch.where(is_wide, below, above - 1)))
    finite = torch.where(is_narrow, narrow, torch.where(is_wide, between, log_above))
    return torch.where(has_high, finite, 0.0)


def log_gaussian_probability(low: Tensor, high: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Return ``log p(low <= x < high)`` under Gaussians, elementwise, float64; 0 if x is missing (NaN ends).

    The result is differentiable in ``mean`` and ``log_deviation``.

    Args:
        low, high: ends of the intervals, low below high; both may be infinite.
        mean: mean of each Gaussian.
        log_deviation: logarithm of the standard deviation of each Gaussian.
    """
    width = high.double() - low.double()
    width = torch.where(width.isfinite(), width, 1.0) * torch.exp(-log_deviation)
    return log_normal_probability(*standardised(low, high, mean, log_deviation), width)


def standardised(low: Tensor, high: Tensor, mean: Tensor, log_deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends of intervals in standard deviations from the mean, float64; NaN ends become -inf and inf.

    Args:
        low, high: ends of the intervals.
        mean: mean of each Gaussian.
        log_deviation: logarithm of the standard deviation of each Gaussian.
    """
    precision = torch.exp(-log_deviation)
    ends = []
    for end, infinity in ((low.double(), -math.inf), (high.double(), math.inf)):
        is_finite = end.isfinite()
        z = (torch.where(is_finite, end, 0.0) - mean) * precision
        ends.append(torch.where(is_finite, z, torch.where(end.isnan(), infinity, end)))
    return ends[0], ends[1]


def _narrow(middle: Tensor, width: Tensor) -> Tensor:
    """Return the log-probability of narrow intervals of a standard normal in nats, by quadrature.

    Args:
        middle: middle of each interval.
        width: width of each interval.
    """
    nodes, log_weights = (each.to(middle.device) for each in gauss_legendre(N_NODES))
    at = 0.5 * width.unsqueeze(-1) * nodes
    log_mean = torch.logsumexp(log_weights - at * (middle.unsqueeze(-1) + 0.5 * at), -1)
    return width.log() - 0.5 * (LOG_2PI + middle.square()) + log_mean


def normal_moments(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``E[z | low <= z < high]`` and ``E[z² | low <= z < high]`` of a standard normal z, float64.

    They are computed by quadrature over the part of the interval where the density is not negligible, so that nothing
    cancels.

    Args:
        low, high: ends of the intervals, low below high, each ``(...)`` like the results; both may be infinite.
    """
    top = torch.zeros_like(low).clamp(low, high)  # where the density is largest
    reach = (top.square() + 2 * NEGLIGIBLE).sqrt()
    a, b = torch.maximum(low, -reach), torch.minimum(high, reach)
    nodes, log_weights = (each.to(low.device) for each in gauss_legendre(N_NODES_OF_MOMENTS))
    half = 0.5 * (b - a).unsqueeze(-1)
    away = (a - top).unsqueeze(-1) + half * (1 + nodes)  # from the top
    weights = torch.softmax(-away * (top.unsqueeze(-1) + 0.5 * away) + log_weights, -1)
    z = top.unsqueeze(-1) + away
    return (weights * z).sum(-1), (weights * z.square()).sum(-1)


def gaussian_moments(low: Tensor, high: Tensor, mean: Tensor, log_deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``E[x | low <= x < high]`` and ``E[x² | low <= x < high]`` under Gaussians, elementwise.

    Args:
        low, high: ends of the intervals, which may be infinite; NaN in both means that x is not bounded.
        mean: mean of each Gaussian.
        log_deviation: logarithm of the standard deviation of each Gaussian.
    """
    first, second = normal_moments(*standardised(low, high, mean, log_deviation))
    deviation = log_deviation.exp()
    return mean + deviation * first, mean.square() + deviation * (2 * mean * first + deviation * second)

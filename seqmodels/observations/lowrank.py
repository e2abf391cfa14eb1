"""Gaussians of covariance ``diag(v) + W Wᵀ`` from unconstrained numbers: D log-variances, then W ``(D, r)`` row by row.

No matrix larger than r by r is factored (Woodbury 1950). With whitened ``z = (x - mean) / √v`` and ``U = W / √v`` the quadratic form is
``min_y |z - U y|² + |y|²``, a sum of squares: it cannot cancel below zero as ``|z|² - ...`` can. The floor bounds v, and so the density.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def unpack(shape: Tensor, size: int, floor: float) -> tuple[Tensor, Tensor]:
    """``(..., D (1 + r))`` -> log-variances ``(..., D)``, at least ``log(floor)``, and W ``(..., D, r)``."""
    return shape[..., :size].clamp(min=math.log(floor)), shape[..., size:].unflatten(-1, (size, -1))


def log_density(x: Tensor, mean: Tensor, shape: Tensor, floor: float) -> Tensor:
    """``log N(x; mean, diag(v) + W Wᵀ)``, ``(...)``; NaN features of x are summed out: their rows are left out."""
    log_variance, factor = unpack(shape, x.shape[-1], floor)
    observed = ~torch.isnan(x)
    inverse = torch.where(observed, torch.exp(-0.5 * log_variance), 0.0)  # of deviations
    white = inverse * (torch.where(observed, x, 0.0) - mean)
    u = inverse.unsqueeze(-1) * factor  # (..., D, r)
    capacitance = torch.linalg.cholesky(u.mT @ u + torch.eye(u.shape[-1], dtype=u.dtype, device=u.device))
    y = torch.cholesky_solve(u.mT @ white.unsqueeze(-1), capacitance)  # (..., r, 1)
    left = white - (u @ y).squeeze(-1)
    squares = left.square().sum(-1) + y.square().sum((-1, -2))
    log_det = torch.where(observed, log_variance + math.log(2 * math.pi), 0.0).sum(-1)
    return -0.5 * (log_det + squares) - capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def draw(mean: Tensor, shape: Tensor, floor: float, noise: Tensor) -> Tensor:
    """``mean`` plus standard normal ``noise (..., D + r)`` coloured by the covariance."""
    size = mean.shape[-1]
    log_variance, factor = unpack(shape, size, floor)
    common = factor @ noise[..., size:].unsqueeze(-1)  # (..., D, 1)
    return mean + noise[..., :size] * torch.exp(0.5 * log_variance) + common.squeeze(-1)

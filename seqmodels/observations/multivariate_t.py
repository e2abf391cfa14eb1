"""Student t densities of vectors, ``t_ν(x; m, f Σ)``, where Σ is given by the numbers of ``gaussian``.

With the squared distance ``δ = (x - m)ᵀ Σ⁻¹ (x - m)`` the log-density is
``log Γ((ν + D) / 2) - log Γ(ν / 2) - ½ log |πν f Σ| - ½ (ν + D) log(1 + δ / (ν f))``. Under a diagonal Σ each feature
has a t density of its own. They are the predictive densities of a regression whose coefficients and covariance are
integrated over their posterior, where some rows may stay Gaussian.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from seqmodels.common.constants import LOG_2PI
from seqmodels.observations import gaussian
from seqmodels.observations.base import FullConditionals, full_conditionals_of_independent
from seqmodels.observations.gaussian import ShapeType


class Spread(NamedTuple):
    """How t densities differ from Gaussians with the same location.

    Attributes:
        degrees: degrees of freedom ν, above 0, ``(...)`` float64.
        factor: factor f of the scale matrix, ``(...)``.
        is_t: False for rows that are Gaussian, with f = 1, ``(...)`` bool.
    """

    degrees: Tensor
    factor: Tensor
    is_t: Tensor


def log_density(
    x: Tensor, location: Tensor, shape: Tensor, shape_type: ShapeType, floor: float, spread: Spread
) -> Tensor:
    """Return the log-density of vectors under t densities in nats, ``(...)``.

    Missing features (NaN) of x are marginalised out.

    Args:
        x: vectors of D features, ``(..., D)``.
        location: locations m, ``(..., D)``.
        shape: the S numbers that describe each matrix Σ in the form ``shape_type``, ``(..., S)``.
        shape_type: ``"diag"`` for independent features, or ``"full"``, as in ``gaussian``.
        floor: lower bound of the variances of Σ.
        spread: degrees of freedom and factors of the scale matrices.
    """
    if shape_type == "diag":
        return _feature_terms(x, location, shape, floor, spread).sum(-1)
    if bool(torch.isnan(x).any()):
        squares, log_det, n = gaussian.marginal_squares(x, location, shape, floor)
        return _log_density(squares, -log_det, n, spread)
    squares, log_det = gaussian.full_squares(x, location, shape, floor)
    return _log_density(squares, log_det, x.shape[-1], spread)


def _feature_terms(x: Tensor, location: Tensor, shape: Tensor, floor: float, spread: Spread) -> Tensor:
    """Return the log-density of each feature by itself under a diagonal Σ, ``(..., D)``; 0 if missing."""
    observed, log_variance = ~torch.isnan(x), shape.clamp(min=math.log(floor))
    squares = (torch.where(observed, x, location) - location).square() * torch.exp(-log_variance)
    of_each = Spread(*(each.unsqueeze(-1) for each in spread))
    return torch.where(observed, _log_density(squares, -0.5 * log_variance, 1, of_each), 0.0)


def _log_density(squares: Tensor, log_det: Tensor, n: Tensor | int, spread: Spread) -> Tensor:
    """Return log-densities given squared distances, ``-½ log |Σ|``, and numbers of features, each ``(...)``."""
    squares, factor, half = squares.double(), spread.factor.double(), 0.5 * spread.degrees
    constant = torch.lgamma(half + 0.5 * n) - torch.lgamma(half) - 0.5 * n * (half.log() + LOG_2PI)
    tailed = constant - 0.5 * n * factor.log() - (half + 0.5 * n) * torch.log1p(squares / (2 * half * factor))
    return log_det + torch.where(spread.is_t, tailed, -0.5 * (squares + n * LOG_2PI))


def full_conditionals(
    x: Tensor, location: Tensor, shape: Tensor, shape_type: ShapeType, floor: float, spread: Spread
) -> FullConditionals:
    """Return the log-density of each feature given all others, and of all others, in nats, each ``(..., D)``.

    The arguments are those of ``log_density``.
    """
    x, location, shape = x.double(), location.double(), shape.double()
    if shape_type == "diag":
        return full_conditionals_of_independent(_feature_terms(x, location, shape, floor, spread))
    joint = log_density(x, location, shape, shape_type, floor, spread).unsqueeze(-1)
    is_left_out = torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    without = (x.masked_fill(row, torch.nan) for row in is_left_out)
    others = torch.stack([log_density(each, location, shape, shape_type, floor, spread) for each in without], -1)
    return FullConditionals(joint - others, others)


def draw(
    location: Tensor,
    shape: Tensor,
    shape_type: ShapeType,
    floor: float,
    spread: Spread,
    noise: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """Return a vector drawn from each of n t densities, ``(n, D)``.

    Args:
        location, shape, shape_type, floor, spread: as in ``log_density``.
        noise: standard normal numbers, ``(n, D)``.
        generator: source of the random variances.
    """
    normal = gaussian.draw(torch.zeros_like(location), shape, shape_type, floor, noise)
    # Under a diagonal Σ the variance of each feature is drawn by itself.
    n_variances = location.shape[-1] if shape_type == "diag" else 1
    half = (0.5 * spread.degrees).unsqueeze(-1).expand(*location.shape[:-1], n_variances).contiguous()
    precision = torch._standard_gamma(half, generator=generator) / half
    wider = (spread.factor.unsqueeze(-1) / precision).sqrt()
    return location + normal * torch.where(spread.is_t.unsqueeze(-1), wider, 1.0).to(normal.dtype)

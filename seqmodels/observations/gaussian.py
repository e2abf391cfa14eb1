"""Gaussian densities from unconstrained numbers, with a floor: what mixtures and autoregressions share.

``full``: the numbers are a lower triangular L with precision ``L Lᵀ``: D log-diagonals, then the entries below it row by row.
``diag``: D log-variances. The floor v bounds the density: every variance of a feature given the ones after it is at least v.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

CovarianceType = Literal["diag", "full"]


def n_shape_parameters(covariance_type: CovarianceType, size: int) -> int:
    """How many numbers describe the covariance of D features."""
    return size if covariance_type == "diag" else size * (size + 1) // 2


def precision_cholesky(shape: Tensor, size: int, floor: float) -> Tensor:
    """``(..., D(D+1)/2)`` numbers -> lower triangular L, ``(..., D, D)``, its diagonal at most ``1/sqrt(floor)``."""
    diagonal = shape[..., :size].clamp(max=-0.5 * math.log(floor)).exp()
    factor = torch.diag_embed(diagonal)
    rows, columns = torch.tril_indices(size, size, offset=-1, device=shape.device)
    factor[..., rows, columns] = shape[..., size:]
    return factor


def shape_of_covariance(covariance: Tensor) -> Tensor:
    """The inverse of ``precision_cholesky``: covariances ``(..., D, D)`` -> ``(..., D(D+1)/2)`` numbers."""
    size = covariance.shape[-1]
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(covariance)))
    rows, columns = torch.tril_indices(size, size, offset=-1, device=covariance.device)
    log_diagonal = factor.diagonal(dim1=-2, dim2=-1).log()
    return torch.cat([log_diagonal, factor[..., rows, columns]], dim=-1)


def covariance_of_shape(shape: Tensor, size: int, floor: float) -> Tensor:
    """Covariance matrices ``(..., D, D)`` of full shapes."""
    return torch.cholesky_inverse(precision_cholesky(shape, size, floor))


def covariance_cholesky(shape: Tensor, size: int, floor: float) -> Tensor:
    """Lower triangular ``(..., D, D)`` factors of the covariances of full shapes, without squaring their condition."""
    factor = precision_cholesky(shape, size, floor)
    identity = torch.eye(size, dtype=shape.dtype, device=shape.device).expand(factor.shape)
    # The covariance is L⁻ᵀ L⁻¹; with L⁻¹ = Q R it is Rᵀ R.
    upper = torch.linalg.qr(torch.linalg.solve_triangular(factor, identity, upper=False)).R
    return (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).transpose(-1, -2)


def variances_of_shape(shape: Tensor, floor: float) -> Tensor:
    """Variances ``(..., D)`` of diagonal shapes (log-variances)."""
    return shape.clamp(min=math.log(floor)).exp()


def log_density(x: Tensor, mean: Tensor, shape: Tensor, covariance_type: CovarianceType, floor: float) -> Tensor:
    """``log N(x; mean, covariance)``, ``(...)``. With ``diag``, NaN features of x are marginalised."""
    size = x.shape[-1]
    if covariance_type == "full":
        factor = precision_cholesky(shape, size, floor)
        whitened = torch.einsum("...ij,...i->...j", factor, x - mean)  # Lᵀ (x - mean)
        log_det = shape[..., :size].clamp(max=-0.5 * math.log(floor)).sum(-1)
        return log_det - 0.5 * (whitened.square().sum(-1) + size * math.log(2 * math.pi))
    log_variance = shape.clamp(min=math.log(floor))
    observed = ~torch.isnan(x)
    deviation = torch.where(observed, x, 0.0) - mean
    terms = log_variance + deviation.square() * torch.exp(-log_variance) + math.log(2 * math.pi)
    return -0.5 * torch.where(observed, terms, 0.0).sum(-1)


def draw(mean: Tensor, shape: Tensor, covariance_type: CovarianceType, floor: float, noise: Tensor) -> Tensor:
    """``mean`` plus standard normal ``noise (..., D)`` coloured by the covariance."""
    if covariance_type == "diag":
        return mean + noise * variances_of_shape(shape, floor).sqrt()
    factor = precision_cholesky(shape, mean.shape[-1], floor)
    coloured = torch.linalg.solve_triangular(factor.transpose(-1, -2), noise.unsqueeze(-1), upper=True)
    return mean + coloured.squeeze(-1)


def at_floor(shape: Tensor, size: int, covariance_type: CovarianceType, floor: float) -> Tensor:
    """Whether any variance sits on the floor (within 1e-6 relative): ``(...)`` bool."""
    if covariance_type == "diag":
        return (shape <= math.log(floor) + 1e-6).any(-1)
    return (shape[..., :size] >= -0.5 * math.log(floor) - 1e-6).any(-1)

"""Gaussian log-densities as linear functions of quadratic features: ``log N(w) = θ · φ(w)``, one matrix product for all states.

``φ(w)`` holds the products ``w_i w_j`` (i ≤ j), the entries ``w_i``, and 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGE = 300.0  # coefficients that float32 still resolves to some 1e-4 nats on standardised data


def features(w: Tensor) -> Tensor:
    """``(N, D)`` -> ``(N, D(D+1)/2 + D + 1)``."""
    i, j = torch.triu_indices(w.shape[1], w.shape[1], device=w.device)
    return torch.cat([w[:, i] * w[:, j], w, w.new_ones(len(w), 1)], dim=1)


def coefficients(precision: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """θ of ``constant + linear · w - ½ wᵀ precision w``: ``(..., D, D), (..., D), (...)`` -> ``(..., F)``."""
    i, j = torch.triu_indices(linear.shape[-1], linear.shape[-1], device=linear.device)
    products = torch.where(i == j, -0.5, -1.0) * precision[..., i, j]
    return torch.cat([products, linear, constant.unsqueeze(-1)], dim=-1)


def precise_enough(theta: Tensor, dtype: torch.dtype) -> torch.dtype:
    """``dtype``, or float64 where narrow Gaussians make θ · φ the small difference of large terms."""
    finite = torch.where(torch.isfinite(theta), theta, 0.0)
    return torch.float64 if bool(finite.abs().amax() > LARGE) else dtype


def largest_precision(factor: Tensor) -> Tensor:
    """``(...)``: the inverse of the covariance's smallest eigenvalue, given ``factor``, a Cholesky factor of the precision."""
    return torch.linalg.eigvalsh(factor @ factor.transpose(-1, -2))[..., -1]


def moments(sums: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of features ``(..., F)`` -> ``Σ w wᵀ (..., D, D)``, ``Σ w (..., D)``, ``Σ 1 (...)``."""
    i, j = torch.triu_indices(size, size, device=sums.device)
    products, linear, count = sums.split([len(i), size, 1], dim=-1)
    matrix = torch.zeros(*sums.shape[:-1], size, size, dtype=sums.dtype, device=sums.device)
    matrix[..., i, j] = products
    matrix[..., j, i] = products
    return matrix, linear, count.squeeze(-1)


def sums_of_moments(products: Tensor, first: Tensor, counts: Tensor) -> Tensor:
    """The inverse of ``moments``."""
    i, j = torch.triu_indices(first.shape[-1], first.shape[-1], device=first.device)
    return torch.cat([products[..., i, j], first, counts.unsqueeze(-1)], dim=-1)


def clip_eigenvalues(covariance: Tensor, floor: float) -> Tensor:
    """The covariance of highest likelihood whose eigenvalues are at least ``floor``, given the unconstrained one."""
    values, vectors = torch.linalg.eigh(covariance)
    if bool((values >= floor).all()):
        return covariance
    return (vectors * values.clamp(min=floor).unsqueeze(-2)) @ vectors.transpose(-1, -2)

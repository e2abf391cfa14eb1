"""Frames with missing values under full covariances, a pattern of missingness at a time.

The observed features have the marginal ``N(μ_o, Σ_oo)``; the missing ones given them have the mean
``μ_m + Σ_mo Σ_oo⁻¹ (x_o - μ_o)`` and the covariance ``Σ_mm - Σ_mo Σ_oo⁻¹ Σ_om``. Sums over the observed features
therefore suffice: expected sums over all features are an affine function of them (Little and Rubin 2002, *Statistical
analysis with missing data*, section 11.2).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def by_pattern(x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each pattern of observed features in the rows of ``x (N, D)``, with the indices ``(n,)`` of the rows that
    have it.

    A pattern is a mask ``(D,)``, True for features that are not NaN.
    """
    observed = ~torch.isnan(x)
    which = _numbered(observed)
    order, sizes = which.argsort(stable=True), torch.bincount(which)
    for rows in order.split(sizes.tolist()):
        yield observed[rows[0]], rows


def _numbered(observed: Tensor) -> Tensor:
    """Return for each row of a boolean matrix ``(N, D)`` the number of its distinct value, ``(N,)``, counted from 0.

    The rows are compared 32 bits at a time, because finding unique rows directly is slow.
    """
    which = torch.zeros(len(observed), dtype=torch.int64, device=observed.device)
    for bits in observed.split(32, dim=1):
        code = (bits.long() << torch.arange(bits.shape[1], device=observed.device)).sum(1)
        which = torch.unique((which << 32) | code, return_inverse=True)[1]
    return which


def marginal(covariance: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the precision (inverse covariance) of the observed features and half its log-determinant.

    The shapes are ``(..., o, o)`` and ``(...)``.

    Args:
        covariance: covariances of all D features, ``(..., D, D)``.
        observed: mask of the o observed features, ``(D,)``.
    """
    factor = torch.linalg.cholesky(covariance[..., observed, :][..., observed])
    return torch.cholesky_inverse(factor), -factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def regression(means: Tensor, covariance: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the regression of all features on the observed ones: slope ``A``, intercept ``b`` and covariance ``C``.

    ``E[x | x_o] = A x_o + b`` and ``Cov[x | x_o] = C``, where ``x_o`` are the features for which ``observed (D,)`` is
    True. The shapes are ``A (..., D, o)``, ``b (..., D)`` and ``C (..., D, D)``, for o of D features observed.

    Args:
        means: means of the Gaussians, ``(..., D)``.
        covariance: their covariances, ``(..., D, D)``.
        observed: mask of the observed features, ``(D,)``.
    """
    precision, _ = marginal(covariance, observed)
    slope = covariance[..., observed] @ precision
    # An observed feature is predicted exactly, by itself.
    slope[..., observed, :] = torch.eye(precision.shape[-1], dtype=slope.dtype, device=slope.device)
    residual = covariance - slope @ covariance[..., observed, :]
    residual[..., observed, :] = 0.0
    residual[..., :, observed] = 0.0
    intercept = means - (slope @ means[..., observed].unsqueeze(-1)).squeeze(-1)
    return slope, intercept, residual


def expected_moments(
    moments: tuple[Tensor, Tensor, Tensor], means: Tensor, covariance: Tensor, observed: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the expectations of ``Σ x xᵀ``, ``Σ x`` and ``Σ 1`` over all features, given those over observed features.

    The sums are over frames x that are Gaussian and miss the same features.

    Args:
        moments: ``Σ x_o x_oᵀ (..., o, o)``, ``Σ x_o (..., o)`` and ``Σ 1 (...)`` of the o observed features x_o.
        means: means of all D features, ``(..., D)``.
        covariance: their covariances, ``(..., D, D)``.
        observed: mask of the observed features, ``(D,)``.
    """
    products, first, counts = moments
    slope, b, residual = regression(means, covariance, observed)
    a = (slope @ first.unsqueeze(-1)).squeeze(-1)
    cross, n = outer(a, b), counts[..., None, None]
    linear = slope @ products @ slope.transpose(-1, -2) + cross + cross.transpose(-1, -2)
    return linear + n * (outer(b, b) + residual), a + counts.unsqueeze(-1) * b, counts


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the outer products of vectors ``a`` and ``b``, both ``(..., D)``, as ``(..., D, D)``."""
    return a.unsqueeze(-1) * b.unsqueeze(-2)

"""Gaussian log-densities as linear functions of quadratic features, ``log N(w) = θ · φ(w)``.

``φ(w)`` holds the products ``w_i w_j`` (i ≤ j), the entries ``w_i``, and 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MAX_SIGNAL_FLOAT32 = 5000.0  # largest √D μᵀΣ⁻¹μ in float32, which is then off by about 5e-4 nats
MAX_SIGNAL_FLOAT64 = 1e8  # largest μᵀΣ⁻¹μ in float64, which is then off by about 1e-8 nats
MAX_SQUARED_FLOAT32 = 1e9  # largest deviation that is squared in float32
MAX_SQUARED_FLOAT64 = 1e140  # largest deviation that is squared in float64


def features(w: Tensor) -> Tensor:
    """Return the quadratic features of vectors ``w (N, D)``: ``w_i w_j`` for i <= j, ``w_i``, and 1.

    The shape is ``(N, D(D+1)/2 + D + 1)``. In memory, all values of a feature are adjacent.
    """
    n, size = w.shape
    result = w.new_empty(n_features(size), n)
    features_of_columns(w.T.contiguous(), result)
    return result.T


def features_of_columns(columns: Tensor, result: Tensor) -> None:
    """Fill ``result (F, n)`` with the quadratic features of n vectors, the columns of ``columns (D, n)``.

    The F features of a vector w are ``w_i w_j`` for i <= j, ``w_i``, and 1.
    """
    size = len(columns)
    at = 0
    for i in range(size):  # row by row of the upper triangle
        torch.mul(columns[i], columns[i:], out=result[at : at + size - i])
        at += size - i
    result[at:-1], result[-1] = columns, 1.0


def n_features(size: int) -> int:
    """Return the number of quadratic features of vectors w with ``size`` entries: ``w_i w_j`` for i <= j, ``w_i``, and
    1.
    """
    return size * (size + 1) // 2 + size + 1


def coefficients(precision: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """Return the coefficients, ``(..., F)``, of a quadratic function of w in the F features ``w_i w_j`` (i <= j),
    ``w_i`` and 1.

    The function is ``constant + linear · w - ½ wᵀ precision w``.

    Args:
        precision: symmetric matrices, ``(..., D, D)``.
        linear: vectors, ``(..., D)``.
        constant: numbers, ``(...)``.
    """
    i, j = torch.triu_indices(linear.shape[-1], linear.shape[-1], device=linear.device)
    products = torch.where(i == j, -0.5, -1.0) * precision[..., i, j]
    return torch.cat([products, linear, constant.unsqueeze(-1)], dim=-1)


def precise_enough(signal: Tensor, x: Tensor, dtype: torch.dtype, largest: float | None = None) -> torch.dtype:
    """Return the dtype in which Gaussian log-densities, as linear functions of quadratic features, are precise.

    It is ``dtype``, or float64 where the log-density is a small difference of large terms. Near its mean a Gaussian
    adds up terms as large as its signal, ``μᵀΣ⁻¹μ``. In float32 the sum is off by about ``1e-7 √D`` times that
    (measured over 1 to 39 features, correlated or not); how narrow the Gaussian is does not matter by itself. Frames so
    far away that float32 cannot square them need float64, too.

    Args:
        signal: ``μᵀΣ⁻¹μ`` of each Gaussian.
        x: frames, ``(N, D)``.
        dtype: the dtype to use if it is precise enough.
        largest: ``largest_value(x)``; None computes it.
    """
    imprecise = math.sqrt(x.shape[1]) * float(signal.amax()) > MAX_SIGNAL_FLOAT32
    size = largest_value(x) if largest is None else largest
    return torch.float64 if imprecise or size > MAX_SQUARED_FLOAT32 else dtype


def cancels(signal: Tensor) -> bool:
    """Return True if log-densities as linear functions of quadratic features are too imprecise even in float64.

    Squared deviations from the means must then be computed instead.

    ``signal`` is ``μᵀΣ⁻¹μ`` of each Gaussian.
    """
    return float(signal.amax()) > MAX_SIGNAL_FLOAT64


def largest_value(x: Tensor) -> float:
    """Return the largest absolute value in ``x``, leaving out missing values (NaN); 0 if ``x`` is empty."""
    if x.numel() == 0:
        return 0.0
    lowest, highest = (float(bound) for bound in torch.aminmax(x))
    if math.isnan(lowest):
        lowest, highest = (float(bound) for bound in torch.aminmax(torch.nan_to_num(x)))
    return max(-lowest, highest)


def squarable(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``x`` in ``dtype``, in which float64 values whose squares would overflow are clipped."""
    return x.to(dtype) if dtype == torch.float32 else x.to(dtype).clamp(-MAX_SQUARED_FLOAT64, MAX_SQUARED_FLOAT64)


def largest_precision(factor: Tensor) -> Tensor:
    """Return the largest eigenvalue, ``(...)``, of each precision matrix, given its Cholesky ``factor (..., D, D)``.

    It is the inverse of the covariance's smallest eigenvalue.
    """
    eigenvalues: Tensor = torch.linalg.eigvalsh(factor @ factor.transpose(-1, -2))
    return eigenvalues[..., -1]


def moments(sums: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split sums of quadratic features into ``Σ w wᵀ (..., D, D)``, ``Σ w (..., D)`` and ``Σ 1 (...)``.

    The features of a vector w, ``(..., F)``, are ``w_i w_j`` (i <= j), ``w_i`` and 1. ``size`` is D, the length of the
    vectors w.
    """
    i, j = torch.triu_indices(size, size, device=sums.device)
    products, linear, count = sums.split([len(i), size, 1], dim=-1)
    matrix = torch.zeros(*sums.shape[:-1], size, size, dtype=sums.dtype, device=sums.device)
    matrix[..., i, j] = products
    matrix[..., j, i] = products
    return matrix, linear, count.squeeze(-1)


def sums_of_moments(products: Tensor, first: Tensor, counts: Tensor) -> Tensor:
    """Join ``Σ w wᵀ (..., D, D)``, ``Σ w (..., D)`` and ``Σ 1 (...)`` to sums of quadratic features.

    The result is ``(..., F)``, for the features ``w_i w_j`` (i <= j), ``w_i`` and 1 of vectors w.
    """
    i, j = torch.triu_indices(first.shape[-1], first.shape[-1], device=first.device)
    return torch.cat([products[..., i, j], first, counts.unsqueeze(-1)], dim=-1)


def clip_eigenvalues(covariance: Tensor, floor: float) -> Tensor:
    """Return the Gaussian covariance of highest likelihood whose eigenvalues are at least ``floor``.

    ``covariance (..., D, D)`` is the unconstrained maximum of the likelihood.
    """
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(covariance)
    if bool((values >= floor).all()):
        return covariance
    return (vectors * values.clamp(min=floor).unsqueeze(-2)) @ vectors.transpose(-1, -2)

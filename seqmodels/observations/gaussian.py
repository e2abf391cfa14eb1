"""Gaussian densities whose covariance is given by unconstrained numbers (a *shape*), with a floor on the variances.

There are three types of shape:

- ``diag``: D log-variances.
- ``full``: a lower triangular L with precision ``L Lᵀ``: D log-diagonals, then the entries below them row by row.
- ``lowrank``: covariance ``diag(v) + W Wᵀ``: D log-variances, then W ``(D, r)`` row by row. No matrix larger than r by
  r is factored (Woodbury 1950).

Missing values are summed out under every type. The floor bounds the density: the variance of each feature given the
later ones (under ``lowrank``, each v) is at least the floor. Mixtures and autoregressions share these functions.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.observations.base import FullConditionals, full_conditionals_of_independent

ShapeType = Literal["diag", "full", "lowrank"]
CovarianceType = Literal["diag", "full", "tied", "spherical", "lowrank"]
LARGEST_LOG_VARIANCE = 200 * math.log(10)


def n_shape_parameters(shape_type: ShapeType, size: int, rank: int = 0) -> int:
    """Return how many numbers the shape of a covariance of ``size`` features has.

    ``shape_type`` is the form of the covariance; ``rank`` is the number of columns of W, for ``"lowrank"`` only.
    """
    if shape_type == "lowrank":
        return size * (1 + rank)
    return size if shape_type == "diag" else size * (size + 1) // 2


def precision_cholesky(shape: Tensor, size: int, floor: float) -> Tensor:
    """Return the lower triangular factor L of the precision, ``(..., D, D)``, from full shapes ``(..., D(D+1)/2)``.

    ``size`` is D. ``floor`` is a lower bound of the variances: the diagonal of L is at most ``1/sqrt(floor)``.
    """
    diagonal = shape[..., :size].clamp(max=-0.5 * math.log(floor)).exp()
    factor = torch.diag_embed(diagonal)
    rows, columns = torch.tril_indices(size, size, offset=-1, device=shape.device)
    factor[..., rows, columns] = shape[..., size:]
    return factor


def precision_factor(shape: Tensor, size: int, shape_type: ShapeType, floor: float) -> Tensor:
    """Return a lower triangular factor L of the precision ``L Lᵀ``, ``(..., D, D)``, for any type of shape.

    ``floor`` is a lower bound of the variances. The diagonal of L does not underflow, because a variance that a network
    makes larger than 1e200 is replaced by 1e200.
    """
    if shape_type == "full":
        logs, below = shape.split([size, shape.shape[-1] - size], -1)
        return precision_cholesky(torch.cat([logs.clamp(min=-0.5 * LARGEST_LOG_VARIANCE), below], -1), size, floor)
    if shape_type == "diag":
        return torch.diag_embed(torch.exp(-0.5 * shape.clamp(min=math.log(floor), max=LARGEST_LOG_VARIANCE)))
    log_variance, factor = unpack_lowrank(shape, size, floor)
    covariance = torch.diag_embed(log_variance.exp()) + factor @ factor.mT
    return precision_cholesky(shape_of_covariance(covariance), size, torch.finfo(shape.dtype).tiny)


def shape_of_factor(factor: Tensor) -> Tensor:
    """Return the full shapes ``(..., D(D+1)/2)`` of lower triangular precision factors ``(..., D, D)``.

    It is the inverse of ``precision_cholesky``.
    """
    size = factor.shape[-1]
    rows, columns = torch.tril_indices(size, size, offset=-1, device=factor.device)
    return torch.cat([factor.diagonal(dim1=-2, dim2=-1).log(), factor[..., rows, columns]], dim=-1)


def shape_of_covariance(covariance: Tensor) -> Tensor:
    """Return the full shapes ``(..., D(D+1)/2)`` of covariance matrices ``(..., D, D)``.

    It is the inverse of ``covariance_of_shape``.
    """
    return shape_of_factor(torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(covariance))))


def covariance_of_shape(shape: Tensor, size: int, floor: float) -> Tensor:
    """Return the covariances ``(..., D, D)`` of full shapes ``(..., D(D+1)/2)``; ``floor`` bounds variances."""
    return torch.cholesky_inverse(precision_cholesky(shape, size, floor))


def covariance_cholesky(shape: Tensor, size: int, floor: float) -> Tensor:
    """Return lower triangular factors ``(..., D, D)`` of the covariances of full shapes; ``floor`` bounds the
    variances.

    They are computed without forming the covariance, which would square the condition number.
    """
    factor = precision_cholesky(shape, size, floor)
    identity = torch.eye(size, dtype=shape.dtype, device=shape.device).expand(factor.shape)
    # The covariance is L⁻ᵀ L⁻¹; with L⁻¹ = Q R it is Rᵀ R.
    upper = torch.linalg.qr(torch.linalg.solve_triangular(factor, identity, upper=False)).R
    lower: Tensor = (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).transpose(-1, -2)
    return lower


def variances_of_shape(shape: Tensor, floor: float) -> Tensor:
    """Return the variances ``(..., D)`` of diagonal shapes (log-variances), at least ``floor``."""
    return shape.clamp(min=math.log(floor)).exp()


def unpack_lowrank(shape: Tensor, size: int, floor: float) -> tuple[Tensor, Tensor]:
    """Split low-rank shapes ``(..., D (1 + r))`` into log-variances, floored, and W ``(..., D, r)``."""
    return shape[..., :size].clamp(min=math.log(floor)), shape[..., size:].unflatten(-1, (size, -1))


def log_density(x: Tensor, mean: Tensor, shape: Tensor, shape_type: ShapeType, floor: float) -> Tensor:
    """Return ``log N(x; mean, covariance)`` in nats, shape ``(...)``; NaN features of x are summed out.

    Args:
        x: values, ``(..., D)``.
        mean: means, ``(..., D)``.
        shape: numbers that describe the covariances, ``(..., S)``.
        shape_type: form of the covariances.
        floor: lower bound of the variances.
    """
    if shape_type == "diag":
        return _diagonal_log_density(x, mean, shape.clamp(min=math.log(floor)))
    if shape_type == "lowrank":
        return _lowrank_log_density(x, mean, shape, floor)
    if bool(torch.isnan(x).any()):
        return _marginal_log_density(x, mean, shape, floor)
    size = x.shape[-1]
    factor = precision_cholesky(shape, size, floor)
    whitened = torch.einsum("...ij,...i->...j", factor, x - mean)  # Lᵀ (x - mean)
    log_det = shape[..., :size].clamp(max=-0.5 * math.log(floor)).sum(-1)
    return log_det - 0.5 * (whitened.square().sum(-1) + size * math.log(2 * math.pi))


def array_log_density(
    x: np.ndarray, mean: np.ndarray, shape: np.ndarray, shape_type: ShapeType, floor: float
) -> np.ndarray:
    """Return the log-density of one vector under M Gaussians in nats, ``(M,)``, computed on NumPy arrays.

    Args:
        x: the vector, ``(D,)``, without NaN.
        mean: mean of each Gaussian, ``(M, D)``.
        shape: numbers that describe each covariance, ``(M, S)``.
        shape_type: form of the covariances, ``"diag"`` or ``"full"``.
        floor: lower bound of the variances.
    """
    deviation, size = x - mean, len(x)
    if shape_type == "diag":
        log_variance = np.maximum(shape, math.log(floor))
        log_det, whitened = -0.5 * np.add.reduce(log_variance, 1), deviation * np.exp(-0.5 * log_variance)
    else:
        logs, (rows, columns) = np.minimum(shape[:, :size], -0.5 * math.log(floor)), _below_diagonal(size)
        factor = np.zeros((len(mean), size, size), shape.dtype)
        factor[:, range(size), range(size)] = np.exp(logs)
        factor[:, rows, columns] = shape[:, size:]
        log_det, whitened = np.add.reduce(logs, 1), (deviation[:, None] @ factor)[:, 0]  # Lᵀ (x - mean)
    result: np.ndarray = log_det - 0.5 * (np.add.reduce(whitened * whitened, 1) + size * math.log(2 * math.pi))
    return result


@cache
def _below_diagonal(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column indices of the entries below the diagonal, in the order of a full shape's numbers."""
    return np.tril_indices(size, -1)


def _diagonal_log_density(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    return -0.5 * _diagonal_terms(x, mean, log_variance).sum(-1)


def _diagonal_terms(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return ``-2 log p(x_d)`` of each feature, ``(..., D)``; 0 for a missing feature."""
    observed = ~torch.isnan(x)
    deviation = torch.where(observed, x, 0.0) - mean
    terms = log_variance + deviation.square() * torch.exp(-log_variance) + math.log(2 * math.pi)
    return torch.where(observed, terms, 0.0)


def _marginal_log_density(x: Tensor, mean: Tensor, shape: Tensor, floor: float) -> Tensor:
    """Return the log-density of ``x (..., D)`` under full shapes, with missing (NaN) values summed out.

    A missing feature is replaced by an independent standard normal observed at its mean.
    """
    observed = ~torch.isnan(x)
    deviation = torch.where(observed, torch.where(observed, x, 0.0) - mean, 0.0).double()
    together = observed.unsqueeze(-1) & observed.unsqueeze(-2)
    identity = torch.eye(x.shape[-1], dtype=torch.float64, device=x.device)
    # In float64, because computing a covariance from its inverse and factoring it loses half of float32's digits.
    covariance = torch.where(together, covariance_of_shape(shape.double(), x.shape[-1], floor), identity)
    factor = torch.linalg.cholesky(covariance)
    whitened = torch.linalg.solve_triangular(factor, deviation.unsqueeze(-1), upper=False).squeeze(-1)
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = 0.5 * math.log(2 * math.pi) * observed.sum(-1, dtype=torch.float64)
    log_prob: Tensor = -log_det - constant - 0.5 * whitened.square().sum(-1)
    return log_prob.to(x.dtype)


def _lowrank_log_density(x: Tensor, mean: Tensor, shape: Tensor, floor: float) -> Tensor:
    """Return the log-density of ``x (..., D)`` under low-rank shapes, with missing (NaN) values summed out.

    With whitened ``z = (x - mean) / √v`` and ``U = W / √v``, the quadratic form is ``min_y |z - U y|² + |y|²``. As a
    sum of squares it cannot become negative by cancellation, as ``|z|² - ...`` can.
    """
    log_variance, factor = unpack_lowrank(shape, x.shape[-1], floor)
    observed = ~torch.isnan(x)
    inverse = torch.where(observed, torch.exp(-0.5 * log_variance), 0.0)  # inverse deviations, 0 if missing
    white = inverse * (torch.where(observed, x, 0.0) - mean)
    u = inverse.unsqueeze(-1) * factor  # (..., D, r)
    capacitance = torch.linalg.cholesky(u.mT @ u + torch.eye(u.shape[-1], dtype=u.dtype, device=u.device))
    y = torch.cholesky_solve(u.mT @ white.unsqueeze(-1), capacitance)  # (..., r, 1)
    left = white - (u @ y).squeeze(-1)
    squares = left.square().sum(-1) + y.square().sum((-1, -2))
    log_det = torch.where(observed, log_variance + math.log(2 * math.pi), 0.0).sum(-1)
    log_prob: Tensor = -0.5 * (log_det + squares) - capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return log_prob


def full_conditionals(x: Tensor, mean: Tensor, shape: Tensor, shape_type: ShapeType, floor: float) -> FullConditionals:
    """Return the log-density of each feature of ``x (..., D)`` given all others; NaN features are summed out.

    With precision P and ``g = P (x - mean)``, feature d given the others is Gaussian with variance ``1 / P_dd`` and
    deviates from its conditional mean by ``g_d / P_dd`` (Bishop 2006, 2.3.1). All is computed in float64, because
    removing the largest term from a sum loses digits. ``mean``, ``shape``, ``shape_type`` and ``floor`` describe the
    Gaussian as in ``log_density``.
    """
    x, mean, shape = x.double(), mean.double(), shape.double()
    if shape_type == "diag":
        return full_conditionals_of_independent(-0.5 * _diagonal_terms(x, mean, shape.clamp(min=math.log(floor))))
    joint = log_density(x, mean, shape, shape_type, floor).unsqueeze(-1)
    size = x.shape[-1]
    if shape_type == "lowrank" or bool(torch.isnan(x).any()):
        is_left_out = torch.eye(size, dtype=torch.bool, device=x.device)
        without = [log_density(x.masked_fill(row, torch.nan), mean, shape, shape_type, floor) for row in is_left_out]
        others = torch.stack(without, -1)
        return FullConditionals(joint - others, others)
    factor = precision_cholesky(shape, size, floor)
    whitened = torch.einsum("...ij,...i->...j", factor, x - mean)
    g = torch.einsum("...ij,...j->...i", factor, whitened)  # P (x - mean)
    precision = factor.square().sum(-1)  # P_dd
    each = 0.5 * (precision.log() - math.log(2 * math.pi) - g.square() / precision)
    return FullConditionals(each, joint - each)


def covariance_given_last(covariance: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gain ``(..., n, D)`` and the covariance ``(..., n, n)`` of n Gaussian variables given values of the
    last D, which do not depend on the values (Bishop 2006, 2.3.1).

    ``observed (..., D)`` is True for each of the last D variables that is observed; its covariances are exactly zero.
    """
    size = observed.shape[-1]
    together = observed.unsqueeze(-1) & observed.unsqueeze(-2)
    identity = torch.eye(size, dtype=covariance.dtype, device=covariance.device)
    factor = torch.linalg.cholesky(torch.where(together, covariance[..., -size:, -size:], identity))
    cross = torch.where(observed.unsqueeze(-2), covariance[..., -size:], 0.0)  # (..., n, D)
    gain = torch.cholesky_solve(cross.mT, factor).mT
    left = covariance - gain @ cross.mT
    known = torch.nn.functional.pad(observed, (covariance.shape[-1] - size, 0))
    left = torch.where(known.unsqueeze(-1) | known.unsqueeze(-2), 0.0, left)
    return gain, 0.5 * (left + left.mT)


def mean_given_last(mean: Tensor, gain: Tensor, x: Tensor) -> Tensor:
    """Return the mean of n Gaussian variables given observed values ``x (..., D)`` of the last D, ``(..., n)``.

    ``gain (..., n, D)`` is the result of ``covariance_given_last``. NaN in ``x`` marks a variable that is not observed.
    """
    size, observed = x.shape[-1], ~torch.isnan(x)
    values = torch.where(observed, x, 0.0)
    deviation = torch.where(observed, values - mean[..., -size:], 0.0)
    mean = mean + (gain @ deviation.unsqueeze(-1)).squeeze(-1)
    rest = mean.shape[-1] - size
    known, values = torch.nn.functional.pad(observed, (rest, 0)), torch.nn.functional.pad(values, (rest, 0))
    return torch.where(known, values, mean)


def n_noise(shape_type: ShapeType, size: int, rank: int = 0) -> int:
    """Return the number of standard normal numbers that ``draw`` takes for one draw: D, or D + rank for
    ``"lowrank"``.
    """
    return size + rank if shape_type == "lowrank" else size


def draw(mean: Tensor, shape: Tensor, shape_type: ShapeType, floor: float, noise: Tensor) -> Tensor:
    """Return draws from Gaussians, ``(..., D)``, made of standard normal ``noise (..., n_noise)``.

    ``mean (..., D)``, ``shape``, ``shape_type`` and ``floor`` describe the Gaussians as in ``log_density``.
    """
    if shape_type == "lowrank":
        size = mean.shape[-1]
        log_variance, factor = unpack_lowrank(shape, size, floor)
        common = factor @ noise[..., size:].unsqueeze(-1)  # (..., D, 1)
        return mean + noise[..., :size] * torch.exp(0.5 * log_variance) + common.squeeze(-1)
    if shape_type == "diag":
        return mean + noise * variances_of_shape(shape, floor).sqrt()
    factor = precision_cholesky(shape, mean.shape[-1], floor)
    coloured: Tensor = torch.linalg.solve_triangular(factor.transpose(-1, -2), noise.unsqueeze(-1), upper=True)
    return mean + coloured.squeeze(-1)


def scaled(shape: Tensor, size: int, shape_type: ShapeType, factor: float) -> Tensor:
    """Return the shapes of covariances that are ``factor`` times as large as those of ``shape``."""
    if shape_type == "diag":
        return shape + math.log(factor)
    log_diagonal, below = shape[..., :size], shape[..., size:]
    if shape_type == "lowrank":  # logarithms of variances, then loadings
        return torch.cat([log_diagonal + math.log(factor), below * factor**0.5], dim=-1)
    return torch.cat([log_diagonal - 0.5 * math.log(factor), below * factor**-0.5], dim=-1)


def at_floor(shape: Tensor, size: int, shape_type: ShapeType, floor: float) -> Tensor:
    """Return a bool ``(...)`` that is True if any variance of a covariance is on the floor, to a relative 1e-6."""
    if shape_type in ("diag", "lowrank"):
        return (shape[..., :size] <= math.log(floor) + 1e-6).any(-1)
    return (shape[..., :size] >= -0.5 * math.log(floor) - 1e-6).any(-1)


def on_floor(shape: Tensor, size: int, shape_type: ShapeType, floor: float, factor: float) -> Tensor:
    """Return shapes of covariances whose variances are at least ``factor`` times the floor.

    Variances on the floor are moved to exactly ``factor`` times the floor. Under ``full`` they are the eigenvalues of
    the covariance.
    """
    if shape_type in ("diag", "lowrank"):
        log_variance, least = shape[..., :size], math.log(factor * floor)
        moved = torch.where(log_variance <= math.log(floor) + 1e-6, least, log_variance.clamp(min=least))
        return torch.cat([moved, shape[..., size:]], dim=-1)
    values, vectors = torch.linalg.eigh(covariance_of_shape(shape, size, min(factor, 1.0) * floor))
    least = factor * floor
    moved = torch.where(values <= (1 + 1e-6) * floor, least, values.clamp(min=least))
    return shape_of_covariance((vectors * moved.unsqueeze(-2)) @ vectors.mT)

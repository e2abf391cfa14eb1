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
    """Return how many real numbers describe one covariance matrix.

    Args:
        shape_type: form of the covariance: ``"diag"`` (log-variances), ``"full"`` (Cholesky factor of the precision) or
            ``"lowrank"`` (``diag(v) + W Wᵀ``).
        size: number of features D.
        rank: number of columns of W, for ``"lowrank"`` only.
    """
    if shape_type == "lowrank":
        return size * (1 + rank)
    return size if shape_type == "diag" else size * (size + 1) // 2


def precision_cholesky(shape: Tensor, size: int, floor: float) -> Tensor:
    """Return the Cholesky factors L, ``(..., D, D)``, of the precisions (inverse covariances) ``L Lᵀ`` of Gaussians.

    Args:
        shape: D logarithms of the diagonal of L, then the entries below it row by row, ``(..., D(D+1)/2)``.
        size: number of features D.
        floor: lower bound of the variances: the diagonal of L is at most ``1/sqrt(floor)``.
    """
    diagonal = shape[..., :size].clamp(max=-0.5 * math.log(floor)).exp()
    factor = torch.diag_embed(diagonal)
    rows, columns = torch.tril_indices(size, size, offset=-1, device=shape.device)
    factor[..., rows, columns] = shape[..., size:]
    return factor


def precision_factor(shape: Tensor, size: int, shape_type: ShapeType, floor: float) -> Tensor:
    """Return a lower triangular factor L of the precision ``L Lᵀ``, ``(..., D, D)``, for any form of covariance.

    The diagonal of L does not underflow: a variance above 1e200 is replaced by 1e200.

    Args:
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(..., S)``.
        size: number of features D.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row; ``"lowrank"`` for D log-variances v and W row by row, with covariance ``diag(v) + W Wᵀ``.
        floor: lower bound of the variances.
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
    """Return the numbers that describe precisions ``L Lᵀ``, ``(..., D(D+1)/2)``; the inverse of ``precision_cholesky``.

    They are the D logarithms of the diagonal of L, then the entries below it row by row.

    Args:
        factor: lower triangular factors L of the precisions of D features, ``(..., D, D)``.
    """
    size = factor.shape[-1]
    rows, columns = torch.tril_indices(size, size, offset=-1, device=factor.device)
    return torch.cat([factor.diagonal(dim1=-2, dim2=-1).log(), factor[..., rows, columns]], dim=-1)


def shape_of_covariance(covariance: Tensor) -> Tensor:
    """Return the numbers that describe full covariances, ``(..., D(D+1)/2)``; the inverse of ``covariance_of_shape``.

    With the precision ``L Lᵀ``, they are the D logarithms of the diagonal of L, then the entries below it row by row.

    Args:
        covariance: covariance matrices of D features, ``(..., D, D)``.
    """
    return shape_of_factor(torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(covariance))))


def covariance_of_shape(shape: Tensor, size: int, floor: float) -> Tensor:
    """Return full covariance matrices, ``(..., D, D)``, given the numbers that describe them.

    Args:
        shape: D logarithms of the diagonal of L, where ``L Lᵀ`` is the precision, then the entries of L below it row by
            row, ``(..., D(D+1)/2)``.
        size: number of features D.
        floor: lower bound of the variances.
    """
    return torch.cholesky_inverse(precision_cholesky(shape, size, floor))


def covariance_cholesky(shape: Tensor, size: int, floor: float) -> Tensor:
    """Return lower triangular factors of full covariances, ``(..., D, D)``, given the numbers that describe these.

    The covariance itself is not formed, which would square the condition number.

    Args:
        shape: D logarithms of the diagonal of L, where ``L Lᵀ`` is the precision, then the entries of L below it row by
            row, ``(..., D(D+1)/2)``.
        size: number of features D.
        floor: lower bound of the variances.
    """
    factor = precision_cholesky(shape, size, floor)
    identity = torch.eye(size, dtype=shape.dtype, device=shape.device).expand(factor.shape)
    # The covariance is L⁻ᵀ L⁻¹; with L⁻¹ = Q R it is Rᵀ R.
    upper = torch.linalg.qr(torch.linalg.solve_triangular(factor, identity, upper=False)).R
    lower: Tensor = (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).transpose(-1, -2)
    return lower


def variances_of_shape(shape: Tensor, floor: float) -> Tensor:
    """Return the variances that log-variances describe, raised to at least a lower bound, ``(..., D)``.

    Args:
        shape: log-variances, ``(..., D)``.
        floor: the lower bound.
    """
    return shape.clamp(min=math.log(floor)).exp()


def unpack_lowrank(shape: Tensor, size: int, floor: float) -> tuple[Tensor, Tensor]:
    """Split the numbers that describe a covariance ``diag(v) + W Wᵀ`` into log v ``(..., D)`` and W ``(..., D, r)``.

    Args:
        shape: D log-variances, then the r columns of W row by row, ``(..., D (1 + r))``.
        size: number of features D.
        floor: lower bound to which v is raised.
    """
    return shape[..., :size].clamp(min=math.log(floor)), shape[..., size:].unflatten(-1, (size, -1))


def log_density(x: Tensor, mean: Tensor, shape: Tensor, shape_type: ShapeType, floor: float) -> Tensor:
    """Return the Gaussian log-density ``log N(x; mean, covariance)`` of vectors in nats, ``(...)``.

    Missing features (NaN) of x are marginalised out.

    Args:
        x: vectors of D features, ``(..., D)``.
        mean: means, ``(..., D)``.
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(..., S)``.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row, with precision ``L Lᵀ``; ``"lowrank"`` for D log-variances v and W row by row, with covariance
            ``diag(v) + W Wᵀ``.
        floor: lower bound of the variances.
    """
    if shape_type == "diag":
        return _diagonal_log_density(x, mean, shape.clamp(min=math.log(floor)))
    if shape_type == "lowrank":
        return _lowrank_log_density(x, mean, shape, floor)
    if bool(torch.isnan(x).any()):
        squares, log_det, n = marginal_squares(x, mean, shape, floor)
        log_prob: Tensor = -log_det - 0.5 * math.log(2 * math.pi) * n - 0.5 * squares
        return log_prob.to(x.dtype)
    squares, log_det = full_squares(x, mean, shape, floor)
    return log_det - 0.5 * (squares + x.shape[-1] * math.log(2 * math.pi))


def full_squares(x: Tensor, mean: Tensor, shape: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return squared distances ``(x - mean)ᵀ P (x - mean)`` and ``½ log |P|`` for full precisions P, both ``(...)``.

    Args:
        x: vectors of D features without missing values, ``(..., D)``.
        mean: means, ``(..., D)``.
        shape: the numbers that describe each precision, ``(..., D(D+1)/2)``.
        floor: lower bound of the variances.
    """
    size = x.shape[-1]
    factor = precision_cholesky(shape, size, floor)
    whitened = torch.einsum("...ij,...i->...j", factor, x - mean)  # Lᵀ (x - mean)
    return whitened.square().sum(-1), shape[..., :size].clamp(max=-0.5 * math.log(floor)).sum(-1)


def array_log_density(
    x: np.ndarray, mean: np.ndarray, shape: np.ndarray, shape_type: ShapeType, floor: float
) -> np.ndarray:
    """Return the log-density of one vector under each of M Gaussians in nats, ``(M,)``, computed on NumPy arrays.

    Args:
        x: the vector of D features, ``(D,)``, without NaN.
        mean: mean of each Gaussian, ``(M, D)``.
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(M, S)``.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row, with precision ``L Lᵀ``.
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
    """Return the row and column indices of the entries below the diagonal of a matrix, row by row."""
    return np.tril_indices(size, -1)


def _diagonal_log_density(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    return -0.5 * _diagonal_terms(x, mean, log_variance).sum(-1)


def _diagonal_terms(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return ``-2 log p(x_d)`` of each feature under a Gaussian of independent features, ``(..., D)``; 0 if missing."""
    observed = ~torch.isnan(x)
    deviation = torch.where(observed, x, 0.0) - mean
    terms = log_variance + deviation.square() * torch.exp(-log_variance) + math.log(2 * math.pi)
    return torch.where(observed, terms, 0.0)


def marginal_squares(x: Tensor, mean: Tensor, shape: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the squared distances of vectors with missing features, ``½ log |covariance|`` and the numbers of observed
    features, each ``(...)`` float64.

    A missing feature (NaN) is marginalised out: an independent standard normal, observed at its mean, replaces it.

    Args:
        x: vectors of D features, ``(..., D)``.
        mean: means, ``(..., D)``.
        shape: D logarithms of the diagonal of L, where ``L Lᵀ`` is the precision, then the entries of L below it row by
            row, ``(..., D(D+1)/2)``.
        floor: lower bound of the variances.
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
    return whitened.square().sum(-1), log_det, observed.sum(-1, dtype=torch.float64)


def _lowrank_log_density(x: Tensor, mean: Tensor, shape: Tensor, floor: float) -> Tensor:
    """Return the log-density of vectors under covariances ``diag(v) + W Wᵀ`` in nats, with NaN values marginalised out.

    With ``z = (x - mean) / √v`` and ``U = W / √v``, the quadratic form is computed as ``min_y |z - U y|² + |y|²``.
    Being a sum of squares, it cannot become negative by cancellation, as ``|z|² - ...`` can.

    Args:
        x: vectors of D features, ``(..., D)``.
        mean: means, ``(..., D)``.
        shape: D logarithms of v, then the r columns of W row by row, ``(..., D (1 + r))``.
        floor: lower bound of v.
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
    """Return the Gaussian log-density of each feature given all others, and of all others, in nats, each ``(..., D)``.

    With precision P and ``g = P (x - mean)``, feature d given the others is Gaussian with variance ``1 / P_dd`` and
    deviates from its conditional mean by ``g_d / P_dd`` (Bishop 2006, 2.3.1). All is computed in float64, because
    removing the largest term from a sum loses digits.

    Args:
        x: vectors of D features, ``(..., D)``; missing features (NaN) are marginalised out.
        mean: means, ``(..., D)``.
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(..., S)``.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row, with precision ``L Lᵀ``; ``"lowrank"`` for D log-variances v and W row by row, with covariance
            ``diag(v) + W Wᵀ``.
        floor: lower bound of the variances.
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
    """Return the gain and the covariance of n jointly Gaussian variables given that the last D of them are observed.

    Neither depends on the values of the last D variables (Bishop 2006, 2.3.1).

    Args:
        covariance: covariance of all n variables, ``(..., n, n)``.
        observed: True for each of the last D variables that is observed, ``(..., D)``.

    Returns:
        The gain ``(..., n, D)``, the matrix that turns the deviations of the last D variables from their means into
            changes of the means of all n; and the conditional covariance ``(..., n, n)``, exactly zero for observed
            variables.
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
    """Return the conditional mean ``(..., n)`` of n jointly Gaussian variables given values of the last D of them.

    Args:
        mean: mean of the n variables before, ``(..., n)``.
        gain: matrix from the deviations of the last D variables to changes of all n means, the first result of
            ``covariance_given_last``, ``(..., n, D)``.
        x: values of the last D variables, ``(..., D)``; NaN where a variable is not observed.
    """
    size, observed = x.shape[-1], ~torch.isnan(x)
    values = torch.where(observed, x, 0.0)
    deviation = torch.where(observed, values - mean[..., -size:], 0.0)
    mean = mean + (gain @ deviation.unsqueeze(-1)).squeeze(-1)
    rest = mean.shape[-1] - size
    known, values = torch.nn.functional.pad(observed, (rest, 0)), torch.nn.functional.pad(values, (rest, 0))
    return torch.where(known, values, mean)


def n_noise(shape_type: ShapeType, size: int, rank: int = 0) -> int:
    """Return how many standard normal numbers are needed to draw one vector from a Gaussian: D, or D + rank.

    Args:
        shape_type: form of the covariance; only ``"lowrank"``, ``diag(v) + W Wᵀ``, needs D + rank.
        size: number of features D.
        rank: number of columns of W.
    """
    return size + rank if shape_type == "lowrank" else size


def draw(mean: Tensor, shape: Tensor, shape_type: ShapeType, floor: float, noise: Tensor) -> Tensor:
    """Return vectors ``(..., D)`` drawn from Gaussians, as a function of standard normal noise.

    Args:
        mean: means, ``(..., D)``.
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(..., S)``.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row, with precision ``L Lᵀ``; ``"lowrank"`` for D log-variances v and W row by row, with covariance
            ``diag(v) + W Wᵀ``.
        floor: lower bound of the variances.
        noise: standard normal numbers, ``(..., D)``, or ``(..., D + r)`` for ``"lowrank"`` with r columns of W.
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
    """Return the numbers that describe covariances multiplied by ``factor``, ``(..., S)``.

    Args:
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(..., S)``.
        size: number of features D.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row, with precision ``L Lᵀ``; ``"lowrank"`` for D log-variances v and W row by row, with covariance
            ``diag(v) + W Wᵀ``.
        factor: a number above 0.
    """
    if shape_type == "diag":
        return shape + math.log(factor)
    log_diagonal, below = shape[..., :size], shape[..., size:]
    if shape_type == "lowrank":  # logarithms of variances, then loadings
        return torch.cat([log_diagonal + math.log(factor), below * factor**0.5], dim=-1)
    return torch.cat([log_diagonal - 0.5 * math.log(factor), below * factor**-0.5], dim=-1)


def at_floor(shape: Tensor, size: int, shape_type: ShapeType, floor: float) -> Tensor:
    """Return True for each covariance that has a variance at its lower bound, up to a relative 1e-6, ``(...)`` bool.

    Args:
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(..., S)``.
        size: number of features D.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row, with precision ``L Lᵀ``; ``"lowrank"`` for D log-variances v and W row by row, with covariance
            ``diag(v) + W Wᵀ``.
        floor: lower bound of the variances.
    """
    if shape_type in ("diag", "lowrank"):
        return (shape[..., :size] <= math.log(floor) + 1e-6).any(-1)
    return (shape[..., :size] >= -0.5 * math.log(floor) - 1e-6).any(-1)


def on_floor(shape: Tensor, size: int, shape_type: ShapeType, floor: float, factor: float) -> Tensor:
    """Return the numbers that describe covariances after raising variances to at least ``factor`` times their floor.

    Variances that are on the floor are set to exactly ``factor`` times the floor, also if ``factor`` is below 1. For
    ``"full"`` covariances, variances here are the eigenvalues. The result is ``(..., S)``.

    Args:
        shape: the S numbers that describe each covariance in the form ``shape_type``, ``(..., S)``.
        size: number of features D.
        shape_type: ``"diag"`` for D log-variances; ``"full"`` for the D log-diagonals of L and the entries below them
            row by row, with precision ``L Lᵀ``; ``"lowrank"`` for D log-variances v and W row by row, with covariance
            ``diag(v) + W Wᵀ``.
        floor: lower bound of the variances.
        factor: the multiple of the floor.
    """
    if shape_type in ("diag", "lowrank"):
        log_variance, least = shape[..., :size], math.log(factor * floor)
        moved = torch.where(log_variance <= math.log(floor) + 1e-6, least, log_variance.clamp(min=least))
        return torch.cat([moved, shape[..., size:]], dim=-1)
    values, vectors = torch.linalg.eigh(covariance_of_shape(shape, size, min(factor, 1.0) * floor))
    least = factor * floor
    moved = torch.where(values <= (1 + 1e-6) * floor, least, values.clamp(min=least))
    return shape_of_covariance((vectors * moved.unsqueeze(-2)) @ vectors.mT)

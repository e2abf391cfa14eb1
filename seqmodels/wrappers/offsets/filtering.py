"""What is known of an offset b, and what a step adds to it: Gaussians in, Gaussians out.

A step given b is a mixture of Gaussians whose means are linear in b, ``x = a_j + H_j (b - m) + e_j``, ``e_j ~ N(0,
S_j)``. Under ``b ~ N(m, C)`` the step is ``Σ_j w_j N(a_j, S_j + H_j C H_jᵀ)``, and after it b is a mixture with one
Gaussian a component, each by a Kalman update, which is replaced by the Gaussian of its mean and covariance (Bar-Shalom,
Li and Kirubarajan 2001, *Estimation with applications to tracking and navigation*, section 11.6: the generalised
pseudo-Bayesian filter of first order). With one component nothing is approximated.

No covariance is ever the difference of two. With ``S_j⁻¹ = L Lᵀ``, ``C = R Rᵀ`` and ``G = Lᵀ H R`` the covariance of b
after a step is ``R (I + Gᵀ G)⁻¹ Rᵀ``, and the quadratic form ``min_y |u - G y|² + |y|²`` of ``u = Lᵀ (x - a)``, so that
frames far from all that was seen leave it positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Belief:
    """``b ~ N(mean (n, D), covariance (n, D, D))`` of n sequences, float64, encoded units."""

    mean: Tensor
    covariance: Tensor


@dataclass(frozen=True)
class LinearMixture:
    """The next step of n sequences given b, linear around ``m``: J Gaussians.

    Attributes:
        log_weights: ``(n, J)``.
        means: ``(n, J, D)`` a, those where b is m.
        slopes: ``(n or 1, J, D, D)`` H.
        factors: ``(n or 1, J, D, D)`` L, lower triangular, of the precisions.
    """

    log_weights: Tensor
    means: Tensor
    slopes: Tensor
    factors: Tensor


def predicted_precisions(mixture: LinearMixture, belief: Belief) -> Tensor:
    """``(n, J, D, D)`` lower triangular factors of the precisions ``(S + H C Hᵀ)⁻¹``."""
    gained = mixture.factors.mT @ mixture.slopes @ square_root(belief.covariance).unsqueeze(1)
    factor = factor_of_one_plus_gram(gained.mT)  # of I + G Gᵀ
    whitening = mixture.factors.mT.expand(factor.shape)
    upper = torch.linalg.qr(torch.linalg.solve_triangular(factor, whitening, upper=False)).R
    precision: Tensor = (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT
    return precision


def updated(mixture: LinearMixture, belief: Belief, x: Tensor) -> tuple[Tensor, Belief]:
    """``(n, J)`` log-probability of ``x (n, D)`` together with each component, and what is known of b after x.

    NaN features of x are summed out.
    """
    white, slopes, log_density = _whitened(mixture, x)
    root = square_root(belief.covariance).unsqueeze(1)  # (n, 1, D, D)
    gained = slopes @ root  # (n, J, D, D), G
    factor = factor_of_one_plus_gram(gained)
    right = torch.cat([root.mT.expand(gained.shape), gained.mT @ white.unsqueeze(-1)], -1)
    solved = torch.linalg.solve_triangular(factor, right, upper=False)
    after, projected = solved[..., :-1], solved[..., -1:]  # C_j = afterᵀ after
    y = torch.linalg.solve_triangular(factor.mT, projected, upper=True)
    squares = (white - (gained @ y).squeeze(-1)).square().sum(-1) + y.square().sum((-1, -2))
    log_joint = mixture.log_weights + log_density - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * squares
    share = _shares(log_joint)
    moves = (after.mT @ projected).squeeze(-1)  # (n, J, D)
    move = (share.unsqueeze(-1) * moves).sum(1)
    apart = share.sqrt().unsqueeze(-1) * (moves - move.unsqueeze(1))
    weighted = (share.sqrt()[..., None, None] * after).flatten(1, 2)  # (n, J D, D)
    return log_joint, Belief(belief.mean + move, weighted.mT @ weighted + apart.mT @ apart)


def evidence(mixture: LinearMixture, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What ``x (n, D)`` says of b where b is taken to be m in weighing the components.

    Returns:
        ``(n, J)`` log-probability together with each component; the precision ``Σ_j γ_j H_jᵀ S_j⁻¹ H_j (n, D, D)``, and
        ``Σ_j γ_j H_jᵀ S_j⁻¹ (x - a_j) (n, D)``, the gradient of the log-probability in b.
    """
    white, slopes, log_density = _whitened(mixture, x)
    log_joint = mixture.log_weights + log_density - 0.5 * white.square().sum(-1)
    share = _shares(log_joint)
    gradient = (share.unsqueeze(-1) * (slopes.mT @ white.unsqueeze(-1)).squeeze(-1)).sum(1)
    weighted = (share.sqrt()[..., None, None] * slopes).flatten(1, 2)
    return log_joint, weighted.mT @ weighted, gradient


def square_root(covariance: Tensor) -> Tensor:
    """R with ``R Rᵀ`` the covariance ``(n, D, D)``: Cholesky's, or of one that is singular in float64 the spectral."""
    root: Tensor
    root, info = torch.linalg.cholesky_ex(covariance)
    failed = info != 0
    if bool(failed.any()):
        values, vectors = torch.linalg.eigh(covariance[failed])
        root = root.clone()
        root[failed] = vectors * values.clamp(min=0.0).sqrt().unsqueeze(-2)
    return root


def factor_of_one_plus_gram(matrix: Tensor) -> Tensor:
    """Lower triangular T with ``T Tᵀ = I + Gᵀ G`` of ``(..., E, D)``; by QR where float64 cannot hold the squares."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(identity + matrix.mT @ matrix)
    failed = info != 0
    if bool(failed.any()):
        tall = torch.cat([identity.expand(*matrix[failed].shape[:-2], -1, -1), matrix[failed]], -2)
        upper = torch.linalg.qr(tall).R
        factor = factor.clone()
        factor[failed] = (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT
    return factor


def _shares(log_joint: Tensor) -> Tensor:
    """Posterior probabilities ``(n, J)`` of components; uniform where none is possible."""
    return torch.softmax(torch.where(log_joint.isneginf().all(-1, keepdim=True), 0.0, log_joint), -1)


def _whitened(mixture: LinearMixture, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``u = Lᵀ (x - a) (n, J, D)``, ``Lᵀ H (n or 1, J, D, D)`` and ``log|L| - D log(2 π) / 2 (n or 1, J)``.

    Of a frame with missing values a, H and L are those of what is observed: a missing feature becomes a standard normal
    of its own, seen at its mean.
    """
    observed = ~torch.isnan(x)
    factors, slopes = mixture.factors, mixture.slopes
    deviation = torch.where(observed, x, 0.0).unsqueeze(1) - mixture.means
    if not bool(observed.all()):
        together = (observed.unsqueeze(-1) & observed.unsqueeze(-2)).unsqueeze(1)
        identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        covariance = torch.where(together, torch.cholesky_inverse(factors), identity)
        factors = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(covariance)))
        slopes = torch.where(observed[:, None, :, None], slopes, 0.0)
        deviation = torch.where(observed.unsqueeze(1), deviation, 0.0)
    white = (factors.mT @ deviation.unsqueeze(-1)).squeeze(-1)
    log_det = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = 0.5 * math.log(2 * math.pi) * observed.sum(-1, dtype=x.dtype).unsqueeze(-1)
    return white, factors.mT @ slopes, log_det - constant

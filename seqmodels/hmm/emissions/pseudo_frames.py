"""What the prior ``PseudoFrames`` adds: to sufficient statistics its sums, to the objective an expected log-density."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from seqmodels.observations.gaussian_mixture import PseudoFrames


def sums(prior: PseudoFrames, log_weights: Tensor, size: int, *, diagonal: bool) -> Tensor:
    """``(K, M, F)`` sums of features, for components ``log_weights (K, M)``; those of weight zero get none.

    Features: ``diagonal``: x, x², whether each was observed, 1; else the products ``x_i x_j`` (i <= j), x, 1.
    """
    count, mean, variance = _moments(prior, log_weights, size)
    if diagonal:
        features = torch.cat([mean, mean.square() + variance, torch.ones_like(mean), torch.ones_like(count)], dim=-1)
    else:
        i, j = torch.triu_indices(size, size, device=mean.device)
        products = mean[..., i] * mean[..., j] + torch.where(i == j, variance[..., i], 0.0)
        features = torch.cat([products, mean, torch.ones_like(count)], dim=-1)
    return count * features


def log_density(
    prior: PseudoFrames, log_weights: Tensor, means: Tensor, covariances: Tensor, *, diagonal: bool
) -> Tensor:
    """``Σ count E[log w + log N(x)]`` in nats, less a constant; ``covariances (K, M, D)`` if ``diagonal``, else
    ``(K, M, D, D)``.

    Of a covariance that is shared one is enough: ``(1, 1, D, D)``.
    """
    count, mean, variance = _moments(prior, log_weights, means.shape[-1])
    squares = (means - mean).square() + variance
    if diagonal:
        terms = (covariances.log() + squares / covariances).sum(-1, keepdim=True)
    else:
        precision = torch.linalg.inv(covariances)
        deviation = (means - mean).unsqueeze(-1)
        spread = (precision.diagonal(dim1=-2, dim2=-1) * variance).sum(-1, keepdim=True)
        distance = (deviation.transpose(-1, -2) @ precision @ deviation).squeeze(-1)
        terms = torch.logdet(covariances).unsqueeze(-1) + distance + spread
    log_weight = torch.where(count > 0, log_weights.unsqueeze(-1), 0.0)
    return (count * (log_weight - 0.5 * terms)).sum()


def check(prior: PseudoFrames) -> None:
    """Raise ``ValueError`` for counts below zero and covariances that are not positive."""
    if not bool((torch.as_tensor(prior.count) >= 0).all()):
        raise ValueError(f"count of the pseudo-frames is {prior.count}; pass 0 or more")
    if not bool((torch.as_tensor(prior.covariance) > 0).all()):
        raise ValueError(f"covariance of the pseudo-frames is {prior.covariance}; pass variances above 0")


def _moments(prior: PseudoFrames, log_weights: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Count ``(K, M, 1)``, mean and variance ``(K, M, D)``."""
    check(prior)
    shape = (*log_weights.shape, size)
    count = _expand("count", prior.count, log_weights.shape, log_weights)
    effective_count = torch.where(log_weights == -math.inf, 0.0, count).unsqueeze(-1)
    return (
        effective_count,
        _expand("mean", prior.mean, shape, log_weights),
        _expand("covariance", prior.covariance, shape, log_weights),
    )


def _expand(name: str, value: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    tensor = torch.as_tensor(value, dtype=torch.float64, device=like.device)
    try:
        return tensor.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"{name} of the pseudo-frames has shape {tuple(tensor.shape)}; pass a number or {shape} (states, "
            "components, "
            "features), leading axes left out at will"
        ) from None

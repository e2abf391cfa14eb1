"""The prior ``PseudoFrames``: sums that it adds to the statistics, and its log-density, part of the objective."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.observations.gaussian_mixture import PseudoFrames


def pseudo_frame_sums(
    prior: PseudoFrames, log_weights: Tensor, means: Tensor, first: Tensor, observed: Tensor, *, diagonal: bool
) -> Tensor:
    """Return the sums of features that a prior of pseudo-frames adds to the statistics of a Gaussian mixture, ``(K, M,
    F)``.

    A pseudo-frame is an imaginary frame that the prior adds to each component. There are M components in each of K
    states, and F features of a frame. The sums are zero for components of weight zero. The new mean m is the mean of
    the observed frames and ``mean_count`` frames at ``mean``. The other ``count - mean_count`` frames are at m itself:
    they do not move it, and they bring the count of the variance to ``count``.

    Args:
        prior: the pseudo-frames.
        log_weights, means: parameters before the M-step, ``(K, M)`` and ``(K, M, D)``.
        first: posterior-weighted sums of frames x, ``(K, M, D)``.
        observed: expected number of observed values of x, ``(K, M, D)`` or ``(K, M, 1)``.
        diagonal: True if the features are x, x², whether each was observed, 1; False if they are the products ``x_i
            x_j`` (i <= j), x, 1.
    """
    believed = Believed.of(prior, log_weights, means.shape[-1])
    count, mean_count, mean = believed.count, believed.mean_count, believed.mean
    total = observed + mean_count
    new_mean = torch.where(total > 1e-10, (first + mean_count * mean) / total.clamp(min=1e-300), means)
    rest = count - mean_count
    at_means = mean_count * mean + rest * new_mean
    if diagonal:
        squares = mean_count * mean.square() + rest * new_mean.square() + count * believed.variance
        return torch.cat([at_means, squares, count.expand_as(mean), count], dim=-1)
    i, j = torch.triu_indices(means.shape[-1], means.shape[-1], device=means.device)
    products = mean_count * mean[..., i] * mean[..., j] + rest * new_mean[..., i] * new_mean[..., j]
    products = products + torch.where(i == j, (count * believed.variance)[..., i], 0.0)
    return torch.cat([products, at_means, count], dim=-1)


def pseudo_frame_log_density(
    prior: PseudoFrames, log_weights: Tensor, means: Tensor, covariances: Tensor, *, diagonal: bool
) -> Tensor:
    """Return the log-density in nats of a Gaussian mixture's prior of pseudo-frames (imaginary frames), up to a
    constant.

    It is ``Σ count (log w - ½ log|Σ| - ½ tr Σ⁻¹Σ_0) - ½ mean_count (μ - μ_0)ᵀ Σ⁻¹ (μ - μ_0)``. The sum is over M
    components in each of K states, with weights w, means μ and covariances Σ.

    Args:
        prior: the pseudo-frames, with counts, mean μ_0 and covariance Σ_0.
        log_weights, means: log-weights ``(K, M)`` and means ``(K, M, D)``.
        covariances: variances ``(K, M, D)`` if ``diagonal``, else covariances ``(K, M, D, D)``, or ``(1, 1, D, D)`` if
            one is shared.
        diagonal: True if covariances are diagonal.
    """
    believed = Believed.of(prior, log_weights, means.shape[-1])
    deviation = means - believed.mean
    if diagonal:
        log_det = covariances.log().sum(-1, keepdim=True)
        spread = (believed.variance / covariances).sum(-1, keepdim=True)
        distance = (deviation.square() / covariances).sum(-1, keepdim=True)
    else:
        precision = torch.linalg.inv(covariances)
        log_det = torch.logdet(covariances).unsqueeze(-1)
        spread = (precision.diagonal(dim1=-2, dim2=-1) * believed.variance).sum(-1, keepdim=True)
        column = deviation.unsqueeze(-1)
        distance = (column.transpose(-1, -2) @ precision @ column).squeeze(-1)
    log_weight = torch.where(believed.count > 0, log_weights.unsqueeze(-1), 0.0)
    terms = believed.count * (log_weight - 0.5 * (log_det + spread)) - 0.5 * believed.mean_count * distance
    return terms.sum()


def check_pseudo_frames(prior: PseudoFrames) -> None:
    """Raise ``ValueError`` if a count of the prior is negative or a variance is not positive."""
    for name, count in (("count", prior.count), ("mean_count", prior.mean_count)):
        is_given = name == "count" or count is not None
        if is_given and not (numbers_of(f"{name} of the pseudo-frames", count) >= 0).all():
            raise ValueError(f"{name} of the pseudo-frames is {count}; pass 0 or more")
    numbers_of("mean of the pseudo-frames", prior.mean)
    if isinstance(prior.covariance, str):
        if prior.covariance != "auto":
            raise ValueError(f"covariance of the pseudo-frames is {prior.covariance!r}; pass variances, or 'auto'")
    elif not (numbers_of("covariance of the pseudo-frames", prior.covariance) > 0).all():
        raise ValueError(f"covariance of the pseudo-frames is {prior.covariance}; pass variances above 0")


@dataclass(frozen=True)
class Believed:
    """The parameters of a ``PseudoFrames`` prior as float64 tensors, with an entry for each of M components in K
    states.

    Attributes:
        count, mean_count: number of imaginary frames that the prior adds for the component and for its mean, ``(K, M,
            1)``; 0 for components of weight zero.
        mean, variance: mean and variance of these frames, ``(K, M, D)``.
    """

    count: Tensor
    mean_count: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, prior: PseudoFrames, log_weights: Tensor, size: int) -> Believed:
        """Return the parameters of ``prior`` for M components in K states with log-weights ``(K, M)``, over ``size``
        features.
        """
        check_pseudo_frames(prior)
        shape = (*log_weights.shape, size)
        absent = log_weights == -math.inf
        count = _expand("count", prior.count, log_weights.shape, log_weights)
        of_mean = prior.count if prior.mean_count is None else prior.mean_count
        mean_count = _expand("mean_count", of_mean, log_weights.shape, log_weights)
        variance = log_weights.numel() ** (-2 / size) if isinstance(prior.covariance, str) else prior.covariance
        return cls(
            torch.where(absent, 0.0, count).unsqueeze(-1),
            torch.where(absent, 0.0, mean_count).unsqueeze(-1),
            _expand("mean", prior.mean, shape, log_weights),
            _expand("covariance", variance, shape, log_weights),
        )

    def of_component(self, state: int, component: int) -> Believed:
        """Return the prior of one component: numbers ``(1,)``, mean and variance ``(1, D)``."""
        of_state = (self.count[state], self.mean_count[state], self.mean[state], self.variance[state])
        count, mean_count, mean, variance = (each[component : component + 1] for each in of_state)
        return Believed(count[:, 0], mean_count[:, 0], mean, variance)


def _expand(name: str, value: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    tensor = torch.as_tensor(value, dtype=torch.float64, device=like.device)
    try:
        return tensor.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"{name} of the pseudo-frames has shape {tuple(tensor.shape)}; pass a number or {shape} (states, "
            "components, features), whose leading axes may be left out"
        ) from None

"""EM for Gaussian mixtures, diagonal and full (Rabiner 1989, section IV.A; Bilmes 1998)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions import quadratic
from seqmodels.hmm.emissions.base import ROWS_AT_ONCE, Emission, Statistics, chunked_sums
from seqmodels.hmm.emissions.kmeans import kmeans_labels
from seqmodels.observations import GaussianMixture, gaussian

LOG_2PI = math.log(2 * math.pi)


class GaussianMixtureEmission(Emission):
    """Log-densities of all M·K components are one product of coefficients and features.

    Features: ``diag``: x, x², whether x was observed (so that missing values drop out exactly), 1; ``full``: products, x, 1.
    Frames stand on the last axis, so that sums over the few components run along memory.
    """

    def __init__(self, observation: GaussianMixture, size: int) -> None:
        self.observation: GaussianMixture = observation
        self.size = size
        self.diagonal = observation.covariance_type == "diag"

    # -- E-step --------------------------------------------------------------------------------------------

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        theta = self._coefficients(table)
        dtype_inside = quadratic.precise_enough(theta, dtype)
        theta = theta.to(dtype_inside)
        result = torch.empty(len(x), len(table), dtype=dtype, device=x.device)
        for part, out in zip(x.split(ROWS_AT_ONCE), result.split(ROWS_AT_ONCE), strict=True):
            out.copy_(_log_sum(self._components(theta, self._features(part.to(dtype_inside)))).T)
        return result

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, log_b: Tensor) -> Statistics:
        theta = self._coefficients(table)
        dtype = quadratic.precise_enough(theta, x.dtype)
        theta = theta.to(dtype)
        total = torch.zeros(theta.shape, dtype=torch.float64, device=x.device)
        parts = zip(*(t.split(ROWS_AT_ONCE) for t in (x, gamma, log_b)), strict=True)
        for frames, weight, whole in parts:
            features = self._features(frames.to(dtype))
            shares = self._components(theta, features).sub_(whole.T).exp_().mul_(weight.T)  # (M, K, N)
            total += chunked_sums(shares.flatten(0, 1), features)
        return (total.view(self.observation.n_components, len(table), -1).transpose(0, 1).contiguous(),)

    def _components(self, theta: Tensor, features: Tensor) -> Tensor:
        """``(M, K, N)``: log w + log N of every component and frame."""
        return (theta @ features.T).view(self.observation.n_components, -1, len(features))

    def _features(self, x: Tensor) -> Tensor:
        if not self.diagonal:
            return quadratic.features(x)
        observed = ~torch.isnan(x)
        seen = torch.where(observed, x, 0.0)
        return torch.cat([seen, seen.square(), observed.to(x.dtype), torch.ones_like(x[:, :1])], dim=1)

    def _coefficients(self, table: Tensor) -> Tensor:
        """``(M·K, F)``: log w + log N as a linear function of the features."""
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        floor = self.observation.min_covariance
        if self.diagonal:
            log_variance = shapes.clamp(min=math.log(floor))
            precision = torch.exp(-log_variance)
            each = -0.5 * (log_variance + LOG_2PI + precision * means.square())
            theta = torch.cat([precision * means, -0.5 * precision, each, log_weights.unsqueeze(-1)], dim=-1)
        else:
            factor = gaussian.precision_cholesky(shapes, self.size, floor)
            precision = factor @ factor.transpose(-1, -2)
            linear = (precision @ means.unsqueeze(-1)).squeeze(-1)
            log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            constant = log_weights + log_det - 0.5 * (self.size * LOG_2PI + (linear * means).sum(-1))
            theta = quadratic.coefficients(precision, linear, constant)
        return theta.transpose(0, 1).flatten(0, 1)

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        (sums,) = statistics
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        counts = sums[..., -1]  # (K, M)
        state_counts = counts.sum(-1, keepdim=True)
        new_weights = torch.where(state_counts > 0, (counts / state_counts).log(), log_weights)
        estimate = self._diagonal if self.diagonal else self._full
        new_means, new_shapes, enough = estimate(sums, means)
        # A component that no frame belongs to has nothing to learn from: it stays where it is.
        return self.observation.pack(
            new_weights, torch.where(enough, new_means, means), torch.where(enough, new_shapes, shapes)
        )

    def _diagonal(self, sums: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second, seen, _ = sums.split([self.size, self.size, self.size, 1], dim=-1)
        enough = seen > 1e-10
        mean = first / seen.clamp(min=1e-300)
        variance = second / seen.clamp(min=1e-300) - mean.square()
        return mean, variance.clamp(min=self.observation.min_covariance).log(), enough

    def _full(self, sums: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        products, first, counts = quadratic.moments(sums, self.size)
        enough = counts > 1e-10
        safe = torch.where(enough, counts, 1.0)
        mean = first / safe.unsqueeze(-1)
        covariance = products / safe[..., None, None] - mean.unsqueeze(-1) * mean.unsqueeze(-2)
        clipped = quadratic.clip_eigenvalues(covariance, self.observation.min_covariance)
        return mean, gaussian.shape_of_covariance(clipped), enough.unsqueeze(-1)

    def log_prior(self, table: Tensor) -> float:
        return 0.0

    def floor_hits(self, table: Tensor) -> Tensor:
        log_weights, _, shapes = self.observation.unpack(table, self.size)
        floor = self.observation.min_covariance
        if self.diagonal:
            low = gaussian.at_floor(shapes, self.size, "diag", floor)
        else:
            factor = gaussian.precision_cholesky(shapes, self.size, floor)
            low = quadratic.largest_precision(factor) >= (1 - 1e-6) / floor
        return (low & (log_weights > -math.inf)).any(-1)  # a component without weight bounds nothing

    # -- the start -----------------------------------------------------------------------------------------

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        return kmeans_labels(torch.nan_to_num(x), n_states, generator)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        m = self.observation.n_components
        components = torch.zeros_like(labels)
        for state in range(n_states if m > 1 else 0):
            frames = torch.nonzero(labels == state).squeeze(1)
            if len(frames):
                components[frames] = kmeans_labels(torch.nan_to_num(x[frames]), m, generator)
        sums = torch.zeros(n_states * m, self._features(x[:1]).shape[1], dtype=torch.float64, device=x.device)
        for rows in torch.arange(len(x), device=x.device).split(ROWS_AT_ONCE):
            sums.index_add_(0, labels[rows] * m + components[rows], self._features(x[rows]).double())
        everywhere = sums.sum(0) / max(len(x), 1)
        # Two pseudo-frames of the whole data's statistics keep small clusters wide at first.
        sums = (sums + 2 * everywhere).view(n_states, m, -1)
        width = self.observation.n_parameters(self.size)
        return self.maximise((sums,), torch.zeros(n_states, width, dtype=torch.float64, device=x.device))

    # -- for users -----------------------------------------------------------------------------------------

    def n_parameters(self, n_states: int) -> int:
        return n_states * (self.observation.n_parameters(self.size) - 1)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        log_weights, means, shapes = (t.cpu() for t in self.observation.unpack(table, self.size))
        floor = self.observation.min_covariance
        if self.diagonal:
            covariances = gaussian.variances_of_shape(shapes, floor).numpy() * scale**2
        else:
            covariances = gaussian.covariance_of_shape(shapes, self.size, floor).numpy() * np.outer(scale, scale)
        return {
            "weights_": log_weights.exp().numpy(),
            "means_": means.numpy() * scale + shift,
            "covariances_": covariances,
        }


def _log_sum(components: Tensor) -> Tensor:
    """``(M, K, N)`` -> ``(K, N)`` logarithms of sums over components; ``components`` is used up."""
    if len(components) == 1:
        return components[0]
    peak = components.amax(0)
    return components.sub_(peak).exp_().sum(0).log_().add_(peak)

"""EM for Gaussian mixtures, diagonal and full (Rabiner 1989, section IV.A; Bilmes 1998)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.densities import Densities, LogDensities
from seqmodels.hmm.emissions import pseudo_frames, quadratic
from seqmodels.hmm.emissions.base import Emission, Statistics, by_state, chunked_sums, chunks
from seqmodels.hmm.emissions.kmeans import kmeans_labels
from seqmodels.observations import GaussianMixture, gaussian

LOG_2PI = math.log(2 * math.pi)
UNDERFLOW = {torch.float32: -80.0, torch.float64: -700.0}  # exponents below give subnormal numbers, which are slow


class GaussianMixtureEmission(Emission):
    """Log-densities of all M·K components are one product of coefficients and features.

    Features: ``diag``: x, x², 1, and where values are missing whether x was observed, so that they drop out exactly; ``full``:
    products, x, 1. Frames stand on the last axis, so that sums over the few components run along memory.
    """

    def __init__(self, observation: GaussianMixture, size: int) -> None:
        self.observation: GaussianMixture = observation
        self.size = size
        self.diagonal = observation.covariance_type == "diag"

    # -- E-step --------------------------------------------------------------------------------------------

    def n_densities(self, n_states: int) -> int:
        return n_states * self.observation.n_components

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        result = by_state(len(table), len(x), dtype, x.device)
        for rows, components, _ in self._components(table, x, dtype):
            result.T[:, rows] = _summed(components)[0]
        return result

    def evaluate(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> tuple[Densities, Any]:
        result, memo = by_state(len(table), len(x), dtype, x.device), []
        for rows, components, features in self._components(table, x, dtype):
            result.T[:, rows], total = _summed(components)
            memo.append((rows, components, total, features if self.diagonal else None))
        return LogDensities(result), memo

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        _, chunks = self.evaluate(table, x, past, gamma.dtype) if memo is None else (None, memo)
        m, missing, total = self.observation.n_components, bool(torch.isnan(x).any()), None
        for rows, components, whole, kept in chunks:
            features = self._features(x[rows].to(components.dtype), missing) if kept is None else kept
            weight = gamma.T[:, rows].to(components.dtype)  # (K, n)
            shares = weight if m == 1 else components.mul_(weight.div(whole)).flatten(0, 1)
            sums = chunked_sums(shares, features)
            total = sums if total is None else total + sums
        assert total is not None
        sums = total.view(m, gamma.shape[1], -1).transpose(0, 1)
        return (sums[..., : self._width] if missing or not self.diagonal else self._with_counts(sums),)

    def _components(self, table: Tensor, x: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Chunk by chunk its rows, ``(M, K, n)`` log w + log N of every component and frame, and the features."""
        missing, theta = bool(torch.isnan(x).any()), self._coefficients(table)
        inside = quadratic.precise_enough(theta, dtype)
        if self.diagonal and not missing:
            theta = torch.cat([theta[:, : 2 * self.size], theta[:, 2 * self.size :].sum(1, keepdim=True)], 1)
        for rows in chunks(len(x), max(theta.shape)):
            features = self._features(x[rows].to(inside), missing)
            padded = torch.nn.functional.pad(theta.to(inside), (0, features.shape[1] - theta.shape[1]))
            yield rows, (padded @ features.T).view(self.observation.n_components, len(table), -1), features

    def _features(self, x: Tensor, missing: bool) -> Tensor:
        """``(N, F)``, with columns of zeros up to a width that matrix products are fast on."""
        if not self.diagonal:
            return quadratic.features(x)
        if missing:
            observed = ~torch.isnan(x)
            seen = torch.where(observed, x, 0.0)
            return torch.cat([seen, seen.square(), observed.to(x.dtype), torch.ones_like(x[:, :1])], dim=1)
        width = 2 * self.size + 1
        features = x.new_zeros(len(x), -(-width // 16) * 16 if width > 16 else width)
        features[:, : self.size] = x
        torch.square(x, out=features[:, self.size : width - 1])
        features[:, width - 1] = 1.0
        return features

    def _with_counts(self, sums: Tensor) -> Tensor:
        """Sums of x, x² and 1 -> of x, x², whether each feature was observed, and 1."""
        counts = sums[..., 2 * self.size : 2 * self.size + 1]
        return torch.cat([sums[..., : 2 * self.size], counts.expand(*counts.shape[:-1], self.size), counts], dim=-1)

    @property
    def _width(self) -> int:
        """Features, without padding."""
        return 3 * self.size + 1 if self.diagonal else self.size * (self.size + 1) // 2 + self.size + 1

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
        if self.observation.prior is not None:
            sums = sums + pseudo_frames.sums(self.observation.prior, log_weights, self.size, diagonal=self.diagonal)
        counts = torch.where(log_weights == -math.inf, 0.0, sums[..., -1])  # (K, M)
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
        prior, floor = self.observation.prior, self.observation.min_covariance
        if prior is None:
            return 0.0
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        if self.diagonal:
            covariances = gaussian.variances_of_shape(shapes, floor)
        else:
            covariances = gaussian.covariance_of_shape(shapes, self.size, floor)
        return pseudo_frames.log_density(prior, log_weights, means, covariances, diagonal=self.diagonal)

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
        sums = torch.zeros(n_states * m, self._width, dtype=torch.float64, device=x.device)
        for rows in chunks(len(x), self._width):
            sums.index_add_(0, labels[rows] * m + components[rows], self._features(x[rows], missing=True).double())
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


def _summed(components: Tensor) -> tuple[Tensor, Tensor | None]:
    """``(M, K, n)`` log-densities -> ``(K, n)`` the logarithms of their sums; unless M = 1 they become densities, scaled to a
    maximum of one, whose sums are the second result."""
    if len(components) == 1:
        return components[0], None
    peak = components.amax(0)
    total = components.sub_(peak).clamp_(min=UNDERFLOW[components.dtype]).exp_().sum(0)
    return total.log().add_(peak), total

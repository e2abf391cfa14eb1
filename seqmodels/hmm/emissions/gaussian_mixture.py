"""EM for Gaussian mixtures, diagonal and full (Rabiner 1989, section IV.A; Bilmes 1998)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.densities import LOG2E, Densities, PowerDensities
from seqmodels.hmm.emissions import quadratic
from seqmodels.hmm.emissions.base import Emission, Statistics, add_sums, chunks
from seqmodels.hmm.emissions.kmeans import kmeans_labels
from seqmodels.hmm.scratch import Scratch
from seqmodels.observations import GaussianMixture, gaussian

LOG_2PI = math.log(2 * math.pi)
UNDERFLOW = {torch.float32: -120.0, torch.float64: -1000.0}  # powers of two below are subnormal, which is slow


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
        return self.evaluate(table, x, past, dtype, Scratch())[0].log()

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        m, k, n = self.observation.n_components, len(table), len(x)
        theta = self._coefficients(table) * LOG2E
        inside = quadratic.precise_enough(theta, dtype)
        exponent = scratch.take("exponent", (k, n), dtype, x.device)
        factor = scratch.take("factor", (k, n), dtype, x.device) if m > 1 else None
        room = scratch.take("components", (n, m * k), inside, x.device)
        memo = []
        missing = self.diagonal and bool(torch.isnan(x).any())
        fitted = self._fitted(theta, missing).to(inside)
        whole = scratch.once(x, self._transposed) if self.diagonal and inside == x.dtype else None
        for rows in chunks(n, max(fitted.shape), x.device):
            features = self._features(x[rows].to(inside), missing) if whole is None else whole[:, rows]
            components = room[rows].view(m * k, -1)
            torch.mm(fitted, features, out=components)
            components = components.view(m, k, -1)
            _sum_up(components, exponent[:, rows], None if factor is None else factor[:, rows])
            memo.append((rows, components, features))
        return PowerDensities(exponent, factor), (memo, factor, missing)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        if memo is None:
            memo = self.evaluate(table, x, past, gamma.dtype, Scratch())[1]
        (parts, factor, missing), m = memo, self.observation.n_components
        height = len(parts[0][2])
        total = torch.zeros(m * len(table), height, dtype=torch.float64, device=x.device)
        for rows, components, features in parts:
            weight = gamma.T[:, rows]  # (K, n)
            if factor is not None:
                weight = torch.div(weight, factor[:, rows], out=factor[:, rows])
                weight = components.mul_(weight).flatten(0, 1)
            add_sums(total, weight.to(components.dtype), features)
        sums = total.view(m, len(table), height).transpose(0, 1)
        return (sums[..., : self._width] if missing or not self.diagonal else self._with_counts(sums),)

    def _transposed(self, x: Tensor) -> Tensor:
        """All features of a block, which every E-step needs."""
        return self._features(x, bool(torch.isnan(x).any()))

    def _features(self, x: Tensor, missing: bool) -> Tensor:
        """``(F, n)``, with rows of zeros up to a height that matrix products are fast on."""
        if not self.diagonal:
            return quadratic.features(x).T
        observed = ~torch.isnan(x).T if missing else torch.ones_like(x.T[:1], dtype=torch.bool)
        height = 2 * self.size + len(observed) + missing
        features = x.new_zeros(-(-height // 16) * 16 if height > 16 else height, len(x))
        features[: self.size] = torch.where(observed, x.T, 0.0)
        torch.square(features[: self.size], out=features[self.size : 2 * self.size])
        features[2 * self.size : 2 * self.size + len(observed)] = observed
        features[height - 1] = 1.0
        return features

    def _fitted(self, theta: Tensor, missing: bool) -> Tensor:
        """Coefficients of the features as they are: where nothing is missing, what depends on it adds up."""
        if not self.diagonal:
            return theta
        if not missing:
            theta = torch.cat([theta[:, : 2 * self.size], theta[:, 2 * self.size :].sum(1, keepdim=True)], 1)
        height = theta.shape[1]
        return torch.nn.functional.pad(theta, (0, -(-height // 16) * 16 - height if height > 16 else 0))

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

    def log_prior(self, table: Tensor) -> Tensor:
        return table.new_zeros(())

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
        for rows in chunks(len(x), self._width, x.device):
            features = self._features(x[rows], missing=True)[: self._width].T.double()
            sums.index_add_(0, labels[rows] * m + components[rows], features)
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


def _sum_up(components: Tensor, exponent: Tensor, factor: Tensor | None) -> None:
    """``(M, K, n)`` logarithms to base two of densities -> ``exponent`` and ``factor`` ``(K, n)`` of their sums.

    With a factor (M > 1), what was logarithms becomes densities over 2^exponent, the largest of each state.
    """
    if factor is None:
        exponent.copy_(components[0])
    elif components.dtype == exponent.dtype:
        torch.amax(components, 0, out=exponent)
        components.sub_(exponent).clamp_(min=UNDERFLOW[components.dtype]).exp2_()
        torch.sum(components, 0, out=factor)
    else:
        exponent.copy_(components.amax(0))
        components.sub_(exponent).clamp_(min=UNDERFLOW[exponent.dtype]).exp2_()
        factor.copy_(components.sum(0))

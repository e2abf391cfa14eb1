"""EM for Gaussian mixtures, diagonal, spherical and full (Rabiner 1989, section IV.A; Bilmes 1998)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.densities import LOG2E, Densities
from seqmodels.hmm.emissions import components, missing, pseudo_frames, quadratic
from seqmodels.hmm.emissions.base import Emission, Statistics, add_sums, chunks
from seqmodels.hmm.emissions.components import Chunk, Memo
from seqmodels.hmm.emissions.kmeans import grouped_labels, kmeans_labels
from seqmodels.hmm.scratch import Scratch
from seqmodels.observations import GaussianMixture, gaussian

LOG_2PI = math.log(2 * math.pi)


class GaussianMixtureEmission(Emission):
    """Log-densities of all M·K components are one product of coefficients and features.

    Features: ``diag`` and ``spherical``: x, x², 1, and where values are missing whether x was observed, so that they drop out
    exactly; ``full``: products, x, 1, of what each pattern of missingness leaves. Frames stand on the last axis, so that sums over the few components run along memory.
    """

    def __init__(self, observation: GaussianMixture, size: int) -> None:
        self.observation: GaussianMixture = observation
        self.size = size
        self.diagonal = observation.shape_type == "diag"

    # -- E-step --------------------------------------------------------------------------------------------

    def n_densities(self, n_states: int) -> int:
        return n_states * self.observation.n_components

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        shape = (self.observation.n_components, len(table), len(x))
        return components.log_prob(self._chunks(table, x, dtype, None), shape, dtype, x.device)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        shape = (self.observation.n_components, len(table), len(x))
        return components.densities(self._chunks(table, x, dtype, scratch), shape, dtype, x.device, scratch)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        found: Memo = self.evaluate(table, x, past, gamma.dtype, Scratch())[1] if memo is None else memo
        holed = bool(torch.isnan(x).any())
        normal = self._normal(table) if holed and not self.diagonal else None
        m, height = self.observation.n_components, self._height(holed)
        total = torch.zeros(m * len(table), height, dtype=torch.float64, device=x.device)
        for chunk in found.chunks:
            shares = chunk.shares(gamma, found.factor)
            if normal is not None and chunk.seen is not None:
                total += _expected_sums(shares, x[chunk.rows][:, chunk.seen], normal, chunk.seen)
            else:
                made = chunk.features
                add_sums(total, shares, self._features(x[chunk.rows].to(shares.dtype), holed) if made is None else made)
        sums = total.view(m, len(table), height).transpose(0, 1)
        return (sums[..., : self._width] if holed or not self.diagonal else self._with_counts(sums),)

    def _chunks(self, table: Tensor, x: Tensor, dtype: torch.dtype, scratch: Scratch | None) -> Iterator[Chunk]:
        """``(M, K, n)`` log2 of w N of every component and frame; on scratch, if all are to be kept."""
        holed = bool(torch.isnan(x).any())
        theta, signal = self._coefficients(table)
        if quadratic.cancels(signal):
            yield from self._chunks_by_deviation(table, x, holed)
            return
        if holed and not self.diagonal:
            yield from self._chunks_by_pattern(table, x, dtype)
            return
        inside = quadratic.precise_enough(signal, x, dtype)
        fitted = (self._fitted(theta, holed) * LOG2E).to(inside)
        room = None if scratch is None else scratch.take("components", (len(x), len(theta)), inside, x.device)
        # Of diagonal Gaussians the features are few, and the same in every E-step.
        whole = scratch.once(x, self._transposed) if scratch and self.diagonal and inside == x.dtype else None
        for rows in chunks(len(x), max(fitted.shape), x.device):
            features = self._features(quadratic.squarable(x[rows], inside), holed) if whole is None else whole[:, rows]
            found = fitted.new_empty(len(theta), features.shape[1]) if room is None else room[rows].view(len(theta), -1)
            torch.mm(fitted, features, out=found)
            by_component = found.view(self.observation.n_components, len(table), -1)
            yield Chunk(rows, by_component, features if self.diagonal else None)

    def _chunks_by_pattern(self, table: Tensor, x: Tensor, dtype: torch.dtype) -> Iterator[Chunk]:
        """The same under full covariances, of marginal densities."""
        log_weights, (means, covariance) = self._by_component(table)[0], self._normal(table)
        for seen, rows in missing.by_pattern(x):
            precision, log_det = missing.marginal(covariance, seen)
            theta, signal = _quadratic_coefficients(log_weights, means[:, seen], precision, log_det)
            frames = x[rows][:, seen]
            inside = quadratic.precise_enough(signal, frames, dtype)
            for some in chunks(len(rows), max(theta.shape), x.device):
                features = quadratic.features(quadratic.squarable(frames[some], inside))
                found = ((theta * LOG2E).to(inside) @ features.T).view(self.observation.n_components, len(table), -1)
                yield Chunk(rows[some], found, seen=None if bool(seen.all()) else seen)

    def _chunks_by_deviation(self, table: Tensor, x: Tensor, holed: bool) -> Iterator[Chunk]:
        """The same in float64, every deviation squared by itself: slow, and right where means are far from zero in deviations."""
        log_weights, means, shapes = (t.transpose(0, 1) for t in self.observation.unpack(table.double(), self.size))
        shape = self.observation.shape_type, self.observation.min_covariance
        everything = [(None, torch.arange(len(x), device=x.device))]
        for seen, rows in missing.by_pattern(x) if holed and not self.diagonal else everything:
            for some in chunks(len(rows), means.numel(), x.device):
                frames = x[rows[some]].double()[:, None, None]  # (n, 1, 1, D)
                found = (log_weights + gaussian.log_density(frames, means, shapes, *shape)).mul_(LOG2E)  # (n, M, K)
                yield Chunk(rows[some], found.permute(1, 2, 0).contiguous(), seen=seen)

    def _transposed(self, x: Tensor) -> Tensor:
        """All features of a block."""
        return self._features(x, bool(torch.isnan(x).any()))

    def _features(self, x: Tensor, holed: bool) -> Tensor:
        """``(F, n)``, with rows of zeros up to a height that matrix products are fast on."""
        if not self.diagonal:
            return quadratic.features(x).T
        observed = ~torch.isnan(x).T if holed else torch.ones_like(x.T[:1], dtype=torch.bool)
        features = x.new_zeros(self._height(holed), len(x))
        features[: self.size] = torch.where(observed, x.T, 0.0)
        torch.square(features[: self.size], out=features[self.size : 2 * self.size])
        features[2 * self.size : 2 * self.size + len(observed)] = observed
        features[2 * self.size + len(observed) - (not holed)] = 1.0
        return features

    def _fitted(self, theta: Tensor, holed: bool) -> Tensor:
        """Coefficients of the features as they are: where nothing is missing, what depends on it adds up."""
        if self.diagonal and not holed:
            theta = torch.cat([theta[:, : 2 * self.size], theta[:, 2 * self.size :].sum(1, keepdim=True)], 1)
        return torch.nn.functional.pad(theta, (0, self._height(holed) - theta.shape[1]))

    def _height(self, holed: bool) -> int:
        """Features, with padding."""
        if not self.diagonal:
            return self._width
        height = self._width if holed else 2 * self.size + 1
        return -(-height // 16) * 16 if height > 16 else height

    def _with_counts(self, sums: Tensor) -> Tensor:
        """Sums of x, x² and 1 -> of x, x², whether each feature was observed, and 1."""
        counts = sums[..., 2 * self.size : 2 * self.size + 1]
        return torch.cat([sums[..., : 2 * self.size], counts.expand(*counts.shape[:-1], self.size), counts], dim=-1)

    @property
    def _width(self) -> int:
        """Features, without padding."""
        return 3 * self.size + 1 if self.diagonal else self.size * (self.size + 1) // 2 + self.size + 1

    def _coefficients(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """``(M·K, F)``: log w + log N as a linear function of the features, and ``μᵀΣ⁻¹μ`` of each."""
        if not self.diagonal:
            log_weights, means, factor = self._by_component(table)
            precision, log_det = factor @ factor.transpose(-1, -2), factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            return _quadratic_coefficients(log_weights, means, precision, log_det)
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        log_variance = shapes.clamp(min=math.log(self.observation.min_covariance))
        precision = torch.exp(-log_variance)
        signal = precision * means.square()
        each = -0.5 * (log_variance + LOG_2PI + signal)
        theta = torch.cat([precision * means, -0.5 * precision, each, log_weights.unsqueeze(-1)], dim=-1)
        return theta.transpose(0, 1).flatten(0, 1), signal.sum(-1)

    def _by_component(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Under ``full``: log-weights ``(M·K,)``, means ``(M·K, D)`` and factors of the precisions ``(M·K, D, D)``."""
        log_weights, means, shapes = (
            t.transpose(0, 1).flatten(0, 1) for t in self.observation.unpack(table, self.size)
        )
        return log_weights, means, gaussian.precision_cholesky(shapes, self.size, self.observation.min_covariance)

    def _normal(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Under ``full``: means ``(M·K, D)`` and covariances ``(M·K, D, D)``."""
        _, means, factor = self._by_component(table)
        return means, torch.cholesky_inverse(factor)

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        (sums,) = statistics
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        if self.observation.prior is not None:
            sums = sums + pseudo_frames.sums(self.observation.prior, log_weights, self.size, diagonal=self.diagonal)
        counts = torch.where(log_weights == -math.inf, 0.0, sums[..., -1])  # (K, M)
        new_weights = components.new_log_weights(counts, log_weights)
        estimate = {"diag": self._diagonal, "spherical": self._spherical}.get(
            self.observation.covariance_type, self._full
        )
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

    def _spherical(self, sums: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second, seen, _ = sums.split([self.size, self.size, self.size, 1], dim=-1)
        mean = torch.where(seen > 1e-10, first / seen.clamp(min=1e-300), means)
        squares = (second - seen * mean.square()).sum(-1, keepdim=True)
        values = seen.sum(-1, keepdim=True)
        variance = squares / values.clamp(min=1e-300)
        return mean, variance.clamp(min=self.observation.min_covariance).log().expand(mean.shape), values > 1e-10

    def _full(self, sums: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        products, first, counts = quadratic.moments(sums, self.size)
        enough = counts > 1e-10
        safe = torch.where(enough, counts, 1.0)
        mean = first / safe.unsqueeze(-1)
        covariance = products / safe[..., None, None] - mean.unsqueeze(-1) * mean.unsqueeze(-2)
        clipped = quadratic.clip_eigenvalues(covariance, self.observation.min_covariance)
        return mean, gaussian.shape_of_covariance(clipped), enough.unsqueeze(-1)

    def log_prior(self, table: Tensor) -> Tensor:
        prior, floor = self.observation.prior, self.observation.min_covariance
        if prior is None:
            return table.new_zeros(())
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
        if not self.diagonal and bool(torch.isnan(x).any()):
            return self._from_diagonal(x, labels, n_states, generator)
        within = torch.zeros_like(labels)
        if m > 1:
            within = grouped_labels(torch.nan_to_num(x), labels, n_states, m, generator)
        sums = torch.zeros(n_states * m, self._width, dtype=torch.float64, device=x.device)
        for rows in chunks(len(x), self._width, x.device):
            features = self._features(x[rows], holed=True)[: self._width].T.double()
            sums.index_add_(0, labels[rows] * m + within[rows], features)
        everywhere = sums.sum(0) / max(len(x), 1)
        # Two pseudo-frames of the whole data's statistics keep small clusters wide at first.
        sums = (sums + 2 * everywhere).view(n_states, m, -1)
        width = self.observation.n_output_parameters(self.size)
        return self.maximise((sums,), torch.zeros(n_states, width, dtype=torch.float64, device=x.device))

    def _from_diagonal(self, x: Tensor, labels: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        """Full covariances where values are missing start with variances alone."""
        diagonal = GaussianMixtureEmission(self.observation.clone().set_params(covariance_type="diag"), self.size)
        table = diagonal.from_labels(x, None, labels, n_states, generator)
        log_weights, means, log_variances = diagonal.observation.unpack(table, self.size)
        shapes = gaussian.shape_of_covariance(torch.diag_embed(log_variances.exp()))
        return self.observation.pack(log_weights, means, shapes)

    # -- for users -----------------------------------------------------------------------------------------

    def n_parameters(self, n_states: int) -> int:
        return n_states * (self.observation.n_output_parameters(self.size) - 1)

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


def _expected_sums(shares: Tensor, observed: Tensor, normal: tuple[Tensor, Tensor], seen: Tensor) -> Tensor:
    """``(M·K, F)`` expected sums of quadratic features, from ``shares (M·K, n)`` and what is seen, ``(n, o)``."""
    features = quadratic.features(observed.to(shares.dtype)).T
    sums = torch.zeros(len(shares), len(features), dtype=torch.float64, device=shares.device)
    add_sums(sums, shares, features)
    moments = quadratic.moments(sums, observed.shape[1])
    return quadratic.sums_of_moments(*missing.expected_moments(moments, *normal, seen))


def _quadratic_coefficients(
    log_weights: Tensor, means: Tensor, precision: Tensor, log_det: Tensor
) -> tuple[Tensor, Tensor]:
    """``(M·K, F)`` and signals ``(M·K,)`` of log w + log N: ``(M·K,)``, ``(M·K, o)``, ``(M·K, o, o)`` and half the precisions' log-determinants."""
    linear = (precision @ means.unsqueeze(-1)).squeeze(-1)
    signal = (linear * means).sum(-1)
    constant = log_weights + log_det - 0.5 * (means.shape[-1] * LOG_2PI + signal)
    return quadratic.coefficients(precision, linear, constant), signal

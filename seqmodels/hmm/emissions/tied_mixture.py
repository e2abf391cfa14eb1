"""EM for Gaussian mixtures whose components share one covariance over all states (``covariance_type="tied"``).

With ``L Lᵀ`` the precision and ``z = Lᵀ x``, ``log N(x) = log|L| - D/2 log 2π - ½|z|² + z · Lᵀμ - ½|Lᵀμ|²``: what is quadratic in x
is the same for all components, so that frames are whitened once and each component costs D products. ``|z|²`` and the scatter
that the M-step pools need no responsibilities but those of the frame as a whole.

Under a prior (``PseudoFrames``) the frames believed in are pooled with those seen: a normal distribution on each mean, and an
inverse Wishart on the one covariance.
"""

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
from seqmodels.hmm.emissions.gaussian_mixture import GaussianMixtureEmission
from seqmodels.hmm.scratch import Scratch
from seqmodels.observations import GaussianMixture, gaussian

LOG_2PI = math.log(2 * math.pi)


class TiedMixtureEmission(Emission):
    """One covariance for all M·K components; every row of the table repeats it.

    Statistics: for each component the sums of x and of 1, ``(K, M, D + 1)``, and the scatter of all frames about 0, ``(D, D)``.
    """

    def __init__(self, observation: GaussianMixture, size: int) -> None:
        self.observation: GaussianMixture = observation
        self.size = size

    def tie(self, table: Tensor) -> Tensor:
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        return self.observation.pack(log_weights, means, shapes[:1].expand_as(shapes))

    @property
    def shares(self) -> bool:
        return True

    # -- E-step --------------------------------------------------------------------------------------------

    def n_densities(self, n_states: int) -> int:
        return n_states * self.observation.n_components

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        shape = (self.observation.n_components, len(table), len(x))
        return components.log_prob(self._chunks(table, x, dtype), shape, dtype, x.device)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        shape = (self.observation.n_components, len(table), len(x))
        return components.densities(self._chunks(table, x, dtype), shape, dtype, x.device, scratch)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        found: Memo = self.evaluate(table, x, past, gamma.dtype, Scratch())[1] if memo is None else memo
        m, k = self.observation.n_components, len(table)
        means, factor = self._by_component(table)
        sums = torch.zeros(m * k, self.size + 1, dtype=torch.float64, device=x.device)
        scatter = torch.zeros(self.size, self.size, dtype=torch.float64, device=x.device)
        for chunk in found.chunks:
            shares, frames = chunk.shares(gamma, found.factor), x[chunk.rows]
            if chunk.seen is None:
                own, products = _sums(shares, frames)
            else:
                own, products = _sums(shares, frames[:, chunk.seen])
                own, products = _completed(own, products, means, torch.cholesky_inverse(factor), chunk.seen)
            sums, scatter = sums + own, scatter + products
        return sums.view(m, k, -1).transpose(0, 1), scatter

    def _chunks(self, table: Tensor, x: Tensor, dtype: torch.dtype) -> Iterator[Chunk]:
        """``(M, K, n)`` log2 of w N of every component and frame."""
        log_weights = self.observation.unpack(table, self.size)[0].T.flatten()  # (M·K,)
        means, factor = self._by_component(table)
        if not bool(torch.isnan(x).any()):
            for run in chunks(len(x), max(self.size, len(means)), x.device):
                yield Chunk(run, self._components(log_weights, means, factor, x[run], dtype, len(table)))
            return
        covariance = torch.cholesky_inverse(factor)
        for seen, rows in missing.by_pattern(x):
            precision, _ = missing.marginal(covariance, seen)
            part = torch.linalg.cholesky(precision)
            for run in chunks(len(rows), max(self.size, len(means)), x.device):
                frames = x[rows[run]][:, seen]
                found = self._components(log_weights, means[:, seen], part, frames, dtype, len(table))
                yield Chunk(rows[run], found, seen=None if bool(seen.all()) else seen)

    def _components(
        self, log_weights: Tensor, means: Tensor, factor: Tensor, x: Tensor, dtype: torch.dtype, n_states: int
    ) -> Tensor:
        white = means @ factor  # (M·K, o)
        log_det = factor.diagonal().log().sum() - 0.5 * means.shape[1] * LOG_2PI
        signal = white.square().sum(-1)
        if quadratic.cancels(signal):
            apart = ((x.double()[:, None] - means) @ factor).square().sum(-1)  # (n, M·K)
            found = (log_weights + log_det - 0.5 * apart).mul_(LOG2E).T
            return found.reshape(self.observation.n_components, n_states, -1)
        constant = log_weights + log_det - 0.5 * signal
        inside = quadratic.precise_enough(signal, x, dtype)
        z = quadratic.squarable(x, inside) @ factor.to(inside)  # (n, o)
        own = torch.addmm(constant.to(inside).unsqueeze(1), white.to(inside), z.T)
        return own.sub_(0.5 * z.square().sum(-1)).mul_(LOG2E).view(self.observation.n_components, n_states, -1)

    def _by_component(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Means ``(M·K, D)``, and the one factor ``(D, D)`` of the precision."""
        _, means, shapes = self.observation.unpack(table, self.size)
        factor = gaussian.precision_cholesky(shapes[0, 0], self.size, self.observation.min_covariance)
        return means.transpose(0, 1).flatten(0, 1), factor

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        sums, scatter = self._with_believed(statistics, log_weights)
        first, counts = sums[..., : self.size], torch.where(log_weights == -math.inf, 0.0, sums[..., self.size])
        # A component that no frame belongs to has nothing to learn from: it stays where it is.
        enough = (counts > 1e-10).unsqueeze(-1)
        new_means = torch.where(enough, first / counts.unsqueeze(-1).clamp(min=1e-300), means)
        new_shapes = shapes if not bool(enough.any()) else self._shared(first, counts, new_means, scatter, shapes)
        new_weights = components.new_log_weights(counts, log_weights)
        return self.observation.pack(new_weights, new_means, new_shapes)

    def _with_believed(self, statistics: Statistics, log_weights: Tensor) -> Statistics:
        """The statistics of the frames seen and those that the prior adds."""
        if self.observation.prior is None:
            return statistics
        believed = pseudo_frames.sums(self.observation.prior, log_weights, self.size, diagonal=False)
        products, first, counts = quadratic.moments(believed, self.size)
        sums, scatter = statistics
        return sums + torch.cat([first, counts.unsqueeze(-1)], dim=-1), scatter + products.sum((0, 1))

    def _shared(self, first: Tensor, counts: Tensor, means: Tensor, scatter: Tensor, shapes: Tensor) -> Tensor:
        """The scatter about the components' own means, pooled, its eigenvalues at least the floor."""
        between = torch.einsum("kmi,kmj->ij", first, means)
        spread = torch.einsum("km,kmi,kmj->ij", counts, means, means)
        within = (scatter - between - between.T + spread) / counts.sum()
        clipped = quadratic.clip_eigenvalues(0.5 * (within + within.T), self.observation.min_covariance)
        return gaussian.shape_of_covariance(clipped).expand(shapes.shape)

    def log_prior(self, table: Tensor) -> Tensor:
        prior = self.observation.prior
        if prior is None:
            return table.new_zeros(())
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        covariance = gaussian.covariance_of_shape(shapes[:1, :1], self.size, self.observation.min_covariance)
        return pseudo_frames.log_density(prior, log_weights, means, covariance, diagonal=False)

    def floor_hits(self, table: Tensor) -> Tensor:
        low = quadratic.largest_precision(self._by_component(table)[1]) >= (1 - 1e-6) / self.observation.min_covariance
        return low.expand(len(table))

    # -- the start -----------------------------------------------------------------------------------------

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        return self._diagonal().labels(x, n_states, generator)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        """From that of a diagonal mixture: its variances, pooled; EM finds the correlations in its first step."""
        diagonal = self._diagonal()
        table = diagonal.from_labels(x, past, labels, n_states, generator)
        log_weights, means, log_variances = diagonal.observation.unpack(table, self.size)
        pooled = (log_weights.exp().unsqueeze(-1) * log_variances.exp()).sum((0, 1)) / n_states
        shape = gaussian.shape_of_covariance(torch.diag(pooled))
        return self.observation.pack(log_weights, means, shape.expand(*means.shape[:2], -1))

    def _diagonal(self) -> GaussianMixtureEmission:
        return GaussianMixtureEmission(self.observation.clone().set_params(covariance_type="diag"), self.size)

    # -- for users -----------------------------------------------------------------------------------------

    def n_parameters(self, n_states: int) -> int:
        shared = gaussian.n_shape_parameters("full", self.size)
        return n_states * (self.observation.n_output_parameters(self.size) - shared - 1) + shared

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        log_weights, means, _ = (t.cpu() for t in self.observation.unpack(table, self.size))
        covariance = torch.cholesky_inverse(self._by_component(table)[1].cpu()).numpy()
        return {
            "weights_": log_weights.exp().numpy(),
            "means_": means.numpy() * scale + shift,
            "covariances_": covariance * np.outer(scale, scale),
        }


def _sums(shares: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of ``shares (M·K, n)`` and ``x (n, o)``: sums of x and of 1 by component, ``(M·K, o + 1)``, and all scatter, ``(o, o)``."""
    frames = torch.nn.functional.pad(x.to(shares.dtype), (0, 1), value=1.0)
    weighted = shares.sum(0).unsqueeze(1) * frames[:, :-1]
    sums = torch.zeros(len(shares), frames.shape[1], dtype=torch.float64, device=x.device)
    scatter = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
    add_sums(sums, shares, frames.T)
    add_sums(scatter, weighted.T, frames[:, :-1].T)
    return sums, scatter


def _completed(sums: Tensor, scatter: Tensor, means: Tensor, covariance: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over what is seen -> their expectations over all features (``seqmodels.hmm.emissions.missing``)."""
    slope, b, left = missing.regression(means, covariance, seen)  # one slope for all, b (M·K, D)
    a, counts = sums[:, :-1] @ slope.T, sums[:, -1:]
    cross, own = a.T @ b, (counts * b).T @ b
    products = slope @ scatter @ slope.T + cross + cross.T + own + counts.sum() * left
    return torch.cat([a + counts * b, counts], dim=1), products

"""EM for Gaussian mixtures with diagonal, spherical, full or one shared covariance (Rabiner 1989, IV.A; Bilmes 1998).

Log-densities of components are linear functions of quadratic features (``quadratic``), summed up by
``mixture_components``. Missing values are summed out, under full covariances one pattern of missingness at a time
(``missing``). A prior adds to the statistics (``pseudo_frames``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.constants import LOG_2PI
from seqmodels.common.onednn import linear
from seqmodels.hmm.emissions import missing, quadratic
from seqmodels.hmm.emissions.base import (
    MOST_ROWS,
    SUMMED,
    Emission,
    EmissionInLoops,
    Statistics,
    add_sums,
    columns_of,
    emission_of,
    row_blocks,
)
from seqmodels.hmm.emissions.kmeans import grouped_labels, kmeans_labels
from seqmodels.hmm.emissions.mixture_components import (
    UNDERFLOW,
    ComponentBlock,
    Memo,
    mixture_densities,
    mixture_log_prob,
    new_log_weights,
)
from seqmodels.hmm.emissions.pseudo_frames import pseudo_frame_log_density, pseudo_frame_sums
from seqmodels.inference.chains.densities import LOG2E, Densities, LogDensities
from seqmodels.inference.chains.parallel_segments import loops_are_compiled, runs_compiled
from seqmodels.inference.chains.products import is_worth_onednn
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import GaussianMixture, gaussian
from seqmodels.observations.gaussian_mixture import PseudoFrames

if TYPE_CHECKING:
    from seqmodels.hmm.emissions.compiled_mixtures import CompiledMixtures

MOST_COMPONENTS_COMPILED = 64  # components of all states; with more, matrix products are faster
MOST_FEATURES_COMPILED = 16  # features of a frame; with more, matrix products are faster
MOST_VALUES_IN_LOOPS = 1 << 23  # frames times components times features; with more, matrix products are faster


@emission_of.register(GaussianMixture)
def _(observation: GaussianMixture, size: int) -> Emission:
    if observation.covariance_type == "lowrank":
        raise ValueError(
            "covariance_type='lowrank' is for networks; under an HMM use 'full', 'tied', 'diag' or 'spherical'"
        )
    if observation.covariance_type == "tied":
        return TiedMixtureEmission(observation, size)
    return GaussianMixtureEmission(observation, size)


# -- each component has its own covariance -----------------------------------------------------------------------------


class GaussianMixtureEmission(Emission):
    """EM computations for ``GaussianMixture`` emissions in which each component has its own covariance.

    Log-densities of all M components in K states are one product of coefficients and features. For ``"diag"`` and
    ``"spherical"`` the features are x, x², 1, and where values are missing whether x was observed, so that missing
    values drop out exactly. For ``"full"`` they are the products of two entries, x, and 1, of the observed features,
    one pattern of missingness at a time. Frames stand on the last axis, so that sums over the few components run along
    memory.
    """

    observation: GaussianMixture

    def __init__(self, observation: GaussianMixture, size: int) -> None:
        super().__init__(observation, size)
        self.diagonal = observation.shape_type == "diag"

    # -- E-step --------------------------------------------------------------------------------------------

    def n_densities(self, n_states: int) -> int:
        return n_states * self.observation.n_densities

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        shape = (self.observation.n_densities, len(table), len(x))
        return mixture_log_prob(self._blocks(table, self._frames(x), dtype, None), shape, dtype, x.device)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        frames = scratch.once(x, self._frames)
        if self._are_few(table, frames, dtype):
            from seqmodels.hmm.emissions.diagonal_loops import densities_of_few

            mixtures, floor = self.observation.unpack_all(table, self.size), self.observation.min_covariance
            log_b, memo = densities_of_few(frames.columns, frames.has_missing, mixtures, floor)
            return LogDensities(log_b), memo
        compiled = self._compiled_densities(table, frames, dtype)
        if compiled is not None:
            return compiled, compiled
        shape = (self.observation.n_densities, len(table), len(x))
        blocks = self._blocks(table, frames, dtype, scratch)
        return mixture_densities(blocks, shape, dtype, x.device, scratch, has_missing=frames.has_missing)

    def in_loops(self, table: Tensor, frames: Sequence[Tensor], dtype: torch.dtype) -> EmissionInLoops | None:
        if not (self.diagonal and dtype == torch.float64 and all(x.dtype == dtype for x in frames)):
            return None
        from seqmodels.hmm.emissions.diagonal_loops import DiagonalInLoops

        return DiagonalInLoops(self.observation, table, frames)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        if memo is None:
            _, memo = self.evaluate(table, x, past, gamma.dtype, Scratch())
        if not isinstance(memo, Memo):
            sums = memo.expected_sums(gamma)
            return (self._with_all_counts(sums, has_missing=sums.shape[2] >= self._width),)
        has_missing = memo.has_missing
        normal = self._normal(table) if has_missing and not self.diagonal else None
        m, height = self.observation.n_densities, self._height(has_missing)
        total = torch.zeros(m * len(table), height, dtype=torch.float64, device=x.device)
        for block in memo.blocks:
            resp = block.responsibilities(gamma, memo.factor)
            if normal is not None and block.observed is not None:
                total += _expected_sums(resp, x[block.rows][:, block.observed], normal, block.observed)
                continue
            features = block.features
            if features is None:
                features = self._features(x[block.rows].to(resp.dtype), has_missing)
            add_sums(total, resp, features)
        return (self._with_all_counts(total.view(m, len(table), height), has_missing),)

    def _with_all_counts(self, sums: Tensor, has_missing: bool) -> Tensor:
        """Return sums of features ``(M, K, F)``, from which padding is removed, as statistics ``(K, M, F')``.

        The statistics also count for each feature how often it was observed, in ``F'`` sums.
        """
        # The M-step needs no sums of the background, because the background is fixed.
        sums = sums[: self.observation.n_components].transpose(0, 1)
        return sums[..., : self._width] if has_missing or not self.diagonal else self._with_counts(sums)

    def _blocks(
        self, table: Tensor, frames: _Frames, dtype: torch.dtype, scratch: Scratch | None
    ) -> Iterator[ComponentBlock]:
        """Yield log2 of weight times density of each component in each state, ``(M, K, n)``, for n frames at a time.

        With ``scratch`` all results lie in its buffers and stay valid; without, each is valid until the next is asked
        for.
        """
        x, has_missing = frames.x, frames.has_missing
        theta, signal = self._coefficients(table)
        if quadratic.cancels(signal):
            yield from self._blocks_by_deviation(table, x, has_missing)
            return
        if has_missing and not self.diagonal:
            yield from self._blocks_by_pattern(table, x, dtype)
            return
        compute_dtype = quadratic.precise_enough(signal, x, dtype, frames.largest)
        theta = (self._padded(theta, has_missing) * LOG2E).to(compute_dtype)
        space = None if scratch is None else scratch.buffer("components", (len(x), len(theta)), compute_dtype, x.device)
        # Blocks have as many frames as are summed at once, because oneDNN's products are fast on whole matrices only.
        most = SUMMED if is_worth_onednn(theta, x[:SUMMED].T) else MOST_ROWS
        if scratch is not None and self.diagonal and compute_dtype == x.dtype:
            blocks: Iterable[tuple[slice, Tensor]] = frames.blocks(max(theta.shape), most)
        else:
            blocks = (
                (rows, self._features(quadratic.squarable(x[rows], compute_dtype), has_missing))
                for rows in row_blocks(len(x), max(theta.shape), x.device, most)
            )
        for rows, features in blocks:
            shape = (self.observation.n_densities, len(table), features.shape[1])
            result = None if space is None else space[rows].view(len(theta), -1)
            if is_worth_onednn(theta, features):
                log2_densities = linear(theta, features.mT)
            else:
                log2_densities = torch.mm(theta, features, out=result)
            to = None if result is None else result.view(shape)
            by_component = self._with_one_background(log2_densities.view(shape))
            yield ComponentBlock(rows, by_component, features if self.diagonal else None, result=to)

    def _with_one_background(self, by_component: Tensor) -> Tensor:
        """Copy the first state's background density to all states in ``by_component (M, K, n)``, in place.

        The background is the same density in all states, but a matrix product may round it differently in each row; for
        a frame that only the background explains, the rounding errors would then decide the state.
        """
        if self.observation.background:
            by_component[-1, 1:] = by_component[-1, 0]
        return by_component

    def _are_few(self, table: Tensor, frames: _Frames, dtype: torch.dtype) -> bool:
        is_double = dtype == torch.float64 and frames.x.dtype == dtype
        n_values = len(frames.x) * self.observation.n_densities * len(table) * self.size
        is_small = n_values <= MOST_VALUES_IN_LOOPS and not runs_compiled(len(table), len(frames.x), frames.x.device)
        return self.diagonal and is_double and is_small and loops_are_compiled(frames.x.device)

    def _compiled_densities(self, table: Tensor, frames: _Frames, dtype: torch.dtype) -> CompiledMixtures | None:
        """Return compiled loops for the densities, or None where matrix products are faster or more precise."""
        x, m, height = frames.x, self.observation.n_densities, self._height(has_missing=True)
        is_small = m * len(table) <= MOST_COMPONENTS_COMPILED and height <= MOST_FEATURES_COMPILED
        if not (is_small and self.diagonal and x.dtype == dtype and loops_are_compiled(x.device)):
            return None
        theta, signal = self._coefficients(table)
        if quadratic.cancels(signal) or quadratic.precise_enough(signal, x, dtype, frames.largest) != dtype:
            return None
        from seqmodels.hmm.emissions.compiled_mixtures import CompiledMixtures

        theta = (self._padded(theta, frames.has_missing) * LOG2E).to(dtype)
        return CompiledMixtures(theta.view(m, len(table), -1), frames.features, UNDERFLOW[dtype])

    def _blocks_by_pattern(self, table: Tensor, x: Tensor, dtype: torch.dtype) -> Iterator[ComponentBlock]:
        """Yield log2 of weight times density of each component, ``(M, K, n)``, for full covariances and missing values.

        Each block holds n of the frames ``x (N, D)``, which have the same features observed; densities are marginals
        over these features. ``table (K, P)`` are the output parameters.
        """
        log_weights, (means, covariance) = self._by_component(table)[0], self._normal(table)
        for observed, rows in missing.by_pattern(x):
            precision, log_det = missing.marginal(covariance, observed)
            theta, signal = _quadratic_coefficients(log_weights, means[:, observed], precision, log_det)
            frames = x[rows][:, observed]
            compute_dtype = quadratic.precise_enough(signal, frames, dtype)
            for part in row_blocks(len(rows), max(theta.shape), x.device):
                features = quadratic.features(quadratic.squarable(frames[part], compute_dtype))
                log2_densities = (theta * LOG2E).to(compute_dtype) @ features.T
                by_component = log2_densities.view(self.observation.n_densities, len(table), -1)
                by_component = self._with_one_background(by_component)
                yield ComponentBlock(rows[part], by_component, observed=None if bool(observed.all()) else observed)

    def _blocks_by_deviation(self, table: Tensor, x: Tensor, has_missing: bool) -> Iterator[ComponentBlock]:
        """Yield log2 of weight times density of each component, ``(M, K, n)``, from squared deviations from the means.

        This is slow float64, and precise where means are many standard deviations from zero.
        """
        log_weights, means, shapes = (t.transpose(0, 1) for t in self.observation.unpack_all(table.double(), self.size))
        shape = self.observation.shape_type, self.observation.min_covariance
        one_pattern = [(None, torch.arange(len(x), device=x.device))]
        for observed, rows in missing.by_pattern(x) if has_missing and not self.diagonal else one_pattern:
            for part in row_blocks(len(rows), means.numel(), x.device):
                frames = x[rows[part]].double()[:, None, None]  # (n, 1, 1, D)
                log_densities = gaussian.log_density(frames, means, shapes, *shape)
                by_component = (log_weights + log_densities).mul_(LOG2E).permute(1, 2, 0).contiguous()
                yield ComponentBlock(rows[part], by_component, observed=observed)

    def _frames(self, x: Tensor) -> _Frames:
        return _Frames(x, self._features)

    def _features(self, x: Tensor, has_missing: bool) -> Tensor:
        """Return the features of frames ``x (n, D)`` as ``(F, n)``.

        Rows of zeros are added up to a height that matrix products are fast on.
        """
        if not self.diagonal:
            return quadratic.features(x).T
        observed = ~torch.isnan(x).T if has_missing else torch.ones_like(x.T[:1], dtype=torch.bool)
        features = x.new_zeros(self._height(has_missing), len(x))
        features[: self.size] = torch.where(observed, x.T, 0.0)
        torch.square(features[: self.size], out=features[self.size : 2 * self.size])
        features[2 * self.size : 2 * self.size + len(observed)] = observed
        features[2 * self.size + len(observed) - (not has_missing)] = 1.0
        return features

    def _padded(self, theta: Tensor, has_missing: bool) -> Tensor:
        """Return coefficients ``(M·K, F)`` with zeros appended, to match the rows of ``_features``.

        If nothing is missing, the coefficients of "x was observed" are first added to the coefficient of 1.
        """
        if self.diagonal and not has_missing:
            theta = torch.cat([theta[:, : 2 * self.size], theta[:, 2 * self.size :].sum(1, keepdim=True)], 1)
        return torch.nn.functional.pad(theta, (0, self._height(has_missing) - theta.shape[1]))

    def _height(self, has_missing: bool) -> int:
        """Return the number of features of a frame, padding included."""
        if not self.diagonal:
            return self._width
        height = self._width if has_missing else 2 * self.size + 1
        return -(-height // 16) * 16 if height > 16 else height

    def _with_counts(self, sums: Tensor) -> Tensor:
        """Extend sums of x, x² and 1 to sums of x, x², whether each feature was observed, and 1, on the last axis."""
        counts = sums[..., 2 * self.size : 2 * self.size + 1]
        return torch.cat([sums[..., : 2 * self.size], counts.expand(*counts.shape[:-1], self.size), counts], dim=-1)

    @property
    def _width(self) -> int:
        """Number of features of a frame, without padding."""
        return 3 * self.size + 1 if self.diagonal else self.size * (self.size + 1) // 2 + self.size + 1

    def _coefficients(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return coefficients of the features in log weight + log N(x; μ, Σ), ``(M·K, F)``, and ``μᵀΣ⁻¹μ (M·K,)``."""
        if not self.diagonal:
            log_weights, means, factor = self._by_component(table)
            precision, log_det = factor @ factor.transpose(-1, -2), factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            return _quadratic_coefficients(log_weights, means, precision, log_det)
        log_weights, means, shapes = self.observation.unpack_all(table, self.size)
        log_variance = shapes.clamp(min=math.log(self.observation.min_covariance))
        precision = torch.exp(-log_variance)
        signal = precision * means.square()
        constant = -0.5 * (log_variance + LOG_2PI + signal)
        theta = torch.cat([precision * means, -0.5 * precision, constant, log_weights.unsqueeze(-1)], dim=-1)
        return theta.transpose(0, 1).flatten(0, 1), signal.sum(-1)

    def _by_component(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights ``(M·K,)``, means ``(M·K, D)`` and Cholesky factors of the precisions, ``(M·K, D, D)``.

        Only for full covariances.
        """
        log_weights, means, shapes = (
            t.transpose(0, 1).flatten(0, 1) for t in self.observation.unpack_all(table, self.size)
        )
        return log_weights, means, gaussian.precision_cholesky(shapes, self.size, self.observation.min_covariance)

    def _normal(self, table: Tensor) -> tuple[Tensor, Tensor]:
        _, means, factor = self._by_component(table)
        return means, torch.cholesky_inverse(factor)

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        (sums,) = statistics
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        if self.observation.prior is not None:
            sums = self._with_prior(sums, log_weights, means, self.observation.prior)
        counts = torch.where(log_weights == -math.inf, 0.0, sums[..., -1])  # (K, M)
        new_weights = new_log_weights(counts, log_weights)
        estimate = {"diag": self._diagonal, "spherical": self._spherical}.get(
            self.observation.covariance_type, self._full
        )
        new_means, new_shapes, enough = estimate(sums, means)
        # A component without frames keeps its parameters, because there is nothing to learn them from.
        return self.observation.pack(
            new_weights, torch.where(enough, new_means, means), torch.where(enough, new_shapes, shapes)
        )

    def _with_prior(self, sums: Tensor, log_weights: Tensor, means: Tensor, prior: PseudoFrames) -> Tensor:
        if self.diagonal:
            first, _, observed, _ = sums.split([self.size, self.size, self.size, 1], dim=-1)
        else:
            _, first, counts = quadratic.moments(sums, self.size)
            observed = counts.unsqueeze(-1)
        return sums + pseudo_frame_sums(prior, log_weights, means, first, observed, diagonal=self.diagonal)

    def _diagonal(self, sums: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second, observed, _ = sums.split([self.size, self.size, self.size, 1], dim=-1)
        enough = observed > 1e-10
        mean = first / observed.clamp(min=1e-300)
        variance = second / observed.clamp(min=1e-300) - mean.square()
        return mean, variance.clamp(min=self.observation.min_covariance).log(), enough

    def _spherical(self, sums: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second, observed, _ = sums.split([self.size, self.size, self.size, 1], dim=-1)
        mean = torch.where(observed > 1e-10, first / observed.clamp(min=1e-300), means)
        squares = (second - observed * mean.square()).sum(-1, keepdim=True)
        values = observed.sum(-1, keepdim=True)
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
        return pseudo_frame_log_density(prior, log_weights, means, covariances, diagonal=self.diagonal)

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
        for rows in row_blocks(len(x), self._width, x.device):
            features = self._features(x[rows], has_missing=True)[: self._width].T.double()
            sums.index_add_(0, labels[rows] * m + within[rows], features)
        mean = sums.sum(0) / max(len(x), 1)
        # Two pseudo-frames of the whole data's statistics keep small clusters wide at first.
        sums = (sums + 2 * mean).view(n_states, m, -1)
        width = self.observation.n_output_parameters(self.size)
        return self.maximise((sums,), torch.zeros(n_states, width, dtype=torch.float64, device=x.device))

    def _from_diagonal(self, x: Tensor, labels: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        """Return first output parameters ``(K, P)`` for full covariances and data with missing values.

        The covariances start diagonal: a mixture with ``"diag"`` covariances estimates them from guessed states
        ``labels (N,)``.
        """
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

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        weights, means = (torch.as_tensor(values) for values in (raw["weights_"], (raw["means_"] - shift) / scale))
        units = scale**2 if self.diagonal else np.outer(scale, scale)
        covariances = torch.as_tensor(raw["covariances_"] / units)
        shapes = covariances.log() if self.diagonal else gaussian.shape_of_covariance(covariances)
        return self.observation.pack(weights.log(), means, shapes)

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        return moments_by_state(**self.raw_parameters(table, shift, scale), names=names)


class _Frames:
    """The frames ``x (N, D)`` of a batch, with properties of them that are computed once for all E-steps."""

    def __init__(self, x: Tensor, features: Callable[[Tensor, bool], Tensor]) -> None:
        self.x = x
        self._features_of = features
        self._block_size: tuple[int, int] | None = None
        self._blocks: list[tuple[slice, Tensor]] = []

    @cached_property
    def has_missing(self) -> bool:
        """True if any value of the frames is missing (NaN)."""
        return bool(torch.isnan(self.x).any())

    @cached_property
    def largest(self) -> float:
        """The largest absolute value in the frames, leaving out missing values."""
        return quadratic.largest_value(self.x)

    @cached_property
    def columns(self) -> np.ndarray:
        """The N frames of D features as a contiguous array ``(D, N)``."""
        return np.ascontiguousarray(self.x.T.numpy())

    @cached_property
    def features(self) -> Tensor:
        """The features of all frames, ``(F, N)``, in the layout of matrix products."""
        return self._features_of(self.x, self.has_missing)

    def blocks(self, width: int, most: int) -> list[tuple[slice, Tensor]]:
        """Return slices that cut the frames into parts, each with its features ``(F, n)`` in contiguous memory.

        The last result is kept, because the features of diagonal Gaussians are few.

        Args:
            width: how many numbers are computed for each frame, which determines how many frames a part has.
            most: largest number of frames in a part on a CPU.
        """
        if self._block_size != (width, most):
            rows = row_blocks(len(self.x), width, self.x.device, most)
            self._blocks = [(part, self._features_of(self.x[part], self.has_missing)) for part in rows]
            self._block_size = width, most
        return self._blocks


def _expected_sums(resp: Tensor, x: Tensor, normal: tuple[Tensor, Tensor], observed: Tensor) -> Tensor:
    """Return the sums of quadratic features over n frames with missing values, which are replaced by expectations.

    The result is ``(M·K, F)``, weighted by responsibilities.

    Args:
        resp: posterior of each state and component in each frame, ``(M·K, n)``.
        x: the o observed features of the frames, ``(n, o)``.
        normal: means ``(M·K, D)`` and covariances ``(M·K, D, D)`` of the components.
        observed: True for the observed features, ``(D,)``.
    """
    features = quadratic.features(x.to(resp.dtype)).T
    sums = torch.zeros(len(resp), len(features), dtype=torch.float64, device=resp.device)
    add_sums(sums, resp, features)
    moments = quadratic.moments(sums, x.shape[1])
    return quadratic.sums_of_moments(*missing.expected_moments(moments, *normal, observed))


def _quadratic_coefficients(
    log_weights: Tensor, means: Tensor, precision: Tensor, log_det: Tensor
) -> tuple[Tensor, Tensor]:
    """Return coefficients ``(M·K, F)`` of the quadratic features in log weight + log N, and ``μᵀΣ⁻¹μ``, ``(M·K,)``.

    There are M components in each of K states.

    Args:
        log_weights: log-weights of the components, ``(M·K,)``.
        means: their means of o features, ``(M·K, o)``.
        precision: their precisions, ``(M·K, o, o)``.
        log_det: half the log-determinant of each precision, ``(M·K,)``.
    """
    linear = (precision @ means.unsqueeze(-1)).squeeze(-1)
    signal = (linear * means).sum(-1)
    constant = log_weights + log_det - 0.5 * (means.shape[-1] * LOG_2PI + signal)
    return quadratic.coefficients(precision, linear, constant), signal


# -- one covariance for all --------------------------------------------------------------------------------------------


class TiedMixtureEmission(Emission):
    """EM computations for ``GaussianMixture`` with ``covariance_type="tied"``: one covariance for all components of all
    states.

    There are M components in each of K states, and the parameters of every state repeat the covariance. With ``L Lᵀ``
    the precision and ``z = Lᵀ x``, ``log N(x) = log|L| - D/2 log 2π - ½|z|² + z · Lᵀμ - ½|Lᵀμ|²``. The part that is
    quadratic in x is the same for all components, so that frames are whitened once and each component costs D products.
    ``|z|²`` and the scatter of all frames need only the posterior of a frame summed over components.

    The frames that a prior (``PseudoFrames``) adds are pooled with the observed ones; they amount to a normal
    distribution on each mean and an inverse Wishart on the covariance.

    The expected statistics are the sums of x and of 1 for each component, ``(K, M, D + 1)``, and the scatter of all
    frames about 0, ``(D, D)``.
    """

    observation: GaussianMixture

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
        return mixture_log_prob(self._blocks(table, x, dtype), shape, dtype, x.device)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        shape = (self.observation.n_components, len(table), len(x))
        return mixture_densities(self._blocks(table, x, dtype), shape, dtype, x.device, scratch)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        if memo is None:
            _, memo = self.evaluate(table, x, past, gamma.dtype, Scratch())
        m, k = self.observation.n_components, len(table)
        means, factor = self._by_component(table)
        sums = torch.zeros(m * k, self.size + 1, dtype=torch.float64, device=x.device)
        scatter = torch.zeros(self.size, self.size, dtype=torch.float64, device=x.device)
        for block in memo.blocks:
            resp, frames = block.responsibilities(gamma, memo.factor), x[block.rows]
            if block.observed is None:
                first, second = _moments(resp, frames)
            else:
                first, second = _moments(resp, frames[:, block.observed])
                first, second = _completed(first, second, means, torch.cholesky_inverse(factor), block.observed)
            sums = sums + first
            scatter = scatter + second
        return sums.view(m, k, -1).transpose(0, 1), scatter

    def _blocks(self, table: Tensor, x: Tensor, dtype: torch.dtype) -> Iterator[ComponentBlock]:
        log_weights = self.observation.unpack(table, self.size)[0].T.flatten()  # (M·K,)
        means, factor = self._by_component(table)
        if not bool(torch.isnan(x).any()):
            for part in row_blocks(len(x), max(self.size, len(means)), x.device):
                yield ComponentBlock(part, self._components(log_weights, means, factor, x[part], dtype, len(table)))
            return
        covariance = torch.cholesky_inverse(factor)
        for observed, rows in missing.by_pattern(x):
            precision, _ = missing.marginal(covariance, observed)
            marginal = torch.linalg.cholesky(precision)
            for part in row_blocks(len(rows), max(self.size, len(means)), x.device):
                frames = x[rows[part]][:, observed]
                by_component = self._components(log_weights, means[:, observed], marginal, frames, dtype, len(table))
                yield ComponentBlock(rows[part], by_component, observed=None if bool(observed.all()) else observed)

    def _components(
        self, log_weights: Tensor, means: Tensor, factor: Tensor, x: Tensor, dtype: torch.dtype, n_states: int
    ) -> Tensor:
        white = means @ factor  # (M·K, o)
        log_det = factor.diagonal().log().sum() - 0.5 * means.shape[1] * LOG_2PI
        signal = white.square().sum(-1)
        if quadratic.cancels(signal):
            distance = ((x.double()[:, None] - means) @ factor).square().sum(-1)  # (n, M·K)
            log2_densities = (log_weights + log_det - 0.5 * distance).mul_(LOG2E).T
            return log2_densities.reshape(self.observation.n_components, n_states, -1)
        constant = log_weights + log_det - 0.5 * signal
        compute_dtype = quadratic.precise_enough(signal, x, dtype)
        z = quadratic.squarable(x, compute_dtype) @ factor.to(compute_dtype)  # (n, o)
        linear = torch.addmm(constant.to(compute_dtype).unsqueeze(1), white.to(compute_dtype), z.T)
        log2_densities = linear.sub_(0.5 * z.square().sum(-1)).mul_(LOG2E)
        return log2_densities.view(self.observation.n_components, n_states, -1)

    def _by_component(self, table: Tensor) -> tuple[Tensor, Tensor]:
        _, means, shapes = self.observation.unpack(table, self.size)
        factor = gaussian.precision_cholesky(shapes[0, 0], self.size, self.observation.min_covariance)
        return means.transpose(0, 1).flatten(0, 1), factor

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        sums, scatter = self._with_prior(statistics, log_weights, means)
        first, counts = sums[..., : self.size], torch.where(log_weights == -math.inf, 0.0, sums[..., self.size])
        # A component without frames keeps its parameters, because there is nothing to learn them from.
        enough = (counts > 1e-10).unsqueeze(-1)
        new_means = torch.where(enough, first / counts.unsqueeze(-1).clamp(min=1e-300), means)
        new_shapes = shapes if not bool(enough.any()) else self._shared(first, counts, new_means, scatter, shapes)
        new_weights = new_log_weights(counts, log_weights)
        return self.observation.pack(new_weights, new_means, new_shapes)

    def _with_prior(self, statistics: Statistics, log_weights: Tensor, means: Tensor) -> Statistics:
        if self.observation.prior is None:
            return statistics
        sums, scatter = statistics
        prior_sums = pseudo_frame_sums(
            self.observation.prior, log_weights, means, sums[..., : self.size], sums[..., self.size :], diagonal=False
        )
        products, first, counts = quadratic.moments(prior_sums, self.size)
        return sums + torch.cat([first, counts.unsqueeze(-1)], dim=-1), scatter + products.sum((0, 1))

    def _shared(self, first: Tensor, counts: Tensor, means: Tensor, scatter: Tensor, shapes: Tensor) -> Tensor:
        """Return the parameters of the shared covariance of highest likelihood, its eigenvalues clipped from below.

        The least eigenvalue allowed is ``min_covariance``.

        Args:
            first: sums of x for each component, ``(K, M, D)``.
            counts: number of frames of each component, ``(K, M)``.
            means: new means of the components, ``(K, M, D)``.
            scatter: sum of ``x xᵀ`` over all frames, ``(D, D)``.
            shapes: covariance parameters before the step, whose shape the result has.
        """
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
        return pseudo_frame_log_density(prior, log_weights, means, covariance, diagonal=False)

    def floor_hits(self, table: Tensor) -> Tensor:
        low = quadratic.largest_precision(self._by_component(table)[1]) >= (1 - 1e-6) / self.observation.min_covariance
        return low.expand(len(table))

    # -- the start -----------------------------------------------------------------------------------------

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        return self._diagonal().labels(x, n_states, generator)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        """Return first output parameters ``(K, P)`` from guessed states, with averaged variances and no correlations.

        EM finds the correlations in its first step.

        Args:
            x: N frames, ``(N, D)``.
            past: not used.
            labels: guessed state of each frame, ``(N,)``.
            n_states: number of states, K.
            generator: random generator.
        """
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

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        weights, means = (torch.as_tensor(values) for values in (raw["weights_"], (raw["means_"] - shift) / scale))
        shape = gaussian.shape_of_covariance(torch.as_tensor(raw["covariances_"] / np.outer(scale, scale)))
        return self.observation.pack(weights.log(), means, shape.expand(*means.shape[:2], -1))

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        return moments_by_state(**self.raw_parameters(table, shift, scale), names=names)


def moments_by_state(
    weights_: np.ndarray, means_: np.ndarray, covariances_: np.ndarray, names: Sequence[str]
) -> Mapping[str, np.ndarray]:
    """Return the mean and standard deviation of each feature under the mixture of each of K states, as columns ``(K,)``
    by name.

    Args:
        weights_: weights of M components, ``(K, M)``.
        means_: their means of D features, ``(K, M, D)``.
        covariances_: variances ``(K, M, D)``, covariances ``(K, M, D, D)``, or one covariance ``(D, D)``.
        names: name of each feature.
    """
    n_features = means_.shape[-1]
    is_full = covariances_.shape[-2:] == (n_features, n_features) and covariances_.ndim != means_.ndim
    variances = np.diagonal(covariances_, axis1=-2, axis2=-1) if is_full else covariances_
    mean = np.einsum("km,kmd->kd", weights_, means_)
    square = np.einsum("km,kmd->kd", weights_, variances + (means_ - mean[:, None]) ** 2)
    return {
        **dict(zip(columns_of("mean", names), mean.T, strict=True)),
        **dict(zip(columns_of("sd", names), np.sqrt(square).T, strict=True)),
    }


def _moments(resp: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return weighted sums of x and of 1 for each component, ``(M·K, o + 1)``, and of ``x xᵀ`` over all, ``(o, o)``.

    ``resp``: responsibilities, ``(M·K, n)``; ``x``: the o observed features of n frames, ``(n, o)``.
    """
    frames = torch.nn.functional.pad(x.to(resp.dtype), (0, 1), value=1.0)
    weighted = resp.sum(0).unsqueeze(1) * frames[:, :-1]
    sums = torch.zeros(len(resp), frames.shape[1], dtype=torch.float64, device=x.device)
    scatter = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
    add_sums(sums, resp, frames.T)
    add_sums(scatter, weighted.T, frames[:, :-1].T)
    return sums, scatter


def _completed(
    sums: Tensor, scatter: Tensor, means: Tensor, covariance: Tensor, observed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the expected sums over all D features, given the sums over the o observed features.

    Args:
        sums: sums of x and of 1 for each component, ``(M·K, o + 1)``.
        scatter: sum of ``x xᵀ`` over all frames, ``(o, o)``.
        means, covariance: of the components, ``(M·K, D)``, and shared, ``(D, D)``.
        observed: True for the observed features, ``(D,)``.

    Returns:
        The sums ``(M·K, D + 1)`` and the scatter ``(D, D)`` (equations in ``seqmodels.hmm.emissions.missing``).
    """
    slope, b, residual = missing.regression(means, covariance, observed)  # one slope for all, b (M·K, D)
    a, counts = sums[:, :-1] @ slope.T, sums[:, -1:]
    cross = a.T @ b
    constant = (counts * b).T @ b
    products = slope @ scatter @ slope.T + cross + cross.T + constant + counts.sum() * residual
    return torch.cat([a + counts * b, counts], dim=1), products

"""EM for autoregressive Gaussians: weighted least squares in closed form (Hamilton 1990).

With ``w = (past, x)`` the log-density is quadratic in w, so that all states are one matrix product. Predictable data
have small residuals, which are differences of large terms; the products are therefore in float64 whatever the precision
of the rest. The Gaussian of the first ``order`` steps is shared by all states and estimated once, from those steps and
a few pseudo-frames of the whole data; EM leaves it as it is.

Where values of a frame or of its past are missing, ``(past, x)`` is Gaussian in each state given the observed values,
and expected products replace the products.

With a background, a frame counts in the sums of a state with the probability that it follows the state's regression.
The background has no parameters, so that its density of each frame is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions import quadratic
from seqmodels.hmm.emissions.base import (
    IN_CACHE,
    ON_GPU,
    Emission,
    Statistics,
    columns_of,
    emission_of,
    empty_by_state,
    row_blocks,
)
from seqmodels.hmm.emissions.kmeans import in_comparable_units, kmeans_labels
from seqmodels.hmm.emissions.left_out import LeftOut, degrees_and_scale
from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.parallel_segments import loops_are_worth_compiling
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import AutoregressiveGaussian, gaussian

FEWEST_STATES_COMPILED = 4  # fewest states for compiled loops, which take four at a time
START_ROUNDS = 10  # rounds of EM on one state, from which a start with missing values is made


@dataclass(frozen=True)
class RegressionDesign:
    """Regressors and responses of a batch of frames, for a linear regression of each frame on the p before it.

    p is the order of the regression, D the number of features and N the number of frames in the batch.

    Attributes:
        columns: one column ``(past, x, 1)`` for each of the n frames without missing values, ``(pD + D + 1, n)`` in the
            precision of x; zeros in the first p steps of a sequence, which have no complete past.
        early: indices of the columns of the first p steps of sequences.
        incomplete: True for frames with a missing value in themselves or in their past, ``(N,)`` bool; None if there
            are none.
        log_background: log-density of each frame as a jump, times the probability of one, in nats, ``(N, 1)``; None
            without a background.
    """

    columns: Tensor
    early: Tensor
    incomplete: Tensor | None
    log_background: Tensor | None

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of m frames (columns), each with the F quadratic features of these columns, ``(F, m)`` float64.

        The features are the products of two entries, the entries, and 1. Those of a slice overwrite those of the slice
        before.
        """
        size, n = len(self.columns) - 1, self.columns.shape[1]
        height = quadratic.n_features(size)
        buffer = None
        for rows in row_blocks(n, height, self.columns.device):
            columns = self.columns[:, rows].double()
            if buffer is None:
                buffer = columns.new_empty(height * columns.shape[1])
            features = buffer[: height * columns.shape[1]].view(height, -1)
            quadratic.features_of_columns(columns[:-1], features)
            features[-1] = columns[-1]
            yield rows, features


@dataclass(frozen=True)
class IncompleteFrames:
    """Frames that miss a value in themselves or in the p frames before (their past), after the first p steps; in
    float64.

    Attributes:
        rows: index of each frame in the batch, ``(n,)``.
        x: the frames, NaN where missing, ``(n, D)``.
        history, spread: mean ``(n, pD)`` and covariance ``(n, pD, pD)`` of the past of each frame, given the values
            observed there.
    """

    rows: Tensor
    x: Tensor
    history: Tensor
    spread: Tensor


class WeightedDesign(NamedTuple):
    """N frames and the weight of each in the regression of each state.

    Attributes:
        design: the frames.
        share: probability that each frame follows the regression of each state and is no jump, ``(N, K)``; None
            without a background.
    """

    design: RegressionDesign
    share: Tensor | None


@emission_of.register(AutoregressiveGaussian)
class AutoregressiveEmission(Emission):
    """EM computations for ``AutoregressiveGaussian``: a linear regression of a frame on the p frames before it, in each
    state.
    """

    observation: AutoregressiveGaussian

    def __init__(self, observation: AutoregressiveGaussian, size: int) -> None:
        super().__init__(observation, size)
        self.plain = replace(observation, background=0.0)  # the regressions alone
        self.n_regressors = size * observation.order  # pD, without the constant
        self.diagonal = observation.shape_type == "diag"

    def tie(self, table: Tensor) -> Tensor:
        matrix, intercept, shape, *first = self.observation.unpack(table, self.size)
        if self.observation.covariance_type == "tied":
            shape = shape[:1].expand_as(shape)
        if not self.observation.intercept:
            intercept = torch.zeros_like(intercept)
        return self.observation.pack(matrix, intercept, shape, *(numbers[:1].expand_as(numbers) for numbers in first))

    @property
    def shares(self) -> bool:
        return True

    # -- E-step --------------------------------------------------------------------------------------------

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        assert past is not None
        design = scratch.once(x, lambda x: self._design(x, past))
        log_b = scratch.buffer("log_b", (len(table), len(x)), dtype, x.device).T
        log_b = self.of_regressions(table, x, past, design, log_b)
        share = add_background(log_b, design.log_background, self.observation.background, scratch)
        return LogDensities(log_b), WeightedDesign(design, share)

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        assert past is not None
        log_b = empty_by_state(len(table), len(x), dtype, x.device)
        design = self._design(x, past)
        log_b = self.of_regressions(table, x, past, design, log_b)
        add_background(log_b, design.log_background, self.observation.background, Scratch())
        return log_b

    def of_regressions(self, table: Tensor, x: Tensor, past: Tensor, design: RegressionDesign, log_b: Tensor) -> Tensor:
        """Fill ``log_b (N, K)`` with the log-density of each frame under the regression of each state; return it.

        It is in nats, and without the background.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            x: N encoded frames, ``(N, D)``.
            past: the p frames before each frame, ``(N, p, D)``.
            design: the same frames.
            log_b: array to fill, ``(N, K)``, in which each column must be contiguous in memory.
        """
        if design.incomplete is None:
            self._log_prob_of_complete(table, x, past, design, log_b)
            return log_b
        complete = ~design.incomplete
        part = empty_by_state(len(table), design.columns.shape[1], log_b.dtype, log_b.device)
        self._log_prob_of_complete(table, x[complete], past[complete], design, part)
        log_b[complete] = part
        for rows in design.incomplete.nonzero().squeeze(1).split(self._rows_at_once(len(table), x.device)):
            log_prob = self.plain.log_prob(table.unsqueeze(1), x[rows].double(), past[rows].double())
            log_b[rows] = log_prob.T.to(log_b.dtype)
        return log_b

    def _log_prob_of_complete(
        self, table: Tensor, x: Tensor, past: Tensor, design: RegressionDesign, log_b: Tensor
    ) -> None:
        if self.observation.predictive == "posterior":
            self._log_prob_given_frames(table, x, past, log_b)
            return
        if self._runs_compiled(len(table), design):
            from seqmodels.hmm.emissions.compiled_regressions import log_densities

            whitening, constants = self._whitening(table)
            past_then_x = torch.arange(len(design.columns) - 1).split([self.n_regressors, self.size])
            order = torch.cat([past_then_x[1], past_then_x[0], torch.tensor([len(design.columns) - 1])])
            log_densities(whitening, constants, design.columns, order, log_b.T)
        else:
            theta = self._coefficients(table)
            for rows, features in design.blocks():
                log_b.T[:, rows] = theta @ features
        frames, before = x[design.early].double(), past[design.early, : self.observation.order].double()
        first = self.plain.log_prob(table[:1], frames, before)  # shared by all states
        log_b[design.early] = first.to(log_b.dtype).unsqueeze(1)

    def _log_prob_given_frames(self, table: Tensor, x: Tensor, past: Tensor, log_b: Tensor) -> None:
        """Fill ``log_b (N, K)`` with the densities of frames, which are no quadratic function of frame and past."""
        for rows in row_blocks(len(x), len(table) * (self.n_regressors + 1), x.device):
            before = past[rows, : self.observation.order].double()
            log_b[rows] = self.plain.log_prob(table.unsqueeze(1), x[rows].double(), before).T.to(log_b.dtype)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        assert past is not None
        if memo is None and self.observation.background:
            _, memo = self.evaluate(table, x, past, torch.float64, Scratch())
        design, share = memo or (self._design(x, past), None)
        gamma = gamma if share is None else gamma * share.to(gamma.dtype)
        of_complete = gamma if design.incomplete is None else gamma[~design.incomplete]
        sums = self._sums_of_complete(design, of_complete)
        for frames in self._incomplete_frames(design, x, past, len(table)):
            sums += self._expected_statistics(table, frames, gamma)
        return (sums,)

    def statistics_of_complete(self, table: Tensor, x: Tensor, past: Tensor) -> Statistics:
        """Return the statistics of one state over the frames without missing values in themselves or their past.

        Args:
            table: P output parameters of the state, ``(1, P)``.
            x: N encoded frames, ``(N, D)``.
            past: the p frames before each frame, ``(N, p, D)``, or ``(N, p + p²D, D)``.
        """
        kept = ~self._incomplete(x, past)
        frames, before = x[kept], past[kept, : self.observation.order].to(x.dtype)
        return self.statistics(table, frames, before, frames.new_ones(len(frames), 1))

    def _incomplete_frames(
        self, design: RegressionDesign, x: Tensor, past: Tensor, n_states: int
    ) -> Iterator[IncompleteFrames]:
        """Yield the frames with missing values, except the first p steps of sequences, some at a time."""
        if design.incomplete is None:
            return
        is_used = design.incomplete & ~torch.isnan(past[:, : self.observation.order]).flatten(1).any(1)
        for rows in is_used.nonzero().squeeze(1).split(self._rows_at_once(n_states, x.device)):
            history, spread = self.observation.split_past(past[rows].double())
            if spread is None:
                spread = history.new_zeros(*history.shape, history.shape[-1])
            yield IncompleteFrames(rows, x[rows].double(), history, spread)

    def _sums_of_complete(self, design: RegressionDesign, gamma: Tensor) -> Tensor:
        """Return posterior-weighted sums of F quadratic features over the n frames without missing values, ``(K, F)``.

        ``gamma``: posterior probability of each state in each of these frames, ``(n, K)``.
        """
        if self._runs_compiled(gamma.shape[1], design):
            from seqmodels.hmm.emissions.compiled_regressions import second_moments

            moments = second_moments(design.columns, gamma.T)
            return quadratic.sums_of_moments(moments[:, :-1, :-1], moments[:, :-1, -1], moments[:, -1, -1])
        n_features = quadratic.n_features(self.n_regressors + self.size)
        sums = torch.zeros(gamma.shape[1], n_features, dtype=torch.float64, device=gamma.device)
        for rows, features in design.blocks():
            sums.addmm_(gamma.T[:, rows].double(), features.T)
        return sums

    def _runs_compiled(self, n_states: int, design: RegressionDesign) -> bool:
        n_frames = design.columns.shape[1] * n_states // FEWEST_STATES_COMPILED
        return n_states >= FEWEST_STATES_COMPILED and loops_are_worth_compiling(n_frames, design.columns.device)

    def _design(self, x: Tensor, past: Tensor) -> RegressionDesign:
        frames, is_incomplete = x, self._incomplete(x, past)
        history, _ = self.observation.split_past(past)
        incomplete = is_incomplete if bool(is_incomplete.any()) else None
        if incomplete is not None:
            x, history = x[~incomplete], history[~incomplete]
        is_early = torch.isnan(history).any(1)
        columns = torch.cat([history.T, x.T, x.new_ones(1, len(x))])  # (pD + D + 1, n)
        columns.masked_fill_(is_early, 0.0)
        jumps = self.observation.log_background(frames, past).unsqueeze(1) if self.observation.background else None
        return RegressionDesign(columns, is_early.nonzero().squeeze(1), incomplete, jumps)

    def _incomplete(self, x: Tensor, past: Tensor) -> Tensor:
        """Return True for each frame with a missing value in itself or in its past, ``(N,)``.

        Steps before the start of a sequence do not count as missing.
        """
        missing = torch.isnan(x).any(1)
        _, spread = self.observation.split_past(past)
        return missing if spread is None else missing | (spread != 0).flatten(1).any(1)

    def _rows_at_once(self, n_states: int, device: torch.device) -> int:
        width = self.n_regressors + self.size
        return max(1, (IN_CACHE if device.type == "cpu" else ON_GPU) // (n_states * width * width))

    def _expected_statistics(self, table: Tensor, frames: IncompleteFrames, gamma: Tensor) -> Tensor:
        """Return sums of the quadratic features of ``(past, x)``, with expectations for missing values, ``(K, F)``.

        The expectation is given the observed values, under ``observation.joint(...)`` of each state. ``frames``: n
        frames with missing values; ``gamma``: posterior of each state in each of them, ``(n, K)``. Only sums over
        frames are formed, because most of the work for each frame by itself would be the covariance of the past.
        """
        x, history, spread = frames.x, frames.history, frames.spread
        weights = gamma[frames.rows].double().T  # (K, n)
        matrix, intercept, noise, *_ = self.observation.regression(table.double(), self.size)
        observed = ~torch.isnan(x)
        across = spread @ matrix.mT.unsqueeze(1)  # (K, n, pD, D)
        covariance = matrix.unsqueeze(1) @ across + noise.unsqueeze(1)  # (K, n, D, D)
        mean = intercept.unsqueeze(1) + history @ matrix.mT  # (K, n, D)
        together = observed.unsqueeze(-1) & observed.unsqueeze(-2)
        factor = torch.linalg.cholesky(torch.where(together, covariance, torch.eye(self.size).to(covariance)))
        deviation = torch.where(observed, x - mean, 0.0).unsqueeze(-1)
        with_x = torch.cat([across, covariance], 2).masked_fill(~observed.unsqueeze(1), 0.0)  # (K, n, pD + D, D)
        solved = torch.linalg.solve_triangular(factor, torch.cat([with_x.mT, deviation], 3), upper=False)
        gain, white = solved[..., :-1], solved[..., -1:]
        joint = torch.cat([history.expand(len(table), -1, -1), mean], 2) + (gain.mT @ white).squeeze(-1)
        q = self.n_regressors
        joint[..., q:] = torch.where(observed, x, joint[..., q:])
        # Observed values have covariances of exactly zero.
        gain[..., q:] = gain[..., q:].masked_fill(observed.unsqueeze(1), 0.0)
        across = across.masked_fill(observed.unsqueeze(1), 0.0)
        covariance = covariance.masked_fill(observed.unsqueeze(1) | observed.unsqueeze(2), 0.0)
        of_past = (weights @ spread.flatten(1)).view(-1, q, q)
        of_both = (weights.unsqueeze(1) @ across.flatten(2)).view(-1, q, self.size)
        of_x = (weights.unsqueeze(1) @ covariance.flatten(2)).view(-1, self.size, self.size)
        products = torch.cat([torch.cat([of_past, of_both], 2), torch.cat([of_both.mT, of_x], 2)], 1)
        weighted = weights.unsqueeze(-1) * joint
        products = products + weighted.mT @ joint
        products = products - (weights[..., None, None] * gain).flatten(1, 2).mT @ gain.flatten(1, 2)
        return quadratic.sums_of_moments(products, weighted.sum(1), weights.sum(1))

    def log_prob_of_sums(self, table: Tensor, sums: Tensor) -> Tensor:
        """Return the log-density of frames in each of K states, summed over the frames, in nats, ``(K,)``.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            sums: sums of F quadratic features over frames that are complete and after the first p steps of their
                sequence, for each state, as ``statistics`` returns them, ``(K, F)``.
        """
        return (self._coefficients(table) * sums).sum(1)

    def _whitening(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return matrices ``(K, D, D + pD + 1)`` and constants ``(K,)`` that give log-densities as squared residuals.

        ``log N(x; A past + c, Σ) = constant - ½ ‖Lᵀ (I, -A, -c) (x, past, 1)‖²`` with ``Σ⁻¹ = L Lᵀ``; Lᵀ is upper
        triangular.
        """
        matrix, intercept, shape, *_ = self.observation.unpack(table, self.size)
        factor = gaussian.precision_factor(
            shape, self.size, self.observation.shape_type, self.observation.min_covariance
        )
        identity = torch.eye(self.size, dtype=table.dtype, device=table.device).expand(len(table), -1, -1)
        residual = torch.cat([identity, -matrix, -intercept.unsqueeze(-1)], dim=-1)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return factor.mT @ residual, log_det - 0.5 * self.size * math.log(2 * math.pi)

    def _coefficients(self, table: Tensor) -> Tensor:
        """Return the coefficients of the quadratic features of ``w = (past, x)`` in the log-density, ``(K, F)``.

        ``log N(x; A past + c, Σ) = const - ½ (R w - c)ᵀ P (R w - c)`` with ``R = (-A, I)`` and ``P = Σ⁻¹``.
        """
        matrix, intercept, shape, *_ = self.observation.unpack(table, self.size)
        floor = self.observation.min_covariance
        if self.diagonal:
            log_variance = shape.clamp(min=math.log(floor))
            precision, log_det = torch.diag_embed(torch.exp(-log_variance)), -0.5 * log_variance.sum(-1)
        else:
            factor = gaussian.precision_cholesky(shape, self.size, floor)
            precision = factor @ factor.transpose(-1, -2)
            log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        identity = torch.eye(self.size, dtype=table.dtype, device=table.device).expand(len(table), -1, -1)
        residual = torch.cat([-matrix, identity], dim=-1)  # (K, D, pD + D)
        weighted = residual.transpose(-1, -2) @ precision
        linear = (weighted @ intercept.unsqueeze(-1)).squeeze(-1)
        spread = (intercept.unsqueeze(-2) @ precision @ intercept.unsqueeze(-1)).flatten(1).squeeze(1)
        constant = log_det - 0.5 * (self.size * math.log(2 * math.pi) + spread)
        return quadratic.coefficients(weighted @ residual, linear, constant)

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        q = self.n_regressors
        gram, cross, scatter, counts = self._normal_equations(statistics)
        visited = counts > 1e-10
        identity = torch.eye(q + 1, dtype=torch.float64, device=table.device)
        weights = cross @ torch.linalg.pinv(torch.where(visited[:, None, None], gram, identity), hermitian=True)
        # At the optimum (cross terms included) the residual scatter plus the penalty is Σxx - W crossᵀ.
        residual = scatter - weights @ cross.transpose(-1, -2)
        matrix, intercept, old_shape, *first = self.observation.unpack(table, self.size)
        if self.observation.covariance_type == "tied":
            # A state without frames keeps its regression, whose penalty still counts in the shared covariance.
            kept = torch.cat([matrix, intercept.unsqueeze(-1)], dim=-1)
            about_kept = scatter - kept @ cross.mT - cross @ kept.mT + kept @ gram @ kept.mT
            weights = torch.where(visited[:, None, None], weights, kept)
            residual = torch.where(visited[:, None, None], residual, about_kept).sum(0)
            shape = self._shape(0.5 * (residual + residual.mT) / counts.sum()).expand_as(old_shape)
            updated = self.observation.pack(weights[..., :q], weights[..., q], shape, *first)
            return updated if bool(visited.any()) else table
        covariance = 0.5 * (residual + residual.mT) / torch.where(visited, counts, 1.0)[:, None, None]
        shape = self._shape(torch.where(visited[:, None, None], covariance, identity[: self.size, : self.size]))
        updated = self.observation.pack(weights[..., :q], weights[..., q], shape, *first)
        return torch.where(visited.unsqueeze(1), updated, table)

    def _normal_equations(self, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the sums of which the M-step's regressions are made, with ridge and unit roots.

        ``statistics``: expected sums, as ``statistics`` returns them. With q = pD regressors and the constant 1, the
        results are products of regressors ``(K, q + 1, q + 1)``, of responses and regressors ``(K, D, q + 1)``, of
        responses ``(K, D, D)``, and numbers of frames ``(K,)``.
        """
        products, sums, counts = quadratic.moments(statistics[0], self.n_regressors + self.size)
        # Regressors are (past, 1); the ridge is on the coefficients of the past alone.
        q = self.n_regressors
        last = torch.cat([sums[:, :q], counts.unsqueeze(1)], dim=1).unsqueeze(-1)  # (K, q + 1, 1): products with the 1
        gram = torch.cat([torch.cat([products[:, :q, :q], last[:, :q].transpose(-1, -2)], dim=1), last], dim=2)
        cross = torch.cat([products[:, q:, :q], sums[:, q:].unsqueeze(-1)], dim=-1)  # (K, D, q + 1)
        scatter = products[:, q:, q:]
        if unit_root := self.observation.unit_root:
            # Pseudo-frames, one for each feature, in which all steps are equal; their regression has no intercept.
            ones = self._all_lags(products)  # (D, q)
            gram = gram + torch.nn.functional.pad(unit_root * (ones.T @ ones), (0, 1, 0, 1))
            cross = cross + torch.nn.functional.pad(unit_root * ones, (0, 1))
            scatter = scatter + unit_root * torch.eye(self.size, dtype=products.dtype, device=products.device)
        penalty = torch.full((q + 1,), self.observation.ridge, dtype=torch.float64, device=products.device)
        penalty[q] = 0.0
        if not self.observation.intercept:
            gram[:, q, :q] = gram[:, :q, q] = cross[..., q] = 0.0
        gram = gram + torch.diag(penalty)
        return gram, cross, scatter, counts

    def with_posterior(self, table: Tensor, statistics: Statistics) -> Tensor | None:
        """Return the parameters with those of the posterior of ``predictive="posterior"``; None if too few frames.

        ``with_tails`` then corrects its degrees of freedom and its scale.

        The prior is ``|Σ|^(-(D + 1) / 2)`` times the exponential of ``log_prior``. Then the coefficients (A, c) given Σ
        are matrix-normal around their estimates, Σ is inverse Wishart, and the next step is Student t with
        ``n - F - D + 1`` degrees of freedom for F estimated coefficients of each feature; under ``"diag"`` each feature
        has ``n - F`` (Zellner 1971, *An introduction to Bayesian inference in econometrics*, section 8.2). There are
        enough frames if all t densities have a variance, that is, more than 2 degrees of freedom.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            statistics: sums over n frames without missing values, as ``statistics`` returns them.
        """
        gram, _, _, n = self._normal_equations(statistics)
        if not self.observation.intercept:
            gram[:, -1, -1] = 0.0
        n_coefficients = self.n_regressors + self.observation.intercept
        degrees = n - n_coefficients - (0 if self.diagonal else self.size - 1)
        if not bool((degrees > 2).all()):
            return None
        values, vectors = torch.linalg.eigh(gram)
        is_determined = values > gram.shape[-1] * torch.finfo(gram.dtype).eps * values[..., -1:]
        scale = torch.where(is_determined, values, torch.inf).rsqrt()
        root = scale.unsqueeze(-1) * vectors.mT
        return torch.cat([table, torch.stack([n, degrees], -1), root.flatten(-2)], -1)

    def left_out(self, integrated: Tensor, x: Tensor, past: Tensor, copies: float) -> LeftOut:
        """Return how far each frame is from its prediction given all other frames, for the state of ``integrated``.

        Args:
            integrated: parameters of one state, as ``with_posterior`` returns them, ``(1, P)``.
            x: N encoded frames, ``(N, D)``. The first p of a sequence, and those that miss values in themselves or in
                their past, are left aside.
            past: the p frames before each frame, ``(N, p, D)``, or ``(N, p + p²D, D)``.
            copies: weight of each frame in the posterior.
        """
        n, degrees, root = self.observation.posterior(integrated, self.size)
        matrix, intercept, shape, *_ = (each[0] for each in self.observation.unpack(integrated, self.size))
        before = past[:, : self.observation.order]
        kept = ~self._incomplete(x, past) & ~torch.isnan(before).flatten(1).any(1)
        x, before = x[kept].double(), before[kept].double()
        history = before.flatten(1)
        kind, floor = self.observation.shape_type, self.observation.min_covariance
        factor = gaussian.precision_factor(shape, self.size, kind, floor)
        squares = ((x - intercept - history @ matrix.mT) @ factor).square()  # (m, D)
        if not self.diagonal:
            squares = squares.sum(1, keepdim=True)
        regressors = torch.nn.functional.pad(history, (0, 1), value=1.0)
        leverage = (regressors @ root[0].mT).square().sum(1, keepdim=True)
        share = torch.ones_like(leverage)
        if w := self.observation.background:
            of_regression = self.plain.log_prob(integrated, x, before)
            share = (of_regression + math.log1p(-w) - self.observation.log_background(x, before)).sigmoid().unsqueeze(1)
        return LeftOut.of(squares / n, leverage, share, copies, float(degrees))

    def with_tails(self, integrated: Tensor, frames: Sequence[LeftOut]) -> Tensor:
        """Return the parameters of ``with_posterior`` with degrees of freedom and a scale that fit the training frames.

        Args:
            integrated: parameters of one state, as ``with_posterior`` returns them, ``(1, P)``.
            frames: what ``left_out`` returns for the training frames of this process.
        """
        n, degrees, root = self.observation.posterior(integrated, self.size)
        _, _, shape, *_ = self.observation.unpack(integrated, self.size)
        if self.diagonal:
            variance = gaussian.variances_of_shape(shape, self.observation.min_covariance).min()
        else:
            precision = gaussian.precision_cholesky(shape, self.size, self.observation.min_covariance)
            variance = 1 / quadratic.largest_precision(precision).max()
        least = min(1.0, self.observation.min_covariance / float(variance))
        fewer, factor = degrees_and_scale(frames, 1 if self.diagonal else self.size, float(degrees), least)
        # The scale matrix is proportional to n / degrees.
        corrected = torch.stack([n * factor * fewer / degrees, torch.full_like(degrees, fewer)], -1)
        plain = integrated[:, : integrated.shape[1] - 2 - root[0].numel()]
        return torch.cat([plain, corrected, root.flatten(-2)], -1)

    def _shape(self, covariance: Tensor) -> Tensor:
        if self.diagonal:
            return covariance.diagonal(dim1=-2, dim2=-1).clamp(min=self.observation.min_covariance).log()
        return gaussian.shape_of_covariance(quadratic.clip_eigenvalues(covariance, self.observation.min_covariance))

    def log_prior(self, table: Tensor) -> Tensor:
        """Return the log-density of the prior of the regressions in nats, up to a constant, as a differentiable scalar.

        It is ``-½ ridge tr(Σ⁻¹ A Aᵀ) - ½ unit_root tr(Σ⁻¹ R Rᵀ)`` with ``R = I - A_1 - ... - A_p``, in encoded units,
        with coefficients A of lags 1 to p and covariance Σ of the innovations.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        matrix, _, shape, *_ = self.observation.unpack(table, self.size)
        log_prior = -0.5 * self.observation.ridge * self._scaled_squares(matrix, shape)
        if unit_root := self.observation.unit_root:
            ones = self._all_lags(table)
            rest = torch.eye(self.size, dtype=table.dtype, device=table.device) - matrix @ ones.T
            log_prior = log_prior - 0.5 * unit_root * self._scaled_squares(rest, shape)
        return log_prior

    def _scaled_squares(self, matrix: Tensor, shape: Tensor) -> Tensor:
        """Return ``Σ_k tr(Σ_k⁻¹ M_k M_kᵀ)``, a scalar.

        ``matrix``: the matrices M_k, ``(K, D, n)``; ``shape``: the parameters of the innovations' covariance Σ_k of
        each state.
        """
        if self.diagonal:
            variances = gaussian.variances_of_shape(shape, self.observation.min_covariance)
            return (matrix.square() / variances.unsqueeze(-1)).sum()
        factor = gaussian.precision_cholesky(shape, self.size, self.observation.min_covariance)
        return (factor.transpose(-1, -2) @ matrix).square().sum()

    def _all_lags(self, table: Tensor) -> Tensor:
        """Return the identity matrix of D features, repeated side by side for each of the p lags, ``(D, pD)``."""
        return torch.eye(self.size, dtype=table.dtype, device=table.device).repeat(1, self.observation.order)

    def floor_hits(self, table: Tensor) -> Tensor:
        _, _, shape, *_ = self.observation.unpack(table, self.size)
        floor = self.observation.min_covariance
        if self.diagonal:
            return gaussian.at_floor(shape, self.size, "diag", floor)
        return quadratic.largest_precision(gaussian.precision_cholesky(shape, self.size, floor)) >= (1 - 1e-6) / floor

    # -- the start -----------------------------------------------------------------------------------------

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        return kmeans_labels(in_comparable_units(x, self.observation.values(self.size)), n_states, generator)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        assert past is not None
        if self.observation.background:  # the guessed states know of no jumps
            return AutoregressiveEmission(self.plain, self.size).from_labels(x, past, labels, n_states, generator)
        gamma = torch.nn.functional.one_hot(labels, n_states)
        is_early = torch.isnan(past).flatten(1).any(1)
        if torch.isnan(x).any():
            # Expected statistics need a regression to begin with: one regression of all frames.
            table, design = self.white_noise(x, is_early, 1), self._design(x, past)
            frames, ones = list(self._incomplete_frames(design, x, past, 1)), torch.ones_like(gamma[:, :1])
            of_complete = self._sums_of_complete(design, ones[: design.columns.shape[1]])
            for _ in range(START_ROUNDS):
                sums = sum((self._expected_statistics(table, each, ones) for each in frames), of_complete)
                table = self.maximise((sums,), table)
            table = table.expand(n_states, -1)
        else:
            table = self.white_noise(x, is_early, n_states)
        (sums,) = self.statistics(table, x, past, gamma)
        # A regression from few frames starts near the one of all frames.
        mean = sums.sum(0) / sums.sum(0)[-1].clamp(min=1)
        return self.maximise((sums + 2 * (self.n_regressors + 1) * mean,), table)

    def white_noise(self, x: Tensor, is_early: Tensor, n_states: int) -> Tensor:
        """Return output parameters ``(K, P)`` with which every state ignores the frames before; EM starts there.

        Every state gets the mean and covariance of all frames. The Gaussian of the first p steps of a sequence is
        estimated from the frames where ``is_early`` is True and from ``D + 1`` frames with the mean and covariance of
        the whole data. Where values are missing, the variance of a feature is over its observed values, and covariances
        count missing values as means.

        Args:
            x: N frames, ``(N, D)``, NaN where missing.
            is_early: True for the first p frames of sequences, ``(N,)``.
            n_states: number of states, K.
        """
        x = x.double()
        observed = ~torch.isnan(x)
        if observed.all():
            mean, covariance = x.mean(0), torch.cov(x.T, correction=0).view(self.size, self.size)
        else:
            mean = x.nanmean(0)
            centred = torch.where(observed, x - mean, 0.0)
            covariance = centred.T @ centred / len(x)
            covariance.diagonal().copy_(centred.square().sum(0) / observed.sum(0))
        early, is_observed = torch.where(observed, x, mean)[is_early], observed[is_early]
        n_early = is_observed.sum(0)  # (D,)
        extra = (
            self.size + 1
        )  # pseudo-frames of the whole data, because a few first frames do not determine a covariance
        first_mean = (torch.where(is_observed, early, 0.0).sum(0) + extra * mean) / (n_early + extra)
        centred = torch.where(is_observed, early - first_mean, 0.0)
        first = (centred.T @ centred + extra * covariance) / (len(early) + extra)
        variances = (centred.square().sum(0) + extra * covariance.diagonal()) / (n_early + extra)
        first.diagonal().copy_(torch.where(n_early < len(early), variances, first.diagonal()))
        return self.observation.pack(
            torch.zeros(n_states, self.size, self.n_regressors, dtype=torch.float64, device=x.device),
            (mean if self.observation.intercept else torch.zeros_like(mean)).expand(n_states, -1),
            self._shape(covariance).expand(n_states, -1),
            first_mean.expand(n_states, -1),
            self._shape(first).expand(n_states, -1),
        )

    # -- for users -----------------------------------------------------------------------------------------

    def n_parameters(self, n_states: int) -> int:
        shape = gaussian.n_shape_parameters(self.observation.shape_type, self.size)
        regression = self.size * (self.n_regressors + self.observation.intercept)
        n_shapes = 1 if self.observation.covariance_type == "tied" else n_states
        return n_states * regression + n_shapes * shape + self.size + shape

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        parts = (t.cpu() for t in self.observation.unpack(table, self.size))
        matrix, intercept, shape, first_mean, first_shape = parts
        order = self.observation.order
        coefficients = matrix.numpy() * scale[:, None] / np.tile(scale, order)
        covariances = self._raw_covariances(shape, scale)
        return {
            "coefficients_": coefficients,
            "intercepts_": intercept.numpy() * scale + shift - coefficients @ np.tile(shift, order),
            "covariances_": covariances[0] if self.observation.covariance_type == "tied" else covariances,
            "first_mean_": first_mean[0].numpy() * scale + shift,
            "first_covariance_": self._raw_covariances(first_shape[0], scale),
        }

    def _raw_covariances(self, shape: Tensor, scale: np.ndarray) -> np.ndarray:
        """Return the variances ``(..., D)`` or covariances ``(..., D, D)`` that the numbers ``shape`` describe, raw."""
        floor = self.observation.min_covariance
        if self.diagonal:
            return np.asarray(gaussian.variances_of_shape(shape, floor).numpy() * scale**2)
        return np.asarray(gaussian.covariance_of_shape(shape, self.size, floor).numpy() * np.outer(scale, scale))

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        units = scale**2 if self.diagonal else np.outer(scale, scale)
        past, of_past = (np.tile(each, self.observation.order) for each in (shift, scale))
        coefficients, k = raw["coefficients_"], len(raw["coefficients_"])
        intercepts = (raw["intercepts_"] - shift + coefficients @ past) / scale
        shape, first_shape = (
            covariance.log() if self.diagonal else gaussian.shape_of_covariance(covariance)
            for covariance in (torch.as_tensor(raw[name] / units) for name in ("covariances_", "first_covariance_"))
        )
        first_mean = torch.as_tensor((raw["first_mean_"] - shift) / scale)
        return self.observation.pack(
            torch.as_tensor(coefficients * of_past / scale[:, None]),
            torch.as_tensor(intercepts),
            shape.expand(k, -1),
            first_mean.expand(k, -1),
            first_shape.expand(k, -1),
        )

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        """Return intercepts, coefficients of earlier values and innovations' standard deviations as columns ``(K,)`` by
        name.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            shift: number to add to each of D encoded features times ``scale``, which gives its raw value, ``(D,)``.
            scale: factor of each encoded feature, ``(D,)``.
            names: names of the features; a single ``""`` adds nothing to the name of a column.
        """
        raw = self.raw_parameters(table, shift, scale)
        order, k = self.observation.order, len(table)
        variances = raw["covariances_"] if self.diagonal else np.diagonal(raw["covariances_"], axis1=-2, axis2=-1)
        before = [f"{name or 'x'}(t-{lag})" for lag in range(order, 0, -1) for name in names]
        on = [column for name in names for column in columns_of("on", [f"{name}_{b}" if name else b for b in before])]
        return {
            **dict(zip(columns_of("intercept", names), raw["intercepts_"].T, strict=True)),
            **dict(zip(on, raw["coefficients_"].reshape(k, -1).T, strict=True)),
            **dict(zip(columns_of("sd", names), np.sqrt(np.broadcast_to(variances, (k, self.size))).T, strict=True)),
        }


def add_background(log_b: Tensor, log_background: Tensor | None, w: float, scratch: Scratch) -> Tensor | None:
    """Add the background to log-densities, in place, and return the probability that each frame is no jump, ``(N, K)``.

    The densities are then those of ``AutoregressiveGaussian.log_prob``, whose logaddexp takes longer.

    Args:
        log_b: log-density of each of N frames under the regression of each of K states in nats, ``(N, K)``.
        log_background: log-density of each frame as a jump, times the probability of one, ``(N, 1)``; None without a
            background, and then None is returned.
        w: the probability of a jump.
        scratch: buffers that hold the result.
    """
    if log_background is None:
        return None
    share, more = (scratch.buffer(name, log_b.T.shape, log_b.dtype, log_b.device).T for name in ("share", "more"))
    log_b.add_(math.log1p(-w))
    torch.sub(log_b, log_background, out=share)
    torch.abs(share, out=more).neg_().exp_().log1p_()
    torch.maximum(log_b, log_background, out=log_b).add_(more)
    return share.sigmoid_()

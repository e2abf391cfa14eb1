"""Autoregressions of deviations from the mean of the state at each lag, and their M-step (Hamilton 1989).

    ``x_t - mu_{z_t} = Σ_k phi_k (x_t-k - mu_{z_t-k}) + e_t``, ``e_t ~ N(0, sigma²)``,

for each feature separately. Given the tuple ``(z_t, .., z_t-p)`` the mean is linear in the last p steps, with the
intercept ``mu_{z_t} - Σ_k phi_k mu_{z_t-k}``. Where emissions depend on inputs, ``mu_z + B_z u_t`` takes the place of
``mu_z`` at step t, so that a density depends on the inputs of the last p + 1 steps. The sufficient statistics are, for
each tuple, the expected products of ``v = (1, x_t, x_t-1, .., x_t-p, u_t, .., u_t-p)``. An M-step maximises over the
coefficients, then over the means with their slopes B, then over the variances, each given the others (expectation
conditional maximisation, Meng and Rubin 1993), so that EM stays monotone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.constants import LOG_2PI
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.emissions.base import columns_of, row_blocks
from seqmodels.hmm.emissions.given_inputs import RegressedColumns, regressed_columns
from seqmodels.hmm.estimates import ON_FLOOR, Emitted, Estimate
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.lagged_states import tuples
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import AutoregressiveGaussian, gaussian

ROUNDS = 3  # rounds of conditional maximisations in one M-step
DRAWN_STARTS = 0.5  # share of starts without clusters, because states may differ although their means are equal
NEGLIGIBLE = 1e-10  # expected steps of a state up to which it counts as never visited


class Unknowns(NamedTuple):
    """The numbers that an M-step of a switching autoregression changes.

    K states, D features, p past steps, U inputs.

    Attributes:
        mean: means of the states, ``(K, D)``.
        slopes: slopes of the means on inputs, ``(K, D, U)``.
        coefficients: autoregressive coefficients, one step back first, ``(K, p, D)``.
        log_variance: logarithms of the variances of the innovations, ``(K, D)``.
    """

    mean: Tensor
    slopes: Tensor
    coefficients: Tensor
    log_variance: Tensor


class DeviationEmission(Emission):
    """The emission of a switching autoregression, whose densities depend on the tuple of the last p + 1 states.

    A row of the table ``(K, P)`` holds the mean of a state ``(D,)``, its coefficients ``(p, D)`` with one step back
    first, the logarithm of its variance ``(D,)``, and the mean and log-variance of the first p steps, which all states
    share. Densities, and the ``gamma`` that ``statistics`` takes, have a column for each of the ``K^(p+1)`` tuples, the
    newest state first. Where means depend on U inputs, the table that EM works on has the slopes of the means, ``(D,
    U)`` in each row, after these columns (``with_slopes``).

    Args:
        observation: the regression of one tuple, whose variances are diagonal.
        size: number of features, D.
        switching_ar: True if each state has its own coefficients.
        switching_variance: True if each state has its own variances.
        is_frozen: True for rows of the table that an M-step leaves unchanged; what all states share is then unchanged
            too. None if no row is frozen.
    """

    observation: AutoregressiveGaussian

    def __init__(
        self,
        observation: AutoregressiveGaussian,
        size: int,
        *,
        switching_ar: bool,
        switching_variance: bool,
        is_frozen: Tensor | None = None,
    ) -> None:
        super().__init__(observation, size)
        self.order = observation.order
        self.switching_ar = switching_ar
        self.switching_variance = switching_variance
        self.is_frozen = is_frozen

    @property
    def n_earlier_states(self) -> int:
        return self.order

    @property
    def shares(self) -> bool:
        return True

    @property
    def n_columns(self) -> int:
        """Number of columns of the table, P."""
        return (self.order + 4) * self.size

    def n_densities(self, n_states: int) -> int:
        return self.size * int(n_states ** (self.order + 1))

    def unpack(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the parts of a table: means, coefficients, log-variances, and mean and log-variance of first steps.

        The coefficients are ``(K, p, D)`` and the others ``(K, D)``, for K states, p past steps and D features.
        ``table (K, P)`` may have further columns of slopes on inputs, which are left out.
        """
        d = self.size
        widths = [d, self.order * d, d, d, d]
        mean, coefficients, log_variance, first_mean, first_log_variance = table[:, : self.n_columns].split(widths, 1)
        return mean, coefficients.unflatten(1, (self.order, d)), log_variance, first_mean, first_log_variance

    def pack(self, mean: Tensor, coefficients: Tensor, *rest: Tensor) -> Tensor:
        """Return the table made of the given parts, ``(K, P)``: the inverse of ``unpack``.

        Args:
            mean: means, ``(K, D)``.
            coefficients: coefficients, one step back first, ``(K, p, D)``.
            rest: log-variances, then means and log-variances of first steps, ``(K, D)`` each; flattened slopes of the
                means on inputs, ``(K, D U)``, may follow.
        """
        return torch.cat([mean, coefficients.flatten(1), *rest], 1)

    def with_slopes(self, table: Tensor, slopes: Tensor) -> Tensor:
        """Return the table with the slopes of its means on inputs as further columns, ``(K, P + D U)``.

        Args:
            table: parameters of the states, ``(K, P)``.
            slopes: slopes of all columns of the table on U inputs, ``(K, P, U)``.
        """
        return torch.cat([table, slopes[:, : self.size].flatten(1)], 1)

    def slopes(self, table: Tensor) -> Tensor:
        """Return the slopes of the means on inputs, ``(K, D, U)``, from a table that ``with_slopes`` made."""
        n_inputs = (table.shape[1] - self.n_columns) // self.size
        return table[:, self.n_columns :].reshape(len(table), self.size, n_inputs)

    def levels(self, table: Tensor, inputs: Tensor) -> Tensor:
        """Return the mean of each state at given inputs, ``(..., K, D)`` float64.

        Args:
            table: parameters of the states, with slopes of the means, as ``with_slopes`` returns it.
            inputs: standardised inputs, ``(..., U)``.
        """
        return self.unpack(table)[0] + torch.einsum("...u,kdu->...kd", inputs.to(table), self.slopes(table))

    def of_tuples(self, table: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Return the output parameters of an ``AutoregressiveGaussian`` for each tuple of the last p + 1 states.

        They are the P' numbers that it takes, ``(K^(p+1), P')``, or ``(n, K^(p+1), P')`` with inputs. The newest state
        of a tuple comes first.

        Args:
            table: parameters of the states, ``(K, P)``.
            inputs: inputs of the last p + 1 steps of n sequences, the newest first, ``(n, p + 1, U)``; None if means
                depend on no inputs.
        """
        mean, coefficients, log_variance, *first = self.unpack(table)
        states = tuples(len(table), self.order, table.device)
        newest = states[:, 0]
        oldest_first = torch.diag_embed(coefficients[newest].flip(1))  # (S, p, D, D)
        matrix = oldest_first.transpose(1, 2).flatten(2)  # (S, D, pD)
        rest = (log_variance[newest], *(each[newest] for each in first))
        if inputs is None:
            intercept = mean[newest] - (coefficients[newest] * mean[states[:, 1:]]).sum(1)
            return self.observation.pack(matrix, intercept, *rest)
        intercept = self._intercepts(table, inputs)
        shape = (len(inputs), len(states), -1)
        return self.observation.pack(matrix.expand(*shape, -1), intercept, *(each.expand(shape) for each in rest))

    def _intercepts(self, table: Tensor, inputs: Tensor) -> Tensor:
        """Return the intercept of each tuple of states at given inputs, ``(n, K^(p+1), D)``.

        Args:
            table: parameters of the states, with slopes of the means on inputs.
            inputs: inputs of the last p + 1 steps of n sequences, the newest first, ``(n, p + 1, U)``.
        """
        states, levels = tuples(len(table), self.order, table.device), self.levels(table, inputs)  # (n, p + 1, K, D)
        coefficients, newest = self.unpack(table)[1], states[:, 0]
        intercept = levels[:, 0, newest]
        for lag in range(1, self.order + 1):
            intercept = intercept - coefficients[newest, lag - 1] * levels[:, lag, states[:, lag]]
        return intercept

    # -- E-step --------------------------------------------------------------------------------------------

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[LogDensities, Any]:
        return LogDensities(self.log_prob(table, x, past, dtype)), None

    def log_prob(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, inputs: Tensor | None = None
    ) -> Tensor:
        """Return log-densities of N frames in every tuple of the last p + 1 states, ``(N, K^(p+1))``, in nats.

        Args:
            table: parameters of the states, ``(K, P)``, with slopes of the means if there are inputs.
            x: encoded frames, ``(N, D)``.
            past: the p frames before each frame, the oldest first, ``(N, p, D)``; NaN before the start of a sequence.
            dtype: precision of the result.
            inputs: inputs of each frame and of the p frames before it, the newest first, ``(N, p + 1, U)``; None if
                means do not depend on inputs.
        """
        assert past is not None, "an autoregression is always given its past"
        mean, coefficients, log_variance, first_mean, first_log_variance = self.unpack(table)
        log_variance = log_variance.clamp(min=math.log(self.observation.min_covariance))
        k = len(table)
        steps, is_early = self._steps(x, past)  # (N, p + 1, D)
        # One part depends on the newest state only, the intercept on the tuple only, so neither is computed for all.
        regressed = steps[:, :1] - torch.einsum("npd,kpd->nkd", steps[:, 1:], coefficients)  # (N, K, D)
        if inputs is None:
            states = tuples(k, self.order, table.device)
            weighted = coefficients[states[:, 0]] * mean[states[:, 1:]]  # (S, p, D)
            intercept = (mean[states[:, 0]] - weighted.sum(1)).unflatten(0, (k, -1))  # (K, M, D)
        else:
            intercept = self._intercepts(table, inputs).unflatten(1, (k, -1))  # (N, K, M, D)
        log_b = x.new_zeros(len(x), *intercept.shape[-3:-1], dtype=torch.float64)
        for d in range(self.size):
            residual = regressed[:, :, None, d] - intercept[..., d]
            precision = torch.exp(-log_variance[:, d])[:, None]
            log_b -= 0.5 * (residual.square() * precision + log_variance[:, d, None] + LOG_2PI)
        log_b = log_b.flatten(1)
        if bool(is_early.any()):  # one Gaussian for all states
            first, floor = (first_mean[0], first_log_variance[0]), self.observation.min_covariance
            log_b[is_early] = gaussian.log_density(x[is_early].double(), *first, "diag", floor).unsqueeze(1)
        return log_b.to(dtype)

    def log_prob_by_state(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return scores by which N frames are assigned to K states where EM starts, ``(N, K)``.

        A score is the log-density in the state, together with those earlier states that explain the frame best.

        Args:
            table: parameters of the states, ``(K, P)``.
            x: encoded frames, ``(N, D)``.
            past: the p frames before each frame, ``(N, p, D)``.
            dtype: precision of the result.
        """
        best: Tensor = self.log_prob(table, x, past, dtype).unflatten(1, (len(table), -1)).amax(2)
        return best

    def statistics(
        self,
        table: Tensor,
        x: Tensor,
        past: Tensor | None,
        gamma: Tensor,
        memo: Any = None,
        inputs: Tensor | None = None,
    ) -> Statistics:
        """Return expected sums of products of regressors and response, ``(K^(p+1), D, W, W)``.

        For each tuple of states and each feature they are products of the W = 1 + (p + 1) (1 + U) entries of
        ``v = (1, x_t, .., x_t-p, u_t, .., u_t-p)``. The first p steps of a sequence are left out.

        Args:
            table: parameters of the states, ``(K, P)``.
            x: encoded frames, ``(N, D)``.
            past: the p frames before each frame, the oldest first, ``(N, p, D)``; NaN before the start of a sequence.
            gamma: posterior probability of each tuple in each frame, ``(N, K^(p+1))``.
            memo: not read.
            inputs: inputs of each frame and of the p frames before it, the newest first, ``(N, p + 1, U)``; None if
                means do not depend on inputs.
        """
        assert past is not None, "an autoregression is always given its past"
        steps, is_early = self._steps(x, past)
        ones = torch.ones_like(steps[:, :1])
        v = torch.cat([ones, steps], 1).mT.contiguous()  # (N, D, p + 2)
        if inputs is not None:
            v = torch.cat([v, inputs.to(v).flatten(1).unsqueeze(1).expand(-1, self.size, -1)], 2)
        width = v.shape[2]
        sums = torch.zeros(gamma.shape[1], self.size * width**2, dtype=torch.float64, device=x.device)
        v = v.masked_fill(is_early[:, None, None], 0.0)
        for rows in row_blocks(len(x), self.size * width**2, x.device):
            products = v[rows].unsqueeze(-1) * v[rows].unsqueeze(-2)
            sums.addmm_(gamma[rows].double().T, products.flatten(1))
        return (sums.view(-1, self.size, width, width),)

    def _steps(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Return each of N frames with the p frames before it, and a mask of the frames that have fewer than p before.

        The frames are ``(N, p + 1, D)`` float64, the newest first; the mask is ``(N,)``, and its frames are set to
        zero.

        Args:
            x: encoded frames, ``(N, D)``.
            past: the p frames before each frame, the oldest first, ``(N, p, D)``; NaN before the start of a sequence.
        """
        is_early = torch.isnan(past).flatten(1).any(1)
        steps = torch.cat([x.unsqueeze(1), past.flip(1)], 1).double()
        return torch.where(is_early[:, None, None], 0.0, steps), is_early

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        """Return a table whose expected log-likelihood is at least that of ``table``: the M-step.

        It maximises over coefficients, means and variances in turn, for a few rounds.

        Args:
            statistics: the expected sums that ``statistics`` returns.
            table: parameters of the states before the step, ``(K, P)``, with slopes of the means if there are inputs.
        """
        mean, coefficients, log_variance, *first = self.unpack(table)
        given = statistics[0], tuples(len(table), self.order, table.device)
        p = Unknowns(mean, self.slopes(table), coefficients, log_variance)
        for _ in range(ROUNDS):
            updated = self._coefficients(*given, p)
            p = p._replace(coefficients=self._unless_frozen(p.coefficients, updated, is_shared=not self.switching_ar))
            mean, slopes = self._means(*given, p)
            p = p._replace(mean=mean, slopes=slopes)
            updated = self._log_variances(*given, p)
            p = p._replace(
                log_variance=self._unless_frozen(p.log_variance, updated, is_shared=not self.switching_variance)
            )
        return self.pack(p.mean, p.coefficients, p.log_variance, *first, p.slopes.flatten(1))

    def _unless_frozen(self, before: Tensor, after: Tensor, *, is_shared: bool) -> Tensor:
        """Return the rows of ``after``, but those of ``before`` for states that an M-step leaves unchanged.

        Args:
            before: parameters of the K states before the step, ``(K, ...)``.
            after: the same parameters after it.
            is_shared: True if all states share their row; it is left unchanged if any state is.
        """
        if self.is_frozen is None:
            return after
        is_kept = self.is_frozen.any().expand(len(before)) if is_shared else self.is_frozen
        return torch.where(is_kept.to(before.device).view(-1, *[1] * (before.dim() - 1)), before, after)

    def is_kept(self, table: Tensor) -> Tensor:
        mean, coefficients, log_variance, *first = self.unpack(torch.zeros_like(table))

        def kept(zeros: Tensor, *, is_shared: bool) -> Tensor:
            return self._unless_frozen(torch.ones_like(zeros), zeros, is_shared=is_shared)

        of_coefficients = kept(coefficients, is_shared=not self.switching_ar)
        of_variance = kept(log_variance, is_shared=not self.switching_variance)
        of_first = (kept(each, is_shared=True) for each in first)
        return self.pack(kept(mean, is_shared=False), of_coefficients, of_variance, *of_first) > 0

    def _coefficients(self, moments: Tensor, states: Tensor, before: Unknowns) -> Tensor:
        """Return the autoregressive coefficients by weighted least squares, given the means of the states.

        Deviations from the means are regressed on the deviations before.

        Args:
            moments: the sums that ``statistics`` returns, ``(S, D, W, W)``, for S tuples of states.
            states: the states of each tuple, the newest first, ``(S, p + 1)``.
            before: the numbers before the step.
        """
        mean, slopes, coefficients, log_variance = before
        k, width = len(mean), self.order + 2
        # Deviations are v times (-mu, identity, -B): (S, D, p + 1, W)
        deviation = torch.eye(width, dtype=moments.dtype, device=moments.device)[1:].expand(*moments.shape[:2], -1, -1)
        of_inputs = torch.einsum("sldu,lm->sdlmu", slopes[states], torch.eye(self.order + 1).to(slopes)).flatten(3)
        deviation = torch.cat([-mean[states].mT.unsqueeze(-1), deviation[..., 1:], -of_inputs], -1)
        products = deviation @ moments @ deviation.mT  # (S, D, p + 1, p + 1)
        of_states = products.unflatten(0, (k, -1)).sum(1)  # (K, D, ..), by the newest state
        if not self.switching_ar:
            weights = torch.exp(-log_variance)[..., None, None]
            of_states = (weights * of_states).sum(0, keepdim=True)
        gram, cross = of_states[..., 1:, 1:], of_states[..., 1:, 0]
        previous = coefficients.mT[: len(gram)]  # (K or 1, D, p)
        change = _solved(gram, cross - (gram @ previous.unsqueeze(-1)).squeeze(-1))
        return (previous + change).mT.expand_as(coefficients)

    def _means(self, moments: Tensor, states: Tensor, before: Unknowns) -> tuple[Tensor, ...]:
        """Return the means and their slopes by generalised least squares, given the coefficients.

        After subtracting ``Σ_k phi_k x_t-k``, the mean of x_t is a weighted sum of the means of p + 1 states.

        Args:
            moments: the sums that ``statistics`` returns, ``(S, D, W, W)``, for S tuples of states.
            states: the states of each tuple, the newest first, ``(S, p + 1)``.
            before: the numbers before the step.
        """
        mean, slopes, coefficients, log_variance = before
        k, n_inputs, newest = len(mean), slopes.shape[2], states[:, 0]
        lags = torch.cat([torch.ones_like(mean).unsqueeze(1), -coefficients], 1)[newest].mT  # (S, D, p + 1)
        is_state = torch.nn.functional.one_hot(states, k).to(moments)  # (S, p + 1, K)
        design = lags @ is_state  # (S, D, K)
        precision = torch.exp(-log_variance)[newest]  # (S, D)
        if n_inputs:
            gram, cross = self._equations(moments, precision, lags, is_state, n_inputs)
        else:
            gram = torch.einsum("sd,sdi,sdj->dij", precision * moments[..., 0, 0], design, design)
            target = (lags * moments[..., 0, 1:]).sum(-1)  # (S, D)
            cross = torch.einsum("sd,sdi->di", precision * target, design)
        numbers = torch.cat([mean.T.unsqueeze(2), slopes.transpose(0, 1)], 2).flatten(1)  # (D, K (1 + U))
        score = cross - (gram @ numbers.unsqueeze(-1)).squeeze(-1)
        if self.is_frozen is not None:  # so that frozen numbers are given, and no unknowns
            is_free = (~self.is_frozen).to(gram).repeat_interleave(1 + n_inputs)
            gram, score = gram * torch.outer(is_free, is_free), score * is_free
        after = (numbers + _solved(gram, score)).unflatten(1, (k, -1)).transpose(0, 1)  # (K, D, 1 + U)
        each = zip((mean, slopes), (after[..., 0], after[..., 1:]), strict=True)
        return tuple(self._unless_frozen(old, new, is_shared=False) for old, new in each)

    def _equations(
        self, moments: Tensor, precision: Tensor, lags: Tensor, is_state: Tensor, n_inputs: int
    ) -> tuple[Tensor, Tensor]:
        """Return the matrix and right side of the normal equations for means and their slopes on inputs.

        Their shapes are ``(D, K (1 + U), K (1 + U))`` and ``(D, K (1 + U))``, for S tuples of p + 1 states.

        Args:
            moments: the sums that ``statistics`` returns, ``(S, D, W, W)``.
            precision: inverse variances by tuple, ``(S, D)``.
            lags: 1 and -phi_1, .., -phi_p, the weights of x_t, .., x_t-p in the innovation, ``(S, D, p + 1)``.
            is_state: 1 for the state at each lag, ``(S, p + 1, K)``.
            n_inputs: number of inputs, U.
        """
        width, n_unknowns = self.order + 2, is_state.shape[2] * (1 + n_inputs)
        gram = moments.new_zeros(self.size, n_unknowns, n_unknowns)
        cross = moments.new_zeros(self.size, n_unknowns)
        which = torch.tensor([0, *range(width, moments.shape[-1])], device=moments.device)  # the parts 1 and u of v
        eye = torch.eye(n_inputs, dtype=moments.dtype, device=moments.device)
        for rows in row_blocks(len(moments), self.size * n_unknowns * len(which), moments.device):
            weighted = precision[rows, :, None, None] * moments[rows]
            of_lags = torch.einsum("sdl,slk->sdlk", lags[rows], is_state[rows])
            ones = torch.nn.functional.pad(of_lags.sum(2)[..., None, None], (0, len(which) - 1))  # (S, D, K, 1, W')
            of_inputs = torch.einsum("sdlk,uv->sdkulv", of_lags, eye).flatten(4)
            design = torch.cat([ones, torch.nn.functional.pad(of_inputs, (1, 0))], 3).flatten(2, 3)
            explained = design @ weighted[..., which, :]  # (S, D, K (1 + U), W)
            gram += torch.einsum("sdiv,sdjv->dij", explained[..., which], design)
            cross += torch.einsum("sdix,sdx->di", explained[..., 1:width], lags[rows])
        return gram, cross

    def _log_variances(self, moments: Tensor, states: Tensor, before: Unknowns) -> Tensor:
        mean, slopes, coefficients, log_variance = before
        k, newest = len(mean), states[:, 0]
        lags = torch.cat([torch.ones_like(mean).unsqueeze(1), -coefficients], 1)[newest].mT  # (S, D, p + 1)
        intercept = (lags * mean[states].mT).sum(-1, keepdim=True)
        of_inputs = (lags.unsqueeze(-1) * slopes[states].transpose(1, 2)).flatten(2)
        residual = torch.cat([-intercept, lags, -of_inputs], -1).unsqueeze(-1)  # (S, D, W, 1)
        squares = (residual.mT @ moments @ residual)[..., 0, 0].unflatten(0, (k, -1)).sum(1)  # (K, D)
        counts = moments[..., 0, 0].unflatten(0, (k, -1)).sum(1)
        if not self.switching_variance:
            squares, counts = squares.sum(0, keepdim=True), counts.sum(0, keepdim=True)
        is_visited = counts > NEGLIGIBLE
        variance = (squares / torch.where(is_visited, counts, 1.0)).clamp(min=self.observation.min_covariance)
        return torch.where(is_visited, variance.log(), log_variance[: len(variance)]).expand_as(log_variance)

    def floor_hits(self, table: Tensor) -> Tensor:
        return gaussian.at_floor(self.unpack(table)[2], self.size, "diag", self.observation.min_covariance)

    def on_floor(self, table: Tensor, factor: float) -> Tensor:
        """Return ``table`` with variances at the lower bound or below set to ``factor`` times the lower bound."""
        mean, coefficients, *rest = self.unpack(table)
        log_variance, first_mean, first = rest
        floor = self.observation.min_covariance
        moved = [gaussian.on_floor(each, self.size, "diag", floor, factor) for each in (log_variance, first)]
        return self.pack(mean, coefficients, moved[0], first_mean, moved[1])

    def check_table(self, table: Tensor) -> None:
        """Raise ``ValueError`` if a table ``(K, P)``, read from a file, has numbers that no fit can produce."""
        if table.shape[1] != self.n_columns:
            raise ValueError(f"a state has {table.shape[1]} numbers in the file; it should have {self.n_columns}")
        if not bool(table.isfinite().all()):
            raise ValueError("means, coefficients and variances of states should be finite")
        _, coefficients, log_variance, *first = self.unpack(table)
        shared = [*first, *([] if self.switching_ar else [coefficients])]
        shared += [] if self.switching_variance else [log_variance]
        if any(not torch.equal(each, each[:1].expand_as(each)) for each in shared):
            raise ValueError("the file has different numbers by state for parameters that all states should share")

    # -- the start -----------------------------------------------------------------------------------------

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        """Return a first guess of the state of each frame, ``(N,)`` integers.

        It comes from k-means, or in half of the starts from the nearest of K frames that are drawn at random, so that
        starts differ.

        Args:
            x: encoded frames, ``(N, D)``.
            n_states: number of states, K.
            generator: random generator.
        """
        if torch.rand((), generator=generator) >= DRAWN_STARTS:
            return super().labels(x, n_states, generator)
        drawn = torch.randperm(len(x), generator=generator)[:n_states].to(x.device)
        return torch.cdist(x.double(), x[drawn].double()).argmin(1)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        """Return the table ``(K, P)`` from which EM starts, given a guess of the state of each frame.

        It has the means of the frames of each state, coefficients of zero, and the variance that remains. The Gaussian
        of the first p steps is estimated here, from those steps and two more that have the overall mean and variance;
        EM does not change it.

        Args:
            x: encoded frames, ``(N, D)``.
            past: the p frames before each frame, ``(N, p, D)``; NaN before the start of a sequence.
            labels: guessed state of each frame, ``(N,)``.
            n_states: number of states, K.
            generator: not read.
        """
        assert past is not None, "an autoregression is always given its past"
        x = x.double()
        overall, variance = x.mean(0), x.var(0, correction=0)
        weights = torch.nn.functional.one_hot(labels, n_states).double()
        mean = (weights.T @ x + 2 * overall) / (weights.sum(0)[:, None] + 2)
        within = (x - mean[labels]).square().mean(0)
        early = x[torch.isnan(past).flatten(1).any(1)]
        first_mean = (early.sum(0) + 2 * overall) / (len(early) + 2)
        first = ((early - first_mean).square().sum(0) + 2 * variance) / (len(early) + 2)
        floor = self.observation.min_covariance
        logs = (each.clamp(min=floor).log().expand(n_states, -1) for each in (within, first))
        log_within, log_first = logs
        return self.pack(
            mean,
            mean.new_zeros(n_states, self.order, self.size),
            log_within,
            first_mean.expand(n_states, -1),
            log_first,
        )

    # -- for users -----------------------------------------------------------------------------------------

    def n_parameters(self, n_states: int) -> int:
        n_shared = 1 if self.is_frozen is None or not bool(self.is_frozen.any()) else 0
        n_coefficients = self.order * (n_states if self.switching_ar else n_shared)
        n_variances = n_states if self.switching_variance else n_shared
        return self.size * (n_states + n_coefficients + n_variances + 2 * n_shared)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        units = (torch.as_tensor(each, dtype=torch.float64) for each in (shift, scale))
        return {f"{name}_": values.numpy() for name, values in self.raw(table.cpu(), *units).items()}

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> dict[str, Tensor]:
        """Return the parameters in raw units by name, such as ``means``, differentiable in the table.

        Parameters that all states share have no axis of states.

        Args:
            table: parameters of the states in encoded units, ``(K, P)``.
            shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
            scale: see ``shift``, ``(D,)``.
        """
        mean, coefficients, log_variance, first_mean, first_log_variance = self.unpack(table)
        floor = self.observation.min_covariance
        variances = log_variance.exp().clamp(min=floor) * scale**2
        return {
            "means": mean * scale + shift,
            "autoregression": coefficients if self.switching_ar else coefficients[0],
            "variances": variances if self.switching_variance else variances[0],
            "first_means": first_mean[0] * scale + shift,
            "first_variances": first_log_variance[0].exp().clamp(min=floor) * scale**2,
        }

    def tie(self, table: Tensor) -> Tensor:
        mean, coefficients, log_variance, *first = self.unpack(table)
        if not self.switching_ar:
            coefficients = coefficients[:1].expand_as(coefficients)
        if not self.switching_variance:
            log_variance = log_variance[:1].expand_as(log_variance)
        return self.pack(mean, coefficients, log_variance, *(each[:1].expand_as(each) for each in first))

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        """Return the means, coefficients and standard deviations of the states, ``(K,)`` each, by column name.

        A column name is such as ``"mean_pulse"`` for the feature ``pulse``.

        Args:
            table: parameters of the states in encoded units, ``(K, P)``.
            shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
            scale: see ``shift``, ``(D,)``.
            names: names of the features.
        """
        raw, k = self.raw_parameters(table, shift, scale), len(table)
        variances = np.broadcast_to(raw["variances_"], (k, self.size))
        coefficients = np.broadcast_to(raw["autoregression_"], (k, self.order, self.size))
        lags = [(f"ar{lag}", coefficients[:, lag - 1]) for lag in range(1, self.order + 1)]
        each = [("mean", raw["means_"]), *lags, ("sd", np.sqrt(variances))]
        return {column: values[:, d] for name, values in each for d, column in enumerate(columns_of(name, names))}


@regressed_columns.register(DeviationEmission)
class _Means(RegressedColumns):
    """The columns of a switching autoregression's table that may depend on inputs: the means of the states."""

    has_units = True

    def __init__(self, emission: DeviationEmission) -> None:
        self.size = emission.size

    @property
    def location(self) -> list[slice]:
        return [slice(0, self.size)]


def _solved(gram: Tensor, cross: Tensor) -> Tensor:
    """Return the least-squares solution x of ``gram x = cross`` that has the smallest norm, ``(..., n)``.

    ``gram (..., n, n)`` is symmetric; ``cross`` is ``(..., n)``.
    """
    solution: Tensor = (torch.linalg.pinv(gram, hermitian=True) @ cross.unsqueeze(-1)).squeeze(-1)
    return solution


class DeviationEmitted(Emitted):
    """Description of a switching autoregression's parameters, which says which of them have standard errors.

    The Gaussian of the first steps does not count as estimated.

    Args:
        emission: the emission of the autoregression.
        names: names of the features.
        least: smallest probability that does not count as being on the boundary.
    """

    def __init__(self, emission: DeviationEmission, names: list[Any], least: float) -> None:
        super().__init__(emission.observation, emission.size, names, least)
        self.emission = emission

    def _is_on_floor(self, table: Tensor) -> Tensor:
        log_variance, floor = self.emission.unpack(table)[2], self.observation.min_covariance
        columns = [gaussian.at_floor(log_variance[:, d : d + 1], 1, "diag", floor) for d in range(self.size)]
        return torch.stack(columns, 1)

    def is_free(self, table: Tensor) -> Tensor:
        mean, coefficients, _, *first = self.emission.unpack(table)
        of_coefficients, of_variance = torch.ones_like(coefficients), (~self._is_on_floor(table)).to(table)
        if not self.emission.switching_ar:
            of_coefficients[0 if self._freezes_shared else 1 :] = 0.0
        if not self.emission.switching_variance:
            of_variance[0 if self._freezes_shared else 1 :] = 0.0
        shared = (torch.zeros_like(each) for each in first)
        return self.emission.pack(torch.ones_like(mean), of_coefficients, of_variance, *shared) > 0

    def lengths(self, table: Tensor) -> Tensor:
        mean, coefficients, log_variance, *first = self.emission.unpack(table)
        ones = (torch.ones_like(each) for each in (log_variance, *first))
        deviations = log_variance.exp().clamp(min=self.observation.min_covariance).sqrt()
        return self.emission.pack(deviations.expand_as(mean), deviations.unsqueeze(1).expand_as(coefficients), *ones)

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        return self.emission.raw(table, shift, scale)

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        floor, features = self._is_on_floor(table), range(self.size)
        for i, d in product(range(len(table)), features):
            yield Estimate("means", (i, d), i, self.names[d], "identity")
        for state, lag, d in product(
            self._states(table, self.emission.switching_ar), range(self.emission.order), features
        ):
            of_lag = (lag, d) if state is None else (state, lag, d)
            yield Estimate("autoregression", of_lag, state, (self.names[d], lag + 1), "identity")
        for state, d in product(self._states(table, self.emission.switching_variance), features):
            index = (d,) if state is None else (state, d)
            note = ON_FLOOR if floor[state or 0, d] else ""
            yield Estimate("variances", index, state, self.names[d], "log", note)

    @property
    def _freezes_shared(self) -> bool:
        return self.emission.is_frozen is not None and bool(self.emission.is_frozen.any())

    def _states(self, table: Tensor, switches: bool) -> Sequence[int | None]:
        if not switches:
            return [] if self._freezes_shared else [None]
        return range(len(table))

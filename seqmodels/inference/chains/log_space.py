"""Forward-backward in logarithms, ``log alpha_t(j) = logsumexp_i(log alpha_t-1(i) + log a_ij) + log b_t(j)``.

It never underflows. Densities are taken relative to the largest of their frame: beside a log-density of -1e20, that of
a frame far from every state, the logarithms of the predictions would be lost to rounding. ``LogProduct`` is one step on
many sequences, as fast as a matrix product where nothing is tiny.
The passes take whole sequences, uncut. Some frames at a time the forward pass is tried in scaled numbers, and kept
where every product of them was far from underflow; then it is exact, and as fast as scaling is. Of few sequences of
many steps it is a compiled loop, where numba is installed (``compiled_log_space``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from seqmodels.inference.chains import time_varying
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.segments import loops_are_compiled
from seqmodels.inference.chains.trellis import Filtered, Posterior, Trellis

LEAST_EXACT = 1e-285  # of a sum over states of scaled products: below, what underflows in float64 could matter
TERMS_AT_ONCE = 1 << 22  # terms of sums of exponentials held at once
SCALED_FRAMES = 64  # times that are tried in scaled numbers at once
FAR_FROM_UNDERFLOW = 1e-250  # from the smallest float64: beside more, what underflows is below rounding
MOST_PRODUCTS_COMPILED = 1 << 17  # multiplications of a time: of more, tensor operations take no longer


@dataclass(frozen=True, eq=False)
class LogProduct:
    """``log(exp(rows) @ matrix)``: one step of a chain on log-probabilities, exact however far apart they are.

    Scaled by the largest entry of its row it is a matrix product. An entry of the product that is not tiny holds all
    that matters: what underflowed is less than its rounding. The others are computed again as sums of exponentials of
    their own scale, unless they are truly zero.

    Attributes:
        matrix: (K, K), or (n, K, K) with one for each row; float64, no entry negative.
    """

    matrix: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """``(n, K)`` logarithms -> ``(n, K)``; -inf where every term is zero."""
        peak = rows.amax(-1, keepdim=True)
        shift = torch.where(peak == -torch.inf, 0.0, peak)
        scaled = (rows - shift).exp_()
        if self.matrix.dim() == 2:
            sums = scaled @ self.matrix
        else:
            sums = torch.bmm(scaled.unsqueeze(1), self.matrix).squeeze(1)
        product = sums.log().add_(shift)
        if self._is_never_tiny:
            return product
        tiny = sums <= self.least_exact
        if tiny.any():
            tiny &= self._is_positive(rows)
            entries = tiny.nonzero()
            if len(entries):
                product[tiny] = self._exact(rows, entries)
        return product

    @property
    def least_exact(self) -> float:
        """What a sum over states in scaled numbers must exceed to be exact."""
        return LEAST_EXACT * self.matrix.shape[-1]

    @cached_property
    def _is_never_tiny(self) -> bool:
        """Whether the largest entry of a row adds enough to every state."""
        return self.matrix.dim() == 2 and bool(self.matrix.amin() > self.least_exact)

    @cached_property
    def _positive(self) -> Tensor:
        """Where the matrix is positive, as float64."""
        return (self.matrix > 0).double()

    def _is_positive(self, rows: Tensor) -> Tensor:
        """``(n, K)`` bool: where some term of the product is more than zero."""
        positive = (rows > -torch.inf).double()
        if self.matrix.dim() == 2:
            return positive @ self._positive > 0
        return torch.bmm(positive.unsqueeze(1), self._positive).squeeze(1) > 0

    def _exact(self, rows: Tensor, entries: Tensor) -> Tensor:
        """``(m,)`` the ``entries (m, 2)`` of the product, each a sum over its predecessors."""
        n_terms = self.matrix.shape[-1] if self.matrix.dim() == 3 else self._predecessors[0].shape[1]
        parts = []
        for n, j in (each.unbind(1) for each in entries.split(max(1, TERMS_AT_ONCE // n_terms))):
            if self.matrix.dim() == 3:
                terms = rows[n] + self.matrix[n, :, j].log()
            else:
                before, log_transition = self._predecessors
                terms = rows[n[:, None], before[j]] + log_transition[j]
            parts.append(torch.logsumexp(terms, -1))
        return torch.cat(parts)

    @cached_property
    def _predecessors(self) -> tuple[Tensor, Tensor]:
        """``(K, m)`` the states that lead to each, and the log-probabilities that they do, -inf for fill."""
        into = self.matrix.T
        most = max(1, int((into > 0).sum(1).max()))
        values, before = into.topk(most, dim=1)
        return before, values.log()


def forward_pass(trellis: Trellis) -> Filtered:
    """The forward pass; an impossible frame and all after it have step -inf, and the sequence ends with -inf."""
    log_alpha, steps = log_alpha_and_steps(trellis)
    last = log_alpha[trellis.segments.last]
    return Filtered(alpha=log_alpha.exp(), steps=steps, ends=torch.logsumexp(last + trellis.final.log(), 1))


def forward_backward_pass(trellis: Trellis) -> Posterior:
    """Forward-backward; sequences of probability zero have log_prob -inf, gamma of zeros and no part in the sums."""
    if trellis.log_transitions is not None:
        return _of_varying_transitions(trellis, trellis.log_transitions)
    packing, log_a = trellis.packing, trellis.transition.log()
    log_b, peak = relative_to_largest(trellis.densities.log().double())
    log_alpha, log_scale = _log_alpha_and_scale(trellis, log_b)
    steps = log_scale + peak[:, 0]
    ends = torch.logsumexp(log_alpha[packing.last] + trellis.final.log(), 1)
    log_end, back = trellis.ends(torch.float64).log(), LogProduct(trellis.transition.T.contiguous())
    gamma = log_alpha.new_zeros(log_alpha.shape)
    xi = torch.zeros_like(trellis.transition)
    ahead = log_a.new_empty(0, len(log_a))  # log of b_t+1 beta_t+1 / c_t+1, for the sequences that go on
    for t in reversed(range(len(packing.blocks))):
        low, high = packing.blocks[t]
        log_alpha_t = log_alpha[low:high]
        n = len(ahead)
        log_beta = torch.cat([back(ahead), log_end[n : high - low]])
        norm = finite(torch.logsumexp(log_alpha_t + log_beta, 1, keepdim=True))
        gamma[low:high] = (log_alpha_t + log_beta - norm).exp()
        weights = None if trellis.weights is None else trellis.weights[packing.order[:n]]
        xi += _transitions(log_alpha_t[:n], log_a, ahead, weights)
        ahead = log_b[low:high] + log_beta - norm - finite(log_scale[low:high, None])
    log_prob = packing.totals(steps) + ends
    sequences = torch.arange(packing.n_sequences, device=gamma.device)
    first, last = (trellis.weighted(gamma[rows], sequences).sum(0) for rows in (packing.rank, packing.last))
    return Posterior(log_prob, gamma, xi, first, last)


def _of_varying_transitions(trellis: Trellis, log_a: Tensor) -> Posterior:
    """``forward_backward_pass`` where transitions differ from step to step; ``log_a (N, K, K)``."""
    packing = trellis.packing
    log_b, peak = relative_to_largest(trellis.densities.log().double())
    log_alpha, log_scale = _log_alpha_and_scale(trellis, log_b)
    ends = torch.logsumexp(log_alpha[packing.last] + trellis.final.log(), 1)
    gamma, transitions = time_varying.backward(
        packing, log_a, log_b, log_alpha, log_scale, trellis.ends(torch.float64).log()
    )
    sequences = torch.arange(packing.n_sequences, device=gamma.device)
    first, last = (trellis.weighted(gamma[rows], sequences).sum(0) for rows in (packing.rank, packing.last))
    log_prob = packing.totals(log_scale + peak[:, 0]) + ends
    weights = torch.ones_like(log_prob) if trellis.weights is None else trellis.weights
    xi = torch.einsum("n,nij->ij", weights[packing.sequence], transitions)
    return Posterior(log_prob, gamma, xi, first, last, transitions)


def log_alpha_and_steps(trellis: Trellis, log_starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The forward pass, however small its probabilities.

    Args:
        log_starts: (w, K) by rank, log p(first state), in place of the trellis's ``initial``.

    Returns:
        (N, K) float64 log p(z_t | x_<=t), and (N,) float64 log p(x_t | x_<t).
    """
    log_b, peak = relative_to_largest(trellis.densities.log().double())
    log_alpha, log_scale = _log_alpha_and_scale(trellis, log_b, log_starts)
    return log_alpha, log_scale + peak[:, 0]


def relative_to_largest(log_b: Tensor) -> tuple[Tensor, Tensor]:
    """``(..., K)`` less the largest of each frame, and that, ``(..., 1)``; frames where all are -inf stay so."""
    peak = finite(log_b.amax(-1, keepdim=True))
    return log_b - peak, peak


def _log_alpha_and_scale(trellis: Trellis, log_b: Tensor, log_starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """As ``log_alpha_and_steps``, the steps less the largest log-density of their frame; ``log_b`` is so too."""
    if trellis.log_transitions is not None:
        predicted = trellis.starts(torch.float64).log() if log_starts is None else log_starts
        return time_varying.forward(trellis.packing, trellis.log_transitions, log_b, predicted)
    advance = LogProduct(trellis.transition)
    log_alpha, log_scale = log_b.new_empty(log_b.shape), log_b.new_empty(len(log_b))
    predicted = trellis.starts(torch.float64).log() if log_starts is None else log_starts
    if _runs_compiled(trellis.packing, log_b):
        from seqmodels.inference.chains import compiled_log_space

        return compiled_log_space.forward(
            trellis.transition, log_b, trellis.packing.offsets, predicted, advance.least_exact
        )
    blocks = trellis.packing.blocks
    for first in range(0, len(blocks), SCALED_FRAMES):
        window = blocks[first : first + SCALED_FRAMES]
        rows = slice(window[0][0], window[-1][1])
        scaled = _forward_scaled(trellis.transition, predicted, log_b[rows], window)
        if scaled is not None:
            log_alpha[rows], log_scale[rows] = scaled
            predicted = advance(log_alpha[window[-1][0] : window[-1][1]])
            continue
        for low, high in window:
            joint = predicted[: high - low] + log_b[low:high]
            log_scale[low:high] = torch.logsumexp(joint, 1)
            log_alpha[low:high] = joint - finite(log_scale[low:high, None])
            predicted = advance(log_alpha[low:high])
    return log_alpha, log_scale


def _runs_compiled(packing: Packing, log_b: Tensor) -> bool:
    n_products = log_b.shape[0] * log_b.shape[1] ** 2
    return steps_are_compiled(n_products / len(packing.batch_sizes), log_b.device)


def steps_are_compiled(n_products: float, device: torch.device) -> bool:
    """Whether a step of so many multiplications is faster as a compiled loop than by tensor operations."""
    return n_products <= MOST_PRODUCTS_COMPILED and loops_are_compiled(device)


def _forward_scaled(
    transition: Tensor, predicted: Tensor, log_b: Tensor, blocks: list[tuple[int, int]]
) -> tuple[Tensor, Tensor] | None:
    """Log alpha (m, K) and steps (m,) of some times in a row by scaling; None if a product came near to underflow.

    Args:
        predicted: (n, K) log of the predictions for the first of the times.
        log_b: (m, K) of their rows, the largest of each 0.
        blocks: the rows of each time.
    """
    offset, n_first = blocks[0][0], blocks[0][1] - blocks[0][0]
    predicted = predicted[:n_first]
    top = predicted.amax(1, keepdim=True)
    message = (predicted - top).exp_()
    if not bool((message > FAR_FROM_UNDERFLOW).all()):  # False for NaN too
        return None
    b, alpha = log_b.exp(), log_b.new_empty(log_b.shape)
    scale, buffer = log_b.new_empty(len(log_b), 1), torch.empty_like(message)
    for low, high in blocks:
        n, rows = high - low, slice(low - offset, high - offset)
        torch.mul(message[:n], b[rows], out=alpha[rows])
        torch.sum(alpha[rows], 1, keepdim=True, out=scale[rows])
        message = torch.mm(alpha[rows].div_(scale[rows]), transition, out=buffer[:n])
    products = torch.where(log_b == -torch.inf, 1.0, alpha) * scale
    if not bool((products > FAR_FROM_UNDERFLOW).all()):
        return None
    steps = scale.log()[:, 0]
    steps[:n_first] += top[:, 0]
    return alpha.log_(), steps


def _transitions(log_alpha: Tensor, log_a: Tensor, ahead: Tensor, weights: Tensor | None) -> Tensor:
    """(K, K) expected transitions between one frame and the next, summed over sequences by ``weights (n,)``."""
    size = max(1, TERMS_AT_ONCE // log_a.numel())
    total, weights = log_a.new_zeros(log_a.shape), log_a.new_ones(len(ahead)) if weights is None else weights
    for log_alpha_t, ahead_t, weight in zip(log_alpha.split(size), ahead.split(size), weights.split(size), strict=True):
        terms = (log_alpha_t[:, :, None] + log_a + ahead_t[:, None, :]).exp()
        total += torch.einsum("n,nij->ij", weight, terms)
    return total


def finite(values: Tensor) -> Tensor:
    """Zero in place of -inf, so that an impossible row stays -inf and does not become NaN."""
    return torch.where(values == -torch.inf, 0.0, values)

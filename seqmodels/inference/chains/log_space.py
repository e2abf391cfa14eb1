"""Forward-backward in logarithms, ``log alpha_t(j) = logsumexp_i(log alpha_t-1(i) + log a_ij) + log b_t(j)``.

It never underflows. Densities are taken relative to the largest of their frame, because beside a log-density of -1e20,
for a frame far from every state, the logarithms of the predictions would be lost to rounding. ``LogProduct`` computes
one step on many sequences, as fast as a matrix product if no entry is tiny.

The passes take whole, uncut sequences. The forward pass is first tried in scaled numbers, some frames at a time, and
the result is kept where every product was far from underflow; it is then exact, and as fast as scaling. For few
sequences of many steps the pass is a compiled loop, if numba is installed (``compiled_log_space``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from seqmodels.inference.chains import lagged_states
from seqmodels.inference.chains.log_weights import finite, relative_to_largest
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import loops_are_compiled
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.trellis import Filtered, Posterior, Trellis

LEAST_EXACT = 1e-285  # sums of scaled products below this may have lost something that matters to underflow
TERMS_AT_ONCE = 1 << 22  # terms of sums of exponentials held at once
SCALED_FRAMES = 64  # number of times that are tried together in scaled numbers
FAR_FROM_UNDERFLOW = 1e-250  # beside numbers above this, whatever underflows in float64 is less than rounding
MOST_PRODUCTS_COMPILED = 1 << 17  # multiplications at one time above which tensors are as fast


@dataclass(frozen=True, eq=False)
class LogProduct:
    """A matrix product on log-probabilities, ``log(exp(rows) @ matrix)``, that is exact at any magnitude.

    It is one step of a chain, if the matrix has the transition probabilities. Each row is scaled by its largest entry,
    and multiplied by the matrix. Entries of the product that are not tiny are exact, because what underflowed is less
    than their rounding. The others are computed again as sums of exponentials at their own scale, unless they are truly
    zero.

    Attributes:
        matrix: matrix without negative entries, ``(K, K)`` float64, or ``(n, K, K)`` with one for each row.
    """

    matrix: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Return ``log(exp(rows) @ matrix)``, ``(n, K)``, for log-probabilities ``rows (n, K)``.

        Entries are -inf where every term is zero.
        """
        shift = finite(rows.amax(-1, keepdim=True))
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
        """The smallest sum over states that is exact when it is computed from scaled numbers."""
        return LEAST_EXACT * self.matrix.shape[-1]

    @cached_property
    def _is_never_tiny(self) -> bool:
        """True if every entry of the matrix is so large that scaled products are always exact."""
        return self.matrix.dim() == 2 and bool(self.matrix.amin() > self.least_exact)

    @cached_property
    def _positive(self) -> Tensor:
        """A matrix with 1 where ``matrix`` is positive and 0 elsewhere, float64."""
        return (self.matrix > 0).double()

    def _is_positive(self, rows: Tensor) -> Tensor:
        """Return True where some term of the product is more than zero, ``(n, K)`` bool."""
        positive = (rows > -torch.inf).double()
        if self.matrix.dim() == 2:
            return positive @ self._positive > 0
        return torch.bmm(positive.unsqueeze(1), self._positive).squeeze(1) > 0

    def _exact(self, rows: Tensor, entries: Tensor) -> Tensor:
        """Return m entries of the product, ``(m,)``, each summed in logarithms over the states that lead to it.

        ``entries (m, 2)`` are the row and the state of each, and ``rows (n, K)`` the log-probabilities.
        """
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
        """The states that lead to each state, ``(K, m)``, and the log-probabilities of their transitions, ``(K, m)``.

        Both are padded to the same m; padding has log-probability -inf.
        """
        into = self.matrix.T
        most = max(1, int((into > 0).sum(1).max()))
        values, before = into.topk(most, dim=1)
        return before, values.log()


def forward_pass(trellis: Trellis) -> Filtered:
    """Run the forward pass over a trellis (a problem of inference) in logarithms, which never underflows.

    Sequences must not be cut into segments. From an impossible frame on, ``steps`` are -inf, and so is the end of the
    sequence.
    """
    log_alpha, steps = log_alpha_and_steps(trellis)
    last = log_alpha[trellis.segments.last]
    return Filtered(alpha=log_alpha.exp(), steps=steps, ends=torch.logsumexp(last + trellis.final.log(), 1))


def forward_backward_pass(trellis: Trellis) -> Posterior:
    """Run forward-backward over a trellis (a problem of inference) in logarithms, which never underflows.

    Sequences must not be cut into segments. A sequence of probability zero has ``log_prob`` -inf, gamma of zeros and no
    part in the sums.
    """
    packing = trellis.packing
    log_b, peak = relative_to_largest(trellis.densities.log().double())
    log_alpha, log_scale = _log_alpha_and_scale(trellis, log_b)
    run = _backward if trellis.log_transitions is None else _backward_of_varying_transitions
    gamma, xi, transitions = run(trellis, log_b, log_alpha, log_scale)
    ends = torch.logsumexp(log_alpha[packing.last] + trellis.final.log(), 1)
    log_prob = packing.totals(log_scale + peak[:, 0]) + ends
    sequences = torch.arange(packing.n_sequences, device=gamma.device)
    first, last = (trellis.weighted(gamma[rows], sequences).sum(0) for rows in (packing.rank, packing.last))
    return Posterior(log_prob, gamma, xi, first, last, transitions)


def _backward(trellis: Trellis, log_b: Tensor, log_alpha: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor, None]:
    """Return p(z_t | x), ``(N, K)``, the expected transitions, ``(K, K)``, and None.

    Args:
        trellis: problem of inference.
        log_b: log-densities less the largest of each frame, ``(N, K)``.
        log_alpha, log_scale: results of ``_log_alpha_and_scale``.
    """
    packing, log_a = trellis.packing, trellis.transition.log()
    log_end, back = trellis.ends(torch.float64).log(), LogProduct(trellis.transition.T.contiguous())
    gamma = log_alpha.new_zeros(log_alpha.shape)
    xi = torch.zeros_like(trellis.transition)
    ahead = log_a.new_empty(0, len(log_a))  # log of b_t+1 beta_t+1 / c_t+1, for the sequences that go on
    for low, high in reversed(packing.blocks):
        log_alpha_t = log_alpha[low:high]
        n = len(ahead)
        log_beta = torch.cat([back(ahead), log_end[n : high - low]])
        norm = finite(torch.logsumexp(log_alpha_t + log_beta, 1, keepdim=True))
        gamma[low:high] = (log_alpha_t + log_beta - norm).exp()
        weights = None if trellis.weights is None else trellis.weights[packing.order[:n]]
        xi += _transitions(log_alpha_t[:n], log_a, ahead, weights)
        ahead = log_b[low:high] + log_beta - norm - finite(log_scale[low:high, None])
    return gamma, xi, None


def _backward_of_varying_transitions(
    trellis: Trellis, log_b: Tensor, log_alpha: Tensor, log_scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return p(z_t | x), ``(N, K)``, the expected transitions, ``(K, K)``, and those into each row, ``(N, K, K)``.

    Args:
        trellis: problem of inference whose transitions differ from step to step.
        log_b: log-densities less the largest of each frame, ``(N, K)``.
        log_alpha, log_scale: results of ``_log_alpha_and_scale``.
    """
    assert trellis.log_transitions is not None, "they differ from step to step"
    packing, log_end = trellis.packing, trellis.ends(torch.float64).log()
    ran = (log_alpha.unsqueeze(2), log_scale, log_alpha)
    gamma, transitions = lagged_states.backward(packing, trellis.log_transitions, log_b.unsqueeze(2), log_end, *ran)
    weights = log_scale.new_ones(packing.n_sequences) if trellis.weights is None else trellis.weights
    return gamma[:, :, 0], torch.einsum("n,nij->ij", weights[packing.sequence], transitions), transitions


def log_alpha_and_steps(trellis: Trellis, log_starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Run the forward pass in logarithms, which never underflows.

    Args:
        trellis: the problem of inference, of sequences that are not cut into segments.
        log_starts: log p(first state), ``(w, K)`` by rank (longest first); None for the ``initial`` of the trellis.

    Returns:
        log p(z_t | x_<=t), ``(N, K)`` float64, and log p(x_t | x_<t), ``(N,)`` float64.
    """
    log_b, peak = relative_to_largest(trellis.densities.log().double())
    log_alpha, log_scale = _log_alpha_and_scale(trellis, log_b, log_starts)
    return log_alpha, log_scale + peak[:, 0]


def log_predicted(trellis: Trellis) -> Tensor:
    """Return log p(z_t, there is a step t | x_<t), the log-probability of each state before its frame is seen.

    The result is ``(N, K)`` float64, in the packed rows of the trellis, whose sequences must not be cut into segments.
    Rows are -inf after an impossible frame.
    """
    log_alpha, _ = log_alpha_and_steps(trellis)
    before, after = trellis.segments.rows_before
    predicted = torch.empty_like(log_alpha)
    predicted[: trellis.packing.n_sequences] = trellis.starts(torch.float64).log()
    if trellis.log_transitions is None:
        predicted[after] = LogProduct(trellis.transition)(log_alpha[before])
    else:
        predicted[after] = torch.logsumexp(log_alpha[before].unsqueeze(2) + trellis.log_transitions[after], 1)
    return predicted


def log_given_others(trellis: Trellis) -> Tensor:
    """Return log p(z_t | all frames but x_t) up to a constant of each row, ``(N, K)`` float64, in packed rows.

    It is ``log p(z_t | x_<t) + log p(x_>t | z_t)``. The second term is what ``log_predicted`` computes, up to a
    constant, for the frames in reverse order and transposed transitions, with the probabilities of the end as those of
    the first state. The sequences must not be cut into segments.
    """
    packing, log_a = trellis.packing, trellis.log_transitions
    lengths = packing.lengths[packing.sequence]
    rows = packing.rows(packing.sequence, lengths - 1 - packing.time)  # which is its own inverse
    if log_a is not None:  # the step into a reversed frame is the one out of the frame
        log_a = log_a[packing.rows(packing.sequence, (lengths - packing.time).clamp(max=lengths - 1))].mT
    in_reverse = replace(
        trellis,
        initial=trellis.final,
        transition=trellis.transition.mT.contiguous(),
        final=trellis.initial,
        densities=trellis.densities.take(rows),
        scratch=Scratch(),
        log_transitions=log_a,
    )
    return log_predicted(trellis) + log_predicted(in_reverse)[rows]


def _log_alpha_and_scale(trellis: Trellis, log_b: Tensor, log_starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return log p(z_t | x_<=t), ``(N, K)``, and log p(x_t | x_<t) less the largest log-density of the frame, ``(N,)``.

    ``log_b (N, K)`` are log-densities less the largest of each frame. ``log_starts (w, K)``, by rank (longest first),
    are log-probabilities of first states; None for the ``initial`` of the trellis.
    """
    predicted = trellis.starts(torch.float64).log() if log_starts is None else log_starts
    if trellis.log_transitions is not None:
        log_a, packing = trellis.log_transitions, trellis.packing
        _, log_scale, log_alpha = lagged_states.forward(packing, log_a, log_b.unsqueeze(2), predicted)
        return log_alpha, log_scale
    advance = LogProduct(trellis.transition)
    log_alpha, log_scale = log_b.new_empty(log_b.shape), log_b.new_empty(len(log_b))
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
    """Return True if a step of ``n_products`` multiplications is faster as a compiled loop than with tensors."""
    return n_products <= MOST_PRODUCTS_COMPILED and loops_are_compiled(device)


def _forward_scaled(
    transition: Tensor, predicted: Tensor, log_b: Tensor, blocks: list[tuple[int, int]]
) -> tuple[Tensor, Tensor] | None:
    """Run the forward pass over some consecutive times in scaled numbers; return log alpha and steps, or None.

    The results are log p(z_t | x_<=t), ``(m, K)``, and log p(x_t | x_<t), ``(m,)``. None means that a product came near
    to underflow, so that logarithms must be used.

    Args:
        transition: transition probabilities, ``(K, K)``.
        predicted: log-probabilities predicted for the first of the times, ``(n, K)``.
        log_b: log-densities of the m rows of these times, ``(m, K)``, the largest of each 0.
        blocks: first row, and first row after, of each time.
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
    """Return the expected transitions from one frame to the next, ``(K, K)``, summed over n sequences.

    Args:
        log_alpha: log p(z_t | x_<=t) at the first of the frames, ``(n, K)``.
        log_a: log transition probabilities.
        ahead: log of b beta / c at the second frame, ``(n, K)``.
        weights: weight of each sequence, ``(n,)``; None means 1 for each.
    """
    size = max(1, TERMS_AT_ONCE // log_a.numel())
    total, weights = log_a.new_zeros(log_a.shape), log_a.new_ones(len(ahead)) if weights is None else weights
    for log_alpha_t, ahead_t, weight in zip(log_alpha.split(size), ahead.split(size), weights.split(size), strict=True):
        terms = (log_alpha_t[:, :, None] + log_a + ahead_t[:, None, :]).exp()
        total += torch.einsum("n,nij->ij", weight, terms)
    return total

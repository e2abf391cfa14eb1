"""Forward-backward in logarithms, ``log alpha_t(j) = logsumexp_i(log alpha_t-1(i) + log a_ij) + log b_t(j)``: never underflows.

Sequences must be whole. Some frames at a time the forward pass is tried in scaled numbers, and kept where every product of them was far
from underflow; then it is exact, and as fast as scaling is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.hmm.log_product import CHUNK, LogProduct
from seqmodels.hmm.trellis import Forward, Posterior, Trellis

TRIED = 64  # times that are tried in scaled numbers at once
FAR = 1e-250  # from the smallest float64: beside more, what underflows is below rounding


def forward(trellis: Trellis) -> Forward:
    """The forward pass; an impossible frame and all after it have step -inf, and the sequence ends with -inf."""
    log_alpha, steps = beliefs_and_steps(trellis)
    last = log_alpha[trellis.cutting.last]
    return Forward(steps, torch.logsumexp(last + trellis.final.log(), 1), log_alpha.exp())


def log_beliefs(trellis: Trellis) -> Tensor:
    """(N, K) float64 log p(z_t | x_<=t), however small."""
    return beliefs_and_steps(trellis)[0]


def onward(trellis: Trellis, log_start: Tensor) -> tuple[Tensor, Tensor]:
    """(N,) steps of one sequence that begins with p(its first state) ``exp(log_start)`` (1, K), and (1, K) log of its last belief."""
    log_alpha, steps = beliefs_and_steps(trellis, log_start)
    return steps, log_alpha[trellis.cutting.last]


def posterior(trellis: Trellis) -> Posterior:
    """The E-step; sequences of probability zero have log_prob -inf and are left out of gamma (zeros) and the sums."""
    packing, log_a, log_b = trellis.packing, trellis.transition.log(), trellis.densities.log().double()
    log_alpha, steps = beliefs_and_steps(trellis)
    ends = torch.logsumexp(log_alpha[packing.last] + trellis.final.log(), 1)
    log_end, back = trellis.ends(torch.float64).log(), LogProduct(trellis.transition.T.contiguous())
    gamma = torch.zeros_like(log_alpha)
    xi = torch.zeros_like(trellis.transition)
    ahead = log_a.new_empty(0, len(log_a))  # log of b_t+1 beta_t+1 / c_t+1, for the sequences that go on
    for t in reversed(range(len(packing.blocks))):
        low, high = packing.blocks[t]
        now = log_alpha[low:high]
        going = len(ahead)
        beta = torch.cat([back(ahead), log_end[going : high - low]])
        norm = _finite(torch.logsumexp(now + beta, 1, keepdim=True))
        gamma[low:high] = (now + beta - norm).exp()
        weights = None if trellis.weights is None else trellis.weights[packing.order[:going]]
        xi += _pairs(now[:going], log_a, ahead, weights)
        ahead = log_b[low:high] + beta - norm - _finite(steps[low:high, None])
    log_prob = packing.totals(steps) + ends
    everyone = torch.arange(packing.n_sequences, device=gamma.device)
    first, last = (trellis.weighted(gamma[rows], everyone).sum(0) for rows in (packing.rank, packing.last))
    return Posterior(log_prob, gamma, xi, first, last)


def beliefs_and_steps(trellis: Trellis, log_starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(N, K) log of the beliefs, and (N,) steps; ``log_starts`` (w, K), by rank, in place of the trellis's own."""
    advance, log_b = LogProduct(trellis.transition), trellis.densities.log().double()
    log_alpha, steps = torch.empty_like(log_b), log_b.new_empty(len(log_b))
    predicted = trellis.starts(torch.float64).log() if log_starts is None else log_starts
    blocks = trellis.packing.blocks
    for first in range(0, len(blocks), TRIED):
        part = blocks[first : first + TRIED]
        low, high = part[0][0], part[-1][1]
        if _scaled(trellis.transition, predicted, log_b[low:high], part, log_alpha[low:high], steps[low:high]):
            predicted = advance(log_alpha[part[-1][0] : high])
            continue
        for low, high in part:
            joint = predicted[: high - low] + log_b[low:high]
            steps[low:high] = torch.logsumexp(joint, 1)
            log_alpha[low:high] = joint - _finite(steps[low:high, None])
            predicted = advance(log_alpha[low:high])
    return log_alpha, steps


def _scaled(
    transition: Tensor,
    predicted: Tensor,
    log_b: Tensor,
    blocks: list[tuple[int, int]],
    log_alpha: Tensor,
    steps: Tensor,
) -> bool:
    """Fill ``log_alpha`` and ``steps`` of some times in a row by scaling; whether nothing came near to underflow, so that they are exact."""
    predicted = predicted[: blocks[0][1] - blocks[0][0]]
    top = predicted.amax(1, keepdim=True)
    message = (predicted - top).exp_()
    if not bool((message > FAR).all()):  # False for NaN too
        return False
    peak = log_b.amax(1, keepdim=True)
    b, joint = (log_b - peak).exp_(), torch.empty_like(log_b)
    totals = log_b.new_empty(len(log_b), 1)
    offset, room = blocks[0][0], torch.empty_like(message)
    for low, high in blocks:
        n, here = high - low, slice(low - offset, high - offset)
        torch.mul(message[:n], b[here], out=joint[here])
        torch.sum(joint[here], 1, keepdim=True, out=totals[here])
        message = torch.mm(joint[here].div_(totals[here]), transition, out=room[:n])
    possible = torch.where(log_b == -torch.inf, 1.0, joint)
    if not bool((possible * totals > FAR).all()):
        return False
    torch.log(joint, out=log_alpha)
    first = blocks[0][1] - offset
    steps.copy_((totals.log() + peak)[:, 0])
    steps[:first] += top[:, 0]
    return True


def _pairs(log_alpha: Tensor, log_a: Tensor, ahead: Tensor, weights: Tensor | None) -> Tensor:
    """(K, K) expected transitions between one frame and the next, summed over sequences by ``weights (n,)``."""
    size = max(1, CHUNK // log_a.numel())
    total, each = torch.zeros_like(log_a), log_a.new_ones(len(ahead)) if weights is None else weights
    for here, there, weight in zip(log_alpha.split(size), ahead.split(size), each.split(size), strict=True):
        total += torch.einsum("n,nij->ij", weight, (here[:, :, None] + log_a + there[:, None, :]).exp())
    return total


def _finite(values: Tensor) -> Tensor:
    """Zero in place of -inf, so that an impossible row stays -inf and does not become NaN."""
    return torch.where(values == -torch.inf, 0.0, values)

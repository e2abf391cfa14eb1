"""Scaled forward-backward, ``alpha_t = (alpha_t-1 A) ∘ b_t / c_t``, and which sequences it may be wrong for.

Every product that underflows, or that is flushed to zero before it can, is a path lost: what is computed is a lower
bound of ``p(x_1..x_t)``. Adding back at each step more than can have been lost gives an upper bound. Where the two
agree after every frame, nothing that mattered was lost; where they do not, the sequence has failed.

With a backward pass this is seen at once: a path that was lost was last lost at some frame, in a state with less than
the floor, and goes on from there as beta says. Where beta times the floor never matters, nothing was lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.inference import recursions
from seqmodels.hmm.inference.packing import Packing, any_of
from seqmodels.hmm.inference.recursions import LIMITS, ScaledChain, one_thread_if_small
from seqmodels.hmm.inference.scratch import Scratch
from seqmodels.hmm.inference.segments import MARGIN, TOLERANCE
from seqmodels.hmm.inference.trellis import Filtered, Posterior, Trellis

WIDER_MARGIN = 16  # times the usual margins, for a chain that is slow to forget
ROWS_AT_ONCE = 1 << 16  # rows looked at at once
ROWS_PER_SUM = {torch.float32: 1 << 11, torch.float64: 1 << 16}  # rows multiplied up at once: float32 sums stay short


@dataclass(frozen=True)
class ScaledForward:
    """A scaled forward pass over a trellis.

    Attributes:
        chain: what it ran on; ``chain.b`` (..., N, K) has a maximum of one a frame.
        alpha: (..., N, K) p(z_t | x_<=t).
        scale: (..., N) the factors c.
        steps: (..., N) float64, log p(x_t | x_<t) in nats.
        ends: (..., n) float64, log p(end | x) in nats.
        failed: (..., n) bool, sequences for which the result may be wrong.
    """

    chain: ScaledChain
    alpha: Tensor
    scale: Tensor
    steps: Tensor
    ends: Tensor
    failed: Tensor


def forward_pass(trellis: Trellis) -> tuple[Filtered, Tensor]:
    """The forward pass, and (n,) the sequences that it fails."""
    ran = forward(trellis)
    return Filtered(alpha=ran.alpha, steps=ran.steps, ends=ran.ends), ran.failed


def forward_backward_pass(trellis: Trellis) -> tuple[Posterior, Tensor]:
    """Forward-backward, and (..., n) the sequences that it fails, which are left out of the sums."""
    segments = trellis.segments
    ran = forward(trellis, bounded=False)
    gamma, ahead, failed = backward(trellis, ran)
    trellis.weighted(ahead, segments.sequence)
    xi = _expected_transitions(trellis, ran.alpha, ahead, failed)
    first = _sum_over_sequences(trellis, gamma[..., segments.first, :], failed)
    last = _sum_over_sequences(trellis, gamma[..., segments.last, :], failed)
    return Posterior(segments.totals(ran.steps) + ran.ends, gamma, xi, first, last), failed


def forward(trellis: Trellis, *, bounded: bool = True) -> ScaledForward:
    """The forward pass in the precision of the densities.

    ``bounded``: look, by an upper bound, for sequences that lost what mattered. Not where ``backward`` follows, which
    sees it by itself; nor for several chains.
    """
    dtype, segments, packing = trellis.densities.dtype, trellis.segments, trellis.packing
    b, peak = trellis.densities.scaled(trellis.scratch)
    torch.threshold_(b, LIMITS[dtype].flush, 0.0)
    chain, starts = ScaledChain(trellis.transition.to(dtype), b, packing), trellis.starts(dtype)
    before, after = segments.neighbours
    with one_thread_if_small(chain.transition, packing.batch_sizes[0]):
        if len(after):
            warm = recursions.warm_start(chain, segments.size, segments.margin)
            starts[..., after, :] = warm[..., before, :]
        alpha, scale = recursions.forward(chain, starts, trellis.scratch)
    end_mass = (alpha[..., segments.last, :] * trellis.final.to(dtype)).sum(-1)
    failed = ~torch.isfinite(end_mass)
    if len(after):
        predicted = alpha[..., packing.last[packing.order[before]], :] @ chain.transition
        assumed = starts[..., after, :]
        close = (predicted - assumed).abs() <= TOLERANCE[dtype] * torch.maximum(predicted, assumed)
        failed |= any_of(~close.all(-1), trellis.owner[after], segments.n_sequences)
    suspect = _suspects(trellis, alpha, scale) if bounded else failed[:0]
    if suspect.any():
        lower = _LowerBound(chain, starts, alpha, scale)
        failed |= segments.any_segment(_bounds_differ(trellis, suspect.nonzero()[:, 0], lower))
    steps = trellis.scratch.take("steps", tuple(scale.shape), torch.float64, scale.device)
    return ScaledForward(chain, alpha, scale, steps.copy_(scale).log_().add_(peak), end_mass.double().log(), failed)


def backward(trellis: Trellis, ran: ScaledForward) -> tuple[Tensor, Tensor, Tensor]:
    """The backward pass: ``gamma`` and ``ahead`` = b beta / c (..., N, K), and which sequences ``failed`` (..., n).

    Then ``xi_t(i, j) = alpha_t(i) a_ij ahead_t+1(j)``. ``ran.chain.b`` is used up: ``ahead`` is written over it. Where
    the forward pass holds, beta is bounded: a state whose future outweighs the floor would have parted the bounds.
    """
    segments, packing, dtype = trellis.segments, trellis.packing, ran.alpha.dtype
    chain, ends = ran.chain, trellis.ends(dtype)
    before, after = segments.neighbours
    if len(before):
        with one_thread_if_small(chain.transition, packing.batch_sizes[0]):
            ends[..., before, :] = recursions.warm_end(chain, ends, segments.margin)[..., after, :]
    last_alpha = ran.alpha[..., packing.last[packing.order], :]
    ends.div_((last_alpha * ends).sum(-1, keepdim=True))
    gamma, ahead, reach = trellis.scratch.like("gamma", ran.alpha), chain.b, None
    if not loss_is_negligible(trellis, ran.scale):
        reach = trellis.scratch.take("reach", ran.scale.shape, dtype, gamma.device)
    with one_thread_if_small(chain.transition, packing.batch_sizes[0]):
        messages, drifted = recursions.backward(chain, ran.alpha, ran.scale, ends, gamma, reach=reach)
    safe, n = _safe_mass(gamma.shape[-1], dtype), segments.n_sequences
    failed = ran.failed | any_of(drifted, trellis.owner, n)
    failed |= ~(ran.ends.exp() > safe)
    if reach is not None:
        failed |= segments.any(~(reach.mul_(safe) < ran.scale))
    if len(before):
        assumed, computed = (last_alpha[..., before, :] * m for m in (ends[..., before, :], messages[..., after, :]))
        difference = (assumed - computed / computed.sum(-1, keepdim=True)).abs().sum(-1)
        failed |= any_of(~(difference <= TOLERANCE[dtype]), trellis.owner[before], n)
    return gamma, ahead, failed


def _sum_over_sequences(trellis: Trellis, rows: Tensor, failed: Tensor) -> Tensor:
    """(..., K) float64: weighted sum of ``rows`` (..., n, K), one a sequence, without the ``failed`` (set to 0)."""
    rows.masked_fill_(failed.unsqueeze(-1), 0.0)
    sequences = torch.arange(rows.shape[-2], device=rows.device)
    return trellis.weighted(rows, sequences).sum(-2, dtype=torch.float64)


def _expected_transitions(trellis: Trellis, alpha: Tensor, ahead: Tensor, failed: Tensor) -> Tensor:
    """(..., K, K) float64 expected transitions of sequences that have not ``failed`` (..., n), in place (others:
    zeros).

    The frames before a run of rows are a run of rows too: one product a run, nothing copied.
    """
    segments, packing = trellis.segments, trellis.packing
    if failed.any():
        left_out = failed[..., segments.sequence].unsqueeze(-1)
        ahead.masked_fill_(left_out, 0.0)
        alpha.masked_fill_(left_out, 0.0)
    total = torch.zeros_like(trellis.transition)
    size = ROWS_AT_ONCE if alpha.is_cuda else ROWS_PER_SUM[alpha.dtype]  # a GPU adds up in parts by itself
    part, summed = torch.zeros_like(total, dtype=alpha.dtype), 0
    add = part.addmm_ if part.dim() == 2 else part.baddbmm_
    for shift, low, high in packing.spans:
        for start in range(low, high, size):
            stop = min(start + size, high)
            add(alpha[..., start - shift : stop - shift, :].mT, ahead[..., start:stop, :])
            summed += stop - start
            if summed >= size:
                total += part
                part.zero_()
                summed = 0
    total += part
    before, after = segments.neighbours
    ended = alpha[..., packing.last[packing.order[before]], :]
    total += ended.mT @ ahead[..., after, :]  # a segment's first frame stands at its rank
    return total.mul_(trellis.transition)


# -- what was lost -----------------------------------------------------------------------------------------------------


def has_forgotten_start(trellis: Trellis, predicted: Tensor) -> bool:
    """Whether one sequence has forgotten its start: then ``predicted`` (K,), of what follows it, holds in every state.

    It is compared to what its last frames predict after a flat start, as with neighbouring segments.
    """
    dtype, length = trellis.densities.dtype, int(trellis.segments.lengths[0])
    frames = min(length, WIDER_MARGIN * MARGIN[dtype])
    time = torch.arange(length - frames, length, device=trellis.densities.device)
    rows = trellis.segments.rows(torch.zeros_like(time), time)
    b, _ = trellis.densities.take(rows).scaled(Scratch())
    torch.threshold_(b, LIMITS[dtype].flush, 0.0)
    chain = ScaledChain(trellis.transition.to(dtype), b, Packing.of([frames], b.device))
    flat = torch.full_like(b[:1], 1 / b.shape[1])
    alpha, _ = recursions.forward(chain, flat, Scratch())
    from_flat = alpha[-1] @ chain.transition
    return bool(((predicted - from_flat).abs() <= TOLERANCE[dtype] * torch.maximum(predicted, from_flat)).all())


def loss_is_negligible(trellis: Trellis, scale: Tensor) -> bool:
    """Whether at every frame all states, of every chain, receive more from the others than any can lose."""
    received = scale.amin(-1) * trellis.transition.amin((-2, -1)).to(scale.dtype)
    return bool((received > _safe_mass(trellis.transition.shape[-1], scale.dtype)).all())


def _safe_mass(n_states: int, dtype: torch.dtype) -> float:
    """Mass beside which what a step can lose is too small to look into."""
    limits = LIMITS[dtype]
    return n_states * limits.floor / limits.loss


def _suspects(trellis: Trellis, alpha: Tensor, scale: Tensor) -> Tensor:
    """(w,) segments in which something lost could have mattered; cheap, and on the safe side.

    A loss is harmless if it is small beside what the same state kept; or, when every transition is possible, beside
    what every state receives from the others at the next step, for positive sums keep their proportions ever after.
    """
    packing, safe = trellis.packing, _safe_mass(alpha.shape[1], alpha.dtype)
    end_mass = alpha[packing.last] * trellis.ends(alpha.dtype)[packing.rank]
    faint = ~(end_mass.sum(1) > safe)
    if loss_is_negligible(trellis, scale):
        return faint
    least_transition = trellis.transition.amin().to(scale.dtype)
    rows = (~(scale * least_transition > safe)).nonzero()[:, 0]
    harmful = torch.zeros_like(scale, dtype=torch.bool)
    for part in rows.split(ROWS_AT_ONCE):
        kept = torch.where(trellis.densities.take(part).log() == -torch.inf, 1.0, alpha[part]).amin(1)
        harmful[part] = ~(scale[part] * kept > safe)
    return packing.any(harmful) | faint


@dataclass(frozen=True)
class _LowerBound:
    """A forward pass: what it ran on, the predictions (w, K) it started from, what it found."""

    chain: ScaledChain
    starts: Tensor
    alpha: Tensor
    scale: Tensor


def _bounds_differ(trellis: Trellis, suspects: Tensor, lower: _LowerBound) -> Tensor:
    """(w,) whether, of the segments ``suspects``, an upper bound of ``p(x_1..x_t)`` ever leaves the ``lower`` one."""
    b, packing, limits = lower.chain.b, trellis.packing, LIMITS[lower.chain.b.dtype]
    part, rows = packing.take(suspects)
    ranks = packing.rank[suspects[part.order]]  # by rank of part, the rank among all
    part_b = b.index_select(0, rows)
    has_density = trellis.densities.take(rows).log() > -torch.inf
    slack = torch.empty_like(part_b).copy_(has_density).mul_(limits.floor)
    ends = trellis.ends(b.dtype)[ranks]
    chain = ScaledChain(lower.chain.transition, part_b, part)
    upper_alpha, upper_scale = recursions.forward(chain, lower.starts[ranks], Scratch(), slack=slack)
    low = (lower.alpha[packing.last[suspects[part.order]]] * ends).sum(1)
    high = (upper_alpha[part.last[part.order]] * ends).sum(1) + limits.floor
    gap = upper_scale.double().log() - lower.scale[rows].double().log()
    broken = part.any(~torch.isfinite(gap))
    gaps = _cumulated(part, torch.where(torch.isfinite(gap), gap, 0.0))
    end_gap = gaps[part.last] + (high.double().log() - low.double().log())[part.rank]
    differ = torch.zeros(packing.n_sequences, dtype=torch.bool, device=b.device)
    differ[suspects] = broken | part.any(gaps.abs() > limits.gap) | ~(end_gap.abs() <= limits.gap)
    return differ


def _cumulated(packing: Packing, values: Tensor) -> Tensor:
    """(N,) the sum of each sequence's values up to and with each row, packed."""
    sums = packing.unpack(values).cumsum(0)
    before = torch.cat([sums.new_zeros(1), sums])[packing.lengths.cumsum(0) - packing.lengths]
    return packing.pack(sums) - before[packing.sequence]

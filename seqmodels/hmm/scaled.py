"""Forward-backward by scaling, ``alpha_t = (alpha_t-1 A) ∘ b_t / c_t``, that knows which sequences it cannot be trusted with.

Every product that underflows, or that is flushed to zero before it can, is a path lost: what is computed is a lower
bound of ``p(x_1..x_t)``. Adding back at each step more than can have been lost gives an upper bound. Where the two
agree after every frame, nothing that mattered was lost; where not, the sequence has failed and another road is taken.

With a backward pass this is seen at once: a path that was lost was last lost at some frame, in a state with less than the
floor, and goes on from there as beta says. Where no beta is so large that the floor times it matters, nothing was lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm import recursions
from seqmodels.hmm.cutting import MARGIN, TOLERANCE
from seqmodels.hmm.packing import Packing, any_of
from seqmodels.hmm.recursions import LIMITS
from seqmodels.hmm.scratch import Scratch
from seqmodels.hmm.threads import one_if_small
from seqmodels.hmm.trellis import Trellis

WIDE = 16  # times the usual margins, for a chain that is slow to forget
BLOCK = 1 << 16  # rows looked at at once
SUMMED = {torch.float32: 1 << 11, torch.float64: 1 << 16}  # rows multiplied up at once: float32 sums stay short


@dataclass(frozen=True)
class Pass:
    """A forward pass: beliefs ``alpha`` (..., N, K), ``b`` scaled to a maximum of one (..., N, K), the factors ``scale`` (..., N),
    float64 ``steps`` (..., N) and ``ends`` (..., n) in nats, and which sequences ``failed`` (..., n)."""

    alpha: Tensor
    b: Tensor
    scale: Tensor
    steps: Tensor
    ends: Tensor
    failed: Tensor


def forward(trellis: Trellis, *, guarded: bool = True) -> Pass:
    """The forward pass in the precision of the densities; not ``guarded`` where ``backward`` follows, which sees what was lost.

    Chains side by side are not ``guarded``.
    """
    dtype, cutting, packing = trellis.densities.dtype, trellis.cutting, trellis.packing
    b, peak = trellis.densities.scaled(trellis.scratch)
    torch.threshold_(b, LIMITS[dtype].flush, 0.0)
    step, starts = trellis.transition.to(dtype), trellis.starts(dtype)
    before, after = cutting.links
    with one_if_small(step, packing.batch_sizes[0]):
        if len(after):
            warm = recursions.warm_start(step, b, cutting.size, cutting.margin, packing)
            starts[..., after, :] = warm[..., before, :]
        alpha, scale = recursions.forward(step, b, starts, packing, trellis.scratch)
    end_mass = (alpha[..., cutting.last, :] * trellis.final.to(dtype)).sum(-1)
    failed = ~torch.isfinite(end_mass)
    if len(after):
        handed, given = alpha[..., packing.last[packing.order[before]], :] @ step, starts[..., after, :]
        close = (handed - given).abs() <= TOLERANCE[dtype] * torch.maximum(handed, given)
        failed |= any_of(~close.all(-1), trellis.owner[after], cutting.n_sequences)
    suspect = _suspects(trellis, alpha, scale) if guarded else failed[:0]
    if suspect.any():
        failed |= cutting.of_pieces(_bounds_differ(trellis, suspect.nonzero()[:, 0], alpha, b, scale, starts))
    steps = trellis.scratch.take("steps", tuple(scale.shape), torch.float64, scale.device)
    return Pass(alpha, b, scale, steps.copy_(scale).log_().add_(peak), end_mass.double().log(), failed)


def backward(trellis: Trellis, ran: Pass) -> tuple[Tensor, Tensor, Tensor]:
    """The backward pass: ``gamma`` (..., N, K), ``ahead`` (..., N, K) = b beta / c, and which sequences ``failed`` (..., n).

    Then ``xi_t(i, j) = alpha_t(i) a_ij ahead_t+1(j)``. ``ran.b`` is used up: ``ahead`` is written over it. Where the
    forward pass holds, beta is bounded: a state whose future outweighs the floor would have parted the bounds.
    """
    cutting, packing, dtype = trellis.cutting, trellis.packing, ran.alpha.dtype
    step, ends = trellis.transition.to(dtype), trellis.ends(dtype)
    before, after = cutting.links
    if len(before):
        with one_if_small(step, packing.batch_sizes[0]):
            ends[..., before, :] = recursions.warm_end(step, ran.b, ends, cutting.margin, packing)[..., after, :]
    closing = ran.alpha[..., packing.last[packing.order], :]
    ends.div_((closing * ends).sum(-1, keepdim=True))
    gamma, ahead = trellis.scratch.like("gamma", ran.alpha), ran.b
    reach = None if refills(trellis, ran.scale) else trellis.scratch.take("reach", ran.scale.shape, dtype, gamma.device)
    with one_if_small(step, packing.batch_sizes[0]):
        messages, drifted = recursions.backward(step, ran.alpha, ahead, ran.scale, ends, gamma, packing, reach)
    least, n = _least(gamma.shape[-1], dtype), cutting.n_sequences
    failed = ran.failed | any_of(drifted, trellis.owner, n)
    failed |= ~(ran.ends.exp() > least)
    if reach is not None:
        failed |= cutting.any(~(reach.mul_(least) < ran.scale))
    if len(before):
        given, found = (closing[..., before, :] * m for m in (ends[..., before, :], messages[..., after, :]))
        difference = (given - found / found.sum(-1, keepdim=True)).abs().sum(-1)
        failed |= any_of(~(difference <= TOLERANCE[dtype]), trellis.owner[before], n)
    return gamma, ahead, failed


def expected_transitions(trellis: Trellis, alpha: Tensor, ahead: Tensor, failed: Tensor) -> Tensor:
    """(..., K, K) float64 expected transitions of the sequences that have not ``failed`` (..., n); the others are zeroed in ``ahead``.

    The frames before a run of rows are a run of rows too: one product a run, nothing copied.
    """
    cutting, packing = trellis.cutting, trellis.packing
    if failed.any():
        left_out = failed[..., cutting.sequence].unsqueeze(-1)
        ahead.masked_fill_(left_out, 0.0)
        alpha.masked_fill_(left_out, 0.0)
    total = torch.zeros_like(trellis.transition)
    size = BLOCK if alpha.is_cuda else SUMMED[alpha.dtype]  # a GPU adds up in pieces by itself
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
    before, after = cutting.links
    ended = alpha[..., packing.last[packing.order[before]], :]
    total += ended.mT @ ahead[..., after, :]  # a piece's first frame stands at its rank
    return total.mul_(trellis.transition)


def warmed_up(trellis: Trellis, handed: Tensor) -> bool:
    """Whether one sequence has forgotten how it began, so that the prediction ``handed`` (K,) for what comes after it holds in every state.

    It is compared to the prediction that its last frames make after a flat start, as those of neighbouring pieces are.
    """
    dtype, length = trellis.densities.dtype, int(trellis.cutting.lengths[0])
    frames = min(length, WIDE * MARGIN[dtype])
    time = torch.arange(length - frames, length, device=trellis.densities.device)
    rows = trellis.cutting.rows(torch.zeros_like(time), time)
    b, _ = trellis.densities.take(rows).scaled(Scratch())
    torch.threshold_(b, LIMITS[dtype].flush, 0.0)
    step, packing = trellis.transition.to(dtype), Packing.of([frames], b.device)
    flat = torch.full_like(b[:1], 1 / b.shape[1])
    alpha, _ = recursions.forward(step, b, flat, packing, Scratch())
    given = alpha[-1] @ step
    return bool(((handed - given).abs() <= TOLERANCE[dtype] * torch.maximum(handed, given)).all())


def _suspects(trellis: Trellis, alpha: Tensor, scale: Tensor) -> Tensor:
    """(w,) pieces in which something lost could have mattered; cheap, and on the safe side.

    A loss is harmless if it is small beside what the same state kept; or, when every transition is possible, beside what
    every state is handed by the others at the next step, for positive sums keep their proportions ever after.
    """
    packing, least = trellis.packing, _least(alpha.shape[1], alpha.dtype)
    closing = alpha[packing.last] * trellis.ends(alpha.dtype)[packing.rank]
    faint = ~(closing.sum(1) > least)
    if refills(trellis, scale):
        return faint
    refill = trellis.transition.amin().to(scale.dtype)
    rows = (~(scale * refill > least)).nonzero()[:, 0]
    harmful = torch.zeros_like(scale, dtype=torch.bool)
    for block in rows.split(BLOCK):
        kept = torch.where(trellis.densities.take(block).log() == -torch.inf, 1.0, alpha[block]).amin(1)
        harmful[block] = ~(scale[block] * kept > least)
    return packing.any(harmful) | faint


def refills(trellis: Trellis, scale: Tensor) -> bool:
    """Whether at every frame all states, of every chain, are handed more than can have been lost of any."""
    handed = scale.amin(-1) * trellis.transition.amin((-2, -1)).to(scale.dtype)
    return bool((handed > _least(trellis.transition.shape[-1], scale.dtype)).all())


def _least(n_states: int, dtype: torch.dtype) -> float:
    """Mass beside which what a step can lose is too small to look into."""
    limits = LIMITS[dtype]
    return n_states * limits.floor / limits.loss


def _bounds_differ(trellis: Trellis, pieces: Tensor, alpha: Tensor, b: Tensor, scale: Tensor, starts: Tensor) -> Tensor:
    """(w,) whether, for each of these pieces, the upper bound of ``p(x_1..x_t)`` leaves the lower one at any t or at the end."""
    packing, limits = trellis.packing, LIMITS[b.dtype]
    part, rows = packing.take(pieces)
    here = packing.rank[pieces[part.order]]  # by rank of part, the rank among all
    possible = trellis.densities.take(rows).log() > -torch.inf
    seen = b.index_select(0, rows)
    slack = torch.empty_like(seen).copy_(possible).mul_(limits.floor)
    step, ends = trellis.transition.to(b.dtype), trellis.ends(b.dtype)[here]
    upper, above = recursions.forward(step, seen, starts[here], part, Scratch(), slack)
    low = (alpha[packing.last[pieces[part.order]]] * ends).sum(1)
    high = (upper[part.last[part.order]] * ends).sum(1) + limits.floor
    gap = above.double().log() - scale[rows].double().log()
    broken = part.any(~torch.isfinite(gap))
    gaps = _running(part, torch.where(torch.isfinite(gap), gap, 0.0))
    end_gap = gaps[part.last] + (high.double().log() - low.double().log())[part.rank]
    found = torch.zeros(packing.n_sequences, dtype=torch.bool, device=b.device)
    found[pieces] = broken | part.any(gaps.abs() > limits.gap) | ~(end_gap.abs() <= limits.gap)
    return found


def _running(packing: Packing, values: Tensor) -> Tensor:
    """(N,) the sum of each sequence's values up to and with each row, packed."""
    sums = packing.unpack(values).cumsum(0)
    before = torch.cat([sums.new_zeros(1), sums])[packing.lengths.cumsum(0) - packing.lengths]
    return packing.pack(sums) - before[packing.sequence]

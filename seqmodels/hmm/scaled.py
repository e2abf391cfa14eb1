"""Forward-backward by scaling, ``alpha_t = (alpha_t-1 A) ∘ b_t / c_t``, that knows which sequences it cannot be trusted with.

Every product that underflows, or that is flushed to zero before it can, is a path lost: what is computed is a lower
bound of ``p(x_1..x_t)``. Adding back at each step more than can have been lost gives an upper bound. Where the two
agree after every frame, nothing that mattered was lost; where not, the sequence has failed and another road is taken.

All arrays are (N, K) by name; in memory the states run along either axis, as the densities came, and every step works on
(K, n) views: what is added up over states is then a sum of whole rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.cutting import TOLERANCE
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.scratch import Scratch
from seqmodels.hmm.trellis import Trellis


@dataclass(frozen=True)
class Limits:
    """What a precision can hold.

    Attributes:
        flush: smaller values become zero, well above the subnormal numbers, which are slow and inexact.
        floor: more than one step can lose of one state's mass, as a fraction of 1.
        loss: a relative loss too small to look into.
        gap: nats by which the bounds may differ.
        drift: how far the sum of a row of gamma may be from one.
    """

    flush: float
    floor: float
    loss: float
    gap: float
    drift: float


LIMITS = {
    torch.float32: Limits(flush=1e-34, floor=1e-32, loss=1e-7, gap=1e-5, drift=1e-3),
    torch.float64: Limits(flush=1e-300, floor=1e-298, loss=1e-13, gap=1e-11, drift=1e-8),
}
BLOCK = 1 << 16  # rows looked at at once
SUMMED = {torch.float32: 1 << 11, torch.float64: 1 << 16}  # rows multiplied up at once: float32 sums stay short
RENEWED = 16  # steps back after which beta is scaled anew


@dataclass(frozen=True)
class Pass:
    """A forward pass: beliefs ``alpha`` (N, K), ``b`` scaled to a maximum of one (N, K), the factors ``scale`` (N,),
    float64 ``steps`` (N,) and ``ends`` (n,) in nats, and which sequences ``failed`` (n,)."""

    alpha: Tensor
    b: Tensor
    scale: Tensor
    steps: Tensor
    ends: Tensor
    failed: Tensor


def forward(trellis: Trellis) -> Pass:
    """The forward pass in the precision of the densities, with its guard."""
    dtype, cutting, packing = trellis.densities.dtype, trellis.cutting, trellis.packing
    b, peak = trellis.densities.scaled(trellis.scratch)
    torch.threshold_(b, LIMITS[dtype].flush, 0.0)
    step, starts = trellis.transition.T.to(dtype).contiguous(), trellis.starts(dtype)
    before, after = cutting.links
    if len(after):
        starts[after] = _warm_start(step, b, cutting.size, cutting.margin, packing)[before]
    alpha, scale = _recursion(step, b, starts, packing, trellis.scratch)
    end_mass = (alpha[cutting.last] * trellis.final.to(dtype)).sum(1)
    failed = ~torch.isfinite(end_mass)
    if len(after):
        handed, given = alpha[packing.last[packing.order[before]]] @ step.T, starts[after]
        close = (handed - given).abs() <= TOLERANCE[dtype] * torch.maximum(handed, given)
        failed |= _by_sequence(trellis, after[~close.all(1)])
    suspect = _suspects(trellis, alpha, scale)
    if suspect.any():
        astray = _bounds_differ(trellis, suspect.nonzero()[:, 0], Pass(alpha, b, scale, peak, end_mass, failed), starts)
        failed |= cutting.of_pieces(astray)
    steps = trellis.scratch.take("steps", tuple(scale.shape), torch.float64, scale.device)
    return Pass(alpha, b, scale, steps.copy_(scale).log_().add_(peak), end_mass.double().log(), failed)


def backward(trellis: Trellis, ran: Pass) -> tuple[Tensor, Tensor, Tensor]:
    """The backward pass: ``gamma`` (N, K), ``ahead`` (N, K) = b beta / c, and which sequences ``failed`` (n,).

    Then ``xi_t(i, j) = alpha_t(i) a_ij ahead_t+1(j)``. ``ran.b`` is used up: ``ahead`` is written over it. Where the
    forward pass holds, beta is bounded: a state whose future outweighs the floor would have parted the bounds.
    """
    cutting, packing, dtype = trellis.cutting, trellis.packing, ran.alpha.dtype
    step, ends = trellis.transition.to(dtype), trellis.ends(dtype)
    before, after = cutting.links
    if len(before):
        ends[before] = _warm_end(step, ran.b, ends, cutting.margin, packing)[after]
    closing = ran.alpha[packing.last[packing.order]]
    ends.div_((closing * ends).sum(1, keepdim=True))
    gamma, ahead, sizes = trellis.scratch.like("gamma", ran.alpha), ran.b, packing.batch_sizes
    beta, going = _messages(ran.b, len(ends)), 0
    drifted = torch.zeros(len(ends), dtype=torch.bool, device=gamma.device)
    views = zip(*(a.T.split(sizes, 1) for a in (ran.alpha, gamma, ahead)), ran.scale.split(sizes), strict=True)
    for t, (reached, here, there, scale) in reversed(list(enumerate(views))):
        n = sizes[t]
        if n > going:  # some pieces end here
            beta[:, going:n] = ends[going:n].T
            going = n
        message = beta[:, :n]
        torch.mul(reached, message, out=here)
        if t % RENEWED == 0:
            norm = here.sum(0)
            drifted[:n] |= ~((norm - 1).abs() <= LIMITS[dtype].drift)
            here.div_(norm)
            message.div_(norm)
        there.mul_(message).div_(scale)
        torch.mm(step, there, out=message)
    failed = ran.failed | _by_sequence(trellis, drifted.nonzero()[:, 0])
    if len(before):
        given, found = closing[before] * ends[before], closing[before] * beta.T[after]
        difference = (given - found / found.sum(1, keepdim=True)).abs().sum(1)
        failed |= _by_sequence(trellis, before[~(difference <= TOLERANCE[dtype])])
    return gamma, ahead, failed


def expected_transitions(trellis: Trellis, alpha: Tensor, ahead: Tensor, failed: Tensor) -> Tensor:
    """(K, K) float64 expected transitions of the sequences that have not ``failed`` (n,); the others are zeroed in ``ahead``.

    The frames before a run of rows are a run of rows too: one product a run, nothing copied.
    """
    cutting, packing = trellis.cutting, trellis.packing
    if failed.any():
        left_out = failed[cutting.sequence].nonzero()[:, 0]
        ahead.index_fill_(0, left_out, 0.0)
        alpha.index_fill_(0, left_out, 0.0)
    total, size = torch.zeros_like(trellis.transition), SUMMED[alpha.dtype]
    part = torch.empty_like(total, dtype=alpha.dtype)
    for shift, low, high in packing.spans:
        for start in range(low, high, size):
            stop = min(start + size, high)
            total += torch.mm(alpha[start - shift : stop - shift].T, ahead[start:stop], out=part)
    before, after = cutting.links
    total += alpha[packing.last[packing.order[before]]].T @ ahead[after]  # a piece's first frame stands at its rank
    return total.mul_(trellis.transition)


def _messages(b: Tensor, n: int) -> Tensor:
    """(K, n) to be filled, along memory as the densities (N, K) are."""
    K = b.shape[1]
    return b.new_empty(K, n) if b.stride(0) == 1 else b.new_empty(n, K).T


def _recursion(
    step: Tensor, b: Tensor, starts: Tensor, packing: Packing, scratch: Scratch, slack: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Beliefs (N, K) and scaling factors (N,), given ``step``, the transition's transpose, and predictions ``starts`` (w, K) by rank.

    ``slack`` (N, K) is mass added at each step, for the upper bound.
    """
    flush, sizes = LIMITS[b.dtype].flush, packing.batch_sizes
    alpha, scale, predicted = (
        scratch.like("alpha", b),
        scratch.take("scale", b.shape[:1], b.dtype, b.device),
        _messages(b, len(starts)),
    )
    predicted.copy_(starts.T)
    added = [None] * len(sizes) if slack is None else slack.T.split(sizes, 1)
    views = (alpha.T.split(sizes, 1), b.T.split(sizes, 1), scale.split(sizes), added)
    for joint, seen, total, more in zip(*views, strict=True):
        n = joint.shape[1]
        torch.mul(predicted[:, :n], seen, out=joint)
        if more is not None:
            joint.add_(more)
        torch.sum(joint, 0, out=total)
        torch.threshold_(joint.div_(total), flush, 0.0)
        torch.mm(step, joint, out=predicted[:, :n])
    return alpha, scale


def _warm_start(step: Tensor, b: Tensor, size: int, margin: int, packing: Packing) -> Tensor:
    """(m, K) by rank: predictions after each piece of full size, from a flat message ``margin`` frames before its end."""
    m = packing.batch_sizes[size - 1]
    predicted, joint = _messages(b, m).fill_(1 / len(step)), _messages(b, m)
    for low, _ in packing.blocks[size - margin : size]:
        torch.mul(predicted, b[low : low + m].T, out=joint)
        torch.threshold_(joint.div_(joint.sum(0)), LIMITS[b.dtype].flush, 0.0)
        torch.mm(step, joint, out=predicted)
    return predicted.T


def _warm_end(step: Tensor, b: Tensor, ends: Tensor, margin: int, packing: Packing) -> Tensor:
    """(w, K) by rank: what each piece's first ``margin`` frames say of the state before it, from a flat message after them."""
    sizes = packing.batch_sizes
    beta, room = _messages(b, len(ends)), _messages(b, len(ends))
    going = sizes[margin] if margin < len(sizes) else 0
    beta[:, :going] = 1.0
    for t in reversed(range(min(margin, len(sizes)))):
        n, low = sizes[t], packing.blocks[t][0]
        if n > going:
            beta[:, going:n] = ends[going:n].T
            going = n
        there = torch.mul(b[low : low + n].T, beta[:, :n], out=room[:, :n])
        torch.mm(step, there.div_(there.sum(0)), out=beta[:, :n])
    return beta.T


def _by_sequence(trellis: Trellis, ranks: Tensor) -> Tensor:
    """(n,) whether any of these pieces, by rank, is of the sequence."""
    found = torch.zeros(trellis.cutting.n_sequences, dtype=torch.bool, device=ranks.device)
    found[trellis.cutting.owner[trellis.packing.order[ranks]]] = True
    return found


def _suspects(trellis: Trellis, alpha: Tensor, scale: Tensor) -> Tensor:
    """(w,) pieces in which something lost could have mattered; cheap, and on the safe side.

    A loss is harmless if it is small beside what the same state kept; or, when every transition is possible, beside what
    every state is handed by the others at the next step, for positive sums keep their proportions ever after.
    """
    packing, least = trellis.packing, _least(alpha)
    closing = alpha[packing.last] * trellis.ends(alpha.dtype)[packing.rank]
    faint = ~(closing.sum(1) > least)
    refill = trellis.transition.amin().to(scale.dtype)
    if scale.amin() * refill > least:
        return faint
    rows = (~(scale * refill > least)).nonzero()[:, 0]
    harmful = torch.zeros_like(scale, dtype=torch.bool)
    for block in rows.split(BLOCK):
        kept = torch.where(trellis.densities.take(block).log() == -torch.inf, 1.0, alpha[block]).amin(1)
        harmful[block] = ~(scale[block] * kept > least)
    return packing.any(harmful) | faint


def _least(alpha: Tensor) -> float:
    """Mass beside which what a step can lose is too small to look into."""
    limits = LIMITS[alpha.dtype]
    return alpha.shape[1] * limits.floor / limits.loss


def _bounds_differ(trellis: Trellis, pieces: Tensor, ran: Pass, starts: Tensor) -> Tensor:
    """(w,) whether, for each of these pieces, the upper bound of ``p(x_1..x_t)`` leaves the lower one at any t or at the end."""
    packing, limits = trellis.packing, LIMITS[ran.alpha.dtype]
    part, rows = packing.take(pieces)
    here = packing.rank[pieces[part.order]]  # by rank of part, the rank among all
    possible = trellis.densities.take(rows).log() > -torch.inf
    b = ran.b.index_select(0, rows)
    slack = torch.empty_like(b).copy_(possible).mul_(limits.floor)
    step = trellis.transition.T.to(b.dtype).contiguous()
    alpha, above = _recursion(step, b, starts[here], part, Scratch(), slack)
    ends = trellis.ends(b.dtype)[here]
    low = (ran.alpha[packing.last[pieces[part.order]]] * ends).sum(1)
    high = (alpha[part.last[part.order]] * ends).sum(1) + limits.floor
    gap = above.double().log() - ran.scale[rows].double().log()
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

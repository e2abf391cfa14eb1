"""Forward-backward by scaling, ``alpha_t = (alpha_t-1 A) ∘ b_t / c_t``, that knows which sequences it cannot be trusted with.

Every product that underflows, or that is flushed to zero before it can, is a path lost: what is computed is a lower
bound of ``p(x_1..x_t)``. Adding back at each step more than can have been lost gives an upper bound. Where the two
agree after every frame, nothing that mattered was lost; where not, the sequence has failed and another road is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.packing import Packing
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
BLOCK = 1 << 16  # rows looked at, or multiplied up in float32, at once


@dataclass(frozen=True)
class Pass:
    """A forward pass: beliefs ``alpha`` (N, K), ``b`` scaled to a maximum of one ``emission`` (N, K), the factors ``scale`` (N,),
    float64 ``steps`` (N,) and ``ends`` (n,) in nats, and which sequences ``failed`` (n,)."""

    alpha: Tensor
    emission: Tensor
    scale: Tensor
    steps: Tensor
    ends: Tensor
    failed: Tensor


def forward(trellis: Trellis) -> Pass:
    """The forward pass in the precision of ``log_b``, with its guard."""
    limits, packing = LIMITS[trellis.log_b.dtype], trellis.packing
    emission, peak = _emission(trellis.log_b, limits)
    alpha, scale = _recursion(trellis, emission, None)
    steps = scale.double().log() + peak
    end_mass = (alpha[packing.last] * trellis.final.to(alpha.dtype)).sum(1)
    suspect = _suspects(trellis, alpha, scale, end_mass)
    failed = ~torch.isfinite(end_mass)
    if suspect.any():
        chosen = suspect.nonzero()[:, 0]
        failed[chosen] |= _bounds_differ(trellis, chosen, emission, scale, end_mass)
    return Pass(alpha, emission, scale, steps, end_mass.double().log(), failed)


def backward(trellis: Trellis, ran: Pass) -> tuple[Tensor, Tensor, Tensor]:
    """The backward pass: ``gamma`` (N, K), ``ahead`` (N, K) = b beta / c, and which sequences ``failed`` (n,).

    Then ``xi_t(i, j) = alpha_t(i) a_ij ahead_t+1(j)``. ``ran.emission`` is used up: ``ahead`` is written over it. Where the
    forward pass holds, beta is bounded: a state whose future outweighs the floor would have parted the bounds.
    """
    packing, limits = trellis.packing, LIMITS[ran.alpha.dtype]
    gamma, ahead = torch.empty_like(ran.alpha), ran.emission
    ahead.div_(ran.scale[:, None])
    backwards, ends = trellis.transition.to(ahead.dtype).T.contiguous(), trellis.ends.to(ahead.dtype)
    norms = torch.empty_like(ran.scale)
    going, beta = 0, ends[:0]
    for low, high in reversed(packing.blocks):
        if high - low > going:  # some sequences end here
            beta = torch.cat([beta, ends[going : high - low]])
            going = high - low
        here = torch.mul(ran.alpha[low:high], beta, out=gamma[low:high])
        norm = torch.sum(here, 1, out=norms[low:high])[:, None]
        here.div_(norm)
        beta = ahead[low:high].mul_(beta).div_(norm) @ backwards
    norms[packing.last] = 1.0  # there it was the mass of the end, which the forward pass has looked at
    return gamma, ahead, ran.failed | packing.any(~((norms - 1).abs() <= limits.drift))


def expected_transitions(trellis: Trellis, alpha: Tensor, ahead: Tensor, counted: Tensor) -> Tensor:
    """(K, K) float64 expected transitions into the frames ``counted`` (N,) is True for; the others are zeroed in ``ahead``.

    The frames before a run of rows are a run of rows too: one product a run, nothing copied.
    """
    left_out = (~counted).nonzero()[:, 0]
    ahead.index_fill_(0, left_out, 0.0)
    alpha.index_fill_(0, left_out[~torch.isfinite(alpha[left_out]).all(1)], 0.0)
    total = torch.zeros_like(trellis.transition)
    for shift, low, high in trellis.packing.spans:
        for start in range(low, high, BLOCK):
            stop = min(start + BLOCK, high)
            total += alpha[start - shift : stop - shift].T @ ahead[start:stop]
    return total.mul_(trellis.transition)


def _emission(log_b: Tensor, limits: Limits) -> tuple[Tensor, Tensor]:
    """``b`` with each frame's maximum scaled to one, small values flushed, and the logarithm of that maximum in float64."""
    peak = log_b.amax(1, keepdim=True)
    peak = torch.where(peak == -torch.inf, 0.0, peak)
    emission = torch.threshold_((log_b - peak).exp_(), limits.flush, 0.0)
    return emission, peak[:, 0].double()


def _recursion(trellis: Trellis, emission: Tensor, slack: Tensor | None) -> tuple[Tensor, Tensor]:
    """Beliefs (N, K) and scaling factors (N,); ``slack`` (N, K) is mass added at each step, for the upper bound."""
    transition, predicted = trellis.transition.to(emission.dtype), trellis.starts.to(emission.dtype)
    flush = LIMITS[emission.dtype].flush
    alpha, scale = torch.empty_like(emission), emission.new_empty(len(emission))
    for low, high in trellis.packing.blocks:
        joint = torch.mul(predicted[: high - low], emission[low:high], out=alpha[low:high])
        if slack is not None:
            joint.add_(slack[low:high])
        total = torch.sum(joint, 1, out=scale[low:high])
        torch.threshold_(joint.div_(total[:, None]), flush, 0.0)
        predicted = joint @ transition
    return alpha, scale


def _suspects(trellis: Trellis, alpha: Tensor, scale: Tensor, end_mass: Tensor) -> Tensor:
    """(n,) sequences in which something lost could have mattered; cheap, and on the safe side.

    A loss is harmless if it is small beside what the same state kept; or, when every transition is possible, beside what
    every state is handed by the others at the next step, for positive sums keep their proportions ever after.
    """
    limits, packing = LIMITS[alpha.dtype], trellis.packing
    least = len(trellis.transition) * limits.floor / limits.loss
    refill = trellis.transition.amin().to(scale.dtype)
    rows = (~(scale * refill > least)).nonzero()[:, 0]
    harmful = torch.zeros_like(scale, dtype=torch.bool)
    for block in rows.split(BLOCK):
        kept = torch.where(trellis.log_b[block] == -torch.inf, 1.0, alpha[block]).amin(1)
        harmful[block] = ~(scale[block] * kept > least)
    return packing.any(harmful) | ~(end_mass > least)


def _bounds_differ(trellis: Trellis, sequences: Tensor, emission: Tensor, scale: Tensor, end_mass: Tensor) -> Tensor:
    """Whether, for each of these sequences, the upper bound of ``p(x_1..x_t)`` leaves the lower one at any t or at the end."""
    part, rows = trellis.take(sequences)
    limits = LIMITS[emission.dtype]
    slack = (part.log_b > -torch.inf).to(emission.dtype).mul_(limits.floor)
    alpha, above = _recursion(part, emission.index_select(0, rows), slack)
    end_above = (alpha[part.packing.last] * part.final.to(alpha.dtype)).sum(1) + limits.floor
    gap = above.double().log() - scale[rows].double().log()
    broken = part.packing.any(~torch.isfinite(gap))
    gaps = _running(part.packing, torch.where(torch.isfinite(gap), gap, 0.0))
    end_gap = gaps[part.packing.last] + end_above.double().log() - end_mass[sequences].double().log()
    return broken | part.packing.any(gaps.abs() > limits.gap) | ~(end_gap.abs() <= limits.gap)


def _running(packing: Packing, values: Tensor) -> Tensor:
    """(N,) the sum of each sequence's values up to and with each row, packed."""
    sums = packing.unpack(values).cumsum(0)
    before = torch.cat([sums.new_zeros(1), sums])[packing.lengths.cumsum(0) - packing.lengths]
    return packing.pack(sums) - before[packing.sequence]

"""The recursions over time of scaled forward-backward, a few operations a step on all sequences that are still running.

All arrays are (N, K) by name; in memory the states run along either axis, as the densities came, and every step works on
(K, n) views: what is added up over states is then a sum of whole rows. With a leading axis, (R, N, K), R chains that saw the
same sequences run side by side: a small problem is as slow as its operations are many, whatever they are done on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from seqmodels.hmm.packing import Packing
from seqmodels.hmm.scratch import Scratch


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
RENEWED = 16  # steps back after which beta is scaled anew


def forward(
    transition: Tensor, b: Tensor, starts: Tensor, packing: Packing, scratch: Scratch, slack: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Beliefs (..., N, K) and scaling factors (..., N), given the transition (..., K, K) and predictions ``starts`` (..., w, K) by rank.

    ``slack`` (N, K) is mass added at each step, for the upper bound.
    """
    alpha, scale = scratch.like("alpha", b), scratch.take("scale", b.shape[:-1], b.dtype, b.device)
    flush, sizes = LIMITS[b.dtype].flush, packing.batch_sizes
    if slack is None and _on_gpu(b):
        from seqmodels.hmm import kernels

        kernels.forward(transition, b, starts, packing, alpha, scale, flush)
        return alpha, scale
    step, n, product = transition.mT.contiguous(), starts.shape[-2], _product(transition)
    message = predicted = _messages(b, n).copy_(starts.mT)
    added = [None] * len(sizes) if slack is None else slack.mT.split(sizes, -1)
    views = (sizes, alpha.mT.split(sizes, -1), b.mT.split(sizes, -1), scale.unsqueeze(-2).split(sizes, -1), added)
    for size, joint, seen, total, more in zip(*views, strict=True):
        if size < n:
            n, message = size, predicted[..., :size]
        torch.mul(message, seen, out=joint)
        if more is not None:
            joint.add_(more)
        torch.sum(joint, -2, keepdim=True, out=total)
        torch.threshold_(joint.div_(total), flush, 0.0)
        product(step, joint, out=message)
    return alpha, scale


def backward(
    transition: Tensor,
    alpha: Tensor,
    ahead: Tensor,
    scale: Tensor,
    ends: Tensor,
    gamma: Tensor,
    packing: Packing,
    reach: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Fill ``gamma`` (..., N, K); turn ``ahead`` (..., N, K) from b to b beta / c; given messages ``ends`` (..., w, K) by rank after last frames.

    ``reach`` (..., N) is filled with the largest beta of each frame.

    Returns:
        (..., w, K) by rank the messages before first frames, and (..., w) where the sum of a row of gamma drifted from one.
    """
    if _on_gpu(ahead):
        from seqmodels.hmm import kernels

        return kernels.backward(transition, alpha, ahead, scale, ends, gamma, packing, LIMITS[gamma.dtype].drift, reach)
    sizes, going, product = packing.batch_sizes, 0, _product(transition)
    message = beta = _messages(ahead, ends.shape[-2])
    drifted = torch.zeros(ends.shape[:-1], dtype=torch.bool, device=gamma.device)
    largest = [None] * len(sizes) if reach is None else reach.unsqueeze(-2).split(sizes, -1)
    states = (a.mT.split(sizes, -1) for a in (alpha, gamma, ahead))
    views = zip(sizes, *states, scale.unsqueeze(-2).split(sizes, -1), largest, strict=True)
    for t, (n, reached, here, there, divisor, peak) in reversed(list(enumerate(views))):
        if n > going:  # some pieces end here
            beta[..., going:n] = ends[..., going:n, :].mT
            going, message = n, beta[..., :n]
        torch.mul(reached, message, out=here)
        if t % RENEWED == 0:
            norm = here.sum(-2, keepdim=True)
            drifted[..., :going] |= ~((norm.squeeze(-2) - 1).abs() <= LIMITS[gamma.dtype].drift)
            here.div_(norm)
            message.div_(norm)
        if peak is not None:
            torch.amax(message, -2, keepdim=True, out=peak)
        there.mul_(message).div_(divisor)
        product(transition, there, out=message)
    return beta.mT, drifted


def warm_start(transition: Tensor, b: Tensor, size: int, margin: int, packing: Packing) -> Tensor:
    """(..., m, K) by rank: predictions after each piece of full size, from a flat message ``margin`` frames before its end."""
    m = packing.batch_sizes[size - 1]
    step, product = transition.mT.contiguous(), _product(transition)
    predicted, joint = _messages(b, m).fill_(1 / b.shape[-1]), _messages(b, m)
    for low, _ in packing.blocks[size - margin : size]:
        torch.mul(predicted, b[..., low : low + m, :].mT, out=joint)
        torch.threshold_(joint.div_(joint.sum(-2, keepdim=True)), LIMITS[b.dtype].flush, 0.0)
        product(step, joint, out=predicted)
    return predicted.mT


def warm_end(transition: Tensor, b: Tensor, ends: Tensor, margin: int, packing: Packing) -> Tensor:
    """(..., w, K) by rank: what each piece's first ``margin`` frames say of the state before it, from a flat message after them."""
    sizes, w, product = packing.batch_sizes, ends.shape[-2], _product(transition)
    beta, room = _messages(b, w), _messages(b, w)
    going = sizes[margin] if margin < len(sizes) else 0
    beta[..., :going] = 1.0
    for t in reversed(range(min(margin, len(sizes)))):
        n, low = sizes[t], packing.blocks[t][0]
        if n > going:
            beta[..., going:n] = ends[..., going:n, :].mT
            going = n
        there = torch.mul(b[..., low : low + n, :].mT, beta[..., :n], out=room[..., :n])
        product(transition, there.div_(there.sum(-2, keepdim=True)), out=beta[..., :n])
    return beta.mT


def _on_gpu(b: Tensor) -> bool:
    """Whether the kernels are for this, and Triton, which comes with torch for a GPU, is there."""
    if not b.is_cuda or b.dim() > 2 or find_spec("triton") is None:
        return False
    from seqmodels.hmm import kernels

    return kernels.can_run(b)


def _product(transition: Tensor) -> Callable[..., Tensor]:
    """Of the matrices of one chain, or of each of several."""
    return torch.mm if transition.dim() == 2 else torch.bmm


def _messages(b: Tensor, n: int) -> Tensor:
    """(..., K, n) to be filled, along memory as the densities (..., N, K) are."""
    lead, K = b.shape[:-2], b.shape[-1]
    return b.new_empty(*lead, K, n) if b.stride(-2) == 1 else b.new_empty(*lead, n, K).mT

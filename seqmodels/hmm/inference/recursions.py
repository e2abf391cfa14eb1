"""The recursions over time of scaled forward-backward, a few operations a step on all sequences that are still running.

All arrays are (N, K) by name; in memory the states run along either axis, as the densities came, and every step works
on (K, n) views: what is added up over states is then a sum of whole rows. With a leading axis, (R, N, K), R chains that
saw the same sequences run side by side: the time of a small problem goes by the number of its operations, not by their
size.

On a GPU the same recursions are two kernels (``triton_kernels``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from seqmodels.hmm.inference.packing import Packing
from seqmodels.hmm.inference.scratch import Scratch


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
RESCALE_EVERY = 16  # steps back after which beta is scaled anew
WORTH_SHARING = 200_000  # multiplications in a product, from which a second thread gains


@dataclass(frozen=True)
class ScaledChain:
    """What the recursions run on, all in the precision of ``b``.

    Attributes:
        transition: (..., K, K).
        b: (..., N, K) densities, scaled to a maximum of one a frame.
        packing: of the N rows; its sequences are the segments of a trellis.
    """

    transition: Tensor
    b: Tensor
    packing: Packing


def forward(
    chain: ScaledChain, starts: Tensor, scratch: Scratch, *, slack: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Alpha (..., N, K) and scaling factors (..., N), given predictions ``starts`` (..., w, K) by rank.

    ``slack`` (N, K) is mass added at each step, for the upper bound.
    """
    transition, b, packing = chain.transition, chain.b, chain.packing
    alpha, scale = scratch.like("alpha", b), scratch.take("scale", b.shape[:-1], b.dtype, b.device)
    flush, sizes = LIMITS[b.dtype].flush, packing.batch_sizes
    if slack is None and _on_gpu(b):
        from seqmodels.hmm.inference import triton_kernels

        triton_kernels.forward(transition, b, packing, starts=starts, alpha=alpha, scale=scale, flush=flush)
        return alpha, scale
    step, n, product = transition.mT.contiguous(), starts.shape[-2], _product(transition)
    message = predicted = _messages(b, n).copy_(starts.mT)
    added = [None] * len(sizes) if slack is None else slack.mT.split(sizes, -1)
    views = (sizes, alpha.mT.split(sizes, -1), b.mT.split(sizes, -1), scale.unsqueeze(-2).split(sizes, -1), added)
    for size, joint, b_t, c_t, slack_t in zip(*views, strict=True):
        if size < n:
            n, message = size, predicted[..., :size]
        torch.mul(message, b_t, out=joint)
        if slack_t is not None:
            joint.add_(slack_t)
        torch.sum(joint, -2, keepdim=True, out=c_t)
        torch.threshold_(joint.div_(c_t), flush, 0.0)
        product(step, joint, out=message)
    return alpha, scale


def backward(
    chain: ScaledChain, alpha: Tensor, scale: Tensor, ends: Tensor, gamma: Tensor, *, reach: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Fill ``gamma`` (..., N, K), and turn ``chain.b`` from b into b beta / c.

    Args:
        alpha, scale: from ``forward``.
        ends: (..., w, K) by rank, the messages beta after last frames.
        reach: (..., N), filled with the largest beta of each frame.

    Returns:
        (..., w, K) by rank the messages before first frames, and (..., w) whether a row of gamma drifted from a sum of
        one.
    """
    transition, ahead, packing = chain.transition, chain.b, chain.packing
    drift = LIMITS[gamma.dtype].drift
    if _on_gpu(ahead):
        from seqmodels.hmm.inference import triton_kernels

        return triton_kernels.backward(
            transition, ahead, packing, alpha=alpha, scale=scale, ends=ends, gamma=gamma, drift=drift, reach=reach
        )
    sizes, n_running, product = packing.batch_sizes, 0, _product(transition)
    message = beta = _messages(ahead, ends.shape[-2])
    drifted = torch.zeros(ends.shape[:-1], dtype=torch.bool, device=gamma.device)
    largest = [None] * len(sizes) if reach is None else reach.unsqueeze(-2).split(sizes, -1)
    states = (a.mT.split(sizes, -1) for a in (alpha, gamma, ahead))
    views = zip(sizes, *states, scale.unsqueeze(-2).split(sizes, -1), largest, strict=True)
    for t, (n, alpha_t, gamma_t, ahead_t, c_t, largest_t) in reversed(list(enumerate(views))):
        if n > n_running:  # some segments end here
            beta[..., n_running:n] = ends[..., n_running:n, :].mT
            n_running, message = n, beta[..., :n]
        torch.mul(alpha_t, message, out=gamma_t)
        if t % RESCALE_EVERY == 0:
            norm = gamma_t.sum(-2, keepdim=True)
            drifted[..., :n_running] |= ~((norm.squeeze(-2) - 1).abs() <= drift)
            gamma_t.div_(norm)
            message.div_(norm)
        if largest_t is not None:
            torch.amax(message, -2, keepdim=True, out=largest_t)
        ahead_t.mul_(message).div_(c_t)
        product(transition, ahead_t, out=message)
    return beta.mT, drifted


def warm_start(chain: ScaledChain, size: int, margin: int) -> Tensor:
    """(..., m, K) by rank: predictions after segments of full size, from flat messages ``margin`` frames before."""
    transition, b, packing = chain.transition, chain.b, chain.packing
    m = packing.batch_sizes[size - 1]
    step, product = transition.mT.contiguous(), _product(transition)
    predicted, joint = _messages(b, m).fill_(1 / b.shape[-1]), _messages(b, m)
    for low, _ in packing.blocks[size - margin : size]:
        torch.mul(predicted, b[..., low : low + m, :].mT, out=joint)
        torch.threshold_(joint.div_(joint.sum(-2, keepdim=True)), LIMITS[b.dtype].flush, 0.0)
        product(step, joint, out=predicted)
    return predicted.mT


def warm_end(chain: ScaledChain, ends: Tensor, margin: int) -> Tensor:
    """(..., w, K) by rank: beta before each segment, from a flat message ``margin`` frames later, or its ``ends``."""
    transition, b, packing = chain.transition, chain.b, chain.packing
    sizes, w, product = packing.batch_sizes, ends.shape[-2], _product(transition)
    beta, buffer = _messages(b, w), _messages(b, w)
    n_running = sizes[margin] if margin < len(sizes) else 0
    beta[..., :n_running] = 1.0
    for t in reversed(range(min(margin, len(sizes)))):
        n, low = sizes[t], packing.blocks[t][0]
        if n > n_running:
            beta[..., n_running:n] = ends[..., n_running:n, :].mT
            n_running = n
        ahead = torch.mul(b[..., low : low + n, :].mT, beta[..., :n], out=buffer[..., :n])
        product(transition, ahead.div_(ahead.sum(-2, keepdim=True)), out=beta[..., :n])
    return beta.mT


def _on_gpu(b: Tensor) -> bool:
    """Whether the kernels are for these densities, and Triton, which comes with torch for a GPU, is installed."""
    if not b.is_cuda or b.dim() > 2 or find_spec("triton") is None:
        return False
    from seqmodels.hmm.inference import triton_kernels

    return triton_kernels.can_run(b)


def _product(transition: Tensor) -> Callable[..., Tensor]:
    """Of the matrices of one chain, or of each of several."""
    return torch.mm if transition.dim() == 2 else torch.bmm


def _messages(b: Tensor, n: int) -> Tensor:
    """(..., K, n) to be filled, along memory as the densities (..., N, K) are."""
    lead, K = b.shape[:-2], b.shape[-1]
    return b.new_empty(*lead, K, n) if b.stride(-2) == 1 else b.new_empty(*lead, n, K).mT


# -- small products on one thread: waking a second one takes longer than they do ---------------------------------------

SetThreads = Callable[[int], int]  # a number of threads; some return what it was


@contextmanager
def one_thread_if_small(transition: Tensor, n: int) -> Iterator[None]:
    """Within, torch uses one thread on this CPU if products of (K, K) with (K, n) are small; after, as many as before.

    Only in the thread that calls: ``torch.set_num_threads`` is for the whole process, and other threads may be at work
        in it.
    """
    threads = torch.get_num_threads()
    if threads == 1 or transition.is_cuda or transition.numel() * n >= WORTH_SHARING:
        yield
        return
    set_openmp, set_products = _thread_setters()
    set_openmp(1)
    before = set_products(1)
    try:
        yield
    finally:
        set_openmp(threads)
        set_products(before)


@cache
def _thread_setters() -> tuple[SetThreads, SetThreads]:
    """Of the calling thread's number in the OpenMP that torch runs on, and in MKL; where there is neither, nothing is
    set."""
    folder = Path(torch.__file__).parent
    files = [path for path in folder.glob("lib/libtorch_cpu.*") if path.suffix in (".so", ".dylib")]
    # Loaded already; names are looked up in what it depends on too.
    library = ctypes.CDLL(str(files[0])) if files else None
    return getattr(library, "omp_set_num_threads", int), getattr(library, "MKL_Set_Num_Threads_Local", int)

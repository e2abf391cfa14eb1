"""The recursions of ``recursions`` as two kernels for a GPU: one program takes some sequences, of like length, from end to end.

Beliefs and messages stay in registers and the transition matrix in shared memory; each frame is read once and written once.
A matrix too large for that is read in bands at every step, from the cache that all programs share, and the factor it meets is
read back from where it was written. float32 only; products are split in three so that TF32 units give the digits of float32 (``tf32x3``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqmodels.hmm.packing import Packing

SEQUENCES = 16  # of one program: the least that matrix units take
HELD_STATES = 128  # of a transition matrix that fits into shared memory
MOST_STATES = 256
BAND = 32  # rows of a larger one that are read at once


@triton.jit
def _times_bands(
    factor, row, running, transition, K, across, along, stride_row, stride_state,
    ROWS: tl.constexpr, STATES: tl.constexpr, BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(ROWS, STATES): what stands at ``factor`` in memory, times the matrix, or its transpose, of strides ``across`` and ``along``."""
    state = tl.arange(0, STATES)
    tl.debug_barrier()  # what other threads of this program have written is seen
    result = tl.zeros((ROWS, STATES), dtype=tl.float32)
    for low in range(0, STATES, BAND):
        band = low + tl.arange(0, BAND)
        place = row[:, None] * stride_row + band[None, :] * stride_state
        part = tl.load(factor + place, mask=running[:, None] & (band < K)[None, :], other=0.0)
        arcs = tl.load(
            transition + band[:, None] * across + state[None, :] * along,
            mask=(band < K)[:, None] & (state < K)[None, :],
            other=0.0,
        )
        result = tl.dot(part, arcs, acc=result, input_precision=PRECISION)
    return result


@triton.jit
def _forward(
    b, starts, transition, alpha, scale, offsets, sizes, steps, K, stride_row, stride_state, flush,
    ROWS: tl.constexpr, STATES: tl.constexpr, HELD: tl.constexpr, BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rank = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    state = tl.arange(0, STATES)
    real = state < K
    n = tl.load(sizes)
    if HELD:
        arcs = tl.load(transition + state[:, None] * K + state[None, :], mask=real[:, None] & real[None, :], other=0.0)
    inside = (rank < n)[:, None] & real[None, :]
    predicted = tl.load(starts + rank[:, None] * K + state[None, :], mask=inside, other=0.0)
    for t in range(tl.load(steps + tl.program_id(0))):
        row = tl.load(offsets + t) + rank
        running = rank < tl.load(sizes + t)
        inside = running[:, None] & real[None, :]
        place = row[:, None] * stride_row + state[None, :] * stride_state
        joint = predicted * tl.load(b + place, mask=inside, other=0.0)
        total = tl.where(running, tl.sum(joint, 1), 1.0)
        joint = joint / total[:, None]
        joint = tl.where(joint <= flush, 0.0, joint)
        tl.store(alpha + place, joint, mask=inside)
        tl.store(scale + row, total, mask=running)
        if HELD:
            predicted = tl.dot(joint, arcs, input_precision=PRECISION)
        else:
            predicted = _times_bands(
                alpha, row, running, transition, K, K, 1, stride_row, stride_state, ROWS, STATES, BAND, PRECISION
            )


@triton.jit
def _backward(
    alpha, ahead, scale, ends, transition, gamma, messages, drifted, reach, offsets, sizes, lengths, steps, K,
    stride_row, stride_state, drift,
    ROWS: tl.constexpr, STATES: tl.constexpr, HELD: tl.constexpr, BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rank = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    state = tl.arange(0, STATES)
    real = state < K
    n = tl.load(sizes)
    if HELD:  # transposed as it is read: messages run against the arrows
        arcs = tl.load(transition + state[None, :] * K + state[:, None], mask=real[:, None] & real[None, :], other=0.0)
    inside = (rank < n)[:, None] & real[None, :]
    last = tl.load(lengths + rank, mask=rank < n, other=0) - 1
    closing = tl.load(ends + rank[:, None] * K + state[None, :], mask=inside, other=0.0)
    message = tl.zeros((ROWS, STATES), dtype=tl.float32)
    astray = tl.zeros((ROWS,), dtype=tl.int32)
    longest = tl.load(steps + tl.program_id(0))
    for back in range(longest):
        t = longest - 1 - back
        row = tl.load(offsets + t) + rank
        running = rank < tl.load(sizes + t)
        inside = running[:, None] & real[None, :]
        place = row[:, None] * stride_row + state[None, :] * stride_state
        message = tl.where((last == t)[:, None], closing, message)
        here = tl.load(alpha + place, mask=inside, other=0.0) * message
        norm = tl.where(running, tl.sum(here, 1), 1.0)
        sound = tl.abs(norm - 1.0) <= drift  # False for NaN too
        astray = tl.where(sound, astray, 1)
        tl.store(gamma + place, here / norm[:, None], mask=inside)
        largest = tl.max(tl.where(message == message, message, float("inf")), 1)  # NaN reaches everywhere
        tl.store(reach + row, largest / norm, mask=running)
        divisor = norm * tl.load(scale + row, mask=running, other=1.0)
        there = tl.load(ahead + place, mask=inside, other=0.0) * message / divisor[:, None]
        tl.store(ahead + place, there, mask=inside)
        if HELD:
            product = tl.dot(there, arcs, input_precision=PRECISION)
        else:
            product = _times_bands(
                ahead, row, running, transition, K, 1, K, stride_row, stride_state, ROWS, STATES, BAND, PRECISION
            )
        message = tl.where(running[:, None], product, message)
    inside = (rank < n)[:, None] & real[None, :]
    tl.store(messages + rank[:, None] * K + state[None, :], message, mask=inside)
    tl.store(drifted + rank, astray, mask=rank < n)


def can_run(b: Tensor) -> bool:
    """Whether these kernels are for densities of this precision, number of states and device."""
    return b.is_cuda and b.dtype == torch.float32 and b.shape[1] <= MOST_STATES


def forward(
    transition: Tensor, b: Tensor, starts: Tensor, packing: Packing, alpha: Tensor, scale: Tensor, flush: float
) -> None:
    """Fill beliefs ``alpha`` (N, K), which must lie in memory as ``b`` does, and ``scale`` (N,); see ``recursions.forward``."""
    offsets, sizes, steps, grid = _schedule(packing)
    K, ways = b.shape[1], (b.stride(0), b.stride(1))
    _forward[grid](
        b, starts.contiguous(), transition.contiguous(), alpha, scale, offsets, sizes, steps, K, *ways, flush,
        ROWS=SEQUENCES, STATES=_padded(K), HELD=K <= HELD_STATES, BAND=BAND, PRECISION="tf32x3",
    )  # fmt: skip


def backward(
    transition: Tensor, alpha: Tensor, ahead: Tensor, scale: Tensor, ends: Tensor, gamma: Tensor, packing: Packing,
    drift: float, reach: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As ``recursions.backward``; every step is scaled anew."""
    offsets, sizes, steps, grid = _schedule(packing)
    K, ways, w = ahead.shape[1], (ahead.stride(0), ahead.stride(1)), len(ends)
    messages = ahead.new_empty(w, K)
    drifted = torch.zeros(w, dtype=torch.int32, device=ahead.device)
    lengths = packing.lengths[packing.order]
    _backward[grid](
        alpha, ahead, scale, ends.contiguous(), transition.contiguous(), gamma, messages, drifted,
        torch.empty_like(scale) if reach is None else reach, offsets, sizes, lengths, steps, K, *ways, drift,
        ROWS=SEQUENCES, STATES=_padded(K), HELD=K <= HELD_STATES, BAND=BAND, PRECISION="tf32x3",
    )  # fmt: skip
    return messages, drifted.bool()


def _schedule(packing: Packing) -> tuple[Tensor, Tensor, Tensor, tuple[int]]:
    """First rows and numbers of running sequences at each time, the steps of each program, and the programs."""
    sizes = packing.offsets.diff()
    steps = packing.lengths[packing.order][::SEQUENCES].contiguous()  # longest first
    return packing.offsets, sizes, steps, (len(steps),)


def _padded(n_states: int) -> int:
    return max(16, triton.next_power_of_2(n_states))

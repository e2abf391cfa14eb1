"""The recursions of ``recursions`` as two kernels for a GPU: one program takes some sequences, of like length, from end to end.

Beliefs and messages stay in registers and the transition matrix in shared memory; each frame is read once and written once.
float32 only; products are split in three so that TF32 units give the digits of float32 (``tf32x3``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqmodels.hmm.packing import Packing

SEQUENCES = 16  # of one program: the least that matrix units take
MOST_STATES = 128  # the transition matrix must fit into shared memory


@triton.jit
def _forward(
    b, starts, transition, alpha, scale, offsets, sizes, steps, K, stride_row, stride_state, flush,
    ROWS: tl.constexpr, STATES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rank = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    state = tl.arange(0, STATES)
    real = state < K
    n = tl.load(sizes)
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
        predicted = tl.dot(joint, arcs, input_precision=PRECISION)


@triton.jit
def _backward(
    alpha, ahead, scale, ends, transition, gamma, messages, drifted, reach, offsets, sizes, lengths, steps, K,
    stride_row, stride_state, drift,
    ROWS: tl.constexpr, STATES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rank = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    state = tl.arange(0, STATES)
    real = state < K
    n = tl.load(sizes)
    # Transposed as it is read: messages run against the arrows.
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
        message = tl.where(running[:, None], tl.dot(there, arcs, input_precision=PRECISION), message)
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
        ROWS=SEQUENCES, STATES=_padded(K), PRECISION="tf32x3",
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
        ROWS=SEQUENCES, STATES=_padded(K), PRECISION="tf32x3",
    )  # fmt: skip
    return messages, drifted.bool()


def _schedule(packing: Packing) -> tuple[Tensor, Tensor, Tensor, tuple[int]]:
    """First rows and numbers of running sequences at each time, the steps of each program, and the programs."""
    sizes = packing.offsets.diff()
    steps = packing.lengths[packing.order][::SEQUENCES].contiguous()  # longest first
    return packing.offsets, sizes, steps, (len(steps),)


def _padded(n_states: int) -> int:
    return max(16, triton.next_power_of_2(n_states))

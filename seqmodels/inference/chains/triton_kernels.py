"""The recursions of ``scaled`` as two GPU kernels, each program of which takes some sequences of similar length.

Alpha and beta of one frame stay in registers and the transition matrix in shared memory; each frame is read once and
written once. A matrix too large for shared memory, whose size depends on the device, is read in bands at every step
from the cache that all programs share, and the factor it is multiplied with is read back from global memory. Only
float32; products are split in three so that TF32 units give the digits of float32 (``tf32x3``).

Warps, stages and bands are chosen so that at most a few words of a thread spill from registers to memory, as reported
by the compiler for compute capabilities 7.5 to 12 (tests/inference/chains/test_triton_compilation.py).
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqmodels.inference.chains.packing import Packing

SEQUENCES = 16  # sequences of one program: the least that matrix units take
MOST_SHARED_STATES = 128  # largest number of states whose matrix fits in shared memory
MOST_STATES = 256
MOST_NUMBERS = (1 << 31) - 1  # largest number of densities, because they are numbered in 32 bits
BAND = 16  # rows of a larger matrix that are read together


@triton.jit
def _times_bands(
    factor, row, running, matrix, K, stride_row, stride_state,
    ROWS: tl.constexpr, STATES: tl.constexpr, BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the product of rows of a matrix in memory with the transition matrix, as a tile ``(ROWS, STATES)``.

    The transition matrix ``matrix (K, K)`` is read in bands of ``BAND`` of its rows. ``factor`` points to the other
    factor, whose rows ``row (ROWS,)`` are read where ``running (ROWS,)`` is True.
    """
    state = tl.arange(0, STATES)
    tl.debug_barrier()  # makes writes of the program's other threads visible
    result = tl.zeros((ROWS, STATES), dtype=tl.float32)
    for low in range(0, STATES, BAND):
        band = low + tl.arange(0, BAND)
        cell = row[:, None] * stride_row + band[None, :] * stride_state
        part = tl.load(factor + cell, mask=running[:, None] & (band < K)[None, :], other=0.0)
        rows = tl.load(
            matrix + band[:, None] * K + state[None, :], mask=(band < K)[:, None] & (state < K)[None, :], other=0.0
        )
        result = tl.dot(part, rows, acc=result, input_precision=PRECISION)
    return result


@triton.jit
def _forward(
    b, starts, transition, alpha, scale, offsets, sizes, steps, K, stride_row, stride_state, flush,
    ROWS: tl.constexpr, STATES: tl.constexpr, SHARED: tl.constexpr, BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rank = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    state = tl.arange(0, STATES)
    is_state = state < K
    n = tl.load(sizes)
    if SHARED:
        square = is_state[:, None] & is_state[None, :]
        matrix = tl.load(transition + state[:, None] * K + state[None, :], mask=square, other=0.0)
    mask = (rank < n)[:, None] & is_state[None, :]
    predicted = tl.load(starts + rank[:, None] * K + state[None, :], mask=mask, other=0.0)
    for t in range(tl.load(steps + tl.program_id(0))):
        row = tl.load(offsets + t) + rank
        running = rank < tl.load(sizes + t)
        mask = running[:, None] & is_state[None, :]
        cell = row[:, None] * stride_row + state[None, :] * stride_state
        joint = predicted * tl.load(b + cell, mask=mask, other=0.0)
        total = tl.where(running, tl.sum(joint, 1), 1.0)
        joint = joint / total[:, None]
        joint = tl.where(joint <= flush, 0.0, joint)
        tl.store(alpha + cell, joint, mask=mask)
        tl.store(scale + row, total, mask=running)
        if SHARED:
            predicted = tl.dot(joint, matrix, input_precision=PRECISION)
        else:
            predicted = _times_bands(
                alpha, row, running, transition, K, stride_row, stride_state, ROWS, STATES, BAND, PRECISION
            )


@triton.jit
def _backward(
    alpha, ahead, scale, ends, transposed, gamma, messages, drifted, beta_max, offsets, sizes, lengths, steps, K,
    stride_row, stride_state, drift,
    ROWS: tl.constexpr, STATES: tl.constexpr, SHARED: tl.constexpr, BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rank = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    state = tl.arange(0, STATES)
    is_state = state < K
    n = tl.load(sizes)
    if SHARED:
        square = is_state[:, None] & is_state[None, :]
        matrix = tl.load(transposed + state[:, None] * K + state[None, :], mask=square, other=0.0)
    mask = (rank < n)[:, None] & is_state[None, :]
    last = tl.load(lengths + rank, mask=rank < n, other=0) - 1
    end = tl.load(ends + rank[:, None] * K + state[None, :], mask=mask, other=0.0)
    message = tl.zeros((ROWS, STATES), dtype=tl.float32)
    drifting = tl.zeros((ROWS,), dtype=tl.int32)
    longest = tl.load(steps + tl.program_id(0))
    for step in range(longest):
        t = longest - 1 - step
        row = tl.load(offsets + t) + rank
        running = rank < tl.load(sizes + t)
        mask = running[:, None] & is_state[None, :]
        cell = row[:, None] * stride_row + state[None, :] * stride_state
        message = tl.where((last == t)[:, None], end, message)
        gamma_t = tl.load(alpha + cell, mask=mask, other=0.0) * message
        norm = tl.where(running, tl.sum(gamma_t, 1), 1.0)
        close = tl.abs(norm - 1.0) <= drift  # False for NaN too
        drifting = tl.where(close, drifting, 1)
        tl.store(gamma + cell, gamma_t / norm[:, None], mask=mask)
        largest = tl.max(tl.where(message == message, message, float("inf")), 1)  # NaN reaches everywhere
        tl.store(beta_max + row, largest / norm, mask=running)
        divisor = norm * tl.load(scale + row, mask=running, other=1.0)
        ahead_t = tl.load(ahead + cell, mask=mask, other=0.0) * message / divisor[:, None]
        tl.store(ahead + cell, ahead_t, mask=mask)
        if SHARED:
            product = tl.dot(ahead_t, matrix, input_precision=PRECISION)
        else:
            product = _times_bands(
                ahead, row, running, transposed, K, stride_row, stride_state, ROWS, STATES, BAND, PRECISION
            )
        message = tl.where(running[:, None], product, message)
    mask = (rank < n)[:, None] & is_state[None, :]
    tl.store(messages + rank[:, None] * K + state[None, :], message, mask=mask)
    tl.store(drifted + rank, drifting, mask=rank < n)


def can_run(b: Tensor) -> bool:
    """Return True if the GPU kernels support densities of this precision, number of states and device."""
    return b.is_cuda and b.dtype == torch.float32 and b.shape[1] <= MOST_STATES and b.numel() <= MOST_NUMBERS


def forward(
    transition: Tensor, b: Tensor, packing: Packing, *, starts: Tensor, alpha: Tensor, scale: Tensor, flush: float
) -> None:
    """Run the forward recursion, with probabilities scaled at each step, on packed sequences in a GPU kernel.

    Args:
        transition: transition probabilities, ``(K, K)``.
        b: densities, ``(N, K)`` float32.
        packing: packing of the N rows.
        starts: predicted distributions of first states, ``(w, K)`` by rank (longest first).
        alpha: result, p(z_t | x_<=t), ``(N, K)``, with the memory layout of ``b``.
        scale: result, scaling factors, ``(N,)``.
        flush: values of alpha up to this become zero.
    """
    offsets, sizes, steps, grid = _launch(packing)
    K, strides = b.shape[1], (b.stride(0), b.stride(1))
    with torch.cuda.device_of(b):  # because a kernel is launched on the current device
        _forward[grid](
            b, starts.contiguous(), transition.contiguous(), alpha, scale, offsets, sizes, steps, K, *strides, flush,
            **options(K, shared_memory(b.device)),
        )  # fmt: skip


def backward(
    transition: Tensor, ahead: Tensor, packing: Packing, *, alpha: Tensor, scale: Tensor, ends: Tensor, gamma: Tensor,
    drift: float, beta_max: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Run the backward recursion, with messages scaled at each step, on packed sequences in a GPU kernel.

    Args:
        transition: transition probabilities, ``(K, K)``.
        ahead: the densities b, ``(N, K)``, which are replaced by b beta / c.
        packing: packing of the N rows.
        alpha, scale: results of ``forward``.
        ends: backward messages beta at last frames, ``(w, K)`` by rank (longest first).
        gamma: result, p(z_t | x), ``(N, K)``.
        drift: accepted deviation from one of the sum of a row of gamma.
        beta_max: filled with the largest beta of each frame, ``(N,)``; None if it is not needed.

    Returns:
        Beta before first frames, ``(w, K)`` by rank, and True for each sequence with a row of gamma that drifted from a
        sum of one, ``(w,)``.
    """
    offsets, sizes, steps, grid = _launch(packing)
    K, strides, w = ahead.shape[1], (ahead.stride(0), ahead.stride(1)), len(ends)
    messages = ahead.new_empty(w, K)
    drifted = torch.zeros(w, dtype=torch.int32, device=ahead.device)
    lengths = packing.lengths[packing.order]
    with torch.cuda.device_of(ahead):
        _backward[grid](
            alpha, ahead, scale, ends.contiguous(), transition.T.contiguous(), gamma, messages, drifted,
            torch.empty_like(scale) if beta_max is None else beta_max, offsets, sizes, lengths, steps, K, *strides,
            drift, **options(K, shared_memory(ahead.device)),
        )  # fmt: skip
    return messages, drifted.bool()


def _launch(packing: Packing) -> tuple[Tensor, Tensor, Tensor, tuple[int]]:
    """Return the first row and number of sequences of each time, the steps of each program, and the grid."""
    sizes = packing.offsets.diff()
    steps = packing.lengths[packing.order][::SEQUENCES].contiguous()  # longest first
    return packing.offsets, sizes, steps, (len(steps),)


def options(n_states: int, memory: int) -> dict[str, Any]:
    """Return the compile-time options of the forward and backward GPU kernels for ``n_states`` states.

    ``memory`` is the shared memory of one program on the device, in bytes.
    """
    states = max(16, int(triton.next_power_of_2(n_states)))
    # Shared memory holds a matrix in two parts of TF32, four tiles of rows, and some sums.
    is_shared = states <= MOST_SHARED_STATES and 4 * (2 * states + 4 * SEQUENCES) * states + 1024 <= memory
    return {
        "ROWS": SEQUENCES,
        "STATES": states,
        "SHARED": is_shared,
        "BAND": BAND,
        "PRECISION": "tf32x3",
        "num_warps": 4 if states <= 64 else 8,
        "num_stages": 3,
    }


@cache
def shared_memory(device: torch.device) -> int:
    """Return the shared memory in bytes of one program on ``device``; Triton's interpreter has no limit."""
    if device.type != "cuda":
        return sys.maxsize
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    return int(properties["max_shared_mem"])

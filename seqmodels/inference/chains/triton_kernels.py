"""The recursions of ``scaled`` as two kernels for a GPU: one program takes some sequences, of like length, end to end.

Alpha and beta of one frame stay in registers and the transition matrix in shared memory; each frame is read once and
written once. A matrix too large for that, which depends on the device, is read in bands at every step, from the cache
that all programs share, and the factor it is multiplied with is read back from where it was written. float32 only;
products are split in three so that TF32 units give the digits of float32 (``tf32x3``).

Warps, stages and bands are such that nothing, or some words of a thread, spills from registers to memory, as the
compiler says it for compute capabilities 7.5 to 12 (tests/inference/chains/test_triton_compilation.py).
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

SEQUENCES = 16  # of one program: the least that matrix units take
MOST_SHARED_STATES = 128  # of a transition matrix that registers can take from shared memory
MOST_STATES = 256
MOST_NUMBERS = (1 << 31) - 1  # places of densities, which are numbered in 32 bits; a batch has more if a sequence has
BAND = 16  # rows of a larger one that are read at once


@triton.jit
def _times_bands(
    factor, row, running, matrix, K, stride_row, stride_state,
    ROWS: tl.constexpr, STATES: tl.constexpr, BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(ROWS, STATES): rows at ``factor`` in memory times the (K, K) ``matrix``, whose rows are read as they lie."""
    state = tl.arange(0, STATES)
    tl.debug_barrier()  # what other threads of this program have written is seen
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
    """Whether these kernels are for densities of this precision, number and device."""
    return b.is_cuda and b.dtype == torch.float32 and b.shape[1] <= MOST_STATES and b.numel() <= MOST_NUMBERS


def forward(
    transition: Tensor, b: Tensor, packing: Packing, *, starts: Tensor, alpha: Tensor, scale: Tensor, flush: float
) -> None:
    """As ``scaled.forward_recursion``, into ``alpha`` (N, K), in memory as ``b`` is, and ``scale`` (N,)."""
    offsets, sizes, steps, grid = _launch(packing)
    K, strides = b.shape[1], (b.stride(0), b.stride(1))
    with torch.cuda.device_of(b):  # a kernel is launched on the current device
        _forward[grid](
            b, starts.contiguous(), transition.contiguous(), alpha, scale, offsets, sizes, steps, K, *strides, flush,
            **options(K, shared_memory(b.device)),
        )  # fmt: skip


def backward(
    transition: Tensor, ahead: Tensor, packing: Packing, *, alpha: Tensor, scale: Tensor, ends: Tensor, gamma: Tensor,
    drift: float, beta_max: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As ``scaled.backward_recursion``: ``ahead`` (N, K) is b before and b beta / c after; each step is scaled anew."""
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
    """First rows and numbers of running sequences at each time, the steps of each program, and the grid of programs."""
    sizes = packing.offsets.diff()
    steps = packing.lengths[packing.order][::SEQUENCES].contiguous()  # longest first
    return packing.offsets, sizes, steps, (len(steps),)


def options(n_states: int, memory: int) -> dict[str, Any]:
    """Of both kernels, for a device whose programs have ``memory`` bytes of shared memory each."""
    states = max(16, int(triton.next_power_of_2(n_states)))
    # A matrix in two parts of TF32, four tiles of rows, and a little for sums.
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
    """Bytes that one program may have on this device; of the interpreter, as many as it likes."""
    if device.type != "cuda":
        return sys.maxsize
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    return int(properties["max_shared_mem"])

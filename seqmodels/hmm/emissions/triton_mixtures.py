"""Sums over the components of mixtures in one GPU kernel, which reads each density once and writes it once.

Separate tensor operations would pass over memory eight times, and these densities are by far the largest array of an
E-step.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_COMPONENTS = 64  # most components of a state
TILE = 2048  # densities that one program sums
WARPS = 4


@triton.jit
def _sum_up(
    components, exponent, factor, M, K, n, stride, smallest,
    COMPONENTS: tl.constexpr, FRAMES: tl.constexpr,
):  # fmt: skip
    frame = tl.program_id(0).to(tl.int64) * FRAMES + tl.arange(0, FRAMES)
    state = tl.program_id(1).to(tl.int64)
    component = tl.arange(0, COMPONENTS)
    is_frame = frame < n
    mask = (component < M)[:, None] & is_frame[None, :]
    cell = (component[:, None] * K + state) * n + frame[None, :]
    values = tl.load(components + cell, mask=mask, other=float("-inf"))
    peak = tl.max(values, 0)
    shift = tl.where(peak == float("-inf"), 0.0, peak)  # because -inf - -inf is NaN: no component explains such a frame
    scaled = tl.maximum(values - shift[None, :], smallest, propagate_nan=tl.PropagateNan.ALL)
    scaled = tl.where(mask, tl.exp2(scaled), 0.0)
    tl.store(components + cell, scaled, mask=mask)
    tl.store(exponent + state * stride + frame, peak, mask=is_frame)
    tl.store(factor + state * stride + frame, tl.sum(scaled, 0), mask=is_frame)


def can_run(components: Tensor, exponent: Tensor) -> bool:
    """Return True if the GPU kernel of ``sum_up`` supports the device, precision, layout and number of ``components (M,
    K, n)``.
    """
    return (
        components.is_cuda
        and components.dtype == exponent.dtype
        and len(components) <= MOST_COMPONENTS
        and components.is_contiguous()
    )


def sum_up(components: Tensor, exponent: Tensor, factor: Tensor, smallest: float) -> None:
    """Sum the densities of M weighted mixture components in each of K states and n frames, on a GPU, in place.

    Args:
        components: log2 of weight times density, ``(M, K, n)``; overwritten by the densities over the largest of each
            state and frame.
        exponent: filled with the log2 of that largest, ``(K, n)``, with frames adjacent in memory.
        factor: filled with the sum over components of the new ``components``, ``(K, n)``, in the same layout.
        smallest: components count as at least ``2^smallest`` times the largest.
    """
    m, k, n = components.shape
    size = max(2, int(triton.next_power_of_2(m)))
    with torch.cuda.device_of(components):  # a kernel is launched on the current device
        _sum_up[(triton.cdiv(n, TILE // size), k)](
            components, exponent, factor, m, k, n, exponent.stride(0), smallest,
            COMPONENTS=size, FRAMES=TILE // size, num_warps=WARPS,
        )  # fmt: skip

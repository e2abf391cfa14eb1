"""Softmax of logits on a GPU as one kernel, which reads each row once from memory and writes it once.

As single operations, some of them in a wider dtype, it would take eight passes over what is by far the largest array of
a training step with a large vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 4096  # number of columns of a row that are read together
WARPS = 8


@triton.jit
def _softmax_rows(
    logits, bias, target, result, stride, V: tl.constexpr, P: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride
    column = tl.arange(0, COLUMNS)
    peak = tl.full((COLUMNS,), float("-inf"), dtype=tl.float32)  # largest of each lane; ``total`` is relative to it
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for first in range(0, V, COLUMNS):
        at = first + column
        is_symbol = at < V
        values = tl.load(start + at, mask=is_symbol, other=float("-inf")).to(tl.float32)
        values += tl.load(bias + at, mask=is_symbol, other=0.0)
        higher = tl.maximum(peak, values, propagate_nan=tl.PropagateNan.ALL)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - shift) + tl.exp(values - shift)
        peak = higher
    largest = tl.max(peak, 0)
    norm = tl.sum(total * tl.exp(peak - largest), 0)
    y = tl.load(target + row)
    of_target = tl.load(start + y).to(tl.float32) + tl.load(bias + y)
    tl.store(result + row, of_target - largest - tl.log(norm))
    tl.debug_barrier()  # so that the target's logit is read before it is overwritten
    for first in range(0, P, COLUMNS):
        at = first + column
        is_symbol = at < V
        values = tl.load(start + at, mask=is_symbol, other=float("-inf")).to(tl.float32)
        values += tl.load(bias + at, mask=is_symbol, other=0.0)
        tl.store(start + at, tl.exp(values - largest) / norm, mask=at < P)


def softmax_rows(logits: Tensor, bias: Tensor, target: Tensor) -> Tensor:
    """Replace ``logits`` by probabilities in place, and return the log-probability of each target, ``(N,)`` nats.

    Args:
        logits: logits without bias of N rows, ``(N, P)`` in any dtype; the first V columns are symbols, and the others
            become zeros.
        bias: bias of each symbol, ``(V,)`` float32.
        target: target of each row, ``(N,)`` integers below V.
    """
    n, width = logits.shape
    result = torch.empty(n, dtype=torch.float32, device=logits.device)
    with torch.cuda.device_of(logits):  # because a kernel is launched on the current device
        _softmax_rows[(n,)](
            logits, bias, target, result, logits.stride(0), V=len(bias), P=width, COLUMNS=COLUMNS, num_warps=WARPS
        )
    return result

"""A compiled softmax over rows of logits, which also gives the log-probability of each row's target.

Rows are processed one at a time, in one pass, so that they stay in the nearest cache. Import this module where it is
first needed, because it loads numba.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.neural.ops.kernel_math import array, exponential, narrowed, widened

LANES = 64  # number of partial maxima, which stay in vector registers


def softmax_rows(logits: Tensor, bias: Tensor, target: Tensor) -> Tensor:
    """Replace ``logits`` by probabilities in place, and return the log-probabilities of the targets, ``(N,)`` float32.

    They are in nats. Rows are shared among as many threads as torch uses.

    Args:
        logits: logits without bias of N rows and V symbols, ``(N, V)`` float32 or bfloat16, contiguous, on the CPU.
        bias: bias of each symbol, ``(V,)`` float32.
        target: target of each row, ``(N,)`` integers below V.
    """
    result = torch.empty(len(logits))
    rows, of_target, log_probs, b = array(logits), array(target.contiguous()), array(result), array(bias.contiguous())
    n_parts = min(torch.get_num_threads(), len(logits))
    if n_parts <= 1:
        _softmax_rows(rows, b, of_target, log_probs)
        return result
    bounds = [len(logits) * k // n_parts for k in range(n_parts + 1)]
    with ThreadPoolExecutor(n_parts) as pool:
        parts = [slice(*pair) for pair in pairwise(bounds)]
        list(pool.map(lambda part: _softmax_rows(rows[part], b, of_target[part], log_probs[part]), parts))
    return result


@compiled(any_order=True)
def _softmax_rows(logits: np.ndarray, bias: np.ndarray, target: np.ndarray, result: np.ndarray) -> None:
    n_rows, n_symbols = logits.shape
    in_lanes = n_symbols - n_symbols % LANES
    x, lanes = np.empty(n_symbols, np.float32), np.empty(LANES, np.float32)
    for r in range(n_rows):
        row = logits[r]
        for i in range(n_symbols):
            x[i] = widened(row[i]) + bias[i]
        lanes[:] = x[0]
        for start in range(0, in_lanes, LANES):
            part = x[start : start + LANES]
            for i in range(LANES):
                lanes[i] = part[i] if part[i] > lanes[i] else lanes[i]
        largest = x[0]
        for i in range(LANES):
            largest = lanes[i] if lanes[i] > largest else largest
        for i in range(in_lanes, n_symbols):
            largest = x[i] if x[i] > largest else largest
        log_p, total = x[target[r]] - largest, np.float32(0)
        for i in range(n_symbols):
            x[i] = exponential(x[i] - largest)
            total += x[i]
        result[r] = log_p - np.float32(math.log(total))
        scale = np.float32(1) / total
        for i in range(n_symbols):
            row[i] = narrowed(x[i] * scale, row[i])

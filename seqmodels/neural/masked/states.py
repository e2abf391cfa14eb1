"""What a bidirectional model makes of every step of a sequence, however long: hidden states by overlapping windows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from seqmodels.neural.batches import windows
from seqmodels.neural.masked.bidirectional import BidirectionalModule, batches, pad
from seqmodels.neural.masked.pseudo import STEPS_AT_ONCE


@torch.no_grad()
def hidden_states(module: BidirectionalModule, rows: list[np.ndarray], max_length: int, layer: int) -> list[np.ndarray]:
    """For each row of symbols and marks (T,) its states (T, d) after ``layer`` blocks, in the module's dtype.

    Rows longer than ``max_length`` are read in windows that overlap by half; a step's state is that of the window in
    which it stands nearer the middle.
    """
    device, d_model = module.head.weight.device, module.embedding.embedding_dim
    dtype = torch.empty(0, dtype=module.head.weight.dtype).numpy().dtype
    results = [np.zeros((len(row), d_model), dtype=dtype) for row in rows]
    jobs = [(i, *window) for i, row in enumerate(rows) for window in central_windows(len(row), max_length)]
    for batch in batches([end - begin for _, begin, end, _, _ in jobs], STEPS_AT_ONCE):
        chosen = [jobs[j] for j in batch]
        states = module.layer_states(*pad([rows[i][begin:end] for i, begin, end, _, _ in chosen], device), layer)
        for (i, begin, _, first, last), found in zip(chosen, states.cpu().numpy(), strict=True):
            results[i][first:last] = found[first - begin : last - begin]
    return results


def central_windows(n: int, length: int) -> list[tuple[int, int, int, int]]:
    """``(begin, end, first, last)``: windows that overlap by half, and the steps ``first .. last - 1`` each answers for.

    >>> central_windows(10, 4)
    [(0, 4, 0, 3), (2, 6, 3, 5), (4, 8, 5, 7), (6, 10, 7, 10)]
    """
    spans = [(begin, end) for begin, end, _ in windows(n, length)]
    cuts = [0, *((end + begin) // 2 for (_, end), (begin, _) in pairwise(spans)), n]
    return [(*span, *cut) for span, cut in zip(spans, pairwise(cuts), strict=True)]

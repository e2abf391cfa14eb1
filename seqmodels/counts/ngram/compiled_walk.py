"""The probability of one event in one context, as a walk up the orders in machine code."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.ngram.events import NONE

LevelArrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@compiled
def probability(levels: tuple[LevelArrays, ...], recent: np.ndarray, event: int, base: int, uniform: float) -> float:
    """Return what ``Tables.probability`` gives ``event`` after the symbols ``recent (k,)``, oldest first.

    Args:
        levels: of each order contexts, grams, backoff and share.
        base: V + 1.
        uniform: the probability of each event below the first order.
    """
    p, context = uniform, 0
    for k in range(len(levels)):
        contexts, grams, backoff, share = levels[k]
        if k > 0:
            context = _find(contexts, context * base + recent[len(recent) - k]) if k <= len(recent) else NONE
        if context == NONE:  # and all longer ones
            break
        gram = _find(grams, context * base + event)
        p = (share[gram] if gram != NONE else 0.0) + backoff[context] * p
    return p


@compiled
def _find(table: np.ndarray, code: int) -> int:
    row = np.searchsorted(table, code)
    return int(row) if row < len(table) and table[row] == code else NONE

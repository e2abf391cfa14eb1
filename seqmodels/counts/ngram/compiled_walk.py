"""A compiled lookup of the probability of one event in one context."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.ngram.events import NONE

LevelArrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@compiled
def probability(levels: tuple[LevelArrays, ...], recent: np.ndarray, event: int, base: int, uniform: float) -> float:
    """Return the probability of one event after given symbols, interpolated over all orders of an n-gram model.

    It computes what ``Tables.probability`` does in NumPy. V is the number of symbols.

    Args:
        levels: for each length of context from 0 on, the arrays ``contexts``, ``grams``, ``backoff`` and ``share`` of
            its ``Level``: sorted codes of contexts, sorted codes of n-grams, weight that each context leaves to shorter
            ones, and probability of each n-gram's event.
        recent: last symbols, oldest first, ``(k,)``.
        event: symbol, or V for the end of the sequence.
        base: V + 1.
        uniform: probability of each event under the uniform distribution below the first order.
    """
    p, context = uniform, 0
    for k in range(len(levels)):
        contexts, grams, backoff, share = levels[k]
        if k > 0:
            context = _find(contexts, context * base + recent[len(recent) - k]) if k <= len(recent) else NONE
        if context == NONE:  # longer contexts were not seen either
            break
        gram = _find(grams, context * base + event)
        p = (share[gram] if gram != NONE else 0.0) + backoff[context] * p
    return p


@compiled(inner=True)
def _find(table: np.ndarray, code: int) -> int:
    row = np.searchsorted(table, code)
    return int(row) if row < len(table) and table[row] == code else NONE

"""How often each symbol followed each context: one sorted table for each length of context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from seqmodels.ngram.events import NONE, Events


@dataclass(frozen=True)
class Counts:
    """All contexts of one length, and all n-grams: a context and what followed it.

    Both are coded by what is one shorter, so that no code outgrows 64 bits whatever the order. The parent of a context
    is the context without its oldest symbol, and its id its row in the table of its length: a context is coded as
    ``id of its parent * (V + 1) + oldest symbol``, a gram as ``id of its context * (V + 1) + event``.

    Args:
        contexts: ``(C,)`` sorted codes; the row is the id.
        grams: ``(G,)`` sorted codes.
        counts: ``(G,)`` how often; the sum of weights.
        continuation_counts: ``(G,)`` before how many different older symbols (Kneser & Ney 1995); ``counts`` where
            there can be none, in the longest contexts and in those that reach back to the start.
    """

    contexts: np.ndarray
    grams: np.ndarray
    counts: np.ndarray
    continuation_counts: np.ndarray

    def context_ids(self, base: int) -> np.ndarray:
        """``(G,)`` the id of each gram's context; ``base`` is V + 1."""
        return self.grams // base


@dataclass(frozen=True)
class _Level:
    counts: Counts
    shorter: np.ndarray  # (G,) the row, in the table of contexts one shorter, of the gram without its oldest symbol
    starts: np.ndarray  # (G,) bool: the context reaches back to the start


def count(events: Events, order: int, size: int) -> list[Counts]:
    """Tables for contexts of 0, 1, .. ``order - 1`` symbols; fewer where no sequence is long enough."""
    levels = list(islice(_levels(events, size + 1), order))
    tables = [level.counts for level in levels]
    for i, longer in enumerate(levels[1:]):
        n_older = np.bincount(longer.shorter, minlength=len(tables[i].grams))
        tables[i] = replace(tables[i], continuation_counts=np.where(levels[i].starts, tables[i].counts, n_older))
    return tables


def _levels(events: Events, base: int) -> Iterator[_Level]:
    rows = np.arange(len(events.event))  # of the events that have so long a context
    context_id = shorter = np.zeros(len(rows), np.int64)  # of their contexts; of their grams one shorter
    contexts = np.zeros(1, np.int64)  # the empty one
    older = events.contexts()
    while True:
        codes = context_id * base + events.event[rows]
        grams, first, gram = np.unique(codes, return_index=True, return_inverse=True)
        counts = np.bincount(gram, events.weight[rows])
        starts = contexts[grams // base] % base == base - 1  # the oldest symbol is the start
        yield _Level(Counts(contexts, grams, counts, counts), shorter[first], starts)
        symbol = next(older)[rows]
        has_longer = symbol != NONE
        if not has_longer.any():
            return
        rows, shorter = rows[has_longer], gram[has_longer]
        contexts, context_id = np.unique(context_id[has_longer] * base + symbol[has_longer], return_inverse=True)

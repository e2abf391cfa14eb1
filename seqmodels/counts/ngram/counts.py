"""How often each symbol followed each context: one sorted table for each length of context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np

from seqmodels.counts.ngram.events import NONE


class CountableEvents(Protocol):
    """N events and their weights; ``contexts`` gives the symbol before each, the one before that, and so on."""

    @property
    def event(self) -> np.ndarray: ...
    @property
    def weight(self) -> np.ndarray: ...
    def contexts(self) -> Iterator[np.ndarray]: ...


@dataclass(frozen=True)
class Totals:
    """Of all grams, also of those that are left out of a table; of the counts that a smoothing goes by.

    Args:
        sums: ``(C,)`` of the counts of each context.
        n_types: ``(C,)`` different grams of each.
        n_of_counts: ``(4,)`` grams whose count is 1, 2, 3, 4.
    """

    sums: np.ndarray
    n_types: np.ndarray
    n_of_counts: np.ndarray

    @classmethod
    def of(cls, table: Counts, counts: np.ndarray, base: int) -> Totals:
        """Of the grams of a table, and their ``counts (G,)``."""
        context, n = table.context_ids(base), len(table.contexts)
        return cls(np.bincount(context, counts, n), np.bincount(context, minlength=n), n_of_counts(counts))

    def take(self, contexts: np.ndarray) -> Totals:
        """The totals of ``contexts``, in this order."""
        return Totals(self.sums[contexts], self.n_types[contexts], self.n_of_counts)


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
        totals: where some grams are left out; None: all are here.
    """

    contexts: np.ndarray
    grams: np.ndarray
    counts: np.ndarray
    continuation_counts: np.ndarray
    totals: Totals | None = None

    def context_ids(self, base: int) -> np.ndarray:
        """``(G,)`` the id of each gram's context; ``base`` is V + 1."""
        return self.grams // base


def n_of_counts(counts: np.ndarray) -> np.ndarray:
    """``(4,)`` how many are 1, 2, 3, 4."""
    return np.bincount(np.minimum(counts, 5).astype(np.int64), minlength=6)[1:5]


@dataclass(frozen=True)
class _Level:
    counts: Counts
    shorter: np.ndarray  # (G,) the row, in the table of contexts one shorter, of the gram without its oldest symbol
    starts: np.ndarray  # (G,) bool: the context reaches back to the start


def count(events: CountableEvents, order: int, size: int) -> list[Counts]:
    """Tables for contexts of 0, 1, .. ``order - 1`` symbols; fewer where no sequence is long enough."""
    levels = list(islice(_levels(events, size + 1), order))
    tables = [level.counts for level in levels]
    for i, longer in enumerate(levels[1:]):
        n_older = np.bincount(longer.shorter, minlength=len(tables[i].grams))
        tables[i] = replace(tables[i], continuation_counts=np.where(levels[i].starts, tables[i].counts, n_older))
    return tables


def _levels(events: CountableEvents, base: int) -> Iterator[_Level]:
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

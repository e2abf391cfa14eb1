"""Counts of how often each symbol followed each context, in one sorted table for each length of context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np

from seqmodels.counts.ngram.events import NONE


class CountableEvents(Protocol):
    """A protocol of N events to count, each a symbol or the end of a sequence, with a weight and the symbols before it.

    ``event`` and ``weight`` are arrays ``(N,)``. ``contexts`` yields the symbol before each event ``(N,)``, then the
    one before that, and so on; -1 before the start of a sequence.
    """

    @property
    def event(self) -> np.ndarray: ...
    @property
    def weight(self) -> np.ndarray: ...
    def contexts(self) -> Iterator[np.ndarray]: ...


@dataclass(frozen=True)
class Totals:
    """Totals of the counts of all n-grams of each context, including those left out of the table of counts.

    C is the number of contexts. The counts are those that the smoothing uses.

    Args:
        sums: sum of the counts of each context, ``(C,)``.
        n_types: number of different n-grams of each context, ``(C,)``.
        n_of_counts: numbers of n-grams with count 1, 2, 3, 4, ``(4,)``.
    """

    sums: np.ndarray
    n_types: np.ndarray
    n_of_counts: np.ndarray

    @classmethod
    def of(cls, table: Counts, counts: np.ndarray, base: int) -> Totals:
        """Return the totals of the counts of all n-grams of one order.

        Args:
            table: the G n-grams, with the context of each.
            counts: count of each n-gram that the smoothing uses, ``(G,)``.
            base: number of symbols plus one, V + 1.
        """
        context, n = table.context_ids(base), len(table.contexts)
        return cls(np.bincount(context, counts, n), np.bincount(context, minlength=n), n_of_counts(counts))

    def take(self, contexts: np.ndarray) -> Totals:
        return Totals(self.sums[contexts], self.n_types[contexts], self.n_of_counts)


@dataclass(frozen=True)
class Counts:
    """The counts of all n-grams of one order: C contexts of one length, and G n-grams of a context and an event.

    An event is a symbol or, with the code V, the end of a sequence; V, the number of symbols, is in contexts the start.
    Both tables are coded by means of the next shorter context, so that codes fit into 64 bits for any order. The parent
    of a context is the context without its oldest symbol, and the id of a context is its row in the table. A context is
    coded as ``id of its parent * (V + 1) + oldest symbol``, an n-gram as ``id of its context * (V + 1) + event``.

    Args:
        contexts: sorted codes of the contexts, ``(C,)``; the row is the id.
        grams: sorted codes of the n-grams, ``(G,)``.
        counts: how often each n-gram occurred, as a sum of weights, ``(G,)``.
        continuation_counts: number of different symbols that precede each n-gram, ``(G,)`` (Kneser and Ney 1995); equal
            to ``counts`` for the longest contexts and for those that reach back to the start, which nothing precedes.
        totals: totals of all n-grams if some are left out of the table; None if all are in it.
    """

    contexts: np.ndarray
    grams: np.ndarray
    counts: np.ndarray
    continuation_counts: np.ndarray
    totals: Totals | None = None

    def context_ids(self, base: int) -> np.ndarray:
        """Return the id (row in ``contexts``) of each n-gram's context, ``(G,)``.

        Args:
            base: number of symbols plus one, V + 1.
        """
        return self.grams // base


def n_of_counts(counts: np.ndarray) -> np.ndarray:
    """Return how many of the counts of G n-grams, ``counts (G,)``, are 1, 2, 3 and 4, as an array ``(4,)``."""
    return np.bincount(np.minimum(counts, 5).astype(np.int64), minlength=6)[1:5]


@dataclass(frozen=True)
class _Level:
    counts: Counts
    shorter: np.ndarray  # (G,) the row, in the table of contexts one shorter, of the gram without its oldest symbol
    starts: np.ndarray  # (G,) bool: the context reaches back to the start


def count(events: CountableEvents, order: int, size: int) -> list[Counts]:
    """Count n-grams, and return one table for each length of context from 0 to ``order - 1``.

    There are fewer tables if no sequence is long enough.

    Args:
        events: the events (symbols and ends) with the symbols before each.
        order: length of the longest n-grams.
        size: number of symbols V.
    """
    levels = list(islice(_levels(events, size + 1), order))
    tables = [level.counts for level in levels]
    for i, longer in enumerate(levels[1:]):
        n_older = np.bincount(longer.shorter, minlength=len(tables[i].grams))
        tables[i] = replace(tables[i], continuation_counts=np.where(levels[i].starts, tables[i].counts, n_older))
    return tables


def _levels(events: CountableEvents, base: int) -> Iterator[_Level]:
    rows = np.arange(len(events.event))  # indices of the events that have such a long context
    context_id = shorter = np.zeros(len(rows), np.int64)  # ids of their contexts and of their shorter grams
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

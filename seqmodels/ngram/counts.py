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

    Both are coded by what is one shorter, so that no code outgrows 64 bits whatever the order: a context is
    ``place of its newer symbols in the table before * (V + 1) + oldest symbol``, a gram ``place of the context * (V + 1) + event``.

    Args:
        contexts: ``(C,)`` sorted codes.
        grams: ``(G,)`` sorted codes.
        counts: ``(G,)`` how often; the sum of weights.
        n_kinds: ``(G,)`` before how many different older symbols (Kneser-Ney's continuation count); ``counts`` where there
            can be none, in the longest contexts and in those that reach back to the start.
    """

    contexts: np.ndarray
    grams: np.ndarray
    counts: np.ndarray
    n_kinds: np.ndarray

    def context_of(self, base: int) -> np.ndarray:
        """``(G,)`` the place of each gram's context; ``base`` is V + 1."""
        return self.grams // base


@dataclass(frozen=True)
class _Level:
    counts: Counts
    shorter: np.ndarray  # (G,) the place, in the table before, of the gram without its oldest symbol
    starts: np.ndarray  # (G,) bool: the context reaches back to the start


def count(events: Events, order: int, size: int) -> list[Counts]:
    """Tables for contexts of 0, 1, .. ``order - 1`` symbols; fewer where no sequence is long enough."""
    levels = list(islice(_levels(events, size + 1), order))
    tables = [level.counts for level in levels]
    for i, longer in enumerate(levels[1:]):
        kinds = np.bincount(longer.shorter, minlength=len(tables[i].grams))
        tables[i] = replace(tables[i], n_kinds=np.where(levels[i].starts, tables[i].counts, kinds))
    return tables


def _levels(events: Events, base: int) -> Iterator[_Level]:
    alive = np.arange(len(events.event))  # the events that have so long a context
    place = shorter = np.zeros(len(alive), np.int64)  # of their contexts; of their grams in the table before
    contexts = np.zeros(1, np.int64)  # the empty one
    older = events.contexts()
    while True:
        grams, at, now = np.unique(place * base + events.event[alive], return_index=True, return_inverse=True)
        counts = np.bincount(now, events.weight[alive])
        starts = contexts[grams // base] % base == base - 1  # the oldest symbol is the start
        yield _Level(Counts(contexts, grams, counts, counts), shorter[at], starts)
        symbol = next(older)[alive]
        going = symbol != NONE
        if not going.any():
            return
        alive, shorter = alive[going], now[going]
        contexts, place = np.unique(place[going] * base + symbol[going], return_inverse=True)

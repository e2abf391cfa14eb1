"""Counts within the sequence that is read, before each event: for whole sequences, and one step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from seqmodels.counts.base import ReadHistory, StepLearner
from seqmodels.counts.ngram.events import NONE, Events


@dataclass(frozen=True)
class ReadCounts:
    """The counts of what followed the context of each of N events before, within its sequence, for one context length.

    V is the number of symbols; an event is a symbol or the end.

    Args:
        total: how often the context of each event occurred before, ``(N,)``.
        types: number of different events that followed the context before, ``(N,)``.
        of_event: how often each event followed its context before, ``(N,)``; or the counts of all events, ``(N, V +
            1)``.
    """

    total: np.ndarray
    types: np.ndarray
    of_event: np.ndarray


def read_counts(events: Events, order: int, base: int) -> Iterator[ReadCounts]:
    """Yield the counts within the sequence before each event, for contexts of 0 to ``order - 1`` symbols.

    Args:
        events: the events (symbols and ends) of several sequences.
        order: number of lengths of context.
        base: number of symbols plus one, V + 1.
    """
    contexts = np.repeat(np.arange(len(events.lengths)), events.lengths)  # the empty one of each sequence
    for k, symbols in enumerate(islice(events.contexts(), order)):
        is_context = contexts != NONE
        total, of_event = (np.zeros(len(contexts), np.int64) for _ in range(2))
        types = np.zeros(len(contexts), np.int64)
        rows = np.flatnonzero(is_context)
        of_event[rows] = _n_before(contexts[rows] * base + events.event[rows])
        total[rows], types[rows] = _n_and_sum_before(contexts[rows], of_event[rows] == 0)
        yield ReadCounts(total, types, of_event)
        if k == order - 1:
            return
        codes = np.where(is_context & (symbols != NONE), contexts * base + symbols, NONE)
        _, contexts = np.unique(codes, return_inverse=True)
        contexts = np.where(codes == NONE, NONE, contexts)


def _n_before(codes: np.ndarray) -> np.ndarray:
    """Return for each of ``codes (N,)`` how often an equal one occurred earlier, ``(N,)``."""
    return _n_and_sum_before(codes, np.zeros(len(codes), np.bool_))[0]


def _n_and_sum_before(codes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each of N codes occurred earlier, and the sum of ``values`` where it did, both ``(N,)``.

    Args:
        codes: the codes, ``(N,)``.
        values: number to sum at each code, ``(N,)``.
    """
    order = np.argsort(codes, kind="stable")
    ordered, sums = codes[order], np.cumsum(values[order]) - values[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(codes)]
    first = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    n, total = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    n[order] = np.arange(len(codes)) - first[group]
    total[order] = sums - sums[first][group]
    return n, total


Key = tuple[int, ...]  # a context, the last symbol first


@dataclass(eq=False)
class CountLearner(StepLearner):
    """The counts of one sequence: how often each event followed each context of up to ``order - 1`` symbols.

    An event is a symbol or, with the code V (the number of symbols), the end.

    Args:
        order: length of the longest n-grams.
        base: number of symbols plus one, V + 1.
        counts: count of each event by context, a tuple of symbols with the last one first.
    """

    order: int
    base: int  # V + 1
    counts: dict[Key, dict[int, int]] = field(default_factory=dict)

    def clear(self) -> None:
        self.counts = {}

    def learn_event(self, before: ReadHistory, event: int) -> tuple[list[Key], int]:
        keys = self._contexts(before)
        for key in keys:
            after = self.counts.setdefault(key, {})
            after[event] = after.get(event, 0) + 1
        return keys, event

    def undo_event(self, step: tuple[list[Key], int]) -> None:
        keys, event = step
        for key in keys:
            after = self.counts[key]
            after[event] -= 1
            if not after[event]:
                del after[event]

    def copy(self) -> CountLearner:
        counts = {key: {**after} for key, after in self.counts.items()}
        return CountLearner(self.is_adaptive, self.order, self.base, counts)

    def predict(self, history: ReadHistory) -> np.ndarray:
        """Return how often each event followed the contexts that ``history`` ends with, ``(order, V + 1)``.

        Row k is the context of k symbols, and column V, the number of symbols, is the end.
        """
        table = np.zeros((self.order, self.base))
        for k, key in enumerate(self._contexts(history)):
            for event, count in self.counts.get(key, {}).items():
                table[k, event] = count
        return table

    def _contexts(self, history: ReadHistory) -> list[Key]:
        symbols = history.recent[::-1].tolist()
        return [tuple(symbols[:k]) for k in range(min(self.order, len(symbols) + 1))]

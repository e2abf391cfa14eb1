"""Counts of n-grams on disk in bounded memory: events are divided by the symbol before them, and each part is counted.

All contexts that end in the same symbol belong to one part, so a part can be counted by itself in memory. Only one part
is in memory at a time, besides the results of the others. If n-grams of two or more symbols (strings) would be more
than ``max_strings`` in all, the rarest are left out by raising ``min_count``. Totals of contexts, and the counts of
counts from which discounts are estimated, are computed from all strings, whatever is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from seqmodels.counts.ngram.counts import Counts, Totals, count
from seqmodels.counts.ngram.events import NONE
from seqmodels.counts.ngram.smoothing import Smoothing, used_counts
from seqmodels.counts.ngram.stream_counts import EVENTS_AT_ONCE, EventStream, in_blocks, packed_counts, packs
from seqmodels.sequences.mapped import MappedArray

EVENTS_OF_PART = 1 << 20  # about this many events are counted together; all after one symbol are in one part
LARGEST_COUNT = 1 << 16  # larger counts are not told apart when min_count is chosen


@dataclass(frozen=True)
class _GatheredEvents:
    """N events of one part of the data, with the symbols before them.

    Attributes:
        event: the events, ``(N,)``.
        weight: weight of each event, ``(N,)``.
        symbols: the n symbols before each event, last first, ``(N, n)``; ``NONE`` before the start.
    """

    event: np.ndarray
    weight: np.ndarray
    symbols: np.ndarray

    def contexts(self) -> Iterator[np.ndarray]:
        """Yield the symbol before each event, then the one before that, ..., ``(N,)``; ``NONE`` before the start."""
        yield from self.symbols.T
        yield from repeat(np.full(len(self.event), NONE))


def count_streams(
    streams: Sequence[EventStream], order: int, smoothing: Smoothing, min_count: int = 1, max_strings: int = 2**63
) -> tuple[list[Counts], int]:
    """Count n-grams of sequences on disk in bounded memory, and return one table for each length of context from 0 on.

    Args:
        streams: the sequences.
        order: length of the longest n-grams.
        smoothing: smoothing of the counts, which says which totals are needed.
        min_count: n-grams of two or more symbols that occur less often may be left out.
        max_strings: largest number of such n-grams in the tables.

    Returns:
        The tables, and the ``min_count`` that leaves at most ``max_strings`` n-grams. Rarer ones may be left out of the
            tables already, or still be in them.
    """
    longest = min(order - 1, max(map(len, streams)))  # the symbols of the longest context
    if packs(longest + 1, streams[0].size):
        tables = packed_counts(streams, longest)
        return tables, fitting_min_count(tables[1:], min_count, max_strings)
    base = streams[0].size + 1
    parts = _Parts(base, longest, smoothing, min_count, max_strings)
    for events in _each_part(streams, longest, base):
        parts.add(count(events, longest + 1, base - 1))
    return parts.joined(), parts.min_count


# -- dealing out ----------------------------------------------------------------------------------------------------


def _each_part(streams: Sequence[EventStream], longest: int, base: int) -> Iterator[_GatheredEvents]:
    """Yield the events of each part of the data, after writing all events to a temporary file in the order of parts.

    A part is all events after one symbol or some symbols, small enough to be counted in memory.

    Args:
        streams: the sequences on disk.
        longest: number of symbols of the longest context.
        base: number of symbols plus one, V + 1.
    """
    n_before = max(1, longest)  # symbols: the one before an event says its part
    weights = np.array([stream.example.weight for stream in streams])
    part_of_symbol, sizes = _parts_of_symbols(streams, base)
    stops = np.cumsum(sizes)
    dtype = np.int32 if max(base, len(streams)) < 2**31 else np.int64
    rows = MappedArray.temporary((int(stops[-1]), 2 + n_before), dtype)  # the sequence, the event, the symbols before
    filled = stops - sizes
    for i, stream in enumerate(streams):
        for a, b in in_blocks(stream, 0, EVENTS_AT_ONCE):
            symbols, event = stream.contexts(a, b, n_before)
            part = part_of_symbol[symbols[0]]
            order = np.argsort(part, kind="stable")
            block = np.stack([np.full(len(event), i), event, *symbols], axis=1, dtype=dtype)[order]
            edges = np.flatnonzero(np.diff(part[order], prepend=-1, append=-1))
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                which = part[order[low]]
                rows.write(int(filled[which]), block[low:high])
                filled[which] += high - low
    for start, stop in zip((stops - sizes).tolist(), stops.tolist(), strict=True):
        yield _gathered(rows.read(start, stop), weights)


def _gathered(rows: np.ndarray, weights: np.ndarray) -> _GatheredEvents:
    return _GatheredEvents(rows[:, 1].astype(np.int64), weights[rows[:, 0]], np.ascontiguousarray(rows[:, 2:].T).T)


def _parts_of_symbols(streams: Sequence[EventStream], base: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide the events by the symbol before them into parts of about equal size.

    Args:
        streams: the sequences on disk.
        base: number of symbols plus one, V + 1.

    Returns:
        The number of the part for each symbol, ``(base,)``, increasing with the symbol, and the number of events in
            each part.
    """
    n_after = np.zeros(base, np.int64)
    for stream in streams:
        for a, b in in_blocks(stream, 0, EVENTS_AT_ONCE):
            n_after += np.bincount(stream.contexts(a, b, 1)[0][0], minlength=base)
    _, part = np.unique((np.cumsum(n_after) - n_after) // EVENTS_OF_PART, return_inverse=True)
    sizes = np.bincount(part, n_after).astype(np.int64)
    return part, sizes


# -- what is kept of the parts --------------------------------------------------------------------------------------


class _Parts:
    """The n-gram tables counted so far: the counts of single symbols, and tables of longer n-grams by part.

    A part is all events after one symbol or some symbols.

    Args:
        base: number of symbols plus one, V + 1.
        longest: number of symbols of the longest context.
        smoothing: smoothing of the counts, which says which totals are needed.
        min_count: n-grams that occur less often are left out.
        max_strings: largest number of n-grams; if there are more, ``min_count`` is raised.
    """

    def __init__(self, base: int, longest: int, smoothing: Smoothing, min_count: int, max_strings: int) -> None:
        self.base, self.longest, self.smoothing = base, longest, smoothing
        self.min_count, self.max_strings = min_count, max_strings
        self._symbols = np.zeros((2, base))  # counts and continuation counts
        self._n_of_counts = np.zeros((longest, 4))
        self._parts: list[list[Counts]] = []  # tables for contexts of one or more symbols

    def add(self, tables: list[Counts]) -> None:
        first = tables[0]
        self._symbols[:, first.grams] += first.counts, first.continuation_counts
        part = []
        for n, table in enumerate(tables[1:]):
            totals = Totals.of(table, used_counts(table, self.smoothing), self.base)
            self._n_of_counts[n] += totals.n_of_counts
            part.append(replace(table, totals=totals))
        self._parts.append(_pruned(part, self.base, self.min_count))
        if sum(len(table.grams) for part in self._parts for table in part) > self.max_strings:
            self._raise_min_count()

    def joined(self) -> list[Counts]:
        """Return the tables of all parts as one table for each length of context."""
        seen = np.flatnonzero(self._symbols[0])
        result = [Counts(np.zeros(1, np.int64), seen, *self._symbols[:, seen])]
        parents = np.zeros(len(self._parts), np.int64)  # contexts one symbol shorter, of the parts before each
        for n in range(self.longest):
            tables = [part[n] if len(part) > n else NOTHING for part in self._parts]
            n_contexts = np.array([len(table.contexts) for table in tables])
            if not n_contexts.any():
                break
            before = np.cumsum(n_contexts) - n_contexts
            result.append(self._joined(tables, parents * self.base, before * self.base, self._n_of_counts[n]))
            for part in self._parts:
                part[n : n + 1] = [NOTHING] * (len(part) > n)  # it is in the joined one
            parents = before
        return result

    def _joined(self, tables: list[Counts], parents: np.ndarray, ids: np.ndarray, n_of_counts: np.ndarray) -> Counts:
        """Return one table of n-grams made of the ``tables`` of all parts, which have one order.

        Args:
            tables: table of each part.
            parents: number to add to the codes of contexts of each part.
            ids: number to add to the codes of n-grams of each part.
            n_of_counts: numbers of n-grams of all parts with count 1, 2, 3, 4, ``(4,)``.
        """
        totals = None
        if self.min_count > 1:
            each = [table.totals for table in tables if table.totals is not None]
            sums, n_types = (np.concatenate([getattr(one, name) for one in each]) for name in ("sums", "n_types"))
            totals = Totals(sums, n_types, n_of_counts)
        return Counts(
            np.concatenate([table.contexts + more for table, more in zip(tables, parents, strict=True)]),
            np.concatenate([table.grams + more for table, more in zip(tables, ids, strict=True)]),
            np.concatenate([table.counts for table in tables]),
            np.concatenate([table.continuation_counts for table in tables]),
            totals,
        )

    def _raise_min_count(self) -> None:
        """Raise ``min_count`` until at most ``max_strings`` n-grams occur so often, and drop rarer ones."""
        tables = [table for part in self._parts for table in part]
        self.min_count = fitting_min_count(tables, self.min_count, self.max_strings)
        self._parts = [_pruned(part, self.base, self.min_count) for part in self._parts]


NOTHING = Counts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


def fitting_min_count(tables: Sequence[Counts], least: int, max_strings: int) -> int:
    """Return the smallest count, ``least`` or more, that at most ``max_strings`` n-grams in ``tables`` reach.

    Args:
        tables: counts of n-grams, one table for each length of context.
        least: smallest value to return.
        max_strings: largest number of n-grams that occur so often.
    """
    n_of = np.zeros(LARGEST_COUNT + 1, np.int64)
    for table in tables:
        n_of += np.bincount(np.minimum(table.counts, LARGEST_COUNT).astype(np.int64), minlength=len(n_of))
    n_at_least = np.append(np.cumsum(n_of[::-1])[::-1], 0)
    return max(least, int(np.argmax(n_at_least <= max_strings)))


def _pruned(part: list[Counts], base: int, min_count: int) -> list[Counts]:
    """Return tables without n-grams that occur less than ``min_count`` times, and without contexts left empty.

    Args:
        part: tables for contexts of 1, 2, ... symbols.
        base: number of symbols plus one, V + 1.
        min_count: smallest count of an n-gram that stays.
    """
    if min_count <= 1:
        return part
    kept: list[Counts] = []
    new_ids = np.zeros(1, np.int64)
    for table in part:
        is_kept = table.counts >= min_count
        if not is_kept.any():
            break
        context = table.grams[is_kept] // base
        has_gram = np.bincount(context, minlength=len(table.contexts)) > 0
        contexts = table.contexts[has_gram]
        ids = np.cumsum(has_gram) - 1
        kept.append(
            Counts(
                new_ids[contexts // base] * base + contexts % base,
                ids[context] * base + table.grams[is_kept] % base,
                table.counts[is_kept],
                table.continuation_counts[is_kept],
                None if table.totals is None else table.totals.take(has_gram),
            )
        )
        new_ids = ids
    return kept

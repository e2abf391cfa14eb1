"""Counts of n-grams in sequences that are read from disk one block at a time, by sorting and merging.

If an n-gram of the highest order fits into 63 bits (for bytes up to order 7), it is coded as one number, ``((s_1 B +
s_2) B + ...) B + event``, where B = V + 1 and s_1 is the symbol just before the event. Each block is coded and sorted,
the sorted runs are merged into one table of different n-grams, and all lower orders follow from that table. Longer
n-grams are counted in parts (``counts_in_parts``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.counts.ngram.counts import Counts
from seqmodels.counts.ngram.events import NONE
from seqmodels.encodings.examples import Example

EVENTS_AT_ONCE = 1 << 20  # packed and sorted together
LARGEST_CODE = 2**63


@dataclass(frozen=True)
class EventStream:
    """The events of one encoded sequence on disk (its symbols and perhaps its end), read one slice at a time.

    Event i follows the symbols at i - 1, i - 2 and so on; the start symbol is at -1, with nothing before it.

    Args:
        example: the encoded sequence.
        size: number of symbols V.
        has_end: True if the end is an event.
    """

    example: Example
    size: int
    has_end: bool

    def __len__(self) -> int:
        return len(self.example.values) + self.has_end

    def symbols(self, first: int, stop: int) -> np.ndarray:
        """Return the symbols from index ``first`` to ``stop - 1``, int64 ``(stop - first,)``.

        Index -1 is the start symbol, 0 the first of n symbols, and n the end symbol; start and end have the number
        ``size``.
        """
        n = len(self.example.values)
        parts = [np.asarray(self.example.values[max(first, 0) : min(stop, n)]).astype(np.int64)]
        if first < 0:
            parts.insert(0, np.array([self.size]))
        if stop > n:
            parts.append(np.array([self.size]))
        return np.concatenate(parts)

    def contexts(self, first: int, stop: int, n: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the ``n`` symbols before each of the N events ``first .. stop - 1``, and these events ``(N,)``.

        The symbols are a list of ``n`` arrays ``(N,)``: the symbol before each event, the one before it, and so on;
        ``NONE``, -1, before the start.
        """
        low = max(-1, first - n)
        known = self.symbols(low, stop)
        padded = np.concatenate([np.full(low - (first - n), NONE), known])  # from first - n on
        return [padded[n - k : len(padded) - k] for k in range(1, n + 1)], padded[n:]


def packs(order: int, size: int) -> bool:
    """Return True if every n-gram of ``order`` symbols fits into a number of 63 bits with the symbols as digits.

    Args:
        order: length of the n-grams.
        size: number of symbols.
    """
    return bool((size + 1) ** order < LARGEST_CODE)


def in_blocks(stream: EventStream, first: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Return an iterator over consecutive ranges ``(start, stop)`` of events that together cover the stream.

    Args:
        stream: the events of one sequence.
        first: index of the first event.
        at_once: largest number of events of a range.
    """
    return ((a, min(a + at_once, len(stream))) for a in range(first, len(stream), at_once))


# -- sorted tables of different codes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A sorted table of G different n-grams, coded as numbers, with their counts.

    Attributes:
        codes: sorted codes, ``(G,)``.
        counts: how often each code occurred, ``(G,)``.
    """

    codes: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, weight: float = 1.0) -> Run:
        """Return the sorted table of the different numbers in ``codes (N,)``, each occurrence counted ``weight`` times.

        ``codes`` is sorted in place.
        """
        codes.sort()
        first = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))[: len(codes)]
        return cls(codes[first], np.diff(first, append=len(codes)) * weight)

    def merged(self, other: Run) -> Run:
        large, small = (self, other) if len(self.codes) >= len(other.codes) else (other, self)
        at = np.searchsorted(large.codes, small.codes)
        known = large.codes[np.minimum(at, len(large.codes) - 1)] == small.codes if len(large.codes) else at < 0
        counts = large.counts.copy()
        counts[at[known]] += small.counts[known]
        new = ~known
        return Run(np.insert(large.codes, at[new], small.codes[new]), np.insert(counts, at[new], small.counts[new]))


class Runs:
    """A collection of sorted tables of n-grams that merges each new one with others of about its size.

    So every code is moved few times until all tables are merged into one (``total``).
    """

    def __init__(self) -> None:
        self._runs: list[Run] = []  # each less than half as long as the one before

    def add(self, run: Run) -> None:
        while self._runs and len(self._runs[-1].codes) < 2 * len(run.codes):
            run = self._runs.pop().merged(run)
        self._runs.append(run)

    def total(self) -> Run:
        """Return all tables merged into one, and leave the collection empty."""
        merged = Run(np.empty(0, np.int64), np.empty(0))
        while self._runs:
            merged = self._runs.pop().merged(merged)
        return merged


# -- n-grams that are one number -----------------------------------------------------------------------------------


def packed(contexts: Sequence[np.ndarray], event: np.ndarray, base: int) -> np.ndarray:
    """Return each of N n-grams as one number, ``(N,)``, whose digits are the symbols before the event, and the event.

    The symbol just before the event is the first digit, so that sorted numbers are in the order of that symbol, then of
    the one before it.

    Args:
        contexts: arrays ``(N,)`` of the symbols before each event, last first.
        event: the events, ``(N,)``.
        base: a number larger than every symbol.
    """
    codes = np.zeros(len(event), np.int64)
    for symbols in contexts:
        codes += symbols
        codes *= base
    codes += event
    return codes


def unpacked(codes: np.ndarray, n: int, base: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the symbols and the event of each of N n-grams from the numbers that ``packed`` returned.

    Args:
        codes: the numbers, ``(N,)``.
        n: number of symbols before each event.
        base: the base of the numbers.

    Returns:
        A list of ``n`` arrays ``(N,)`` of the symbols before each event, last first, and the events, ``(N,)``.
    """
    rest, event = np.divmod(codes, base)
    symbols: list[np.ndarray] = []
    for _ in range(n):
        rest, symbol = np.divmod(rest, base)
        symbols.insert(0, symbol)
    return symbols, event


def packed_run(streams: Sequence[EventStream], n: int) -> Run:
    """Return the sorted table of all n-grams of ``n`` symbols and the event after them, counted in sequences on disk.

    Events that have fewer symbols before them are left out.
    """
    runs = Runs()
    for stream in streams:
        base, weight = stream.size + 1, stream.example.weight
        for a, b in in_blocks(stream, max(0, n - 1), EVENTS_AT_ONCE):
            contexts, event = stream.contexts(a, b, n)
            runs.add(Run.of(packed(contexts, event, base), weight))
    return runs.total()


def packed_counts(streams: Sequence[EventStream], longest: int) -> list[Counts]:
    """Return a table of counts of n-grams for each length of context from 0 to ``longest``, read slice by slice.

    The code of each n-gram, its ``longest + 1`` symbols as digits, must fit into 63 bits. The tables are equal to those
    of ``counts.count`` to the last digit.

    Args:
        streams: the sequences on disk.
        longest: number of symbols of the longest context.
    """
    base = streams[0].size + 1
    runs = [packed_run(streams, longest)]  # one run for each length of context
    n_older: list[np.ndarray] = []
    for n in range(longest - 1, -1, -1):
        codes = runs[0].codes // base**2 * base + runs[0].codes % base  # without the oldest symbol
        order = np.argsort(codes, kind="stable")
        codes, counts = codes[order], runs[0].counts[order]
        first = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        from_longer = Run(codes[first], np.add.reduceat(counts, first))
        n_longer = Run(codes[first], np.diff(first, append=len(codes)).astype(np.float64))
        run = from_longer.merged(_first_events(streams, n)) if n else from_longer
        at = np.searchsorted(run.codes, n_longer.codes)
        n_older.insert(0, np.bincount(at, n_longer.counts, len(run.codes)))
        runs.insert(0, run)
    tables: list[Counts] = []
    keys = np.zeros(1, np.int64)  # packed contexts that are one symbol shorter
    for n, run in enumerate(runs):
        context = run.codes // base
        contexts = context[np.concatenate([[True], context[1:] != context[:-1]])]
        codes = np.searchsorted(keys, contexts // base) * base + contexts % base if n else np.zeros(1, np.int64)
        grams = np.searchsorted(contexts, context) * base + run.codes % base
        continuation_counts = run.counts
        if n < longest:
            starts = (context % base == base - 1) & (n > 0)
            continuation_counts = np.where(starts, run.counts, n_older[n])
        tables.append(Counts(codes, grams, run.counts, continuation_counts))
        keys = contexts
    return tables


def _first_events(streams: Sequence[EventStream], n: int) -> Run:
    """Return the sorted table of the n-grams of the start symbol, ``n - 1`` further symbols and an event after them."""
    runs = Runs()
    for stream in streams:
        if len(stream) >= n:
            contexts, event = stream.contexts(n - 1, n, n)
            runs.add(Run.of(packed(contexts, event, stream.size + 1), stream.example.weight))
    return runs.total()

"""Events of encoded sequences: the symbol or the end at every step, with the symbols before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqmodels.counts.base import EventRow
from seqmodels.encodings.examples import Example

NONE = -1  # there is no symbol so far back


@dataclass(frozen=True)
class Events:
    """N events (symbols and ends) of several sequences, end to end in one array, each sequence after a start symbol.

    The start (as context) and the end (as event) share the code V, the number of symbols, because neither ever occurs
    in the other's place.

    Attributes:
        stream: all symbols of all sequences, with their starts.
        at: index in ``stream`` of the symbol before each event, ``(N,)``.
        depth: number of symbols before each event in its sequence, including the start, ``(N,)``.
        event: the events, ``(N,)``.
        weight: weight of the sequence of each event, ``(N,)``.
        is_first: True for the first scored event of a sequence, which cannot be the end, ``(N,)``.
        lengths: number of events of each sequence.
    """

    stream: np.ndarray
    at: np.ndarray
    depth: np.ndarray
    event: np.ndarray
    weight: np.ndarray
    is_first: np.ndarray
    lengths: list[int]

    @classmethod
    def from_examples(cls, examples: list[Example], size: int, has_end: bool) -> Events:
        """Return the events of encoded sequences: their values and perhaps their ends.

        Args:
            examples: the sequences; a source (the x of a model of y given x) is context only.
            size: number of symbols V.
            has_end: True if the end of each sequence is an event, with the code V.
        """
        if all(example.source is None for example in examples):
            return cls._without_sources(examples, size, has_end)
        rows = [EventRow.of(example, size, has_end) for example in examples]
        row_starts = np.cumsum([0, *(len(row.symbols) for row in rows[:-1])])
        lengths = [len(row.events) for row in rows]
        number = np.concatenate([np.arange(n) for n in lengths])  # index of the event in its row
        depth = np.repeat([row.begin for row in rows], lengths) + number  # the start symbol counts
        return cls(
            np.concatenate([row.symbols for row in rows]),
            np.repeat(row_starts, lengths) + depth - 1,
            depth,
            np.concatenate([row.events for row in rows]),
            np.repeat([example.weight for example in examples], lengths),
            number == 0,
            lengths,
        )

    @classmethod
    def _without_sources(cls, examples: list[Example], size: int, has_end: bool) -> Events:
        """Return the events of encoded sequences without sources, computed for all of them at once.

        Args:
            examples: the sequences.
            size: number of symbols V.
            has_end: True if the end of each sequence is an event, with the code V.
        """
        values = np.concatenate([np.asarray(example.values) for example in examples]).astype(np.int64)
        n_values = np.array([len(example.values) for example in examples])
        stops = np.cumsum(n_values)
        lengths = n_values + int(has_end)
        event = np.insert(values, stops, size) if has_end else values
        first_event = np.cumsum(lengths) - lengths
        depth = 1 + np.arange(len(event)) - np.repeat(first_event, lengths)
        row_starts = stops - n_values + np.arange(len(examples))
        weight = np.repeat(np.array([example.weight for example in examples]), lengths)
        return cls(
            np.insert(values, stops - n_values, size),
            np.repeat(row_starts, lengths) + depth - 1,
            depth,
            event,
            weight,
            depth == 1,
            lengths.tolist(),
        )

    def contexts(self) -> Iterator[np.ndarray]:
        """Yield the symbol before each of the N events ``(N,)``, then the one before that, and so on without end.

        Before the start of a sequence the symbol is ``NONE``, -1.
        """
        back = 0
        while True:
            yield np.where(back < self.depth, self.stream[np.maximum(self.at - back, 0)], NONE)
            back += 1

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        return [values[a:b] for a, b in pairwise(np.cumsum([0, *self.lengths]).tolist())]

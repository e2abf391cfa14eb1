"""An encoded sequence in the form in which models based on counts read it: the symbols of contexts, and the events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmodels.encodings.examples import Example


@dataclass(frozen=True)
class EventRow:
    """One encoded sequence as the symbols that contexts are made of, and the events to predict after them.

    The symbols are a start symbol, the source (the sequence x, if the model is of y given x) and the values. The events
    are the values and perhaps the end. The start (as context) and the end (as event) share the code V, because neither
    ever occurs in the other's place. V is the number of symbols, S the number of all symbols here, and T the number of
    events.

    Attributes:
        symbols: symbols that contexts are made of, int64 ``(S,)``, with the start V first.
        begin: index in ``symbols`` of the first value; earlier symbols are context only.
        events: events to predict, int64 ``(T,)``; under ``length="stop"`` the last one is the end V.
        has_end: True if the end is an event; it cannot be the first event.
    """

    symbols: np.ndarray
    begin: int
    events: np.ndarray
    has_end: bool

    @classmethod
    def of(cls, example: Example, size: int, has_end: bool) -> EventRow:
        """Return the symbols and events of one encoded sequence.

        Args:
            example: the encoded sequence, perhaps with a source.
            size: number of symbols V of the alphabet.
            has_end: True if the end of the sequence is the last event.
        """
        source = np.zeros(0, np.int64) if example.source is None else np.asarray(example.source)
        whole = np.concatenate([[size], source, np.asarray(example.values), [size]]).astype(np.int64)
        begin = 1 + len(source)
        return cls(whole[:-1], begin, whole[begin:] if has_end else whole[begin:-1], has_end)

    @property
    def source(self) -> np.ndarray:
        return self.symbols[1 : self.begin]

"""An encoded sequence as models that count read it: what is known before it, and its events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmodels.encodings.examples import Example


@dataclass(frozen=True)
class EventRow:
    """The start symbol, a source and the values, end to end; the events are the values and perhaps their end.

    The start (as context) and the end (as event) share the code V: neither is ever in the other's place.

    Attributes:
        symbols: ``(S,)`` int64, the start V first.
        begin: where the values begin; what is before them is context only.
        events: ``(T,)`` int64, under ``length="stop"`` the last is the end V.
        has_end: whether the end is an event; it cannot be the first.
    """

    symbols: np.ndarray
    begin: int
    events: np.ndarray
    has_end: bool

    @classmethod
    def of(cls, example: Example, size: int, has_end: bool) -> EventRow:
        """Of an alphabet of V = ``size``."""
        source = np.zeros(0, np.int64) if example.source is None else np.asarray(example.source)
        whole = np.concatenate([[size], source, np.asarray(example.values), [size]]).astype(np.int64)
        begin = 1 + len(source)
        return cls(whole[:-1], begin, whole[begin:] if has_end else whole[begin:-1], has_end)

    @property
    def source(self) -> np.ndarray:
        """``(S',)``, of no length where there is none."""
        return self.symbols[1 : self.begin]

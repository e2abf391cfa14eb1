"""Encoded sequences of symbols as bytes by a model's predictions, and back: ``SymbolCoder``, and ``StepCoder``.

Both directions go through one loop, on one cursor, for the same sequences at once: what is decoded is decoded from the
very numbers that it was coded by, to the last bit. Figures of a batch, which may differ in the last bit, are not used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.common.range_interval import TOTAL
from seqmodels.encodings.examples import Example
from seqmodels.generation.cursor import Cursor

MAX_SYMBOLS = TOTAL >> 8  # of more, equal shares of the least size would take a part of the others' that is felt
MOST_AT_ONCE = 64  # sequences that one state of a cursor holds


@dataclass(frozen=True)
class ToDecode:
    """What is known of a coded sequence: its length where that is given, and its encoded source."""

    n_steps: int | None
    source: np.ndarray | None = None


class SymbolCoder(Protocol):
    """Codes encoded sequences of symbols by a fitted model's predictions, and decodes them.

    The sequences that are coded together are decoded together.
    """

    def encode(self, examples: Sequence[Example], encoder: RangeEncoder) -> None:
        """Code the values, and where it is an event the end, of each."""

    def decode(self, known: Sequence[ToDecode], decoder: RangeDecoder) -> list[np.ndarray]:
        """The values ``(S,)`` int64 of each."""


class ImpossibleSymbolError(ValueError):
    """A sequence has a symbol, or ends, where the model gives that no probability, so that nothing can code it.

    Attributes:
        sequence: its number among those that are coded together.
        step: the number of the encoded step.
        symbol: the encoded symbol; the number of symbols is the end.
    """

    def __init__(self, sequence: int, step: int, symbol: int) -> None:
        super().__init__(f"symbol {symbol} of sequence {sequence} has probability zero at step {step}")
        self.sequence, self.step, self.symbol = sequence, step, symbol


def cumulative_shares(log_probs: np.ndarray) -> np.ndarray:
    """``(n, V + 1)`` int64, from 0 to ``TOTAL``: the shares of V symbols, from ``(n, V)`` nats.

    A share is at least 1 where the probability is not zero, and 0 where it is. The rest is shared by the probabilities,
    so that no symbol costs more than ``-log2 p - log2(1 - V / TOTAL)`` bits.

    Raises:
        ValueError: NaN, or no symbol is possible.
    """
    has_share = log_probs > -np.inf
    p = np.exp(log_probs - log_probs.max(axis=1, keepdims=True, initial=-np.inf, where=has_share))
    totals = p.sum(axis=1, keepdims=True)
    if not np.isfinite(totals).all():
        raise ValueError("the model predicts what is no probability, or that nothing is possible")
    n_shares = has_share.sum(axis=1, keepdims=True)
    shares = np.floor(p / totals * (TOTAL - n_shares)).astype(np.int64) + has_share
    rows = np.arange(len(shares))
    shares[rows, p.argmax(axis=1)] += TOTAL - shares.sum(axis=1)
    cumulative = np.zeros((len(shares), shares.shape[1] + 1), dtype=np.int64)
    np.cumsum(shares, axis=1, out=cumulative[:, 1:])
    return cumulative


class _Direction(ABC):
    """The next event of a sequence, from its shares: known and coded, or decoded."""

    @abstractmethod
    def event(self, sequence: int, step: int, cumulative: np.ndarray) -> int:
        """The number of the event of ``cumulative (V + 1,)``, or with ends ``(V + 2,)``, the end last."""


class _Encoding(_Direction):
    def __init__(self, events: Sequence[np.ndarray], encoder: RangeEncoder) -> None:
        self.events, self.encoder = events, encoder

    def event(self, sequence: int, step: int, cumulative: np.ndarray) -> int:
        event = int(self.events[sequence][step])
        start, stop = int(cumulative[event]), int(cumulative[event + 1])
        if start == stop:
            raise ImpossibleSymbolError(sequence, step, event)
        self.encoder.encode(start, stop - start)
        return event


class _Decoding(_Direction):
    def __init__(self, decoder: RangeDecoder) -> None:
        self.decoder = decoder

    def event(self, sequence: int, step: int, cumulative: np.ndarray) -> int:
        return self.decoder.decode(cumulative)


class StepCoder:
    """Codes by the predictions of a cursor, one step of several sequences after the other.

    Args:
        cursor: of a fitted model, in float64.
        size: V symbols.
        has_end: whether the end is an event.
        at_once: sequences that one state holds, where they have no sources.
    """

    def __init__(self, cursor: Cursor, size: int, has_end: bool, at_once: int = MOST_AT_ONCE) -> None:
        if size > MAX_SYMBOLS:
            raise ValueError(f"there are {size:,} symbols, and {MAX_SYMBOLS:,} at most can be coded")
        self.cursor, self.size, self.has_end, self.at_once = cursor, size, has_end, at_once

    def encode(self, examples: Sequence[Example], encoder: RangeEncoder) -> None:
        """Code the values, and where it is an event the end, of each.

        Raises:
            ImpossibleSymbolError: a symbol that the model gives no probability.
        """
        end = [self.size] if self.has_end else []
        events = [np.append(np.asarray(example.values), end).astype(np.int64) for example in examples]
        known = [ToDecode(None if self.has_end else len(e.values), e.source) for e in examples]
        self._go_through(known, _Encoding(events, encoder))

    def decode(self, known: Sequence[ToDecode], decoder: RangeDecoder) -> list[np.ndarray]:
        """The values ``(S,)`` int64 of each; ``ValueError`` where the data end before them."""
        return self._go_through(known, _Decoding(decoder))

    @torch.inference_mode()
    def _go_through(self, known: Sequence[ToDecode], direction: _Direction) -> list[np.ndarray]:
        values: list[list[int]] = [[] for _ in known]
        at_once = 1 if any(each.source is not None for each in known) else self.at_once
        for first in range(0, len(known), at_once):
            rows = list(range(first, min(first + at_once, len(known))))
            state = self.cursor.start(known[first].source, len(rows))
            while True:
                cumulative = cumulative_shares(self.cursor.distribution(state).log_probs().cpu().numpy())
                going_on: list[int] = []
                for i, row in enumerate(rows):
                    event = direction.event(row, len(values[row]), cumulative[i])
                    if event < self.size:
                        values[row].append(event)
                        if len(values[row]) != known[row].n_steps:
                            going_on.append(i)
                if not going_on:
                    break
                if len(going_on) < len(rows):
                    rows = [rows[i] for i in going_on]
                    state = self.cursor.select(state, torch.tensor(going_on, dtype=torch.int64))
                state = self.cursor.advance(state, torch.tensor([values[row][-1] for row in rows]))
        return [np.array(each, dtype=np.int64) for each in values]

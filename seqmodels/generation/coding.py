"""Arithmetic coding of encoded symbol sequences by a model's predictions.

Encoding and decoding run the same loop on the same cursor, for the same sequences at once, so that a sequence is
decoded from exactly the numbers that it was encoded with. Log-probabilities computed in batches, which may differ in
the last bit, are not used.
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

MAX_SYMBOLS = TOTAL >> 8  # with more symbols, the smallest frequencies would take a noticeable part of the others'
MOST_AT_ONCE = 64  # sequences that one state of a cursor holds


@dataclass(frozen=True)
class ToDecode:
    """The length and the source of a compressed sequence, which a decoder must know beforehand.

    Attributes:
        n_steps: number of its steps; None if its end is coded too.
        source: its encoded source; None if there is none.
    """

    n_steps: int | None
    source: np.ndarray | None = None


class SymbolCoder(Protocol):
    """An interface of arithmetic coders, which compress encoded symbol sequences by a fitted model's predictions.

    Sequences that were encoded together must be decoded together.
    """

    def encode(self, examples: Sequence[Example], encoder: RangeEncoder) -> None:
        """Write the symbols of each sequence to ``encoder``, followed by its end if the model predicts ends.

        Args:
            examples: the encoded sequences, each with its source, if any.
            encoder: range encoder of the bytes.
        """

    def decode(self, known: Sequence[ToDecode], decoder: RangeDecoder) -> list[np.ndarray]:
        """Return the symbols of each encoded sequence, int64 arrays of S symbols, ``(S,)``, read from ``decoder``.

        Args:
            known: length (or None if its end is coded) and source of each sequence.
            decoder: range decoder of the bytes.
        """


class ImpossibleSymbolError(ValueError):
    """The error for a sequence that cannot be coded because a symbol, or its end, has probability zero.

    Attributes:
        sequence: index of the sequence among those coded together.
        step: index of the step in the sequence.
        symbol: the symbol as the model numbers it; the number of symbols stands for the end.
    """

    def __init__(self, sequence: int, step: int, symbol: int) -> None:
        super().__init__(f"symbol {symbol} of sequence {sequence} has probability zero at step {step}")
        self.sequence, self.step, self.symbol = sequence, step, symbol


def cumulative_shares(log_probs: np.ndarray) -> np.ndarray:
    """Convert probabilities of symbols to cumulative integer frequencies for arithmetic coding.

    The frequency of a symbol is at least 1 if its probability is not zero, else 0. The rest of ``TOTAL``, the sum of
    all frequencies, is distributed by the probabilities, so that no symbol costs more than
    ``-log2 p - log2(1 - V / TOTAL)`` bits.

    Args:
        log_probs: log-probabilities of V symbols in nats for n sequences, ``(n, V)``.

    Returns:
        The cumulative frequencies, from 0 to ``TOTAL``, int64 ``(n, V + 1)``.

    Raises:
        ValueError: if a log-probability is NaN, or if no symbol is possible.
    """
    has_share = log_probs > -np.inf
    p = np.exp(log_probs - log_probs.max(axis=1, keepdims=True, initial=-np.inf, where=has_share))
    totals = p.sum(axis=1, keepdims=True)
    if not np.isfinite(totals).all():
        raise ValueError("the model predicts a NaN, or that no symbol is possible")
    n_shares = has_share.sum(axis=1, keepdims=True)
    shares = np.floor(p / totals * (TOTAL - n_shares)).astype(np.int64) + has_share
    rows = np.arange(len(shares))
    shares[rows, p.argmax(axis=1)] += TOTAL - shares.sum(axis=1)
    cumulative = np.zeros((len(shares), shares.shape[1] + 1), dtype=np.int64)
    np.cumsum(shares, axis=1, out=cumulative[:, 1:])
    return cumulative


class _Direction(ABC):
    """The part of the coding loop that differs between encoding and decoding; there is a subclass for each."""

    @abstractmethod
    def event(self, sequence: int, step: int, cumulative: np.ndarray) -> int:
        """Encode or decode the next event of a sequence, a symbol or its end, and return the event's index.

        Args:
            sequence: index of the sequence.
            step: index of the step.
            cumulative: cumulative frequencies of V symbols, ``(V + 1,)``, or ``(V + 2,)`` with the end as the last
                event.
        """


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
    """An arithmetic coder that compresses several sequences side by side by a model's predictions of the next symbol.

    Args:
        cursor: cursor of a fitted model, in float64.
        size: number of symbols V.
        has_end: True if the model predicts ends, which are then coded too.
        at_once: number of sequences coded side by side, if they have no sources.

    Raises:
        ValueError: if there are too many symbols to be coded.
    """

    def __init__(self, cursor: Cursor, size: int, has_end: bool, at_once: int = MOST_AT_ONCE) -> None:
        if size > MAX_SYMBOLS:
            raise ValueError(f"there are {size:,} symbols, but at most {MAX_SYMBOLS:,} can be coded")
        self.cursor, self.size, self.has_end, self.at_once = cursor, size, has_end, at_once

    def encode(self, examples: Sequence[Example], encoder: RangeEncoder) -> None:
        """Write the symbols of each sequence to ``encoder``, followed by its end if the model predicts ends.

        Args:
            examples: the encoded sequences, each with its source, if any.
            encoder: range encoder of the bytes.

        Raises:
            ImpossibleSymbolError: if the model gives a symbol or the end probability zero.
        """
        end = [self.size] if self.has_end else []
        events = [np.append(np.asarray(example.values), end).astype(np.int64) for example in examples]
        known = [ToDecode(None if self.has_end else len(e.values), e.source) for e in examples]
        self._go_through(known, _Encoding(events, encoder))

    def decode(self, known: Sequence[ToDecode], decoder: RangeDecoder) -> list[np.ndarray]:
        """Return the symbols of each encoded sequence, int64 arrays of S symbols, ``(S,)``, read from ``decoder``.

        Args:
            known: length (or None if its end is coded) and source of each sequence.
            decoder: range decoder of the bytes.

        Raises:
            ValueError: if the data end too early.
        """
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

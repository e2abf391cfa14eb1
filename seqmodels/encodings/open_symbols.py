"""Integer symbols of an open alphabet: ``p(v) = p(class) q(v)`` for every symbol v that training did not see
repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import array_of
from seqmodels.encodings.base import Encoding, State
from seqmodels.encodings.symbols import symbol_counts
from seqmodels.sequences import Item, Sequences


@dataclass(eq=False, repr=False)
class OpenSymbols(Encoding):
    """An encoding of integer symbols under which symbols that training did not have are possible.

    All unknown symbols form one class. A model sees K known symbols and the class, which is symbol number K. Symbols
    that occur only once in training belong to the class too; from them every model learns how probable a new symbol is,
    and after which symbols (Good 1953; Katz 1987). An unknown symbol v has

        ``log p(v) = log p(class) + log q(v)``

    with a fixed q, the same for every model. If the alphabet is stated, ``q = 1 / (n_symbols - K)``. Otherwise
    ``q = 1 / (k (k + 1))`` for the k-th non-negative integer that is not known, in increasing order. Both sum to one,
    so the probabilities of all raw symbols do, and scores are comparable with those under ``Symbols``. ``log q`` is
    added to the model's log-probability of the class.

    In samples, searches and forecasts, the class appears as the smallest unknown symbol. ``predict_next`` is over raw
    symbols; if the alphabet is not stated, all symbols larger than the known ones together are its last category
    (before the end).

    Args:
        known: symbols that each have a number of their own; None learns those that occur at least twice in training.
        n_symbols: number V of symbols of a stated alphabet ``0 .. V - 1``; None allows any non-negative integer.

    Raises:
        ValueError: if symbols are strings, if none is known, if a known one is beyond ``n_symbols``, or if all of a
            stated alphabet are known.

    >>> encoding = OpenSymbols().fit(Sequences([[4, 2, 4, 2, 9]]))
    >>> encoding.known_.tolist(), encoding.encode(np.array([2, 4, 9, 0])).tolist()
    ([2, 4], [0, 1, 2, 2])
    >>> np.exp(encoding.log_det(np.array([2, 4, 0, 1, 3]))).round(4).tolist()
    [1.0, 1.0, 0.5, 0.1667, 0.0833]
    """

    known: Sequence[int] | None = None
    n_symbols: int | None = None
    reads = "symbols"

    def fit(self, sequences: Sequences) -> Self:
        if sequences.symbols is not None:
            raise ValueError(
                "OpenSymbols reads integers, but these symbols are strings; list all possible symbols instead: "
                "Sequences(..., symbols=[...]), or number them"
            )
        known = self._repeated(sequences) if self.known is None else np.unique(np.asarray(self.known, dtype=np.int64))
        return self.restore({"known": known, "n_symbols": self.n_symbols})

    def _repeated(self, sequences: Sequences) -> np.ndarray:
        symbols, counts = symbol_counts(sequences)
        if counts.max() < 2:
            raise ValueError(
                "no symbol occurs twice in the training data, so none is known; pass "
                "encoding=encodings.OpenSymbols(known=...) or Symbols(n_symbols=...)"
            )
        known: np.ndarray = symbols[counts >= 2]
        return known

    def check(self, i: int, item: Item) -> None:
        values = np.asarray(item)
        if values.dtype.kind == "O":
            raise ValueError(f"sequence {i} is of strings but the model was fitted on integers; pass integers")
        if len(unknown := self.unknown(values)):
            bad = int(unknown[0])
            raise ValueError(
                f"sequence {i} has symbol {values[bad]} at position {bad} but n_symbols is {self.n_stated}; raise "
                "n_symbols, or leave it out"
            )

    def unknown(self, item: Item) -> np.ndarray:
        """Return the positions of symbols outside a stated alphabet, ``(n,)``; all other integers have a probability.

        Args:
            item: raw symbols, ``(S,)``; all positions are returned if they are strings.
        """
        values = np.asarray(item)
        if values.dtype.kind == "O":
            return np.arange(len(values))
        return np.flatnonzero(values >= self.n_stated) if self.n_stated is not None else np.empty(0, dtype=np.int64)

    def encode(self, item: Item) -> np.ndarray:
        values = np.asarray(item, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.known_, values), self.size - 2)
        return np.where(self.known_[rows] == values, rows, self.size - 1)

    def decode(self, steps: np.ndarray) -> Item:
        """Return the raw symbols ``(S,)`` of encoded ones; the class of unknown symbols becomes the smallest of them.

        It is the most probable unknown symbol.

        Args:
            steps: encoded symbols, ``(S,)``.
        """
        return np.append(self.known_, self._smallest_unknown)[np.asarray(steps, dtype=np.int64)]

    def log_det(self, item: Item) -> np.ndarray | float:
        values = np.asarray(item, dtype=np.int64)
        return np.where(self.encode(values) == self.size - 1, self._log_q(values), 0.0)

    def _log_q(self, values: np.ndarray) -> np.ndarray:
        """Return the log-probability of each unknown symbol within their class in nats, in the shape of ``values``."""
        if self.n_stated is not None:
            return np.full(values.shape, -np.log(self.n_stated - len(self.known_)))
        k = values - np.searchsorted(self.known_, values) + 1.0  # its number among the unknown ones, from 1
        log_q: np.ndarray = -np.log(k) - np.log1p(k)
        return log_q

    def raw_log_probs(self, log_probs: Tensor) -> Tensor:
        """Return the log-probabilities of V raw symbols in nats, ``(..., V)``.

        If the alphabet is not stated, V counts the symbols up to the largest known one, and one more entry for all
        larger ones together.

        Args:
            log_probs: log-probabilities of the K known symbols and of the class of unknown ones, ``(..., K + 1)``.
        """
        largest = int(self.known_[-1])
        symbols = np.arange(largest + 1 if self.n_stated is None else self.n_stated)
        index, log_q = self.encode(symbols), np.asarray(self.log_det(symbols))
        if self.n_stated is None:  # the sum of 1 / (k (k + 1)) over k from K' on is 1 / K'
            n_smaller = largest + 1 - len(self.known_)
            index, log_q = np.append(index, self.size - 1), np.append(log_q, -np.log1p(n_smaller))
        return log_probs[..., torch.as_tensor(index)] + torch.as_tensor(log_q).to(log_probs)

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.arange(len(steps))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1), np.ones(1)

    def state(self) -> State:
        return {"known": self.known_, "n_symbols": self.n_stated}

    def restore(self, state: State) -> Self:
        known, n_stated = array_of(state, "known", np.int64, (None,)), state["n_symbols"]
        if not len(known) or known[0] < 0 or (np.diff(known) <= 0).any():
            raise ValueError("the known symbols should be integers from 0 on, at least one, none twice, in their order")
        if n_stated is not None and (type(n_stated) is not int or n_stated >= 2**62):
            raise ValueError(f"n_symbols is {n_stated!r}; it should be an integer or None")
        if n_stated is not None and known[-1] >= n_stated:
            raise ValueError(f"symbol {known[-1]} is known but n_symbols is {n_stated}; raise n_symbols")
        if n_stated == len(known):
            raise ValueError(f"all of the {n_stated} symbols are known, so no symbol can be new; use Symbols")
        self.known_, self.n_stated, self.size = known, n_stated, len(known) + 1
        gaps = np.flatnonzero(known != np.arange(len(known)))
        self._smallest_unknown = int(gaps[0]) if len(gaps) else len(known)
        return self

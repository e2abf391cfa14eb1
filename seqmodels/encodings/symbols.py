"""The encoding of symbols: integers unchanged, strings by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from seqmodels.common.display import listed
from seqmodels.encodings.base import Encoding, State, names_of_state, names_to_state
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.items import MANY, largest_symbol
from seqmodels.sequences.mapped import MappedArray, any_mapped, parts_of

MAX_SYMBOLS = 1 << 28  # unless the user asks for more, because a table of so many floats takes a gigabyte


def _largest_of_all(sequences: Sequences) -> int:
    if any_mapped(sequences):
        return max(map(largest_symbol, sequences))
    return int(np.concatenate(sequences.items).max())


def symbol_counts(sequences: Iterable[Item]) -> tuple[np.ndarray, np.ndarray]:
    """Return the different symbols in increasing order, and how often each occurs, as two arrays ``(K,)``.

    Args:
        sequences: arrays of symbols, integers or strings.
    """
    each = [np.unique(part, return_counts=True) for x in sequences for _, part in parts_of(np.asanyarray(x))]
    symbols, row = np.unique(np.concatenate([s for s, _ in each]), return_inverse=True)
    return symbols, np.bincount(row, np.concatenate([n for _, n in each])).astype(np.int64)


@dataclass(eq=False, repr=False)
class Symbols(Encoding):
    """An encoding of symbols as the integers ``0 .. n_symbols - 1``; symbols with names are strings in raw data.

    A larger integer or an unknown string is refused; ``OpenSymbols`` gives integers that were never seen a probability.

    Args:
        n_symbols: number of symbols V. None takes the number of names (``Sequences.symbols``) or, without names, the
            largest symbol of the training data plus one.
    """

    n_symbols: int | None = None
    reads = "symbols"
    is_unit_wise = True
    has_log_det = False

    def fit(self, sequences: Sequences) -> Self:
        if sequences.symbols is not None:
            if self.n_symbols not in (None, len(sequences.symbols)):
                raise ValueError(
                    f"n_symbols is {self.n_symbols} but the symbols of the data have {len(sequences.symbols)} names; "
                    "leave n_symbols out, and name all possible symbols: Sequences(..., symbols=[...])"
                )
            return self.restore({"size": len(sequences.symbols), "names": list(sequences.symbols)})
        largest = _largest_of_all(sequences)
        if largest >= MAX_SYMBOLS and self.n_symbols is None:
            i, item = next((i, np.asarray(x)) for i, x in enumerate(sequences) if largest_symbol(x) == largest)
            raise ValueError(
                f"sequence {i} has symbol {largest} at position {int(np.argmax(item))}, so there would be "
                f"{largest + 1} of them, most of which are never seen; number those that occur from 0 (numpy.unique("
                "..., return_inverse=True)), or pass encoding=Symbols(n_symbols=...)"
            )
        if self.n_symbols is not None and largest >= self.n_symbols:
            raise ValueError(f"the data have symbol {largest} but n_symbols is {self.n_symbols}; raise n_symbols")
        return self.restore({"size": self.n_symbols or largest + 1})

    def check_all(self, sequences: Sequences) -> None:
        if len(sequences) >= MANY and sequences.symbols is None and not any_mapped(sequences):
            if np.concatenate(sequences.items).max() < self.size:
                return
        super().check_all(sequences)

    def check(self, i: int, item: Item) -> None:
        if isinstance(item, MappedArray) and item.is_on_disk and largest_symbol(item) < self.size:
            return
        values = np.asarray(item)
        if values.dtype.kind == "O":
            self._check_names(i, values)
        elif values.max() >= self.size:  # faster than to look for them, one at a time in a stream
            bad = int(self.unknown(values)[0])
            raise ValueError(
                f"sequence {i} has symbol {values[bad]} at position {bad} but the model knows 0 to {self.size - 1}; "
                f"pass encoding=Symbols(n_symbols={values.max() + 1}) when fitting, or encodings.OpenSymbols(), which "
                "gives symbols that were never seen a probability"
            )

    def _check_names(self, i: int, words: np.ndarray) -> None:
        if self.names is None:
            raise ValueError(
                f"sequence {i} is of strings but the model was fitted on integers, which have no names; pass integers"
            )
        if len(unknown := self.unknown(words)):
            bad = int(unknown[0])
            raise ValueError(
                f"sequence {i} has {words[bad]!r} at position {bad}, but the model knows {listed(self.names)}; name it "
                "when fitting: Sequences(..., symbols=[...])"
            )

    def unknown(self, item: Item) -> np.ndarray:
        values = np.asarray(item)
        if values.dtype.kind == "O":
            return np.flatnonzero([self.names is None or word not in self._number for word in values])
        return np.flatnonzero(values >= self.size)

    def encode(self, item: Item) -> np.ndarray:
        values = np.asarray(item)
        if values.dtype.kind != "O":
            return values.astype(np.int64, copy=False)
        return np.array([self._number[word] for word in values], dtype=np.int64)

    def encode_all(self, items: Sequence[Item]) -> list[np.ndarray]:
        if isinstance(items, Sequences) and self.names is None and not any_mapped(items):
            return cast(list[np.ndarray], list(items))  # int64 already
        return super().encode_all(items)

    def decode(self, steps: np.ndarray) -> Item:
        symbols = np.asarray(steps, dtype=np.int64)
        return symbols if self.names is None else np.array(self.names, dtype=object)[symbols]

    def log_det(self, item: Item) -> np.ndarray | float:
        return 0.0

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.arange(len(steps))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1), np.ones(1)

    def state(self) -> State:
        return {"size": self.size, **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        if type(state["size"]) is not int or not 1 <= state["size"] < 2**62:
            raise ValueError(f"the number of symbols is {state['size']!r}; it should be an integer, at least 1")
        self.size, self.names = state["size"], names_of_state(state, state["size"])
        self._number = {name: symbol for symbol, name in enumerate(self.names or ())}
        return self


def takes_alphabet_from_data(encoding: Encoding | str | None) -> bool:
    """Return True if an encoding of symbols gets their number or their names from the training data.

    Args:
        encoding: the encoding; ``"auto"`` gives True, any other string or None gives False.
    """
    if isinstance(encoding, Encoding):
        return isinstance(encoding, Symbols) and encoding.n_symbols is None
    return encoding == "auto"

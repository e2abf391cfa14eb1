"""Integer symbols, as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.encodings.base import Encoding, State
from seqmodels.sequences import Item, Sequences

MAX_SYMBOLS = 1 << 28  # unless the user asks for more: a table of as many floats is a gigabyte


@dataclass(eq=False, repr=False)
class Symbols(Encoding):
    """Symbols ``0 .. n_symbols - 1``.

    Args:
        n_symbols: V; ``None`` takes the largest symbol of the training data plus one.
    """

    n_symbols: int | None = None
    reads = "symbols"

    def fit(self, sequences: Sequences) -> Self:
        largest = max(int(np.max(np.asarray(x))) for x in sequences)
        if largest >= MAX_SYMBOLS and self.n_symbols is None:
            i, item = next((i, np.asarray(x)) for i, x in enumerate(sequences) if np.max(np.asarray(x)) == largest)
            raise ValueError(
                f"sequence {i} has symbol {largest} at position {int(np.argmax(item))}, so there would be "
                f"{largest + 1} of them, most of which are never seen; number those there are from 0 (numpy.unique("
                "..., return_inverse=True)), or pass encoding=Symbols(n_symbols=...)"
            )
        if self.n_symbols is not None and largest >= self.n_symbols:
            raise ValueError(f"the data have symbol {largest} but n_symbols is {self.n_symbols}; raise n_symbols")
        return self.restore({"size": self.n_symbols or largest + 1})

    def check(self, i: int, item: Item) -> None:
        values = np.asarray(item)
        if values.max() >= self.size:
            bad = int(np.argmax(values >= self.size))
            raise ValueError(
                f"sequence {i} has symbol {values[bad]} at position {bad} but the model knows 0 to {self.size - 1}; "
                f"pass encoding=Symbols(n_symbols={values.max() + 1}) when fitting"
            )

    def encode(self, item: Item) -> np.ndarray:
        return np.asarray(item, dtype=np.int64)

    def decode(self, steps: np.ndarray) -> Item:
        return np.asarray(steps, dtype=np.int64)

    def log_det(self, item: Item) -> np.ndarray | float:
        return 0.0

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.arange(len(steps))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1), np.ones(1)

    def state(self) -> State:
        return {"size": self.size}

    def restore(self, state: State) -> Self:
        if type(state["size"]) is not int or not 1 <= state["size"] < 2**62:
            raise ValueError(f"the number of symbols is {state['size']!r}; it should be an integer, at least 1")
        self.size = state["size"]
        return self

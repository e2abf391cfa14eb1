"""Raw data <-> what a model sees: invertible, with the log-determinant that keeps likelihoods in raw units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np

from seqmodels.common.parameters import Configurable
from seqmodels.sequences import Item, Kind, Sequences
from seqmodels.sequences.measure import Exactness, Values

State = dict[str, Any]  # numpy arrays and plain JSON values


class Encoding(Configurable, ABC):
    """An invertible map from a raw sequence to S encoded steps.

    To add one, define the methods below. ``fit`` learns what the map needs from training sequences; fitted state is
    what ``state`` returns and ``restore`` takes. A model fits a clone, so the object a user passes in is never changed.
    """

    reads: ClassVar[Kind]
    exactness: ClassVar[Exactness] = "exact"
    is_unit_wise: ClassVar[bool] = False  # whether every encoded step is one raw unit, and its log-determinant known
    has_log_det: ClassVar[bool] = True  # False: that is 0 for all data
    size: int  # of an encoded step: D features, or V symbols
    names: tuple[str, ...] | None = None  # of them, where the training data had names
    note: str | None = None  # what fit chose, in one line, where it chose anything

    @property
    def emits(self) -> Literal["vectors", "symbols"]:
        """What encoded steps are."""
        return "vectors" if self.reads == "vectors" else "symbols"

    @property
    def n_features(self) -> int:
        """D of the raw vectors that it reads."""
        return self.size

    def values(self) -> tuple[Values, ...]:
        """What each of D features may be."""
        reals: Values = "reals"
        return (reals,) * self.n_features

    def grid(self) -> tuple[float, ...] | None:
        """The widths ``(D,)``, in raw units, of the grid that values must lie on; None: they need not."""
        return None

    @abstractmethod
    def fit(self, sequences: Sequences) -> Self:
        """Learn the map. Raises ``ValueError`` where the data do not allow it."""

    @abstractmethod
    def check(self, i: int, item: Item) -> None:
        """Raise ``ValueError``, naming sequence ``i``, if it cannot be encoded."""

    def check_all(self, sequences: Sequences) -> None:
        """Raise ``ValueError`` for the first sequence that cannot be encoded."""
        for i, item in enumerate(sequences):
            self.check(i, item)

    def check_finite(self, sequences: Sequences) -> None:
        """Raise ``ValueError`` for the first sequence with infinite values, if it cannot be read for them."""

    def unknown(self, item: Item) -> np.ndarray:
        """``(n,)`` positions of the symbols that ``check`` refuses; none of text and vectors."""
        return np.empty(0, dtype=np.int64)

    @abstractmethod
    def encode(self, item: Item) -> np.ndarray:
        """``(S, D)`` float64 or ``(S,)`` int64 steps, as ``emits`` says."""

    def encode_all(self, items: Sequence[Item]) -> list[np.ndarray]:
        """``encode`` of each; a subclass may encode very many short sequences at once."""
        return [self.encode(item) for item in items]

    def encode_after(self, item: Item) -> np.ndarray:
        """The steps of a part that goes on after another; a tokenizer may spell a first word in another way."""
        return self.encode(item)

    @abstractmethod
    def decode(self, steps: np.ndarray) -> Item:
        """The raw sequence of encoded steps."""

    def decode_after(self, steps: np.ndarray) -> Item:
        """The raw part of steps that go on after others."""
        return self.decode(steps)

    @abstractmethod
    def log_det(self, item: Item) -> np.ndarray | float:
        """What to add to each step's log-density to express it in raw units, nats."""

    @abstractmethod
    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        """``(S,)`` position of the raw unit that each encoded step completes."""

    @abstractmethod
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """``(shift, scale)`` with ``raw = shift + scale * encoded``; zeros and ones for symbols."""

    @abstractmethod
    def state(self) -> State:
        """The fitted numbers, as arrays and JSON values."""

    @abstractmethod
    def restore(self, state: State) -> Self:
        """Take back what ``state`` returned."""


def names_to_state(names: tuple[str, ...] | None) -> State:
    """What ``state`` adds where features or symbols have names."""
    return {} if names is None else {"names": list(names)}


def names_of_state(state: State, size: int) -> tuple[str, ...] | None:
    """The names that ``names_to_state`` wrote; ``ValueError`` for anything but ``size`` different strings."""
    names = state.get("names")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of features or symbols should be a list of strings")
    if len(names) != size or len(set(names)) != size:
        raise ValueError(f"there should be {size} different names of features or symbols")
    return tuple(names)

"""The base class of encodings: invertible maps of raw data whose log-determinants keep likelihoods in raw units."""

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
    """The base class of encodings, invertible maps from a raw sequence to S encoded steps that a model reads.

    A raw unit is a frame of vectors, a symbol, or a UTF-8 byte of text; an encoded step may stand for several units. To
    add an encoding, define the methods below. ``fit`` learns the numbers that the map needs from training sequences;
    ``state`` returns them and ``restore`` takes them back. A model fits a clone, so the object that a user passes is
    never changed.
    """

    reads: ClassVar[Kind]
    exactness: ClassVar[Exactness] = "exact"
    is_unit_wise: ClassVar[bool] = False  # True if every encoded step is one raw unit with a known log-determinant
    has_log_det: ClassVar[bool] = True  # False if the log-determinant is 0 for all data
    size: int  # number D of encoded features, or number V of symbols
    names: tuple[str, ...] | None = None  # names of the features or symbols, if the training data had names
    note: str | None = None  # one line that says what fit chose, if it chose anything

    @property
    def emits(self) -> Literal["vectors", "symbols"]:
        """The kind of the steps that the encoding makes, ``"vectors"`` or ``"symbols"``."""
        return "vectors" if self.reads == "vectors" else "symbols"

    @property
    def n_features(self) -> int:
        """The number of features of the raw vectors."""
        return self.size

    def values(self) -> tuple[Values, ...]:
        """Return the kind of values of each of the D features of vectors, such as ``"reals"`` or ``"bits"``."""
        reals: Values = "reals"
        return (reals,) * self.n_features

    def grid(self) -> tuple[float, ...] | None:
        """Return the spacing of the possible values of each feature in raw units; None if values are continuous."""
        return None

    @abstractmethod
    def fit(self, sequences: Sequences) -> Self:
        """Learn the map from training sequences, and return the encoding itself.

        Raises:
            ValueError: if the map cannot be learned from these sequences.
        """

    @abstractmethod
    def check(self, i: int, item: Item) -> None:
        """Raise ValueError if a raw sequence cannot be encoded.

        Args:
            i: number of the sequence, which the message names.
            item: the raw sequence: a text, or an array of vectors or symbols.
        """

    def check_all(self, sequences: Sequences) -> None:
        """Raise ValueError if one of the sequences cannot be encoded; the message names the first such sequence."""
        for i, item in enumerate(sequences):
            self.check(i, item)

    def check_finite(self, sequences: Sequences) -> None:
        """Raise ValueError, naming the sequence, if one has infinite values that the encoding does not accept."""

    def unknown(self, item: Item) -> np.ndarray:
        """Return the positions ``(n,)`` of the raw symbols that ``check`` refuses; empty for text and vectors."""
        return np.empty(0, dtype=np.int64)

    @abstractmethod
    def encode(self, item: Item) -> np.ndarray:
        """Return the S encoded steps of a raw sequence: vectors ``(S, D)`` float64, or symbols ``(S,)`` int64.

        Args:
            item: the raw sequence: a text, or an array of vectors or symbols.
        """

    def encode_all(self, items: Sequence[Item]) -> list[np.ndarray]:
        """Return the encoded steps of each raw sequence, which may be faster than ``encode`` for many short ones."""
        return [self.encode(item) for item in items]

    def encode_after(self, item: Item) -> np.ndarray:
        """Return the encoded steps of a part of a raw sequence that continues an earlier part.

        It differs from ``encode`` if a tokenizer spells the start of a text differently.

        Args:
            item: the later part: a text, or an array of vectors or symbols.
        """
        return self.encode(item)

    @abstractmethod
    def decode(self, steps: np.ndarray) -> Item:
        """Return the raw sequence (text, vectors or symbols) that encoded steps stand for.

        Args:
            steps: encoded vectors ``(S, D)`` or symbols ``(S,)``.
        """

    def decode_after(self, steps: np.ndarray) -> Item:
        """Return the part of a raw sequence that encoded steps stand for if they continue an earlier part.

        Args:
            steps: encoded vectors ``(S, D)`` or symbols ``(S,)``.
        """
        return self.decode(steps)

    @abstractmethod
    def log_det(self, item: Item) -> np.ndarray | float:
        """Return the nats to add to the log-probability of each encoded step to express it in raw units, ``(S,)``.

        If vectors are divided by a scale, for example, they are minus the logarithm of the scale, summed over features.
        The result is a float if it is the same for every step.

        Args:
            item: the raw sequence, which has S encoded steps.
        """

    @abstractmethod
    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        """Return, for each of S encoded steps, the position of the last raw unit that it encodes, ``(S,)``.

        A raw unit is a frame of vectors, a symbol, or a byte of text.

        Args:
            steps: encoded vectors ``(S, D)`` or symbols ``(S,)``.
        """

    @abstractmethod
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the shift and the scale in ``raw = shift + scale * encoded``, each ``(D,)``; 0 and 1 for symbols."""

    @abstractmethod
    def state(self) -> State:
        """Return the numbers that ``fit`` has learned, as a mapping from names to arrays and JSON values."""

    @abstractmethod
    def restore(self, state: State) -> Self:
        """Set the numbers that a fit has learned, and return the encoding itself; the inverse of ``state``.

        Args:
            state: mapping from names to arrays and JSON values that ``state`` returned.

        Raises:
            ValueError: if the numbers are not the state of such an encoding.
        """


def names_to_state(names: tuple[str, ...] | None) -> State:
    """Return ``{"names": [...]}``, the names as a file stores them with an encoding; ``{}`` if they are None."""
    return {} if names is None else {"names": list(names)}


def names_of_state(state: State, size: int) -> tuple[str, ...] | None:
    """Return the names of features or symbols in the stored state of an encoding; None if it has none.

    Args:
        state: mapping from names to values, with the list of names under ``"names"``.
        size: number of features or symbols.

    Raises:
        ValueError: if they are not ``size`` different strings.
    """
    names = state.get("names")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of features or symbols should be a list of strings")
    if len(names) != size or len(set(names)) != size:
        raise ValueError(f"there should be {size} different names of features or symbols")
    return tuple(names)

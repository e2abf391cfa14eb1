"""Encodings for the outputs of foreign models: integers, named symbols, bytes, or characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.encodings import Bytes, Encoding, Symbols
from seqmodels.encodings.base import State
from seqmodels.encodings.text import Text
from seqmodels.sequences import Item, Sequences


@dataclass(eq=False, repr=False)
class Alphabet(Text):
    """Encoding of text by characters: each character is a symbol, its position in a string.

    Characters that are not in the string are refused. Every text has one spelling, so likelihoods are exact.

    Args:
        characters: the characters of the alphabet, all different.

    >>> Alphabet("abé").fit(Sequences(["a"])).encode("béa").tolist()
    [1, 2, 0]
    """

    characters: str

    def fit(self, sequences: Sequences) -> Self:
        return self.restore({})

    def check(self, i: int, item: Item) -> None:
        unknown = next((t for t, character in enumerate(str(item)) if character not in self._number), None)
        if unknown is not None:
            raise ValueError(
                f"sequence {i} has {str(item)[unknown]!r} at character {unknown}, which is not in the model's alphabet "
                f"of {self.size} characters; leave such characters out, or map them to known ones"
            )

    def spelling(self) -> list[bytes]:
        return self._spelling

    def encode(self, item: Item) -> np.ndarray:
        return np.array([self._number[character] for character in str(item)], dtype=np.int64)

    def decode(self, steps: np.ndarray) -> Item:
        return "".join(self.characters[step] for step in np.asarray(steps).tolist())

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.cumsum(self._n_bytes[steps]) - 1

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> Self:
        if (
            not isinstance(self.characters, str)
            or not self.characters
            or len(set(self.characters)) < len(self.characters)
        ):
            raise ValueError(f"the alphabet is {self.characters!r:.80}; pass a string of different characters")
        self._number = {character: i for i, character in enumerate(self.characters)}
        self._spelling = [character.encode() for character in self.characters]
        self._n_bytes = np.array([len(part) for part in self._spelling])
        self.size = len(self.characters)
        return self


def known_encoding(
    encoding: Encoding | str,
    n_symbols: int | None,
    symbols: Sequence[str] | None,
    text: bool,
    alphabet: str | None,
) -> Encoding:
    """Return the fitted encoding that a user's arguments state; exactly one of them must be given.

    Args:
        encoding: a fitted encoding; a string counts as not given.
        n_symbols: number of symbols, if sequences are of integers.
        symbols: names of the symbols, if sequences are of strings.
        text: True for text that is read as UTF-8 bytes.
        alphabet: the characters, for text that is read as characters.

    Raises:
        ValueError: If not exactly one of the arguments states an encoding, or ``encoding`` is not fitted.
    """
    stated = {
        "n_symbols": n_symbols is not None,
        "symbols": symbols is not None,
        "text": text,
        "alphabet": alphabet is not None,
        "encoding": isinstance(encoding, Encoding),
    }
    names = [name for name, is_stated in stated.items() if is_stated]
    if len(names) != 1:
        raise ValueError(
            f"{' and '.join(names) or 'nothing'} says what the outputs stand for; pass one of n_symbols= (integers), "
            "symbols= (names), text=True (bytes), alphabet= (characters), or encoding= (a fitted one)"
        )
    if isinstance(encoding, Encoding):
        if not hasattr(encoding, "size"):
            raise ValueError(f"{encoding!r} is not fitted; pass one that is, such as the encoding_ of a fitted model")
        return encoding
    if alphabet is not None:
        return Alphabet(alphabet).restore({})
    if text:
        return Bytes().restore({})
    if symbols is not None:
        return Symbols().restore({"size": len(symbols), "names": list(symbols)})
    return Symbols(n_symbols).restore({"size": n_symbols})

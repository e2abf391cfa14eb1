"""Encodings of text as bytes, characters or byte-pair tokens; all are lossless, and scores count UTF-8 bytes."""

from __future__ import annotations

import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Self, cast

import numpy as np

from seqmodels.common.parameters import Range
from seqmodels.encodings.base import Encoding, State
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.items import text_of

N_BYTES = 256

BYTE_LEVEL_PARTS = ("pre_tokenizer", "decoder")  # parts of a tokenizer besides its model


class Text(Encoding, ABC):
    """The base class of encodings of text as symbols that spell pieces of it.

    Every text can be encoded, and log-probabilities need no conversion to raw units. To add one, define ``spelling``,
    ``fit``, ``encode``, ``decode``, ``last_unit``, ``state`` and ``restore``.
    """

    reads = "text"
    has_log_det = False
    leading: bytes = b""  # bytes that the spelling of every text begins with: the space that some tokenizers add

    @abstractmethod
    def spelling(self) -> list[bytes]:
        """Return the bytes that each symbol stands for; joined, those of a text's symbols are the text in UTF-8."""

    def pieces(self, text: Item) -> list[str]:
        """Return the part of a text that each of its encoded symbols spells, in readable form.

        A character whose bytes are separate symbols is shown at its last byte, with dots at the others.

        >>> Bytes().fit(Sequences(["a"])).pieces("né")
        ['n', '·', 'é']
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")  # keeps the bytes of an unfinished character
        spelling = self.spelling()
        return [decoder.decode(spelling[step]) or "·" for step in self.encode(text).tolist()]

    def check(self, i: int, item: Item) -> None:
        """Accept every text without an error, because every text has a spelling."""

    def log_det(self, item: Item) -> np.ndarray | float:
        return 0.0

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1), np.ones(1)


@dataclass(eq=False, repr=False)
class Bytes(Text):
    """An encoding of text by its UTF-8 bytes, 256 symbols, so that each text has one spelling and an exact likelihood.

    >>> Bytes().fit(Sequences(["a"])).encode("né").tolist()
    [110, 195, 169]
    """

    is_unit_wise = True

    def fit(self, sequences: Sequences) -> Self:
        return self.restore({})

    def spelling(self) -> list[bytes]:
        return [bytes([b]) for b in range(256)]

    def encode(self, item: Item) -> np.ndarray:
        # A part of a text in a file is an array of its bytes.
        part = item if isinstance(item, np.ndarray) else np.frombuffer(item.encode(), dtype=np.uint8)
        return part.astype(np.int64)

    def encode_all(self, items: Sequence[Item]) -> list[np.ndarray]:
        if not all(isinstance(item, str) for item in items):
            return super().encode_all(items)
        texts = [cast(str, item).encode() for item in items]
        steps = np.frombuffer(b"".join(texts), dtype=np.uint8).astype(np.int64)
        return [steps[a:b] for a, b in pairwise(np.cumsum([0, *map(len, texts)]).tolist())]

    def decode(self, steps: np.ndarray) -> Item:
        return bytes(np.asarray(steps, dtype=np.uint8)).decode(errors="replace")

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.arange(len(steps))

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> Self:
        self.size = 256
        return self


@dataclass(eq=False, repr=False)
class Characters(Text):
    """An encoding of text by the characters of the training text, and by bytes for all other characters.

    A known character can also be spelled in bytes, so the log-probability of its usual spelling is a lower bound.
    """

    exactness = "bound"

    def fit(self, sequences: Sequences) -> Self:
        return self.restore({"alphabet": "".join(sorted({c for text in sequences for c in text_of(text)}))})

    def spelling(self) -> list[bytes]:
        return self._spelling

    def encode(self, item: Item) -> np.ndarray:
        steps: list[int] = []
        for character in text_of(item):
            known = self._index.get(character)
            steps.extend([known] if known is not None else (len(self.alphabet) + b for b in character.encode()))
        return np.array(steps, dtype=np.int64)

    def decode(self, steps: np.ndarray) -> Item:
        return b"".join(self._spelling[s] for s in np.asarray(steps).tolist()).decode(errors="replace")

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.cumsum(self._n_bytes[steps]) - 1

    def state(self) -> State:
        return {"alphabet": self.alphabet}

    def restore(self, state: State) -> Self:
        alphabet = state["alphabet"]
        if not isinstance(alphabet, str) or len(set(alphabet)) < len(alphabet):
            raise ValueError("the alphabet should be a string in which no character comes twice")
        self.alphabet = alphabet
        self._index = {character: i for i, character in enumerate(self.alphabet)}
        self._spelling = [c.encode() for c in self.alphabet] + [bytes([b]) for b in range(256)]
        self._n_bytes = np.array([len(s) for s in self._spelling])
        self.size = len(self._spelling)
        return self


@dataclass(eq=False, repr=False)
class BPE(Text):
    """An encoding of text by byte pairs, which are learned from the training text (Sennrich et al. 2016).

    It works on bytes and uses the ``tokenizers`` package. A text can be spelled in several ways; the log-probability of
    the spelling that the merges give is a lower bound. ``pieces`` shows how a text is split, ``spelling`` lists the
    pieces, and ``merges`` how they were learned.

    Args:
        n_symbols: largest number of symbols, the pieces into which text is split, at least 256; a short training text
            may give fewer.
    """

    n_symbols: Annotated[int, Range(N_BYTES)] = 1024
    exactness = "bound"

    def fit(self, sequences: Sequences) -> Self:
        if self.n_symbols < N_BYTES:
            raise ValueError(f"n_symbols is {self.n_symbols}; every byte needs a piece, so pass at least {N_BYTES}")
        tokenizers = _import_tokenizers()
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            # The trainer allocates vocab_size entries at once; a text of n bytes yields at most n merges.
            vocab_size=min(self.n_symbols, N_BYTES + sum(len(text_of(text).encode()) for text in sequences)),
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator((text_of(text) for text in sequences), trainer)
        return self.restore({"tokenizer": tokenizer.to_str()})

    def spelling(self) -> list[bytes]:
        byte_of = byte_of_character()
        return [bytes(byte_of[c] for c in self._tokenizer.id_to_token(i)) for i in range(self.size)]

    def merges(self) -> list[tuple[bytes, bytes]]:
        """Return the pairs of byte strings that were merged into one piece, in the order in which they were learned."""
        byte_of, learned = byte_of_character(), json.loads(self._tokenizer.to_str())["model"]["merges"]
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in learned)
        return [(bytes(byte_of[c] for c in left), bytes(byte_of[c] for c in right)) for left, right in pairs]

    def encode(self, item: Item) -> np.ndarray:
        return np.array(self._tokenizer.encode(text_of(item)).ids, dtype=np.int64)

    def decode(self, steps: np.ndarray) -> Item:
        return str(self._tokenizer.decode(np.asarray(steps).tolist()))

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.cumsum(self._n_bytes[steps]) - 1

    def state(self) -> State:
        return {"tokenizer": self._tokenizer.to_str()}

    def restore(self, state: State) -> Self:
        _check_tokenizer(state["tokenizer"])
        self._tokenizer = _import_tokenizers().Tokenizer.from_str(state["tokenizer"])
        self.size = self._tokenizer.get_vocab_size()
        # In the byte-level alphabet a piece has one character a byte.
        self._n_bytes = np.array([len(self._tokenizer.id_to_token(i)) for i in range(self.size)])
        return self


def byte_of_character() -> dict[str, int]:
    """Return the byte that each character stands for in the vocabulary of a byte-level tokenizer.

    Printable characters stand for their own byte, the characters from U+0100 on for the other bytes; the result has all
    256 bytes by character.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def _check_tokenizer(text: Any) -> None:
    """Raise ValueError unless a text is the JSON of a byte-level byte-pair tokenizer.

    The check comes first because the ``tokenizers`` package would read many other kinds, slowly.

    Args:
        text: what was read from a file.
    """
    content = json.loads(text) if isinstance(text, str) else None
    parts = ("model", *BYTE_LEVEL_PARTS)
    if not isinstance(content, dict) or not all(isinstance(content.get(key), dict) for key in parts):
        raise ValueError("the tokenizer is not a byte-level byte-pair encoding")
    model = content["model"]
    vocabulary, merges = model.get("vocab"), model.get("merges")
    has_more = any(value for key, value in content.items() if key not in ("version", *parts))
    is_byte_level = all(content[key].get("type") == "ByteLevel" for key in BYTE_LEVEL_PARTS)
    if has_more or model.get("type") != "BPE" or not is_byte_level:
        raise ValueError("the tokenizer does more than byte-level byte-pair encoding")
    if not (
        isinstance(vocabulary, dict)
        and isinstance(merges, list)
        and sorted(vocabulary.values()) == list(range(len(vocabulary)))
    ):
        raise ValueError("the pieces of the tokenizer are not numbered from 0 on")
    known = set(byte_of_character())
    if not all(piece and known.issuperset(piece) for piece in vocabulary) or not known.issubset(vocabulary):
        raise ValueError("the pieces of the tokenizer are not made of bytes, or a byte has none")
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            raise ValueError(f"the tokenizer merges {pair!r:.100}, which are not two of its pieces")


def _import_tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("BPE needs the tokenizers package: pip install 'seqmodels[text]'") from error
    return tokenizers


def symbol_names(encoding: Encoding) -> list[str]:
    """Return a name for display of each feature of encoded vectors, or of each symbol.

    Features without names are called ``x0``, ``x1``, ..., and a single one ``""``. Symbols of text are named by the
    pieces of text that they spell, and those of quantised vectors ``cell 0``, ``cell 1``, ...
    """
    n = encoding.size
    if encoding.emits == "vectors":
        n_features = encoding.n_features
        names = encoding.names or (("",) if n_features == 1 else tuple(f"x{d}" for d in range(n_features)))
        return [name for name in names for _ in range(n // len(names))]
    if isinstance(encoding, Text):
        return [piece.decode(errors="backslashreplace") for piece in encoding.spelling()[:n]]
    if encoding.reads == "vectors":
        return [f"cell {symbol}" for symbol in range(n)]
    return [str(encoding.decode(np.array([symbol]))[0]) for symbol in range(n)]


def encoded_steps(encoding: Encoding, item: Item) -> list[str]:
    """Return the encoded steps of a raw sequence as strings for display; for text, the piece that each symbol spells.

    Args:
        encoding: the fitted encoding.
        item: the raw sequence.
    """
    return encoding.pieces(item) if isinstance(encoding, Text) else [str(value) for value in np.asarray(item).tolist()]

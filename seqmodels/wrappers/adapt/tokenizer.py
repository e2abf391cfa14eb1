"""A tokenizer of the package ``transformers`` as a lossless encoding of text, with the bytes of each token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from seqmodels.encodings.base import State
from seqmodels.encodings.text import Text, byte_of_character
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.measure import Exactness

SPACE = "▁"  # character that SentencePiece writes for a space
PROBES = ("a", "0", "the")  # texts that show whether a tokenizer puts a space first
SEPARATOR = "\n"  # put before a piece of text so that the tokenizer adds no space


class PublishedTokenizer(Protocol):
    """A protocol with the attributes and methods that are used of a tokenizer of the package ``transformers``."""

    added_tokens_decoder: dict[int, Any]
    bos_token_id: int | None
    eos_token_id: int | None

    def __len__(self) -> int:
        """Return the number of tokens that it knows, added ones included."""
        ...

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        """Return the written form of each of the token numbers ``ids``, with marks for spaces and bytes."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool, verbose: bool) -> list[int]:
        """Return the token numbers of a text.

        Args:
            text: the text.
            add_special_tokens: True to add tokens for its begin and end.
            verbose: True to warn of texts longer than the model reads.
        """
        ...


@dataclass(eq=False, repr=False)
class PublishedTokens(Text):
    """Encoding of text by a published tokenizer; no token is added before or after.

    The bytes of a text's tokens, joined, must be the text; or a space and the text, if the tokenizer puts a space
    before the first word (SentencePiece's default: Llama 2, Mistral, Gemma 1). A text for which this does not hold is
    refused, because its probability would be that of another text; some tokenizers change case, normalise, replace
    unknown characters, or drop a leading space. The text of a sequence of tokens is what is left without that added
    space, so that no two texts share one sequence and the probabilities of all texts sum to at most one. Figures are
    lower bounds, because a text has other spellings too. The added space is no byte of the text: a token's
    log-probability stands on the token's last byte, and that of a token which is only the space on the first byte.

    Args:
        tokenizer: a tokenizer with byte-level tokens (GPT-2, Llama 3, Qwen) or SentencePiece tokens.
        n_tokens: number of outputs of the network, at least the number of tokens. None means as many as there are
            tokens.
    """

    tokenizer: Any
    n_tokens: int | None = None
    exactness: ClassVar[Exactness] = "bound"

    def fit(self, sequences: Sequences) -> Self:
        return self.restore({})

    def check(self, i: int, item: Item) -> None:
        text = str(item)
        joined = self._joined(self._tokens(text))
        raw = self.leading + text.encode()
        if joined != raw:
            at = next((t for t, (a, b) in enumerate(zip(joined, raw, strict=False)) if a != b), len(joined))
            raise ValueError(
                f"sequence {i} is another text after the tokenizer: from byte {at} on it has "
                f"{joined[at : at + 20]!r} in the place of {raw[at : at + 20]!r}; its probability would be that of the "
                "other text, so take a model whose tokenizer is lossless (byte-level), or tokenizer=None and integers"
            )

    def spelling(self) -> list[bytes]:
        return self._spelling

    def encode(self, item: Item) -> np.ndarray:
        return np.array(self._tokens(str(item)), dtype=np.int64)

    def _tokens(self, text: str) -> list[int]:
        published: PublishedTokenizer = self.tokenizer
        return published.encode(text, add_special_tokens=False, verbose=False)

    def encode_after(self, item: Item) -> np.ndarray:
        if not self.leading:
            return self.encode(item)
        before = self._tokens(SEPARATOR)
        tokens = self._tokens(SEPARATOR + str(item))
        if tokens[: len(before)] != before or self._joined(tokens[len(before) :]) != str(item).encode():
            raise ValueError(
                f"this tokenizer puts a space before the first word, and has no tokens of {str(item)!r:.60} alone; "
                "score whole texts"
            )
        return np.array(tokens[len(before) :], dtype=np.int64)

    def decode_after(self, steps: np.ndarray) -> Item:
        return self._joined(np.asarray(steps).tolist()).decode(errors="replace")

    def _joined(self, tokens: list[int]) -> bytes:
        return b"".join(self._spelling[token] for token in tokens)

    def decode(self, steps: np.ndarray) -> Item:
        return self._joined(np.asarray(steps).tolist()).removeprefix(self.leading).decode(errors="replace")

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        last: np.ndarray = np.maximum(np.cumsum(self._n_bytes[steps]) - 1 - len(self.leading), 0)
        return last

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> Self:
        self._spelling = spelling_of(self.tokenizer)
        if self.n_tokens is not None and self.n_tokens < len(self._spelling):
            raise ValueError(
                f"the tokenizer has {len(self._spelling)} tokens but the network {self.n_tokens}; pass the tokenizer "
                "that the network was trained with"
            )
        missing = 0 if self.n_tokens is None else self.n_tokens - len(self._spelling)
        self._spelling += [b""] * missing  # outputs of the network that no text uses
        self._n_bytes = np.array([len(part) for part in self._spelling])
        self.size = len(self._spelling)
        puts_space = any(self._joined(self._tokens(probe)) == b" " + probe.encode() for probe in PROBES)
        self.leading = b" " if puts_space else b""
        return self


def spelling_of(tokenizer: PublishedTokenizer) -> list[bytes]:
    """Return the bytes that each token of a tokenizer stands for, in the order of their numbers.

    Tokens may be written in a byte-level alphabet (GPT-2), as SentencePiece writes them, or as plain characters.
    """
    written = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    added = {token: str(each.content) for token, each in tokenizer.added_tokens_decoder.items()}
    others = [piece for token, piece in enumerate(written) if token not in added]
    spell: Callable[[str], bytes]
    if any(SPACE in piece for piece in others):
        spell = _sentencepiece
    elif byte_of_character().keys() >= {character for piece in others for character in piece}:
        spell = _byte_level
    else:
        spell = _plain
    return [added[token].encode() if token in added else spell(piece) for token, piece in enumerate(written)]


def _byte_level(piece: str) -> bytes:
    byte_of = byte_of_character()
    return bytes(byte_of[character] for character in piece)


def _plain(piece: str) -> bytes:
    return piece.encode()


def _sentencepiece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(SPACE, " ").encode()

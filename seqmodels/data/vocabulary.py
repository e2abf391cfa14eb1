"""The class ``Vocabulary``, which maps tokens of any kind (words, phonemes, tags) to integer symbols and back."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.files import write_text
from seqmodels.common.parameters import PositiveInt, check_fields, check_options, checked
from seqmodels.data.strict_json import parsed
from seqmodels.data.text import read_text
from seqmodels.sequences.items import in_words


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of distinct tokens, which maps each token to its position, an integer symbol, and back.

    A token that is not in it has the symbol of ``unknown``. A likelihood of symbols does not count how an unknown token
    is spelled, so models are comparable only if they share a vocabulary.

    Args:
        tokens: distinct strings, with ``unknown`` among them.
        unknown: the token that stands for all that are not in the vocabulary; None means that others are refused.

    Raises:
        ValueError: a token occurs twice, or ``unknown`` is not among the tokens.

    >>> words = Vocabulary.learn([["a", "dog", "and", "a", "cat"], ["a", "dog"]], min_count=2)
    >>> words.tokens
    ('<unk>', 'a', 'dog')
    >>> words.encode(["a", "cow"]).tolist(), words.decode([1, 0])
    ([1, 0], ['a', '<unk>'])
    """

    tokens: tuple[str, ...]
    unknown: str | None = "<unk>"
    _symbols: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        symbols = {token: i for i, token in enumerate(self.tokens)}
        if len(symbols) < len(self.tokens):
            twice = next(token for token, n in Counter(self.tokens).items() if n > 1)
            raise ValueError(f"the token {twice!r} is there twice; pass distinct tokens")
        if self.unknown is not None and self.unknown not in symbols:
            raise ValueError(
                f"unknown is {self.unknown!r}, which is not among the tokens; add it, or pass unknown=None"
            )
        object.__setattr__(self, "_symbols", symbols)

    @classmethod
    def learn(
        cls,
        token_lists: Iterable[Iterable[str]],
        *,
        min_count: PositiveInt = 1,
        unknown: str | None = "<unk>",
        max_size: PositiveInt | None = None,
    ) -> Self:
        """Return the vocabulary of all tokens that occur in lists of tokens.

        ``unknown`` comes first, then the tokens by decreasing frequency, and by code points if they are equally
        frequent.

        Args:
            token_lists: lists of tokens; a string among them is a list of its characters.
            min_count: a token that occurs less often is left out.
            unknown: the token that stands for all others; it may also occur in the lists. None means that others are
                refused.
            max_size: the most tokens, including ``unknown``; None means no limit.

        Raises:
            ValueError: ``token_lists`` is a single string, a token is not a string, or no token is left.
        """
        check_options(Vocabulary.learn, min_count=min_count, unknown=unknown, max_size=max_size)
        if isinstance(token_lists, str):
            raise ValueError("token_lists is one str; pass a list of token lists, for one text [text.split()]")
        counts: Counter[str] = Counter()
        for i, tokens in enumerate(_listed("token_lists", token_lists)):
            counts.update(_listed(f"token list {i}", tokens))
        if not all(isinstance(token, str) for token in counts):
            raise ValueError(f"tokens are strings, but there is {next(t for t in counts if not isinstance(t, str))!r}")
        first = [] if unknown is None else [unknown]
        known = [t for t in sorted(counts, key=lambda t: (-counts[t], t)) if counts[t] >= min_count and t not in first]
        tokens = (first + known)[:max_size]
        if tokens == first:
            raise ValueError(
                f"no token is left of {len(counts)} with min_count={min_count} and max_size={max_size}; lower min_count"
            )
        return cls(tuple(tokens), unknown)

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._symbols

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """Return the symbols of T tokens: their positions in the vocabulary, shape ``(T,)``, int64.

        Args:
            tokens: the tokens; one that is not in the vocabulary gets the symbol of ``unknown``.

        Raises:
            ValueError: a token is not a string, or is not in the vocabulary and ``unknown`` is None.
        """
        other = None if self.unknown is None else self._symbols[self.unknown]
        return np.array(
            [self._symbol(i, token, other) for i, token in enumerate(_listed("tokens", tokens))], dtype=np.int64
        )

    def _symbol(self, i: int, token: str, other: int | None) -> int:
        if not isinstance(token, str):
            raise ValueError(f"the token at position {i} is {in_words(token)}; pass strings")
        symbol = self._symbols.get(token, other)
        if symbol is None:
            raise ValueError(
                f"the token {token!r} at position {i} is not among the {len(self)} known, and unknown is None; "
                "learn it, or learn with unknown='<unk>'"
            )
        return symbol

    def decode(self, symbols: Sequence[int] | np.ndarray) -> list[str]:
        """Return the tokens that a list of symbols stands for.

        Args:
            symbols: positions in the vocabulary, shape ``(T,)``.

        Raises:
            ValueError: a number is not a symbol of this vocabulary.
        """
        numbers = numbers_of("symbols", symbols)
        if numbers.ndim != 1:
            raise ValueError(f"symbols have shape {numbers.shape}; pass a list of integers")
        wrong = numbers[~((numbers >= 0) & (numbers < len(self)) & (numbers == np.rint(numbers)))]
        if len(wrong):
            raise ValueError(f"there is no symbol {wrong[0]:.15g}: the vocabulary has 0 to {len(self) - 1}")
        return [self.tokens[int(symbol)] for symbol in numbers.tolist()]

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary to a JSON file that ``load`` reads."""
        content = {"tokens": self.tokens, "unknown": self.unknown}
        write_text(path, json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the vocabulary in a JSON file that ``save`` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a vocabulary.
        """
        try:
            content = parsed(read_text(Path(path)), str(path))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not JSON ({error}); pass a file that Vocabulary.save wrote") from None
        if (
            not isinstance(content, dict)
            or content.keys() != {"tokens", "unknown"}
            or not isinstance(content["tokens"], list)
            or not all(isinstance(token, str) for token in content["tokens"])
            or not isinstance(content["unknown"], str | None)
        ):
            raise ValueError(f"{path} is not a vocabulary; pass a file that Vocabulary.save wrote")
        try:
            return cls(tuple(content["tokens"]), content["unknown"])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _listed(name: str, values: Any) -> Iterable[Any]:
    if not isinstance(values, Iterable):
        raise ValueError(f"{name} is {in_words(values)}; pass a list")
    return values

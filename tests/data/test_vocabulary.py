from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqmodels.data import Vocabulary

LINES = [["b", "a", "b"], ["c", "b", "a"], "d"]  # a str is a list of its characters


def test_the_frequent_come_first_and_equals_by_code_point() -> None:
    assert Vocabulary.learn(LINES).tokens == ("<unk>", "b", "a", "c", "d")
    assert Vocabulary.learn(LINES, unknown=None).tokens == ("b", "a", "c", "d")
    assert Vocabulary.learn(LINES, min_count=2).tokens == ("<unk>", "b", "a")
    assert Vocabulary.learn(LINES, max_size=4).tokens == ("<unk>", "b", "a", "c")
    assert Vocabulary.learn([*LINES, ["<unk>"] * 9], min_count=2).tokens == ("<unk>", "b", "a")
    assert len(Vocabulary.learn(LINES, max_size=4)) == 4


def test_tokens_are_symbols_and_back() -> None:
    vocabulary = Vocabulary.learn(LINES, min_count=2)
    symbols = vocabulary.encode(["a", "x", "b", "<unk>"])
    assert symbols.tolist() == [2, 0, 1, 0]
    assert symbols.dtype == np.int64
    assert vocabulary.decode(symbols) == ["a", "<unk>", "b", "<unk>"]
    assert vocabulary.encode([]).shape == (0,)
    assert ("a" in vocabulary, "x" in vocabulary, list(vocabulary)) == (True, False, ["<unk>", "b", "a"])


def test_without_an_unknown_token_others_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the token 'x' at position 1 is not among the 4 known.*learn"):
        Vocabulary.learn(LINES, unknown=None).encode(["a", "x"])


@pytest.mark.parametrize("symbol", [-1, 5])
def test_a_number_that_is_no_symbol_is_refused(symbol: int) -> None:
    with pytest.raises(ValueError, match=f"no symbol {symbol}: the vocabulary has 0 to 4"):
        Vocabulary.learn(LINES).decode([0, symbol])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one str; pass a list"):
        Vocabulary.learn("a text")
    with pytest.raises(ValueError, match="no token is left of 4 with min_count=9"):
        Vocabulary.learn(LINES, min_count=9)
    with pytest.raises(ValueError, match="no token is left of 0"):
        Vocabulary.learn([], unknown=None)
    with pytest.raises(ValueError, match="'a' is there twice"):
        Vocabulary(("a", "b", "a"), None)
    with pytest.raises(ValueError, match="unknown is '<unk>', which is not among"):
        Vocabulary(("a",))


@pytest.mark.parametrize("unknown", ["<unk>", None])
def test_a_file_holds_all_of_it(tmp_path: Path, unknown: str | None) -> None:
    vocabulary = Vocabulary.learn([["é", "\n", '"', "\u2028"]], unknown=unknown)
    vocabulary.save(tmp_path / "words.json")
    assert Vocabulary.load(str(tmp_path / "words.json")) == vocabulary
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"other\.json is not a vocabulary"):
        Vocabulary.load(tmp_path / "other.json")

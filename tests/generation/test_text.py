from __future__ import annotations

import numpy as np
import pytest

from seqmodels.encodings import BPE, Bytes, Characters
from seqmodels.encodings.text import Text
from seqmodels.generation.text import StopStrings, decode_stream
from seqmodels.sequences import Sequences

TEXTS = ("né à la fin\n\nfin €", "to be, or not", "naïve 日本", "\x00\x7f\t~")
BYTES = Bytes().fit(Sequences(["a"])).spelling()


def written(text: bytes | str, stop: list[str] | None = None, prefix: str = "") -> list[str]:
    symbols = np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8).astype(np.int64)
    stopping = None if stop is None else StopStrings(stop, BYTES, np.frombuffer(prefix.encode(), np.uint8), 1)
    return list(decode_stream(iter(symbols), BYTES, stopping))


@pytest.mark.parametrize("encoding", [Bytes(), Characters(), BPE(300)], ids=repr)
def test_a_spelling_spells_every_text(encoding: Text) -> None:
    fitted = encoding.fit(Sequences(list(TEXTS[:2]) * 3))
    spelling = fitted.spelling()
    assert len(spelling) == fitted.size
    for text in TEXTS:
        assert b"".join(spelling[s] for s in fitted.encode(text)) == text.encode()
    odd = np.arange(fitted.size)[::-1]  # no UTF-8
    assert b"".join(spelling[s] for s in odd).decode(errors="replace") == fitted.decode(odd)


def test_pieces_are_whole_characters() -> None:
    assert written("né€!") == ["n", "é", "€", "!"]
    for text in TEXTS:
        assert "".join(written(text)) == text


def test_bytes_that_are_no_text_are_replaced_as_in_one_piece() -> None:
    for raw in (b"a\xc3", b"\xe2\x82", b"\xff\xfeb", b"\xe2\x28\xa1", b"\xf0\x9f\x98x"):
        assert "".join(written(raw)) == raw.decode(errors="replace")
        assert "" not in written(raw)


def test_a_text_ends_with_the_string_that_stops_it() -> None:
    assert "".join(written("one\ntwo\n\nthree", ["\n\n"])) == "one\ntwo\n\n"
    assert "".join(written("né€!", ["€", "!"])) == "né€"
    assert "".join(written("aab", ["ab", "aab"])) == "aab"
    assert "".join(written("abc", ["x"])) == "abc"


def test_a_string_may_begin_in_the_prefix_but_not_end_there() -> None:
    assert "".join(written("\nmore", ["\n\n"], prefix="done\n")) == "\n"
    assert "".join(written("b then ab", ["ab"], prefix="ab a")) == "b"
    assert "".join(written("x ab", ["ab"], prefix="ab")) == "x ab"


def test_a_piece_that_runs_over_is_cut() -> None:
    spelling = [b"a", b"b\n\nc", b"\n"]
    symbols = np.array([0, 1, 0])
    stopping = StopStrings(["\n\n"], spelling, np.zeros(0, dtype=np.int64), 1)
    assert "".join(decode_stream(iter(symbols), spelling, stopping)) == "ab\n\n"
    assert stopping.truncate(symbols) == b"ab\n\n"
    assert stopping.truncate(np.array([0, 0])) == b"aa"


def test_texts_are_read_one_by_one() -> None:
    stopping = StopStrings(["ab"], BYTES, np.zeros(0, dtype=np.int64), 2)
    assert [stopping.advance(i, s) for i, s in enumerate(b"ab")] == [None, None]
    assert [stopping.advance(i, s) for i, s in enumerate(b"bb")] == [1, None]


@pytest.mark.parametrize("stop", ["ab", [], ["a", ""], [b"a"]])
def test_what_cannot_stop_a_text_is_refused(stop: object) -> None:
    with pytest.raises(ValueError, match="pass a list of strings"):
        StopStrings(stop, BYTES, np.zeros(0, dtype=np.int64), 1)  # type: ignore[arg-type]

from __future__ import annotations

import unicodedata
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from seqmodels.data import builtin_text, sha256, text
from seqmodels.sequences import Sequences


@pytest.fixture
def book(tmp_path: Path) -> Path:
    file = tmp_path / "book.txt"
    file.write_bytes("\ufeffOne é\r\ntwo\r\n \r\nthree\n".encode())
    return file


def test_a_file_is_one_sequence_with_plain_line_ends(book: Path) -> None:
    whole = text(book)
    assert list(whole) == ["One é\ntwo\n \nthree\n"]
    assert whole.names == ["book.txt"]
    assert whole.n_units.tolist() == [len("One é\ntwo\n \nthree\n".encode())]


@pytest.mark.parametrize(
    ("by", "pieces", "lines"),
    [("line", ["One é", "two", "three"], [1, 2, 4]), ("paragraph", ["One é\ntwo", "three"], [1, 4])],
)
def test_pieces_drop_blank_ones_and_are_named_by_line(book: Path, by: str, pieces: list[str], lines: list[int]) -> None:
    cut = text(book, by=by)  # type: ignore[arg-type]
    assert list(cut) == pieces
    assert cut.names == [f"book.txt:{line}" for line in lines]
    assert cut.clusters is None


def test_line_separators_inside_a_line_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\u2028still one\nform\x0cfeed\n", encoding="utf-8")
    assert list(text(tmp_path / "a.txt", by="line")) == ["one\u2028still one", "form\x0cfeed"]


def test_documents_of_a_folder_are_sequences_and_clusters_of_their_lines(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("x\ny\n")
    (tmp_path / "a.TXT").write_text("z")
    (tmp_path / "sub" / "c.txt").write_text(" \n")
    (tmp_path / "notes.md").write_text("no")
    whole, lines = text(str(tmp_path)), text(tmp_path, by="line")
    assert whole.names == ["a.TXT", "b.txt"]
    assert whole.clusters is None
    assert list(lines) == ["z", "x", "y"]
    assert lines.clusters == ["a.TXT", "b.txt", "b.txt"]
    train, test = lines.split(test=0.5, by="cluster")
    assert set(train.clusters or []).isdisjoint(test.clusters or [])


def test_another_encoding_is_refused_by_file_and_byte(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"caf\xe9 noir")
    with pytest.raises(ValueError, match=r"old\.txt is not UTF-8: byte 0xe9 at offset 3"):
        text(tmp_path)


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \.txt file"):
        text(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        text(tmp_path / "missing")
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(ValueError, match="only blank text"):
        text(tmp_path)
    with pytest.raises(ValueError, match='"line" or "paragraph"'):
        text(tmp_path, by="word")  # type: ignore[arg-type]


def test_builtin_text_is_long_english_in_a_fixed_order() -> None:
    book = str(builtin_text()[0])
    assert len(builtin_text()) == 1
    assert len(book) > 300_000
    words = book.lower().split()
    assert words.count("the") > 0.04 * len(words)
    assert unicodedata.is_normalized("NFC", book)
    at = 0
    for key in sorted(topics):
        at = book.find(unicodedata.normalize("NFC", topics[key].strip("\n")), at)
        assert at >= 0, f"{key} does not follow the topic before it"
        at += 1


def test_the_hash_knows_content_order_and_borders_and_nothing_else() -> None:
    x = [np.array([[0.0, np.nan], [1.0, 2.0]]), np.array([[3.0, 4.0]])]
    base = sha256(Sequences(x))
    other_nan = np.frombuffer(np.uint64(0x7FF8000000000001).tobytes())[0]
    same = [np.array([[-0.0, other_nan], [1.0, 2.0]]), x[1].astype(np.float32)]
    assert sha256(Sequences(same, names=["a", "b"])) == base
    variants = [x[::-1], [np.concatenate(x)], [x[0].T.copy(), x[1]], [x[0], x[1] + 1e-15], [x[0]]]
    hashes = {sha256(Sequences(v)) for v in variants}
    texts = {sha256(Sequences(v)) for v in (["ab", "c"], ["a", "bc"], [[97, 98], [99]], [[97.0], [98.0]])}
    assert base not in hashes
    assert len(hashes) == len(variants)
    assert len(texts) == 4


def test_the_hash_is_the_documented_one() -> None:
    import hashlib

    expected = hashlib.sha256(b"symbols 2\n(2,)\n" + np.array([1, 2], "<i8").tobytes() + b"(1,)\n" + b"\x03" + bytes(7))
    assert sha256(Sequences([[1, 2], [3]])) == expected.hexdigest()
    assert sha256(Sequences(["é"])) == hashlib.sha256(b"text 1\n(2,)\n" + "é".encode()).hexdigest()

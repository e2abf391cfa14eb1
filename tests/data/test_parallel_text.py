from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqmodels.data import pairs, text


def write(file: Path, content: str) -> Path:
    raw = content.encode()
    file.write_bytes(gzip.compress(raw) if file.suffix == ".gz" else raw)
    return file


@pytest.mark.parametrize("end", ["", ".gz"])
def test_two_files_are_read_line_by_line(tmp_path: Path, end: str) -> None:
    source = write(tmp_path / f"a.de{end}", "\ufeffein Hund\r\n\r\n zwei \n")
    target = write(tmp_path / f"a.en{end}", "one dog\n\ntwo")
    X, y = pairs(str(source), target)
    assert (list(X), list(y)) == (["ein Hund", " zwei "], ["one dog", "two"])
    assert X.names == y.names == [f"a.de{end}:1", f"a.de{end}:3"]


def test_one_file_has_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "forms", "run\tran\tV;PST\n\ngo\twent\tV;PST\n")
    X, y = pairs(file)
    assert (list(X), list(y), X.names) == (["run", "go"], ["ran", "went"], ["forms:1", "forms:3"])
    assert list(pairs(file, columns=(2, 0))[0]) == ["V;PST", "V;PST"]


@pytest.mark.parametrize("columns", [(0, 3), (-1, 0)])
def test_too_few_columns_are_named_by_line(tmp_path: Path, columns: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"forms:2 has 2 columns, but columns=\(.*tabs"):
        pairs(write(tmp_path / "forms", "\nrun\tran\n"), columns=columns)


def test_files_stand_side_by_side(tmp_path: Path) -> None:
    two, three = write(tmp_path / "two", "a\nb\n"), write(tmp_path / "three", "a\nb\nc\n")
    with pytest.raises(ValueError, match=r"two has 2 lines but .*three has 3"):
        pairs(two, three)


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"x:2 is blank on one side only"):
        pairs(write(tmp_path / "x", "a\n \nb"), write(tmp_path / "y", "a\nb\nc"))
    with pytest.raises(ValueError, match=r"blank holds no pairs"):
        pairs(write(tmp_path / "blank", "\n\n"))
    with pytest.raises(FileNotFoundError):
        pairs(tmp_path / "missing")


def test_text_is_unpacked_too(tmp_path: Path) -> None:
    assert list(text(write(tmp_path / "book.gz", "é\n"))) == ["é\n"]

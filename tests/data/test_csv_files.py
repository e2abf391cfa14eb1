"""CSV as programs write it, and what is refused by its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqmodels.data import table

NAN = np.nan
AB: tuple[tuple[str, ...], Any] = (("a", "b"), [[1.5, 2], [2.5, 3]])
READ: dict[str, tuple[str, tuple[str, ...], Any]] = {
    "Excel's line": ("sep=;\na;b\n1,5;2\n2,5;3\n", *AB),
    "pipes": ("a|b\n1.5|2\n2.5|3\n", *AB),
    "spaces": ("a  b\n1.5 2\n2.5  3\n", *AB),
    "tabs and decimal commas": ("a\tb\n1,5\t2\n2,5\t3\n", *AB),
    "a comment": ("# made by a program, in 2020\na,b\n1.5,2\n2.5,3\n", *AB),
    "names in a comment": ("# a b\n1.5 2\n2.5 3\n", *AB),
    "names with spaces": ("a , b\n1.5,2\n2.5,3\n", *AB),
    "a separator at the end": ("a,b,\n1.5,2,\n2.5,3,\n", *AB),
    "one at the end of data": ("a,b\n1.5,2,\n2.5,3,\n", *AB),
    "empty lines at the end": ("a,b\n1.5,2\n2.5,3\n\n,\n,\n", *AB),
    "CR LF": ("a,b\r\n1.5,2\r\n2.5,3\r\n", *AB),
    "CR CR LF": ("a,b\r\r\n1.5,2\r\r\n2.5,3\r\r\n", *AB),
    "no header": ("1,5;2\n2,5;3\n", ("x0", "x1"), AB[1]),
    "no header and a gap": ("1.5,\n2.5,3\n", ("x0", "x1"), [[1.5, NAN], [2.5, 3]]),
    "one column of decimal commas": ("y\n1,5\n-2,5\n", ("y",), [[1.5], [-2.5]]),
    "a gap in a single column": ("y\n1.5\n\n2.5\n\n", ("y",), [[1.5], [NAN], [2.5]]),
    "points between thousands": ("a;b\n1.234;2,5\n12.345,5;3,5\n", ("a", "b"), [[1234, 2.5], [12345.5, 3.5]]),
}


@pytest.mark.parametrize(("content", "features", "values"), READ.values(), ids=READ)
def test_what_programs_write_is_read(tmp_path: Path, content: str, features: tuple[str, ...], values: Any) -> None:
    (tmp_path / "a.csv").write_bytes(content.encode())
    x = table(tmp_path / "a.csv")
    assert x.features == features
    np.testing.assert_array_equal(np.asarray(x[0]), values)


def test_names_of_rows_as_r_writes_them_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('"date" "a"\n"1" "2019-01-01" 1.5\n"2" "2019-01-02" 2.5\n"3" "2019-01-03" 4\n')
    (tmp_path / "b.csv").write_text("date a\n1 2019-01-01 1.5\n2 2019-01-02 2.5\n3 2019-01-03 4\n")
    (tmp_path / "c.csv").write_text("date\ta\n1\t2019-01-01\t1.5\n2\t2019-01-02\t2.5\n3\t2019-01-03\t4\n")
    for name in ("a.txt", "b.csv", "c.csv"):
        with pytest.warns(UserWarning, match="numbers the rows"):
            x = table(tmp_path / name)
        np.testing.assert_array_equal(x[0], [[1.5], [2.5], [4.0]])
        assert x.features == ("a",)
        assert x.times is not None
        assert str(x.times[0][2]).startswith("2019-01-03")
    (tmp_path / "commas.csv").write_text("date,a\n1,5,2\n2,5,3\n")  # decimal commas, or names of rows
    with pytest.raises(ValueError, match="has 3 cells, but the header has 2"):
        table(tmp_path / "commas.csv")


def test_words_with_spaces_after_commas_are_no_names_of_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,said\n1.5,word 0\n2.5,word 1\n4.5,word 2\n")
    with pytest.warns(UserWarning, match="said"):
        x = table(tmp_path / "a.csv")
    np.testing.assert_array_equal(x[0], [[1.5], [2.5], [4.5]])


def test_utf_16_with_its_mark_is_read(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-8-sig"):
        (tmp_path / "a.csv").write_bytes("größe,b\n1.5,2\n2.5,3\n".encode(encoding))
        assert table(tmp_path / "a.csv").features == ("größe", "b")


def test_a_row_of_units_is_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,y\n(s),(°C)\n0,1.5\n1,2.5\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"a\.csv:2 is taken for the units of the columns, '\(s\), \(°C\)', and left"):
        x = table(tmp_path / "a.csv")
    assert np.asarray(x[0]).tolist() == [[1.5], [2.5]]
    assert x.times is not None
    assert list(x.times[0]) == [0, 1]


def test_dates_in_the_first_line_are_data(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("2020-01-01,5.5\n2020-01-02,6.5\n2020-01-03,7.5\n")
    assert np.asarray(table(tmp_path / "a.csv")[0]).tolist() == [[5.5], [6.5], [7.5]]


REFUSED = {
    "a line too long": ("a,b\n1.5,2\n2.5,3,4\n", r":3 has 3 cells, but the header has 2; put text"),
    "the first line too long": ("a,b\n1.5,2,3\n2.5,3\n", r":2 has 3 cells, but the header has 2; put text"),
    "a line too short": ("a,b\n1.5,2\n\n2.5\n", r":4 has 1 cell, but the header has 2; write all"),
    "a title": (
        "Sales in 2020\na,b\n1,2\n3,4\n",
        r":1 has one cell, 'Sales in 2020', but the lines after it 2; if it is",
    ),
    "a title with separators": (
        "Sales;;\na;b;c\n1;2;3\n3;4;5\n",
        r":1 has one cell, 'Sales', but the lines after it 3",
    ),
    "lines in quotes": ('"a,b"\n"1,2"\n"3,4"\n', r":1 is one cell, 'a,b', as are all lines, each in quotes"),
    "a word among numbers": ('a,b\n1.5,"x\ny"\noops,z\n2.5,z\n', r":4 has 'oops' under 'a', which is not a number"),
    "infinite": ("a,b\n1.5,2\n2.5,inf\n", r":3 has an infinite number under 'b'; correct it"),
    "a doubtful point": (
        "a;b\n1.234;2\n5.678;3\n",
        r":2 has '1.234' under 'a', which is 1234 if its '.' stands between",
    ),
    "a doubtful comma": ('a,b\n"1,234",2\n"5,678",3\n', r":2 has '1,234' under 'a', which is 1234 if its ','"),
}


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_by_its_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=r"a\.csv" + said):
        table(tmp_path / "a.csv")


def test_what_is_named_is_all_that_has_to_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b,c\n1.5,"1,234",x\noops,"5,678",y\n2.5,"1,111",x\n3.5,"2,222",x\n')
    with pytest.raises(ValueError, match=r"a\.csv:3 has 'oops' under 'a'"):
        table(tmp_path / "a.csv", columns=["a"], kind="vectors")
    assert table(tmp_path / "a.csv", columns="c").symbols == ("x", "y")


def test_files_of_a_folder_are_read_as_one_and_named(tmp_path: Path) -> None:
    from seqmodels.data import read

    (tmp_path / "a.csv").write_text('y,z\n"1,234",2\n"5,678",3\n')
    (tmp_path / "b.csv").write_text('y,z\n"1,234.5",2\n999,3\n')
    assert np.asarray(read(tmp_path)["a"]).tolist() == [[1234, 2], [5678, 3]]
    (tmp_path / "b.csv").write_text("y,z\n1.5,2\noops,3\n3.5,3\n")
    with pytest.raises(ValueError, match=r"b\.csv:3 has 'oops' under 'y'"):
        read(tmp_path)


def test_codes_keep_their_zeros(tmp_path: Path) -> None:
    rows = [f"{who},{day},{day * 2.5},{day:02d}" for who in ("007", "013") for day in range(1, 4)]
    (tmp_path / "a.csv").write_text("\n".join(["who,t,y,n", *rows]))
    x = table(tmp_path / "a.csv", by="who", time="t", columns=["y", "n"])
    assert (x.names, x.features) == (["007", "013"], ("y", "n"))
    assert np.asarray(x[0])[:, 1].tolist() == [1, 2, 3]

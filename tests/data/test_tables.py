"""What the columns of a table are taken for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels.data import table, tables

DAYS = ["2020-05-01", "2020-05-02", "2020-05-03"]


def test_the_kind_of_columns() -> None:
    reals = {"a": [0.5, 1.5], "b": [1, 2]}
    for frame, options, kind, n_features in (
        (reals, {}, "vectors", 2),
        ({"a": [3, 0]}, {}, "symbols", 1),
        ({"a": [3, 0]}, {"kind": "vectors"}, "vectors", 1),
        ({"a": [3, -1]}, {}, "vectors", 1),
        ({"a": [3, None]}, {}, "vectors", 1),
        ({"a": [0.5, 1]}, {}, "vectors", 1),
        ({"a": ["x", "y"]}, {}, "symbols", 1),
        ({"a": ["to be", "or not"]}, {}, "text", 1),
        ({"a": ["to be", "or not"]}, {"kind": "symbols"}, "symbols", 1),
        (reals, {"columns": ["b"]}, "symbols", 1),
        (reals, {"columns": "b"}, "symbols", 1),
        (reals, {"columns": ["b"], "kind": "vectors"}, "vectors", 1),
        (reals, {"columns": ["b", "a"]}, "vectors", 2),
        ({"a": [True, False], "b": [True, True]}, {}, "vectors", 2),
    ):
        x = table(pd.DataFrame(frame), **options)  # type: ignore[arg-type]
        assert (x.kind, x.n_features) == (kind, n_features), (frame, options)


def test_columns_keep_their_names_and_order() -> None:
    frame = pd.DataFrame({"a": [0.5, 1.5], "b": [1, 2], 7: [1, 0.5]})
    assert table(frame).features == ("a", "b", "7")
    assert table(frame, columns=["b", "a"]).features == ("b", "a")
    assert np.asarray(table(frame, columns=["b", "a"])[0]).tolist() == [[1, 0.5], [2, 1.5]]


@pytest.mark.parametrize(
    ("columns", "time", "first"),
    [
        ({"when": pd.to_datetime(DAYS)}, "when", np.datetime64("2020-05-01")),
        ({"day": DAYS}, "day", np.datetime64("2020-05-01")),
        ({"Time": [0, 5, 9]}, "Time", 0),
        ({"t": [0.5, 0.5, 2]}, "t", 0.5),
        (
            {"year": [2020] * 3, "month": [5] * 3, "day": [1] * 3, "hour": [0, 1, 2]},
            "time",
            np.datetime64("2020-05-01"),
        ),
    ],
)
def test_a_time_column_is_recognised_and_is_no_feature(columns: dict[str, Any], time: str, first: Any) -> None:
    x = table(pd.DataFrame({**columns, "a": [0.5, 1, 2]}))
    assert (x.time_name, x.features) == (time, ("a",))
    assert x.times is not None
    assert x.times[0][0] == first


def test_a_time_that_is_named_a_feature_is_one() -> None:
    frame = pd.DataFrame({"t": [0, 5, 9], "a": [0.5, 1, 2]})
    assert table(frame, columns=["t", "a"]).times is None
    assert table(frame, columns=["t", "a"]).features == ("t", "a")
    other = table(frame.assign(s=[1, 2, 4]), time="s", columns="a", kind="vectors", time_unit="s")
    assert (other.time_name, other.time_unit, other.features) == ("s", "s", ("a",))


def test_a_time_that_goes_back_is_of_several_sequences() -> None:
    frame = pd.DataFrame({"who": ["p", "p", "q"], "t": [0, 1, 0], "a": [0.5, 1, 2]})
    with pytest.warns(UserWarning, match=r"the frame: 't' repeats, so the rows are taken for 2 sequences, .* 'who'"):
        assert table(frame).names == ["p", "q"]
    with pytest.raises(ValueError, match=r"the frame: 't' is 0 in row 0 and in row 2, so there are several sequences"):
        table(frame.drop(columns="who"))
    assert table(frame, by="who").names == ["p", "q"]
    disordered = frame.assign(t=[1, 0, 0])
    with pytest.warns(UserWarning, match=r"left out t \(a time that goes back\)"):
        assert np.asarray(table(disordered, by="who")["p"]).tolist() == [[0.5], [1]]
    assert np.asarray(table(disordered, by="who", time="t")["p"]).tolist() == [[1], [0.5]]
    dates = disordered.assign(t=["2020-01-02", "2020-01-01", "2020-01-01"])
    with pytest.warns(UserWarning, match="not in the order of 't', and are put into it"):
        assert np.asarray(table(dates, by="who")["p"]).tolist() == [[1], [0.5]]


def test_words_of_a_sequence_are_metadata() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 1, 2, 2],
            "Label": ["ill", "ill", "well", "well"],
            "cluster": [7, 7, 7, 7],
            "age": [30, 30, 50, 50],
            "a": [0.5, 1, 2, 1],
        }
    )
    x = table(frame, by="id")
    assert (x.labels, x.clusters, x.metadata["age"].tolist()) == (["ill", "well"], [7, 7], [30, 50])
    assert x.features == ("a",)
    named = table(frame, by="id", columns=["age", "a"], label="cluster")
    assert (named.labels, named.features) == ([7, 7], ("age", "a"))


def test_what_is_left_out_is_said() -> None:
    frame = pd.DataFrame({"No": [1, 2, 3], "wind": ["N", "S", "N"], "a": [0.5, 1, 2]})
    with pytest.warns(UserWarning, match=r"the frame: left out No \(numbers the rows\), wind \(words\); name what"):
        x = table(frame)
    assert x.features == ("a",)
    assert table(frame[["No"]]).kind == "symbols"  # there is nothing else


def test_a_column_that_numbers_the_rows_of_each_sequence_is_no_feature() -> None:
    frame = pd.DataFrame({"day": [3, 3, 3, 4, 4], "hour": [0, 1, 2, 0, 1], "a": [0.5, 1, 2, 1, 3]})
    with pytest.warns(UserWarning, match=r"left out hour \(numbers the rows of each day, as a time does\); name what"):
        assert table(frame, by="day").features == ("a",)
    assert table(frame, by="day", columns=["hour", "a"]).features == ("hour", "a")
    other = frame.assign(hour=[0, 1, 2, 1, 2])  # which begins otherwise in the second
    assert table(other, by="day").features == ("hour", "a")


def test_texts_of_rows_have_labels() -> None:
    x = table(pd.DataFrame({"label": ["good", "bad"], "review": ["I liked it", "I did not"]}), columns="review")
    assert (list(x), x.labels) == (["I liked it", "I did not"], ["good", "bad"])
    words = table(pd.DataFrame({"word": ["a", "b", None]}), kind="text")
    assert list(words) == ["a", "b"]


CSV = [
    ("a,b\n0.5,1\n2,3\n", ("a", "b"), [[0.5, 1], [2, 3]]),
    ("a;b\n0,5;1\n2;3\n", ("a", "b"), [[0.5, 1], [2, 3]]),
    ("a;b\n0.5;1\n2;3\n", ("a", "b"), [[0.5, 1], [2, 3]]),
    ("a\tb\n0.5\t1\n2\t3\n", ("a", "b"), [[0.5, 1], [2, 3]]),
    ("\ufeffa, b\n0.5, 1\n2, 3\n", ("a", "b"), [[0.5, 1], [2, 3]]),
    ("0.5,1\n2,3\n", ("x0", "x1"), [[0.5, 1], [2, 3]]),
    ("a,b\n0.5,\n2,3\n", ("a", "b"), [[0.5, np.nan], [2, 3]]),
]


@pytest.mark.parametrize(("content", "features", "values"), CSV)
def test_a_csv_as_it_comes(tmp_path: Path, content: str, features: Any, values: Any) -> None:
    file = tmp_path / "a.csv"
    file.write_text(content, encoding="utf-8")
    x = table(file)
    assert x.features == features
    np.testing.assert_array_equal(np.asarray(x[0]), values)


def test_parquet_is_read_or_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1....PAR1")
    monkeypatch.setattr(tables, "_check_rows", lambda path: None)
    frame = pd.DataFrame({"a": [0.5, 1.5]})
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    assert table(file).features == ("a",)

    def without(path: Path) -> None:
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setattr(pd, "read_parquet", without)
    with pytest.raises(ImportError, match=r"reading Parquet needs pyarrow: pip install 'seqmodels\[parquet\]'"):
        table(file)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        ({"a": [1]}, {"by": "who"}, "the frame has no column 'who'; it has a"),
        ({"a": [1]}, {"columns": ["b"]}, "the frame has no column 'b'"),
        ({"a": [1], "b": [2]}, {"kind": "symbols"}, "several columns that may be the symbols, a, b; name one"),
        ({"a": [1], "b": [2]}, {"kind": "symbols", "columns": ["a", "b"]}, "symbols are one column, but columns are"),
        ({"a": ["x"], "b": ["y"]}, {}, "several columns that may be the symbols, a, b"),
        ({"who": [1]}, {"by": "who"}, "the frame has no numeric column besides 'who'; it has who"),
        ({"a": []}, {}, "the frame has no rows"),
        ({"a": [1], "t": ["soon"]}, {"time": "t"}, "the time 't' holds words that are not dates"),
        ({"a": ["x"], "b": ["y"]}, {"kind": "text", "columns": ["a", "b"]}, "texts are one column"),
    ],
)
def test_refusals(frame: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        table(pd.DataFrame(frame), **options)


def test_no_table(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        table(file)
    for content, said in (
        (b"", r"a\.csv is not a CSV: it has no lines"),
        (b"a,b\n1,2\n1,2,3\n", r"a\.csv:3 has 3 cells, but the header has 2; put text that holds the separator"),
        (b"a\n\xff\n", r"a\.csv is not a CSV in UTF-8: .* byte 0xff at offset 2 .*encoding='cp1252'"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            table(file)


def test_inputs_are_no_features_and_nothing_else() -> None:
    heat, ward = [1, 2, 3, 4], [7, 7, 8, 8]
    frame = pd.DataFrame(
        {"who": [0, 0, 1, 1], "at": [1, 0, 0, 1], "x": [0.5, 1.5, 2.5, 3.5], "heat": heat, "ward": ward}
    )
    X = table(frame, by="who", time="at", inputs=["ward", "heat"])
    assert X.features == ("x",)
    assert X.input_names == ("ward", "heat")
    assert X.inputs is not None
    assert X.inputs[0].tolist() == [[7.0, 2.0], [7.0, 1.0]]  # in the order of time
    assert "ward" not in X.metadata
    assert table(frame, by="who", time="at", inputs="heat").input_names == ("heat",)
    for options, said in (
        ({"inputs": ["wind"]}, "has no column 'wind'"),
        ({"inputs": ["x"], "columns": ["x"]}, "the input 'x' is named as something else too"),
        ({"inputs": ["who"]}, "the input 'who' is named as something else too"),
    ):
        with pytest.raises(ValueError, match=said):
            table(frame, by="who", time="at", **options)
    words = frame.assign(heat=["low", "high", "low", "low"])
    with pytest.raises(ValueError, match="'heat' holds no numbers, so it is not an input"):
        table(words, by="who", time="at", inputs=["heat"])
    with pytest.raises(ValueError, match="texts, which have no inputs"):
        table(pd.DataFrame({"text": ["to be", "or not"], "heat": [1.0, 2.0]}), columns="text", inputs=["heat"])

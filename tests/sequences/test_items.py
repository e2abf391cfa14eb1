"""Items, names and times as ``Sequences`` takes them, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch

from seqmodels.data import on_disk
from seqmodels.sequences import Sequences
from seqmodels.sequences.items import steps_before


def same(left: Sequences, right: list[Any]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_numbers_become_float64_and_int64() -> None:
    assert np.asarray(Sequences([np.ones((2, 3), dtype=np.float32)])[0]).dtype == np.float64
    assert np.asarray(Sequences([np.array([1.0, 2.0])])[0]).dtype == np.int64  # whole floats are symbols
    assert np.asarray(Sequences([torch.tensor([1, 0])])[0]).dtype == np.int64


@pytest.mark.parametrize("of_type", [np.float32, np.float64, np.int32, np.int64])
def test_many_sequences_are_read_as_few_are(of_type: type) -> None:
    axes = (3, 2) if np.issubdtype(of_type, np.floating) else (3,)
    raw = [np.full(axes, i, dtype=of_type) for i in range(40)]
    many, few = Sequences(raw).items, [Sequences([item])[0] for item in raw]
    for one, other in zip(many, few, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    if of_type in (np.float64, np.int64):  # copied together, which is faster
        assert len({id(item.base) for item in many}) == 1
        assert not np.shares_memory(many[0], raw[0])
    raw[35] = raw[35] + (np.inf if len(axes) == 2 else -99)
    with pytest.raises(ValueError, match="sequence 35 "):
        Sequences(raw)


def test_what_came_before_in_a_text_on_disk_begins_with_a_whole_character(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a€b", encoding="utf-8")  # of 1, 3 and 1 bytes
    text = on_disk(tmp_path / "x.txt")[0]
    assert [bytes(np.asarray(steps_before(text, 5, n))).decode() for n in range(6)] == ["", "b", "b", "b", "€b", "a€b"]


def test_missing_values_are_kept() -> None:
    x = np.ones((3, 2))
    x[1, 0] = np.nan
    np.testing.assert_array_equal(np.asarray(Sequences([x])[0]), x)


@pytest.mark.parametrize("column", [np.array(["one", "two"]), pd.Series(["one", "two"]), iter(["one", "two"])])
def test_a_column_of_texts_is_a_list(column: Any) -> None:
    assert list(Sequences(column)) == ["one", "two"]


def test_what_is_masked_is_missing() -> None:
    hidden = np.ma.array([[1.0, -999.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]])
    same(Sequences([hidden]), [[[1, np.nan], [3, 4]]])
    same(Sequences([hidden.astype(int)]), [[[1, np.nan], [3, 4]]])
    same(Sequences([np.ma.array([1, 2])]), [[1, 2]])
    same(Sequences.from_lengths(hidden, [1, 1]), [[[1, np.nan]], [[3, 4]]])
    same(Sequences.from_padded(hidden[None], [2]), [[[1, np.nan], [3, 4]]])


@pytest.mark.parametrize(
    "item",
    [
        torch.tensor([[1.0, 2.0]], requires_grad=True),
        torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16),
        pd.DataFrame([[1.0, 2.0]]),
        np.array([[1, 2.0]], dtype=object),
        np.array([[1.0, 2.0]], dtype=">f4"),
        memoryview(np.array([[1.0, 2.0]])),
    ],
    ids=lambda item: str(type(item)),
)
def test_arrays_of_all_makes_are_the_array_they_hold(item: Any) -> None:
    same(Sequences(x for x in [item]), [[[1.0, 2.0]]])


def test_lists_of_strings_are_symbols_and_strings_are_texts() -> None:
    states = [["sit", "walk", "walk"], np.array(["lie"]), pd.Series(["walk", "sit"])]
    x = Sequences(states)
    assert (x.kind, x.unit, x.symbols, x.n_units.tolist()) == ("symbols", "symbol", ("lie", "sit", "walk"), [3, 1, 2])
    same(x, states)
    assert {type(word) for item in x for word in item} == {str}
    assert Sequences(["sit walk", "lie"]).kind == "text"
    assert Sequences(np.array(["sit", "walk"])).kind == "text"
    assert Sequences([["sit walk"]]).kind == "symbols"  # one symbol, however many words
    assert Sequences([[0, 1]]).symbols is None


def test_symbols_name_integers() -> None:
    x = Sequences([[0, 1, 1], [1]], symbols=["sit", "walk", "lie"], names=["p", "q"])
    assert x.names == ["p", "q"]
    same(x, [["sit", "walk", "walk"], ["walk"]])
    assert x.take([1]).symbols == ("sit", "walk", "lie")  # also those that are not in this part


def test_times_are_dates_or_numbers() -> None:
    import datetime

    days = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]
    x = Sequences([good], times=[days])
    assert x.times is not None
    assert x.times[0].tolist() == pd.to_datetime(days).to_numpy().tolist()
    y = Sequences([good], times=[[0.5, 0.5]], time_unit="s")  # two in an instant
    assert y.times is not None
    assert y.times[0].tolist() == [0.5, 0.5]


good = np.zeros((2, 2))
DAYS = np.datetime64("2020-01-01") + np.arange(10)
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Sequences([]), "there are no sequences; pass a list with at least one"),
    (lambda: Sequences("abc"), "X is one str; pass a list of texts, for one text [text]"),
    (lambda: Sequences(None), "X is None, which holds no sequences; pass a list"),  # type: ignore[arg-type]
    (lambda: Sequences(5), "X is 5, which holds no sequences"),  # type: ignore[arg-type]
    (lambda: Sequences(dict), "X is of type type, which holds no sequences"),  # type: ignore[arg-type]
    (lambda: Sequences({"a": "to be"}), "X is a dictionary; pass list(X.values())"),
    (lambda: Sequences({"a": 1}.keys()), "X is a dict_keys, which has no order of its own"),
    (lambda: Sequences({1, 2}), "X is a set, which has no order of its own"),
    (lambda: Sequences(b"to be"), "X is one bytes; decode texts first"),
    (lambda: Sequences([[0], {0: 1}]), "sequence 1 is a dict, which has no order"),
    (lambda: Sequences([[0], bytearray(b"a")]), "sequence 1 is bytearray; decode it first"),
    (lambda: Sequences([[0], [[1, 2], [1]]]), "sequence 1, of type list, is not an array of numbers"),
    (lambda: Sequences([[0], ["1", "2"]]), "sequence 1 holds strings but the first sequence holds integers"),
    (lambda: Sequences([[0], [1, None]]), "sequence 1 has None at position 1"),
    (lambda: Sequences([[0], [1, 10**30]]), "which int64 cannot hold; number symbols from 0"),
    (
        lambda: Sequences([[0], np.array([1, 2**63], np.uint64)]),
        "sequence 1 has the symbol 9223372036854775808 at position 1",
    ),
    (lambda: Sequences([[0], np.array([1, 1e300])]), "sequence 1 has the symbol 1e+300 at position 1"),
    (lambda: Sequences([[0], np.ma.array([1, 2], mask=[0, 1])]), "sequence 1 masks its symbol at position 1"),
    (lambda: Sequences([good, [[0, None]]]), "sequence 1 has None at frame 0, feature 1"),
    (lambda: Sequences([good, [[0, 10**400]]]), "sequence 1 has a number that float64 cannot hold"),
    (
        lambda: Sequences([good, np.array([["1e4000", "0"]], np.longdouble)]),
        "sequence 1 has an infinite value at frame 0",
    ),
    (lambda: Sequences(pd.DataFrame({"a": [1]})), "X is a DataFrame; use Sequences.from_frame"),
    (lambda: Sequences(np.zeros((2, 3, 4))), "X is a 3-D array, so its padding cannot be told"),
    (lambda: Sequences(good), "X is a bare array of shape (2, 2); for one sequence write [X]"),
    (lambda: Sequences(torch.zeros(4)), "X is a bare array of shape (4,); for one sequence write [X]"),
    (lambda: Sequences([b"ab"]), "sequence 0 is bytes; decode it first"),
    (lambda: Sequences(["a", 3]), "sequence 1 is int but the first is str"),
    (lambda: Sequences(["a", ""]), "sequence 1 is empty"),
    (lambda: Sequences(["a", "ab\ud800"]), "sequence 1 cannot be written as UTF-8 at character 2"),
    (lambda: Sequences([[0], good]), "sequence 1 has shape (2, 2) but the first is one-dimensional"),
    (lambda: Sequences([[0], "a"]), "sequence 1 has shape () but the first is one-dimensional"),
    (lambda: Sequences([[0], []]), "sequence 1 is empty"),
    (lambda: Sequences([[0], [1, 2.5]]), "sequence 1 has the fractional symbol 2.5 at position 1"),
    (lambda: Sequences([[1.0, np.inf]]), "sequence 0 has the fractional symbol inf at position 1"),
    (lambda: Sequences([[1.0, np.nan]]), "sequence 0 has the fractional symbol nan at position 1"),
    (lambda: Sequences([[0], [3, 4, -1]]), "sequence 1 has the negative symbol -1 at position 2"),
    (lambda: Sequences([good, np.zeros(3)]), "sequence 1 has shape (3,) and type float64; pass (T, D) numbers"),
    (lambda: Sequences([good, good.astype(complex)]), "sequence 1 holds complex numbers; model their real and"),
    (lambda: Sequences([pd.DataFrame(good), None]), "sequence 1 is None, which is not a sequence; leave it out"),
    (lambda: Sequences([None, good]), "sequence 0 is None, which is not a sequence; leave it out"),
    (lambda: Sequences([["a", pd.NA]]), "sequence 0 has a value of type NAType at position 1 among strings"),
    (lambda: Sequences([[[1, 2], None]]), "its frame 1 is not a list, but frame 0 has 2 values"),
    (lambda: Sequences([[[1, 2], [3]]]), "its frame 1 has 1 values, but frame 0 has 2 values"),
    (
        lambda: Sequences([pd.DataFrame({"a": ["1.5", "x"], "b": [1, 2]})]),
        "row 1 of sequence 0 has 'x' under 'a', which is not a number, among numbers",
    ),
    (
        lambda: Sequences([pd.DataFrame({"a": ["u", "v"], "b": [1, 2]})]),
        "sequence 0 has the column 'a', which holds",
    ),
    (
        lambda: Sequences([pd.DataFrame({"a": [1.0], "b": [2.0]}), pd.DataFrame({"b": [1.0], "a": [2.0]})]),
        "sequence 1 has the columns b, a but sequence 0 has a, b; give all frames the same in one order",
    ),
    (lambda: Sequences([good, np.zeros((0, 2))]), "sequence 1 is empty (shape (0, 2))"),
    (lambda: Sequences([good, [[0, 1], [np.inf, 0]]]), "sequence 1 has an infinite value at frame 1"),
    (lambda: Sequences([good, [[2, 1], [0, np.inf]]]), "sequence 1 has an infinite value at frame 1"),
    (lambda: Sequences([good, np.zeros((2, 3))]), "sequence 1 has 3 features but sequence 0 has 2"),
    (
        lambda: Sequences.from_lengths(np.zeros((3, 1)), [4, -1]),
        "sequence 1 has length -1; pass whole numbers, 1 or more",
    ),
    (lambda: Sequences.from_lengths(np.zeros((3, 1)), cast(Any, [1.5, 1.5])), "sequence 0 has length 1.5"),
    (lambda: Sequences.from_lengths(np.zeros((3, 1)), 3), "lengths has shape ()"),  # type: ignore[arg-type]
    (lambda: Sequences.from_lengths(np.zeros((3, 1)), None), "lengths has shape ()"),  # type: ignore[arg-type]
    (
        lambda: Sequences.from_lengths(np.zeros((3, 1)), cast(Any, ["a"])),
        "lengths is of type list; pass a list of whole numbers",
    ),
    (lambda: Sequences.from_padded(np.zeros((2, 3, 1)), [3, -1]), "sequence 1 has length -1"),
    (lambda: Sequences([["a", 1]]), "sequence 0 has 1 at position 1 among strings"),
    (lambda: Sequences([["a"], np.array(["a", np.nan], object)]), "sequence 1 has nan at position 1 among strings"),
    (lambda: Sequences([["a"], [0]]), "sequence 1 holds integers but the first sequence holds strings"),
    (lambda: Sequences([["a"], ["b"]], symbols=["a"]), "sequence 1 has 'b' at position 0, which is not among"),
    (
        lambda: Sequences([[0, 2]], symbols=["a", "b"]),
        "sequence 0 has symbol 2 at position 1, but symbols names 0 to 1",
    ),
    (lambda: Sequences([[0]], symbols=["a", "a"]), "symbols has 'a' twice"),
    (lambda: Sequences([[0]], symbols="ab"), "symbols is one str; pass a list of names"),
    (lambda: Sequences([good], features=["a", 1]), "features has 1 at position 1; a name is a str"),  # type: ignore[list-item]
    (lambda: Sequences([good], times=[]), "there are times of 0 sequences but 1 sequences"),
    (lambda: Sequences([good], times=[[1]]), "the times of sequence 0 have shape (1,)"),
    (lambda: Sequences([good], times=[["a", "b"]]), "the times of sequence 0 have shape (2,) and type <U1"),
    (lambda: Sequences([good], times=[[1, np.nan]]), "sequence 0 has no time at step 1"),
    (lambda: Sequences([good], times=[[2, 1]]), "the times of sequence 0 go back at step 1, from 2 to 1"),
    (lambda: Sequences([good, good], times=[DAYS[:2], [0, 1]]), "the times of sequence 1 are numbers but the times of"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refusals_name_the_sequence_and_the_place(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


def test_ends_of_intervals_may_be_infinite() -> None:
    ends = np.array([[0.0, 1.0], [-np.inf, 2.0], [3.0, np.inf], [np.nan, np.nan]])
    assert np.array_equal(Sequences([ends]).items[0], ends, equal_nan=True)


def test_frames_in_a_list_are_numbers_where_they_hold_them() -> None:
    frame = pd.DataFrame({"a": ["1,234.5", None], "b": pd.array([1, None], dtype="Int64"), "c": [Decimal("0.5"), 2]})
    expected = [[1234.5, 1, 0.5], [np.nan, np.nan, 2]]
    np.testing.assert_array_equal(np.asarray(Sequences([frame])[0]), expected)
    np.testing.assert_array_equal(np.asarray(Sequences([[[Decimal("0.5"), Fraction(1, 4)]]])[0]), [[0.5, 0.25]])

"""Tables of many kinds as regular series."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from seqmodels import Sequences
from seqmodels.evaluation.forecasting.tables import regular_sequences, season_of_times


def months(n: int) -> pd.DatetimeIndex:
    return pd.date_range("2020-01-01", periods=n, freq="MS")


def test_arrays_columns_and_lists_are_one_series() -> None:
    y = np.arange(5.0)
    for data in (y, y[:, None], y.tolist(), pd.Series(y), Sequences([y[:, None]])):
        np.testing.assert_array_equal(np.asarray(regular_sequences(data).items[0])[:, 0], y)
    assert regular_sequences(pd.Series(y, name="sales")).features == ("sales",)


def test_dates_are_read_from_index_or_column_of_words() -> None:
    y = np.arange(4.0)
    of_index = regular_sequences(pd.Series(y, months(4)))
    of_column = regular_sequences(pd.DataFrame({"y": y, "Month": months(4).strftime("%Y-%m-%d")}))
    of_periods = regular_sequences(pd.DataFrame({"y": y}, months(4).to_period("M")))
    assert of_index.times is not None
    for other in (of_column, of_periods):
        assert other.times is not None
        assert other.n_features == 1
        np.testing.assert_array_equal(other.times[0], of_index.times[0])


@pytest.mark.parametrize("frequency", ["MS", "ME", "QS", "YS", "W-SUN", "D", "h", "B"])
def test_steps_without_a_row_are_missing(frequency: str) -> None:
    dates = pd.date_range("2020-01-01", periods=40, freq=frequency)
    y = pd.Series(np.arange(40.0), dates).drop(dates[[3, 4, 20]])
    sequences = regular_sequences(y)
    frames = np.asarray(sequences.items[0])[:, 0]
    assert np.flatnonzero(np.isnan(frames)).tolist() == [3, 4, 20]
    assert sequences.times is not None
    assert len(sequences.times[0]) == 40


def test_numbered_steps_without_a_row_are_missing() -> None:
    frame = pd.DataFrame({"t": [0, 1, 2, 4, 5], "y": [1.0, 2.0, 3.0, 5.0, 6.0]})
    np.testing.assert_array_equal(np.asarray(regular_sequences(frame).items[0])[:, 0], [1, 2, 3, np.nan, 5, 6])


def test_irregular_times_stay_as_they_are() -> None:
    dates = pd.to_datetime(["2020-01-01", "2020-01-04", "2020-01-05", "2020-03-17"])
    assert len(regular_sequences(pd.Series(np.arange(4.0), dates)).items[0]) == 4


@pytest.mark.parametrize(
    ("frequency", "season"), [("MS", 12), ("QS", 4), ("D", 7), ("B", 5), ("h", 24), ("W", 52), ("YS", 1), ("min", None)]
)
def test_dates_suggest_a_season(frequency: str, season: int | None) -> None:
    assert season_of_times(pd.date_range("2020-01-01", periods=30, freq=frequency).to_numpy()) == season


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a text", "another"], "which are no numbers"),
        (Sequences(["a text", "another"]), "forecast takes vectors, but these are text"),
        (pd.DataFrame({"y": []}), "the frame has no rows"),
        (pd.DataFrame({"date": ["soon", "later"], "y": [1.0, 2.0]}), "the time 'date' holds words that are not dates"),
        (pd.DataFrame({"name": ["a", "b"]}), "the frame has no column of numbers"),
        (pd.DataFrame({"open": [True, False], "y": [1.0, 2.0]}), "the column 'open' holds True and False, whose"),
        (pd.DataFrame({"open": [True, None]}), "the column 'open' holds True and False, whose"),
        (np.array([True, False]), "the array holds True and False, whose forecast would be of fractions"),
        (pd.DataFrame({"y": [1j, 2.0]}), "the column 'y' holds complex numbers"),
        (pd.DataFrame({"y": ["1.5", "x", "2"]}), "row 1 of the frame has 'x' under 'y', which is not a number"),
    ],
)
def test_what_is_no_series_is_refused(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        regular_sequences(data)


def test_columns_of_what_has_none_are_refused() -> None:
    with pytest.raises(ValueError, match="time, by and date_format describe columns"):
        regular_sequences(np.arange(4.0), time="date")


def test_what_is_no_series_is_left_out_and_named() -> None:
    frame = pd.DataFrame({"No": [1, 2, 3], "wind": ["N", "S", "N"], "y": [1.5, 2.5, 2.0]})
    with pytest.warns(UserWarning, match=r"left out No \(numbers the rows\), wind \(no numbers\), which is no series"):
        assert regular_sequences(frame).features == ("y",)
    assert regular_sequences(frame[["No"]]).features == ("No",)  # there is nothing else


def test_digits_in_text_are_a_series() -> None:
    assert np.asarray(regular_sequences(pd.DataFrame({"y": ["12", "10", "11"]}))[0]).tolist() == [[12], [10], [11]]


def test_sequences_have_every_step_too_and_begin_with_their_past() -> None:
    times = np.array([0.0, 1, 2, 4, 5, 6, 7, 8])
    x = Sequences([times[:, None]], times=[times], names=["shop"], clusters=["town"])
    of_tail = regular_sequences(x.split(0.25)[1])
    for sequences in (regular_sequences(x), of_tail):
        np.testing.assert_array_equal(np.asarray(sequences[0])[:, 0], [0, 1, 2, np.nan, 4, 5, 6, 7, 8])
        assert (sequences.names, sequences.clusters) == (["shop"], ["town"])


def test_names_of_columns_are_one_text_each() -> None:
    values = np.arange(8.0).reshape(4, 2) / 7
    levels = pd.DataFrame(values, columns=pd.MultiIndex.from_product([["a"], ["x", "y"]]))
    x = regular_sequences(levels)
    assert x.features == ("('a', 'x')", "('a', 'y')")
    np.testing.assert_array_equal(np.asarray(x[0]), values)
    with pytest.raises(ValueError, match="the frame has two columns called 'a'; give them different names"):
        regular_sequences(pd.DataFrame(values, columns=["a", "a"]))

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
        (Sequences(["a text", "another"]), "forecast is of vectors, but these are text"),
        (pd.DataFrame({"y": []}), "the frame has no rows"),
        (pd.DataFrame({"date": ["soon", "later"], "y": [1.0, 2.0]}), "the time 'date' holds words that are no dates"),
        (pd.DataFrame({"name": ["a", "b"]}), "the frame has no column of numbers"),
    ],
)
def test_what_is_no_series_is_refused(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        regular_sequences(data)


def test_columns_of_what_has_none_are_refused() -> None:
    with pytest.raises(ValueError, match="time, by and date_format are of columns"):
        regular_sequences(np.arange(4.0), time="date")

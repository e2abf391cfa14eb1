"""Times as whole numbers on a grid: what is regular, what is left out, what follows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from seqmodels.sequences.calendar_steps import grid_of
from seqmodels.sequences.times import times_ahead

FREQUENCIES = ["D", "B", "h", "W-WED", "MS", "ME", "2MS", "QE", "QS-NOV", "YS", "BMS", "BME", "WOM-3FRI", "LWOM-MON"]


@pytest.mark.parametrize("frequency", FREQUENCIES)
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_what_is_left_out_and_what_follows(frequency: str, unit: str) -> None:
    dates = pd.date_range("2023-11-04", periods=40, freq=frequency).to_numpy().astype(f"datetime64[{unit}]")
    whole = grid_of(dates[:30])
    assert whole is not None
    assert whole.is_regular
    np.testing.assert_array_equal(whole.ahead(10), dates[30:])
    some = np.delete(dates[:30], [3, 4, 20])
    assert grid_of(some) is None
    grid = grid_of(some, most=54)
    assert grid is not None
    np.testing.assert_array_equal(grid.every(), dates[:30])


def test_a_day_of_months_is_the_last_where_a_month_is_shorter() -> None:
    days = np.array(["2024-01-30", "2024-02-29", "2024-03-30"], dtype="datetime64[D]")
    np.testing.assert_array_equal(times_ahead(days, 2), np.array(["2024-04-30", "2024-05-30"], dtype="datetime64[D]"))
    two = np.array(["2024-01-15", "2024-02-15"], dtype="datetime64[D]")
    np.testing.assert_array_equal(times_ahead(two, 1), np.array(["2024-03-15"], dtype="datetime64[D]"))


def test_steps_of_one_second_over_ten_years_are_counted_and_not_built() -> None:
    seconds = np.datetime64("2020-01-01T00:00:00") + np.arange(1000)
    seconds[-1] += np.timedelta64(3650, "D")
    assert grid_of(seconds, most=2000) is None
    counts = np.append(np.arange(1000.0), 1e15)
    assert grid_of(counts, most=2000) is None


def test_times_ahead_go_on_beyond_nanoseconds() -> None:
    years = np.arange("2250", "2260", dtype="datetime64[Y]").astype("datetime64[ns]")
    ahead = times_ahead(years, 15)
    assert ahead is not None
    np.testing.assert_array_equal(ahead, np.arange("2260", "2275", dtype="datetime64[Y]").astype("datetime64[s]"))
    odd = np.datetime64("2262-04-11T23:47:16.854775801", "ns") + np.arange(3) * np.timedelta64(1, "ns")
    with pytest.raises(ValueError, match="beyond the range of datetime64"):
        times_ahead(odd, 10)

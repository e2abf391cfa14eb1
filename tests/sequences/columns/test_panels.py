"""Rows at one time: several series, or events of one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from seqmodels.sequences.columns.panels import series_of_rows

RNG = np.random.default_rng(0)
DAYS = pd.date_range("2020-01-01", periods=30, freq="D")


def test_events_at_one_time_are_of_one_series() -> None:
    seconds = np.sort(RNG.choice(100_000, 40, replace=False))
    seconds[10] = seconds[9]
    log = pd.DataFrame({"at": pd.to_datetime(seconds, unit="s"), "type": list("abcd") * 10})
    assert series_of_rows(log, "at", None, ["type"]).by is None
    ties = pd.DataFrame({"t": [0.5, 0.5, 2.0, 3.0]})
    assert series_of_rows(ties, "t", None, []).by is None


def test_counts_that_differ_by_chance_separate_nothing() -> None:
    table = pd.DataFrame({"at": DAYS.repeat(2), "sold": [3, 9, 4, 8] * 15, "shop": list("ab") * 30})
    assert series_of_rows(table, "at", None, ["sold", "shop"]).by == "shop"
    few = table.assign(sold=[*range(40), *range(20)])  # on no day twice, and of no number a series
    with pytest.raises(ValueError, match=r"name the column that says which one a row is of: by='sold' \(in a shell"):
        series_of_rows(few, "at", None, ["sold"])


def test_parts_of_dates_and_numbers_of_rows_separate_nothing() -> None:
    table = pd.DataFrame({"at": [*DAYS, *DAYS], "hour": [1] * 30 + [2] * 30, "row": range(60), "weekday": ["Mon"] * 60})
    with pytest.raises(ValueError, match=r"'at' is 2020-01-01 in row 0 and in row 30.*add a column that says"):
        series_of_rows(table, "at", None, ["hour", "row", "weekday"])


def test_series_within_the_series_that_are_said_are_refused() -> None:
    table = pd.DataFrame(
        {"at": [*DAYS] * 4, "shop": np.repeat(["a", "b"], 60), "dept": np.tile(np.repeat(["x", "y"], 30), 2)}
    )
    with pytest.raises(ValueError, match=r"in row 0 and in row 30 of shop 'a', so there are several .*\(dept\)"):
        series_of_rows(table, "at", "shop", ["dept"])


def test_series_whose_dates_never_meet_are_told_by_their_order() -> None:
    apart = pd.to_datetime(["2020-01-03", "2020-02-11", "2020-05-02", "2020-01-07", "2020-01-19", "2020-03-30"])
    table = pd.DataFrame({"at": apart, "who": list("aaabbb")})
    found = series_of_rows(table, "at", None, ["who"])
    assert found.by == "who"
    assert "'at' goes back, so the rows are taken for 2 sequences, one for each 'who'" in found.said
    disordered = table.iloc[[3, 0, 4, 5, 1, 2]]
    found = series_of_rows(disordered, "at", None, ["who"])
    assert (found.by, found.said) == (None, "the rows are not in the order of 'at', and are put into it")

"""Numbers as people write them: cells, and columns of which all cells decide."""

from __future__ import annotations

import decimal
import fractions
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels.sequences.columns.numbers import is_number, place_in_frame, refuse_unread, with_numbers

NAN = np.nan
READ: dict[str, tuple[list[Any], list[float]]] = {
    "thousands and decimals": (["1,234.5", "12.25"], [1234.5, 12.25]),
    "points between thousands": (["1.234.567,8", "-3"], [1234567.8, -3]),
    "a decimal comma": (["0,125", "12"], [0.125, 12]),
    "spaces, narrow ones too": (["1 234,5", "1\u202f234", "12\u00a0345,75"], [1234.5, 1234, 12345.75]),
    "apostrophes": (["1'234.50", "1\u2019234", "7"], [1234.5, 1234, 7]),
    "Indian groups": (["1,23,456", "7,12,34,567.5"], [123456, 71234567.5]),
    "several groups": (["1,234,567", "12,345"], [1234567, 12345]),
    "999 beside 1,234": (["1,234", "999"], [1234, 999]),
    "a sign of its own": (["\u22121.5", "+2", "\u20133", "4-"], [-1.5, 2, -3, -4]),
    "accounting": (["(1,234.5)", "12"], [-1234.5, 12]),
    "exponents": (["1.5e3", "2E-2", "1.5D+03"], [1500, 0.02, 1500]),
    "missing": (["NA", "n/a", "null", "?", "missing", "2.5", "", None], [NAN] * 5 + [2.5, NAN, NAN]),
    "spaces and quotes around": ([" 1.5 ", "'2.5'", '"3"'], [1.5, 2.5, 3]),
    "Decimal": ([decimal.Decimal("1.5"), None], [1.5, NAN]),
    "Fraction": ([fractions.Fraction(1, 4), 2], [0.25, 2]),
    "text among numbers": (["1.5", 2.5, 3], [1.5, 2.5, 3]),
    "True and False among None": ([True, None, False], [1, NAN, 0]),
}


@pytest.mark.parametrize(("cells", "values"), READ.values(), ids=READ)
def test_a_column_is_read_by_the_way_that_fits_all_of_its_cells(cells: list[Any], values: list[float]) -> None:
    frame = with_numbers(pd.DataFrame({"y": pd.Series(cells, dtype=object)}), "the frame")
    np.testing.assert_array_equal(frame["y"].to_numpy(dtype=float), values)


UNITS: dict[str, tuple[list[str], list[float], str]] = {
    "percent": (["10.5%", "3 %"], [10.5, 3], "'y' in % (10.5% is 10.5)"),
    "a currency before": (["€101", "-€1,200.50"], [101, -1200.5], "'y' without '€'"),
    "a currency in brackets": (["$(5.5)", "$7"], [-5.5, 7], "'y' without '$'"),
    "a code after": (["101,5 EUR", "99 EUR"], [101.5, 99], "'y' without 'EUR'"),
    "a unit": (["12 kg", "13.5 kg"], [12, 13.5], "'y' without 'kg'"),
    "a unit with a power": (["5 m/s2", "6 m/s2"], [5, 6], "'y' without 'm/s2'"),
    "dashes": (["1.5", "-", "--"], [1.5, NAN, NAN], "'y' with 1 cell '-', 1 cell '--' as missing"),
}


@pytest.mark.parametrize(("cells", "values", "said"), UNITS.values(), ids=UNITS)
def test_what_is_taken_off_is_said(cells: list[str], values: list[float], said: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(f"the frame: read {said}.")):
        frame = with_numbers(pd.DataFrame({"y": cells}), "the frame")
    np.testing.assert_array_equal(frame["y"].to_numpy(dtype=float), values)


REFUSED: dict[str, tuple[list[str], str]] = {
    "a word": (["1.5", "oops", "2"], "row 1 of the frame has 'oops' under 'y', which is not a number, among numbers"),
    "an error of Excel's": (["1.5", "2", "#DIV/0!"], "row 2 of the frame has '#DIV/0!' under 'y'"),
    "a second unit": (["1 kg", "500 g", "2 kg"], "row 1 of the frame has '500 g' under 'y', where the other numbers"),
    "no unit": (["1%", "2%", "0.3"], "row 2 of the frame has '0.3' under 'y', where the other numbers have '%'"),
    "two signs of decimals": (
        ["1.5", "2,5", "3.5"],
        "row 1 of the frame has '2,5' under 'y', where other numbers have",
    ),
    "brackets alone": (["(1)", "(2)"], "row 0 of the frame has '(1)' under 'y', where all numbers are in brackets"),
    "an open comma": (
        ["1,234", "2,345"],
        "'1,234' under 'y', which is 1234 if its ',' stands between thousands and 1.234",
    ),
    "a range": (["1", "2-3", "4"], "row 1 of the frame has '2-3' under 'y'"),
}


@pytest.mark.parametrize(("cells", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_by_row_and_value(cells: list[str], said: str) -> None:
    frame = with_numbers(pd.DataFrame({"y": cells}), "the frame")
    assert frame["y"].tolist() == cells
    with pytest.raises(ValueError, match=re.escape(said)):
        refuse_unread(frame, ["y"], place_in_frame, "leave it out")


@pytest.mark.parametrize(
    "cells",
    [
        ["a", "b", "1.5"],
        ["1 Jan", "2 Jan"],
        ["8 am", "9 am"],
        ["01.02.2019", "02.02.2019"],
        ["2019-01", "2019-02"],
        ["007", "012"],
        ["1a", "1b", "1a"],
        ["x1", "x2"],
        ["10:30", "11:00"],
    ],
)
def test_words_dates_and_codes_stay_as_they_are(cells: list[str]) -> None:
    frame = with_numbers(pd.DataFrame({"y": cells}), "the frame")
    assert frame["y"].tolist() == cells
    refuse_unread(frame, ["y"], place_in_frame, "leave it out")


@pytest.mark.parametrize(
    ("other", "value"),
    [([10.5, 2.0], 1234.0), (["10,5", "2"], 1.234), (["1.000,5", "2"], 1.234), (["7.25", "2"], 1234)],
)
def test_other_columns_decide_what_one_leaves_open(other: list[Any], value: float) -> None:
    with pytest.warns(UserWarning, match="before decimals, as other columns are written"):
        frame = with_numbers(pd.DataFrame({"y": ["1,234", "5,678"], "z": other}), "the frame")
    assert frame["y"].iloc[0] == value


def test_points_before_three_digits_are_decimals_unless_commas_are() -> None:
    frame = pd.DataFrame({"y": ["1.234", "5.678"]})
    assert with_numbers(frame, "the frame")["y"].tolist() == [1.234, 5.678]
    with pytest.warns(UserWarning, match="as other columns are written"):
        assert with_numbers(frame.assign(z=["0,5", "2"]), "the frame")["y"].tolist() == [1234, 5678]
    doubtful = with_numbers(frame, "the frame", is_point_doubtful=True)
    with pytest.raises(ValueError, match=re.escape("'1.234' under 'y', which is 1234 if its '.' stands between")):
        refuse_unread(doubtful, ["y"], place_in_frame, "leave it out")


def test_whole_numbers_stay_whole_and_named_columns_as_they_are() -> None:
    frame = pd.DataFrame({"a": ["3", "10"], "b": ["1", "2"], 3: ["1", "2"]})
    read = with_numbers(frame, "the frame", besides=["b"])
    assert [read["a"].dtype.kind, read["b"].tolist(), read[3].tolist()] == ["i", ["1", "2"], [1, 2]]
    assert frame["a"].tolist() == ["3", "10"]  # it is not changed


def test_a_cell_by_itself() -> None:
    assert all(map(is_number, ["1", "007", "1.234,5", "€5", ".5", "5.", "-1e3"]))
    assert not any(map(is_number, ["", "a", "1.2.3", "1,23,4", "2020-01-01", "--5", "1 2"]))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["\u0661\u066c\u0662\u0663\u0664", "\u0665\u0666\u0667"], [1234.0, 567.0]),  # Arabic, sign of thousands
        (["\u06f1\u06f2", "\u06f3\u066b\u06f5"], [12.0, 3.5]),  # Persian, sign of decimals
        (["\u0967\u0968", "\u0969"], [12.0, 3.0]),  # Devanagari
    ],
)
def test_digits_of_other_scripts(cells: list[str], values: list[float]) -> None:
    assert with_numbers(pd.DataFrame({"y": cells}), "the frame")["y"].tolist() == values

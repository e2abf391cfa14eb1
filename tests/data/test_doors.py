"""Tables come in by several doors, and dates, zones and series are read alike at each, or refused in one sentence."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels import Sequences
from seqmodels.cli.forecast import series_of_file as of_command_line
from seqmodels.data import read, table
from seqmodels.evaluation.forecasting.tables import regular_sequences

Door = Callable[[pd.DataFrame, Path], Sequences]


def is_written_with_index(frame: pd.DataFrame) -> bool:
    return not isinstance(frame.index, pd.RangeIndex)


def by_csv(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "a.csv", index=is_written_with_index(frame))
    return folder / "a.csv"


def by_parquet(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


def by_from_frame(frame: pd.DataFrame, _: Path) -> Sequences:
    time = next((str(c) for c in frame if str(c) in ("date", "year")), None)
    return Sequences.from_frame(frame, columns=["y"], time=time)


DOORS: dict[str, Door] = {
    "read": lambda frame, folder: read(by_csv(frame, folder), kind="vectors"),
    "table": lambda frame, _: table(frame, kind="vectors"),
    "from_frame": by_from_frame,
    "forecast": lambda frame, _: regular_sequences(frame),
    "command line": lambda frame, folder: of_command_line(str(by_csv(frame, folder)), None, None, None, None, [], None),
}
if find_spec("pyarrow") is not None:
    DOORS["parquet"] = lambda frame, folder: read(by_parquet(frame, folder), kind="vectors")
every_door = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())


def through(door: Door, frame: pd.DataFrame, folder: Path) -> tuple[Sequences, list[str]]:
    """What a door makes of a frame, and what it says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = door(frame, folder)
    return x, [str(each.message) for each in caught]


def assert_is(x: Sequences, times: Any, values: Any) -> None:
    assert x.times is not None
    np.testing.assert_array_equal(x.times[0], np.asarray(times, dtype="datetime64[us]"))
    np.testing.assert_array_equal(np.asarray(x[0])[:, (x.features or ()).index("y")], values)


# -- dates ---------------------------------------------------------------------------------------------------

MONTHS = pd.date_range("2018-01-01", periods=24, freq="MS")
MONTHS_OF_2001 = pd.date_range("2001-01-01", periods=24, freq="MS")
GERMAN = ["Jan", "Feb", "Mär", "Apr", "Mai", "Juni", "JULI", "Aug", "Sep", "Okt", "Nov", "Dez"]
FRENCH = ["janvier", "février", "mars", "avril", "Mai", "juin", "juil.", "août", "sept.", "octobre", "NOV", "déc."]
QUARTERS = pd.date_range("2018-01-01", periods=12, freq="QS")
HALVES = pd.date_range("2012-01-01", periods=14, freq="6MS")
NIGHTS = pd.date_range("2019-12-20", periods=30)
WEEKS = pd.date_range("2018-01-01", periods=60, freq="W-MON")
YEARS = pd.date_range("1990-01-01", periods=20, freq="YS")
OLD = np.arange("1600", "1620", dtype="datetime64[Y]")
DAYS = pd.date_range("2019-02-25", periods=20, freq="D")
WINTER = pd.date_range("1968-12-20", periods=24, freq="D")
HOURS = pd.date_range("2019-02-01 09:00", periods=30, freq="h")


def written(dates: pd.DatetimeIndex, how: str) -> list[str]:
    return list(dates.strftime(how))


# What a column holds, the dates that it holds, and how what was taken is said: a pattern, or nothing.
READINGS: dict[str, tuple[list[Any] | pd.Series, Any, str]] = {
    "dates": (list(MONTHS), MONTHS, ""),
    "ISO": (written(MONTHS, "%Y-%m-%d"), MONTHS, ""),
    "ISO with T and Z": (written(HOURS, "%Y-%m-%dT%H:%M:%SZ"), HOURS, ""),
    "date objects": ([each.date() for each in MONTHS], MONTHS, ""),
    "a categorical": (pd.Series(pd.Categorical(written(MONTHS, "%Y-%m-%d"))), MONTHS, ""),
    "spaces": ([f"{each} " for each in written(MONTHS, "%Y-%m-%d")], MONTHS, ""),
    "day first": (written(MONTHS, "%d.%m.%Y"), MONTHS, r"day first: '01.02.2018' is 2018-02-01.*'%m.%d.%Y'"),
    "month first": (written(MONTHS, "%m/%d/%Y"), MONTHS, r"month first: '02/01/2018' is 2018-02-01.*'%d/%m/%Y'"),
    "day first, certain": (written(DAYS, "%d/%m/%Y"), DAYS, ""),
    "Excel's": ([f"{d.month}/{d.day}/{d:%y}" for d in DAYS], DAYS, ""),
    "day first with a time": (written(HOURS, "%d.%m.%Y %H:%M"), HOURS, r"day first: '01.02.2019 09:00'"),
    "before noon and after": (written(HOURS, "%m/%d/%Y %I:%M %p"), HOURS, r"month first"),
    "month and two digits": (written(MONTHS, "%b-%y"), MONTHS, ""),
    "month and year": (written(MONTHS, "%B %Y"), MONTHS, ""),
    "year and month": (written(MONTHS, "%Y-%m"), MONTHS, ""),
    "year and month with a point": (written(MONTHS, "%Y.%m"), MONTHS, ".*|year and month, so that .1 is October"),
    "decimals": (
        [float(each) for each in written(MONTHS, "%Y.%m")],
        MONTHS,
        "so that .1 is October: 2018.12 is 2018-12",
    ),
    "decimal years": ([2018 + i / 4 for i in range(12)], QUARTERS, "2018.75 is 2018-10-01"),
    "yyyymm": ([int(each) for each in written(MONTHS, "%Y%m")], MONTHS, ""),
    "yyyymmdd": ([int(each) for each in written(DAYS, "%Y%m%d")], DAYS, ""),
    "yymmdd": ([int(each) for each in written(MONTHS, "%y%m%d")], MONTHS, ""),
    "years of two digits, 68 and 69": (written(WINTER, "%d.%m.%y"), WINTER, ""),
    "days as Excel counts them": (
        [(d - pd.Timestamp("1899-12-30")).days for d in MONTHS],
        MONTHS,
        "from 2018-01-01 on",
    ),
    "quarters": ([f"{d.year}Q{d.quarter}" for d in QUARTERS], QUARTERS, ""),
    "quarters first": ([f"Q{d.quarter} {d.year}" for d in QUARTERS], QUARTERS, ""),
    "half-years": ([f"{d.year}H{1 + d.month // 7}" for d in HALVES], HALVES, ""),
    "half-years first": ([f"H{1 + d.month // 7} {d.year}" for d in HALVES], HALVES, ""),
    "half-years of two digits": ([f"{1 + d.month // 7}H{d:%y}" for d in HALVES], HALVES, ""),
    "day of the year": ([int(each) for each in written(NIGHTS, "%Y%j")], NIGHTS, ""),
    "day of the year, as ISO writes it": (written(NIGHTS, "%Y-%j"), NIGHTS, ""),
    "weeks": ([f"{d.isocalendar().year}-W{d.isocalendar().week:02d}" for d in WEEKS], WEEKS, ""),
    "seconds since 1970": ([int(each.timestamp()) for each in HOURS], HOURS, "read as s since 1970"),
    "thousandths since 1970": ([1000 * int(each.timestamp()) for each in HOURS], HOURS, "read as ms since 1970"),
    "German": (
        [f"{GERMAN[d.month - 1]} {d.year}" for d in MONTHS],
        MONTHS,
        "",
    ),
    "French": ([f"{FRENCH[d.month - 1]} {d.year}" for d in MONTHS], MONTHS, ""),
    "months of 2001 and after": (
        [int(each) for each in written(MONTHS_OF_2001, "%Y%m")],
        MONTHS_OF_2001,
        r"year and month: 200101 is 2001-01-01; if it is 2020-01-01 \(year, month, day\) pass date_format='%y%m%d'",
    ),
    "fiscal years": ([f"FY{d.year}" for d in YEARS], YEARS, ""),
    "seasons of two years": ([f"{d.year}/{(d.year + 1) % 100:02d}" for d in YEARS], YEARS, ""),
    "long ago": ([str(each) for each in OLD.astype("datetime64[D]")], OLD, ""),
}


@every_door
@pytest.mark.parametrize("name", ["date", "t", "time"])
def test_days_of_a_year_are_dates_whatever_the_time_is_called(door: Door, name: str, tmp_path: Path) -> None:
    if door is DOORS["from_frame"] and name != "date":
        return  # which is told the name of the time
    days = [2019001 + i for i in range(30)]
    x, said = through(door, pd.DataFrame({name: days, "y": np.arange(30) / 7}), tmp_path)
    assert_is(x, pd.date_range("2019-01-01", periods=30), np.arange(30) / 7)
    says = f"'{name}' is read as year and day of the year: 2019001 is 2019-01-01; if it counts something else pass"
    assert [says in each for each in said] == ([] if name == "date" else [True])


@every_door
@pytest.mark.parametrize("form", READINGS)
def test_a_form_of_dates_is_read(door: Door, form: str, tmp_path: Path) -> None:
    cells, dates, says = READINGS[form]
    y = np.arange(len(cells)) ** 2 / 7
    x, said = through(door, pd.DataFrame({"date": cells, "y": y}), tmp_path)
    assert_is(x, dates, y)
    assert len(said) <= 1
    assert re.search(says or "^$", said[0] if said else "")


@every_door
def test_years_are_dates(door: Door, tmp_path: Path) -> None:
    y = np.arange(20) / 7
    x, said = through(door, pd.DataFrame({"year": YEARS.year, "y": y}), tmp_path)
    assert_is(x, YEARS, y)
    assert said == []


@every_door
@pytest.mark.parametrize(
    "index", [MONTHS.delete(2).strftime("%Y-%m-%d"), MONTHS.delete(2), MONTHS.delete(2).to_period("M")]
)
def test_an_index_of_words_or_periods_is_the_time(door: Door, index: pd.Index, tmp_path: Path) -> None:
    y = np.arange(23) / 7
    frame = pd.DataFrame({"y": y}, index=index.rename("date"))
    if door in (DOORS["read"], DOORS["command line"]):
        frame = frame.reset_index()
    x, said = through(door, frame, tmp_path)
    assert said == []
    if door in (DOORS["forecast"], DOORS["command line"]):
        assert_is(x, MONTHS, [*y[:2], np.nan, *y[2:]])
    else:
        assert_is(x, MONTHS.delete(2), y)


YEAR = written(MONTHS[:12], "%d/%m/%Y")  # the first of each month of a year, or twelve days of January
REFUSED: dict[str, tuple[list[Any], str]] = {
    "two readings": (
        YEAR,
        r"'date' can be read in two ways.*'01/02/2018' is 2018-02-01 \(day first\) or 2018-01-02 .*date_fo",
    ),
    "no such day": (
        ["2019-01-01", "2019-02-30", *written(MONTHS, "%Y-%m-%d")],
        r"holds '2019-02-30' in row 1, which is no",
    ),
    "two formats": (
        ["2019-01-01", *written(MONTHS, "%d.%m.%Y")],
        r"holds '2019-01-01' in row 0, which is not a date as the",
    ),
    "no such day of the year": (
        ["2019-364", "2019-365", "2019-366", "2020-001"],
        r"holds '2019-366' in row 2, which is not a date as the others are \('2019-364', read as year and day",
    ),
    "some with a zone": (
        ["2019-01-01T00:00", "2019-01-02T00:00Z"],
        r"with a time zone \('2019-01-02T00:00Z'\) and without",
    ),
    "Spanish": (
        ["enero 2019", "febrero 2019", "marzo 2019"],
        r"holds words that are not dates, such as 'enero 2019'.*date_format=",
    ),
    "an empty cell": (["2019-01-01", None, "2019-01-03"], r"row 1 of the frame has no time"),
    "twice": ([*MONTHS[:4], *MONTHS[3:8]], r"'date' is 2018-04-01 in row 3 and in row 4.*by="),
}


@every_door
@pytest.mark.parametrize("form", REFUSED)
def test_a_column_is_refused(door: Door, form: str, tmp_path: Path) -> None:
    cells, says = REFUSED[form]
    with pytest.raises(ValueError, match=says):
        door(pd.DataFrame({"date": cells, "y": np.arange(len(cells)) / 7}), tmp_path)


def test_a_format_decides(tmp_path: Path) -> None:
    frame = pd.DataFrame({"date": YEAR, "y": np.arange(12) / 7})
    path = by_csv(frame, tmp_path)
    for x in (
        read(path, date_format="%d/%m/%Y"),
        table(frame, date_format="%d/%m/%Y"),
        Sequences.from_frame(frame, time="date", date_format="%d/%m/%Y"),
        regular_sequences(frame, date_format="%d/%m/%Y"),
        of_command_line(str(path), None, None, None, "%d/%m/%Y", [], None),
    ):
        assert_is(x, MONTHS[:12], frame["y"])
    with pytest.raises(ValueError, match=r"holds '01/02/2018', which is not written as date_format='%Y-%m-%d'"):
        table(frame.iloc[1:], date_format="%Y-%m-%d")


@every_door
@pytest.mark.parametrize(
    "cells", [written(MONTHS, "%b"), written(DAYS, "%A"), ["Q1", "Q2", "Q3", "Q4"] * 5, ["12:30", "11:00"] * 5]
)
def test_words_without_a_year_are_no_time(door: Door, cells: list[str], tmp_path: Path) -> None:
    if door is DOORS["from_frame"]:
        with pytest.raises(ValueError, match=r"the time 'date' holds words that name no year"):
            door(pd.DataFrame({"date": cells, "y": 1.5}), tmp_path)
        return
    y = np.arange(len(cells)) / 7
    x, said = through(door, pd.DataFrame({"month": cells, "y": y}), tmp_path)
    assert x.times is None
    np.testing.assert_array_equal(np.asarray(x[0])[:, 0], y)
    assert re.search(rf"'month' names no year \('{cells[0]}'\), so it is not a time", said[0])


# Columns beside y, and the dates that they make together.
PARTS: dict[str, tuple[dict[str, Any], pd.DatetimeIndex]] = {
    "year and month": ({"year": MONTHS.year, "month": MONTHS.month}, MONTHS),
    "year and name of month": ({"Year": MONTHS.year, "Month": MONTHS.strftime("%b")}, MONTHS),
    "year and quarter": ({"year": QUARTERS.year, "quarter": QUARTERS.quarter}, QUARTERS),
    "to hours": ({part: getattr(HOURS, part) for part in ("year", "month", "day", "hour")}, HOURS),
    "day and time": ({"date": HOURS.strftime("%Y-%m-%d"), "time": HOURS.strftime("%H:%M")}, HOURS),
    "day and hour": ({"date": HOURS.strftime("%Y-%m-%d"), "hour": HOURS.hour}, HOURS),
}


@pytest.mark.parametrize("door", [DOORS[name] for name in ("read", "table", "forecast", "command line")])
@pytest.mark.parametrize("form", PARTS)
def test_columns_make_one_time(door: Door, form: str, tmp_path: Path) -> None:
    columns, dates = PARTS[form]
    x, _ = through(door, pd.DataFrame({**columns, "y": np.arange(len(dates)) / 7}), tmp_path)
    assert_is(x, dates, np.arange(len(dates)) / 7)
    assert x.features == ("y",)


@pytest.mark.parametrize("door", [DOORS[name] for name in ("read", "table", "forecast", "command line")])
def test_numbers_that_look_like_dates_are_none(door: Door, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"birth_year": [1950, 1980, 1951] * 4, "id": [20190101 + i for i in range(12)], "y": np.arange(12) / 7}
    )
    x, said = through(door, frame.assign(month=np.arange(12) % 6 + 1), tmp_path)
    assert (x.times, x.features, said) == (None, ("birth_year", "id", "y", "month"), [])
    with pytest.raises(ValueError, match=r"several columns of dates, start, end; name the time of a step with time="):
        door(pd.DataFrame({"start": MONTHS, "end": MONTHS + pd.Timedelta("3D"), "y": 0.5}), tmp_path)


@pytest.mark.parametrize("door", [DOORS[name] for name in ("read", "table", "forecast", "command line")])
def test_columns_called_as_dates_are_a_time_each(door: Door, tmp_path: Path) -> None:
    values = {each: np.arange(4) / 7 + i for i, each in enumerate(["2010", "2011", "2012"])}
    with pytest.raises(ValueError, match=r"the columns 2010, 2011, 2012 are called as dates are.*frame\.T"):
        door(pd.DataFrame({"country": list("abcd"), **values}), tmp_path)
    months = {month: np.arange(4) / 7 for month in ("Jan", "Feb", "Mar")}
    x, said = through(door, pd.DataFrame({"year": range(2010, 2014), **months}), tmp_path)
    assert x.features == ("Jan", "Feb", "Mar")
    assert "Jan, Feb, Mar are called as dates are" in said[0]
    assert "frame.melt('year')" in said[0]


@pytest.mark.parametrize("door", [DOORS[name] for name in ("read", "table", "forecast", "command line")])
def test_a_time_of_day_separates_no_series(door: Door, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"date": DAYS.repeat(2).strftime("%Y-%m-%d"), "time": [900, 1700] * 20, "y": np.arange(40) / 7}
    )
    with pytest.raises(ValueError, match=r"'date' is 2019-02-25 in row 0 and in row 1.*add a column"):
        door(frame, tmp_path)


# -- zones ---------------------------------------------------------------------------------------------------

CLOCKS = {
    "months": pd.date_range("2019-01-01", periods=24, freq="MS", tz="Europe/Berlin"),
    "days": pd.date_range("2020-03-20", periods=30, freq="D", tz="Europe/Berlin"),
    "hours": pd.date_range("2020-03-28", periods=60, freq="h", tz="Europe/Berlin"),
}


@every_door
@pytest.mark.parametrize("steps", ["months", "days", "hours"])
def test_times_of_a_zone_are_of_its_calendar(door: Door, steps: str, tmp_path: Path) -> None:
    dates = CLOCKS[steps]
    y = np.arange(len(dates)) / 7
    x, said = through(door, pd.DataFrame({"date": dates, "y": y}), tmp_path)
    assert_is(x, dates.tz_convert("UTC").tz_localize(None) if steps == "hours" else dates.tz_localize(None), y)
    is_written = door in (DOORS["read"], DOORS["command line"])  # a CSV has offsets and no name of the zone
    zone = {"hours": "UTC" if is_written else "UTC (Europe/Berlin)"}.get(steps, None if is_written else "Europe/Berlin")
    assert x.time_unit == zone
    assert len(said) == is_written
    assert re.search("one zone's clock|times are in UTC|^$", said[0] if said else "")
    if not is_written:
        assert pd.Index(x.to_frame()["date"]).equals(pd.Index(dates))


@every_door
def test_objects_of_one_zone_are_as_a_column_of_it(door: Door, tmp_path: Path) -> None:
    dates = CLOCKS["days"]
    x, _ = through(
        door, pd.DataFrame({"date": pd.Series(list(dates.to_pydatetime()), dtype=object), "y": 0.5}), tmp_path
    )
    assert_is(x, dates.tz_localize(None), [0.5] * 30)


# -- several series ------------------------------------------------------------------------------------------


def panel(**columns: Any) -> pd.DataFrame:
    """Two series of 24 months, one below the other."""
    twice = {"date": [*MONTHS, *MONTHS], "y": np.arange(48) ** 2 / 7}
    return pd.DataFrame({**columns, **twice})


SHOPS = ["b"] * 24 + ["a"] * 24
PANELS = {
    "words": panel(shop=SHOPS),
    "words by date": panel(shop=SHOPS).sort_values("date", kind="stable", ignore_index=True),
    "integers": panel(shop=[7] * 24 + [3] * 24),
    "integers by date": panel(shop=[7] * 24 + [3] * 24).sort_values("date", kind="stable", ignore_index=True),
    "beside counts": panel(shop=SHOPS, sold=np.arange(48) % 5),
    "a name and a number of it": panel(shop=SHOPS, number=[7] * 24 + [3] * 24),
    "dates as words": panel(shop=SHOPS).assign(date=[*written(MONTHS, "%b %Y")] * 2),
    "at other dates": pd.DataFrame(
        {
            "shop": ["b"] * 24 + ["a"] * 24,
            "date": [*MONTHS, *(MONTHS + pd.to_timedelta(np.arange(24) % 7 + 3, unit="D"))],
            "y": np.arange(48) ** 2 / 7,
        }
    ),
}


@every_door
@pytest.mark.parametrize("form", PANELS)
def test_series_are_separated_by_the_one_column_that_does(door: Door, form: str, tmp_path: Path) -> None:
    frame = PANELS[form]
    if door is DOORS["from_frame"]:  # which guesses nothing
        if form != "at other dates":
            with pytest.raises(ValueError, match=r"by='shop'"):
                door(frame, tmp_path)
        return
    x, said = through(door, frame, tmp_path)
    assert (x.by, len(x)) == ("shop", 2)
    y = np.arange(48) ** 2 / 7
    assert_is(x[:1], MONTHS, y[:24])
    assert_is(x[1:], frame["date"][24:] if form == "at other dates" else MONTHS, y[24:])
    assert "sequences, one for each 'shop'; pass by=" in said[0]


@every_door
@pytest.mark.parametrize("sort", [["date"], ["dept", "date"]])
def test_series_that_no_column_separates_are_refused(door: Door, sort: list[str], tmp_path: Path) -> None:
    frame = pd.concat([panel(shop=SHOPS, dept=dept) for dept in ("x", "y")]).sort_values(
        sort, kind="stable", ignore_index=True
    )
    with pytest.raises(
        ValueError, match=r"'date' is 2018-01-01 in row 0 and in row.*no one column separates.*shop, dept.*by="
    ):
        door(frame, tmp_path)
    with pytest.raises(ValueError, match=r"add a column that says which one.*by="):
        door(frame.drop(columns=["shop", "dept"]), tmp_path)


@pytest.mark.parametrize("name", ["table", "forecast", "from_frame"])
@pytest.mark.parametrize("levels", [["shop", "date"], ["date", "shop"]])
def test_levels_of_an_index_separate(name: str, levels: list[str], tmp_path: Path) -> None:
    frame = PANELS["words"].set_index(levels).sort_index(level=0)
    if name == "from_frame":
        with pytest.raises(ValueError, match=r"by='shop'"):
            DOORS[name](frame, tmp_path)
        return
    x, _ = through(DOORS[name], frame, tmp_path)
    assert (x.by, x.names, x.features) == ("shop", ["a", "b"], ("y",))
    assert_is(x[1:], MONTHS, np.arange(24) ** 2 / 7)


@every_door
def test_unique_dates_are_put_in_order(door: Door, tmp_path: Path) -> None:
    frame = pd.DataFrame({"date": MONTHS, "y": np.arange(24) / 7}).sample(frac=1, random_state=0, ignore_index=True)
    x, said = through(door, frame, tmp_path)
    assert_is(x, MONTHS, np.arange(24) / 7)
    assert said == [] if door is DOORS["from_frame"] else "are not in the order of 'date'" in said[0]


@pytest.mark.parametrize("name", ["read", "table", "forecast", "command line"])
def test_numbers_that_begin_again_are_several_series(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"t": [*range(9), *range(7)], "subject": [4] * 9 + [2] * 7, "y": np.arange(16) / 7})
    x, _ = through(DOORS[name], frame, tmp_path)
    assert (x.by, x.n_units.tolist(), x.features) == ("subject", [9, 7], ("y",))

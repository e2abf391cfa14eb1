"""Recognition of the time column of a table, and of the column that names the series of a row."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.display import listed
from seqmodels.sequences.columns.dates import (
    Dates,
    are_dates_in_order,
    dates_in_digits,
    names_no_year,
    read_dates,
    said_of_counted,
)
from seqmodels.sequences.columns.index import TIME_NAMES, YEAR_NAMES, is_called_time, with_index_as_columns
from seqmodels.sequences.columns.numbers import holds_numbers
from seqmodels.sequences.columns.panels import PARTS_OF_DATES, SeriesOfRows, candidates, series_of_rows

if TYPE_CHECKING:
    import pandas as pd

DATE_NAMES = ("date", "datetime", "timestamp", "time_stamp", "ds")  # a column with one of these names must hold dates
# The largest number of each part of a date. A column with larger ones does not hold that part: it counts from a start.
PARTS_AT_MOST = {"day": 31, "week": 53, "month": 12, "quarter": 4, "hour": 24, "minute": 60, "second": 60}
MOST_NAMED_AS_DATES = 2000  # columns; the names of more columns are not checked for dates
FIRST_YEAR = 1000  # the least number that is taken for a year of the calendar
PARTS = ("year", *PARTS_AT_MOST)


@dataclass
class TimedRows:
    """A table with one row per step, its column of times, and what was assumed to find it.

    Attributes:
        frame: the rows, with the time as a column of dates or numbers. Columns that were combined into the time are
            gone.
        time: the time column; None if there is none.
        unit: the unit of times that are numbers.
        by: the column that says which series a row belongs to; None if all rows are one series.
        said: sentences about what was assumed.
        keys: columns that were levels of the index and have no use yet.
        disordered: columns of numbers that have a name of a time but decrease within a series.
        is_time_said: True if the caller named the time, so that rows are put into its order without a message.
    """

    frame: pd.DataFrame
    time: str | None
    unit: str | None
    by: str | None
    said: list[str] = field(default_factory=list)
    keys: tuple[str, ...] = ()
    disordered: list[str] = field(default_factory=list)
    is_time_said: bool = False


def timed_rows(
    frame: pd.DataFrame,
    *,
    time: str | None = None,
    time_unit: str | None = None,
    by: str | None = None,
    taken: Collection[str | None] = (),
    date_format: str | None = None,
) -> TimedRows:
    """Find the column of times in a table with one row per step, and return the table with it as dates or numbers.

    The time is the index if it holds dates; otherwise the only column of dates; otherwise ``year`` combined with
    ``month``, ``quarter`` or ``week`` (and ``day``, ``hour`` and so on); otherwise a column of numbers that has a usual
    name of a time. Words that do not name a year are not dates. It is not yet known to which of several series a row
    belongs; ``separated`` finds that out.

    Args:
        frame: the table, one row per step, with distinct column names.
        time: the time column; None means that it is recognised.
        time_unit: the unit of times that are numbers. If it is given, numbers are not read as dates.
        by: the column that says which series a row belongs to; None means that ``separated`` finds it.
        taken: columns that have another use, such as features that the caller named.
        date_format: how dates are written, in the notation of ``datetime.strptime``; None means that it is recognised.

    Raises:
        ValueError: dates cannot be read or can be read in two ways, or several columns hold dates.
    """
    indexed = with_index_as_columns(frame, [by, time, *taken], date_format=date_format, keys=True)
    rows = TimedRows(indexed.frame, time, time_unit, by, keys=indexed.keys, is_time_said=time is not None)
    if time is not None:
        if time in rows.frame:
            rows.frame[time] = named_times(rows.frame[time], time_unit, date_format, rows.said)
    elif indexed.time is not None:
        rows.time, rows.unit = indexed.time, indexed.unit if time_unit is None else time_unit
        rows.said += [indexed.said] if indexed.said else []
    else:
        _recognise(rows, {by, *taken, *indexed.keys}, time_unit, date_format)
        rows.said += [indexed.left_out] if rows.time is None and indexed.left_out else []
    _refuse_dates_as_columns(rows, {by, *taken})
    return rows


def _refuse_dates_as_columns(rows: TimedRows, taken: Collection[str | None]) -> None:
    """Append a sentence to ``rows.said`` if names of number columns are dates, as in a table with one row per series.

    Raise ``ValueError`` if the rows have no time either.

    Args:
        rows: the table.
        taken: columns that have another use.
    """
    import pandas as pd

    if rows.frame.shape[1] > MOST_NAMED_AS_DATES:
        return
    dtypes = rows.frame.dtypes.items()
    others = {rows.time, *taken}
    columns = [str(c) for c, dtype in dtypes if c not in others and pd.api.types.is_numeric_dtype(dtype)]
    names = pd.Series(columns, dtype=object, name="columns")
    if len(names) < 3 or not (names_no_year(names) or are_dates_in_order(columns)):
        return
    says = f"the columns {listed(columns)} are called as dates are, but a table has a row for each of them"
    if rows.time is None:
        raise ValueError(f"{says}; exchange rows and columns, frame.T, or name what is to be modelled with columns=")
    rows.said.append(f"{says}: rows are taken for steps; to make one series of them use frame.melt({rows.time!r})")


def separated(rows: TimedRows, taken: Collection[str | None] = ()) -> TimedRows:
    """Find the column that says which series each row belongs to, and return the rows with it.

    Such a column is needed only if times repeat or go back; otherwise all rows are one series.

    Args:
        rows: the rows of a table with their time column; without one nothing is known about series.
        taken: columns that have another use and cannot be chosen.

    Raises:
        ValueError: there are several series, and not exactly one column separates them.
    """
    frame, time, by = rows.frame, rows.time, rows.by
    is_known = time in frame and (by is None or by in frame)
    series = SeriesOfRows(by)
    if time is not None and is_known and not frame[time].isna().any():
        series = series_of_rows(frame, time, by, [str(c) for c in frame if c not in {time, by, *taken}])
    unused = [key for key in rows.keys if key != series.by]
    is_new = series.said and not (rows.is_time_said and series.by == by)
    said = [*rows.said, series.said] if is_new else rows.said
    return replace(rows, frame=frame.drop(columns=unused), by=series.by, said=said, keys=())


def named_times(column: pd.Series, time_unit: str | None, date_format: str | None, said: list[str]) -> pd.Series:
    """Return the times in a column that the caller named as the time: dates, or numbers if they are not dates.

    Args:
        column: the column.
        time_unit: the unit of numbers; None means that numbers may be dates.
        date_format: how dates are written; None means that it is recognised.
        said: a list to which sentences about assumptions are appended in place.

    Raises:
        ValueError: the column holds words that are not dates; see also ``read_dates``.
    """
    import pandas as pd

    is_number = pd.api.types.is_numeric_dtype(column)
    if is_number and time_unit is not None:
        return column
    read = read_dates(column, date_format=date_format, is_time=True)
    if read is not None:
        said += [read.said] if read.said else []
        return read.times
    if is_number and (of_counts := said_of_counted(column)):
        said.append(of_counts)
    if is_number or column.dtype.kind == "m" or not column.notna().any():
        return column
    example = column.dropna().iloc[0]
    why = "words that name no year" if names_no_year(column) else "words that are not dates"
    raise ValueError(
        f"the time {column.name!r} holds {why}, such as {str(example)!r:.40}; write dates as 2019-01-31, or say how "
        "they are written: date_format='%d/%m/%Y'"
    )


def text_dates(frame: pd.DataFrame, time: str | None, date_format: str | None) -> set[Hashable]:
    """Return the columns of text that hold dates although their cells are numbers too, such as ``2019.10``.

    Args:
        frame: the table.
        time: the time column; None means that every column with a usual name of a time is considered.
        date_format: how dates are written; None means that it is recognised.
    """
    named = [c for c in frame if c == time or (is_called_time(str(c)) and time is None)]
    return {c for c in named if holds_numbers(frame[c]) and _are_dates(frame[c], date_format)}


def _are_dates(column: pd.Series, date_format: str | None) -> bool:
    try:
        return read_dates(column, date_format=date_format, is_time=True) is not None
    except ValueError:  # dates that can be read in two ways, which are refused later
        return True


# -- what is recognised --------------------------------------------------------------------------------------


def _recognise(rows: TimedRows, taken: Collection[str | None], time_unit: str | None, date_format: str | None) -> None:
    """Find the time column of a table by its contents and name, and set it in ``rows``.

    Nothing is set if none can be recognised.

    Args:
        rows: the table.
        taken: columns that have another use.
        time_unit: the unit of times that are numbers.
        date_format: how dates are written, in the notation of ``datetime.strptime``; None means that it is recognised.

    Raises:
        ValueError: dates can be read in two ways, or several columns hold dates.
    """
    import pandas as pd

    free = [str(c) for c in rows.frame if c not in taken]
    types = dict(rows.frame.dtypes)
    words = [c for c in free if not pd.api.types.is_numeric_dtype(types[c])]
    numbers = [c for c in free if c not in words and not pd.api.types.is_bool_dtype(types[c])]
    dates, refused = _dates_among(rows, words, date_format)
    if len(dates) > 1:
        dates = _one_of(dates)
    if dates:
        rows.time, read = next(iter(dates.items()))
        rows.frame[rows.time] = read.times
        rows.said += [read.said] if read.said else []
        _add_time_of_day(rows, free)
        return
    if _make_of_parts(rows, free):
        return
    if refused is not None:
        raise refused
    yearless = [c for c in words if c.lower() in (*TIME_NAMES, *PARTS_OF_DATES) and names_no_year(rows.frame[c])]
    unread = [c for c in words if c.lower() in DATE_NAMES and c not in yearless and rows.frame[c].notna().any()]
    if unread:
        named_times(rows.frame[unread[0]], None, date_format, [])
    if numbers:
        rows.said += [
            f"{c!r} names no year ({rows.frame[c].dropna().iloc[0]!r}), so it is not a time, and rows are taken for "
            "steps"
            for c in yearless
        ]
    _recognise_numbers(rows, numbers, time_unit, date_format)


def _dates_among(
    rows: TimedRows, columns: list[str], date_format: str | None
) -> tuple[dict[str, Dates], ValueError | None]:
    """Return the dates of the columns that hold dates, by name, and the first error in reading one, or None.

    Columns that are constant within each series are left out.

    Args:
        rows: the table.
        columns: names of the columns to try.
        date_format: how dates are written, in the notation of ``datetime.strptime``; None means that it is recognised.
    """
    import pandas as pd

    dates: dict[str, Dates] = {}
    refused = None
    codes = None if rows.by is None or rows.by not in rows.frame else pd.factorize(rows.frame[rows.by])[0]
    for name in columns:
        is_named = is_called_time(name)
        column = rows.frame[name]
        if not is_named and column.isna().mean() > 0.5:
            continue
        try:
            read = read_dates(column, date_format=date_format if is_named else None, is_time=is_named)
            if read is None and date_format is not None and not is_named:
                read = _by_format_if_all(column, date_format)
        except ValueError as error:
            refused = refused or error
            continue
        is_constant = codes is not None and len(set(codes)) < len(codes) and column.groupby(codes).nunique().max() == 1
        if read is not None and not is_constant:
            dates[name] = read
    return dates, refused


def _by_format_if_all(column: pd.Series, date_format: str) -> Dates | None:
    try:
        return read_dates(column, date_format=date_format)
    except ValueError:
        return None


def _one_of(dates: dict[str, Dates]) -> dict[str, Dates]:
    """Return the only entry of ``dates`` (dates by column) whose column has a usual name of a time.

    Raise ``ValueError`` if not exactly one has.
    """
    named = {name: read for name, read in dates.items() if is_called_time(name)}
    if len(named) != 1:
        raise ValueError(
            f"there are several columns of dates, {listed(list(dates))}; name the time of a step with time= (in a "
            "shell --time)"
        )
    return named


def _make_of_parts(rows: TimedRows, free: list[str]) -> bool:
    """Combine a column of years with one of months, quarters or weeks, and with finer ones, into the time of ``rows``.

    Return False and change nothing if there are no such columns among ``free``, the columns without another use. Raise
    ``ValueError`` if the parts of some row are not a date.
    """
    import pandas as pd

    by_part = {c.lower(): c for c in free if c.lower() in PARTS}
    coarse = next((part for part in ("month", "quarter", "week") if part in by_part), None)
    if "year" not in by_part or coarse is None:
        return False
    years = pd.to_numeric(rows.frame[by_part["year"]], errors="coerce")
    if not (years >= FIRST_YEAR).all():  # for example the years of a study, counted from its first
        return False
    parts = ["year", coarse]
    if coarse == "month":
        for part in ("day", "hour", "minute", "second"):
            if part not in by_part:
                break
            parts.append(part)
    columns = [by_part[part] for part in parts]
    written = {"month": "-", "quarter": "Q", "week": "-W", "day": "-", "hour": " ", "minute": ":", "second": ":"}
    texts = _digits(rows.frame[by_part["year"]], 4)
    for part in parts[1:]:
        cells = rows.frame[by_part[part]]
        is_name = part == "month" and not pd.api.types.is_numeric_dtype(cells)
        digits = cells.astype(str).str.strip().str.removeprefix("Q") if is_name or part == "quarter" else None
        texts = texts + written[part] + (_digits(cells, 2) if digits is None else digits)
    if len(parts) == 4:
        texts = texts + ":00"
    try:
        read = read_dates(texts.rename(" and ".join(columns)), is_time=True)
        why = f"such as {texts.iloc[0]!r}"
    except ValueError as error:
        read, why = None, str(error)
    if read is None:
        raise ValueError(
            f"{', '.join(columns)} make no date in some row ({why}); correct it, or name what is to be modelled with "
            "columns="
        )
    rows.frame = rows.frame.drop(columns=columns)
    rows.time = next(name for name in ("time", "date", *(f"time_{i}" for i in range(99))) if name not in rows.frame)
    rows.frame.insert(0, rows.time, read.times)
    _add_time_of_day(rows, [c for c in free if c not in columns])
    return True


def _digits(column: pd.Series, width: int) -> pd.Series:
    """Return integers as text with at least ``width`` digits, and other cells as their text."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    whole = numbers.notna() & (numbers == np.rint(numbers))
    words = column.astype(str).astype(object)
    words[whole] = numbers[whole].astype(np.int64).astype(str).str.zfill(width)
    return words


def _add_time_of_day(rows: TimedRows, free: list[str]) -> None:
    """Add a column of times of day or hours to the dates of ``rows``, if these repeat and have no time of day.

    The column is one of ``free``, which have no other use. Nothing changes if there is none.
    """
    import pandas as pd

    assert rows.time is not None, "it was just recognised"
    dates = rows.frame[rows.time]
    is_day = (dates.dropna() == dates.dropna().dt.normalize()).all()
    if not is_day or not dates.duplicated().any():
        return
    for name in free:
        if name == rows.time or name not in rows.frame:
            continue
        column = rows.frame[name]
        if name.lower() == "hour" and pd.api.types.is_numeric_dtype(column):
            hours = column.to_numpy(dtype=np.float64, na_value=np.nan)
            if ((hours >= 0) & (hours < 24) & (hours == np.rint(hours))).all():
                times = dates + pd.to_timedelta(hours, unit="h")
                break
        elif not pd.api.types.is_numeric_dtype(column) and names_no_year(column):
            texts = dates.dt.strftime("%Y-%m-%d") + " " + column.astype(str).str.strip()
            read = read_dates(texts.rename(name), is_time=True)
            if read is not None:
                times = read.times
                break
    else:
        return
    rows.frame[rows.time] = times
    rows.frame = rows.frame.drop(columns=name)
    rows.said.append(f"{rows.time!r} and {name!r} are taken for one time")


def _recognise_numbers(rows: TimedRows, numbers: list[str], time_unit: str | None, date_format: str | None) -> None:
    """Set the time of a table to its only column of numbers that has a usual name of a time, if there is one.

    The numbers may also be years, or counts of days and the like. Columns that look like times but decrease are listed
    in ``rows.disordered``.

    Args:
        rows: the table.
        numbers: names of the columns of numbers to consider.
        time_unit: the unit of times that are numbers.
        date_format: how dates are written, in the notation of ``datetime.strptime``; None means that it is recognised.
    """
    of_times = [c for c in numbers if c.lower() in (*TIME_NAMES, *YEAR_NAMES, *PARTS_AT_MOST)]
    complete = [c for c in of_times if not rows.frame[c].isna().any()]
    named = [c for c in complete if c.lower() in TIME_NAMES]
    years = [c for c in complete if c.lower() in YEAR_NAMES]
    counted = [c for c in complete if c.lower() in PARTS_AT_MOST and _is_counted(rows.frame[c])]
    chosen = next((columns for columns in (named, years, counted) if columns), [])
    if not chosen and time_unit is None:
        in_digits = {c: read for c in numbers if (read := dates_in_digits(rows.frame[c])) is not None}
        if len(in_digits) == 1:
            rows.time, read = next(iter(in_digits.items()))
            rows.frame[rows.time] = read.times
            rows.said.append(read.said)
            return
    if len(chosen) != 1:
        rows.disordered = chosen
        return
    name = chosen[0]
    said: list[str] = []
    times = named_times(rows.frame[name], time_unit, date_format, said)
    if name in years:
        others = [str(c) for c in rows.frame if c != name]
        is_time = times.dtype.kind == "M" and (
            not times.duplicated().any() or rows.by or candidates(rows.frame, others)
        )
        if not is_time:
            return
    elif times.dtype.kind != "M" and not _may_be_time(rows, times):
        rows.disordered = [name]
        return
    rows.time, rows.unit, rows.frame[name] = name, time_unit, times
    rows.said += said


def _is_counted(column: pd.Series) -> bool:
    """Return True if numbers increase beyond the largest value of the part of a date (12 for months) in their name."""
    return bool(
        column.is_monotonic_increasing and column.is_unique and column.max() > PARTS_AT_MOST[str(column.name).lower()]
    )


def _may_be_time(rows: TimedRows, times: Any) -> bool:
    """Return True unless numbers decrease within one of the series of a table, so that they may be times.

    If it is not known which rows belong to one series, return True, because ``separated`` checks it later.

    Args:
        rows: the table.
        times: the numbers, one for each row.
    """
    import pandas as pd

    if rows.by is None or rows.by not in rows.frame:
        return True
    return bool(times.groupby(pd.factorize(rows.frame[rows.by])[0]).is_monotonic_increasing.all())

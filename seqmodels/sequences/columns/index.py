"""The index of a pandas frame as columns: the times that it holds, and levels that may name one of several series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.sequences.columns.dates import read_dates

if TYPE_CHECKING:
    import pandas as pd

TIME_NAMES = ("time", "t", "date", "datetime", "timestamp", "time_stamp", "ds")
YEAR_NAMES = ("year", "years", "yr")


@dataclass(frozen=True)
class TimesOfIndex:
    """The times that an index of a frame holds.

    Attributes:
        times: dates or numbers, with the name of the index.
        unit: the unit of numbers, if it is known.
        said: how words or numbers were read as dates, if there were several ways; otherwise empty.
    """

    times: pd.Index
    unit: str | None = None
    said: str = ""


def times_of_index(index: pd.Index, date_format: str | None = None) -> TimesOfIndex | None:
    """Return the times that an index of a frame holds, or None if it holds none.

    Times are dates, the beginnings of periods, words and objects that are dates, durations (as seconds), and numbers if
    the index has a name in ``TIME_NAMES``, or in ``YEAR_NAMES`` and holds years.

    Args:
        index: the index, or one level of it.
        date_format: how dates are written, in the notation of ``datetime.strptime``; None means that it is recognised.

    Raises:
        ValueError: words can be read as dates in two ways, or most words are dates but one is not.
    """
    import pandas as pd

    if isinstance(index, pd.DatetimeIndex):
        return TimesOfIndex(index)
    if isinstance(index, pd.TimedeltaIndex):
        return TimesOfIndex(pd.Index(index.total_seconds(), name=index.name), "s")
    if isinstance(index, pd.RangeIndex | pd.MultiIndex) and index.name is None:
        return None
    is_named = is_called_time(index.name)
    is_number = pd.api.types.is_numeric_dtype(index) and not pd.api.types.is_bool_dtype(index)
    are_digits = len(index) > 0 and str(index[0]).isdecimal()  # digits may be names
    column = pd.Series(index, name="index" if index.name is None else index.name)
    read = read_dates(column, date_format=date_format, is_time=is_named or not (is_number or are_digits))
    if read is not None:
        return TimesOfIndex(pd.Index(read.times).rename(index.name), said=read.said)
    return TimesOfIndex(index) if is_named and is_number else None


def index_left_out(index: pd.Index) -> str:
    """Return a warning that the index of a frame is ignored because its words contain digits but are not dates.

    Return "" for any other index.
    """
    if index.nlevels > 1 or not any(isinstance(cell, str) and re.search(r"\d", cell) for cell in index[:1]):
        return ""
    return (
        f"the index holds words that are not dates, such as {index[0]!r}, so it is left out and rows are taken for "
        "steps; write dates as 2019-01-31 or pass them as times, or drop the index: frame.reset_index(drop=True)"
    )


def is_called_time(name: Any) -> bool:
    """Return True if a column or an index has a usual name of times, such as ``time`` or ``year``."""
    return isinstance(name, str) and name.lower() in (*TIME_NAMES, *YEAR_NAMES)


def times_of_frames(items: Sequence[Any]) -> tuple[list[pd.Index], str, str | None] | None:
    """Return the times in the index of each pandas frame or column, the name of the times, and their unit or None.

    Return None if the items are not of pandas, or none has times.

    Args:
        items: one frame or column for each sequence.

    Raises:
        ValueError: some of the frames have times and others have none, or words can be read as dates in two ways.
    """
    if not _is_of_pandas(items[0]):
        return None
    each = [times_of_index(item.index) if _is_of_pandas(item) else None for item in items]
    known = [times for times in each if times is not None]
    if not known:
        left_out = next((said for item in items if _is_of_pandas(item) and (said := index_left_out(item.index))), "")
        if left_out:
            warn_caller(left_out)
        return None
    if len(known) < len(items):
        has, lacks = next(i for i, times in enumerate(each) if times is not None), each.index(None)
        raise ValueError(
            f"the index of sequence {has} holds times, but that of sequence {lacks} none; give all one, or none: "
            "frame.reset_index(drop=True)"
        )
    for said in dict.fromkeys(one.said for one in known if one.said):
        warn_caller(said)
    names, units = {one.times.name for one in known}, {one.unit for one in known}
    name = next(iter(names)) if len(names) == 1 else None
    return [one.times for one in known], "time" if name is None else str(name), min(units, key=str)


@dataclass(frozen=True)
class FrameWithIndex:
    """A table whose index, or levels of it, was turned into columns, with what is known about its times.

    Attributes:
        frame: the frame with the new columns; its index numbers the rows.
        time: the time column; None if the index holds no times, or several levels do.
        unit: the unit of times that are numbers, if it is known.
        said: how the times were read, if there were several ways; otherwise empty.
        keys: other levels of the index, now columns of ``frame``, which may name the series that a row belongs to.
        left_out: a sentence saying that the index holds words and is ignored; otherwise empty.
    """

    frame: pd.DataFrame
    time: str | None = None
    unit: str | None = None
    said: str = ""
    keys: tuple[str, ...] = ()
    left_out: str = ""


def with_index_as_columns(
    frame: pd.DataFrame, of_rows: Iterable[str | None], *, date_format: str | None = None, keys: bool = False
) -> FrameWithIndex:
    """Turn levels of a table's index into columns: the level that holds times, and those that the caller uses.

    The time column has the name of the level, or ``time``.

    Args:
        frame: the frame.
        of_rows: names of columns, or index levels, that the caller uses; None among them is ignored.
        date_format: how dates are written, in the notation of ``datetime.strptime``; None means that it is recognised.
        keys: if True, levels of words and integers that repeat become columns too, with their name or ``index``.
    """
    import pandas as pd

    names = [name for name in of_rows if name is not None and name not in frame.columns]
    levels = [frame.index.get_level_values(i) for i in range(frame.index.nlevels)]
    columns: dict[str, Any] = {str(level.name): level for level in levels if level.name in names}
    unnamed = [level for level in levels if level.name not in names]
    holding = [(level, each) for level in unnamed if (each := times_of_index(level, date_format)) is not None]
    name, of_times = None, TimesOfIndex(frame.index)

    def free(*names_in_order: Any) -> str:
        """Return the first of these names that no column has, followed by a number if all are taken."""
        taken = {*map(str, frame.columns), *columns}
        numbered = (f"{names_in_order[-1]}_{i}" for i in range(len(taken) + 1))
        return next(str(n) for n in (*names_in_order, *numbered) if n is not None and str(n) not in taken)

    if len(holding) == 1:
        of_times = holding[0][1]
        name = free(of_times.times.name, "time")
        columns[name] = of_times.times
    key_names = []
    for level in unnamed if keys else ():
        is_key = level.name is not None or len(levels) > 1 or not pd.api.types.is_numeric_dtype(level)
        if is_key and level.has_duplicates and all(level is not each for each, _ in holding):
            key_names.append(free(level.name, "index"))
            columns[key_names[-1]] = level
    if not columns:
        return FrameWithIndex(frame, left_out=index_left_out(frame.index))
    whole = frame.reset_index(drop=True).assign(**{n: values.array for n, values in columns.items()})
    return FrameWithIndex(whole, name, of_times.unit if name else None, of_times.said if name else "", tuple(key_names))


def _is_of_pandas(item: Any) -> bool:
    return hasattr(item, "iloc") and hasattr(getattr(item, "index", None), "dtype")

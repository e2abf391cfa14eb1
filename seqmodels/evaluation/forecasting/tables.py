"""Convert a user's data to regular ``Sequences``: a row for each step of equal length, with missing steps filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import listed
from seqmodels.sequences import Sequences
from seqmodels.sequences.columns.frames import pandas_frame
from seqmodels.sequences.columns.numbers import numbers_the_rows, place_in_frame, refuse_unread, with_numbers
from seqmodels.sequences.columns.timed_rows import separated, timed_rows

if TYPE_CHECKING:
    import pandas as pd

OF_BITS = (
    "whose forecast would be of fractions; to forecast it as numbers all the same pass {}, or fit a model of bits: "
    "sm.HMM(observation=sm.Bernoulli())"
)
# Shortest and longest step in seconds, and the number of steps of its season; the longest step first.
SEASON_OF_STEP = (
    (300 * 86400.0, np.inf, 1),
    (80 * 86400.0, 100 * 86400.0, 4),
    (27 * 86400.0, 32 * 86400.0, 12),
    (6.9 * 86400.0, 7.1 * 86400.0, 52),
    (0.9 * 86400.0, 1.1 * 86400.0, 7),
    (3500.0, 3700.0, 24),
    (1700.0, 1900.0, 48),
    (800.0, 1000.0, 96),
)


def regular_sequences(
    data: Any,
    *,
    time: str | None = None,
    by: str | None = None,
    columns: Sequence[str] | None = None,
    date_format: str | None = None,
    inputs: Sequence[str] = (),
) -> Sequences:
    """Return vectors at regular steps from a pandas frame or column, an array ``(T,)`` or ``(T, D)``, or sequences.

    Steps between times that have no row become rows of NaN.

    Args:
        data: series of numbers, with T steps and D features.
        time: name of the column of times, for frames; None means that it is recognised.
        by: name of the column that says which series a row belongs to, for frames; None means that it is recognised.
        columns: names of the features; None means all other columns of numbers.
        date_format: format of the dates for ``datetime.strptime``, for frames; None means that it is recognised.
        inputs: names of columns that are kept even if they only number the rows.

    Raises:
        ValueError: the data are none of these or hold no numbers; dates cannot be read, or in two ways; or rows belong
            to several series that no single column separates.
    """
    import pandas as pd

    data = pandas_frame(data)
    if isinstance(data, pd.Series):
        data = data.to_frame("value" if data.name is None else str(data.name))
    if isinstance(data, pd.DataFrame):
        return _with_every_step(_of_frame(data, time, by, columns, date_format, inputs))
    if time is not None or by is not None or date_format is not None:
        raise ValueError("time, by and date_format describe columns of a pandas frame; leave them out for other data")
    if isinstance(data, Sequences):
        sequences = data
    elif hasattr(data, "ndim") and data.ndim in (1, 2):
        array = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
        if array.dtype.kind == "b":
            raise ValueError(f"the array holds True and False, {OF_BITS.format('array.astype(float)')}")
        if array.dtype.kind not in "iuf":
            raise ValueError(f"the array holds {array.dtype}, which are no numbers; pass numbers, a row for each step")
        sequences = Sequences([array.astype(np.float64).reshape(len(array), -1)])
    elif isinstance(data, list | tuple) and data and all(np.isscalar(x) for x in data):
        return regular_sequences(np.asarray(data))
    else:
        sequences = Sequences(data)
    if sequences.kind != "vectors":
        raise ValueError(f"forecast takes vectors, but these are {sequences.kind}; fit a model and call its forecast")
    return _with_every_step(sequences)


def _with_every_step(sequences: Sequences) -> Sequences:
    """Return the sequences with their past (earlier steps kept as context), and with rows of NaN at missing times."""
    whole = sequences.including_past()
    return whole if whole.times is None else whole.regular(inputs="hold", irregular="keep")


def season_of_times(times: np.ndarray | None) -> int | None:
    """Return the number of steps of the season that dates suggest, or None if they suggest nothing.

    It is 12 for months, 4 for quarters, 7 for days, 5 for business days, 24 for hours, and 1, which means none, for
    years.

    Args:
        times: times of T steps, ``(T,)``; None means that there are none.

    >>> season_of_times(np.array(["2024-01", "2024-02", "2024-03"], dtype="datetime64[M]").astype("datetime64[s]"))
    12
    """
    if times is None or times.dtype.kind != "M" or len(times) < 3:
        return None
    steps = np.diff(times) / np.timedelta64(1, "s")
    weekdays = (times.astype("datetime64[D]").astype(int) + 3) % 7
    if steps.min() == 86400.0 and steps.max() == 3 * 86400.0 and weekdays.max() < 5:
        return 5
    return next((season for low, high, season in SEASON_OF_STEP if low <= np.median(steps) <= high), None)


def _of_frame(
    frame: pd.DataFrame,
    time: str | None,
    by: str | None,
    columns: Sequence[str] | None,
    date_format: str | None,
    inputs: Sequence[str],
) -> Sequences:
    """Convert a pandas frame with a row for each step to sequences of vectors.

    Args:
        frame: the frame.
        time: name of the column of times; None means that it is recognised.
        by: name of the column that says which series a row belongs to; None means that it is recognised.
        columns: names of the features; None means all other columns of numbers.
        date_format: format of the dates for ``datetime.strptime``; None means that it is recognised.
        inputs: names of columns that are kept even if they only number the rows.

    Raises:
        ValueError: a column is missing or named twice, or there are no rows.
    """
    if not len(frame):
        raise ValueError("the frame has no rows; pass one with a row for each step")
    frame = frame.set_axis([str(c) for c in frame.columns], axis=1)
    if frame.columns.has_duplicates:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"the frame has two columns called {twice!r}; give them different names")
    missing = [c for c in (time, by) if c is not None and c not in {*frame.columns, *frame.index.names}]
    if missing:
        raise ValueError(f"the frame has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    named = tuple(columns or ())
    rows = separated(timed_rows(frame, time=time, by=by, taken=named, date_format=date_format), named)
    for said in rows.said:
        warn_caller(f"the frame: {said}")
    frame = _with_series(rows.frame, [c for c in (rows.time, rows.by) if c is not None], named, inputs)
    return Sequences.from_frame(frame, columns=columns, time=rows.time, time_unit=rows.unit, by=rows.by)


def _with_series(frame: pd.DataFrame, others: list[str], named: Sequence[str], inputs: Sequence[str]) -> pd.DataFrame:
    """Return the frame with its columns of numbers and some other columns; warn of columns that are left out.

    Args:
        frame: the frame.
        others: names of columns that are kept whatever they hold, such as that of times.
        named: names of the columns of numbers to keep; empty means all.
        inputs: names of columns that are kept even if they only number the rows.

    Raises:
        ValueError: there are no series, a column of numbers has a cell that is no number, or a column holds True and
            False.
    """
    import pandas as pd

    frame = frame[[*others, *named]] if named else frame
    bits = [c for c in frame.columns if c not in others and _are_bits(frame[c])]
    if bits:
        way_out = f"frame.astype({{{bits[0]!r}: float}}), leave it out by frame.drop(columns={bits[0]!r}) or --columns"
        raise ValueError(f"the column {bits[0]!r} holds True and False, {OF_BITS.format(way_out)}")
    frame = with_numbers(frame, "the frame", besides=others)
    left = [c for c in frame.columns if c not in others]
    numbers = [c for c in left if pd.api.types.is_numeric_dtype(frame[c])]
    words = [c for c in left if c not in set(numbers)]
    refuse_unread(frame, words, place_in_frame, "if it is no series, leave it out: frame.drop(columns=...)")
    rows = [c for c in numbers if c not in inputs and numbers_the_rows(frame[c])]
    if not numbers:
        raise ValueError("the frame has no column of numbers; pass one with a column for each feature")
    if len(rows) == len(numbers) or named:
        rows = []
    if rows or words:
        said = [f"{c} ({'numbers the rows' if c in rows else 'no numbers'})" for c in (*rows, *words)]
        warn_caller(f"the frame: left out {listed(said)}, which is no series")
    return frame.drop(columns=[*rows, *words])


def _are_bits(column: pd.Series) -> bool:
    """Return True if a column holds True and False, as booleans or as Python objects."""
    import pandas as pd

    known = column.dropna() if column.dtype == object else column
    return pd.api.types.is_bool_dtype(column.dtype) or (len(known) > 0 and all(isinstance(x, bool) for x in known))

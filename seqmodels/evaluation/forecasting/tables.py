"""What a user has, as regular ``Sequences``: a row a step of one length, steps that are not there missing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.sequences import Sequences
from seqmodels.sequences.calendar_steps import as_unit_of, grid_of
from seqmodels.sequences.columns.timed_rows import separated, timed_rows

if TYPE_CHECKING:
    import pandas as pd

MOST_ADDED = 1.0  # steps that may be added where none were, as a share of those that there are
# Steps of a season, by what a step of the calendar is, longest first: seconds up to which a step is counted as it.
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
) -> Sequences:
    """Return vectors of regular steps of a frame or column of pandas, an array ``(T,)`` or ``(T, D)``, or sequences.

    Args:
        data: series of numbers.
        time, by, date_format: see ``forecast``; of frames only.
        columns: the features; None: all other columns of numbers.

    Raises:
        ValueError: what is none of these; no numbers; dates that cannot be read, or in two ways; rows of several series
            that no one column separates.
    """
    import pandas as pd

    if isinstance(data, pd.Series):
        data = data.to_frame("value" if data.name is None else str(data.name))
    if isinstance(data, pd.DataFrame):
        return _of_frame(data, time, by, columns, date_format)
    if time is not None or by is not None or date_format is not None:
        raise ValueError("time, by and date_format are of columns of a frame of pandas; leave them out for other data")
    if isinstance(data, Sequences):
        sequences = data
    elif hasattr(data, "ndim") and data.ndim in (1, 2):
        array = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
        if array.dtype.kind not in "iufb":
            raise ValueError(f"the array holds {array.dtype}, which are no numbers; pass numbers, a row a step")
        sequences = Sequences([array.astype(np.float64).reshape(len(array), -1)])
    elif isinstance(data, list | tuple) and data and all(np.isscalar(x) for x in data):
        return regular_sequences(np.asarray(data))
    else:
        sequences = Sequences(data)
    if sequences.kind != "vectors":
        raise ValueError(f"forecast is of vectors, but these are {sequences.kind}; fit a model and call its forecast")
    return sequences


def season_of_times(times: np.ndarray | None) -> int | None:
    """Steps of the season that dates suggest: 12 of months, 4 of quarters, 7 of days, 5 of business days, 24 of hours.

    1, which is none, of years; None: the dates suggest nothing.

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
    frame: pd.DataFrame, time: str | None, by: str | None, columns: Sequence[str] | None, date_format: str | None
) -> Sequences:
    if not len(frame):
        raise ValueError("the frame has no rows; pass one with a row a step")
    frame = frame.rename(columns=str)
    missing = [c for c in (time, by) if c is not None and c not in {*frame.columns, *frame.index.names}]
    if missing:
        raise ValueError(f"the frame has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    named = tuple(columns or ())
    rows = separated(timed_rows(frame, time=time, by=by, taken=named, date_format=date_format), named)
    for said in rows.said:
        warnings.warn(f"the frame: {said}", UserWarning, stacklevel=4)
    sequences = Sequences.from_frame(rows.frame, columns=columns, time=rows.time, time_unit=rows.unit, by=rows.by)
    if sequences.kind != "vectors":
        raise ValueError("the frame has no column of numbers; pass one with a column for each feature")
    if sequences.times is None:
        return sequences
    return _with_every_step(sequences)


def _with_every_step(sequences: Sequences) -> Sequences:
    """With rows of missing values at the steps that have none, where the times have one step but for those."""
    assert sequences.times is not None
    items, times, is_changed = [], [], False
    for item, own_times in zip(sequences.items, sequences.times, strict=True):
        grid = grid_of(own_times, most=int((1 + MOST_ADDED) * len(own_times)))
        if grid is not None and not grid.is_regular:
            rows = np.full((grid.n_steps, np.asarray(item).shape[1]), np.nan)
            rows[(grid.at - grid.at[0]) // grid.step] = item
            item, own_times, is_changed = rows, as_unit_of(grid.every(), own_times), True
        items.append(item)
        times.append(own_times)
    if not is_changed:
        return sequences
    return Sequences(
        items,
        names=sequences.names if len(items) > 1 else None,
        features=sequences.features,
        times=times,
        time_name=sequences.time_name,
        time_unit=sequences.time_unit,
        by=sequences.by,
    )

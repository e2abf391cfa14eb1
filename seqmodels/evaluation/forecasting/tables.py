"""What a user has, as regular ``Sequences``: a row a step of one length, steps that are not there missing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.sequences import Sequences
from seqmodels.sequences.times import TIME_NAMES, times_of_index

if TYPE_CHECKING:
    import pandas as pd

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


def regular_sequences(data: Any, *, time: str | None = None, by: str | None = None) -> Sequences:
    """Vectors of regular steps, of a frame or column of pandas, an array ``(T,)`` or ``(T, D)``, or sequences.

    Raises:
        ValueError: what is none of these; no numbers; times that cannot be read, or have no one step.
    """
    import pandas as pd

    if isinstance(data, pd.Series):
        data = data.to_frame("value" if data.name is None else str(data.name))
    if isinstance(data, pd.DataFrame):
        return _with_every_step(_of_frame(data, time, by))
    if time is not None or by is not None:
        raise ValueError("time and by name columns of a frame of pandas; leave them out for other data")
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
    return _with_every_step(sequences)


def _with_every_step(sequences: Sequences) -> Sequences:
    """The same after their past, with rows of missing values at steps between regular times that have none."""
    whole = sequences.including_past()
    return whole if whole.times is None else whole.regular(inputs="hold", irregular="keep")


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


def _of_frame(frame: pd.DataFrame, time: str | None, by: str | None) -> Sequences:
    import pandas as pd

    if not len(frame):
        raise ValueError("the frame has no rows; pass one with a row a step")
    if time is None and times_of_index(frame.index) is None:
        time = _time_column(frame)
    if time is not None and time in frame and not pd.api.types.is_numeric_dtype(frame[time]):
        frame = frame.assign(**{time: _dates(frame[time])})
    sequences = Sequences.from_frame(frame, time=time, by=by)
    if sequences.kind != "vectors":
        raise ValueError("the frame has no column of numbers; pass one with a column for each feature")
    return sequences


def _time_column(frame: pd.DataFrame) -> str | None:
    """The column of dates, or else the one that is called as times are."""
    import pandas as pd

    dates = [c for c in frame.columns if pd.api.types.is_datetime64_any_dtype(frame[c])]
    named = [
        c for c in frame.columns if isinstance(c, str) and c.lower() in (*TIME_NAMES, "month", "year", "day", "ds")
    ]
    words = [c for c in named if not pd.api.types.is_numeric_dtype(frame[c])]
    best = dates or words or named
    return str(best[0]) if best else None


def _dates(column: pd.Series) -> pd.Series:
    import pandas as pd

    if isinstance(column.dtype, pd.PeriodDtype):
        return pd.Series(column.dt.to_timestamp())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that dates are written in several ways
            return pd.to_datetime(column)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the column {column.name!r} holds no dates that can be read: {error}") from error

"""Times of steps: those that the index of a frame holds, those of the steps that follow, and as a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

TIME_NAMES = ("time", "t", "date", "datetime", "timestamp", "time_stamp")
ROUNDING = 1e-6  # of a step, by which steps of numbers may differ and be called equal
MOST_ADDED = 1.0  # steps that may be left out between regular times, as a share of those that there are
CALENDAR = (
    *("MS", "ME", "QS-JAN", "QS-FEB", "QS-MAR", "QE-MAR", "QE-FEB", "QE-JAN", "YS-JAN", "YE-DEC", "B", "BMS", "BME"),
)
SHORTEST_MONTH = np.timedelta64(28, "D")
DateUnit = Literal["s", "min", "h", "D", "W", "Y"]
SECONDS: dict[DateUnit, float] = {
    "s": 1,
    "min": 60,
    "h": 3600,
    "D": 86400,
    "W": 604800,
    "Y": 31557600,
}  # of 365.25 days
NAMES_OF_UNITS: dict[DateUnit, tuple[str, ...]] = {
    "s": ("sec", "secs", "second", "seconds"),
    "min": ("mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "D": ("d", "day", "days"),
    "W": ("w", "week", "weeks"),
    "Y": ("y", "yr", "year", "years"),
}
SECONDS_BY_NAME: dict[str, float] = {
    **{str(unit): seconds for unit, seconds in SECONDS.items()},
    **{name: SECONDS[unit] for unit, names in NAMES_OF_UNITS.items() for name in names},
    **{"ms": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6, "ns": 1e-9},
}


def times_of_index(index: pd.Index) -> tuple[pd.Index, str | None] | None:
    """The times that an index of a frame holds, and the unit that they count if they are numbers of a known one.

    Times are dates, the beginnings of periods, durations (as seconds), and numbers if the index has one of
    ``TIME_NAMES``; None: the index holds none.
    """
    import pandas as pd

    if isinstance(index, pd.DatetimeIndex):
        return index, None
    if isinstance(index, pd.PeriodIndex):
        return index.to_timestamp(), None
    if isinstance(index, pd.TimedeltaIndex):
        return pd.Index(index.total_seconds(), name=index.name), "s"
    is_named = isinstance(index.name, str) and index.name.lower() in TIME_NAMES
    if is_named and pd.api.types.is_numeric_dtype(index) and not pd.api.types.is_bool_dtype(index):
        return index, None
    return None


def times_of_frames(items: Sequence[Any]) -> tuple[list[pd.Index], str, str | None] | None:
    """The times that the indices of frames (or columns) hold, what they are called, and their unit; None: no times.

    Raises:
        ValueError: some of the frames have times, and others have none.
    """
    if not _is_of_pandas(items[0]):
        return None
    each = [times_of_index(item.index) if _is_of_pandas(item) else None for item in items]
    known = [times for times in each if times is not None]
    if not known:
        return None
    if len(known) < len(items):
        has, lacks = next(i for i, times in enumerate(each) if times is not None), each.index(None)
        raise ValueError(
            f"the index of sequence {has} holds times, but that of sequence {lacks} none; give all one, or none: "
            "frame.reset_index(drop=True)"
        )
    names, units = {times.name for times, _ in known}, {unit for _, unit in known}
    name = next(iter(names)) if len(names) == 1 else None
    return [times for times, _ in known], "time" if name is None else str(name), min(units, key=str)


def _is_of_pandas(item: Any) -> bool:
    """Whether it is a frame or a column of pandas, which need not be imported to see that."""
    return hasattr(item, "iloc") and hasattr(getattr(item, "index", None), "dtype")


def with_index_as_columns(
    frame: pd.DataFrame, of_rows: Iterable[str | None]
) -> tuple[pd.DataFrame, str | None, str | None]:
    """The frame with levels of its index as columns: its times and those named ``of_rows``; that of times; their unit.

    The column of times is called as the level is, or ``time``; None where no level, or several, hold times.
    """
    names = [name for name in of_rows if name is not None and name not in frame.columns]
    levels = [frame.index.get_level_values(i) for i in range(frame.index.nlevels)]
    columns: dict[str, Any] = {str(level.name): level for level in levels if level.name in names}
    holding = [each for level in levels if level.name not in names and (each := times_of_index(level)) is not None]
    name, unit = None, None
    if len(holding) == 1:
        times, unit = holding[0]
        taken = {*map(str, frame.columns), *columns}
        numbered = (f"time_{i}" for i in range(len(taken) + 1))
        name = next(n for n in ("time" if times.name is None else str(times.name), "time", *numbered) if n not in taken)
        columns[name] = times
    if not columns:
        return frame, None, None
    return frame.reset_index(drop=True).assign(**{n: values.array for n, values in columns.items()}), name, unit


def times_ahead(times: np.ndarray, k: int) -> np.ndarray | None:
    """``(k,)`` times of the steps that follow ``times (T,)``, by their one step or calendar frequency.

    None where there is none: a single time, times that do not rise, or steps of different lengths that are no months,
    quarters, years or business days.

    >>> times_ahead(np.array([0.0, 0.5, 1.0]), 2).tolist()
    [1.5, 2.0]
    >>> times_ahead(np.array(["2024-01-31", "2024-02-29", "2024-03-31"], dtype="datetime64[D]"), 2).astype(str).tolist()
    ['2024-04-30', '2024-05-31']
    """
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    ahead = np.arange(1, k + 1)
    steps = np.diff(times)
    if times.dtype.kind == "f":
        step = (times[-1] - times[0]) / len(steps)
        rounding = ROUNDING * step + 4 * np.finfo(times.dtype).eps * np.abs(times[[0, -1]]).max()
        return np.asarray(times[-1] + step * ahead) if (np.abs(steps - step) <= rounding).all() else None
    is_calendar = times.dtype.kind == "M" and (steps.max() >= SHORTEST_MONTH or (steps != steps[0]).any())
    if is_calendar and len(times) > 2:
        import pandas as pd

        frequency = pd.DatetimeIndex(times, freq="infer").freq
        if frequency is None:
            return None
        return pd.date_range(times[-1], periods=k + 1, freq=frequency)[1:].to_numpy().astype(times.dtype)
    return np.asarray(times[-1] + steps[0] * ahead) if (steps == steps[0]).all() else None


def every_time(times: np.ndarray) -> np.ndarray | None:
    """Return the times from first to last by the one step or calendar frequency that all of them have, none left out.

    These are themselves if none is left out. None where there is no such step, or more are left out than there are.

    >>> every_time(np.array([0.0, 1.0, 2.0, 4.0])).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    import pandas as pd

    if len(times) < 2 or times_ahead(times, 1) is not None:
        return times
    steps = np.diff(times)
    if len(times) < 3 or not (steps > np.zeros(1, steps.dtype)).all():
        return None
    shortest, counts = np.unique(steps, return_counts=True)
    step = shortest[np.argmax(counts)]
    n = (times[-1] - times[0]) / step
    most = (1 + MOST_ADDED) * len(times)
    tried = [times[0] + step * np.arange(round(n) + 1)] if n <= most and abs(n - round(n)) < 1e-6 else []
    if times.dtype.kind == "M":
        tried += [pd.date_range(times[0], times[-1], freq=f).to_numpy().astype(times.dtype) for f in CALENDAR]
    fitting = [each for each in tried if len(each) <= most and _contains(each, times)]
    return min(fitting, key=len, default=None)


def _contains(every: np.ndarray, times: np.ndarray) -> bool:
    at = np.searchsorted(every, times)
    return bool((at < len(every)).all() and (every[np.minimum(at, len(every) - 1)] == times).all())


def seconds_of(unit: str | None) -> float | None:
    """Return how many seconds a unit of time has, by one of its usual names; None for what is no unit of time.

    >>> seconds_of("h"), seconds_of("Hours"), seconds_of("beat")
    (3600, 3600, None)
    """
    name = "" if unit is None else unit.strip()
    return SECONDS_BY_NAME.get(name, SECONDS_BY_NAME.get(name.lower()))


def as_numbers(times: np.ndarray, unit: str) -> np.ndarray:
    """``(T,)`` float64: dates and durations counted in ``unit``, dates from 1970 on; numbers are what they are.

    >>> as_numbers(np.array(["1970-01-01", "1970-01-02T12:00"], dtype="datetime64[m]"), "D").tolist()
    [0.0, 1.5]
    """
    if times.dtype.kind == "M":
        times = times - np.datetime64(0, "s")
    if times.dtype.kind == "m":
        seconds = seconds_of(unit)
        assert seconds is not None, "a unit of time"
        return np.asarray(times / np.timedelta64(1, "s") / seconds)
    return times.astype(np.float64)


def time_column(times: np.ndarray, unit: str | None) -> Any:
    """Times as the column of a frame: dates of ``Sequences`` whose ``time_unit`` is ``"UTC"`` are in that zone."""
    import pandas as pd

    column = pd.Index(times)
    return column.tz_localize("UTC") if isinstance(column, pd.DatetimeIndex) and unit == "UTC" else column


def time_in_words(time: Any) -> str:
    """A time as it is read: of a date at midnight the day."""
    if isinstance(time, np.datetime64):
        return str(time.astype("datetime64[s]")).replace("T00:00:00", "").replace("T", " ")
    return f"{time:,.10g}" if isinstance(time, np.floating | float) else str(time)

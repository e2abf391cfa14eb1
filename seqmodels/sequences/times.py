"""Times of steps: those of the steps that follow, as numbers, and as they are read."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from seqmodels.sequences.calendar_steps import as_unit_of, grid_of

DateUnit = Literal["s", "min", "h", "D", "W", "Y"]
SECONDS: dict[DateUnit, float] = {
    "s": 1,
    "min": 60,
    "h": 3600,
    "D": 86400,
    "W": 604800,
    "Y": 31557600,
}  # of 365.25 days


def times_ahead(times: np.ndarray, k: int) -> np.ndarray | None:
    """``(k,)`` times of the steps that follow ``times (T,)``, by their one step or calendar frequency.

    None where there is none: a single time, times that do not rise, or steps of different lengths that are no months,
    quarters, years or business days. Dates ahead of what nanoseconds count, to 2262, are in a coarser unit.

    >>> times_ahead(np.array([0.0, 0.5, 1.0]), 2).tolist()
    [1.5, 2.0]
    >>> times_ahead(np.array(["2024-01-31", "2024-02-29", "2024-03-31"], dtype="datetime64[D]"), 2).astype(str).tolist()
    ['2024-04-30', '2024-05-31']
    """
    grid = grid_of(times)
    if grid is None:
        return None
    ahead = grid.ahead(k)
    return as_unit_of(ahead, times) if times.dtype.kind == "M" else ahead


def as_numbers(times: np.ndarray, unit: DateUnit) -> np.ndarray:
    """``(T,)`` float64: dates and durations counted in ``unit``, dates from 1970 on; numbers are what they are.

    >>> as_numbers(np.array(["1970-01-01", "1970-01-02T12:00"], dtype="datetime64[m]"), "D").tolist()
    [0.0, 1.5]
    """
    if times.dtype.kind == "M":
        times = times - np.datetime64(0, "s")
    if times.dtype.kind == "m":
        return np.asarray(times / np.timedelta64(1, "s") / SECONDS[unit])
    return times.astype(np.float64)


def time_in_words(time: Any) -> str:
    """A time as it is read: of a date at midnight the day."""
    if isinstance(time, np.datetime64):
        return str(time.astype("datetime64[s]")).replace("T00:00:00", "").replace("T", " ")
    return f"{time:,.10g}" if isinstance(time, np.floating | float) else str(time)

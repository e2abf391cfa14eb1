"""Arithmetic on the times of steps: the times that follow, times as numbers, and times in words."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from seqmodels.sequences.calendar_steps import as_unit_of, grid_of

MOST_ADDED = 1.0  # the most steps that may be missing between regular times, as a share of the steps that are there
DateUnit = Literal["s", "min", "h", "D", "W", "Y"]
SECONDS: dict[DateUnit, float] = {
    "s": 1,
    "min": 60,
    "h": 3600,
    "D": 86400,
    "W": 604800,
    "Y": 31557600,
}  # a year has 365.25 days
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


def times_ahead(times: np.ndarray, k: int) -> np.ndarray | None:
    """Return the times of the ``k`` steps after ``times``, shape ``(k,)``.

    They continue the constant step or calendar frequency of ``times``. Return None if nothing tells the next time:
    there is only one time, the times do not increase, or their steps differ and are not months, quarters, years or
    business days. Dates beyond 2262, which nanoseconds cannot count, have a coarser unit.

    Args:
        times: times of the known steps, shape ``(T,)``.
        k: number of steps.

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


def every_step(times: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the times of all steps from the first known one to the last, with those that are missing in between.

    Return None if the times do not have one step or calendar frequency, or if more steps are missing than there are.

    Args:
        times: times of the known steps, shape ``(T,)``.

    Returns:
        All times, shape ``(n,)``, and the positions of the given ones, shape ``(T,)``.

    >>> every, places = every_step(np.array([0.0, 1.0, 2.0, 4.0]))
    >>> every.tolist(), places.tolist()
    ([0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 2, 4])
    """
    if len(times) < 2:
        return times, np.arange(len(times))
    grid = grid_of(times, most=int((1 + MOST_ADDED) * len(times)))
    if grid is None:
        return None
    every, places = as_unit_of(grid.every(), times) if times.dtype.kind == "M" else grid.every(), grid.at - grid.at[0]
    places //= grid.step
    every[places] = times  # the given times unchanged, because the grid's differ from them by rounding
    return every, places


def seconds_of(unit: str | None) -> float | None:
    """Return the number of seconds in a unit of time, given by one of its usual names; None if the name is unknown.

    >>> seconds_of("h"), seconds_of("Hours"), seconds_of("beat")
    (3600, 3600, None)
    """
    name = "" if unit is None else unit.strip()
    return SECONDS_BY_NAME.get(name, SECONDS_BY_NAME.get(name.lower()))


def as_numbers(times: np.ndarray, unit: str) -> np.ndarray:
    """Return times as numbers, float64 of shape ``(T,)``.

    Dates become the time since the beginning of 1970, durations their length. Numbers stay as they are.

    Args:
        times: dates, durations or numbers, shape ``(T,)``.
        unit: name of the unit in which dates and durations are counted, such as ``"D"`` for days.

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


def time_in_words(time: Any) -> str:
    """Return a time as text for a message; a date at midnight is shown as the day alone.

    Args:
        time: a date, a duration or a number.
    """
    if isinstance(time, np.datetime64):
        return str(time.astype("datetime64[s]")).replace("T00:00:00", "").replace("T", " ")
    return f"{time:,.10g}" if isinstance(time, np.floating | float) else str(time)

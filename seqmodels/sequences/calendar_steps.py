"""Grids that times may lie on: one constant step, days of months, weekdays of months, and business days.

A grid numbers its times by integers. So it is arithmetic to tell if times are regular, which are missing and which
follow, and no range of times is built before it is known how long it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-6  # the most by which equal steps between numbers may differ, as a share of a step
DATE_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class TimeGrid:
    """A regular grid of times, such as every third Friday, numbered by integers, and the places of given times on it.

    Attributes:
        at: number of the grid point of each given time, increasing integers, shape ``(T,)``.
        step: the most frequent difference between neighbouring entries of ``at``.
        times_at: function that returns the times with given numbers, shape ``(k,)``.
    """

    at: np.ndarray
    step: int
    times_at: Callable[[np.ndarray], np.ndarray]

    @property
    def is_regular(self) -> bool:
        return bool((np.diff(self.at) == self.step).all())

    @property
    def n_steps(self) -> int:
        """The number of steps of the grid from the first given time to the last, including missing ones."""
        return int(self.at[-1] - self.at[0]) // self.step + 1

    def every(self) -> np.ndarray:
        """Return the time of every step from the first given time to the last, including missing ones.

        The result has shape ``(n_steps,)``.
        """
        return self.times_at(self.at[0] + self.step * np.arange(self.n_steps))

    def ahead(self, k: int) -> np.ndarray:
        """Return the times of the next steps after the last time of the grid, shape ``(k,)``.

        Args:
            k: number of steps.
        """
        return self.times_at(self.at[-1] + self.step * np.arange(1, k + 1))


def grid_of(times: np.ndarray, most: int | None = None) -> TimeGrid | None:
    """Return the regular grid (one step, or a calendar frequency) on which times lie with the fewest steps missing.

    Return None if they lie on no grid.

    Args:
        times: dates, durations or numbers, shape ``(T,)``. They lie on a grid only if they increase.
        most: largest number of steps that the grid may have from the first time to the last; None means T, so that no
            step may be missing.

    >>> days = np.array(["2024-01-31", "2024-02-29", "2024-04-30"], dtype="datetime64[D]")
    >>> grid_of(days) is None, grid_of(days, most=4).every().astype("datetime64[D]").astype(str).tolist()
    (True, ['2024-01-31', '2024-02-29', '2024-03-31', '2024-04-30'])
    """
    if len(times) < 2 or not (times[1:] > times[:-1]).all():
        return None
    grids = [grid for grid in _grids(times) if grid.n_steps <= (len(times) if most is None else most)]
    return min(grids, key=lambda grid: grid.n_steps, default=None)


def in_coarsest_unit(times: np.ndarray) -> np.ndarray:
    """Return dates in the coarsest NumPy unit, from seconds to nanoseconds, that represents them exactly.

    A coarse unit reaches the furthest from 1970. Times that are not dates are returned unchanged.
    """
    if times.dtype.kind != "M":
        return times
    for unit in DATE_UNITS:
        coarse = times.astype(f"datetime64[{unit}]")
        if (coarse == times).all():
            return np.asarray(coarse)
    return times


def as_unit_of(dates: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return dates in the NumPy unit (such as nanoseconds) of other dates; unchanged if they are beyond its range.

    Nanoseconds, for example, end in 2262.

    Args:
        dates: the dates, datetime64.
        like: dates whose unit is taken, datetime64.
    """
    converted = dates.astype(like.dtype)
    return converted if (converted.astype(dates.dtype) == dates).all() else dates


def _grids(times: np.ndarray) -> Iterator[TimeGrid]:
    """Yield every grid on which all the times lie, the more usual kinds first."""
    if times.dtype.kind == "f":
        yield from _constant_of_reals(times)
        return
    if times.dtype.kind != "M":
        yield from _constant(times)
        return
    times = in_coarsest_unit(times)
    days = times.astype("datetime64[D]")
    of_day = times - days
    is_one_time_of_day = bool((of_day == of_day[0]).all())
    months = times.astype("datetime64[M]")
    is_of_months = is_one_time_of_day and bool((months[1:] > months[:-1]).all())
    if is_of_months:
        yield from _days_of_months(months, days, of_day[0])
    yield from _constant(times)
    if is_of_months:
        yield from _weekdays_of_months(months, days, of_day[0])
    if is_one_time_of_day and bool(np.is_busday(days).all()):
        start = days[0]
        yield from _grid(
            np.busday_count(start, days), lambda at: np.busday_offset(start, at).astype(times.dtype) + of_day[0]
        )


def _grid(at: np.ndarray, times_at: Callable[[np.ndarray], np.ndarray]) -> Iterator[TimeGrid]:
    steps, counts = np.unique(np.diff(at), return_counts=True)
    step = int(steps[np.argmax(counts)])
    if (steps % step == 0).all():
        yield TimeGrid(at, step, times_at)


def _constant(times: np.ndarray) -> Iterator[TimeGrid]:
    steps, counts = np.unique(np.diff(times), return_counts=True)
    step = steps[np.argmax(counts)]
    if ((times - times[0]) % step == np.zeros(1, steps.dtype)).all():
        zero, length = times[0], int(step.astype(np.int64))
        farthest = np.iinfo(np.int64).max

        def times_at(at: np.ndarray) -> np.ndarray:
            if int(zero.astype(np.int64)) + length * int(at[-1]) > farthest:
                raise ValueError(f"{len(at):,} steps ahead are beyond the range of {times.dtype}; ask for fewer steps")
            return np.asarray(zero + step * at)

        yield from _grid((times - times[0]) // step, times_at)


def _constant_of_reals(times: np.ndarray) -> Iterator[TimeGrid]:
    steps = np.diff(times)
    step = float(np.median(steps))
    n = np.rint((times[-1] - times[0]) / step)
    if not n < 2**52:
        return
    step = float((times[-1] - times[0]) / n)
    at = np.rint((times - times[0]) / step).astype(np.int64)
    rounding = ROUNDING * step + 4 * np.finfo(times.dtype).eps * np.abs(times[[0, -1]]).max()
    if (np.abs(steps - step * np.diff(at)) <= rounding).all() and (np.diff(at) > 0).all():
        last, zero = times[-1], times[0]

        # Places behind the last are counted from it, so that rounding does not add up.
        def times_at(places: np.ndarray) -> np.ndarray:
            return np.asarray(np.where(places > at[-1], last + step * (places - at[-1]), zero + step * places))

        yield from _grid(at, times_at)


def _days_of_months(months: np.ndarray, days: np.ndarray, of_day: np.timedelta64) -> Iterator[TimeGrid]:
    """Yield the grid of one day in every month, for example the 15th, if all times lie on one.

    In a month that is too short, it is the last day.

    Args:
        months: the month of each time, shape ``(T,)``.
        days: the day of each time, shape ``(T,)``.
        of_day: the time of day that all times have.
    """
    day, length = _day_of_month(months, days), _lengths(months)
    last = 31 if (day == length).all() else int(day.max())
    if (day == np.minimum(last, length)).all():

        def times_at(at: np.ndarray) -> np.ndarray:
            month = at.astype("datetime64[M]")
            return np.asarray(month.astype("datetime64[D]") + (np.minimum(last, _lengths(month)) - 1) + of_day)

        yield from _grid(months.astype(np.int64), times_at)


def _weekdays_of_months(months: np.ndarray, days: np.ndarray, of_day: np.timedelta64) -> Iterator[TimeGrid]:
    """Yield the grids on which all times lie that have one weekday or business day in each month.

    Examples are the third Friday, the last Monday, and the first or last business day.

    Args:
        months: the month of each time, shape ``(T,)``.
        days: the day of each time, shape ``(T,)``.
        of_day: the time of day that all times have.
    """
    at = months.astype(np.int64)
    for weekmask in ("1111100", *("0" * i + "1" + "0" * (6 - i) for i in np.unique(_weekday(days)))):
        n_th = np.busday_count(months.astype("datetime64[D]"), days, weekmask=weekmask)
        to_end = np.busday_count(days, (months + 1).astype("datetime64[D]"), weekmask=weekmask)
        if not np.is_busday(days, weekmask=weekmask).all():
            continue
        for place in ([int(n_th[0])] if (n_th == n_th[0]).all() else []) + ([-1] if (to_end == 1).all() else []):

            def times_at(at: np.ndarray, place: int = place, weekmask: str = weekmask) -> np.ndarray:
                month = at.astype("datetime64[M]") + (1 if place < 0 else 0)
                first = month.astype("datetime64[D]")
                return np.busday_offset(first, place, roll="forward", weekmask=weekmask) + of_day

            yield from _grid(at, times_at)


def _day_of_month(months: np.ndarray, days: np.ndarray) -> np.ndarray:
    return np.asarray((days - months.astype("datetime64[D]")).astype(np.int64) + 1)


def _lengths(months: np.ndarray) -> np.ndarray:
    return np.asarray(((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64))


def _weekday(days: np.ndarray) -> np.ndarray:
    """Return the day of the week as an integer, from 0 for Monday to 6 for Sunday."""
    return (days.astype(np.int64) + 3) % 7

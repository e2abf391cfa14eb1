"""The grids that times may lie on: days of months, one constant step, weekdays of months, and business days.

A grid numbers its times by whole numbers, so that what is regular, what is missing and what follows is arithmetic, and
no range of times is built before it is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-6  # of a step, by which steps of numbers may differ and be called equal
DATE_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class TimeGrid:
    """Times as whole numbers on a grid that has them all.

    Attributes:
        at: ``(T,)`` whole numbers that rise, the place of each time.
        step: by how much the places of most neighbours differ.
        times_at: returns the times at places ``(k,)``.
    """

    at: np.ndarray
    step: int
    times_at: Callable[[np.ndarray], np.ndarray]

    @property
    def is_regular(self) -> bool:
        """Whether no step is left out."""
        return bool((np.diff(self.at) == self.step).all())

    @property
    def n_steps(self) -> int:
        """How many times there are from the first to the last if none is left out."""
        return int(self.at[-1] - self.at[0]) // self.step + 1

    def every(self) -> np.ndarray:
        """The ``(n_steps,)`` times from the first to the last, none left out."""
        return self.times_at(self.at[0] + self.step * np.arange(self.n_steps))

    def ahead(self, k: int) -> np.ndarray:
        """The ``(k,)`` times that follow."""
        return self.times_at(self.at[-1] + self.step * np.arange(1, k + 1))


def grid_of(times: np.ndarray, most: int | None = None) -> TimeGrid | None:
    """Return the grid of ``times (T,)`` that has the fewest steps left out, or None where they lie on none.

    Args:
        times: dates, durations or numbers; on a grid they rise.
        most: how many steps there may be from the first to the last; None: as many as there are times, none left out.

    >>> days = np.array(["2024-01-31", "2024-02-29", "2024-04-30"], dtype="datetime64[D]")
    >>> grid_of(days) is None, grid_of(days, most=4).every().astype("datetime64[D]").astype(str).tolist()
    (True, ['2024-01-31', '2024-02-29', '2024-03-31', '2024-04-30'])
    """
    if len(times) < 2 or not (times[1:] > times[:-1]).all():
        return None
    grids = [grid for grid in _grids(times) if grid.n_steps <= (len(times) if most is None else most)]
    return min(grids, key=lambda grid: grid.n_steps, default=None)


def in_coarsest_unit(times: np.ndarray) -> np.ndarray:
    """Dates in the coarsest of seconds to nanoseconds that keeps them, which reaches the furthest; others unchanged."""
    if times.dtype.kind != "M":
        return times
    for unit in DATE_UNITS:
        coarse = times.astype(f"datetime64[{unit}]")
        if (coarse == times).all():
            return np.asarray(coarse)
    return times


def as_unit_of(dates: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Dates in the unit of others, where that reaches so far (nanoseconds end in 2262); else as they are."""
    converted = dates.astype(like.dtype)
    return converted if (converted.astype(dates.dtype) == dates).all() else dates


def _grids(times: np.ndarray) -> Iterator[TimeGrid]:
    """The grids that have all the times, the more usual ones first."""
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
                raise ValueError(f"the times {len(at):,} steps on are further than {times.dtype} counts; ask for fewer")
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

        def times_at(places: np.ndarray) -> np.ndarray:  # from the last time on, or from the first: no rounding adds up
            return np.asarray(np.where(places > at[-1], last + step * (places - at[-1]), zero + step * places))

        yield from _grid(at, times_at)


def _days_of_months(months: np.ndarray, days: np.ndarray, of_day: np.timedelta64) -> Iterator[TimeGrid]:
    """The same day of each month, or the last one where a month has not so many."""
    day, length = _day_of_month(months, days), _lengths(months)
    last = 31 if (day == length).all() else int(day.max())
    if (day == np.minimum(last, length)).all():

        def times_at(at: np.ndarray) -> np.ndarray:
            month = at.astype("datetime64[M]")
            return np.asarray(month.astype("datetime64[D]") + (np.minimum(last, _lengths(month)) - 1) + of_day)

        yield from _grid(months.astype(np.int64), times_at)


def _weekdays_of_months(months: np.ndarray, days: np.ndarray, of_day: np.timedelta64) -> Iterator[TimeGrid]:
    """The third Friday, the last Monday, the first or the last business day of each month."""
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
    """The days that each month has."""
    return np.asarray(((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64))


def _weekday(days: np.ndarray) -> np.ndarray:
    """0 of Mondays to 6 of Sundays."""
    return (days.astype(np.int64) + 3) % 7

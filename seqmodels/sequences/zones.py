"""Time zones: how ``Sequences`` store times that have one, as local times or in UTC, and how they show them.

Days, weeks and months are steps of a calendar: between two midnights in Berlin there may be 23 or 25 hours. Times at
one time of day, and times that are regular only on the clock of the zone, are stored as local times, and ``time_unit``
is the name of the zone, ``"Europe/Berlin"``. Hours and shorter steps continue through a change of the clocks, so other
times are stored in UTC, and ``time_unit`` is ``"UTC (Europe/Berlin)"``, or ``"UTC"`` if that is the zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqmodels.sequences.calendar_steps import grid_of

INSTANTS = re.compile(r"UTC(?: \((?P<zone>.+)\))?")
SAME_AS_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "UTC+00:00")
FEWEST = 3  # the least times that can show if steps follow the calendar


def has_zone(times: Any) -> bool:
    """Return True if times are a pandas series or index of dates with a time zone."""
    return getattr(getattr(times, "dtype", None), "tz", None) is not None


def without_zone(times: Sequence[Any]) -> tuple[list[Any], str | None]:
    """Return the times of each sequence without their zone, and a string that names the zone, a ``time_unit``.

    Days, weeks and months become local times, with the name of the zone as unit; other times are in UTC, with a unit
    such as ``"UTC (Europe/Berlin)"``. The unit is None if no times have a zone.

    Args:
        times: for each sequence its times, dates of pandas or others.

    Raises:
        ValueError: some sequences have dates with a zone and others without.
    """
    import pandas as pd

    are_zoned = [has_zone(each) for each in times]
    if not any(are_zoned):
        return list(times), None
    if not all(are_zoned):
        raise ValueError(
            f"the times of sequence {are_zoned.index(True)} have a time zone, and those of sequence "
            f"{are_zoned.index(False)} have none; give all one, with tz_localize of pandas, or none"
        )
    columns = [pd.Series(each).reset_index(drop=True) for each in times]
    names = {str(column.dt.tz) for column in columns}
    name = names.pop() if len(names) == 1 else "UTC"
    zone = "UTC" if name in SAME_AS_UTC or not _is_zone(name) else name
    instants = [column.dt.tz_convert("UTC").dt.tz_localize(None) for column in columns]
    if zone == "UTC":
        return instants, "UTC"
    local = [column.dt.tz_convert(zone).dt.tz_localize(None) for column in columns]
    return (local, zone) if _are_of_calendar(local, instants) else (instants, f"UTC ({zone})")


def in_unit(times: Any, unit: str | None) -> Any:
    """Return dates with a time zone as dates without one; other times are returned unchanged.

    They become local times if ``unit`` is the name of a zone, and otherwise dates in UTC.

    Args:
        times: dates of pandas, or other times.
        unit: the ``time_unit`` of sequences: the name of a zone, ``"UTC"`` or such as ``"UTC (Europe/Berlin)"``, or
            None.
    """
    import pandas as pd

    if not has_zone(times):
        return times
    zone = "UTC" if unit is None or INSTANTS.fullmatch(unit) or not _is_zone(unit) else unit
    return pd.Series(times).dt.tz_convert(zone).dt.tz_localize(None)


def with_zone(times: np.ndarray, unit: str | None) -> Any:
    """Return times as a pandas index, in which dates have a time zone if a unit names one.

    Args:
        times: dates without a zone, or numbers, shape ``(T,)``.
        unit: the ``time_unit`` of sequences: the name of a zone for local times, ``"UTC"`` or such as
            ``"UTC (Europe/Berlin)"`` for dates in UTC, or None.
    """
    import pandas as pd

    column = pd.Index(times)
    if not isinstance(column, pd.DatetimeIndex) or unit is None:
        return column
    match = INSTANTS.fullmatch(unit)
    if match is not None:
        zone = match["zone"]
        in_utc = column.tz_localize("UTC")
        return in_utc.tz_convert(zone) if zone is not None and _is_zone(zone) else in_utc
    if not _is_zone(unit):
        return column
    # An hour that occurs twice, when clocks are set back, is taken as its first; one that is skipped as the next.
    first = np.ones(len(column), dtype=bool)
    return column.tz_localize(unit, ambiguous=first, nonexistent="shift_forward")


def on_its_clock(times: np.ndarray, unit: str | None) -> np.ndarray:
    """Convert dates in UTC to local times of a zone; return other times unchanged.

    Args:
        times: dates without a zone, or numbers, shape ``(T,)``.
        unit: the ``time_unit`` of sequences; only one such as ``"UTC (Europe/Berlin)"`` says that dates are in UTC.
    """
    match = None if unit is None or times.dtype.kind != "M" else INSTANTS.fullmatch(unit)
    if match is None or match["zone"] is None:
        return times
    return np.asarray(with_zone(times, unit).tz_localize(None).to_numpy())


def zone_in_words(unit: str) -> str:
    """Return the name of the time zone in the unit of dates, such as Europe/Berlin for ``"UTC (Europe/Berlin)"``."""
    match = INSTANTS.fullmatch(unit)
    return unit if match is None else match["zone"] or "UTC"


def _is_zone(name: str) -> bool:
    import pandas as pd

    try:
        pd.Timestamp("2000-01-01").tz_localize(name)
    except (KeyError, ValueError, TypeError, OSError):  # as zoneinfo, pytz and pandas say that there is no such zone
        return False
    return True


def _are_of_calendar(local: Sequence[Any], instants: Sequence[Any]) -> bool:
    """Return True if steps are days, weeks or months, or are regular only on the clock of their time zone.

    Args:
        local: local times of each sequence.
        instants: the same times in UTC.
    """
    clocks = [each.to_numpy() for each in local]
    if sum(map(len, clocks)) < FEWEST or any(np.isnat(each).any() for each in clocks):
        return False
    together = np.concatenate(clocks)
    of_day = together - together.astype("datetime64[D]")
    if (of_day == of_day[0]).all():
        return True
    return _are_regular(clocks) and not _are_regular([each.to_numpy() for each in instants])


def _are_regular(times: Sequence[np.ndarray]) -> bool:
    return all(len(each) < 2 or grid_of(each, most=2 * len(each)) is not None for each in times)

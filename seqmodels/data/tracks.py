"""Step lengths and turning angles of animals, vehicles and people, from their positions on a map or on the globe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seqmodels.common.parameters import checked_but
from seqmodels.sequences.columns.frames import pandas_frame
from seqmodels.sequences.items import in_words

if TYPE_CHECKING:
    import pandas as pd

EARTH_RADIUS = 6371.0088  # km, the mean radius of the ellipsoid WGS 84


@checked_but("frame")
def track_steps(
    frame: pd.DataFrame,
    *,
    x: str = "x",
    y: str = "y",
    by: str | None = None,
    time: str | None = None,
    kind: Literal["plane", "great circle"] = "plane",
) -> pd.DataFrame:
    """Return a table of positions with two more columns: ``step``, the length of each step, and ``turn``, its angle.

    A row has the step that led to its position from the position before, and the angle between that step and the step
    before it: 0 straight on, positive to the left (counterclockwise, from x towards y or from east towards north), in
    radians above -π and up to π. The first row of each animal has no step, and the first two have no turn (NaN).
    Neither has a row beside a missing position. A step of length 0 has no direction, so that it and the step after it
    have no turn. All steps should take the same time: make rows without a position where one is missing, as
    ``Sequences.regular`` does.

    Other software has each step in the row of the position where it begins (the R package moveHMM does): its rows are
    those of this table, one earlier.

    Args:
        frame: a table with a row for each position, which stays as it is. Further columns are kept.
        x, y: columns of the coordinates, numbers. On a great circle they are longitude and latitude in degrees.
        by: column that says whose position each row is; None if all rows are of one animal.
        time: column of dates or numbers that orders the positions of an animal; None if the rows are in order.
        kind: ``"plane"`` for straight lines, whose lengths have the unit of the coordinates; ``"great circle"`` for the
            shortest way on a sphere of radius 6371.0088 km, whose length is in km. The directions at a position are
            there those of the great circles that end and begin at it.

    Raises:
        ValueError: a column is missing or has no numbers; the table has columns ``step`` or ``turn`` already; a row has
            no animal or time; two positions of an animal have the same time; a position is infinite; or a latitude is
            beyond 90 degrees.

    >>> import pandas as pd
    >>> track_steps(pd.DataFrame({"x": [0.0, 3.0, 3.0, 3.0], "y": [0.0, 0.0, 4.0, 4.0]})).round(3)
         x    y  step   turn
    0  0.0  0.0   NaN    NaN
    1  3.0  0.0   3.0    NaN
    2  3.0  4.0   4.0  1.571
    3  3.0  4.0   0.0    NaN
    """
    import pandas as pd

    table = pandas_frame(frame)
    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"the frame is {in_words(table)}; pass a pandas DataFrame, one row a position")
    missing = [each for each in (x, y, by, time) if each is not None and each not in table]
    if missing:
        raise ValueError(f"the frame has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    taken = [each for each in ("step", "turn") if each in table]
    if taken:
        raise ValueError(f"the frame has a column {taken[0]!r} already; drop or rename it")
    positions = _coordinates(table, x, y, kind)
    order, is_first = _order(table, by, time)
    length, turn = np.empty(len(table)), np.empty(len(table))
    length[order], turn[order] = _steps(positions[order], is_first, kind)
    return table.assign(step=length, turn=turn)


def _coordinates(table: pd.DataFrame, x: str, y: str, kind: str) -> np.ndarray:
    """Return the coordinates of each position, ``(n, 2)`` float64, NaN where one of the two is missing."""
    for name in (x, y):
        if table[name].dtype.kind not in "iuf":
            raise ValueError(f"the column {name!r} has {table[name].dtype} and no numbers; pass coordinates as numbers")
    positions = table[[x, y]].to_numpy(dtype=np.float64, na_value=np.nan)
    positions = np.where(np.isnan(positions).any(1, keepdims=True), np.nan, positions)
    if np.isinf(positions).any():
        row = int(np.isinf(positions).any(1).argmax())
        raise ValueError(f"the position in row {row} is infinite; mark missing ones with NaN")
    if kind == "great circle" and (np.abs(positions[:, 1]) > 90).any():
        largest = float(np.nanmax(np.abs(positions[:, 1])))
        raise ValueError(
            f"the column {y!r} has a latitude of {largest:g} degrees; pass longitudes as x and latitudes as y, or "
            "kind='plane' for coordinates of a map"
        )
    return positions


def _order(table: pd.DataFrame, by: str | None, time: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers ordered by animal and time, ``(n,)``, and whether each begins an animal, in that order."""
    for name, what in ((by, "belongs to no animal"), (time, "has no time")):
        if name is not None and table[name].isna().any():
            raise ValueError(f"row {int(table[name].isna().to_numpy().argmax())} {what}; its {name!r} is missing")
    who = np.zeros(len(table), dtype=np.int64) if by is None else table.groupby(by, sort=False).ngroup().to_numpy()
    when = np.arange(len(table)) if time is None else table[time].rank(method="dense").to_numpy()
    order = np.lexsort([when, who])
    is_first = np.diff(who[order], prepend=-1) != 0
    repeated = ~is_first & (np.diff(when[order], prepend=-1) == 0)
    if repeated.any():
        row = int(order[repeated.argmax()])
        raise ValueError(
            f"two positions of one animal have the time {table[time].iloc[row]}, one of them in row {row}; keep one of "
            "them, or name the column of animals with by="
        )
    return order, is_first


def _steps(positions: np.ndarray, is_first: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the length of the step to each position, and the turn at its beginning, each ``(n,)``.

    Args:
        positions: positions of one animal after the other, ``(n, 2)``.
        is_first: True for the first position of each animal, ``(n,)``.
        kind: ``"plane"`` or ``"great circle"``.
    """
    start = np.where(is_first[:, None], np.nan, np.roll(positions, 1, axis=0))
    leaving, arriving, length = (_great_circles if kind == "great circle" else _lines)(start, positions)
    leaving, arriving = (np.where(length > 0, each, np.nan) for each in (leaving, arriving))
    before = np.where(is_first, np.nan, np.roll(arriving, 1))  # of an animal's second step the one before is NaN
    angle = leaving - before
    return length, angle - 2 * np.pi * np.ceil((angle - np.pi) / (2 * np.pi))


def _lines(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the direction of the lines from a to b at each of their ends, and their lengths, each ``(n,)``."""
    east, north = (b - a).T
    direction = np.arctan2(north, east)
    return direction, direction, np.hypot(east, north)


def _great_circles(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the direction of great circles from a to b at each of their ends, and their lengths in km, each ``(n,)``.

    Directions are counterclockwise from east. The formulas keep their digits for short steps (Sinnott 1984, *Virtues of
    the haversine*).
    """
    (lon_a, lat_a), (lon_b, lat_b) = np.radians(a).T, np.radians(b).T
    half = np.sin(0.5 * (lon_b - lon_a)) ** 2

    def direction(lat: np.ndarray, other: np.ndarray, sign: float) -> Any:
        """At latitude ``lat`` towards the other end (``sign`` 1), or away from it (-1)."""
        east = np.sin(lon_b - lon_a) * np.cos(other)
        return np.arctan2(sign * (np.sin(other - lat) + 2 * np.sin(lat) * np.cos(other) * half), east)

    haversine = np.sin(0.5 * (lat_b - lat_a)) ** 2 + np.cos(lat_a) * np.cos(lat_b) * half
    length = 2 * EARTH_RADIUS * np.arcsin(np.sqrt(np.clip(haversine, 0.0, 1.0)))
    return direction(lat_a, lat_b, 1.0), direction(lat_b, lat_a, -1.0), length

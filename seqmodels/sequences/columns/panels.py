"""Several series in one table: finding the column that names the series of a row when times repeat or go back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.common.display import listed
from seqmodels.sequences.calendar_steps import grid_of
from seqmodels.sequences.columns.dates import names_no_year
from seqmodels.sequences.columns.index import is_called_time

if TYPE_CHECKING:
    import pandas as pd

# The most values of a column that tells series apart, as a share of the rows; a column with more numbers the rows.
MOST_SERIES = 2 / 3
MOST_NAMED = 4  # columns, in an error
PARTS_OF_DATES = (
    *("year", "month", "day", "hour", "minute", "second", "week", "quarter", "weekday", "dayofweek", "day_of_week"),
    *("day_of_year", "dayofyear", "is_weekend", "weekend", "season"),
)  # names of columns that follow from the date and so do not tell series apart


@dataclass(frozen=True)
class SeriesOfRows:
    """The column that says which of several series each row of a table belongs to.

    Attributes:
        by: the column that names the series of each row; None if all rows are one series.
        said: a sentence about what was assumed; empty if nothing was.
    """

    by: str | None
    said: str = ""


def series_of_rows(frame: pd.DataFrame, time: str, by: str | None, others: Sequence[str]) -> SeriesOfRows:
    """Find the column that separates the rows into series in which no time repeats.

    Args:
        frame: the table, one row per step, with no time missing.
        time: the time column.
        by: the column that the caller named for this; None if none was named.
        others: columns that may be chosen if none was named; of these, only columns of words or integers are
            considered.

    Raises:
        ValueError: times repeat or go back, and not exactly one column separates them; the message names candidates.
    """
    import pandas as pd

    ranks, times = pd.factorize(frame[time], sort=True)
    codes = np.zeros(len(frame), np.int64) if by is None else pd.factorize(frame[by])[0]
    goes_back = bool(_descends(ranks, codes).any())
    repeated = _repeated(ranks, codes)
    if not repeated.any():
        if not goes_back:
            return SeriesOfRows(by)
        if by is None and not _are_regular(np.asarray(times)):
            in_blocks = [c for c in candidates(frame, others) if _is_in_blocks(frame[c], ranks)]
            if len(in_blocks) == 1:
                return SeriesOfRows(in_blocks[0], _taken(frame, time, in_blocks[0], "goes back"))
        return SeriesOfRows(by, f"the rows are not in the order of {time!r}, and are put into it")
    eligible = candidates(frame, others)
    separating = _without_equals(frame, [c for c in eligible if not _repeated(ranks, _within(codes, frame[c])).any()])
    is_panel = goes_back or repeated.mean() >= 0.5 or _are_regular(np.asarray(times))
    if not is_panel or not (eligible or goes_back or frame[time].dtype.kind in "mM"):
        return SeriesOfRows(by)  # because a few events at one time, in order, are steps of one sequence
    complete = [c for c in separating if _has_most_times(frame[c], ranks)]
    certain = [c for c in separating if c in complete or _is_contiguous(frame[c]) or _holds_words(frame[c])]
    taken = certain if len(separating) == 1 else complete
    if by is None and len(taken) == 1:
        return SeriesOfRows(taken[0], _taken(frame, time, taken[0], "repeats"))
    raise ValueError(_refusal(frame, time, by, repeated, separating, eligible))


def _taken(frame: pd.DataFrame, time: str, by: str, why: str) -> str:
    n = frame[by].nunique()
    return f"{time!r} {why}, so the rows are taken for {n} sequences, one for each {by!r}; pass by= to say otherwise"


def _refusal(
    frame: pd.DataFrame, time: str, by: str | None, repeated: np.ndarray, separating: list[str], eligible: list[str]
) -> str:
    first = int(np.argmax(repeated))
    same = repeated & (frame[time] == frame[time].iloc[first]).to_numpy()
    if by is not None:
        same &= (frame[by] == frame[by].iloc[first]).to_numpy()
    second = int(np.flatnonzero(same)[1])
    of = "" if by is None else f" of {by} {frame[by].iloc[first]!r}"
    when = str(frame[time].iloc[first]).removesuffix(" 00:00:00")
    says = f"{time!r} is {when} in row {first} and in row {second}{of}, so there are several sequences"
    if by is None and separating:
        each = " or ".join(f"by={c!r}" for c in separating[:MOST_NAMED])
        return f"{says}; name the column that says which one a row is of: {each} (in a shell --by)"
    if eligible:
        return (
            f"{says}, and no one column separates them ({listed(eligible)}); make one column of those that do it "
            "together, and name it with by= (in a shell --by)"
        )
    return (
        f"{says}; add a column that says which one a row is of, and name it with by= (in a shell --by), leave out "
        "rows that are there twice, or give dates their time zone if clocks were set back"
    )


def candidates(frame: pd.DataFrame, others: Sequence[str]) -> list[str]:
    """Return the columns that may name the series of a row.

    They hold words or integers, have at least two values and clearly fewer than rows, and are not part of a date.

    Args:
        frame: the table.
        others: names of the columns to consider.
    """
    eligible = []
    for name in others:
        column = frame[name]
        if (
            str(name).lower() in PARTS_OF_DATES
            or is_called_time(name)
            or column.dtype.kind in "fcmM"
            or column.isna().any()
        ):
            continue
        if not column.map(lambda cell: getattr(cell, "__hash__", None) is not None).all() or names_no_year(column):
            continue
        if 2 <= column.nunique() <= MOST_SERIES * len(column):
            eligible.append(name)
    return eligible


def _within(codes: np.ndarray, column: pd.Series) -> np.ndarray:
    """Return a number for each row that identifies the pair of its series and its value in a column, shape ``(N,)``.

    Args:
        codes: number of each row's series, shape ``(N,)``.
        column: the column.
    """
    import pandas as pd

    values, names = pd.factorize(column)
    return codes * len(names) + values


def _repeated(ranks: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return, for each row, True if another row of the same series has the same time, shape ``(N,)``.

    Args:
        ranks: rank of each row's time, shape ``(N,)``.
        codes: number of each row's series, shape ``(N,)``.
    """
    _, inverse, counts = np.unique(
        codes.astype(np.int64) * (int(ranks.max()) + 1) + ranks, return_inverse=True, return_counts=True
    )
    return np.asarray(counts[inverse] > 1)


def _descends(ranks: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return True for each pair of neighbouring rows of one series whose times decrease, shape ``(N - 1,)``.

    The rows are ordered by series first.

    Args:
        ranks: rank of each row's time, shape ``(N,)``.
        codes: number of each row's series, shape ``(N,)``.
    """
    order = np.lexsort((np.arange(len(codes)), codes))
    return np.asarray((np.diff(ranks[order]) < 0) & (np.diff(codes[order]) == 0))


def _are_regular(times: np.ndarray) -> bool:
    return len(times) > 2 and grid_of(times, most=2 * len(times)) is not None


def _is_contiguous(column: pd.Series) -> bool:
    import pandas as pd

    codes, names = pd.factorize(column)
    return int((np.diff(codes) != 0).sum()) + 1 == len(names)


def _is_in_blocks(column: pd.Series, ranks: np.ndarray) -> bool:
    """Return True if the rows with each value of a column follow each other in the order of their times.

    Args:
        column: the column.
        ranks: rank of each row's time, shape ``(N,)``.
    """
    import pandas as pd

    codes = pd.factorize(column)[0]
    return _is_contiguous(column) and not _descends(ranks, codes).any()


def _has_most_times(column: pd.Series, ranks: np.ndarray) -> bool:
    """Return True if each value of a column occurs at more than half of all times.

    Args:
        column: the column.
        ranks: rank of each row's time, shape ``(N,)``.
    """
    import pandas as pd

    return bool(np.bincount(pd.factorize(column)[0]).min() > (int(ranks.max()) + 1) / 2)


def _holds_words(column: pd.Series) -> bool:
    return column.dtype.kind not in "iub"


def _without_equals(frame: pd.DataFrame, columns: list[str]) -> list[str]:
    """Return columns without those that separate the rows exactly as an earlier one does, such as a number and a name.

    Args:
        frame: the table.
        columns: names of the columns.
    """
    import pandas as pd

    codes = [pd.factorize(frame[c])[0] for c in columns]
    return [c for i, c in enumerate(columns) if not any((codes[i] == codes[j]).all() for j in range(i))]

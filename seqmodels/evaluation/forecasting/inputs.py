"""Inputs of a forecast: columns that are known at each step, also at the steps ahead, such as holidays or prices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.sequences import Sequences
from seqmodels.sequences.columns.timed_rows import timed_rows
from seqmodels.sequences.times import time_in_words

if TYPE_CHECKING:
    import pandas as pd


def with_steps_ahead(
    frame: Any,
    inputs: Sequence[str],
    future: Any,
    *,
    time: str | None = None,
    by: str | None = None,
    date_format: str | None = None,
    names: tuple[str, str] = ("the frame", "future"),
) -> pd.DataFrame:
    """Append the rows of ``future`` to a pandas frame, and convert its inputs to float64; return the new frame.

    Inputs are columns that are known at each step, such as holidays.

    Args:
        frame: series and their inputs.
        inputs: names of the columns of inputs, which ``future`` has too.
        future: inputs of the steps ahead; None means that ``frame`` has them already.
        time: name of the column of times; None means that it is recognised.
        by: name of the column that says which series a row belongs to; None means that there is none.
        date_format: format of the dates for ``datetime.strptime``; None means that it is recognised.
        names: what error messages call ``frame`` and ``future``.

    Raises:
        ValueError: ``frame`` or ``future`` is no frame; a column is missing or holds no numbers; or steps ahead have no
            times, or are steps of the frame.
    """
    import pandas as pd

    for name, each in zip(names, (frame, future), strict=True):
        if each is not None and not isinstance(each, pd.DataFrame):
            raise ValueError(f"{name} should be a pandas DataFrame with the columns of inputs, {', '.join(inputs)}")
        if each is None:
            continue
        missing = [column for column in inputs if column not in each]
        if missing:
            has = ", ".join(map(str, each.columns))
            raise ValueError(f"{name} has no column {missing[0]!r}, which inputs names; it has {has}")
    if future is not None:
        has_dates = [isinstance(each.index, pd.DatetimeIndex | pd.PeriodIndex) for each in (frame, future)]
        if has_dates[0] != has_dates[1]:
            dated, other = names if has_dates[0] else names[::-1]
            raise ValueError(
                f"the index of {dated} holds dates, and that of {other} does not; give both dates, or both a column of "
                "dates"
            )
        if not has_dates[0]:
            _refuse_other_steps(frame, inputs, future, _time_of(frame, inputs, time, by, date_format), by, names)
        frame = pd.concat([frame, future], ignore_index=not has_dates[0])
    words = [name for name in inputs if not pd.api.types.is_numeric_dtype(frame[name])]
    if words:
        raise ValueError(
            f"the input {words[0]!r} holds no numbers; make columns of 0 and 1 of it, with pandas.get_dummies"
        )
    return pd.DataFrame(frame.astype(dict.fromkeys(inputs, np.float64)))


def _time_of(
    frame: pd.DataFrame, inputs: Sequence[str], time: str | None, by: str | None, date_format: str | None
) -> str | None:
    """Return the name of the column of times, or None if there is none or it can be read only with the steps ahead.

    Args:
        frame: series and their inputs.
        inputs: names of the columns of inputs.
        time: name that the user gave; None means that it is recognised.
        by: name of the column that says which series a row belongs to; None means that there is none.
        date_format: format of the dates for ``datetime.strptime``; None means that it is recognised.
    """
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    try:
        return timed_rows(frame, time=time, by=by, taken=inputs, date_format=date_format).time
    except ValueError:
        return None


def _refuse_other_steps(
    frame: pd.DataFrame,
    inputs: Sequence[str],
    future: pd.DataFrame,
    time: str | None,
    by: str | None,
    names: tuple[str, str],
) -> None:
    """Check that the rows for the steps ahead have their time and series, and are not steps that the frame has already.

    Args:
        frame: series and their inputs.
        inputs: names of the columns of inputs.
        future: inputs of the steps ahead.
        time: name of the column of times; None means that there is none.
        by: name of the column that says which series a row belongs to; None means that there is none.
        names: what error messages call ``frame`` and ``future``.

    Raises:
        ValueError: rows of ``future`` lack their time or series, or repeat steps of ``frame``.
    """
    for column, says in ((time, "when a row is"), (by, "which series a row is of")):
        if column is not None and column in frame and column not in future:
            has = ", ".join(map(str, future.columns))
            raise ValueError(
                f"{names[1]} has no column {column!r}, which says {says}; add it for the steps ahead: it has {has}"
            )
    if time not in frame:
        return
    keys = [column for column in future if column in frame and column not in inputs]
    again = future[keys].astype(object).merge(frame[keys].astype(object))
    if len(again):
        raise ValueError(
            f"{names[1]} has rows for steps that {names[0]} has, such as {time!r} {again[time].iloc[0]}; give only "
            "those that follow"
        )


def split(sequences: Sequences, inputs: Sequence[str], horizon: int) -> tuple[Sequences, list[np.ndarray]]:
    """Split sequences into the series to forecast, up to the last known step of each, and their inputs.

    Args:
        sequences: sequences of vectors with named features, among them the inputs.
        inputs: names of the U features that are known at each step and not forecast.
        horizon: number of steps ahead.

    Returns:
        The series without the inputs, and the inputs of each series of T steps and of its steps ahead,
        ``(T + horizon, U)``.

    Raises:
        ValueError: there are no columns besides inputs; or inputs are missing at a step or at a step ahead, or never
            change.
    """
    columns = list(sequences.features or ())
    missing = [name for name in inputs if name not in columns]
    if missing:
        has = ", ".join(map(str, columns)) or "no names"
        raise ValueError(f"the series have no feature {missing[0]!r}, which inputs names; they have {has}")
    of_inputs = [columns.index(name) for name in inputs]
    others = [i for i in range(len(columns)) if i not in of_inputs]
    if not others:
        raise ValueError(
            f"inputs names all columns of numbers, {', '.join(inputs)}; leave out the columns that are to be forecast"
        )
    items, each, times = [], [], []
    for i, (name, item) in enumerate(zip(sequences.names, sequences.items, strict=True)):
        values = np.asarray(item, dtype=np.float64)
        known = np.flatnonzero(~np.isnan(values[:, others]).all(axis=1))
        n = int(known[-1]) + 1 if len(known) else 0
        ahead = len(values) - n
        if ahead < horizon:
            raise ValueError(
                f"inputs are known for {ahead} steps after the last value of sequence {name!r}, but horizon is "
                f"{horizon}; give a row for each step ahead, in future (in a shell --inputs-file) or at the end of the "
                "frame, where what is forecast is missing" + (f"; or pass horizon={ahead}" if ahead else "")
            )
        own_times = None if sequences.times is None else sequences.times[i]
        unknown = np.argwhere(np.isnan(values[: n + horizon, of_inputs]))
        if len(unknown):
            t, which = unknown[0].tolist()
            when = f"step {t + 1}" if own_times is None else time_in_words(own_times[t])
            raise ValueError(
                f"the input {inputs[which]!r} is missing at {when} of sequence {name!r}; inputs must be known at each "
                "step: give a row for each step, and fill in the value"
            )
        for which, column in zip(inputs, values[:n, of_inputs].T, strict=True):
            if np.ptp(column) <= 1e-12 * np.abs(column).max():
                raise ValueError(
                    f"the input {which!r} is {column[0]:g} in all {n:,} steps of sequence {name!r}, so that its effect "
                    "cannot be estimated; leave it out of inputs"
                )
        items.append(values[:n, others])
        each.append(values[: n + horizon, of_inputs])
        times += [] if own_times is None else [own_times[:n]]
    history = Sequences(
        items,
        names=sequences.names if len(items) > 1 else None,
        features=[columns[i] for i in others],
        times=times or None,
        time_name=sequences.time_name,
        time_unit=sequences.time_unit,
        by=sequences.by,
    )
    return history, each

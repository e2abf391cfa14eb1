"""Inputs of a forecast: columns that are known at each step, those ahead too, such as holidays or prices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.sequences import Sequences
from seqmodels.sequences.times import time_in_words

if TYPE_CHECKING:
    import pandas as pd


def with_steps_ahead(frame: Any, inputs: Sequence[str], future: Any) -> pd.DataFrame:
    """The frame with the rows of ``future``, if there are, after its own, and inputs as float64.

    Raises:
        ValueError: what is no frame; a column that is not there, or holds no numbers.
    """
    import pandas as pd

    for name, each in (("the frame", frame), ("future", future)):
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
            raise ValueError(
                f"the index of {'the frame' if has_dates[0] else 'future'} holds dates, and that of "
                f"{'future' if has_dates[0] else 'the frame'} does not; give both dates, or both a column of dates"
            )
        frame = pd.concat([frame, future], ignore_index=not has_dates[0])
    words = [name for name in inputs if not pd.api.types.is_numeric_dtype(frame[name])]
    if words:
        raise ValueError(
            f"the input {words[0]!r} holds no numbers; make columns of 0 and 1 of it, with pandas.get_dummies"
        )
    return pd.DataFrame(frame.astype(dict.fromkeys(inputs, np.float64)))


def split(sequences: Sequences, inputs: Sequence[str], horizon: int) -> tuple[Sequences, list[np.ndarray]]:
    """The series without their inputs, up to the last step of which any is known; and ``(T + horizon, U)`` inputs.

    Raises:
        ValueError: no column but inputs; inputs that are not known at a step, or not of all steps ahead, or that never
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
        raise ValueError(f"inputs names all columns of numbers, {', '.join(inputs)}; leave out of it what is forecast")
    items, each, times = [], [], []
    for i, (name, item) in enumerate(zip(sequences.names, sequences.items, strict=True)):
        values = np.asarray(item, dtype=np.float64)
        known = np.flatnonzero(~np.isnan(values[:, others]).all(axis=1))
        n = int(known[-1]) + 1 if len(known) else 0
        ahead = len(values) - n
        if ahead < horizon:
            raise ValueError(
                f"inputs are known for {ahead} steps after the last value of sequence {name!r}, but horizon is "
                f"{horizon}; give a row for each step ahead, in future or at the end of the frame, where what is "
                "forecast is missing" + (f"; or pass horizon={ahead}" if ahead else "")
            )
        own_times = None if sequences.times is None else sequences.times[i]
        unknown = np.argwhere(np.isnan(values[: n + horizon, of_inputs]))
        if len(unknown):
            t, which = unknown[0].tolist()
            when = f"step {t + 1}" if own_times is None else time_in_words(own_times[t])
            raise ValueError(
                f"the input {inputs[which]!r} is missing at {when} of sequence {name!r}; inputs are known at each "
                "step: give a row for each, and fill in what it is"
            )
        for which, column in zip(inputs, values[:n, of_inputs].T, strict=True):
            if np.ptp(column) <= 1e-12 * np.abs(column).max():
                raise ValueError(
                    f"the input {which!r} is {column[0]:g} in all {n:,} steps of sequence {name!r}, so that nothing "
                    "says what it is worth; leave it out of inputs"
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

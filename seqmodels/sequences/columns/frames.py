"""Frames of pandas, polars and Arrow as items of ``Sequences``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.display import listed
from seqmodels.sequences.columns.numbers import refuse_unread, warn_of_codes, with_numbers

if TYPE_CHECKING:
    import pandas as pd


def pandas_frame(data: Any) -> Any:
    """Convert a table or column of polars or Arrow to a pandas frame or series; return other data unchanged.

    Args:
        data: any object.

    Raises:
        ValueError: pyarrow, which the conversion from polars needs, is not installed.
    """
    if not hasattr(data, "to_pandas"):
        return data
    try:
        return data.to_pandas()
    except ImportError as error:
        raise ValueError(
            f"the {type(data).__name__} cannot be made a frame of pandas ({error}); install pyarrow (pip install "
            "'seqmodels[parquet]'), or pass a frame of pandas"
        ) from None


def frames_of_numbers(items: Sequence[Any]) -> list[Any]:
    """Convert the columns of frames among some items to numbers of NumPy; return a list of all items.

    Args:
        items: frames, and other objects, which stay unchanged.

    Raises:
        ValueError: a column does not hold numbers, or a frame has other columns than the first, or in another order.
    """
    import pandas as pd

    each = [pandas_frame(item) for item in items]
    for i, frame in enumerate(each):
        if not isinstance(frame, pd.DataFrame) or not isinstance(each[0], pd.DataFrame):
            continue
        names, first = list(map(str, frame.columns)), list(map(str, each[0].columns))
        if names != first and len(names) == len(first):
            raise ValueError(
                f"sequence {i} has the columns {listed(names)} but sequence 0 has {listed(first)}; give all frames the "
                f"same in one order: frame[{first[:8]}]"
            )
        each[i] = _numbers_of(i, frame)
    if each and all(isinstance(frame, pd.DataFrame) and frame.columns.equals(each[0].columns) for frame in each):
        warn_of_codes(pd.concat(each), each[0].columns, "the frames")
    return each


def _numbers_of(i: int, frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    if all(dtype.kind in "iufb" and isinstance(dtype, np.dtype) for dtype in frame.dtypes):
        return frame
    read = with_numbers(frame, f"sequence {i}")
    others = [c for c in read.columns if not pd.api.types.is_numeric_dtype(read[c])]
    refuse_unread(
        read, others, lambda row: f"row {row} of sequence {i}", "if it is not a feature, leave the column out"
    )
    if others:
        raise ValueError(
            f"sequence {i} has the column {str(others[0])!r}, which holds {read[others[0]].dtype}, no numbers; leave "
            f"it out: frame.drop(columns={others[0]!r})"
        )
    if any(pd.api.types.is_complex_dtype(dtype) for dtype in read.dtypes):
        return read
    return pd.DataFrame(read.to_numpy(dtype=np.float64, na_value=np.nan), index=frame.index, columns=frame.columns)

"""Frames of other libraries as frames of pandas."""

from __future__ import annotations

from typing import Any


def pandas_frame(data: Any) -> Any:
    """Return the frame or column of pandas that a table or a column of polars or Arrow holds; other data as they are.

    Raises:
        ValueError: pyarrow, which polars needs for it, is not installed.
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

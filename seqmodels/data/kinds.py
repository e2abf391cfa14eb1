"""What readers of files share: the ending of a file, and the kind that its items are read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqmodels.sequences import Kind
from seqmodels.sequences.columns.numbers import is_number


def suffix_of(path: Path) -> str:
    """The ending of a file in lower case, without that of its compression: ``.csv`` of ``a.CSV.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def as_kind(item: Any, kind: Kind | None, where: str) -> Any:
    """An item read as a kind; None: as it is.

    Args:
        item: ``str``, a list, or an array ``(T,)`` or ``(T, D)``.
        kind: ``"vectors"``: numbers ``(T,)`` are frames of one feature; ``"symbols"``: of a ``str`` the characters, of
            ``(T, 1)`` the numbers; ``"text"``: strings are joined.
        where: the place that an error names.

    Raises:
        ValueError: an item that cannot be of this kind.

    >>> as_kind("CAT", "symbols", "a.txt"), as_kind(["C", "A", "T"], "text", "a.txt")
    (['C', 'A', 'T'], 'CAT')
    >>> as_kind([1, 5], "vectors", "a.json").shape
    (2, 1)
    """
    if kind in (None, "vectors"):
        _refuse_numbers_in_quotes(item, where)
    if kind is None or (isinstance(item, str) and kind == "text"):
        return item
    if isinstance(item, str):
        if kind == "symbols":
            return list(item)
        raise ValueError(f"{where} is text, which cannot be read as vectors; leave kind out")
    try:
        array = np.asarray(item)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{where} is no array of numbers ({error}); give each of its steps as many numbers") from None
    are_numbers = array.dtype.kind in "iufb"
    if kind == "vectors" and are_numbers and array.ndim in (1, 2) and array.size:
        return array.reshape(len(array), -1)
    if kind == "symbols" and (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)):
        return array.ravel() if are_numbers else item
    if kind == "text" and array.ndim == 1 and all(isinstance(each, str) for each in item):
        return "".join(item)
    raise ValueError(
        f"{where} holds {'numbers' if are_numbers else 'values'} of shape {array.shape}, not read as {kind}; "
        "leave kind out"
    )


def _refuse_numbers_in_quotes(item: Any, where: str) -> None:
    """Raise ``ValueError`` for strings that are all numbers, not all of digits alone, which would become symbols."""
    cells = item.tolist() if isinstance(item, np.ndarray) else item
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, str) for cell in cells):
        return
    if all(map(is_number, cells)) and not all(cell.isdecimal() for cell in cells):
        raise ValueError(
            f"{where} holds numbers that are strings, such as {cells[0]!r:.40}; write them as numbers, or pass "
            "kind='symbols' if they are names"
        )

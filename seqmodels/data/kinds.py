"""Helpers that readers share: the ending of a file name, and the conversion of an item to a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqmodels.sequences import Kind
from seqmodels.sequences.columns.numbers import is_number


def suffix_of(path: Path) -> str:
    """Return the ending of a file name in lower case, ignoring ``.gz``: ``.csv`` for ``a.CSV.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def as_kind(item: Any, kind: Kind | None, where: str) -> Any:
    """Convert an item that was read from a file to a sequence of vectors, of symbols, or of text, and return it.

    Args:
        item: a string, a list, or an array of shape ``(T,)`` or ``(T, D)``.
        kind: ``"vectors"`` makes numbers of shape ``(T,)`` frames of one feature; ``"symbols"`` takes the characters of
            a string, or the numbers of shape ``(T, 1)``; ``"text"`` joins strings. None returns the item unchanged.
        where: place of the item, for errors, such as ``"a.json:3"``.

    Raises:
        ValueError: the item cannot be of this kind, or holds numbers that are written as strings.

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
        raise ValueError(
            f"{where} is not an array of numbers ({error}); give each of its steps equally many numbers"
        ) from None
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
    """Check that an item is not a list of strings that are all numbers, because they would become symbols.

    Strings of digits only are allowed, since they may be names.

    Args:
        item: the item, as it was read.
        where: place of the item, for the message.

    Raises:
        ValueError: if it is such a list.
    """
    cells = item.tolist() if isinstance(item, np.ndarray) else item
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, str) for cell in cells):
        return
    if all(map(is_number, cells)) and not all(cell.isdecimal() for cell in cells):
        raise ValueError(
            f"{where} holds numbers that are strings, such as {cells[0]!r:.40}; write them as numbers, or pass "
            "kind='symbols' if they are names"
        )

"""Checks of arrays that come from a user or a file: their dtype, shape and range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqmodels.common.parameters import in_one_line

ROUNDING = 1e-5  # the most by which a sum of probabilities may differ from one


def numbers_of(name: str, values: Any, shape: str = "") -> np.ndarray:
    """Return ``values`` as an array of float64, after checking that they are numbers.

    Args:
        name: the name of the argument, for error messages.
        values: an array, a number or nested lists.
        shape: the axes that the array must have, such as ``"(T, D)"``, each of any length but 0; "" admits any shape.

    Raises:
        ValueError: ``values`` is not an array of real numbers, or does not have these axes.
    """
    try:
        array = np.asarray(values if values is not None else "none")
        numbers = array.astype(np.float64) if array.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        numbers = None
    if numbers is None:
        raise ValueError(f"{name} is {in_one_line(values):.80}; pass an array of numbers{' ' + shape if shape else ''}")
    if shape and (numbers.ndim != len(re.findall(r"\w+", shape)) or not numbers.size):
        raise ValueError(f"{name} has shape {numbers.shape}; pass an array {shape}")
    return numbers


def array_of(state: Mapping[str, Any], name: str, dtype: type, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return the array ``state[name]`` after checking its dtype and shape.

    Args:
        state: content of a file: arrays and JSON values by name.
        name: the name of the array.
        dtype: the dtype that it must have.
        shape: the shape that it must have; None stands for any length.

    Raises:
        ValueError: the array is missing, or has another dtype or shape.
    """
    array = state.get(name) if isinstance(state, Mapping) else None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"the file has no array {name!r}")
    has_shape = len(shape) == array.ndim and all(n is None or n == m for n, m in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not has_shape:
        expected = tuple("any" if n is None else n for n in shape)
        raise ValueError(
            f"{name!r} is an array of {array.dtype}, shape {array.shape}, and should be of {np.dtype(dtype)}, "
            f"shape {expected}"
        )
    return array


def check_between(name: str, array: np.ndarray, low: float, high: float = np.inf) -> np.ndarray:
    """Return ``array`` after checking that its numbers are finite and from ``low`` to ``high``.

    Args:
        name: name of the array, for the message.
        array: the array.
        low, high: limits, which are included.

    Raises:
        ValueError: a number is outside; the message says which, and its index.
    """
    wrong = ~(np.isfinite(array) & (array >= low) & (array <= high))
    if wrong.any():
        index = [int(i) for i in np.argwhere(wrong)[0]]
        raise ValueError(f"{name!r} has {array[tuple(index)]} at {index}, which should be from {low:g} to {high:g}")
    return array


def check_sums(name: str, sums: np.ndarray) -> None:
    """Check that sums of probabilities are 1, up to ``ROUNDING``.

    Args:
        name: name of the array of probabilities, for the message.
        sums: sum of each of its rows.

    Raises:
        ValueError: a sum is not 1; the message says of which row.
    """
    wrong = ~(np.abs(sums - 1) <= ROUNDING)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"{name!r} are probabilities that should sum to one, but row {i} sums to {sums.flat[i]:g}")


def check_codes(name: str, codes: np.ndarray, n_contexts: int, n_symbols: int) -> np.ndarray:
    """Return ``codes`` of pairs (context, symbol) after checking that they are strictly increasing and in range.

    Args:
        name: the name of the array, for error messages.
        codes: integers ``context * n_symbols + symbol``, shape ``(n,)``.
        n_contexts: number of contexts, which are numbered from 0.
        n_symbols: number of symbols.

    Raises:
        ValueError: there are no codes, or they do not increase, or one is out of range.
    """
    if not len(codes) or codes[0] < 0 or (np.diff(codes) <= 0).any() or int(codes[-1]) // n_symbols >= n_contexts:
        raise ValueError(f"{name!r} should be codes that rise, from 0 to {n_contexts * n_symbols - 1}")
    return codes

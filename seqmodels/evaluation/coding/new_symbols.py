"""Code the symbols of an open alphabet that training lacked, with the probabilities of ``OpenSymbols``.

If the alphabet is not stated, the k-th new symbol has ``q = 1 / (k (k + 1))``, so that ``q(k >= a) = 1 / a``, and among
k from a to b - 1 those below ``(a + b) / 2`` have the share ``b / (a + b)``: k is found by bisection, in integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.common.range_interval import TOTAL
from seqmodels.encodings import OpenSymbols

# A function of (below, parts, of) that says whether the number is less than ``below``, with probability parts / of.
Choose = Callable[[int, int, int], bool]


def encode(encoding: OpenSymbols, values: np.ndarray, encoder: RangeEncoder) -> None:
    """Code the symbols of one sequence that were not known in training, in addition to the code of the known ones.

    Args:
        encoding: the encoding that knows the symbols of the training part.
        values: raw integers of T steps, ``(T,)``.
        encoder: range coder that the code is written to.
    """
    for value in values[encoding.encode(values) == encoding.size - 1].tolist():
        k = value - int(np.searchsorted(encoding.known_, value))  # its number among new symbols, from 0

        def choose(below: int, parts: int, of: int, k: int = k) -> bool:
            size = _size(parts, of)
            is_lower = k < below
            encoder.encode(0 if is_lower else size, size if is_lower else TOTAL - size)
            return is_lower

        _find(encoding, choose)


def decode(encoding: OpenSymbols, steps: np.ndarray, decoder: RangeDecoder) -> np.ndarray:
    """Return the raw integers of one sequence of T steps, ``(T,)``, with symbols unknown in training read from a code.

    Args:
        encoding: the encoding that knows the symbols of the training part.
        steps: encoded symbols, ``(T,)``, in which all new symbols share the last number.
        decoder: range decoder that new symbols are read from.
    """

    def choose(below: int, parts: int, of: int) -> bool:
        size = _size(parts, of)
        is_lower = decoder.place() < size
        decoder.follow(0 if is_lower else size, size if is_lower else TOTAL - size)
        return bool(is_lower)

    values = np.array(encoding.decode(steps), dtype=np.int64)
    for t in np.flatnonzero(steps == encoding.size - 1):
        k = _find(encoding, choose)
        # Add the number of known symbols below it.
        values[t] = k + int(np.searchsorted(encoding.known_ - np.arange(len(encoding.known_)), k, side="right"))
    return values


def _size(parts: int, of: int) -> int:
    return max(1, min(TOTAL - 1, TOTAL * parts // of))


def _find(encoding: OpenSymbols, choose: Choose) -> int:
    """Find the number of a new symbol among all new symbols, from 0, by bisection.

    Args:
        encoding: the encoding, which knows the number of all symbols if that is stated.
        choose: function ``choose(below, parts, of)`` that codes or decodes each decision: True if the number is less
            than ``below``, which has probability ``parts / of``.
    """
    if encoding.n_stated is not None:
        low, high = 0, encoding.n_stated - len(encoding.known_)
        while high - low > 1:
            middle = (low + high) // 2
            if choose(middle, middle - low, high - low):
                high = middle
            else:
                low = middle
        return low
    a = 1  # numbers from 1 on, as in q
    while not choose(2 * a - 1, 1, 2):
        a *= 2
    b = 2 * a
    while b - a > 1:
        middle = (a + b) // 2
        if choose(middle - 1, b, a + b):
            b = middle
        else:
            a = middle
    return a - 1

"""The steps of a range coder as compiled functions of arrays, to be called from compiled loops; see ``range_coder``."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.common.range_interval import AT, LEAST_WIDTH, LOW, TOTAL, TOTAL_BITS, WIDTH, WIDTH_BITS


@compiled
def narrow(state: np.ndarray, buffer: np.ndarray, start: int, size: int) -> None:
    """Encode one symbol with a range coder, given its share ``[start, start + size)`` of the integer ``TOTAL``.

    ``state`` and ``buffer`` are updated in place.

    Args:
        state: an encoder's interval (lower end and width) and number of bytes written, shape ``(3,)``, int64.
        buffer: the code so far, uint8, with at least ``ROOM`` bytes left.
        start: where the symbol's share begins: ``TOTAL`` times the probability of all symbols before it.
        size: the size of the symbol's share, at least 1: ``TOTAL`` times its probability.
    """
    low, width, at = int(state[LOW]), int(state[WIDTH]), int(state[AT])
    unit = width >> TOTAL_BITS
    low += unit * start
    # The last symbol also gets the remainder of the division, because no part of the interval may be lost.
    width = unit * size if start + size < TOTAL else width - unit * start
    if low >> WIDTH_BITS:
        low -= 1 << WIDTH_BITS
        carry = at - 1
        while buffer[carry] == 255:
            buffer[carry] = 0
            carry -= 1
        buffer[carry] += 1
    while width < LEAST_WIDTH:
        buffer[at] = low >> (WIDTH_BITS - 8)
        at += 1
        low = (low & (LEAST_WIDTH - 1)) << 8
        width <<= 8
    state[LOW], state[WIDTH], state[AT] = low, width, at


@compiled
def share_at(state: np.ndarray) -> int:
    """Return an integer below ``TOTAL`` in the share of the next symbol of a range code, which identifies the symbol.

    A symbol's share is a range of integers, ``TOTAL`` times its probability long.

    Args:
        state: a decoder's interval (position of the code in it, and width) and number of bytes read, ``(3,)``, int64.
    """
    return min(int(state[LOW]) // (int(state[WIDTH]) >> TOTAL_BITS), TOTAL - 1)


@compiled
def follow(state: np.ndarray, data: np.ndarray, start: int, size: int) -> None:
    """Move a decoder past a symbol with the share ``[start, start + size)`` of ``TOTAL``, updating ``state`` in place.

    Args:
        state: a decoder's interval (position of the code in it, and width) and number of bytes read, ``(3,)``, int64.
        data: the code, uint8; behind its end zeros are read.
        start: where the symbol's share begins: ``TOTAL`` times the probability of all symbols before it.
        size: the size of the symbol's share, ``TOTAL`` times its probability.
    """
    code, width, at = int(state[LOW]), int(state[WIDTH]), int(state[AT])
    unit = width >> TOTAL_BITS
    code -= unit * start
    width = unit * size if start + size < TOTAL else width - unit * start
    while width < LEAST_WIDTH:
        # The next 8 bits lie in two bytes, because the 62 bits that were read first end in the middle of a byte.
        code = (code << 8) | (((_byte(data, at) << 6) | (_byte(data, at + 1) >> 2)) & 255)
        at += 1
        width <<= 8
    state[LOW], state[WIDTH], state[AT] = code, width, at


@compiled(inner=True)
def _byte(data: np.ndarray, at: int) -> int:
    return int(data[at]) if at < len(data) else 0

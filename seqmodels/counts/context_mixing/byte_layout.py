"""Detection of the layout of bytes: prose, rows of fields or binary data; and whether bytes are numeric samples.

Samples are detected by how close bytes at some distance are to each other.
"""

from __future__ import annotations

import math

import numpy as np

from seqmodels.common.compiled import compiled

# Kinds of numbers: none, one byte each, or two bytes each with the lower one first.
NO_NUMBERS, BYTES, WORDS = 0, 1, 2

# Kinds of bytes that are not numbers: text of words, text of fields, and binary data.
PROSE, TABLE, BINARY = 0, 1, 2
PROSE_SHARE = 0.7  # smallest share of letters and spaces in prose
CONTROL_SHARE = 0.02  # largest share of control characters in text

WINDOW = 16_384  # number of last bytes that are examined
COMPARED = 4_096  # number of last bytes that are compared with earlier ones
COMPARED_OF_ROW = 1_024  # number of last bytes that are compared with the row before
SMALLEST_ROW, LARGEST_LAG = 32, 8_192
# The layout is first chosen after FIRST_LOOK bytes, then at powers of two and at multiples of LAST_DOUBLING.
FIRST_LOOK, LAST_DOUBLING = 1 << 11, 1 << 16
STRIDES = (1, 2, 3, 4)
SMOOTH_BITS = 0.6  # bits by which neighbouring bytes must be cheaper than distant ones to count as numbers


@compiled(allocates=False, inner=True)
def is_time_to_look(n_read: int) -> bool:
    """Return True if the layout of a byte sequence (text, binary data or samples) is to be detected anew.

    Args:
        n_read: number of bytes read so far.
    """
    if n_read < FIRST_LOOK:
        return False
    return n_read & (n_read - 1) == 0 or n_read % LAST_DOUBLING == 0


@compiled(allocates=False)
def look(window: np.ndarray, layout: np.ndarray) -> None:
    """Detect whether the last bytes of a sequence are prose, fields, binary data or samples; write it to ``layout``.

    Args:
        window: last bytes, int32 ``(T,)``.
        layout: output: 0. whether bytes are samples (NO_NUMBERS, BYTES or 16-bit WORDS); 1. distance in bytes between
            samples of one channel; 2. length in bytes of a row of a picture, 0 if there are none; 3. number of bytes
            since the last complete word; 4. PROSE, TABLE or BINARY.
    """
    layout[0], layout[1], layout[2], layout[3], layout[4] = NO_NUMBERS, 1, 0, 0, PROSE
    n = len(window)
    n_compared = min(COMPARED, n // 2)
    n_printable, n_of_words, n_controls = 0, 0, 0
    for t in range(n):
        if 32 <= window[t] < 127 or 9 <= window[t] <= 13:
            n_printable += 1
        elif window[t] < 128:
            n_controls += 1
        if window[t] >= 128 or window[t] == 32 or window[t] == 10 or 65 <= (window[t] & 0xDF) <= 90:
            n_of_words += 1
    if n_controls > CONTROL_SHARE * n:
        layout[4] = BINARY
    elif n_of_words < PROSE_SHARE * n:
        layout[4] = TABLE
    if n_printable > 0.9 * n:
        return
    first = n - n_compared
    far = 0.0
    for lag in range(37, 45):
        far += _cost_of_bytes(window, lag, first) / 8
    best_bytes, stride = far, 1
    for s in STRIDES:
        cost = _cost_of_bytes(window, s, first)
        if cost < best_bytes - 0.02:
            best_bytes, stride = cost, s
    best_words, channels, alignment = 8.0, 1, 0
    for a in range(2):
        for c in range(1, 3):
            cost = _cost_of_words(window, c, first, a) / 2
            if cost < best_words - 0.02:
                best_words, channels, alignment = cost, c, a
    far_words = 0.0
    for c in range(37, 41):
        far_words += _cost_of_words(window, c, first, alignment) / 8
    if best_words < min(best_bytes, far) - 0.3 and best_words < far_words - SMOOTH_BITS / 2:
        layout[0], layout[1], layout[2], layout[3] = WORDS, 2 * channels, 0, alignment
        return
    row, best_row = 0, 8.0
    for lag in range(SMALLEST_ROW, min(LARGEST_LAG, n - n_compared)):
        cost = _cost_of_bytes(window, lag, n - min(n_compared, COMPARED_OF_ROW))
        if cost < best_row:
            best_row, row = cost, lag
    if min(best_bytes, best_row) < far - SMOOTH_BITS:
        layout[0], layout[1], layout[2] = BYTES, stride, row if best_row < best_bytes + 0.7 else 0


@compiled(allocates=False, inner=True)
def _cost_of_bytes(window: np.ndarray, lag: int, first: int) -> float:
    """Return the approximate mean number of bits that the difference of two bytes at distance ``lag`` takes.

    Bytes of ``window`` before index ``first`` are not counted.
    """
    total = 0
    for t in range(first, len(window)):
        difference = (window[t] - window[t - lag]) & 255
        total += min(difference, 256 - difference)
    return math.log2(2.0 * math.e * total / (len(window) - first) + 1.0)


@compiled(allocates=False, inner=True)
def _cost_of_words(window: np.ndarray, lag: int, first: int, alignment: int) -> float:
    """Return the approximate mean number of bits that the difference of two 16-bit numbers at distance ``lag`` takes.

    ``lag`` counts numbers. Bytes of ``window`` before index ``first`` are not counted, and ``alignment`` (0 or 1) is
    the index of the first byte of a number.
    """
    total, n = 0.0, 0
    for t in range(len(window) - 2 - alignment, first, -2):
        now = window[t] | (window[t + 1] << 8)
        before = window[t - 2 * lag] | (window[t - 2 * lag + 1] << 8)
        difference = (now - before) & 65535
        total += min(difference, 65536 - difference)
        n += 1
    return math.log2(2.0 * math.e * total / n + 1.0)

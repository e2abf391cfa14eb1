"""What bytes are: prose, tables, or no text; samples of one byte or two, by how near bytes at some distance are."""

from __future__ import annotations

import math

import numpy as np

from seqmodels.common.compiled import compiled

# What bytes are.
NO_NUMBERS, BYTES, WORDS = 0, 1, 2  # a number is a byte, or two, the lower one first

# What bytes are that are no numbers: text of words, text of fields, what is no text.
PROSE, TABLE, BINARY = 0, 1, 2
PROSE_SHARE = 0.7  # of letters and spaces, from which on text is prose
CONTROL_SHARE = 0.02  # of control characters, from which on bytes are no text

WINDOW = 16_384  # of the last bytes, which are looked at, of which
COMPARED = 4_096  # are compared with those before, and
COMPARED_OF_ROW = 1_024  # with those of the row before
SMALLEST_ROW, LARGEST_LAG = 32, 8_192
FIRST_LOOK, LAST_DOUBLING = 1 << 11, 1 << 16  # bytes after which the kind is chosen; every so many from the second on
STRIDES = (1, 2, 3, 4)
SMOOTH_BITS = 0.6  # a byte less than of bytes far apart, from which on bytes are numbers


@compiled(allocates=False)
def is_time_to_look(n_read: int) -> bool:
    """Whether the kind of bytes is chosen anew after so many."""
    if n_read < FIRST_LOOK:
        return False
    return n_read & (n_read - 1) == 0 or n_read % LAST_DOUBLING == 0


@compiled(allocates=False)
def look(window: np.ndarray, layout: np.ndarray) -> None:
    """Set ``layout (5,)`` to what the last bytes are: kind, bytes between like samples, of a row, alignment, layout.

    Args:
        window: ``(T,)`` int32, the last bytes.
        layout: is written; a row of 0: there are no rows; of words the bytes since the last whole one.
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


@compiled(allocates=False)
def _cost_of_bytes(window: np.ndarray, lag: int, first: int) -> float:
    """About the bits of the difference of two bytes so far apart."""
    total = 0
    for t in range(first, len(window)):
        difference = (window[t] - window[t - lag]) & 255
        total += min(difference, 256 - difference)
    return math.log2(2.0 * math.e * total / (len(window) - first) + 1.0)


@compiled(allocates=False)
def _cost_of_words(window: np.ndarray, lag: int, first: int, alignment: int) -> float:
    """About the bits of the difference of two numbers of 16 bits so many numbers apart."""
    total, n = 0.0, 0
    for t in range(len(window) - 2 - alignment, first, -2):
        now = window[t] | (window[t + 1] << 8)
        before = window[t - 2 * lag] | (window[t - 2 * lag + 1] << 8)
        difference = (now - before) & 65535
        total += min(difference, 65536 - difference)
        n += 1
    return math.log2(2.0 * math.e * total / n + 1.0)

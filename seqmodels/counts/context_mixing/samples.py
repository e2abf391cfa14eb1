"""Bytes that are numbers: samples of a picture or of sound, predicted by least squares from the samples about them.

What has been read says whether bytes are numbers, how far apart those of one kind are, and how long a row is. A
prediction ``m`` and the size of its errors before make a distribution over the sample, the logistic one with the mean
``m``; what it gives to the outcomes of a binary decision is an input of the mixer, like that of a context.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing.contexts import (
    ALIGNMENT,
    ERROR,
    KIND,
    LAST_ERROR,
    N_READ,
    POSITION,
    ROW,
    SLOW_ERROR,
    STRIDE,
    combined,
)
from seqmodels.counts.context_mixing.tables import (
    CONFIDENCE_SCALE,
    LOGISTIC_LIMIT,
    LOGISTIC_POINTS,
    MAX_PHASES,
    N_EXPERTS,
    N_FEATURES,
    N_LEVELS_OF_ERROR,
    N_SAMPLE_CONTEXTS,
    MixingTables,
)
from seqmodels.counts.context_mixing.undo import UndoLog, keep_floats

# What bytes are.
NO_NUMBERS, BYTES, WORDS = 0, 1, 2  # a number is a byte, or two, the lower one first

FORGETTING = (0.998, 0.9998)  # of the sums of squares, by one number: of the two fits
SHRINKAGE = 0.5  # added to the diagonal of the sums of squares
SOLVED_EVERY = 8  # numbers of a phase between two solutions
ERROR_RATE = 0.02  # at which the mean error of a level follows
LEAST_ERROR = 0.2
FLOOR = 1e-5  # added to the shares of both outcomes
WIDE = 110.0  # a scale from which on lower bytes of a number are all alike
WINDOW, COMPARED, COMPARED_OF_ROW, LARGEST_LAG = (
    16_384,
    4_096,
    1_024,
    8_192,
)  # bytes that are looked at when the kind is chosen
FIRST_LOOK, LAST_DOUBLING = 1 << 11, 1 << 16  # bytes after which the kind is chosen; every so many from the second on
SMALLEST_ROW = 32
STRIDES = (1, 2, 3, 4)
SMOOTH_BITS = 0.6  # a byte less than of bytes far apart, from which on bytes are numbers


class Sample(NamedTuple):
    """The number that the next byte is of, and what is expected of it."""

    what: np.ndarray  # (6,) kind, phase, whether the byte is a higher one, the lower one, two levels of error
    features: np.ndarray  # (F,)
    means: np.ndarray  # (E,) of the experts
    inverses: np.ndarray  # (E,) of the scales of their distributions
    hashes: np.ndarray  # (H,) contexts made of them
    found: np.ndarray  # (4,) see ``look``
    factor: np.ndarray  # (F, F)


def new_sample() -> Sample:
    """Room for one."""
    return Sample(
        np.zeros(6, dtype=np.int64),
        np.zeros(N_FEATURES),
        np.zeros(N_EXPERTS),
        np.ones(N_EXPERTS),
        np.zeros(N_SAMPLE_CONTEXTS, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
        np.zeros((N_FEATURES, N_FEATURES)),
    )


@compiled
def is_time_to_look(n_read: int) -> bool:
    """Whether the kind of bytes is chosen anew after so many."""
    if n_read < FIRST_LOOK:
        return False
    return n_read & (n_read - 1) == 0 or n_read % LAST_DOUBLING == 0


@compiled
def look(window: np.ndarray, found: np.ndarray) -> None:
    """Set ``found (4,)`` to what the last bytes are: kind, bytes between like samples, bytes of a row, alignment.

    Args:
        window: ``(T,)`` int32, the last bytes.
        found: is written; a row of 0: there are no rows; of words the bytes since the last whole one.
    """
    found[0], found[1], found[2], found[3] = NO_NUMBERS, 1, 0, 0
    n = len(window)
    n_compared = min(COMPARED, n // 2)
    n_printable = 0
    for t in range(n):
        if 32 <= window[t] < 127 or 9 <= window[t] <= 13:
            n_printable += 1
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
        found[0], found[1], found[2], found[3] = WORDS, 2 * channels, 0, alignment
        return
    row, best_row = 0, 8.0
    for lag in range(SMALLEST_ROW, min(LARGEST_LAG, n - n_compared)):
        cost = _cost_of_bytes(window, lag, n - min(n_compared, COMPARED_OF_ROW))
        if cost < best_row:
            best_row, row = cost, lag
    if min(best_bytes, best_row) < far - SMOOTH_BITS:
        found[0], found[1], found[2] = BYTES, stride, row if best_row < best_bytes + 0.7 else 0


@compiled
def _cost_of_bytes(window: np.ndarray, lag: int, first: int) -> float:
    """About the bits of the difference of two bytes so far apart."""
    total = 0
    for t in range(first, len(window)):
        difference = (window[t] - window[t - lag]) & 255
        total += min(difference, 256 - difference)
    return math.log2(2.0 * math.e * total / (len(window) - first) + 1.0)


@compiled
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


@compiled
def choose_kind(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, sample: Sample) -> None:
    """Set the registers that say what bytes are, from those that were read last."""
    n = min(registers[N_READ], WINDOW)
    window = np.empty(n, dtype=np.int32)
    for t in range(n):
        window[t] = byte_back(tables.symbols, recent, registers[POSITION], registers[N_READ], n - t)
    look(window, sample.found)
    registers[KIND], registers[STRIDE], registers[ROW] = sample.found[0], sample.found[1], sample.found[2]
    registers[ALIGNMENT] = (registers[N_READ] - sample.found[3]) & 1


@compiled
def byte_back(symbols: np.ndarray, recent: np.ndarray, position: int, n_read: int, k: int) -> int:
    """The byte k before the next, 0 before the start of the sequence."""
    if k > n_read:
        return 0
    at = position - k
    n_trained = len(symbols)
    return int(symbols[at]) if at < n_trained else int(recent[at - n_trained])


@compiled
def word_back(symbols: np.ndarray, recent: np.ndarray, position: int, n_read: int, k: int) -> int:
    """The signed number of 16 bits whose lower byte is k before the next."""
    low = byte_back(symbols, recent, position, n_read, k)
    word = low | (byte_back(symbols, recent, position, n_read, k - 1) << 8)
    return word - 65536 if word > 32767 else word


@compiled
def expect(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, sample: Sample) -> None:
    """Set what is expected of the next byte."""
    kind = registers[KIND]
    sample.what[0] = kind
    if kind == BYTES:
        _expect_byte(tables, registers, recent, sample)
    elif kind == WORDS:
        _expect_word(tables, registers, recent, sample)


@compiled
def _expect_byte(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, sample: Sample) -> None:
    symbols, position, n_read = tables.symbols, int(registers[POSITION]), int(registers[N_READ])
    s, row = int(registers[STRIDE]), int(registers[ROW])
    phase = n_read % s
    f = sample.features
    left = byte_back(symbols, recent, position, n_read, s)
    second_left = byte_back(symbols, recent, position, n_read, 2 * s)
    last = byte_back(symbols, recent, position, n_read, 1)
    f[0], f[1], f[2] = left, second_left, byte_back(symbols, recent, position, n_read, 3 * s)
    if row > 0:
        up = byte_back(symbols, recent, position, n_read, row)
        up_left = byte_back(symbols, recent, position, n_read, row + s)
        up_right = byte_back(symbols, recent, position, n_read, row - s)
        f[3], f[4], f[5] = up, up_left, up_right
        f[6] = byte_back(symbols, recent, position, n_read, row + 2 * s)
        f[7] = byte_back(symbols, recent, position, n_read, row - 2 * s)
        f[8] = byte_back(symbols, recent, position, n_read, 2 * row)
        f[9] = byte_back(symbols, recent, position, n_read, 2 * row + s)
        f[10] = byte_back(symbols, recent, position, n_read, 2 * row - s)
        if s > 1:
            for j in range(2):
                f[11 + j] = byte_back(symbols, recent, position, n_read, 1 + j)
                f[13 + j] = byte_back(symbols, recent, position, n_read, s + 1 + j)
                f[15 + j] = byte_back(symbols, recent, position, n_read, row + 1 + j)
                f[17 + j] = byte_back(symbols, recent, position, n_read, row - 1 - j)
                f[19 + j] = byte_back(symbols, recent, position, n_read, row + s + 1 + j)
        else:
            for j in range(5):
                f[11 + j] = byte_back(symbols, recent, position, n_read, 2 * row - 2 + 4 * (j & 1) + (j >> 1))
                f[16 + j] = byte_back(symbols, recent, position, n_read, row + 3 + j if j < 2 else row - 1 - j)
        f[21] = byte_back(symbols, recent, position, n_read, 3 * row)
        f[22] = byte_back(symbols, recent, position, n_read, 4 * s)
        activity = (abs(left - up_left) + abs(up - up_left) + abs(up - up_right) + abs(left - second_left)) / 4.0
        gradient = left + up - up_left
        simple = min(max(gradient, min(left, up)), max(left, up))
    else:
        for j in range(3, N_FEATURES - 1):
            f[j] = byte_back(symbols, recent, position, n_read, j - 2 if j < 3 + s else (j - 3 - s) + 3 * s + 1)
        up, up_left, up_right = second_left, second_left, second_left
        activity = (abs(left - second_left) + abs(second_left - f[2])) / 2.0
        simple = left
    f[N_FEATURES - 1] = 16.0
    level = of_level(activity)
    level_before = of_level((registers[ERROR + phase] / 16.0 + registers[LAST_ERROR]) / 2.0)
    _set_experts(tables, sample, phase, level, level_before, simple, 0.0, 255.0)
    fast, slow = int(sample.means[0] + 0.5), int(sample.means[1] + 0.5)
    h = sample.hashes
    h[0] = combined(combined(1, fast), level_before)
    h[1] = combined(combined(2, slow), last)
    h[2] = combined(combined(3, simple), level)
    h[3] = combined(combined(4, left), up)
    h[4] = combined(combined(5, left), last)
    h[5] = combined(combined(6, up), last)
    h[6] = combined(combined(7, fast), (left - up) >> 3)
    h[7] = combined(combined(8, up), up_right)
    h[8] = combined(combined(combined(9, fast >> 1), simple >> 2), level)
    h[9] = combined(combined(10, left), second_left)
    h[10] = combined(combined(combined(11, fast >> 2), left >> 3), up >> 3)
    for j in range(N_SAMPLE_CONTEXTS):
        h[j] = combined(h[j], phase)


@compiled
def _expect_word(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, sample: Sample) -> None:
    symbols, position, n_read = tables.symbols, int(registers[POSITION]), int(registers[N_READ])
    at = n_read - int(registers[ALIGNMENT])
    is_high = at & 1
    phase = (at >> 1) % (int(registers[STRIDE]) >> 1)
    f = sample.features
    for j in range(N_FEATURES - 1):
        f[j] = word_back(symbols, recent, position, n_read, 2 * (j + 1) + is_high)
    f[N_FEATURES - 1] = 16.0
    low_byte = byte_back(symbols, recent, position, n_read, 1) if is_high else 0
    level = of_level(registers[ERROR + phase] / 16.0)
    level_before = of_level(registers[SLOW_ERROR + phase] / 16.0)
    sample.what[2], sample.what[3] = is_high, low_byte
    _set_experts(tables, sample, phase, level, level_before, 2.0 * f[0] - f[1], -32768.0, 32767.0)
    fast, slow = int(math.floor(sample.means[0] + 0.5)), int(math.floor(sample.means[1] + 0.5))
    simple, last, second = int(sample.means[2]), int(f[0]), int(f[1])
    h = sample.hashes
    if is_high:
        nearest = (fast - low_byte + 128) >> 8
        h[0] = combined(combined(1, nearest & 255), ((fast - low_byte) & 255) >> 3)
        h[1] = combined(combined(combined(2, nearest & 255), ((fast - low_byte) & 255) >> 5), level)
        h[2] = combined(combined(3, ((slow - low_byte + 128) >> 8) & 255), ((slow - low_byte) & 255) >> 4)
        h[3] = combined(combined(4, (last >> 8) & 255), low_byte)
        h[4] = combined(combined(5, (last >> 8) & 255), (second >> 8) & 255)
        h[5] = combined(combined(6, (last >> 4) & 4095), low_byte >> 6)
        h[6] = combined(combined(7, ((simple - low_byte + 128) >> 8) & 255), ((simple - low_byte) & 255) >> 5)
        h[7] = combined(combined(8, nearest & 255), level_before)
        h[8] = combined(combined(9, low_byte), nearest & 255)
        h[9] = combined(combined(10, (fast >> 8) & 255), low_byte >> 4)
        h[10] = combined(combined(11, (slow >> 8) & 255), low_byte >> 4)
    else:
        h[0] = combined(1, fast & 65535)
        h[1] = combined(combined(2, (fast & 255) >> 1), level)
        h[2] = combined(3, slow & 65535)
        h[3] = combined(4, last & 65535)
        h[4] = combined(combined(5, (last >> 3) & 8191), (second >> 4) & 4095)
        h[5] = combined(combined(6, (fast >> 2) & 63), level)
        h[6] = combined(7, (simple >> 1) & 32767)
        h[7] = combined(combined(8, (slow & 255) >> 2), level_before)
        h[8] = combined(combined(9, fast & 255), level >> 1)
        h[9] = combined(combined(10, (fast & 255) >> 2), (slow & 255) >> 2)
        h[10] = combined(combined(11, (last & 255) >> 2), (second & 255) >> 2)
    for j in range(N_SAMPLE_CONTEXTS):
        h[j] = combined(h[j], 16 + 2 * phase + is_high)


@compiled
def _set_experts(
    tables: MixingTables,
    sample: Sample,
    phase: int,
    level: int,
    level_before: int,
    simple: float,
    least: float,
    largest: float,
) -> None:
    """Set means and scales: those of the fits, and of a simple prediction."""
    sample.what[1], sample.what[4], sample.what[5] = phase, level, level_before
    for e in range(N_EXPERTS):
        mean = expected_number(sample.features, tables, e, phase) if e < len(FORGETTING) else simple
        sample.means[e] = max(least, min(largest, mean))
        error = tables.floats[error_at(tables.sample_errors_at, e, phase, level, level_before)]
        sample.inverses[e] = 2.0 * math.log(2.0) / max(LEAST_ERROR, error)


@compiled
def is_number_whole(sample: Sample) -> bool:
    """Whether the byte ends a number."""
    return sample.what[0] == BYTES or (sample.what[0] == WORDS and sample.what[2] == 1)


@compiled
def number_of(sample: Sample, byte: int) -> float:
    """The number that a byte ends."""
    if sample.what[0] == BYTES:
        return float(byte)
    word = sample.what[3] | (byte << 8)
    return float(word - 65536 if word > 32767 else word)


@compiled
def note_error(registers: np.ndarray, sample: Sample, byte: int) -> None:
    """Set the registers of errors, where a number is whole."""
    if not is_number_whole(sample) or byte > 255:
        return
    error = int(abs(number_of(sample, byte) - sample.means[0]))
    phase = sample.what[1]
    registers[LAST_ERROR] = error
    registers[ERROR + phase] += (16 * error - registers[ERROR + phase]) >> 2
    registers[SLOW_ERROR + phase] += (16 * error - registers[SLOW_ERROR + phase]) >> 5


@compiled
def learn_number(
    tables: MixingTables, registers: np.ndarray, sample: Sample, byte: int, log: UndoLog, is_logged: bool
) -> None:
    """Errors and fits, where a number is whole."""
    if not is_number_whole(sample) or byte > 255:
        return
    number, phase = number_of(sample, byte), sample.what[1]
    for e in range(N_EXPERTS):
        at = error_at(tables.sample_errors_at, e, phase, sample.what[4], sample.what[5])
        if is_logged:
            keep_floats(log, tables, at, 1)
        tables.floats[at] += (abs(number - sample.means[e]) - tables.floats[at]) * ERROR_RATE
    for fit in range(len(FORGETTING)):
        if is_logged:
            keep_floats(log, tables, squares_start(tables.samples_at, fit, phase), N_FEATURES * (N_FEATURES + 2))
        update_fit(tables, fit, phase, sample.features, number)
        if (registers[N_READ] // registers[STRIDE]) % SOLVED_EVERY == 0:
            solve_fit(tables, fit, phase, sample.factor)


@compiled
def of_level(x: float) -> int:
    """A size as one of ``N_LEVELS_OF_ERROR``."""
    return min(N_LEVELS_OF_ERROR - 1, int(2.0 * math.log2(1.0 + x)))


@compiled
def expected_number(features: np.ndarray, tables: MixingTables, fit: int, phase: int) -> float:
    """The prediction of one of the fits."""
    start = weights_start(tables.samples_at, fit, phase)
    floats = tables.floats
    total = 0.0
    for j in range(N_FEATURES):
        total += features[j] * floats[start + j]
    return total


@compiled
def squares_start(samples_at: int, fit: int, phase: int) -> int:
    """Where the sums of squares of a fit begin in ``floats``; its products with the number follow."""
    return samples_at + (fit * MAX_PHASES + phase) * N_FEATURES * (N_FEATURES + 2)


@compiled
def weights_start(samples_at: int, fit: int, phase: int) -> int:
    """Where the weights of a fit begin in ``floats``."""
    return squares_start(samples_at, fit, phase) + N_FEATURES * (N_FEATURES + 1)


@compiled
def error_at(sample_errors_at: int, expert: int, phase: int, level: int, level_before: int) -> int:
    """Where the mean error of an expert at a level is in ``floats``."""
    cell = ((expert * MAX_PHASES + phase) * N_LEVELS_OF_ERROR + level) * N_LEVELS_OF_ERROR + level_before
    return sample_errors_at + cell


@compiled
def update_fit(tables: MixingTables, fit: int, phase: int, features: np.ndarray, number: float) -> None:
    """Add a number to the sums of squares of a fit, of which the lower triangle is kept."""
    start = squares_start(tables.samples_at, fit, phase)
    keep, floats = FORGETTING[fit], tables.floats
    products = start + N_FEATURES * N_FEATURES
    for i in range(N_FEATURES):
        row = start + i * N_FEATURES
        x = (1.0 - keep) * features[i]
        for j in range(i + 1):
            floats[row + j] = keep * floats[row + j] + x * features[j]
        floats[products + i] = keep * floats[products + i] + x * number


@compiled
def solve_fit(tables: MixingTables, fit: int, phase: int, factor: np.ndarray) -> None:
    """Set the weights of a fit to the solution of its normal equations, by Cholesky's factors ``(F, F)``."""
    floats = tables.floats
    start = squares_start(tables.samples_at, fit, phase)
    products = start + N_FEATURES * N_FEATURES
    weights = products + N_FEATURES
    for i in range(N_FEATURES):
        for j in range(i + 1):
            total = floats[start + i * N_FEATURES + j]
            if i == j:
                total += SHRINKAGE * (1.0 - FORGETTING[fit])
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i == j:
                if total <= 1e-9:
                    return
                factor[i, i] = math.sqrt(total)
            else:
                factor[i, j] = total / factor[j, j]
    for i in range(N_FEATURES):
        total = floats[products + i]
        for k in range(i):
            total -= factor[i, k] * floats[weights + k]
        floats[weights + i] = total / factor[i, i]
    for i in range(N_FEATURES - 1, -1, -1):
        total = floats[weights + i]
        for k in range(i + 1, N_FEATURES):
            total -= factor[k, i] * floats[weights + k]
        floats[weights + i] = total / factor[i, i]


@compiled
def below(logistic: np.ndarray, x: float) -> float:
    """The logistic distribution function, from its table."""
    place = (max(-LOGISTIC_LIMIT, min(LOGISTIC_LIMIT, x)) + LOGISTIC_LIMIT) * LOGISTIC_POINTS
    point = int(place)
    low = logistic[point]
    return low + (place - point) * (logistic[point + 1] - low)


@compiled
def density(x: float) -> float:
    """The logistic density."""
    e = math.exp(-min(abs(x), 40.0))
    return e / ((1.0 + e) * (1.0 + e))


@compiled
def shares_of_byte(logistic: np.ndarray, node: int, bit: int, mean: float, inverse: float) -> tuple[float, float]:
    """Of the bytes below the left branch of a node, and the right one; what is beyond 0 and 255 goes to these."""
    width = 256 >> bit
    first = (node << (8 - bit)) & 255
    low = 0.0 if first == 0 else below(logistic, (first - 0.5 - mean) * inverse)
    middle = below(logistic, (first + width // 2 - 0.5 - mean) * inverse)
    high = 1.0 if first + width == 256 else below(logistic, (first + width - 0.5 - mean) * inverse)
    return middle - low, high - middle


@compiled
def shares_of_low_byte(logistic: np.ndarray, node: int, bit: int, mean: float, inverse: float) -> tuple[float, float]:
    """Of the numbers of 16 bits whose lower byte is below the left branch, and the right one."""
    if inverse < 1.0 / WIDE:
        return 0.5, 0.5
    width = 256 >> bit
    first = (node << (8 - bit)) & 255
    nearest = int(math.floor(mean / 256.0))
    n_beside = 1 + int(6.0 / (inverse * 256.0))
    zero, one = 0.0, 0.0
    for high in range(nearest - n_beside, nearest + n_beside + 1):
        start = 256.0 * high + first - 0.5 - mean
        middle = below(logistic, (start + width // 2) * inverse)
        zero += middle - below(logistic, start * inverse)
        one += below(logistic, (start + width) * inverse) - middle
    return zero, one


@compiled
def shares_of_high_byte(
    logistic: np.ndarray, node: int, bit: int, low_byte: int, mean: float, inverse: float
) -> tuple[float, float]:
    """Of the numbers whose lower byte is known, those whose higher byte is below the left branch, and the right one."""
    width = 256 >> bit
    first = (node << (8 - bit)) & 255
    if bit == 0:  # numbers from 0 on, and those below
        return (
            share_of_high_bytes(logistic, 0, 128, low_byte, mean, inverse),
            share_of_high_bytes(logistic, -128, 0, low_byte, mean, inverse),
        )
    if first >= 128:
        first -= 256
    middle = first + width // 2
    return (
        share_of_high_bytes(logistic, first, middle, low_byte, mean, inverse),
        share_of_high_bytes(logistic, middle, first + width, low_byte, mean, inverse),
    )


@compiled
def share_of_high_bytes(
    logistic: np.ndarray, first: int, end: int, low_byte: int, mean: float, inverse: float
) -> float:
    """Of signed higher bytes from ``first`` to before ``end``, the sum of the densities, or nearly so its integral."""
    if inverse < 1.0 / WIDE:
        return below(logistic, (256.0 * end + low_byte - 128.0 - mean) * inverse) - below(
            logistic, (256.0 * first + low_byte - 128.0 - mean) * inverse
        )
    nearest = int(math.floor((mean - low_byte) / 256.0 + 0.5))
    total = 0.0
    for high in range(max(first, nearest - 3), min(end, nearest + 4)):
        total += density((256.0 * high + low_byte - mean) * inverse)
    return total * 256.0 * inverse


@compiled
def set_inputs(
    logistic: np.ndarray,
    what: np.ndarray,
    mean: float,
    inverse: float,
    node: int,
    bit: int,
    inputs: np.ndarray,
    at: int,
) -> None:
    """Set what an expert says of a decision: ``log(p / (1 - p))``, and ``p - 1/2`` in a scale of its own."""
    if what[0] == BYTES:
        zero, one = shares_of_byte(logistic, node, bit, mean, inverse)
    elif what[2] == 1:
        zero, one = shares_of_high_byte(logistic, node, bit, what[3], mean, inverse)
    else:
        zero, one = shares_of_low_byte(logistic, node, bit, mean, inverse)
    zero += FLOOR
    one += FLOOR
    inputs[at] = math.log(one / zero)
    inputs[at + 1] = (one / (one + zero) - 0.5) * CONFIDENCE_SCALE

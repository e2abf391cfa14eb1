"""Prediction of bytes that are numbers: samples of a picture or of sound, by least squares from nearby samples.

The bytes read so far determine whether bytes are numbers, how far apart the samples of one channel are (the stride),
and how long a row is. Three experts, two least-squares fits and a simple rule, each predict a mean ``m``; m and the
size of earlier errors define a logistic distribution of the sample. Its log-odds for a binary decision are an input of
the mixer, like the input of a context. The phase of a number is its place within the stride; error sizes are grouped
into logarithmic levels.
"""

from __future__ import annotations

import math

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing.byte_layout import BYTES, WINDOW, WORDS, look
from seqmodels.counts.context_mixing.reading_state import (
    ALIGNMENT,
    ERROR,
    KIND,
    LAST_ERROR,
    LAYOUT,
    N_READ,
    POSITION,
    ROW,
    SLOW_ERROR,
    STRIDE,
    combined,
)
from seqmodels.counts.context_mixing.tables import (
    MAX_PHASES,
    N_EXPERTS,
    N_FEATURES,
    N_LEVELS_OF_ERROR,
    N_SAMPLE_CONTEXTS,
    MixingTables,
)
from seqmodels.counts.context_mixing.undo import UndoLog, keep_floats

FORGETTING = (0.998, 0.9998)  # factor of the sums of squares at each number, for each of the two fits
SHRINKAGE = 0.5  # added to the diagonal of the sums of squares
SOLVED_EVERY = 8  # numbers of a phase between two solutions
ERROR_RATE = 0.02  # rate at which the mean error of a level adapts
LEAST_ERROR = 0.2
FLOOR = 1e-5  # added to the probabilities of both outcomes
LOGISTIC_LIMIT, LOGISTIC_POINTS = 14, 128  # range of the table of 1 / (1 + exp(-x)), and its points per unit
LOGISTIC = 1 / (1 + np.exp(LOGISTIC_LIMIT - np.arange(2 * LOGISTIC_LIMIT * LOGISTIC_POINTS + 2) / LOGISTIC_POINTS))
LARGEST_LOW_BYTE_SCALE = 110.0  # at larger scales, the lower byte of a number is practically uniform

# Entries of the integer buffer of a number: its kind and position, error levels, and hashes of contexts made of it.
NUMBER_KIND, PHASE, IS_HIGH, LOW_BYTE, LEVEL, LEVEL_BEFORE, HASHES = range(7)
# Entries of its real buffer, after the features: means of the experts, then inverse scales of their distributions.
MEANS = N_FEATURES
INVERSES = MEANS + N_EXPERTS
FACTOR = INVERSES + N_EXPERTS  # room for the factor of a matrix


def new_number() -> tuple[np.ndarray, np.ndarray]:
    """Return empty buffers for the prediction of one number: its description (integers) and its expectation (reals)."""
    return np.zeros(HASHES + N_SAMPLE_CONTEXTS, dtype=np.int64), np.zeros(FACTOR + N_FEATURES * N_FEATURES)


@compiled(inner=True)
def choose_kind(tables: MixingTables, registers: np.ndarray, recent: np.ndarray) -> None:
    """Detect whether the last bytes are text, binary data or samples of a picture or sound; write it to ``registers``.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
    """
    n = min(registers[N_READ], WINDOW)
    window = np.empty(n, dtype=np.int32)
    for t in range(n):
        window[t] = byte_back(tables.symbols, recent, registers[POSITION], registers[N_READ], n - t)
    layout = np.empty(5, dtype=np.int64)
    look(window, layout)
    registers[KIND], registers[STRIDE], registers[ROW] = layout[0], layout[1], layout[2]
    registers[LAYOUT] = layout[4]
    registers[ALIGNMENT] = (registers[N_READ] - layout[3]) & 1


@compiled(allocates=False, inner=True)
def byte_back(symbols: np.ndarray, recent: np.ndarray, position: int, n_read: int, k: int) -> int:
    """Return the byte that is k places before the next byte of the sequence; 0 before its start.

    Args:
        symbols: symbols of the training sequences.
        recent: symbols of the sequence, which follow them.
        position: position of the next byte in both together.
        n_read: number of bytes of the sequence read so far.
        k: distance, 1 for the last byte.
    """
    if k > n_read:
        return 0
    at = position - k
    n_trained = len(symbols)
    return int(symbols[at]) if at < n_trained else int(recent[at - n_trained])


@compiled(allocates=False, inner=True)
def word_back(symbols: np.ndarray, recent: np.ndarray, position: int, n_read: int, k: int) -> int:
    """Return the signed 16-bit number whose lower byte is k places before the next byte of the sequence.

    Args:
        symbols: symbols of the training sequences.
        recent: symbols of the sequence, which follow them.
        position: position of the next byte in both together.
        n_read: number of bytes of the sequence read so far.
        k: distance, at least 2; 2 for the number that the last byte completes.
    """
    low = byte_back(symbols, recent, position, n_read, k)
    word = low | (byte_back(symbols, recent, position, n_read, k - 1) << 8)
    return word - 65536 if word > 32767 else word


@compiled(allocates=False, inner=True)
def expect(
    tables: MixingTables, registers: np.ndarray, recent: np.ndarray, what: np.ndarray, expected: np.ndarray
) -> None:
    """Predict the number (a sample of a picture or of sound) that the next byte is part of.

    If bytes are not numbers, only this fact is written.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        what: output: kind of number, its phase (place among the channels), levels of earlier errors, and hashes of
            contexts.
        expected: output: nearby samples (features), then the mean and the inverse scale of each expert's distribution.
    """
    kind = registers[KIND]
    what[NUMBER_KIND] = kind
    if kind == BYTES:
        _expect_byte(tables, registers, recent, what, expected)
    elif kind == WORDS:
        _expect_word(tables, registers, recent, what, expected)


@compiled(allocates=False, inner=True)
def _expect_byte(
    tables: MixingTables, registers: np.ndarray, recent: np.ndarray, what: np.ndarray, expected: np.ndarray
) -> None:
    symbols, position, n_read = tables.symbols, int(registers[POSITION]), int(registers[N_READ])
    s, row = int(registers[STRIDE]), int(registers[ROW])
    phase = n_read % s
    f = expected
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
    _set_experts(tables, what, expected, phase, level, level_before, float(simple), 0.0, 255.0)
    fast, slow = int(expected[MEANS + 0] + 0.5), int(expected[MEANS + 1] + 0.5)
    h = what[HASHES:]
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


@compiled(allocates=False, inner=True)
def _expect_word(
    tables: MixingTables, registers: np.ndarray, recent: np.ndarray, what: np.ndarray, expected: np.ndarray
) -> None:
    symbols, position, n_read = tables.symbols, int(registers[POSITION]), int(registers[N_READ])
    at = n_read - int(registers[ALIGNMENT])
    is_high = at & 1
    phase = (at >> 1) % (int(registers[STRIDE]) >> 1)
    f = expected
    for j in range(N_FEATURES - 1):
        f[j] = word_back(symbols, recent, position, n_read, 2 * (j + 1) + is_high)
    f[N_FEATURES - 1] = 16.0
    low_byte = byte_back(symbols, recent, position, n_read, 1) if is_high else 0
    level = of_level(registers[ERROR + phase] / 16.0)
    level_before = of_level(registers[SLOW_ERROR + phase] / 16.0)
    what[IS_HIGH], what[LOW_BYTE] = is_high, low_byte
    _set_experts(tables, what, expected, phase, level, level_before, 2.0 * f[0] - f[1], -32768.0, 32767.0)
    fast, slow = math.floor(expected[MEANS + 0] + 0.5), math.floor(expected[MEANS + 1] + 0.5)
    simple, last, second = int(expected[MEANS + 2]), int(f[0]), int(f[1])
    h = what[HASHES:]
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


@compiled(allocates=False, inner=True)
def _set_experts(
    tables: MixingTables,
    what: np.ndarray,
    expected: np.ndarray,
    phase: int,
    level: int,
    level_before: int,
    simple: float,
    least: float,
    largest: float,
) -> None:
    """Write the mean and the inverse scale of each expert's distribution of the next number to ``expected``.

    The experts are two least-squares fits and a simple rule.

    Args:
        tables: learned arrays of the model.
        what: output for the phase and the levels.
        expected: features of the fits, and output.
        phase: place of the number within the stride, the distance between samples of one channel.
        level, level_before: logarithmic sizes of earlier errors or nearby changes, which select the expected error.
        simple: the mean of the third expert.
        least, largest: bounds of the means.
    """
    what[PHASE], what[LEVEL], what[LEVEL_BEFORE] = phase, level, level_before
    for e in range(N_EXPERTS):
        mean = expected_number(expected, tables, e, phase) if e < len(FORGETTING) else simple
        expected[MEANS + e] = max(least, min(largest, mean))
        error = tables.floats[error_at(tables.sample_errors_at, e, phase, level, level_before)]
        expected[INVERSES + e] = 2.0 * math.log(2.0) / max(LEAST_ERROR, error)


@compiled(allocates=False, inner=True)
def is_number_whole(what: np.ndarray) -> bool:
    """Return True if the next byte completes a number: if numbers have one byte, or if it is the higher of two.

    Args:
        what: description of the number, as ``expect`` wrote it.
    """
    return bool(what[NUMBER_KIND] == BYTES or (what[NUMBER_KIND] == WORDS and what[IS_HIGH] == 1))


@compiled(allocates=False, inner=True)
def number_of(what: np.ndarray, byte: int) -> float:
    """Return the value of the number (sample) that ``byte`` completes.

    Args:
        what: description of the number, as ``expect`` wrote it: its kind and, for 16-bit numbers, its lower byte.
        byte: the byte.
    """
    if what[NUMBER_KIND] == BYTES:
        return float(byte)
    word = what[LOW_BYTE] | (byte << 8)
    return float(word - 65536 if word > 32767 else word)


@compiled(allocates=False, inner=True)
def note_error(registers: np.ndarray, what: np.ndarray, expected: np.ndarray, byte: int) -> None:
    """Update the running mean errors of predicted numbers in ``registers`` if ``byte`` completes a number.

    Args:
        registers: integers that describe the sequence so far, which are changed.
        what, expected: description and prediction of the number, as ``expect`` wrote them.
        byte: the byte that came.
    """
    if not is_number_whole(what) or byte > 255:
        return
    error = int(abs(number_of(what, byte) - expected[MEANS + 0]))
    phase = what[PHASE]
    registers[LAST_ERROR] = error
    registers[ERROR + phase] += (16 * error - registers[ERROR + phase]) >> 2
    registers[SLOW_ERROR + phase] += (16 * error - registers[SLOW_ERROR + phase]) >> 5


@compiled(allocates=False, inner=True)
def learn_number(
    tables: MixingTables,
    registers: np.ndarray,
    what: np.ndarray,
    expected: np.ndarray,
    byte: int,
    log: UndoLog,
    is_logged: bool,
) -> None:
    """Update the least-squares fits and the mean errors of all experts if ``byte`` completes a number.

    The experts, two fits and a simple rule, each predict the number.

    Args:
        tables: learned arrays of the model, which are changed.
        registers: integers that describe the sequence so far.
        what, expected: description and prediction of the number, as ``expect`` wrote them.
        byte: the byte that came.
        log, is_logged: log in which changed numbers are saved first if ``is_logged`` is True.
    """
    if not is_number_whole(what) or byte > 255:
        return
    number, phase = number_of(what, byte), what[PHASE]
    for e in range(N_EXPERTS):
        at = error_at(tables.sample_errors_at, e, phase, what[LEVEL], what[LEVEL_BEFORE])
        if is_logged:
            keep_floats(log, tables.floats, at, 1)
        tables.floats[at] += (abs(number - expected[MEANS + e]) - tables.floats[at]) * ERROR_RATE
    for fit in range(len(FORGETTING)):
        if is_logged:
            keep_floats(log, tables.floats, squares_start(tables.samples_at, fit, phase), N_FEATURES * (N_FEATURES + 2))
        update_fit(tables, fit, phase, expected, number)
        if (registers[N_READ] // registers[STRIDE]) % SOLVED_EVERY == 0:
            solve_fit(tables, fit, phase, expected[FACTOR:])


@compiled(allocates=False, inner=True)
def of_level(x: float) -> int:
    """Return the logarithmic level of an error size, an integer from 0 to ``N_LEVELS_OF_ERROR - 1``.

    Args:
        x: the error size, 0 or more.
    """
    return min(N_LEVELS_OF_ERROR - 1, int(2.0 * math.log2(1.0 + x)))


@compiled(allocates=False)
def expected_number(features: np.ndarray, tables: MixingTables, fit: int, phase: int) -> float:
    """Return the prediction ``features · weights`` of one least-squares fit.

    Args:
        features: nearby samples, ``(N_FEATURES,)``.
        tables: learned arrays of the model, with the weights.
        fit: number of the fit, 0 or 1.
        phase: place of the number within the stride, the distance between samples of one channel.
    """
    start = weights_start(tables.samples_at, fit, phase)
    floats = tables.floats
    total = 0.0
    for j in range(N_FEATURES):
        total += features[j] * floats[start + j]
    return total


@compiled(allocates=False, inner=True)
def squares_start(samples_at: int, fit: int, phase: int) -> int:
    """Return the index in ``tables.floats`` of the sums of squares XᵀX of one least-squares fit; Xᵀy follows them.

    Args:
        samples_at: index of the first fit.
        fit: number of the fit, 0 or 1.
        phase: place of a number within the stride, the distance between samples of one channel.
    """
    return samples_at + (fit * MAX_PHASES + phase) * N_FEATURES * (N_FEATURES + 2)


@compiled(allocates=False)
def weights_start(samples_at: int, fit: int, phase: int) -> int:
    """Return the index in ``tables.floats`` of the weights of one least-squares fit.

    Args:
        samples_at: index of the first fit.
        fit: number of the fit, 0 or 1.
        phase: place of a number within the stride, the distance between samples of one channel.
    """
    return squares_start(samples_at, fit, phase) + N_FEATURES * (N_FEATURES + 1)


@compiled(allocates=False, inner=True)
def error_at(sample_errors_at: int, expert: int, phase: int, level: int, level_before: int) -> int:
    """Return the index in ``tables.floats`` of the mean error of an expert (one of three predictors of numbers).

    Args:
        sample_errors_at: index of the first mean error.
        expert: number of the expert.
        phase: place of a number within the stride, the distance between samples of one channel.
        level, level_before: logarithmic sizes of earlier errors or nearby changes.
    """
    cell = ((expert * MAX_PHASES + phase) * N_LEVELS_OF_ERROR + level) * N_LEVELS_OF_ERROR + level_before
    return sample_errors_at + cell


@compiled(allocates=False)
def update_fit(tables: MixingTables, fit: int, phase: int, features: np.ndarray, number: float) -> None:
    """Add a number and its features to the sums of squares (lower triangle only) of one least-squares fit.

    Earlier numbers are multiplied by a factor below one first, so that they are gradually forgotten.

    Args:
        tables: learned arrays of the model, which are changed.
        fit: number of the fit, 0 or 1.
        phase: place of the number within the stride, the distance between samples of one channel.
        features: nearby samples, from which the number is predicted, ``(N_FEATURES,)``.
        number: the number.
    """
    start = squares_start(tables.samples_at, fit, phase)
    keep, floats = FORGETTING[fit], tables.floats
    products = start + N_FEATURES * N_FEATURES
    for i in range(N_FEATURES):
        row = start + i * N_FEATURES
        x = (1.0 - keep) * features[i]
        for j in range(i + 1):
            floats[row + j] = keep * floats[row + j] + x * features[j]
        floats[products + i] = keep * floats[products + i] + x * number


@compiled(allocates=False)
def solve_fit(tables: MixingTables, fit: int, phase: int, factor: np.ndarray) -> None:
    """Solve the normal equations of one least-squares fit by a Cholesky factorisation, and store its weights.

    The weights stay as they are if the matrix is not positive definite.

    Args:
        tables: learned arrays of the model, which are changed.
        fit: number of the fit, 0 or 1.
        phase: place of the numbers within the stride, the distance between samples of one channel.
        factor: buffer, ``(F * F,)``, where F is the number of features.
    """
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
                total -= factor[i * N_FEATURES + k] * factor[j * N_FEATURES + k]
            if i == j:
                if total <= 1e-9:
                    return
                factor[i * N_FEATURES + i] = math.sqrt(total)
            else:
                factor[i * N_FEATURES + j] = total / factor[j * N_FEATURES + j]
    for i in range(N_FEATURES):
        total = floats[products + i]
        for k in range(i):
            total -= factor[i * N_FEATURES + k] * floats[weights + k]
        floats[weights + i] = total / factor[i * N_FEATURES + i]
    for i in range(N_FEATURES - 1, -1, -1):
        total = floats[weights + i]
        for k in range(i + 1, N_FEATURES):
            total -= factor[k * N_FEATURES + i] * floats[weights + k]
        floats[weights + i] = total / factor[i * N_FEATURES + i]


@compiled(allocates=False, inner=True)
def below(x: float) -> float:
    """Return ``1 / (1 + exp(-x))``, the logistic distribution function, interpolated in a table."""
    place = (max(-LOGISTIC_LIMIT, min(LOGISTIC_LIMIT, x)) + LOGISTIC_LIMIT) * LOGISTIC_POINTS
    point = int(place)
    low = float(LOGISTIC[point])
    return low + (place - point) * (float(LOGISTIC[point + 1]) - low)


@compiled(allocates=False, inner=True)
def density(x: float) -> float:
    """Return the logistic density ``exp(-x) / (1 + exp(-x))²``."""
    e = math.exp(-min(abs(x), 40.0))
    return e / ((1.0 + e) * (1.0 + e))


@compiled(allocates=False, inner=True)
def shares_of_byte(node: int, bit: int, mean: float, inverse: float) -> tuple[float, float]:
    """Return the probabilities that a byte lies below the left (bit 0) and the right branch of a node.

    The byte is a logistic variable; probability beyond 0 and 255 is given to these two values.

    Args:
        node, bit: node of the tree, and its depth.
        mean, inverse: mean and inverse scale of the logistic distribution.
    """
    width = 256 >> bit
    first = (node << (8 - bit)) & 255
    low = 0.0 if first == 0 else below((first - 0.5 - mean) * inverse)
    middle = below((first + width // 2 - 0.5 - mean) * inverse)
    high = 1.0 if first + width == 256 else below((first + width - 0.5 - mean) * inverse)
    return middle - low, high - middle


@compiled(allocates=False, inner=True)
def shares_of_low_byte(node: int, bit: int, mean: float, inverse: float) -> tuple[float, float]:
    """Return the probabilities that the lower byte of a 16-bit number is below the left and the right branch of a node.

    The number is a logistic variable.

    Args:
        node, bit: node of the tree of the byte's bits, and its depth.
        mean, inverse: mean and inverse scale of the logistic distribution.
    """
    if inverse < 1.0 / LARGEST_LOW_BYTE_SCALE:
        return 0.5, 0.5
    width = 256 >> bit
    first = (node << (8 - bit)) & 255
    nearest = math.floor(mean / 256.0)
    n_beside = 1 + int(6.0 / (inverse * 256.0))
    zero, one = 0.0, 0.0
    for high in range(nearest - n_beside, nearest + n_beside + 1):
        start = 256.0 * high + first - 0.5 - mean
        middle = below((start + width // 2) * inverse)
        zero += middle - below(start * inverse)
        one += below((start + width) * inverse) - middle
    return zero, one


@compiled(allocates=False, inner=True)
def shares_of_high_byte(node: int, bit: int, low_byte: int, mean: float, inverse: float) -> tuple[float, float]:
    """Return unnormalised probabilities that the higher byte of a 16-bit number is below each branch of a node.

    The number is a logistic variable. The branch of bit 0 comes first.

    Args:
        node, bit: node of the tree of the byte's bits, and its depth.
        low_byte: lower byte of the number, which is known.
        mean, inverse: mean and inverse scale of the logistic distribution.
    """
    width = 256 >> bit
    first = (node << (8 - bit)) & 255
    if bit == 0:  # numbers from 0 on, and those below
        return (
            share_of_high_bytes(0, 128, low_byte, mean, inverse),
            share_of_high_bytes(-128, 0, low_byte, mean, inverse),
        )
    if first >= 128:
        first -= 256
    middle = first + width // 2
    return (
        share_of_high_bytes(first, middle, low_byte, mean, inverse),
        share_of_high_bytes(middle, first + width, low_byte, mean, inverse),
    )


@compiled(allocates=False, inner=True)
def share_of_high_bytes(first: int, end: int, low_byte: int, mean: float, inverse: float) -> float:
    """Return the sum of the logistic density of 16-bit numbers with a known lower byte and a higher byte in a range.

    For large scales the sum is approximated by an integral.

    Args:
        first, end: range of the signed higher byte, from ``first`` to ``end - 1``.
        low_byte: lower byte of the number.
        mean, inverse: mean and inverse scale of the logistic distribution.
    """
    if inverse < 1.0 / LARGEST_LOW_BYTE_SCALE:
        return below((256.0 * end + low_byte - 128.0 - mean) * inverse) - below(
            (256.0 * first + low_byte - 128.0 - mean) * inverse
        )
    nearest = math.floor((mean - low_byte) / 256.0 + 0.5)
    total = 0.0
    for high in range(max(first, nearest - 3), min(end, nearest + 4)):
        total += density((256.0 * high + low_byte - mean) * inverse)
    return total * 256.0 * inverse


@compiled(allocates=False)
def set_input(
    what: np.ndarray, expected: np.ndarray, expert: int, node: int, bit: int, inputs: np.ndarray, at: int
) -> None:
    """Write the log-odds of the decision at a node under one expert's distribution of the number to ``inputs[at]``.

    Args:
        what, expected: description and prediction of the number (sample), as ``expect`` wrote them.
        expert: number of the expert, one of three predictors of numbers.
        node, bit: node of the tree of the byte's bits, and its depth.
        inputs: output, the inputs of the mixers.
        at: index in ``inputs``.
    """
    mean, inverse = expected[MEANS + expert], expected[INVERSES + expert]
    if what[NUMBER_KIND] == BYTES:
        zero, one = shares_of_byte(node, bit, mean, inverse)
    elif what[IS_HIGH] == 1:
        zero, one = shares_of_high_byte(node, bit, what[LOW_BYTE], mean, inverse)
    else:
        zero, one = shares_of_low_byte(node, bit, mean, inverse)
    inputs[at] = math.log((one + FLOOR) / (zero + FLOOR))

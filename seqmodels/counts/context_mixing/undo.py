"""A log of the numbers in the tables before a sequence changed them, so that steps of the sequence can be taken
back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing.reading_state import N_REGISTERS
from seqmodels.counts.context_mixing.tables import BUCKET, MixingTables

# Entries of ``UndoLog.used``: the number of saved items of each kind, and 1 if a change was not saved.
STEPS, BUCKETS, RANGES, FLOATS, INTEGERS, IS_INCOMPLETE = range(6)
N_USED = 6


class UndoLog(NamedTuple):
    """The values that learning has overwritten since the start of a sequence, in the order of the changes.

    Attributes:
        used: numbers of saved steps, buckets, ranges, floats and integers, and 1 if a change was not saved, ``(6,)``.
        marks: the first five of these before each step, ``(steps, 5)``.
        registers: registers (integers that describe the sequence) before each step, ``(steps, N_REGISTERS)``.
        bucket: index of each saved bucket, a hash-table slot of counters.
        bucket_values: its counters, ``(., 8)``.
        range_start: index in ``tables.floats`` of the first number of each saved range.
        range_length: number of floats in each range.
        floats: the floats of all ranges.
        integer_at: index in ``tables.integers`` of each saved integer.
        integer_values: its value.
    """

    used: np.ndarray
    marks: np.ndarray
    registers: np.ndarray
    bucket: np.ndarray
    bucket_values: np.ndarray
    range_start: np.ndarray
    range_length: np.ndarray
    floats: np.ndarray
    integer_at: np.ndarray
    integer_values: np.ndarray


def new_log(n_steps: int, per_step: tuple[int, int, int, int]) -> UndoLog:
    """Return an empty log with room for the changes of ``n_steps`` steps, each of which reads one symbol.

    Args:
        n_steps: number of steps.
        per_step: largest numbers of hash-table slots, ranges of floats, floats and integers that may change in a step.
    """
    n_buckets, n_ranges, n_floats, n_integers = (n_steps * n for n in per_step)
    return UndoLog(
        np.zeros(N_USED, dtype=np.int64),
        np.empty((n_steps, N_USED - 1), dtype=np.int64),
        np.empty((n_steps, N_REGISTERS), dtype=np.int64),
        np.empty(n_buckets, dtype=np.int64),
        np.empty((n_buckets, BUCKET), dtype=np.int32),
        np.empty(n_ranges, dtype=np.int64),
        np.empty(n_ranges, dtype=np.int64),
        np.empty(n_floats),
        np.empty(n_integers, dtype=np.int64),
        np.empty(n_integers, dtype=np.int64),
    )


@compiled(allocates=False, inner=True)
def begin_step(log: UndoLog, registers: np.ndarray) -> bool:
    """Mark the start of a step in the log and return True; return False if there is no room.

    After the first False nothing more is saved.

    Args:
        log: log of the numbers that learning overwrites.
        registers: integers that describe the sequence, which are saved.
    """
    step = log.used[STEPS]
    if log.used[IS_INCOMPLETE] > 0 or step == len(log.marks):
        log.used[IS_INCOMPLETE] = 1
        return False
    for j in range(N_USED - 1):
        log.marks[step, j] = log.used[j]
    for j in range(len(registers)):
        log.registers[step, j] = registers[j]
    log.used[STEPS] = step + 1
    return True


@compiled(allocates=False, inner=True)
def keep_bucket(log: UndoLog, counters: np.ndarray, bucket: int) -> None:
    """Save the counters of one hash-table slot (bucket) in the log, before they change.

    Args:
        log: log of the numbers that learning overwrites.
        counters: counters of all slots.
        bucket: index of the slot.
    """
    n = log.used[BUCKETS]
    log.bucket[n] = bucket
    for j in range(BUCKET):
        log.bucket_values[n, j] = counters[bucket * BUCKET + j]
    log.used[BUCKETS] = n + 1


@compiled(allocates=False, inner=True)
def keep_floats(log: UndoLog, floats: np.ndarray, start: int, length: int) -> None:
    """Save ``length`` numbers from index ``start`` on of the array ``tables.floats`` in the log, before they change."""
    n, m = log.used[RANGES], log.used[FLOATS]
    log.range_start[n] = start
    log.range_length[n] = length
    for j in range(length):
        log.floats[m + j] = floats[start + j]
    log.used[RANGES] = n + 1
    log.used[FLOATS] = m + length


@compiled(allocates=False, inner=True)
def keep_integer(log: UndoLog, integers: np.ndarray, at: int) -> None:
    """Save the number at index ``at`` of the array ``tables.integers`` in the log, before it changes."""
    n = log.used[INTEGERS]
    log.integer_at[n] = at
    log.integer_values[n] = integers[at]
    log.used[INTEGERS] = n + 1


@compiled(allocates=False)
def roll_back(log: UndoLog, tables: MixingTables, registers: np.ndarray, step: int) -> None:
    """Restore the model's arrays and the description of the sequence to what they were before one of the logged steps.

    Args:
        log: log of the numbers that learning has overwritten.
        tables: learned arrays of the model, which are changed.
        registers: integers that describe the sequence, which are changed.
        step: number of the step, which must be in the log, or the number of logged steps to change nothing.
    """
    if step == log.used[STEPS]:
        return
    for n in range(log.used[BUCKETS] - 1, log.marks[step, BUCKETS] - 1, -1):
        for j in range(BUCKET):
            tables.counters[log.bucket[n] * BUCKET + j] = log.bucket_values[n, j]
    m = log.used[FLOATS]
    for n in range(log.used[RANGES] - 1, log.marks[step, RANGES] - 1, -1):
        m -= log.range_length[n]
        for j in range(log.range_length[n]):
            tables.floats[log.range_start[n] + j] = log.floats[m + j]
    for n in range(log.used[INTEGERS] - 1, log.marks[step, INTEGERS] - 1, -1):
        tables.integers[log.integer_at[n]] = log.integer_values[n]
    for j in range(len(registers)):
        registers[j] = log.registers[step, j]
    for j in range(N_USED - 1):
        log.used[j] = log.marks[step, j]

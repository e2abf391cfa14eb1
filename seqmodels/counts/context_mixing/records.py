"""Contexts for bytes that are neither text nor samples: records, whose length is detected, and machine instructions.

The contexts of records are the bytes one and two records before, and the place in the record. Instructions vary in
length and in the bits that name machine registers, so their contexts leave out some bits of the last bytes.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing import tables as tables_
from seqmodels.counts.context_mixing.reading_state import N_READ, PERIOD, POSITION, RECENT, combined, symbol_at
from seqmodels.counts.context_mixing.tables import MixingTables

CHOSEN_EVERY = 512  # bytes between two searches for the length of a record
WINDOW = 768  # number of last bytes that are searched
LARGEST_PERIOD = 64
ALIKE_SHARE = 16  # at least one byte in this many of the window must be equal, else there are no records


@compiled(allocates=False)
def choose_period(tables: MixingTables, registers: np.ndarray, recent: np.ndarray) -> None:
    """Detect the length of a record (a row of fixed length in bytes), and write it to ``registers``.

    It is the distance, from 2 to 64, at which most of the last bytes are equal, without repetitions of one byte; 0 if
    too few bytes are equal at every distance.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
    """
    symbols, position, n_read = tables.symbols, registers[POSITION], registers[N_READ]
    registers[PERIOD] = 0
    most = WINDOW // ALIKE_SHARE
    for lag in range(2, LARGEST_PERIOD + 1):
        n_alike = 0
        for at in range(position - min(WINDOW, n_read - lag - 1), position):
            byte = symbol_at(symbols, recent, at)
            if byte == symbol_at(symbols, recent, at - lag) and byte != symbol_at(symbols, recent, at - 1):
                n_alike += 1
        if n_alike > most + most // 16:
            most = n_alike
            registers[PERIOD] = lag


@compiled(allocates=False)
def record_context(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, context: int, h: int) -> int:
    """Return the hash of one of the contexts of records (rows of fixed length) or of machine instructions.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        context: number of the context, such as ``RECORD_PLACE``.
        h: seed that differs between contexts.
    """
    last, second = registers[RECENT], registers[RECENT + 1]
    third, fourth = registers[RECENT + 2], registers[RECENT + 3]
    if context == tables_.MASKED_3:
        return combined(combined(combined(h, last), second & 0xF0), third & 0xF0)
    if context == tables_.MASKED_4:
        return combined(combined(combined(combined(h, last), second), third & 0xF0), fourth & 0xF0)
    if context == tables_.MASKED_6:
        h = combined(combined(combined(combined(h, last & 0xF8), second), third & 0xC7), fourth & 0xF8)
        return combined(combined(h, registers[RECENT + 4] & 0xF8), registers[RECENT + 5] & 0xF8)
    period, position = registers[PERIOD], registers[POSITION]
    place, above, twice_above = 0, last, second
    if period > 0:
        place = registers[N_READ] % period
        if registers[N_READ] >= 2 * period:
            above = symbol_at(tables.symbols, recent, position - period)
            twice_above = symbol_at(tables.symbols, recent, position - 2 * period)
    h = combined(h, above)
    if context == tables_.RECORD_PLACE:
        return combined(combined(h, place), period)
    if context == tables_.RECORD_LEFT:
        return combined(combined(h, last), period)
    return combined(combined(h, twice_above), place)

"""Contexts for lines that are rows of fields, as in tables and logs: the field so far, and the field above it.

The symbol above is found by its place in the field, not in the line. After a separator, it is the symbol after the next
equal separator in the line above; if a field is longer than the one above, it stays at the end of that field.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing import tables as tables_
from seqmodels.counts.context_mixing.reading_state import (
    ABOVE_AT,
    ABOVE_IN_FIELD,
    AFTER_ABOVE,
    COLUMN_NUMBER,
    FIELD_HASH,
    FIELD_NUMBER,
    LAST_FIELD_HASH,
    LAST_LINE_START,
    LINE_START,
    RECENT,
    RELATION,
    combined,
    symbol_at,
)
from seqmodels.counts.context_mixing.tables import NO_SEPARATOR, SEPARATES, MixingTables

SEARCHED = 24  # symbols of the line above that are searched for a separator
ALIKE, BELOW, ABOVE = 0, 1, 2  # order of the field so far and the one above, by the first symbol that differs


@compiled(allocates=False, inner=True)
def push_in_field(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, symbol: int) -> None:
    """Update the registers that describe the place in a line of separated fields, after reading ``symbol``.

    Args:
        tables: arrays of the model, which say what symbols are separators.
        registers: integers that describe the sequence so far; those about lines must be updated already.
        recent: symbols of the sequence so far, in which the line above is looked up.
        symbol: the symbol that was read.
    """
    if registers[COLUMN_NUMBER] == 0:
        registers[ABOVE_AT] = registers[LAST_LINE_START]
        registers[FIELD_NUMBER] = 0
        begin_field(registers)
    elif tables.separators[symbol] == NO_SEPARATOR:
        above = registers[ABOVE_IN_FIELD]
        if registers[RELATION] == ALIKE and symbol != above:
            registers[RELATION] = BELOW if symbol < above else ABOVE
        registers[FIELD_HASH] = combined(registers[FIELD_HASH], symbol + 1)
        if registers[ABOVE_AT] < registers[LINE_START] and tables.separators[above] == NO_SEPARATOR:
            registers[ABOVE_AT] += 1
    else:
        if tables.separators[symbol] == SEPARATES:
            registers[FIELD_NUMBER] += 1
        begin_field(registers)
        for at in range(registers[ABOVE_AT], min(registers[LINE_START], registers[ABOVE_AT] + SEARCHED)):
            if symbol_at(tables.symbols, recent, at) == symbol:
                registers[ABOVE_AT] = at + 1
                break
    at = registers[ABOVE_AT]
    registers[ABOVE_IN_FIELD] = tables.n_symbols
    registers[AFTER_ABOVE] = tables.n_symbols
    if at < registers[LINE_START]:
        registers[ABOVE_IN_FIELD] = symbol_at(tables.symbols, recent, at)
    if at + 1 < registers[LINE_START]:
        registers[AFTER_ABOVE] = symbol_at(tables.symbols, recent, at + 1)


@compiled(allocates=False, inner=True)
def begin_field(registers: np.ndarray) -> None:
    """Update ``registers``, which describe the sequence, for the start of a new field of a line.

    The hash of the current field becomes that of the last one.
    """
    registers[LAST_FIELD_HASH] = registers[FIELD_HASH]
    registers[FIELD_HASH] = 0
    registers[RELATION] = ALIKE


@compiled(allocates=False, inner=True)
def field_context(registers: np.ndarray, context: int, h: int) -> int:
    """Return the hash of one of the contexts made of the field so far, the field before and the field above.

    Args:
        registers: integers that describe the sequence so far.
        context: number of the context, such as ``FIELD``.
        h: seed that differs between contexts.
    """
    number, so_far, above = registers[FIELD_NUMBER], registers[FIELD_HASH], registers[ABOVE_IN_FIELD]
    if context == tables_.FIELD:
        return combined(combined(h, number), so_far)
    if context == tables_.FIELD_RELATION:
        h = combined(combined(h, number), registers[RELATION])
        return combined(combined(h, above), registers[AFTER_ABOVE])
    if context == tables_.FIELD_ABOVE:
        return combined(combined(combined(h, above), registers[AFTER_ABOVE]), registers[RECENT])
    if context == tables_.TWO_FIELDS:
        return combined(combined(h, so_far), registers[LAST_FIELD_HASH])
    if context == tables_.FIELD_BELOW:
        return combined(combined(combined(h, number), so_far), above)
    return combined(combined(combined(h, number), so_far), registers[LAST_FIELD_HASH])

"""The contexts of the next symbol, and the updates of the registers (state of the sequence) that they are computed
from.

A context is a 30-bit hash of its parts. Two contexts with the same hash share their counters, which makes the
prediction worse but leaves it a probability.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing import tables as tables_
from seqmodels.counts.context_mixing.fields import field_context, push_in_field
from seqmodels.counts.context_mixing.reading_state import (
    ABOVE_SYMBOL,
    CLASS,
    CLASSES,
    COLUMN_NUMBER,
    FIRST_OF_LINE,
    INDIRECT_ROW_1,
    INDIRECT_ROW_2,
    LAST_CLASS,
    LAST_LINE_START,
    LAST_WORD_HASH,
    LAYOUT,
    LINE_START,
    MATCH,
    N_READ,
    N_RECENT,
    PARAGRAPH,
    POSITION,
    PUNCTUATION,
    RECENT,
    WORD_BEFORE_HASH,
    WORD_HASH,
    WORD_LENGTH,
    combined,
    symbol_at,
)
from seqmodels.counts.context_mixing.records import record_context
from seqmodels.counts.context_mixing.tables import NEWLINE, OTHER, MixingTables

LONGEST_MATCH = 48  # most symbols that are compared


@compiled(allocates=False, inner=True)
def context_hashes(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, hashes: np.ndarray) -> None:
    """Write the hashes of the N contexts of the next symbol, such as the last symbols or the word, to ``hashes (N,)``.

    Args:
        tables: learned arrays of the model.
        registers: integers that describe the sequence so far, such as its last symbols.
        recent: symbols of the sequence so far.
        hashes: output.
    """
    last, second, third, fourth = (
        registers[RECENT],
        registers[RECENT + 1],
        registers[RECENT + 2],
        registers[RECENT + 3],
    )
    after_1 = tables.integers[tables.indirect_at + registers[INDIRECT_ROW_1]]
    after_2 = tables.integers[tables.indirect_at + tables.indirect_mask + 1 + registers[INDIRECT_ROW_2]]
    row = min(registers[LAYOUT], len(tables.contexts) - 1)
    for i in range(len(hashes)):
        context = tables.contexts[row, i]
        h = (i + 1) * 12_345
        if context < N_RECENT:
            for j in range(context):
                h = combined(h, registers[RECENT + j])
        elif context == tables_.WORD:
            h = combined(combined(h, registers[WORD_HASH]), last)
        elif context == tables_.TWO_WORDS:
            h = combined(combined(combined(h, registers[WORD_HASH]), registers[LAST_WORD_HASH]), last)
        elif context == tables_.THREE_WORDS:
            h = combined(combined(h, registers[WORD_HASH]), registers[LAST_WORD_HASH])
            h = combined(combined(h, registers[WORD_BEFORE_HASH]), last)
        elif context == tables_.WORD_SKIP:
            h = combined(combined(combined(h, registers[WORD_HASH]), registers[WORD_BEFORE_HASH]), last)
        elif context == tables_.LAST_WORD:
            h = combined(combined(h, registers[LAST_WORD_HASH]), last)
        elif context == tables_.WORD_LINE:
            h = combined(combined(combined(h, registers[WORD_HASH]), registers[FIRST_OF_LINE]), last)
        elif context == tables_.WORD_PUNCTUATION:
            h = combined(combined(h, registers[WORD_HASH]), registers[PUNCTUATION])
        elif context == tables_.SKIP_FIRST:
            h = combined(h, second)
        elif context == tables_.SKIP_FIRST_3:
            h = combined(combined(h, second), third)
        elif context == tables_.SKIP_FIRST_4:
            h = combined(combined(combined(h, second), third), fourth)
        elif context == tables_.SKIP_SECOND:
            h = combined(combined(h, last), third)
        elif context == tables_.SKIP_THIRD:
            h = combined(combined(combined(h, last), second), fourth)
        elif context == tables_.ABOVE:
            h = combined(combined(h, last), registers[ABOVE_SYMBOL])
        elif context == tables_.COLUMN:
            h = combined(combined(h, min(registers[COLUMN_NUMBER], 255)), registers[ABOVE_SYMBOL])
        elif context == tables_.LINE:
            h = combined(combined(combined(h, registers[FIRST_OF_LINE]), last), second)
        elif context == tables_.INDIRECT_1:
            h = combined(combined(h, after_1), last)
        elif context == tables_.INDIRECT_2:
            h = combined(combined(combined(h, after_2), last), second)
        elif context == tables_.INDIRECT_BOTH:
            h = combined(combined(h, after_1), after_2)
        elif context == tables_.FORMAT:
            h = combined(combined(h, registers[CLASSES]), last)
        elif context == tables_.FORMAT_COLUMN:
            h = combined(combined(h, min(registers[COLUMN_NUMBER], 255)), registers[CLASSES] & 511)
            h = combined(h, registers[WORD_LENGTH])
        elif context == tables_.WORD_PARAGRAPH:
            h = combined(combined(h, registers[WORD_HASH]), registers[PARAGRAPH])
        elif context >= tables_.FIRST_OF_RECORDS:
            h = record_context(tables, registers, recent, context, h)
        elif context >= tables_.FIRST_OF_FIELDS:
            h = field_context(registers, context, h)
        hashes[i] = h


@compiled(allocates=False, inner=True)
def push(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, symbol: int) -> None:
    """Update the description of the sequence after reading ``symbol``, and append the symbol to ``recent``.

    Nothing that is learned changes. During a fit, the symbol is stored in ``tables.symbols`` instead of ``recent``.

    Args:
        tables: learned arrays of the model.
        registers: integers that describe the sequence so far, which are changed.
        recent: symbols of the sequence so far.
        symbol: the symbol.
    """
    position = registers[POSITION]
    n_trained = len(tables.symbols)
    if position < n_trained:
        tables.symbols[position] = symbol
    else:
        recent[position - n_trained] = symbol
    for q in range(len(tables.match_lengths)):
        at, length = registers[MATCH + 2 * q], registers[MATCH + 2 * q + 1]
        if length > 0:
            if symbol_at(tables.symbols, recent, at) == symbol:
                registers[MATCH + 2 * q] = at + 1
                registers[MATCH + 2 * q + 1] = length + 1
            else:
                registers[MATCH + 2 * q + 1] = 0
    registers[POSITION] = position + 1
    registers[N_READ] += 1
    for j in range(N_RECENT - 1, 0, -1):
        registers[RECENT + j] = registers[RECENT + j - 1]
    registers[RECENT] = symbol
    registers[INDIRECT_ROW_1] = combined(4, symbol) & tables.indirect_mask
    registers[INDIRECT_ROW_2] = combined(combined(5, symbol), registers[RECENT + 1]) & tables.indirect_mask

    letter = tables.letters[symbol]
    if letter > 0:
        registers[WORD_HASH] = combined(registers[WORD_HASH], letter)
        registers[WORD_LENGTH] += 1
    else:
        if registers[WORD_LENGTH] > 0:
            if registers[PARAGRAPH] == 0:
                registers[PARAGRAPH] = registers[WORD_HASH]
            registers[WORD_BEFORE_HASH] = registers[LAST_WORD_HASH]
            registers[LAST_WORD_HASH] = registers[WORD_HASH]
        registers[WORD_HASH] = 0
        registers[WORD_LENGTH] = 0
    registers[LAST_CLASS] = registers[CLASS]
    registers[CLASS] = tables.classes[symbol]
    registers[CLASSES] = ((registers[CLASSES] << 3) | registers[CLASS]) & 0xFFFFFF
    if registers[CLASS] == OTHER:
        registers[PUNCTUATION] = symbol
    registers[COLUMN_NUMBER] += 1
    if registers[COLUMN_NUMBER] == 1:
        registers[FIRST_OF_LINE] = symbol
    if registers[CLASS] == NEWLINE:
        if registers[COLUMN_NUMBER] == 1:  # an empty line
            registers[PARAGRAPH] = 0
        registers[LAST_LINE_START] = registers[LINE_START]
        registers[LINE_START] = position + 1
        registers[COLUMN_NUMBER] = 0
    above = registers[LAST_LINE_START] + registers[COLUMN_NUMBER]
    registers[ABOVE_SYMBOL] = tables.n_symbols
    if above < registers[LINE_START]:
        registers[ABOVE_SYMBOL] = symbol_at(tables.symbols, recent, above)
    if len(tables.separators) > 0:
        push_in_field(tables, registers, recent, symbol)


@compiled(allocates=False, inner=True)
def match_slot(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, q: int) -> int:
    """Return the index in ``tables.integers`` of the last position after a string equal to the last symbols.

    The result is -1 if the sequence is shorter than the string.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        q: number of the string's length, ``tables.match_lengths[q]`` symbols.
    """
    length = tables.match_lengths[q]
    if registers[N_READ] < length:
        return -1
    h = 3
    for j in range(length):
        h = combined(h, symbol_at(tables.symbols, recent, registers[POSITION] - 1 - j))
    return q * (tables.match_mask + 1) + (h & tables.match_mask)


@compiled(allocates=False, inner=True)
def find_matches(tables: MixingTables, registers: np.ndarray, recent: np.ndarray) -> None:
    """Look up where the last symbols occurred before, for each match length for which no earlier match continues.

    A match is an earlier string equal to the last symbols. The position after it and its length are written to
    ``registers``.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
    """
    for q in range(len(tables.match_lengths)):
        if registers[MATCH + 2 * q + 1] > 0:
            continue
        slot = match_slot(tables, registers, recent, q)
        if slot < 0:
            continue
        at = tables.integers[slot]
        longest = min(registers[N_READ], min(at, LONGEST_MATCH))
        length = 0
        while length < longest and symbol_at(tables.symbols, recent, at - 1 - length) == symbol_at(
            tables.symbols, recent, registers[POSITION] - 1 - length
        ):
            length += 1
        if length >= tables.match_lengths[q]:
            registers[MATCH + 2 * q] = at
            registers[MATCH + 2 * q + 1] = length

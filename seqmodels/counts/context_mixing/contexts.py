"""What of the past predictions look at: the registers of a sequence that is read, and the contexts made of them.

A context is a number of 30 bits, a hash of what it consists of; two contexts that share one are told apart by nothing,
and harm the prediction, not its being a probability.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing import tables as tables_
from seqmodels.counts.context_mixing.tables import NEWLINE, OTHER, MixingTables

# Registers.
POSITION = 0  # symbols before this one, the training sequences and their separators among them
N_READ = 1  # symbols of this sequence
N_LEARNED = 2  # steps that the weights have learned from
WORD_HASH, WORD_LENGTH, LAST_WORD_HASH, WORD_BEFORE_HASH = 3, 4, 5, 6
COLUMN_NUMBER, LINE_START, LAST_LINE_START, ABOVE_SYMBOL, FIRST_OF_LINE = 7, 8, 9, 10, 11
CLASS, LAST_CLASS, PUNCTUATION = 12, 13, 14
INDIRECT_ROW_1, INDIRECT_ROW_2 = 15, 16
KIND, STRIDE, ROW = 17, 18, 19  # of bytes that are numbers: see ``samples``
RECENT = 20  # the last symbol, the one before, and so on
N_RECENT = 10
ALIGNMENT, LAST_ERROR = 30, 31
ERROR, SLOW_ERROR = 36, 40  # for each phase, in sixteenths
MATCH = 32  # for each length: where the string that agrees goes on, and how long it is
N_REGISTERS = 48

LONGEST_MATCH = 48  # symbols that are compared
BITS_30 = (1 << 30) - 1
BITS_58 = (1 << 58) - 1


@compiled(allocates=False)
def combined(hashed: int, value: int) -> int:
    """A hash of a hash of 30 bits and one more number."""
    mixed = (((hashed ^ (value * 0x1F35ABC5)) & BITS_30) * 0x2C1B3C6D) & BITS_58
    return (mixed ^ (mixed >> 27)) & BITS_30


@compiled(allocates=False)
def symbol_at(tables: MixingTables, recent: np.ndarray, position: int) -> int:
    """Of the training sequences, or of that which is read."""
    n_trained = len(tables.symbols)
    return int(tables.symbols[position]) if position < n_trained else int(recent[position - n_trained])


@compiled(allocates=False)
def begin(tables: MixingTables, registers: np.ndarray) -> None:
    """Set registers to the start of a sequence; ``N_LEARNED`` and ``POSITION`` stay."""
    for j in range(N_READ, N_REGISTERS):
        if j != N_LEARNED:
            registers[j] = 0
    for j in range(N_RECENT):
        registers[RECENT + j] = tables.n_symbols
    registers[FIRST_OF_LINE] = tables.n_symbols
    registers[ABOVE_SYMBOL] = tables.n_symbols
    registers[LINE_START] = registers[POSITION]
    registers[LAST_LINE_START] = registers[POSITION]


@compiled(allocates=False)
def context_hashes(tables: MixingTables, registers: np.ndarray, hashes: np.ndarray) -> None:
    """Set ``hashes (N,)`` to the contexts of the next symbol."""
    last, second, third, fourth = (
        registers[RECENT],
        registers[RECENT + 1],
        registers[RECENT + 2],
        registers[RECENT + 3],
    )
    after_1 = tables.integers[tables.indirect_at + registers[INDIRECT_ROW_1]]
    after_2 = tables.integers[tables.indirect_at + tables.indirect_mask + 1 + registers[INDIRECT_ROW_2]]
    for i in range(len(tables.contexts)):
        context = tables.contexts[i]
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
        hashes[i] = h


@compiled(allocates=False)
def push(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, symbol: int) -> None:
    """Set registers to what is known after one more symbol; nothing that is learned is changed."""
    position = registers[POSITION]
    n_trained = len(tables.symbols)
    if position < n_trained:
        tables.symbols[position] = symbol
    else:
        recent[position - n_trained] = symbol
    for q in range(len(tables.match_lengths)):
        at, length = registers[MATCH + 2 * q], registers[MATCH + 2 * q + 1]
        if length > 0:
            if symbol_at(tables, recent, at) == symbol:
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
            registers[WORD_BEFORE_HASH] = registers[LAST_WORD_HASH]
            registers[LAST_WORD_HASH] = registers[WORD_HASH]
        registers[WORD_HASH] = 0
        registers[WORD_LENGTH] = 0
    registers[LAST_CLASS] = registers[CLASS]
    registers[CLASS] = tables.classes[symbol]
    if registers[CLASS] == OTHER:
        registers[PUNCTUATION] = symbol
    registers[COLUMN_NUMBER] += 1
    if registers[COLUMN_NUMBER] == 1:
        registers[FIRST_OF_LINE] = symbol
    if registers[CLASS] == NEWLINE:
        registers[LAST_LINE_START] = registers[LINE_START]
        registers[LINE_START] = position + 1
        registers[COLUMN_NUMBER] = 0
    above = registers[LAST_LINE_START] + registers[COLUMN_NUMBER]
    registers[ABOVE_SYMBOL] = tables.n_symbols
    if above < registers[LINE_START]:
        registers[ABOVE_SYMBOL] = symbol_at(tables, recent, above)


@compiled(allocates=False)
def match_slot(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, q: int) -> int:
    """Where ``integers`` holds the position after the last string like the newest one; -1: too little was read."""
    length = tables.match_lengths[q]
    if registers[N_READ] < length:
        return -1
    h = 3
    for j in range(length):
        h = combined(h, symbol_at(tables, recent, registers[POSITION] - 1 - j))
    return q * (tables.match_mask + 1) + (h & tables.match_mask)


@compiled(allocates=False)
def find_matches(tables: MixingTables, registers: np.ndarray, recent: np.ndarray) -> None:
    """Set the registers of those matches that there are none of to the last string like the newest one."""
    for q in range(len(tables.match_lengths)):
        if registers[MATCH + 2 * q + 1] > 0:
            continue
        slot = match_slot(tables, registers, recent, q)
        if slot < 0:
            continue
        at = tables.integers[slot]
        longest = min(registers[N_READ], min(at, LONGEST_MATCH))
        length = 0
        while length < longest and symbol_at(tables, recent, at - 1 - length) == symbol_at(
            tables, recent, registers[POSITION] - 1 - length
        ):
            length += 1
        if length >= tables.match_lengths[q]:
            registers[MATCH + 2 * q] = at
            registers[MATCH + 2 * q + 1] = length

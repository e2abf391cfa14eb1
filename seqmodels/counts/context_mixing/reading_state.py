"""The registers, integers that summarise the sequence so far (last symbols, word, line), and the hash of contexts."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing.tables import MixingTables

POSITION = 0  # number of symbols before this one, including training sequences and their separators
N_READ = 1  # number of symbols of this sequence read so far
N_LEARNED = 2  # number of steps that the weights have learned from
WORD_HASH, WORD_LENGTH, LAST_WORD_HASH, WORD_BEFORE_HASH = 3, 4, 5, 6
COLUMN_NUMBER, LINE_START, LAST_LINE_START, ABOVE_SYMBOL, FIRST_OF_LINE = 7, 8, 9, 10, 11
CLASS, LAST_CLASS, PUNCTUATION = 12, 13, 14
INDIRECT_ROW_1, INDIRECT_ROW_2 = 15, 16
KIND, STRIDE, ROW = 17, 18, 19  # layout of bytes that are numbers, see ``picture_and_sound``
RECENT = 20  # the last symbol, the one before, and so on
N_RECENT = 10
ALIGNMENT, LAST_ERROR = 30, 31
ERROR, SLOW_ERROR = 36, 40  # mean errors for each phase, in sixteenths
MATCH = 32  # for each match length: where the matching string continues, and how long the match is
LAYOUT, PERIOD = 44, 45  # layout of bytes that are not numbers, see ``byte_layout``; length of a record
# Registers of lines as rows of fields, see ``fields``.
FIELD_NUMBER, FIELD_HASH, LAST_FIELD_HASH, ABOVE_AT, ABOVE_IN_FIELD, AFTER_ABOVE, RELATION = 46, 47, 48, 49, 50, 51, 52
CLASSES, PARAGRAPH = 53, 54  # classes of the last eight symbols; hash of the first word of a paragraph
N_REGISTERS = 56

BITS_30 = (1 << 30) - 1
BITS_58 = (1 << 58) - 1


@compiled(allocates=False)
def combined(hashed: int, value: int) -> int:
    """Return a 30-bit hash of another hash and a number, by which hashes of several parts are made.

    Args:
        hashed: a 30-bit hash of the parts before.
        value: the next part.
    """
    mixed = (((hashed ^ (value * 0x1F35ABC5)) & BITS_30) * 0x2C1B3C6D) & BITS_58
    return (mixed ^ (mixed >> 27)) & BITS_30


@compiled(allocates=False)
def symbol_at(symbols: np.ndarray, recent: np.ndarray, position: int) -> int:
    """Return the symbol at a position, counted through the training sequences and then the sequence that is read.

    Args:
        symbols: symbols of the training sequences, each followed by a separator.
        recent: symbols of the sequence.
        position: index in both together.
    """
    n_trained = len(symbols)
    return int(symbols[position]) if position < n_trained else int(recent[position - n_trained])


@compiled(allocates=False)
def begin(tables: MixingTables, registers: np.ndarray) -> None:
    """Reset the registers, integers that describe the sequence so far, for a new sequence.

    ``N_LEARNED`` (steps learned) and ``POSITION`` (symbols read in all) stay.

    Args:
        tables: learned arrays of the model.
        registers: the registers, ``(N_REGISTERS,)``, which are changed.
    """
    for j in range(N_READ, N_REGISTERS):
        if j != N_LEARNED:
            registers[j] = 0
    for j in range(N_RECENT):
        registers[RECENT + j] = tables.n_symbols
    registers[FIRST_OF_LINE] = tables.n_symbols
    registers[ABOVE_SYMBOL] = tables.n_symbols
    registers[LINE_START] = registers[POSITION]
    registers[LAST_LINE_START] = registers[POSITION]

"""What stands above in a table, by the field and not by the column; how a field compares with that above."""

from __future__ import annotations

import numpy as np
import pytest

from seqmodels.counts.context_mixing import tables
from seqmodels.counts.context_mixing.contexts import push
from seqmodels.counts.context_mixing.fields import ABOVE, ALIKE, BELOW
from seqmodels.counts.context_mixing.reading_state import (
    ABOVE_IN_FIELD,
    AFTER_ABOVE,
    FIELD_HASH,
    FIELD_NUMBER,
    N_REGISTERS,
    RELATION,
    begin,
)

SPELLING = [bytes([b]) for b in range(256)]


def after(text: str) -> np.ndarray:
    """The registers after it."""
    known = tables.empty(256, 1000, 64, np.zeros(0, dtype=np.int64), SPELLING)
    registers, recent = np.zeros(N_REGISTERS, dtype=np.int64), np.zeros(len(text), dtype=np.int64)
    begin(known, registers)
    for byte in text.encode():
        push(known, registers, recent, byte)
    return registers


@pytest.mark.parametrize(
    ("text", "number", "above"),
    [
        ("1,NA,20\n", 0, "1"),
        ("1,NA,20\n10", 0, ","),  # longer than what is above
        ("1,NA,20\n10,", 1, "N"),
        ("1,NA,20\n10,7", 1, "A"),
        ("1,NA,20\n10,7,", 2, "2"),  # shorter
        ("1,NA,20\n10,7,2", 2, "0"),
        ("a: 10:59\nbcd: 1:", 1, "5"),
    ],
)
def test_above_is_by_field(text: str, number: int, above: str) -> None:
    registers = after(text)
    assert registers[FIELD_NUMBER] == number
    assert chr(registers[ABOVE_IN_FIELD]) == above


def test_nothing_is_above_the_first_line_or_behind_the_end_of_the_last() -> None:
    assert after("1,2")[ABOVE_IN_FIELD] == 256
    registers = after("1,2\n1,2")
    assert (chr(registers[ABOVE_IN_FIELD]), registers[AFTER_ABOVE]) == ("\n", 256)


@pytest.mark.parametrize(("begun", "relation"), [("5,3", ALIKE), ("5,2", BELOW), ("5,4", ABOVE), ("6,", ALIKE)])
def test_fields_are_compared(begun: str, relation: int) -> None:
    assert after("5,34\n" + begun)[RELATION] == relation


def test_hash_of_a_field_is_that_of_its_symbols_alone() -> None:
    assert after("ab,cd,12")[FIELD_HASH] == after("7\n12")[FIELD_HASH] != after("7\n21")[FIELD_HASH]

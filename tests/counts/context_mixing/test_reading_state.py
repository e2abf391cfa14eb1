"""Hashes tell numbers apart and are the same everywhere; registers begin as if nothing was read."""

from __future__ import annotations

import numpy as np

from seqmodels.counts.context_mixing import tables
from seqmodels.counts.context_mixing.reading_state import (
    BITS_30,
    N_LEARNED,
    N_RECENT,
    N_REGISTERS,
    POSITION,
    RECENT,
    begin,
    combined,
    symbol_at,
)


def test_hashes_are_of_30_bits_and_seldom_alike() -> None:
    hashes = {int(combined(h, value)) for h in range(100) for value in range(100)}
    assert len(hashes) > 9_990
    assert max(hashes) <= BITS_30
    assert combined(12_345, 67) == 807_153_597


def test_begin_keeps_what_was_learned_and_forgets_what_was_read() -> None:
    known = tables.empty(5, 100, 64, np.arange(3), None)
    registers = np.full(N_REGISTERS, 77)
    begin(known, registers)
    assert registers[POSITION] == registers[N_LEARNED] == 77
    assert (registers[RECENT : RECENT + N_RECENT] == 5).all()
    assert [symbol_at(known.symbols, np.array([9, 8]), at) for at in range(5)] == [0, 1, 2, 9, 8]

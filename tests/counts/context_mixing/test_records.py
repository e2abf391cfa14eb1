"""The length of a record is found; and contexts of records and instructions tell apart what they should."""

from __future__ import annotations

import numpy as np
import pytest

from seqmodels.counts.context_mixing import tables
from seqmodels.counts.context_mixing.contexts import push
from seqmodels.counts.context_mixing.reading_state import N_REGISTERS, PERIOD, begin
from seqmodels.counts.context_mixing.records import LARGEST_PERIOD, choose_period, record_context

SPELLING = [bytes([b]) for b in range(256)]


def after(values: np.ndarray) -> tuple[tables.MixingTables, np.ndarray, np.ndarray]:
    """Tables, registers and what was read after it."""
    known = tables.empty(256, 1000, 64, np.zeros(0, dtype=np.int64), SPELLING)
    registers, recent = np.zeros(N_REGISTERS, dtype=np.int64), np.zeros(len(values), dtype=np.int64)
    begin(known, registers)
    for byte in values:
        push(known, registers, recent, int(byte))
    choose_period(known, registers, recent)
    return known, registers, recent


def records(length: int, n_bytes: int) -> np.ndarray:
    """Noise, but for a third of each record's bytes."""
    rng = np.random.default_rng(length)
    values = rng.integers(256, size=(n_bytes // length, length))
    values[:, : max(1, length // 3)] = rng.integers(256, size=max(1, length // 3))
    return values.ravel()


@pytest.mark.parametrize("length", [2, 3, 8, 24, LARGEST_PERIOD])
@pytest.mark.parametrize("n_bytes", [300, 2000])
def test_length_of_records_is_found(length: int, n_bytes: int) -> None:
    assert after(records(length, n_bytes))[1][PERIOD] == length


@pytest.mark.parametrize("n_bytes", [0, 1, 5, 2000])
def test_noise_and_runs_have_no_records(n_bytes: int) -> None:
    noise = np.random.default_rng(0).integers(256, size=n_bytes)
    assert after(noise)[1][PERIOD] == 0
    assert after(np.zeros(n_bytes))[1][PERIOD] == 0


@pytest.mark.parametrize(
    ("context", "kept"),
    [
        (tables.MASKED_3, [0xFF, 0xF0, 0xF0, 0, 0, 0]),
        (tables.MASKED_4, [0xFF, 0xFF, 0xF0, 0xF0, 0, 0]),
        (tables.MASKED_6, [0xF8, 0xFF, 0xC7, 0xF8, 0xF8, 0xF8]),
    ],
)
def test_bits_of_instructions_are_left_out(context: int, kept: list[int]) -> None:
    """A bit of one of the last bytes changes the context if it is kept, and only then."""
    values = np.array([17, 200, 3, 94, 120, 65])
    before = record_context(*after(values), context, 1)
    for k, mask in enumerate(kept):
        for bit in range(8):
            changed = values.copy()
            changed[-1 - k] ^= 1 << bit
            assert (record_context(*after(changed), context, 1) != before) == bool(mask >> bit & 1), (k, bit)


def test_contexts_of_records_are_of_the_bytes_one_record_before() -> None:
    values = records(24, 1200)
    for context, others in ((tables.RECORD_PLACE, []), (tables.RECORD_LEFT, [1]), (tables.RECORD_ABOVE, [48])):
        before = record_context(*after(values), context, 1)
        for back in (1, 2, 24, 48, 72):
            changed = values.copy()
            changed[-back] ^= 255
            assert (record_context(*after(changed), context, 1) != before) == (back in [24, *others]), (context, back)

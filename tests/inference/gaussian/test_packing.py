"""Sequences side by side, in the order of time."""

from __future__ import annotations

import numpy as np

from seqmodels.inference.gaussian.packing import NUMBERS, VECTOR, StepPacking, aligned, widened

LENGTHS = (3, 1, 5, 5, 2)


def test_rows_are_in_the_order_of_time_and_come_back() -> None:
    packing = StepPacking.of(LENGTHS)
    arrays = [np.stack([np.full(n, i), np.arange(n)], 1) for i, n in enumerate(LENGTHS)]
    packed = packing.pack(arrays)
    assert packed[:, 1].tolist() == sorted(packed[:, 1].tolist())
    assert packed[: len(LENGTHS), 0].tolist() == packing.order.tolist() == [2, 3, 0, 4, 1]
    for before, after in zip(arrays, packing.unpack(packed, LENGTHS), strict=True):
        np.testing.assert_array_equal(before, after)


def test_ranks_and_rows_before_are_those_of_the_same_sequence() -> None:
    packing = StepPacking.of(LENGTHS)
    packed = packing.pack([np.stack([np.full(n, i), np.arange(n)], 1) for i, n in enumerate(LENGTHS)])
    later = packed[packing.offsets[1] :]
    np.testing.assert_array_equal(packing.order[packing.ranks], packed[:, 0])
    np.testing.assert_array_equal(packed[packing.previous], later - [0, 1])


def test_blocks_begin_at_whole_vectors() -> None:
    for size in (1, 7, 100, 1000):
        memory = aligned(size)
        assert memory.shape == (size,)
        assert memory.ctypes.data % VECTOR == 0
    assert widened(np.arange(1, 18)).tolist() == [NUMBERS] * 8 + [2 * NUMBERS] * 8 + [3 * NUMBERS]

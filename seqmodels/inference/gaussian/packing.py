"""Sequences of several lengths packed side by side: rows in the order of time, the longest sequence first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

VECTOR = 64  # bytes of a processor's cache line, to which arrays are aligned
NUMBERS = VECTOR // 8  # number of float64 values in a cache line


@dataclass(frozen=True)
class StepPacking:
    """The packing of n sequences into N rows: all first steps, then all second steps, and so on.

    Attributes:
        order: indices of the sequences, the longest first, ``(n,)``.
        offsets: first row of each step, and N at the end, ``(T + 1,)``: rows ``offsets[t] .. offsets[t + 1] - 1`` are
            step t of the first sequences of ``order``.
        rows: row of each packed row among the sequences one after the other, ``(N,)``.
    """

    order: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, lengths: Sequence[int]) -> StepPacking:
        """Return the packing of sequences with the given numbers of steps, each at least 1."""
        sizes = np.asarray(lengths, dtype=np.int64)
        order = np.argsort(-sizes, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])[order]
        counts = np.searchsorted(-sizes[order], -np.arange(sizes.max()))  # sequences longer than t
        offsets = np.concatenate([[0], np.cumsum(counts)])
        step = np.repeat(np.arange(len(counts)), counts)
        return cls(order, offsets, starts[np.arange(offsets[-1]) - offsets[step]] + step)

    @property
    def n_steps(self) -> int:
        """The number T of steps of the longest sequence."""
        return len(self.offsets) - 1

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of sequences that have each of the T steps, ``(T,)``."""
        return np.diff(self.offsets)

    @property
    def ranks(self) -> np.ndarray:
        """The place of each packed row's sequence in ``order``, ``(N,)``: 0 for the longest sequence."""
        return np.asarray(np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], self.counts))

    @property
    def previous(self) -> np.ndarray:
        """The packed row of the step before, for each row after the first step, ``(N - n,)``."""
        counts = self.counts
        return np.asarray(np.arange(self.offsets[1], self.offsets[-1]) - np.repeat(counts[:-1], counts[1:]))

    def pack(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return arrays ``(T_i, ...)``, one for each sequence, as one array of packed rows, ``(N, ...)``."""
        return np.ascontiguousarray(np.concatenate(arrays)[self.rows])

    def unpack(self, packed: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
        """Return packed rows ``(N, ...)`` as one array ``(T_i, ...)`` for each sequence, given their lengths."""
        joined = np.empty_like(packed)
        joined[self.rows] = packed
        return np.split(joined, np.cumsum(lengths)[:-1])


def aligned(size: int) -> np.ndarray:
    """Return an uninitialised float64 array ``(size,)`` whose memory begins at a multiple of ``VECTOR`` bytes.

    >>> aligned(3).ctypes.data % VECTOR
    0
    """
    memory = np.empty(size + NUMBERS)
    start = -memory.ctypes.data % VECTOR // 8
    return memory[start : start + size]


def widened(counts: np.ndarray) -> np.ndarray:
    """Round counts of numbers up to the next multiple of ``NUMBERS``.

    >>> widened(np.array([1, 8, 9]))
    array([ 8,  8, 16])
    """
    return np.asarray(-(-counts // NUMBERS) * NUMBERS)

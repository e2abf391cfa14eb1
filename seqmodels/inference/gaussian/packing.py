"""Sequences of several lengths side by side: rows in the order of time, the longest sequence first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

VECTOR = 64  # bytes, a line of a processor's cache: what is read of an array that begins at one is never in two
NUMBERS = VECTOR // 8  # float64 numbers of a line


@dataclass(frozen=True)
class StepPacking:
    """Where the steps of n sequences stand.

    Attributes:
        order: (n,) numbers of the sequences, the longest first.
        offsets: (T + 1,) rows ``offsets[t] .. offsets[t + 1] - 1`` are step t, of the first sequences of ``order``.
        rows: (N,) for each packed row its row among the sequences one after the other.
    """

    order: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, lengths: Sequence[int]) -> StepPacking:
        """Of sequences of these lengths, each 1 or more."""
        sizes = np.asarray(lengths, dtype=np.int64)
        order = np.argsort(-sizes, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])[order]
        counts = np.searchsorted(-sizes[order], -np.arange(sizes.max()))  # sequences longer than t
        offsets = np.concatenate([[0], np.cumsum(counts)])
        step = np.repeat(np.arange(len(counts)), counts)
        return cls(order, offsets, starts[np.arange(offsets[-1]) - offsets[step]] + step)

    @property
    def n_steps(self) -> int:
        """T, the steps of the longest."""
        return len(self.offsets) - 1

    @cached_property
    def counts(self) -> np.ndarray:
        """``(T,)`` how many sequences have step t."""
        return np.diff(self.offsets)

    @property
    def ranks(self) -> np.ndarray:
        """``(N,)`` the place of each row's sequence in ``order``."""
        return np.asarray(np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], self.counts))

    @property
    def previous(self) -> np.ndarray:
        """For each row but those of the first step the row of the step before: ``(N - offsets[1],)``."""
        counts = self.counts
        return np.asarray(np.arange(self.offsets[1], self.offsets[-1]) - np.repeat(counts[:-1], counts[1:]))

    def pack(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """``(N, ...)`` of one array ``(T_i, ...)`` for each sequence."""
        return np.ascontiguousarray(np.concatenate(arrays)[self.rows])

    def unpack(self, packed: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
        """The inverse of ``pack``."""
        joined = np.empty_like(packed)
        joined[self.rows] = packed
        return np.split(joined, np.cumsum(lengths)[:-1])


def aligned(size: int) -> np.ndarray:
    """``(size,)`` float64, not set, that begin at a multiple of ``VECTOR`` bytes.

    >>> aligned(3).ctypes.data % VECTOR
    0
    """
    memory = np.empty(size + NUMBERS)
    start = -memory.ctypes.data % VECTOR // 8
    return memory[start : start + size]


def widened(counts: np.ndarray) -> np.ndarray:
    """Counts of numbers, each up to the next multiple of ``NUMBERS``.

    >>> widened(np.array([1, 8, 9]))
    array([ 8,  8, 16])
    """
    return np.asarray(-(-counts // NUMBERS) * NUMBERS)

"""A sequence in a file that acts as the array of its encoded steps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.encodings.vectors import Vectors
from seqmodels.sequences.mapped import MappedArray, Summary, parts_of


class OnDisk:
    """An array of the encoded steps of a sequence in a file, which reads and encodes only the slice that is indexed.

    Models that read slices can use it instead of an array in memory; ``np.asarray`` encodes the whole sequence.

    Args:
        encoding: the fitted encoding.
        item: the raw sequence in the file, ``(T, D)`` or ``(T,)``.
        past: raw steps before the sequence, in a file or in memory, whose encoded steps come first; None if there are
            none.
    """

    def __init__(self, encoding: Encoding, item: MappedArray, past: np.ndarray | None = None) -> None:
        self.encoding, self.item = encoding, item
        self.parts = [item] if past is None else [past, item]
        self.shape = (sum(map(len, self.parts)), *item.shape[1:])
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, index: int | slice) -> np.ndarray:
        if not isinstance(index, slice):
            index = range(len(self))[index]
            return np.asarray(self[index : index + 1][0])
        start, stop, stride = index.indices(len(self))
        assert stride == 1, "steps are read as they follow each other"
        if len(self.parts) == 1:
            return self.encoding.encode(self.item.read(start, stop))
        read, first = [], 0
        for part in self.parts:
            a, b = max(0, start - first), max(0, min(stop - first, len(part)))
            read.append(part.read(a, b) if isinstance(part, MappedArray) else np.asarray(part[a:b]))
            first += len(part)
        return self.encoding.encode(np.concatenate(read))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)

    def blocks(self) -> Iterator[np.ndarray]:
        """Return an iterator over consecutive slices of the encoded steps, each small enough for memory."""
        return (self.encoding.encode(np.asarray(block)) for part in self.parts for _, block in parts_of(part))

    @cached_property
    def summary(self) -> Summary:
        """The extremes, moments and numbers of missing values of all raw steps, including the past."""
        first, *rest = (part.summary if isinstance(part, MappedArray) else Summary.of(part) for part in self.parts)
        return first.with_(rest[0]) if rest else first

    @property
    def has_missing(self) -> bool:
        """True if an encoded value is NaN."""
        return self.summary.first_missing is not None

    @property
    def largest(self) -> float:
        """The largest magnitude of an encoded value, leaving out missing ones; 0 if there is none."""
        shift, scale = self.encoding.affine()
        with np.errstate(over="ignore"):
            ends = np.abs((np.stack([self.summary.lowest, self.summary.highest]) - shift) / scale)
        return float(np.nan_to_num(ends, nan=0.0, posinf=np.inf).max())

    def sum(self) -> np.ndarray:
        """Return the sum of the encoded frames over steps, ``(D,)``, leaving out missing values."""
        shift, scale = self.encoding.affine()
        summary = self.summary
        return np.asarray((summary.n - summary.n_missing) * (summary.mean - shift) / scale)

    @property
    def _has_atoms(self) -> bool:
        return isinstance(self.encoding, Vectors) and self.encoding.has_atoms

    def log_det(self) -> float:
        """Return the nats to add to the log-probability of the sequence without its past to express it in raw units."""
        if self.ndim == 2 and self.item.summary.first_missing is None and not self._has_atoms:
            return len(self.item) * float(np.sum(self.encoding.log_det(self.item.read(0, 1))))
        return sum(float(np.sum(part)) for _, part in self.log_dets())

    def log_dets(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the nats to add to the log-probability of each step after the past to express it in raw units.

        They come in blocks, as pairs of the number of the block's first step and an array. Text has none.
        """
        if self.encoding.reads == "text":
            return
        for t, part in self.item.blocks():
            yield t, np.broadcast_to(self.encoding.log_det(part), len(part))

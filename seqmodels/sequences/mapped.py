"""Arrays that stay in their file and are read and written in blocks, so that little of them is in memory at once.

A memory-mapped array is loaded page by page when it is used and stays in memory while there is room, so a pass over a
file of 20 GB would hold 20 GB. Here pages are given back to the system after each block (``madvise``). If they are used
again, they are read from the system's file cache or from the file.
"""

from __future__ import annotations

import codecs
import math
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

BLOCK_BYTES = 1 << 23  # bytes of the file that are read at once
READ_AROUND = 1 << 21  # bytes; pages are given back in units of it, because the system also maps pages nearby
MANY_OF_A_LENGTH = 32  # arrays of one length from which on summing them together is faster
MAX_STEPS_IN_MEMORY = 1 << 20  # the most log-probabilities of steps kept in memory; more are written to a file


class MappedArray(np.memmap):
    """A memory-mapped array of T steps in a file, shape ``(T, D)`` or ``(T,)``, that is read in parts.

    ``read`` copies a part into memory; a slice of the array is a ``MappedArray`` too.

    Attributes:
        is_text: True if its elements are the bytes of a text in UTF-8.
    """

    is_text: bool

    @classmethod
    def of(cls, array: np.memmap, *, is_text: bool = False) -> MappedArray:
        """Return a memory-mapped array of NumPy in this class: the same part of the same file.

        Args:
            array: the memory-mapped array.
            is_text: True if its elements are the bytes of a text in UTF-8.
        """
        if isinstance(array, cls) and array.is_text >= is_text:
            return array
        mapped = array.view(cls)
        mapped.is_text = is_text or mapped.is_text
        return mapped

    @classmethod
    def temporary(cls, shape: int | tuple[int, ...], dtype: Any = np.float64) -> MappedArray:
        """Return an array of zeros in a temporary file without a name.

        The file disappears when the process ends, however it ends. The environment variable ``TMPDIR`` sets its folder.

        Args:
            shape: shape of the array, or its length.
            dtype: dtype of the array.
        """
        with tempfile.TemporaryFile(prefix="seqmodels-") as file:
            return cls.of(np.memmap(file, dtype, "w+", shape=shape))

    def __array_finalize__(self, obj: Any) -> None:
        super().__array_finalize__(obj)
        self.is_text = getattr(obj, "is_text", False)
        self._summary: Summary | None = None

    def __reduce__(self) -> Any:
        """Pickle the path of the file and the position in it instead of the values, if possible.

        Unpickling then needs the file under this path. The array is pickled by value, as ordinary arrays are, if it is
        not contiguous, if its file has no name or is gone, or if its changes are private.
        """
        mapping, path = _mapping(self), self.filename
        if (
            mapping is None
            or path is None
            or self.mode == "c"
            or not self.flags.c_contiguous
            or not os.path.exists(path)
        ):
            return _in_memory, (np.array(self, subok=False), self.is_text)
        begin = self.offset - self.offset % mmap.ALLOCATIONGRANULARITY  # where the mapping begins in the file
        place = begin + self.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
        return _in_file, (os.fspath(path), place, self.dtype.str, self.shape, self.is_text)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return the result of a NumPy function of this array as an ordinary array in memory."""
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        is_copy = isinstance(part, MappedArray) and _mapping(part) is None
        return part.view(np.ndarray) if is_copy else part

    @property
    def is_on_disk(self) -> bool:
        """True if the array is part of a file; False for an array in memory that was computed from one."""
        return _mapping(self) is not None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return a copy in memory of some consecutive elements (frames or symbols).

        Args:
            start: the first element.
            stop: the element after the last.
        """
        part = self[start:stop]
        copied = np.array(part, copy=True, subok=False)
        _release(part)
        return copied

    def write(self, start: int, values: np.ndarray) -> None:
        """Write values into the file in place of consecutive elements (frames or symbols).

        Args:
            start: the first element to replace.
            values: the new elements.
        """
        part = self[start : start + len(values)]
        part[:] = values
        _release(part)

    def release(self) -> None:
        """Give the array's pages in memory back to the system; they are read again when they are needed."""
        _release(self)

    @property
    def elements_in_block(self) -> int:
        """The number of elements, frames or symbols, that are read at once as a block."""
        return max(1, BLOCK_BYTES // max(1, self.itemsize * int(np.prod(self.shape[1:]))))

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the whole array in consecutive blocks, each a pair of the number of its first element and a copy."""
        size = self.elements_in_block
        for start in range(0, len(self), size):
            yield start, self.read(start, start + size)

    def first(self, condition: Callable[[np.ndarray], np.ndarray]) -> int:
        """Return the index of the first element that fulfills a condition; there must be one.

        The array must have one dimension.

        Args:
            condition: function that takes consecutive elements, ``(n,)``, and returns a mask of those that fulfil it.
        """
        return next(t + int(np.argmax(condition(block))) for t, block in self.blocks() if condition(block).any())

    @property
    def summary(self) -> Summary:
        """The statistics of all values (extremes, means, missing values), computed in one pass and then kept."""
        if self._summary is None:
            self._summary = Summary.of(self)
        return self._summary


def _in_memory(array: np.ndarray, is_text: bool) -> MappedArray:
    mapped = array.view(MappedArray)
    mapped.is_text = is_text
    return mapped


def _in_file(path: str, place: int, dtype: str, shape: tuple[int, ...], is_text: bool) -> MappedArray:
    """Return an array whose elements are in a file from byte ``place`` on.

    All arrays in one file share one mapping, because a system limits the number of mappings.

    Args:
        path: path of the file.
        place: the byte where the array begins.
        dtype: dtype of the array in NumPy's notation.
        shape: shape of the array.
        is_text: True if its elements are the bytes of a text in UTF-8.
    """
    status = os.stat(path)
    with _LOCK:
        key = path, status.st_mtime_ns, status.st_size
        whole = _MAPPINGS.get(key)
        if whole is None:
            whole = _MAPPINGS[key] = MappedArray.of(np.memmap(path, np.uint8, "r"))
    n_bytes = np.dtype(dtype).itemsize * math.prod(shape)
    return MappedArray.of(whole[place : place + n_bytes].view(dtype).reshape(shape), is_text=is_text)


_MAPPINGS: WeakValueDictionary[tuple[str, int, int], MappedArray] = WeakValueDictionary()  # of whole files
_LOCK = threading.Lock()


@dataclass
class StepsSum:
    """A running sum of per-step log-probabilities, to be filled like an array of steps if only the sum is needed.

    Attributes:
        value: the sum so far.
        first: number of the first step that is added; earlier ones, such as those of a past, are ignored.
    """

    value: float = 0.0
    first: int = 0


Steps = np.ndarray | StepsSum


def steps_arrays(lengths: Sequence[int]) -> list[np.ndarray]:
    """Return an array of zeros ``(n,)`` for each of n given lengths, in a temporary file if they are large together.

    Args:
        lengths: number of elements of each array.
    """
    if sum(lengths) <= MAX_STEPS_IN_MEMORY:
        return [np.zeros(n) for n in lengths]
    together = MappedArray.temporary(sum(lengths))
    return [together[a:b] for a, b in pairwise([0, *accumulate(lengths)])]


def write_steps(steps: Steps, start: int, values: np.ndarray) -> None:
    """Write values of consecutive steps into an array, or add them to a running sum.

    Each step must be written once.

    Args:
        steps: the array, or the sum.
        start: number of the first step.
        values: values of the steps from ``start`` on.
    """
    if isinstance(steps, StepsSum):
        steps.value += float(values[max(0, steps.first - start) :].sum())
    elif isinstance(steps, MappedArray):
        steps.write(start, values)
    else:
        steps[start : start + len(values)] = values


def parts_of(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield an array in consecutive parts, each with the number of its first element.

    There is one part, or one per block if the array is on disk.
    """
    if isinstance(array, MappedArray) and array.is_on_disk:
        yield from array.blocks()
    else:
        yield 0, array


def any_mapped(items: Iterable[Any]) -> bool:
    """Return True if one of the items is a ``MappedArray``, an array in a file."""
    return MappedArray in set(map(type, items))


def totals(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of each of n float64 arrays, shape ``(n,)``, bit for bit equal to ``total`` of each array."""
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    different = np.unique(lengths)
    if len(arrays) < MANY_OF_A_LENGTH * max(1, len(different)) or any_mapped(arrays):
        return np.array([total(array) for array in arrays])
    together, stops, result = np.concatenate(arrays), np.cumsum(lengths), np.empty(len(arrays))
    if len(different) == 1:
        return np.asarray(together.reshape(len(arrays), -1).sum(axis=1))
    for length in different.tolist():
        rows = np.flatnonzero(lengths == length)
        result[rows] = together[(stops[rows] - length)[:, None] + np.arange(length)].sum(axis=1)
    return result


def total(array: Steps) -> float:
    """Return the sum of all elements of an array in memory or in a file, or the sum that a ``StepsSum`` holds."""
    if isinstance(array, StepsSum):
        return array.value
    if isinstance(array, MappedArray) and array.is_on_disk:
        return float(sum(float(block.sum()) for _, block in array.blocks()))
    return float(array.sum())


@dataclass(frozen=True)
class Summary:
    """Statistics of the values of an array by feature, with arrays of shape ``(D,)``, or ``(1,)`` for symbols.

    Attributes:
        n: number of elements (frames or symbols).
        n_missing: number of NaN in each feature, shape ``(D,)``.
        lowest: the smallest observed value, shape ``(D,)``; NaN if nothing is observed.
        highest: the largest observed value, shape ``(D,)``; NaN if nothing is observed.
        mean: mean of the observed values, shape ``(D,)``.
        squares: sum of their squared deviations from the mean, shape ``(D,)``, merged block by block (Chan, Golub &
            LeVeque 1983).
        first_missing: the first element with a NaN; None if there is none.
        first_infinite: the first element with an infinite value; None if there is none.
        bad_byte: position in a text of the first byte that is not UTF-8; None if all are.
    """

    n: int
    n_missing: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    first_missing: int | None = None
    first_infinite: int | None = None
    bad_byte: int | None = None

    @classmethod
    def of(cls, array: np.ndarray) -> Summary:
        """Return the statistics by feature of numbers in memory or in a file.

        Args:
            array: the numbers, shape ``(T, D)`` or ``(T,)`` with T > 0.
        """
        merged: Summary | None = None
        decoder = codecs.getincrementaldecoder("utf-8")() if getattr(array, "is_text", False) else None
        for start, block in parts_of(array):
            summary = cls._of_block(block, start)
            merged = summary if merged is None else merged.with_(summary)
            if decoder is not None and merged.bad_byte is None:
                merged = merged._with_bad_byte(
                    _bad_byte(decoder, block, start, is_last=start + len(block) == len(array))
                )
        assert merged is not None, "an empty sequence is refused before"
        return merged

    @classmethod
    def _of_block(cls, block: np.ndarray, start: int) -> Summary:
        columns = block.reshape(len(block), -1)
        if columns.dtype.kind in "iu":
            lowest, highest = columns.min(axis=0), columns.max(axis=0)
            zeros = np.zeros(columns.shape[1])
            if block.ndim == 1:  # symbols, whose mean and squares are left at 0 because they mean nothing
                return cls(len(block), zeros.astype(np.int64), lowest, highest, zeros, zeros)
            columns = columns.astype(np.float64)
        first_missing = first_infinite = None
        if np.isfinite(columns).all():
            n_missing = np.zeros(columns.shape[1], np.int64)
            lowest, highest = columns.min(axis=0), columns.max(axis=0)
            mean = columns.mean(axis=0, dtype=np.float64)
            centred = columns - mean
            squares = np.einsum("td,td->d", centred, centred)
        else:
            missing, infinite = np.isnan(columns), np.isinf(columns)
            n_missing = missing.sum(axis=0)
            first_missing = start + int(np.argmax(missing.any(axis=1))) if missing.any() else None
            first_infinite = start + int(np.argmax(infinite.any(axis=1))) if infinite.any() else None
            lowest, highest = np.fmin.reduce(columns, axis=0), np.fmax.reduce(columns, axis=0)
            observed = np.where(missing | infinite, 0.0, columns.astype(np.float64))
            mean = observed.sum(axis=0) / np.maximum(len(block) - n_missing, 1)
            squares = np.where(missing | infinite, 0.0, (observed - mean) ** 2).sum(axis=0)
        lowest, highest = lowest.astype(np.float64), highest.astype(np.float64)
        return cls(len(block), n_missing, lowest, highest, mean, squares, first_missing, first_infinite)

    def with_(self, later: Summary) -> Summary:
        """Return the statistics of the elements of two arrays together.

        Args:
            later: statistics of the array whose elements come after those of this one.
        """
        here, there = self.n - self.n_missing, later.n - later.n_missing
        both = np.maximum(here + there, 1)
        apart = later.mean - self.mean
        return Summary(
            self.n + later.n,
            self.n_missing + later.n_missing,
            np.fmin(self.lowest, later.lowest),
            np.fmax(self.highest, later.highest),
            self.mean + apart * (there / both),
            self.squares + later.squares + apart**2 * (here * there / both),
            self.first_missing if self.first_missing is not None else later.first_missing,
            self.first_infinite if self.first_infinite is not None else later.first_infinite,
            self.bad_byte,
        )

    def _with_bad_byte(self, bad_byte: int | None) -> Summary:
        return self if bad_byte is None else Summary(**{**vars(self), "bad_byte": bad_byte})


def _bad_byte(decoder: codecs.IncrementalDecoder, block: np.ndarray, start: int, *, is_last: bool) -> int | None:
    """Return the position of a byte in a text that is not UTF-8; None if there is none.

    Args:
        decoder: incremental decoder that has read everything before the block.
        block: the next bytes of the text.
        start: position of the block in the text.
        is_last: True if the text ends with this block.
    """
    held_back = len(decoder.getstate()[0])  # the bytes of a character that is not complete
    try:
        decoder.decode(block.tobytes(), is_last)
    except UnicodeDecodeError as error:
        return start - held_back + error.start
    return None


# -- pages -----------------------------------------------------------------------------------------------------


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """Return the memory mapping that an array is part of; None if it is in memory."""
    base: Any = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _release(part: np.ndarray) -> None:
    """Give the memory pages of ``part``, a part of a mapped file, back to the system.

    A mapping whose changes are private (``mode="c"``) keeps its pages, because the changes are nowhere else.
    """
    mapping, advice = _mapping(part), getattr(mmap, "MADV_DONTNEED", None)  # Linux, macOS
    if mapping is None or advice is None or not part.size or getattr(part, "mode", "c") == "c":
        return
    origin = np.frombuffer(mapping, np.uint8).ctypes.data
    low, high = np.lib.array_utils.byte_bounds(part)
    start = (low - origin) // READ_AROUND * READ_AROUND
    stop = min(len(mapping), -(-(high - origin) // READ_AROUND) * READ_AROUND)
    mapping.madvise(advice, start, stop - start)

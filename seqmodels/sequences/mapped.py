"""Arrays that stay in their file: read and written a block at a time, so that little of them is in memory at once.

A memory-mapped array is paged in by whatever touches it and stays resident as long as there is room, so a pass over a
file of 20 GB holds 20 GB. Here pages are given back to the system after each block (``madvise``); what comes again is
read from the system's cache of the file, or from the file.
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

BLOCK_BYTES = 1 << 23  # read at once, of what is in the file
READ_AROUND = 1 << 21  # bytes: a system maps pages near those that were asked for, too
MANY_OF_A_LENGTH = 32  # arrays, from which on they are summed together
MAX_STEPS_IN_MEMORY = 1 << 20  # log-probabilities of sequences on disk; of more they are written to a file


class MappedArray(np.memmap):
    """``(T, D)`` or ``(T,)`` in a file; a slice is one too, and ``read`` copies a part of it into memory.

    Attributes:
        is_text: whether its elements are the bytes of a text in UTF-8.
    """

    is_text: bool

    @classmethod
    def of(cls, array: np.memmap, *, is_text: bool = False) -> MappedArray:
        """The same part of the same file."""
        if isinstance(array, cls) and array.is_text >= is_text:
            return array
        mapped = array.view(cls)
        mapped.is_text = is_text or mapped.is_text
        return mapped

    @classmethod
    def temporary(cls, shape: int | tuple[int, ...], dtype: Any = np.float64) -> MappedArray:
        """Zeros in a file without a name, in the system's folder for temporary files.

        Whatever ends the process, the file goes with it. ``TMPDIR`` names another folder.
        """
        with tempfile.TemporaryFile(prefix="seqmodels-") as file:
            return cls.of(np.memmap(file, dtype, "w+", shape=shape))

    def __array_finalize__(self, obj: Any) -> None:
        super().__array_finalize__(obj)
        self.is_text = getattr(obj, "is_text", False)
        self._summary: Summary | None = None

    def __reduce__(self) -> Any:
        """Pickled as the place in its file, which whoever reads it must have under the same name.

        By value, as other arrays are: a part that is not contiguous, a file without a name or that is gone, changes
        that are private.
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
        begin = self.offset - self.offset % mmap.ALLOCATIONGRANULARITY  # of the mapping in the file
        place = begin + self.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
        return _in_file, (os.fspath(path), place, self.dtype.str, self.shape, self.is_text)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What is computed from it is in memory."""
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        is_copy = isinstance(part, MappedArray) and _mapping(part) is None
        return part.view(np.ndarray) if is_copy else part

    @property
    def is_on_disk(self) -> bool:
        """False of an array that was computed from one in a file."""
        return _mapping(self) is not None

    def read(self, start: int, stop: int) -> np.ndarray:
        """A copy of elements ``start .. stop - 1``."""
        part = self[start:stop]
        copied = np.array(part, copy=True, subok=False)
        _release(part)
        return copied

    def write(self, start: int, values: np.ndarray) -> None:
        """Set the elements from ``start`` on."""
        part = self[start : start + len(values)]
        part[:] = values
        _release(part)

    def release(self) -> None:
        """Give back the pages it stands on, which are read again by what needs them."""
        _release(self)

    @property
    def elements_in_block(self) -> int:
        """How many elements, frames or symbols, are read at once."""
        return max(1, BLOCK_BYTES // max(1, self.itemsize * int(np.prod(self.shape[1:]))))

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All of it in order: the first element's number and a copy of each block."""
        size = self.elements_in_block
        for start in range(0, len(self), size):
            yield start, self.read(start, start + size)

    def first(self, condition: Callable[[np.ndarray], np.ndarray]) -> int:
        """The first element of ``(T,)`` for which it holds; there must be one."""
        return next(t + int(np.argmax(condition(block))) for t, block in self.blocks() if condition(block).any())

    @property
    def summary(self) -> Summary:
        """Of all its values; read once."""
        if self._summary is None:
            self._summary = Summary.of(self)
        return self._summary


def _in_memory(array: np.ndarray, is_text: bool) -> MappedArray:
    mapped = array.view(MappedArray)
    mapped.is_text = is_text
    return mapped


def _in_file(path: str, place: int, dtype: str, shape: tuple[int, ...], is_text: bool) -> MappedArray:
    """Values from a byte of a file on; all parts of a file share one mapping, of which there may not be many."""
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
    """What stands in the place of an array of steps where only the sum of those from ``first`` on is asked for.

    None of them is kept.
    """

    value: float = 0.0
    first: int = 0


Steps = np.ndarray | StepsSum


def steps_arrays(lengths: Sequence[int]) -> list[np.ndarray]:
    """``(n,)`` float64 zeros for each of the lengths, all in one temporary file where together they are many."""
    if sum(lengths) <= MAX_STEPS_IN_MEMORY:
        return [np.zeros(n) for n in lengths]
    together = MappedArray.temporary(sum(lengths))
    return [together[a:b] for a, b in pairwise([0, *accumulate(lengths)])]


def write_steps(steps: Steps, start: int, values: np.ndarray) -> None:
    """Set the steps from ``start`` on, each of them once."""
    if isinstance(steps, StepsSum):
        steps.value += float(values[max(0, steps.first - start) :].sum())
    elif isinstance(steps, MappedArray):
        steps.write(start, values)
    else:
        steps[start : start + len(values)] = values


def parts_of(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The array, or of one on disk its blocks, each after the number of its first element."""
    if isinstance(array, MappedArray) and array.is_on_disk:
        yield from array.blocks()
    else:
        yield 0, array


def any_mapped(items: Iterable[Any]) -> bool:
    """Whether one of them is a ``MappedArray``; of very many it takes no time."""
    return MappedArray in set(map(type, items))


def totals(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """``(n,)`` the ``total`` of each of n float64 arrays; those of one length are summed together, to the same bits."""
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
    """The sum of its elements."""
    if isinstance(array, StepsSum):
        return array.value
    if isinstance(array, MappedArray) and array.is_on_disk:
        return float(sum(float(block.sum()) for _, block in array.blocks()))
    return float(array.sum())


@dataclass(frozen=True)
class Summary:
    """What one pass over an array tells: for each of D features (of symbols one) ``(D,)`` figures of what is observed.

    Attributes:
        n: elements.
        n_missing: ``(D,)`` how many are NaN.
        lowest, highest: ``(D,)``; NaN where nothing is observed.
        mean, squares: ``(D,)`` the mean, and the sum of squares around it, by blocks (Chan, Golub & LeVeque 1983).
        first_missing, first_infinite: the first element with a value that is NaN, or infinite; None: none has.
        bad_byte: of a text the first byte that is no UTF-8; None: all are.
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
        """Of ``(T, D)`` or ``(T,)`` numbers, in a file or not, T > 0."""
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
            if block.ndim == 1:  # symbols, which have no moments
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
        """Of both parts together, ``later`` after this one."""
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
    """The position of a byte that cannot follow those that the decoder has read; None: there is none."""
    held_back = len(decoder.getstate()[0])  # the bytes of a character that is not complete
    try:
        decoder.decode(block.tobytes(), is_last)
    except UnicodeDecodeError as error:
        return start - held_back + error.start
    return None


# -- pages -----------------------------------------------------------------------------------------------------


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The mapping that an array is a part of; None: it is in memory."""
    base: Any = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _release(part: np.ndarray) -> None:
    """Give back the pages that a part of a mapping stands on.

    A mapping whose changes are private (``mode="c"``) keeps them: they are nowhere else.
    """
    mapping, advice = _mapping(part), getattr(mmap, "MADV_DONTNEED", None)  # Linux, macOS
    if mapping is None or advice is None or not part.size or getattr(part, "mode", "c") == "c":
        return
    origin = np.frombuffer(mapping, np.uint8).ctypes.data
    low, high = np.lib.array_utils.byte_bounds(part)
    start = (low - origin) // READ_AROUND * READ_AROUND
    stop = min(len(mapping), -(-(high - origin) // READ_AROUND) * READ_AROUND)
    mapping.madvise(advice, start, stop - start)

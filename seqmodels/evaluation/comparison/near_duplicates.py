"""Test sequences that share most of their shingles, windows of a few steps, with the training part (Broder 1997)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqmodels.encodings.raw_data import Data
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.mapped import MappedArray

MIN_WINDOWS = {"text": 16, "symbols": 8, "vectors": 4}  # bytes, symbols, frames
MAX_WINDOW = 256
SPECIFICITY = 3.0  # entropy of a window, if steps were independent, over the log of the number of windows
MAX_FILTER_BITS = 2**28  # 32 MiB
BITS_PER_WINDOW = 16  # a false positive of two probes then has probability (2 / 16)² at most
SHARE = 0.5  # a near duplicate has more than this share of its windows in the training part
SAMPLE_STEPS = 200_000  # number of steps from which the entropy of a step is estimated
AT_ONCE = 1 << 18  # most steps of a long sequence that are hashed at a time
VALUES_AT_ONCE = 1 << 20  # most values (steps times features) that are hashed at a time
DIGITS = 3  # vectors are rounded to this many decimals of a standard deviation
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, bits well mixed: 2^64 over the golden ratio (Knuth's hashing)
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # multiplier of the finaliser of SplitMix64 (Steele, Lea & Flood 2014)


@dataclass(frozen=True)
class NearDuplicates:
    """The number of test sequences of which more than half the windows, runs of a few steps, are in the training part.

    Attributes:
        n: number of these sequences.
        window: length of a window in steps; for pairs, of windows of targets.
        input_window: length of windows of inputs; 0 without inputs.
    """

    n: int
    window: int
    input_window: int = 0


def near_duplicates(test: Data, train: Data | None) -> NearDuplicates:
    """Count the test sequences with more than half of their windows in the training part; exact copies are counted too.

    All windows of k steps (shingles, Broder 1997) of the training part are hashed into a Bloom filter of at most 32
    MiB, and the windows of each test sequence are looked up in it. Windows in which all steps are equal, such as
    silence, are left out, and so are sequences that have no other windows. Vectors are rounded to a thousandth of the
    standard deviation of each feature, so that copies are found and merely similar vectors are not. k is so large that
    windows of independent steps hardly agree by chance, and at least 16 bytes, 8 symbols or 4 frames. Time is linear in
    the data.

    A pair of input and target is counted if both are near duplicates, or if one is and the other has no windows.
    Targets alone are not enough, because labels that last long look alike everywhere.

    Args:
        test: the scored part.
        train: the training part; None means that there is none, and the count is 0.
    """
    if train is None:
        return NearDuplicates(0, 0)
    shared, window = _shared(test.scored, train.scored)
    if test.y is None or train.y is None:
        return NearDuplicates(int((shared > SHARE).sum()), window)
    of_inputs, input_window = _shared(test.X, train.X)
    differs = (shared <= SHARE) | (of_inputs <= SHARE)  # NaN, a sequence without windows, does not count as different
    has_windows = ~(np.isnan(shared) & np.isnan(of_inputs))
    return NearDuplicates(int((has_windows & ~differs).sum()), window, input_window)


def _shared(test: Sequences, train: Sequences) -> tuple[np.ndarray, int]:
    """Return the share of each test sequence's windows that the training part has, ``(n,)``, and a window's length.

    A window is a run of a few consecutive steps. The share is NaN for a sequence without windows.

    Args:
        test: n test sequences.
        train: sequences of the training part.
    """
    codes = _Codes.of(train)
    n_steps = int(train.n_units.sum())
    k = _window(codes, train, n_steps)
    seen = _Filter(n_steps)
    for item in train.items:
        for windows in _windows_of_item(codes, item, k):
            seen.add(windows)
    shares = np.full(len(test), np.nan)
    for i, item in enumerate(test.items):
        n_known, n_windows = 0, 0
        for windows in _windows_of_item(codes, item, k):
            n_known += int(seen.contains(windows).sum())
            n_windows += len(windows)
        if n_windows:
            shares[i] = n_known / n_windows
    return shares, k


@dataclass(frozen=True)
class _Codes:
    """A map from steps to 64-bit integers that are equal for equal steps.

    Attributes:
        scale: vectors of D features are rounded to multiples of it, ``(D,)``; None for symbols and text.
    """

    scale: np.ndarray | None

    @classmethod
    def of(cls, train: Sequences) -> _Codes:
        """Return the map for sequences like ``train``, with the scale of its vectors."""
        if train.kind != "vectors":
            return cls(None)
        some = np.concatenate([np.asarray(item[:1000], dtype=float) for item in train.items[:1000]])
        deviation = np.array([np.std(column[np.isfinite(column)]) for column in some.T])
        return cls(np.where(deviation > 0, deviation, 1.0) / 10**DIGITS)

    def of_item(self, item: Item) -> np.ndarray:
        """Return the 64-bit code of each of T steps of a sequence, shape ``(T,)``; for text, of each UTF-8 byte."""
        if isinstance(item, str):
            return np.frombuffer(item.encode(), dtype=np.uint8).astype(np.uint64)
        if self.scale is None and item.dtype.kind == "O":
            names, at = np.unique(item.astype(str), return_inverse=True)
            return np.array([zlib.crc32(name.encode()) for name in names], dtype=np.uint64)[at]
        if self.scale is None:
            return np.asarray(item).astype(np.int64).view(np.uint64)
        with np.errstate(invalid="ignore", over="ignore"):
            rounded = np.nan_to_num(np.round(np.asarray(item, dtype=float) / self.scale), nan=-(2.0**61))
            whole = np.clip(rounded, -(2.0**62), 2.0**62).astype(np.int64).view(np.uint64)
        result = np.zeros(len(whole), dtype=np.uint64)
        for column in whole.T:
            result = _mixed(result * _FACTOR + column)
        return result


def _window(codes: _Codes, train: Sequences, n_steps: int) -> int:
    """Return the length of a window (a run of consecutive steps) so long that random windows rarely agree.

    It is ``SPECIFICITY * log(n_steps) / entropy`` steps, at least ``MIN_WINDOWS`` and at most ``MAX_WINDOW``. The
    entropy of a step is estimated from the codes of the first ``SAMPLE_STEPS`` steps.

    Args:
        codes: map from steps to integers.
        train: sequences of the training part.
        n_steps: number of their steps.
    """
    some: list[np.ndarray] = []
    n = 0
    for item in train.items:
        some += [codes.of_item(part) for part in _parts(item[:SAMPLE_STEPS], 1)]
        n += len(item[:SAMPLE_STEPS])
        if n >= SAMPLE_STEPS:
            break
    _, counts = np.unique(np.concatenate(some), return_counts=True)
    p = counts / counts.sum()
    entropy = max(float(-(p * np.log(p)).sum()), 1e-3)
    least = MIN_WINDOWS[train.kind]
    return min(max(least, math.ceil(SPECIFICITY * math.log(max(n_steps, 2)) / entropy)), MAX_WINDOW)


def _windows_of_item(codes: _Codes, item: Item, k: int) -> Iterator[np.ndarray]:
    """Yield the hashes of all windows (runs) of k steps of a sequence, ``(m,)``, in arrays of bounded size.

    Windows whose steps are all equal are left out.

    Args:
        codes: map from steps to integers.
        item: the sequence.
        k: number of steps of a window.
    """
    return (_windows(codes.of_item(part), k) for part in _parts(item, k) if len(part) >= k or isinstance(part, str))


def _parts(item: Item, k: int) -> Iterator[Item]:
    """Yield a sequence in parts that overlap by ``k - 1`` steps, so that every run of k steps is within one part.

    A text is one part; a sequence on disk is read part by part.

    Args:
        item: the sequence.
        k: number of steps of a run.
    """
    if isinstance(item, str):
        yield item
        return
    size = min(AT_ONCE, max(1, VALUES_AT_ONCE // int(np.prod(item.shape[1:]))))
    for start in range(0, max(1, len(item) - k + 1), size):
        stop = start + size + k - 1
        yield item.read(start, stop) if isinstance(item, MappedArray) else item[start:stop]


def _windows(codes: np.ndarray, k: int) -> np.ndarray:
    """Return the hashes of all windows (runs) of k steps, except windows whose steps are all equal.

    Args:
        codes: 64-bit code of each of T steps, ``(T,)``.
        k: number of steps of a window.
    """
    n = max(0, len(codes) - k + 1)
    changes = np.concatenate([[0], np.cumsum(codes[1:] != codes[:-1])])
    # By doubling: the hash of 2w steps follows from two hashes of w steps, and that of k steps from k's binary digits.
    hashes, width, done, length = _mixed(codes), 1, np.zeros(len(codes), dtype=np.uint64), 0
    while width <= k:
        if k & width:
            at = np.minimum(np.arange(len(codes)) + length, len(codes) - 1)
            done = _mixed(done * _FACTOR + hashes[at])
            length += width
        shifted = np.minimum(np.arange(len(codes)) + width, len(codes) - 1)
        hashes, width = _mixed(hashes * _FACTOR + hashes[shifted]), 2 * width
    return np.asarray(done[:n][changes[k - 1 :][:n] != changes[:n]])


def _mixed(x: np.ndarray) -> np.ndarray:
    """Hash each 64-bit integer of ``x``, so that every bit of the result depends on many of its bits."""
    x = (x ^ (x >> np.uint64(30))) * _MIX
    return np.asarray(x ^ (x >> np.uint64(27)))


class _Filter:
    """A Bloom filter with two probes (Bloom 1970): a set that may report a few hashes that were never added."""

    def __init__(self, n: int) -> None:
        bits = 2 ** math.ceil(math.log2(max(BITS_PER_WINDOW * n, 64)))
        self._bits = np.zeros(min(bits, MAX_FILTER_BITS) // 8, dtype=np.uint8)

    def _probes(self, hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for shift in (0, 32):  # the two halves of one hash serve as two hashes
            at = (hashes >> np.uint64(shift)) % np.uint64(8 * len(self._bits))
            yield (at >> np.uint64(3)).astype(np.int64), np.uint8(1) << (at & np.uint64(7)).astype(np.uint8)

    def add(self, hashes: np.ndarray) -> None:
        for at, bit in self._probes(hashes):
            np.bitwise_or.at(self._bits, at, bit)

    def contains(self, hashes: np.ndarray) -> np.ndarray:
        known = np.ones(len(hashes), dtype=bool)
        for at, bit in self._probes(hashes):
            known &= (self._bits[at] & bit) > 0
        return known

"""Hashes of the last 0, 1, 2, ... symbols before each event."""

from __future__ import annotations

import numpy as np

# Steele, Lea & Flood 2014, Fast splittable pseudorandom number generators (SplitMix64).
INCREMENT = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# Far from every small multiple of INCREMENT, so that no context of one symbol has the hash of a number (``mixed``).
CONTEXT = np.uint64(0xD1B54A32D192ED03)


def _mix(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * FIRST
    values = (values ^ (values >> np.uint64(27))) * SECOND
    return np.asarray(values ^ (values >> np.uint64(31)))


def mixed(values: np.ndarray) -> np.ndarray:
    """Return a hash of each of ``values (N,)``, uint64, as int64 from 0 to ``2^63 - 1``."""
    return (_mix(values * INCREMENT) >> np.uint64(1)).astype(np.int64)


def context_hashes(row: np.ndarray, begin: int, end: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a hash of each context of 0 to ``depth`` symbols before each of the events ``row[begin:end]``.

    The probability that any two of n contexts share a hash, and so their counts, is below ``n^2 / 2^64``.

    Args:
        row: the start symbol, the source and the events (symbols to predict) of a sequence, ``(S,)``.
        begin: index of the first event, at least 1.
        end: index after the last event.
        depth: number of symbols of the longest context.

    Returns:
        hashes: hash of each context, ``(end - begin, depth + 1)``, non-negative int64; column d is the context of d
            symbols. Hashes after the first ``n_contexts`` of a row mean nothing.
        n_contexts: number of contexts of each event, the empty one included, ``(end - begin,)``: ``depth + 1``, but
            fewer near the start.
    """
    at = np.arange(begin, end)
    hashes = np.zeros((len(at), depth + 1), np.uint64)
    symbols = (row.astype(np.uint64) + np.uint64(1)) * INCREMENT + CONTEXT
    for d in range(1, depth + 1):
        hashes[:, d] = _mix(hashes[:, d - 1] + symbols[np.maximum(at - d, 0)])
    return (hashes >> np.uint64(1)).astype(np.int64), np.minimum(at, depth) + 1

"""The last 0, 1, 2, .. symbols before each event, as hashes."""

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
    """Numbers ``(N,)`` uint64 -> int64 from 0 on, of 63 bits, without pattern."""
    return (_mix(values * INCREMENT) >> np.uint64(1)).astype(np.int64)


def context_hashes(row: np.ndarray, begin: int, end: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the events ``row[begin:end]`` the contexts of 0 to ``depth`` symbols.

    Among n contexts some two share a hash with probability below ``n^2 / 2^64``; they would share counts. Hashes of
    contexts and of decisions (``Decomposition.node_hashes``) come from different functions: a record's key is the
    exclusive or of both, which would else be the same for (context a, decision b) and (context b, decision a).

    Args:
        row: ``(S,)`` the start symbol, what is known of the source, and the events.
        begin: of the first event, at least 1.
        end: after the last.
        depth: symbols of the longest context.

    Returns:
        hashes: ``(end - begin, depth + 1)`` int64, from 0 on.
        n_contexts: ``(end - begin,)`` how many of them there are; fewer near the start.
    """
    at = np.arange(begin, end)
    hashes = np.zeros((len(at), depth + 1), np.uint64)
    symbols = (row.astype(np.uint64) + np.uint64(1)) * INCREMENT + CONTEXT
    for d in range(1, depth + 1):
        hashes[:, d] = _mix(hashes[:, d - 1] + symbols[np.maximum(at - d, 0)])
    return (hashes >> np.uint64(1)).astype(np.int64), np.minimum(at, depth) + 1

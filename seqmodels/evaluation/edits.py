"""Edit distance (Levenshtein 1966) of many pairs at once: ``d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i ≠ b_j])``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CELLS = 1 << 20  # of all pairs' rows at once


def edit_distances(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """``(n,)`` fewest insertions, deletions and substitutions that turn each of ``first`` into its partner, 1-D integers."""
    if len(first) != len(second):
        raise ValueError(f"there are {len(first)} sequences but {len(second)} partners; pass one for each")
    distances = np.zeros(len(first), dtype=np.int64)
    order = sorted(range(len(first)), key=lambda i: (len(second[i]), len(first[i])))
    begin = 0
    while begin < len(order):
        widest = 1 + max(len(second[i]) for i in order[begin : begin + CELLS])
        part = order[begin : begin + max(1, CELLS // widest)]
        distances[part] = _of_batch([first[i] for i in part], [second[i] for i in part])
        begin += len(part)
    return distances


def _of_batch(first: list[np.ndarray], second: list[np.ndarray]) -> np.ndarray:
    a, n_a = _padded(first)
    b, n_b = _padded(second)
    column = np.arange(b.shape[1] + 1)
    row = np.tile(column, (len(b), 1))  # (n, J + 1), distances of the first i of a from the first j of b
    found = np.where(n_a == 0, n_b, 0)
    for i in range(1, a.shape[1] + 1):
        row = _next(row, a[:, i - 1, None] != b, column)
        found = np.where(n_a == i, row[np.arange(len(b)), n_b], found)
    return found


def _next(row: np.ndarray, differs: np.ndarray, column: np.ndarray) -> np.ndarray:
    """An insertion costs 1 wherever it begins: ``min_k≤j (best_k + j - k)`` is a running minimum of ``best_k - k``."""
    best = row + 1
    best[:, 1:] = np.minimum(best[:, 1:], row[:, :-1] + differs)
    return np.minimum.accumulate(best - column, axis=1) + column


def _padded(sequences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """``(n, T)``, zeros after the end, which no distance that is asked for sees, and ``(n,)`` lengths."""
    lengths = np.array([len(s) for s in sequences])
    table = np.zeros((len(sequences), lengths.max()), dtype=np.int64)
    for row, s in zip(table, sequences, strict=True):
        row[: len(s)] = s
    return table, lengths

"""Error metrics of decoded texts or symbols: the rate of edits, and the share of sequences that match exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from seqmodels.common.parameters import checked
from seqmodels.evaluation.metrics.references import reference_pairs

Unit = Literal["character", "word"]

MAX_CELLS = 1 << 20  # most cells in the rows of all pairs whose edit distances are computed at once


@checked
def error_rate(references: Sequence[Any], hypotheses: Sequence[Any], *, unit: Unit = "character") -> float:
    """Return the number of edits in all hypotheses divided by the total length of their references; it may exceed 1.

    Edits are insertions, deletions and substitutions of a Levenshtein alignment. With ``unit="word"`` it is the word
    error rate.

    Args:
        references: a text or an integer sequence for each hypothesis, or a list of several. Among several, the
            reference with the fewest edits counts, and among equal ones the longest.
        hypotheses: decoded texts or integer sequences, which may be empty.
        unit: unit of a text: ``"character"``, or ``"word"``, as split by white space.

    Raises:
        ValueError: the numbers of references and hypotheses differ, or all references are empty.

    >>> error_rate(["kitten", ["sunday", "saturday"]], ["sitting", "sundays"])
    0.3333333333333333
    """
    if unit not in ("character", "word"):
        raise ValueError(f"unit is {unit!r}; pass 'character' or 'word'")
    index, each_reference, each_hypothesis = reference_pairs(references, hypotheses)
    words: dict[str, int] = {}
    reference_steps = [_steps(item, unit, words) for item in each_reference]
    hypothesis_steps = [_steps(item, unit, words) for item in each_hypothesis]
    edits = edit_distances(hypothesis_steps, reference_steps)
    lengths = np.array([len(steps) for steps in reference_steps])
    closest = np.lexsort((-lengths, edits, index))[np.unique(index, return_index=True)[1]]
    if not lengths[closest].sum():
        raise ValueError("the references are all empty, so there is no length to divide by; pass longer ones")
    return float(edits[closest].sum() / lengths[closest].sum())


@checked
def exact_match(references: Sequence[Any], hypotheses: Sequence[Any]) -> float:
    """Return the share of hypotheses that equal their reference, or one of several references.

    Args:
        references: a text or an integer sequence for each hypothesis, or a list of several.
        hypotheses: decoded texts or integer sequences.

    Raises:
        ValueError: the numbers of references and hypotheses differ.

    >>> exact_match(["one", ["two", "2"]], ["one", "2"])
    1.0
    """
    index, each_reference, each_hypothesis = reference_pairs(references, hypotheses)
    same = [np.array_equal(a, b) for a, b in zip(each_reference, each_hypothesis, strict=True)]
    return len(set(index[same].tolist())) / len(hypotheses)


def _steps(item: Any, unit: Unit, words: dict[str, int]) -> np.ndarray:
    if not isinstance(item, str):
        values = np.asarray(item)
        if values.dtype.kind in "OU":
            return np.array([words.setdefault(word, len(words)) for word in values.tolist()], dtype=np.int64)
        return values.astype(np.int64)
    if unit == "word":
        return np.array([words.setdefault(word, len(words)) for word in item.split()], dtype=np.int64)
    return np.array([ord(character) for character in item], dtype=np.int64)


# -- edit distance --------------------------------------------------------------------------------------------


def edit_distances(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """Return the Levenshtein distance of each of n pairs of sequences, shape ``(n,)``.

    It is the fewest insertions, deletions and substitutions that turn a sequence of ``first`` into its partner in
    ``second``: ``d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i ≠ b_j])``, computed for many pairs at
    once.

    Args:
        first: 1-D integer arrays.
        second: partner of each, a 1-D integer array.

    Raises:
        ValueError: the numbers of sequences and partners differ.
    """
    if len(first) != len(second):
        raise ValueError(f"there are {len(first)} sequences but {len(second)} partners; pass one for each")
    distances = np.zeros(len(first), dtype=np.int64)
    # Sorted by length, because a batch is padded to its longest sequence.
    order = sorted(range(len(first)), key=lambda i: (len(second[i]), len(first[i])))
    begin = 0
    while begin < len(order):
        width = 1 + max(len(second[i]) for i in order[begin : begin + MAX_CELLS])
        batch = order[begin : begin + max(1, MAX_CELLS // width)]
        distances[batch] = _batch_distances([first[i] for i in batch], [second[i] for i in batch])
        begin += len(batch)
    return distances


def _batch_distances(first: list[np.ndarray], second: list[np.ndarray]) -> np.ndarray:
    a, n_a = _padded(first)
    b, n_b = _padded(second)
    column_numbers = np.arange(b.shape[1] + 1)
    row = np.tile(column_numbers, (len(b), 1))  # (n, J + 1), distances of the first i of a from the first j of b
    distances = np.where(n_a == 0, n_b, 0)
    for i in range(1, a.shape[1] + 1):
        row = _next_row(row, a[:, i - 1, None] != b, column_numbers)
        distances = np.where(n_a == i, row[np.arange(len(b)), n_b], distances)
    return distances


def _next_row(row: np.ndarray, differs: np.ndarray, column_numbers: np.ndarray) -> np.ndarray:
    """Compute the next row of the dynamic-programming tables of n edit distances, ``(n, J + 1)``.

    Because an insertion costs 1 wherever it begins, ``min_k≤j (best_k + j - k)`` is a running minimum of
    ``best_k - k``.

    Args:
        row: the row before, ``(n, J + 1)``, for second sequences of at most J steps.
        differs: True where the step of the first sequence differs from each step of the second, ``(n, J)``.
        column_numbers: 0 to J, ``(J + 1,)``.
    """
    best = row + 1
    best[:, 1:] = np.minimum(best[:, 1:], row[:, :-1] + differs)
    row = np.minimum.accumulate(best - column_numbers, axis=1) + column_numbers
    return row


def _padded(sequences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return n integer sequences padded with zeros on the right, ``(n, T)``, and their lengths, ``(n,)``."""
    lengths = np.array([len(s) for s in sequences])
    table = np.zeros((len(sequences), lengths.max()), dtype=np.int64)
    for row, s in zip(table, sequences, strict=True):
        row[: len(s)] = s
    return table, lengths

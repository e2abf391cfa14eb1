from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from seqmodels.evaluation import edits
from seqmodels.evaluation.edits import edit_distances


def by_definition(a: np.ndarray, b: np.ndarray) -> int:
    """The recursion, one pair at a time."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + int(a[i - 1] != b[j - 1]))

    return distance(len(a), len(b))


def drawn(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [rng.integers(0, 3, rng.integers(0, 12)) for _ in range(n)]


@pytest.mark.parametrize("cells", [1, 30, 1 << 20])  # a pair at a time, a few, all
def test_distances_are_those_of_the_recursion(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "CELLS", cells)
    first, second = drawn(60), drawn(61)[:60]
    expected = [by_definition(a, b) for a, b in zip(first, second, strict=True)]
    assert edit_distances(first, second).tolist() == expected
    assert edit_distances(second, first).tolist() == expected
    assert len(set(expected)) > 5


def test_nothing_against_nothing() -> None:
    empty, one = np.zeros(0, dtype=np.int64), np.array([4])
    assert edit_distances([empty, empty, one, one], [empty, one, empty, one]).tolist() == [0, 1, 1, 0]
    assert edit_distances([], []).tolist() == []
    with pytest.raises(ValueError, match="2 sequences but 1 partners"):
        edit_distances([one, one], [one])

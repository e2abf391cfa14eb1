"""Sequences that have read the same learn once, and are as they would be alone when they part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.testing import assert_array_equal
from torch import Tensor

from seqmodels.generation import Prediction
from seqmodels.observations import Categorical
from seqmodels.wrappers.dynamic_evaluation.segment_cursor import SegmentCursor, SharedHistory


@dataclass(frozen=True)
class Sum:
    """Predicts what was learned, and the sum of the elements of the segment so far."""

    learned: float

    def start(self, source: Any = None, n: int = 1) -> Tensor:
        return torch.zeros(n, dtype=torch.float64)

    def advance(self, state: Tensor, x: Tensor) -> Tensor:
        return state + x

    def distribution(self, state: Tensor) -> Prediction:
        numbers = torch.stack([torch.full_like(state, self.learned), state], -1)
        return Prediction(Categorical(), numbers[:, None], None, None, state)

    def select(self, state: Tensor, index: Tensor) -> Tensor:
        return state[index]


@dataclass(frozen=True)
class SumCursor(SegmentCursor[float]):
    """Learns half of what it has learned, and the product of each segment's elements; counts how often it learns."""

    lessons: list[float] = field(default_factory=list)

    @property
    def segment_length(self) -> int:
        return 3

    def begin(self, source: np.ndarray | None, rows: list[int]) -> SharedHistory[float]:
        learned = 0.0 if source is None else float(source.sum())
        return SharedHistory(torch.tensor(rows), learned, (), Sum(learned).start(n=len(rows)))

    def cursor_of(self, learned: float) -> Sum:
        return Sum(learned)

    def element(self, state: Tensor, x: Tensor) -> Tensor:
        return x.double()

    def learn(self, group: SharedHistory[float], segments: Tensor, same: list[Tensor]) -> list[SharedHistory[float]]:
        return [self._learned(group, segments, rows) for rows in same]

    def _learned(self, group: SharedHistory[float], segments: Tensor, rows: Tensor) -> SharedHistory[float]:
        learned = group.learned / 2 + float(segments[rows[0]].prod())
        self.lessons.append(learned)
        return SharedHistory(group.rows[rows], learned, (), torch.zeros(len(rows), dtype=torch.float64))

    def alike(self, pasts: list[Tensor | None]) -> list[Tensor | None]:
        return pasts


def read(cursor: SumCursor, sequences: list[list[int]], source: Any = None) -> np.ndarray:
    """``(n, 2)`` of each sequence: what was learned, and the sum after it."""
    state = cursor.start(source, len(sequences))
    for x in torch.tensor(sequences).T:
        state = cursor.advance(state, x)
    return cursor.distribution(state).output_parameters[:, 0].numpy()


def test_what_was_read_alike_is_learned_once() -> None:
    cursor = SumCursor()
    sequences = [[1, 2, 3, 4, 5, 6, 7], [2, 2, 2, 4, 5, 6, 8], [1, 2, 3, 4, 5, 6, 9], [1, 2, 3, 1, 1, 1, 1]]
    together = read(cursor, sequences)
    assert cursor.lessons == [6.0, 8.0, 123.0, 4.0, 124.0]
    assert_array_equal(together, [[123, 7], [124, 8], [123, 9], [4, 1]])
    assert_array_equal(together, np.concatenate([read(SumCursor(), [each]) for each in sequences]))


def test_sources_part_sequences_from_the_start() -> None:
    sources = [np.array([1, 1]), np.array([5, 0]), np.array([1, 1])]
    assert_array_equal(read(SumCursor(), [[1], [2], [3]], sources), [[2, 1], [5, 2], [2, 3]])


def test_chosen_sequences_go_on_in_the_order_of_the_choice() -> None:
    cursor = SumCursor()
    state = cursor.start(n=3)
    for x in ([1, 1, 2], [1, 2, 2], [1, 2, 2], [5, 6, 7]):
        state = cursor.advance(state, torch.tensor(x))
    chosen = cursor.select(state, torch.tensor([2, 0, 2, 1]))
    assert_array_equal(cursor.distribution(chosen).output_parameters[:, 0], [[8, 7], [1, 5], [8, 7], [4, 6]])
    chosen = cursor.advance(cursor.advance(chosen, torch.tensor([1, 1, 1, 1])), torch.tensor([1, 1, 2, 1]))
    assert_array_equal(cursor.distribution(chosen).output_parameters[:, 0, 0], [11, 5.5, 18, 8])


def test_what_is_kept_is_the_callers_no_more_and_may_have_gradients() -> None:
    cursor, x = SumCursor(), torch.tensor([2])
    with torch.inference_mode():
        state = cursor.advance(cursor.start(), x)
        x[0] = 7
    assert [int(step) for step in state.groups[0].steps] == [2]
    assert not state.groups[0].steps[0].is_inference()

"""Dynamic evaluation one step at a time, where sequences that have read the same steps share their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.neural.batches import Row
from seqmodels.neural.cursor import NetworkCursor, NetworkState
from seqmodels.neural.network import select
from seqmodels.wrappers.dynamic_evaluation.segment_cursor import SegmentCursor, SharedHistory
from seqmodels.wrappers.dynamic_evaluation.segment_gradients import FlatWeights, LearningRule, SegmentReader, pieces_of


@dataclass(frozen=True)
class FollowedWeights:
    """The weights that dynamic evaluation has learned up to a segment, and what it needs to learn from that segment.

    A segment is a run of steps between two changes of the weights. A window is the range of steps that the network
    reads at once.

    Attributes:
        weights: weights with which the segment is read.
        before: the network's state before the segment, for one sequence; None if a window begins there.
        recent: last w steps before the segment, ``(1, w, ...)``.
        window: position where the window begins that scores the segment's first step.
    """

    weights: FlatWeights
    before: Any
    recent: Tensor
    window: int


@dataclass(frozen=True)
class DynamicCursor(SegmentCursor[FollowedWeights]):
    """A predictor, step by step, for a network whose weights change after the last step of each segment.

    A segment is a run of steps of fixed length.

    Attributes:
        weights: fitted weights.
        rule: rule by which weights follow gradients.
        reader: reader of segments, which computes their gradients.
    """

    weights: FlatWeights
    rule: LearningRule
    reader: SegmentReader

    @property
    def segment_length(self) -> int:
        return self.reader.segment

    def begin(self, source: np.ndarray | None, rows: list[int]) -> SharedHistory[FollowedWeights]:
        state = self._network_cursor(self.weights).start(source, len(rows))
        learned = FollowedWeights(self.weights, None, state.recent[:1], state.window)
        return SharedHistory(torch.tensor(rows, device=state.outputs.device), learned, (), state)

    def cursor_of(self, learned: FollowedWeights) -> NetworkCursor[Any]:
        return self._network_cursor(learned.weights)

    def element(self, state: NetworkState[Any], x: Tensor) -> Tensor:
        return x.to(state.recent)

    def learn(
        self, group: SharedHistory[FollowedWeights], segments: Tensor, same: list[Tensor]
    ) -> list[SharedHistory[FollowedWeights]]:
        return [self._learned(group, segments, rows) for rows in same]

    def alike(self, pasts: list[Tensor | None]) -> list[Tensor | None]:
        return pasts

    def _learned(
        self, group: SharedHistory[FollowedWeights], segments: Tensor, rows: Tensor
    ) -> SharedHistory[FollowedWeights]:
        """Change the weights of the sequences ``rows`` of a group after their segment, and return them as a group.

        Args:
            group: m sequences that have learned the same before the segment.
            segments: segment of every sequence of the group, ``(m, S, ...)``.
            rows: positions in the group of the sequences, whose segments are equal, ``(k,)``.
        """
        learned, before_last = group.learned, group.state
        segment = segments[rows[0]]
        before = learned.recent[0]
        begin = before_last.position + 1 - len(segment)
        values = np.zeros((begin + len(segment), *segment.shape[1:]), segment.cpu().numpy().dtype)
        values[begin - len(before) :] = torch.cat([before, segment]).cpu().numpy()  # earlier steps are not read
        row = Row(values, before_last.first, None, 1.0, learned.weights.module.spec.has_end)
        pieces = pieces_of(self.reader.windowing, begin, len(values), learned.window)
        *_, gradient = self.reader.learn(learned.weights, row, pieces, learned.before)
        weights = learned.weights
        if gradient is not None:
            weights = FlatWeights(learned.weights.module)
            self.rule.apply(weights.vector, gradient)
        cursor = self._network_cursor(weights)
        state = cursor.select(before_last, rows)
        advanced = cursor.advance(state, segments[rows, -1])
        one = torch.zeros(1, dtype=torch.int64, device=segments.device)
        goes_before = None if advanced.window != state.window else select(state.network_state, one)
        follows = FollowedWeights(weights, goes_before, advanced.recent[:1], advanced.window)
        return SharedHistory(group.rows.index_select(0, rows), follows, (), advanced)

    def _network_cursor(self, weights: FlatWeights) -> NetworkCursor[Any]:
        return NetworkCursor(weights.module, self.reader.observation, self.reader.windowing)

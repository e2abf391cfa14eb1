"""Online EM one step at a time: sequences that have read the same share their parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.cursor import HMMCursor, HMMState
from seqmodels.wrappers.online_em.segments import LearningState, OnlineRule
from seqmodels.wrappers.segment_cursor import SegmentCursor, SharedHistory


@dataclass(frozen=True)
class OnlineCursor(SegmentCursor[LearningState]):
    """The predictions of an HMM that learns from each segment after its last step.

    Attributes:
        fitted: the cursor of the fitted HMM.
        rule: how parameters follow what was read.
        segment: steps from one change of the parameters to the next.
    """

    fitted: HMMCursor
    rule: OnlineRule
    segment: int

    @property
    def segment_length(self) -> int:
        return self.segment

    def begin(self, source: np.ndarray | None, rows: list[int]) -> SharedHistory[LearningState]:
        state = self.fitted.start(source, len(rows))
        learned = LearningState(self.fitted, None, self.fitted.select(state, _first(state)))
        return SharedHistory(torch.tensor(rows, device=state.log_predicted.device), learned, (), state)

    def cursor_of(self, learned: LearningState) -> HMMCursor:
        return learned.cursor

    def element(self, state: HMMState, x: Tensor) -> Tensor:
        return x

    def learn(
        self, group: SharedHistory[LearningState], segments: Tensor, same: list[Tensor]
    ) -> list[SharedHistory[LearningState]]:
        after = group.learned.cursor.advance(group.state, segments[:, -1])
        return [self._learned(group, segments, after, rows) for rows in same]

    def _learned(
        self, group: SharedHistory[LearningState], segments: Tensor, after: HMMState, rows: Tensor
    ) -> SharedHistory[LearningState]:
        """The sequences ``rows`` of a group, which all had the same segment, after they learned from it."""
        cursor = group.learned.cursor
        state = cursor.select(after, rows)
        learned = group.learned.learn(self.rule, segments[rows[0]], cursor.select(state, _first(state)))
        return SharedHistory(group.rows[rows], learned, (), learned.cursor.predict_again(state))

    def alike(self, pasts: list[Tensor | None]) -> list[Tensor | None]:
        if len({past.shape[1] for past in pasts if past is not None}) > 1:  # values were missing in some
            return [None if past is None else self.fitted.widened(past) for past in pasts]
        return pasts


def _first(state: HMMState) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=state.log_predicted.device)

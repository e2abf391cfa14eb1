"""``SegmentCursor``: a model that learns from each segment that it reads, as a chain of one-step predictions.

What is learned (weights of a network, parameters of an HMM) is large, and cannot be taken back. So it is kept once for
all sequences that have read the same, which are a ``SharedHistory`` until the segments that they read next differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Cursor, CursorState, Prediction, Source, source_of_each

LearnedT = TypeVar("LearnedT")


@dataclass(frozen=True)
class SharedHistory(Generic[LearnedT]):
    """Sequences that were the same up to where the unfinished segment begins, and so have learned the same.

    Attributes:
        rows: (m,), their numbers among all sequences; on the device of the model.
        learned: at the beginning of the segment.
        steps: the elements of the segment so far, each (m, ...).
        state: of the m sequences, of the cursor of what was learned.
    """

    rows: Tensor
    learned: LearnedT
    steps: tuple[Tensor, ...]
    state: CursorState


@dataclass(frozen=True)
class GroupedState(Generic[LearnedT]):
    """All sequences, of which each is in one group."""

    groups: tuple[SharedHistory[LearnedT], ...]


@dataclass(frozen=True)
class SegmentCursor(ABC, Generic[LearnedT]):
    """The predictions of a model that learns from each segment after its last step.

    To add one, define what is abstract here. What is kept is made outside of ``torch.inference_mode``, so that what a
    segment teaches may be a gradient.
    """

    @property
    @abstractmethod
    def segment_length(self) -> int:
        """Steps from one change of what is learned to the next."""

    @abstractmethod
    def begin(self, source: np.ndarray | None, rows: list[int]) -> SharedHistory[LearnedT]:
        """The sequences of these numbers before their first scored step, given one source."""

    @abstractmethod
    def cursor_of(self, learned: LearnedT) -> Cursor:
        """The model with what it has learned."""

    @abstractmethod
    def element(self, state: CursorState, x: Tensor) -> Tensor:
        """The elements ``x (m, ...)`` that come after a state, in the type in which segments are kept."""

    @abstractmethod
    def learn(
        self, group: SharedHistory[LearnedT], segments: Tensor, same: list[Tensor]
    ) -> list[SharedHistory[LearnedT]]:
        """The groups that a group is after the last element of its segments, each having learned from its own.

        Args:
            group: before its last element, so that ``steps`` and ``state`` lack that.
            segments: (m, S, ...), whole.
            same: (k,) of each new group, the positions in ``group`` of the sequences that had one segment.
        """

    @abstractmethod
    def alike(self, pasts: list[Tensor | None]) -> list[Tensor | None]:
        """Pasts of predictions, each (m, p, D), in one form, so that they can be joined."""

    # -- as a cursor ---------------------------------------------------------------------------------------

    @torch.inference_mode(False)
    def start(self, source: Source = None, n: int = 1) -> GroupedState[LearnedT]:
        """Before the first scored step, as the model was fitted; those of one source are a group."""
        sources = source_of_each(source, n)
        same = _positions_of_each([b"" if each is None else each.tobytes() for each in sources])
        return GroupedState(tuple(self.begin(sources[rows[0]], rows) for rows in same))

    @torch.inference_mode(False)
    def advance(self, state: GroupedState[LearnedT], x: Tensor) -> GroupedState[LearnedT]:
        """After each sequence's next element, ``x (n, ...)``, and what the last of a segment teaches."""
        advanced: list[SharedHistory[LearnedT]] = []
        for group in state.groups:
            rows = x[group.rows.to(x.device)].to(group.rows.device)
            advanced += self._advance_group(group, self.element(group.state, rows))
        return GroupedState(tuple(advanced))

    def _advance_group(self, group: SharedHistory[LearnedT], x: Tensor) -> list[SharedHistory[LearnedT]]:
        steps = (*group.steps, x)
        if len(steps) < self.segment_length:
            return [replace(group, steps=steps, state=self.cursor_of(group.learned).advance(group.state, x))]
        segments = torch.stack(steps, 1)  # (m, S, ...)
        same = _positions_of_each([segment.tobytes() for segment in segments.cpu().numpy()])
        return self.learn(group, segments, [torch.tensor(each, device=x.device) for each in same])

    def distribution(self, state: GroupedState[LearnedT]) -> Prediction:
        """The prediction of the next step of all sequences, in their order."""
        each = [self.cursor_of(group.learned).distribution(group.state) for group in state.groups]
        order = torch.argsort(torch.cat([group.rows for group in state.groups]))
        output_parameters = _in_order([prediction.output_parameters for prediction in each], order)
        assert output_parameters is not None, "every prediction has them"
        return Prediction(
            each[0].observation,
            output_parameters,
            _in_order([prediction.log_weights for prediction in each], order),
            _in_order(self.alike([prediction.past for prediction in each]), order),
            _in_order([prediction.log_end for prediction in each], order),
            _in_order([prediction.exact_log_continue for prediction in each], order),
        )

    @torch.inference_mode(False)
    def select(self, state: GroupedState[LearnedT], index: Tensor) -> GroupedState[LearnedT]:
        """The state of the sequences ``index (m,)``, in this order."""
        groups = []
        for group in state.groups:
            is_here = index.to(group.rows.device)[:, None] == group.rows  # (m, rows of the group)
            numbers, local = is_here.nonzero().unbind(1)
            if len(numbers):
                steps = tuple(step.index_select(0, local) for step in group.steps)
                chosen = self.cursor_of(group.learned).select(group.state, local)
                groups.append(replace(group, rows=numbers, steps=steps, state=chosen))
        return GroupedState(tuple(groups))


def _positions_of_each(keys: list[bytes]) -> list[list[int]]:
    """Of each different key the positions at which it stands, in the order in which keys come first."""
    positions: dict[bytes, list[int]] = {}
    for i, key in enumerate(keys):
        positions.setdefault(key, []).append(i)
    return [*positions.values()]


def _in_order(tensors: list[Tensor | None], order: Tensor) -> Tensor | None:
    """Rows of all, one after the other, in this order; None where there are none."""
    present = [tensor for tensor in tensors if tensor is not None]
    if not present:
        return None
    joined = present[0] if len(present) == 1 else torch.cat(present)
    return joined.index_select(0, order.to(joined.device))

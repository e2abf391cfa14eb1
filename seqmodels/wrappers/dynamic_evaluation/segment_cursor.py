"""One-step predictions of a model that learns from each segment that it has read.

The learned state (weights of a network, parameters of an HMM) is large, and learning cannot be undone. So it is stored
once for all sequences that have read the same steps, which form a ``SharedHistory`` until they read different segments.
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
    """A group of m sequences that were equal until the unfinished segment began, and so have learned the same.

    A segment is a run of steps after which the model learns.

    Attributes:
        rows: numbers of these sequences among all sequences, ``(m,)``, on the device of the model.
        learned: learned state (weights, parameters) when the segment began.
        steps: steps of the segment so far, each ``(m, ...)``.
        state: state of the m sequences in the cursor of the learned model.
    """

    rows: Tensor
    learned: LearnedT
    steps: tuple[Tensor, ...]
    state: CursorState


@dataclass(frozen=True)
class GroupedState(Generic[LearnedT]):
    """The state of a ``SegmentCursor``: all sequences, in groups that have learned the same.

    Attributes:
        groups: the groups, each with the numbers of its sequences.
    """

    groups: tuple[SharedHistory[LearnedT], ...]


@dataclass(frozen=True)
class SegmentCursor(ABC, Generic[LearnedT]):
    """A base class of predictors, step by step, for a model that learns from each segment (run of steps) at its end.

    To add one, define the abstract methods. States are made outside of ``torch.inference_mode``, so that learning from
    a segment may use gradients.
    """

    @property
    @abstractmethod
    def segment_length(self) -> int:
        """The number of steps from one change of the learned state (weights or parameters) to the next."""

    @abstractmethod
    def begin(self, source: np.ndarray | None, rows: list[int]) -> SharedHistory[LearnedT]:
        """Return a group of sequences before their first scored step, with the model as it was fitted.

        Args:
            source: source of all these sequences (the x of a model of y given x); None if there is none.
            rows: numbers of the sequences among all sequences.
        """

    @abstractmethod
    def cursor_of(self, learned: LearnedT) -> Cursor:
        """Return the cursor (step-by-step predictor) of the model with the weights or parameters ``learned``."""

    @abstractmethod
    def element(self, state: CursorState, x: Tensor) -> Tensor:
        """Return the next steps of m sequences, ``(m, ...)``, in the dtype in which segments are stored.

        Args:
            state: state of the sequences before these steps.
            x: the steps, ``(m, ...)``.
        """

    @abstractmethod
    def learn(
        self, group: SharedHistory[LearnedT], segments: Tensor, same: list[Tensor]
    ) -> list[SharedHistory[LearnedT]]:
        """Learn from a complete segment and return the new groups, one for each different segment that was read.

        Args:
            group: the group before the last step of the segment, so that ``steps`` and ``state`` lack that step.
            segments: complete segment of S steps of each of m sequences, ``(m, S, ...)``.
            same: for each new group, the positions in ``group`` of the k sequences that read the same segment,
                ``(k,)``.
        """

    @abstractmethod
    def alike(self, pasts: list[Tensor | None]) -> list[Tensor | None]:
        """Give the pasts of several predictions shapes that can be concatenated, and return them.

        Args:
            pasts: for each prediction, the last p frames of D features before it, for m sequences, ``(m, p, D)``; None
                if it depends on none.
        """

    # -- as a cursor ---------------------------------------------------------------------------------------

    @torch.inference_mode(False)
    def start(self, source: Source = None, n: int = 1) -> GroupedState[LearnedT]:
        """Return the state of n sequences before the first scored step, with the model as it was fitted.

        Sequences with the same source form a group.

        Args:
            source: source (the x of a model of y given x) of all sequences, or a list with one for each; None if there
                is none.
            n: number of sequences.
        """
        sources = source_of_each(source, n)
        same = _positions_of_each([b"" if each is None else each.tobytes() for each in sources])
        return GroupedState(tuple(self.begin(sources[rows[0]], rows) for rows in same))

    @torch.inference_mode(False)
    def advance(self, state: GroupedState[LearnedT], x: Tensor) -> GroupedState[LearnedT]:
        """Return the state after each sequence's next step.

        After the last step of a segment, the model has learned from it.

        Args:
            state: the state before it.
            x: the step of each of n sequences, ``(n, ...)``.
        """
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
        """Return the prediction of the next step of all sequences, in their order."""
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
        """Return the state of some of the sequences, whose numbers are ``index``, ``(m,)``, in this order."""
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
    """Return the positions of each distinct key in the list ``keys``, in the order in which keys first occur."""
    positions: dict[bytes, list[int]] = {}
    for i, key in enumerate(keys):
        positions.setdefault(key, []).append(i)
    return [*positions.values()]


def _in_order(tensors: list[Tensor | None], order: Tensor) -> Tensor | None:
    """Concatenate the tensors that are not None and return their rows in ``order``, ``(n,)``; None if all are None."""
    present = [tensor for tensor in tensors if tensor is not None]
    if not present:
        return None
    joined = present[0] if len(present) == 1 else torch.cat(present)
    return joined.index_select(0, order.to(joined.device))

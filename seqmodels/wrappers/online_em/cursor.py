"""Online EM one step at a time: sequences that have read the same share their parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, source_of_each
from seqmodels.hmm.cursor import HMMCursor, HMMState
from seqmodels.wrappers.online_em.segments import LearningState, OnlineRule


@dataclass(frozen=True)
class SharedHistory:
    """Sequences that were the same up to where the unfinished segment begins, and so have the same parameters.

    Attributes:
        rows: (m,), their numbers among all sequences.
        start: at the beginning of the segment.
        steps: the elements of the segment so far, each (m, ...).
        state: of the m sequences.
    """

    rows: Tensor
    start: LearningState
    steps: tuple[Tensor, ...]
    state: HMMState


@dataclass(frozen=True)
class OnlineState:
    """All sequences, of which each is in one group."""

    groups: tuple[SharedHistory, ...]


@dataclass(frozen=True)
class OnlineCursor:
    """The predictions of an HMM that learns from each segment after its last step.

    Attributes:
        fitted: the cursor of the fitted HMM.
        rule: how parameters follow what was read.
        segment: steps from one change of the parameters to the next.
    """

    fitted: HMMCursor
    rule: OnlineRule
    segment: int

    def start(self, source: Source = None, n: int = 1) -> OnlineState:
        """Before the first scored step, with the fitted parameters."""
        same: dict[bytes, list[int]] = {}
        sources = source_of_each(source, n)
        for i, each in enumerate(sources):
            same.setdefault(b"" if each is None else each.tobytes(), []).append(i)
        return OnlineState(tuple(self._start_group(sources[rows[0]], rows) for rows in same.values()))

    def _start_group(self, source: object, rows: list[int]) -> SharedHistory:
        state = self.fitted.start(source, len(rows))  # type: ignore[arg-type]
        before = LearningState(self.fitted, None, self.fitted.select(state, _first(state)))
        return SharedHistory(torch.tensor(rows), before, (), state)

    def advance(self, state: OnlineState, x: Tensor) -> OnlineState:
        """Take each sequence's next element; after the last of a segment learn from it."""
        advanced: list[SharedHistory] = []
        for group in state.groups:
            rows = x[group.rows.to(x.device)].to(group.state.log_predicted.device)
            advanced += self._advance_group(group, rows)
        return OnlineState(tuple(advanced))

    def _advance_group(self, group: SharedHistory, x: Tensor) -> list[SharedHistory]:
        cursor = group.start.cursor
        steps, after = (*group.steps, x.clone()), cursor.advance(group.state, x)  # the caller's x may change
        if len(steps) < self.segment:
            return [replace(group, steps=steps, state=after)]
        segments = torch.stack(steps, 1)  # (m, S, ...)
        same: dict[bytes, list[int]] = {}
        for i, segment in enumerate(segments.cpu().numpy()):
            same.setdefault(segment.tobytes(), []).append(i)
        return [self._learned(group, segments, after, rows) for rows in same.values()]

    def _learned(self, group: SharedHistory, segments: Tensor, after: HMMState, rows: list[int]) -> SharedHistory:
        """The sequences ``rows`` of a group, which all had the same segment, after they learned from it."""
        cursor = group.start.cursor
        state = cursor.select(after, torch.tensor(rows, device=after.log_predicted.device))
        one = cursor.select(state, _first(state))
        start = group.start.learn(self.rule, segments[rows[0]], one)
        return SharedHistory(group.rows[rows], start, (), start.cursor.predict_again(state))

    def distribution(self, state: OnlineState) -> Prediction:
        """The prediction of the next step."""
        each = [group.start.cursor.distribution(group.state) for group in state.groups]
        order = torch.argsort(torch.cat([group.rows for group in state.groups]))
        pasts = [prediction.past for prediction in each]
        if len({past.shape[1] for past in pasts if past is not None}) > 1:  # values were missing in some
            pasts = [None if past is None else self.fitted.widened(past) for past in pasts]
        first = each[0]
        output_parameters = _in_order([prediction.output_parameters for prediction in each], order)
        assert output_parameters is not None, "every prediction has them"
        return Prediction(
            first.observation,
            output_parameters,
            _in_order([prediction.log_weights for prediction in each], order),
            _in_order(pasts, order),
            _in_order([prediction.log_end for prediction in each], order),
            _in_order([prediction.exact_log_continue for prediction in each], order),
        )

    def select(self, state: OnlineState, index: Tensor) -> OnlineState:
        """The state of the sequences ``index (m,)``, in this order."""
        groups = []
        for group in state.groups:
            is_here = index.cpu()[:, None] == group.rows  # (m, rows of the group)
            numbers, local = is_here.nonzero().unbind(1)
            if len(numbers):
                steps = tuple(step.index_select(0, local.to(step.device)) for step in group.steps)
                local = local.to(group.state.log_predicted.device)
                chosen = group.start.cursor.select(group.state, local)
                groups.append(replace(group, rows=numbers, steps=steps, state=chosen))
        return OnlineState(tuple(groups))


def _first(state: HMMState) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=state.log_predicted.device)


def _in_order(tensors: list[Tensor | None], order: Tensor) -> Tensor | None:
    """Rows of all, one after the other, in this order; None where there are none."""
    present = [tensor for tensor in tensors if tensor is not None]
    if not present:
        return None
    joined = present[0] if len(present) == 1 else torch.cat(present)
    return joined.index_select(0, order.to(joined.device))

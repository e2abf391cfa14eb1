"""Dynamic evaluation one step at a time: sequences that have read the same share their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, source_of_each
from seqmodels.neural.batches import Row
from seqmodels.neural.cursor import NetworkCursor, NetworkState
from seqmodels.neural.network import select
from seqmodels.wrappers.dynamic.segments import FlatWeights, LearningRule, SegmentReader, pieces_of


@dataclass(frozen=True)
class Part:
    """Sequences that were the same up to where the unfinished segment begins, and so have the same weights.

    Attributes:
        rows: (m,), their numbers among all sequences.
        weights: that they are read with.
        before: the network's state before the segment, of one sequence; None: the window begins anew there.
        recent: (1, w, ...), the last elements before the segment.
        window: where the window begins that scores the segment's first step.
        steps: the elements of the segment so far, each (m, ...).
        state: of the m sequences.
    """

    rows: Tensor
    weights: FlatWeights
    before: Any
    recent: Tensor
    window: int
    steps: tuple[Tensor, ...]
    state: NetworkState[Any]


@dataclass(frozen=True)
class DynamicState:
    """All sequences, of which each is in one part."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class DynamicCursor:
    """The predictions of a network that learns from each segment after its last step."""

    weights: FlatWeights
    rule: LearningRule
    reader: SegmentReader

    def start(self, source: Source = None, n: int = 1) -> DynamicState:
        """Before the first scored step, with the fitted weights."""
        groups: dict[bytes, list[int]] = {}
        sources = source_of_each(source, n)
        for i, each in enumerate(sources):
            groups.setdefault(b"" if each is None else each.tobytes(), []).append(i)
        return DynamicState(tuple(self._start_part(sources[rows[0]], rows) for rows in groups.values()))

    @torch.inference_mode(False)
    def _start_part(self, source: np.ndarray | None, rows: list[int]) -> Part:
        state = self._network_cursor(self.weights).start(source, len(rows))
        numbers = torch.tensor(rows, device=state.outputs.device)
        return Part(numbers, self.weights, None, state.recent[:1], state.window, (), state)

    def advance(self, state: DynamicState, x: Tensor) -> DynamicState:
        """Take each sequence's next element; after the last of a segment learn from it first."""
        advanced: list[Part] = []
        for part in state.parts:
            advanced += self._advance_part(part, x[part.rows.to(x.device)])
        return DynamicState(tuple(advanced))

    @torch.inference_mode(False)
    def _advance_part(self, part: Part, x: Tensor) -> list[Part]:
        steps = (*part.steps, x.to(part.state.recent).clone())  # what is kept must not change when the caller's does
        if len(steps) < self.reader.segment:
            return [replace(part, steps=steps, state=self._network_cursor(part.weights).advance(part.state, x))]
        segments = torch.stack(steps, 1)  # (m, S, ...)
        groups: dict[bytes, list[int]] = {}
        for i, segment in enumerate(segments.cpu().numpy()):
            groups.setdefault(segment.tobytes(), []).append(i)
        return [self._learned(part, segments, torch.tensor(rows, device=x.device)) for rows in groups.values()]

    def _learned(self, part: Part, segments: Tensor, group: Tensor) -> Part:
        """The sequences ``group`` of a part, which all had the same segment, after they learned from it."""
        group = group.to(segments.device)
        first = part.state.first
        segment = segments[group[0]]
        before = part.recent[0]
        begin = part.state.position + 1 - len(segment)
        values = np.zeros((begin + len(segment), *segment.shape[1:]), segment.cpu().numpy().dtype)
        values[begin - len(before) :] = torch.cat([before, segment]).cpu().numpy()  # what comes before is not read
        row = Row(values, first, None, 1.0, part.weights.module.spec.has_end)
        pieces = pieces_of(self.reader.windowing, begin, len(values), part.window)
        *_, gradient = self.reader.learn(part.weights, row, pieces, part.before)
        weights = part.weights
        if gradient is not None:
            weights = FlatWeights(part.weights.module)
            self.rule.apply(weights.vector, gradient)
        cursor = self._network_cursor(weights)
        state = cursor.select(part.state, group)
        advanced = cursor.advance(state, segments[group, -1])
        one = torch.zeros(1, dtype=torch.int64, device=segments.device)
        goes_before = None if advanced.window != state.window else select(state.network_state, one)
        rows = part.rows.index_select(0, group)
        return Part(rows, weights, goes_before, advanced.recent[:1], advanced.window, (), advanced)

    def distribution(self, state: DynamicState) -> Prediction:
        """The prediction of the next step."""
        predictions = [self._network_cursor(part.weights).distribution(part.state) for part in state.parts]
        if len(predictions) == 1:
            order = torch.argsort(state.parts[0].rows)
        else:
            order = torch.argsort(torch.cat([part.rows for part in state.parts]))
        first = predictions[0]

        def in_order(tensors: list[Tensor | None]) -> Tensor | None:
            present = [tensor for tensor in tensors if tensor is not None]
            return torch.cat(present).index_select(0, order) if present else None

        output_parameters = in_order([p.output_parameters for p in predictions])
        assert output_parameters is not None, "every prediction has them"
        past, log_end = in_order([p.past for p in predictions]), in_order([p.log_end for p in predictions])
        return Prediction(first.observation, output_parameters, None, past, log_end)

    @torch.inference_mode(False)
    def select(self, state: DynamicState, index: Tensor) -> DynamicState:
        """The state of the sequences ``index (m,)``, in this order."""
        parts = []
        for part in state.parts:
            is_here = index.to(part.rows.device)[:, None] == part.rows  # (m, rows of the part)
            numbers, local = is_here.nonzero().unbind(1)
            if len(numbers):
                steps = tuple(step.index_select(0, local) for step in part.steps)
                chosen = self._network_cursor(part.weights).select(part.state, local)
                parts.append(replace(part, rows=numbers, steps=steps, state=chosen))
        return DynamicState(tuple(parts))

    def _network_cursor(self, weights: FlatWeights) -> NetworkCursor[Any]:
        return NetworkCursor(weights.module, self.reader.observation, self.reader.windowing)

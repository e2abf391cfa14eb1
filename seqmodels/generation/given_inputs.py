"""Cursors of models that read inputs, ``p(x_t | x_<t, u_1 .. u_t)``: those of a step are given before it is predicted.

``InputCursor.given`` takes those of the next step. Where the inputs of all steps are known beforehand,
``CursorGivenInputs`` is a cursor like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.cursor import Cursor, CursorState, Prediction, Source, select_rows
from seqmodels.generation.decoding import Draws


@runtime_checkable
class InputCursor(Cursor, Protocol):
    """A cursor that reads inputs: ``distribution`` and ``advance`` follow upon ``given``.

    Raises:
        ValueError: in ``distribution`` and ``advance``, where the inputs of the next step have not been given.
    """

    def given(self, state: CursorState, inputs: Tensor) -> CursorState:
        """The same state, given the inputs ``(n, U)``, standardised, of the next step."""


@runtime_checkable
class UnseenCursor(Protocol):
    """A cursor that knows in closed form where it stands after a step that nobody has seen."""

    def unseen(self, state: CursorState) -> CursorState | None:
        """The state after a next step that is not seen; None: there is no closed form."""


@runtime_checkable
class PathCursorGivenInputs(Protocol):
    """A cursor that draws many steps at once, without reading what was drawn, where their inputs are known."""

    def draw_path_given(
        self, state: CursorState, inputs: Tensor, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """As ``PathCursor.draw_path``, given the ``inputs (n, S, U)`` of the steps after the next one."""


@dataclass(frozen=True)
class GivenState:
    """The ``state`` of an input cursor after ``t`` steps, given ``inputs (n, S, U)`` of the first S steps."""

    state: CursorState
    inputs: Tensor
    t: int


@dataclass(frozen=True)
class CursorGivenInputs:
    """A cursor over sequences whose inputs are known: ``inputs (S, U)`` of all n, or ``(n, S, U)``, standardised."""

    cursor: InputCursor
    inputs: Tensor

    def start(self, source: Source = None, n: int = 1) -> GivenState:
        """The state before the first step."""
        inputs = self.inputs.expand(n, -1, -1) if self.inputs.dim() == 2 else self.inputs
        return self._given(GivenState(self.cursor.start(source, n), inputs, 0))

    def advance(self, state: GivenState, x: Tensor) -> GivenState:
        """The state after each sequence's next step, ``x (n, D)`` or ``(n,)``."""
        return self._given(replace(state, state=self.cursor.advance(state.state, x), t=state.t + 1))

    def distribution(self, state: GivenState) -> Prediction:
        """The prediction of the next step; ``ValueError`` where its inputs are not known."""
        return self.cursor.distribution(state.state)

    def select(self, state: GivenState, index: Tensor) -> GivenState:
        """The state of the sequences ``index (m,)``, in this order."""
        inputs: Tensor = select_rows(state.inputs, index)
        return GivenState(self.cursor.select(state.state, index), inputs, state.t)

    def predictions_ahead(self, state: GivenState, k: int) -> list[Prediction] | None:
        """The prediction of each of the next k steps, when none of those before it is seen; None: no closed form."""
        if not isinstance(self.cursor, UnseenCursor):
            return None
        predictions = []
        for h in range(k):
            predictions.append(self.distribution(state))
            if h + 1 < k:
                after = self.cursor.unseen(state.state)
                if after is None:
                    return None
                state = self._given(replace(state, state=after, t=state.t + 1))
        return predictions

    def draw_path(
        self, state: GivenState, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """The next steps of each sequence, from the model's own distribution; None: step by step only."""
        if not isinstance(self.cursor, PathCursorGivenInputs):
            return None
        inputs = state.inputs[:, state.t + 1 :]
        return self.cursor.draw_path_given(state.state, inputs, n_steps, generator, may_end=may_end)

    def _given(self, state: GivenState) -> GivenState:
        if state.t >= state.inputs.shape[1]:
            return state
        return replace(state, state=self.cursor.given(state.state, state.inputs[:, state.t]))


def with_inputs(cursor: Cursor, inputs: np.ndarray | Tensor | None) -> Cursor:
    """The cursor, given standardised inputs ``(S, U)`` or ``(n, S, U)`` of the first S steps; itself without inputs."""
    if inputs is None:
        return cursor
    return CursorGivenInputs(cast(InputCursor, cursor), torch.as_tensor(inputs))


def refuse_without_inputs(inputs: Any) -> None:
    """Raise ``ValueError`` where the inputs of the next step have not been given."""
    if inputs is None:
        raise ValueError(
            "the model reads inputs, and those of the next step are not known; pass inputs= of every step that is read "
            "or predicted"
        )

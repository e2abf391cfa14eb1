"""Cursors of models that read inputs, ``p(x_t | x_<t, u_1 .. u_t)``, where the inputs of a step precede its prediction.

``InputCursor.given`` takes the inputs of the next step. If the inputs of all steps are known in advance,
``CursorGivenInputs`` is an ordinary cursor.
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
    """A cursor of a model that reads inputs; ``given`` must be called before ``distribution`` or ``advance``.

    Inputs are known variables of each step that the model conditions on.

    Raises:
        ValueError: in ``distribution`` and ``advance``, if the inputs of the next step have not been given.
    """

    def given(self, state: CursorState, inputs: Tensor) -> CursorState:
        """Return the state after it was told the inputs of the next step, which must precede the step's prediction.

        Args:
            state: state of n sequences after the steps before.
            inputs: the U standardised inputs of the next step of each sequence, ``(n, U)``.
        """


@runtime_checkable
class UnseenCursor(Protocol):
    """A cursor that has a closed form for its state after a step whose value is missing."""

    def unseen(self, state: CursorState) -> CursorState | None:
        """Return the state after a next step whose value is missing; None if there is no closed form for it."""


@runtime_checkable
class PathCursorGivenInputs(Protocol):
    """A cursor of a model with inputs that draws many steps in one call, if their inputs are known in advance."""

    def draw_path_given(
        self, state: CursorState, inputs: Tensor, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over draws of the next ``n_steps`` steps, or None if steps can only be drawn one by one.

        Args:
            state: state of n sequences, which has been given the inputs of the next step.
            inputs: the U standardised inputs of the S steps after the next one, ``(n, S, U)``.
            n_steps: number of steps.
            generator: generator of the draws.
            may_end: False conditions the draws on the sequences continuing.
        """


@dataclass(frozen=True)
class GivenState:
    """The state of ``CursorGivenInputs`` for n sequences.

    Attributes:
        state: state of the input cursor after ``t`` steps.
        inputs: the U standardised inputs of the first S steps, ``(n, S, U)``.
        t: number of steps read.
    """

    state: CursorState
    inputs: Tensor
    t: int


@dataclass(frozen=True)
class CursorGivenInputs:
    """A cursor of a model that reads inputs, for sequences whose inputs are all known in advance.

    Attributes:
        cursor: cursor of the model.
        inputs: the U standardised inputs of the first S steps, ``(S, U)`` if all n sequences have the same, or
            ``(n, S, U)``.
    """

    cursor: InputCursor
    inputs: Tensor

    def start(self, source: Source = None, n: int = 1) -> GivenState:
        inputs = self.inputs.expand(n, -1, -1) if self.inputs.dim() == 2 else self.inputs
        return self._given(GivenState(self.cursor.start(source, n), inputs, 0))

    def advance(self, state: GivenState, x: Tensor) -> GivenState:
        return self._given(replace(state, state=self.cursor.advance(state.state, x), t=state.t + 1))

    def distribution(self, state: GivenState) -> Prediction:
        """Return the prediction of the next step, given the steps before it and its own inputs.

        Raises:
            ValueError: if its inputs are not known.
        """
        return self.cursor.distribution(state.state)

    def select(self, state: GivenState, index: Tensor) -> GivenState:
        inputs: Tensor = select_rows(state.inputs, index)
        return GivenState(self.cursor.select(state.state, index), inputs, state.t)

    def predictions_ahead(self, state: GivenState, k: int) -> list[Prediction] | None:
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
        if not isinstance(self.cursor, PathCursorGivenInputs):
            return None
        inputs = state.inputs[:, state.t + 1 :]
        return self.cursor.draw_path_given(state.state, inputs, n_steps, generator, may_end=may_end)

    def _given(self, state: GivenState) -> GivenState:
        if state.t >= state.inputs.shape[1]:
            return state
        return replace(state, state=self.cursor.given(state.state, state.inputs[:, state.t]))


def with_inputs(cursor: Cursor, inputs: np.ndarray | Tensor | None) -> Cursor:
    """Combine a cursor with the inputs of all steps, so that they need not be given step by step.

    Args:
        cursor: cursor of a model that reads inputs.
        inputs: the U standardised inputs of S steps, ``(S, U)`` for all sequences, or ``(n, S, U)``; None returns the
            cursor unchanged.
    """
    if inputs is None:
        return cursor
    return CursorGivenInputs(cast(InputCursor, cursor), torch.as_tensor(inputs))


def refuse_without_inputs(inputs: Any) -> None:
    """Check that the inputs of the next step are known.

    Args:
        inputs: the inputs, or None if they are not known.

    Raises:
        ValueError: if they are None.
    """
    if inputs is None:
        raise ValueError(
            "the model reads inputs, and those of the next step are not known; pass inputs= of every step that is read "
            "or predicted"
        )

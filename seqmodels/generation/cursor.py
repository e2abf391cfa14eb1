"""The cursor that every model has: a chain of one-step predictions, for n sequences at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.given import Given
from seqmodels.generation.prediction import Prediction

# A tensor whose first axis is the batch, or a tuple or a frozen dataclass of such, of None and of plain numbers.
CursorState = Any


class Cursor(Protocol):
    """A model as a chain of one-step predictions, over encoded steps, for ``n`` sequences at once."""

    def start(self, source: Given = None, n: int = 1) -> CursorState:
        """The state before the first step; ``source`` is one encoded sequence for all n, or a list of n of equal length."""

    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        """The state after each sequence's next step, ``x (n, D)`` or ``(n,)``."""

    def distribution(self, state: CursorState) -> Prediction:
        """The prediction of the next step."""

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        """The state of the sequences ``index (m,)``, in this order, some perhaps more than once (beams)."""


def select_rows(state: CursorState, index: Tensor) -> CursorState:
    """``Cursor.select`` of a state that is a nest of tensors."""
    if isinstance(state, Tensor):
        return state.index_select(0, index)
    if isinstance(state, tuple):
        return tuple(select_rows(part, index) for part in state)
    if is_dataclass(state) and not isinstance(state, type):
        return replace(state, **{f.name: select_rows(getattr(state, f.name), index) for f in fields(state)})
    return state


def begin(cursor: Cursor, source: Given, prefix: Sequence[Any] | np.ndarray, n: int) -> CursorState:
    """The state of ``n`` sequences that all began with ``prefix``."""
    state = cursor.start(source, n)
    for step in prefix:
        state = cursor.advance(state, torch.as_tensor(step).expand(n, *step.shape))
    return state

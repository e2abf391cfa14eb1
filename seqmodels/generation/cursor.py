"""``Cursor``: a model as a chain of one-step predictions, for n sequences at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.prediction import Prediction

# What generated sequences are conditioned on: one encoded source for all n; a list of n, one each; or none.
Source = np.ndarray | list[np.ndarray] | None

# A tensor whose first axis is the batch, or a tuple or a frozen dataclass of such, of None and of plain numbers.
CursorState = Any
StateT = TypeVar("StateT")

# Histories merged in groups: the numbers of the histories in each group, and one state for them all.
MergedStates = list[tuple[list[int], CursorState]]


class Cursor(Protocol):
    """A fitted model as a chain of one-step predictions, over encoded steps, for ``n`` sequences at once.

    ``SequenceModel.cursor()`` makes one. What all steps share (tables of inputs, packed weights) is computed then,
    once, and many sequences can start from it. States are values: ``advance`` and ``select`` leave the state they are
    given as it was, so that several continuations can go on from one.
    """

    def start(self, source: Source = None, n: int = 1) -> CursorState:
        """The state before the first step; ``source`` is one encoded sequence for all n, or a list of n.

        The sources of a list are of equal length, unless the model pads sources.
        """

    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        """The state after each sequence's next step, ``x (n, D)`` or ``(n,)``."""

    def distribution(self, state: CursorState) -> Prediction:
        """The prediction of the next step."""

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        """The state of the sequences ``index (m,)``, in this order, some perhaps more than once (beams)."""


def select_rows(state: StateT, index: Tensor) -> StateT:
    """``Cursor.select`` of a state that is a nest of tensors."""
    whole: Any = state
    selected = whole
    if isinstance(whole, Tensor):
        selected = whole.index_select(0, index)
    elif isinstance(whole, tuple):
        selected = tuple(select_rows(part, index) for part in whole)
    elif is_dataclass(whole) and not isinstance(whole, type):
        selected = replace(whole, **{f.name: select_rows(getattr(whole, f.name), index) for f in fields(whole)})
    return cast(StateT, selected)


def start_after(cursor: Cursor, source: Source, prefix: Sequence[Any] | np.ndarray, n: int) -> CursorState:
    """The state of ``n`` sequences that all begin with ``prefix``."""
    state = cursor.start(source, n)
    for step in prefix:
        state = cursor.advance(state, torch.as_tensor(step).expand(n, *step.shape))
    return state


def source_of_each(source: Source, n: int) -> list[np.ndarray | None]:
    """The source of each of ``n`` sequences, of whatever lengths; ``ValueError`` for a list of another number."""
    if not isinstance(source, list):
        return [source] * n
    if len(source) != n:
        raise ValueError(f"{len(source)} sources for {n} sequences; pass one each")
    return [*source]


def stacked_sources(source: Source, n: int) -> Tensor | None:
    """``(n, S, D)`` or ``(n, S)``: the source of each of ``n`` sequences; None where there is none.

    Raises:
        ValueError: a list that has not n sources, or sources of several lengths.
    """
    if source is None:
        return None
    if not isinstance(source, list):
        return torch.as_tensor(source).expand(n, *source.shape)
    lengths = {len(each) for each in source}
    if len(source) != n or len(lengths) != 1:
        raise ValueError(
            f"{len(source)} sources of {sorted(lengths)} steps for {n} sequences; pass one each, all of one length"
        )
    return torch.as_tensor(np.stack(source))

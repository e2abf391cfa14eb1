"""``Cell``: one step of a recurrence, ``output_t, state_t = cell(x_t, state_{t-1})``.

``Recurrent`` makes a model of any of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

# Tensors whose first axis is the batch, in tuples (of tuples) as the cell likes.
CellState = TypeVar("CellState")


class Cell(nn.Module, ABC, Generic[CellState]):
    """One step of a recurrence, for n sequences at once.

    To add one, define ``__init__(d_in, d_hidden)``, ``initial_state`` and ``forward``; with them ``unroll`` where there
    is a faster way to many steps than one after the other, and ``recurrent_weights`` for the dropout that acts on them.
    Then ``Recurrent(cell=MyCell)`` is a model.

    Attributes:
        recurrent_weights: names of the parameters (m, d_hidden) that the previous state is multiplied by, whose columns
            and entries ``recurrent_dropout`` and ``weight_drop`` drop; without names there is neither.
        takes_autocast: whether ``unroll`` may be called under autocast, with inputs in half precision; by default it
            computes in the precision of the weights.

    >>> class Leaky(Cell):
    ...     def __init__(self, d_in, d_hidden):
    ...         super().__init__()
    ...         self.d_hidden, self.map = d_hidden, nn.Linear(d_in, d_hidden)
    ...
    ...     def initial_state(self, n):
    ...         return self.map.bias.new_zeros(n, self.d_hidden)
    ...
    ...     def forward(self, inputs, state):
    ...         state = 0.9 * state + 0.1 * torch.tanh(self.map(inputs))
    ...         return state, state
    >>> cell = Leaky(3, 5)
    >>> outputs, state = cell.unroll(torch.zeros(2, 7, 3), cell.initial_state(2))
    >>> outputs.shape, state.shape
    (torch.Size([2, 7, 5]), torch.Size([2, 5]))
    """

    recurrent_weights: ClassVar[tuple[str, ...]] = ()
    takes_autocast: ClassVar[bool] = False

    if TYPE_CHECKING:  # nn.Module's own takes and returns anything

        def __call__(self, inputs: Tensor, state: CellState) -> tuple[Tensor, CellState]:
            """Calls ``forward``, after the hooks of the module."""

    @abstractmethod
    def initial_state(self, n: int) -> CellState:
        """The state before the first step of ``n`` sequences, of the weights' type and device."""

    @abstractmethod
    def forward(self, inputs: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """Inputs (n, d_in) and the state before the step -> output (n, d_hidden) and the state after it."""

    def unroll(self, inputs: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """All steps: inputs (n, T, d_in) and the state before them -> outputs (n, T, d_hidden) and the state after."""
        outputs = []
        for step in inputs.unbind(1):
            output, state = self(step, state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

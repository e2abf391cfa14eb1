"""One step of a recurrence, ``output_t, state_t = cell(x_t, state_{t-1})``, of which ``Recurrent`` makes a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

# Tensors whose first axis is the batch, in tuples (of tuples) of any form.
CellState = TypeVar("CellState")


class Cell(nn.Module, ABC, Generic[CellState]):
    """One step of a recurrence, for n sequences at once; ``Recurrent`` makes a model of it.

    To add one, define ``__init__(d_in, d_hidden)``, ``initial_state`` and ``forward``. Also define ``unroll`` if many
    steps can be computed faster than one after the other, and ``recurrent_weights`` if dropout should act on them. Then
    ``Recurrent(cell=MyCell)`` is a model.

    Attributes:
        recurrent_weights: names of the weight matrices, ``(m, d_hidden)``, that multiply the previous state.
            ``recurrent_dropout`` drops their columns and ``weight_drop`` their entries; without names, these options
            raise an error.
        takes_autocast: True if ``unroll`` may be called under autocast with inputs in half precision; by default it
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

    if TYPE_CHECKING:  # because nn.Module's own takes and returns anything

        def __call__(self, inputs: Tensor, state: CellState) -> tuple[Tensor, CellState]:
            """Run ``forward``, and the module's hooks."""

    @abstractmethod
    def initial_state(self, n: int) -> CellState:
        """Return the state before the first step of ``n`` sequences: tensors with n rows, in nested tuples of any form.

        Its dtype and device are those of the weights.
        """

    @abstractmethod
    def forward(self, inputs: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """Take one step of n sequences, and return its output, ``(n, d_hidden)``, and the state after it.

        Args:
            inputs: inputs of the step, ``(n, d_in)``.
            state: state before the step, as ``initial_state`` returns it.
        """

    def unroll(self, inputs: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """Take T steps of n sequences, and return all outputs, ``(n, T, d_hidden)``, and the state after the last step.

        Args:
            inputs: inputs of the steps, ``(n, T, d_in)``.
            state: state before the first step, as ``initial_state`` returns it.
        """
        outputs = []
        for step in inputs.unbind(1):
            output, state = self(step, state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

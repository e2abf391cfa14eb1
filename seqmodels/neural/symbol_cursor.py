"""Single steps of a network that reads symbols: inputs are computed beforehand, so a step is a few operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.generation import Prediction, Source
from seqmodels.neural.cursor import NetworkCursor, NetworkState
from seqmodels.neural.network import CarriedState, Stepper


@dataclass(frozen=True)
class SymbolState:
    """The state before step ``position`` of the row.

    ``outputs (n, P)`` are those of the network's head; ``window`` and ``first`` are as in ``NetworkState``; ``recent``,
    the last symbols, each ``(n,)``, is what a new window reads again, and empty where there are no windows.
    """

    memory: CarriedState
    outputs: Tensor
    position: int
    window: int
    first: int
    recent: tuple[Tensor, ...]


@dataclass(frozen=True)
class SymbolCursor:
    """The same predictions as those of ``base`` up to rounding, made by ``stepper``.

    ``weight (d, P)`` and ``bias (P,)`` are the head's.
    """

    base: NetworkCursor
    stepper: Stepper
    weight: Tensor
    bias: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, base: NetworkCursor) -> SymbolCursor | None:
        """None where inputs cannot be computed beforehand (vectors), and for networks without a ``stepper``."""
        module = base.module
        if module.spec.reads == "vectors" or base.observation.n_past:
            return None
        if not module.network.reads_past:
            return None
        inputs = module.embedding(torch.arange(module.spec.size, device=module.head.bias.device))
        stepper = module.network.stepper(inputs if module.segment is None else inputs + module.segment[1])
        if stepper is None:
            return None
        return cls(base, stepper, module.head.weight.detach().t(), module.head.bias.detach())

    def start(self, source: Source = None, n: int = 1) -> SymbolState:
        """Before the first scored step."""
        return self._converted(self.base.start(source, n))

    def advance(self, state: SymbolState, x: Tensor) -> SymbolState:
        """Take each sequence's next symbol, ``x (n,)``; past the end of a window, enter the next one."""
        x, recent, position = x.to(self.bias.device), state.recent, state.position + 1
        if self.base.windowing.context is not None:
            recent = (*recent, x.clone())  # what is kept must not change when the caller's does
            window = self.base.windowing.window_of(position, state.window)
            if window != state.window:
                read_again = torch.stack(recent[window - position - 1 :], 1)
                return self._in_new_window(read_again, position, window, state.first)
        hidden, memory = self.stepper.step(x, state.memory)
        return SymbolState(memory, self._head(hidden), position, state.window, state.first, recent)

    @torch.no_grad()
    def _in_new_window(self, recent: Tensor, position: int, window: int, first: int) -> SymbolState:
        """The state at its position in a new window."""
        state = NetworkState(None, recent, recent, position, window, first)
        inputs = self.base.module.embed(*self.base.last_inputs(state, position - window + 1))
        entered = self.stepper.enter(inputs)
        if entered is None:
            return self._converted(self.base.begin_window(state))
        return SymbolState(entered[1], self._head(entered[0]), position, window, first, recent.unbind(1))

    def _head(self, hidden: Tensor) -> Tensor:
        return torch.addmm(self.bias, hidden, self.weight)

    def distribution(self, state: SymbolState) -> Prediction:
        """The prediction of the next symbol."""
        output_parameters, log_end = state.outputs, None
        if self.base.module.spec.stops:
            output_parameters, end = output_parameters[:, :-1], output_parameters[:, -1]
            log_end = F.logsigmoid(end) if state.position > state.first else torch.full_like(end, -torch.inf)
        return Prediction(self.base.observation, output_parameters.unsqueeze(1), None, None, log_end)

    def select(self, state: SymbolState, index: Tensor) -> SymbolState:
        """The state of the sequences ``index (m,)``, in this order."""
        memory, outputs = self.stepper.select(state.memory, index), state.outputs.index_select(0, index)
        recent = state.recent
        if recent:
            recent = torch.stack(recent).index_select(1, index).unbind(0)
        return SymbolState(memory, outputs, state.position, state.window, state.first, recent)

    def _converted(self, state: NetworkState) -> SymbolState:
        memory, recent = self.stepper.begin(state.memory), tuple[Tensor, ...]()
        if self.base.windowing.context is not None:
            recent = state.recent.unbind(1)
        return SymbolState(memory, state.outputs, state.position, state.window, state.first, recent)

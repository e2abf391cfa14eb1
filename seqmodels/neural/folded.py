"""A network that reads symbols, for many steps: its inputs are tables, its states hold nothing but what a step needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.generation import Prediction, Source
from seqmodels.neural.cursor import NetworkCursor, NetworkState
from seqmodels.neural.network import Memory, Stepper


@dataclass(frozen=True)
class FoldedState:
    """Before step ``position`` of the row: the memory, ``outputs (n, P)`` of the network's head, and what a new window would need.

    ``window`` and ``first`` are those of ``NetworkState``; ``recent``, the last elements ``(n,)`` each, is empty without windows.
    """

    memory: Memory
    outputs: Tensor
    position: int
    window: int
    first: int
    recent: tuple[Tensor, ...]


@dataclass(frozen=True)
class FoldedCursor:
    """What ``whole`` says, up to rounding; ``stepper`` makes its steps, ``weight (d, P)`` and ``bias (P,)`` are the head's."""

    whole: NetworkCursor
    stepper: Stepper
    weight: Tensor
    bias: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, whole: NetworkCursor) -> FoldedCursor | None:
        """None where there is nothing to fold: vectors, networks without a ``stepper``."""
        module = whole.module
        if module.ends.reads == "vectors" or whole.observation.n_past:
            return None
        if not module.network.reads_past:
            return None
        inputs = module.embedding(torch.arange(module.ends.size, device=module.head.bias.device))
        stepper = module.network.stepper(inputs if module.segment is None else inputs + module.segment[1])
        if stepper is None:
            return None
        return cls(whole, stepper, module.head.weight.detach().t(), module.head.bias.detach())

    def start(self, source: Source = None, n: int = 1) -> FoldedState:
        """Before the first scored step."""
        return self._folded(self.whole.start(source, n))

    def advance(self, state: FoldedState, x: Tensor) -> FoldedState:
        """Take each sequence's next symbol, ``x (n,)``; at the edge of a window begin the next, by the whole network."""
        x, recent, position = x.to(self.bias.device), state.recent, state.position + 1
        if self.whole.reach.context is not None:
            recent = (*recent, x.clone())  # what is kept must not change when the caller's does
            window = self.whole.reach.window_of(position, state.window)
            if window != state.window:
                return self._entered(torch.stack(recent[window - position - 1 :], 1), position, window, state.first)
        hidden, memory = self.stepper.step(x, state.memory)
        return FoldedState(memory, self._head(hidden), position, state.window, state.first, recent)

    @torch.no_grad()
    def _entered(self, recent: Tensor, position: int, window: int, first: int) -> FoldedState:
        """The state at its position in a new window."""
        state = NetworkState(None, recent, recent, position, window, first)
        found = self.stepper.enter(self.whole.module.inputs(*self.whole.shown(state, position - window + 1)))
        if found is None:
            return self._folded(self.whole.enter(state))
        return FoldedState(found[1], self._head(found[0]), position, window, first, recent.unbind(1))

    def _head(self, hidden: Tensor) -> Tensor:
        return torch.addmm(self.bias, hidden, self.weight)

    def distribution(self, state: FoldedState) -> Prediction:
        """What comes next."""
        output_parameters, log_end = state.outputs, None
        if self.whole.module.ends.stops:
            output_parameters, end = output_parameters[:, :-1], output_parameters[:, -1]
            log_end = F.logsigmoid(end) if state.position > state.first else torch.full_like(end, -torch.inf)
        return Prediction(self.whole.observation, output_parameters.unsqueeze(1), None, None, log_end)

    def select(self, state: FoldedState, index: Tensor) -> FoldedState:
        """The state of the sequences ``index (m,)``, in this order."""
        memory, outputs = self.stepper.select(state.memory, index), state.outputs.index_select(0, index)
        recent = state.recent
        if recent:
            recent = torch.stack(recent).index_select(1, index).unbind(0)
        return FoldedState(memory, outputs, state.position, state.window, state.first, recent)

    def _folded(self, state: NetworkState) -> FoldedState:
        memory, recent = self.stepper.begin(state.memory), tuple[Tensor, ...]()
        if self.whole.reach.context is not None:
            recent = state.recent.unbind(1)
        return FoldedState(memory, state.outputs, state.position, state.window, state.first, recent)

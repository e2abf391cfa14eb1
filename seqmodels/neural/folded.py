"""A recurrent network that reads symbols, for many steps: its inputs are tables, its states hold nothing but the memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.generation import Prediction
from seqmodels.neural.cursor import NetworkCursor
from seqmodels.neural.network import Memory, Stepper, select


@dataclass(frozen=True)
class FoldedState:
    """The memory, ``outputs (n, P)`` of the network's head, and whether a step was scored, so that the end may come."""

    memory: Memory
    outputs: Tensor
    begun: bool


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
        """None where there is nothing to fold: vectors, windows, networks without a ``stepper``."""
        module = whole.module
        if module.ends.reads == "vectors" or whole.reach.context is not None or whole.observation.n_past:
            return None
        if not module.network.reads_past:
            return None
        inputs = module.embedding(torch.arange(module.ends.size, device=module.head.bias.device))
        stepper = module.network.stepper(inputs if module.segment is None else inputs + module.segment[1])
        if stepper is None:
            return None
        return cls(whole, stepper, module.head.weight.detach().t().contiguous(), module.head.bias.detach())

    def start(self, source: np.ndarray | None = None, n: int = 1) -> FoldedState:
        """Before the first scored step."""
        state = self.whole.start(source, n)
        return FoldedState(self.stepper.begin(state.memory), state.outputs, begun=False)

    def advance(self, state: FoldedState, x: Tensor) -> FoldedState:
        """Take each sequence's next symbol, ``x (n,)``."""
        hidden, memory = self.stepper.step(x.to(self.bias.device), state.memory)
        return FoldedState(memory, torch.addmm(self.bias, hidden, self.weight), begun=True)

    def distribution(self, state: FoldedState) -> Prediction:
        """What comes next."""
        parameters, log_end = state.outputs, None
        if self.whole.module.ends.stops:
            parameters, end = parameters[:, :-1], parameters[:, -1]
            log_end = F.logsigmoid(end) if state.begun else torch.full_like(end, -torch.inf)
        return Prediction(self.whole.observation, parameters.unsqueeze(1), None, None, log_end)

    def select(self, state: FoldedState, index: Tensor) -> FoldedState:
        """The state of the sequences ``index (m,)``, in this order."""
        return FoldedState(select(state.memory, index), select(state.outputs, index), state.begun)

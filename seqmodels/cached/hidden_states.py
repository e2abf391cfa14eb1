"""The hidden states of a network of symbols, which its output layer reads, step by step of whole sequences."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from seqmodels.neural.batches import Row, StepRange, Windowing, assemble
from seqmodels.neural.io_module import SequenceModule

STEPS_AT_ONCE = 2_048


def without_head(module: SequenceModule[Any]) -> SequenceModule[Any]:
    """The same module, of the same weights, with its hidden states in the place of output parameters."""
    headless = copy.copy(module)
    headless._modules = {**module._modules, "head": nn.Identity()}
    return headless


@torch.no_grad()
def hidden_states(module: SequenceModule[Any], row: Row, windowing: Windowing) -> Tensor:
    """``(S, d)`` of the scored steps of a row, in the windows in which a network with a context scores them."""
    weight = module.head.bias
    parts = []
    for window, end, scored_from in windowing.windows(row.n_steps):
        state: Any = module.start(1, None, None)
        hidden = []
        for begin in range(window, end, STEPS_AT_ONCE):
            steps = [StepRange(0, begin, min(begin + STEPS_AT_ONCE, end))]
            batch = assemble([row], steps, 0, weight.device, weight.dtype)
            each, state = module.hidden(batch.inputs, batch.is_start, batch.is_after_source, state)
            hidden.append(each[0])
        parts.append(torch.cat(hidden)[scored_from - window :])
    return torch.cat(parts)[row.first :]

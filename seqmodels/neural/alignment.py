"""How much each step of a target looked at each of its source: the attention weights of an encoder-decoder, pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.neural.batches import Span, assemble
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Memory


@torch.no_grad()
def source_weights(model: NeuralModel, X: Any, y: Any, weigh: Callable[[Tensor, Memory], Tensor]) -> list[np.ndarray]:
    """For each pair ``(S_y, S_x)`` float64, over encoded steps; the end of y, if it is an event, is left out.

    Args:
        model: fitted with ``y``, with an encoder.
        X: sources.
        y: targets, of which step t is asked for what came before it.
        weigh: embedded inputs (1, T, d) and the network's memory before them -> weights (1, T, S).
    """
    examples = model._setting().examples(model._checked_data(X, y))
    rows, module = model._rows(examples), model._ready()
    parameter, result = next(module.parameters()), []
    for i, (row, example) in enumerate(zip(rows, examples, strict=True)):
        chunk = assemble(rows, [Span(i, 0, row.n_steps)], 0, parameter.device, parameter.dtype)
        memory = module.start(1, chunk.source, chunk.source_mask)
        weights = weigh(module.inputs(chunk.shown, chunk.is_start, chunk.is_target), memory)
        result.append(weights[0, : len(example.values)].double().cpu().numpy())
    return result

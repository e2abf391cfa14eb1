"""The time that a training batch takes, from which the number of passes in a given time is estimated."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from seqmodels.training import Objective

MOST_BATCHES = 4  # to measure; the first also compiles and allocates, which later ones need not do
PART_OF_BUDGET = 0.02  # fraction of the run's seconds after which no third batch is measured,
LARGE_PART_OF_BUDGET = 0.1  # and fraction after which no second one is measured


def seconds_per_batch(module: nn.Module, batches: Iterable[Any], objective: Objective, budget: float) -> float:
    """Return the seconds that the gradients of a training batch take: the least of up to four; weights are not changed.

    Args:
        module: the module, in training mode.
        batches: at least one batch, as ``objective`` takes them.
        objective: function that returns the log-probability of a batch, which training maximises.
        budget: seconds of the training run to come, of which timing may take a small part.
    """
    seconds: list[float] = []
    device = next(module.parameters()).device
    for batch in batches:
        began = time.perf_counter()
        objective(batch).weighted_log_prob.backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
        module.zero_grad(set_to_none=True)
        part = sum(seconds) / budget
        if len(seconds) == MOST_BATCHES or part > (PART_OF_BUDGET if len(seconds) > 1 else LARGE_PART_OF_BUDGET):
            break
    return min(seconds)

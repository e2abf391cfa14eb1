"""The seconds of a batch, by a clock that the batches move."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

from seqmodels.neural.seconds_per_batch import MOST_BATCHES, seconds_per_batch
from seqmodels.training import BatchResult


class Timed:
    """An objective whose batches are the seconds that they take."""

    def __init__(self, module: nn.Linear, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module, self.now, self.seen = module, 0.0, 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def __call__(self, batch: float) -> BatchResult:
        self.now += batch
        self.seen += 1
        total = self.module.weight.sum()
        return BatchResult(total, 1.0, total.detach(), 1.0, torch.zeros(()))


@pytest.mark.parametrize(
    ("batches", "budget", "seconds", "n_measured"),
    [
        ([1.0, 0.2, 0.1, 0.3, 0.01], 1000.0, 0.1, MOST_BATCHES),  # enough, and no more
        ([1.0, 0.2, 0.1], 50.0, 0.2, 2),  # the first alone is no measure
        ([1.0, 0.2], 5.0, 1.0, 1),  # but is where it takes too much of the budget
        ([1.0], 1000.0, 1.0, 1),
    ],
)
def test_the_fewest_seconds_of_as_many_batches_as_the_budget_has_room_for(
    monkeypatch: pytest.MonkeyPatch, batches: list[float], budget: float, seconds: float, n_measured: int
) -> None:
    module: Any = nn.Linear(2, 1)
    before = module.weight.detach().clone()
    objective = Timed(module, monkeypatch)
    assert seconds_per_batch(module, batches, objective, budget) == pytest.approx(seconds)
    assert objective.seen == n_measured
    assert torch.equal(module.weight, before)
    assert module.weight.grad is None

"""The running mean of the weights, as a run that goes on from a checkpoint takes it up."""

from __future__ import annotations

import torch
from torch import nn

from seqmodels.training.averaging import WeightAverage


def layer_of(value: float) -> nn.Linear:
    layer = nn.Linear(2, 1)
    for weight in layer.parameters():
        nn.init.constant_(weight, value)
    return layer


def test_a_run_that_kept_no_mean_goes_on_with_one_of_its_weights() -> None:
    layer = layer_of(1.0)
    average = WeightAverage(layer, 0.1)
    nn.init.constant_(layer.weight, 3.0)  # as a checkpoint has it
    average.restore({})
    with average.applied():
        assert (layer.weight == 3.0).all()
    average.restore({"weight": torch.full((1, 2), 5.0), "bias": torch.zeros(1)})
    with average.applied():
        assert (layer.weight == 5.0).all()
    assert (layer.weight == 3.0).all()

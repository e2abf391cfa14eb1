from __future__ import annotations

import pytest
import torch
from torch import nn

from seqmodels.training import Muon
from seqmodels.training.optimizers import clip


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 5)


def test_only_inner_matrices_go_to_muon() -> None:
    module = Small()
    muon, adam = Muon().build(module, 0.1, 0.0)
    inner = {id(p) for group in muon.param_groups for p in group["params"]}
    assert inner == {id(layer.weight) for layer in module.network if isinstance(layer, nn.Linear)}
    others = {id(p) for group in adam.param_groups for p in group["params"]}
    assert inner | others == {id(p) for p in module.parameters()}
    assert not inner & others


def test_a_step_of_muon_has_the_size_that_adams_have_in_practice() -> None:
    module = nn.Module()
    module.network = nn.Linear(32, 32, bias=False)
    before = module.network.weight.detach().clone()
    (muon,) = Muon().build(module, 0.01, 0.0)
    module.network.weight.grad = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    muon.step()
    size = float((module.network.weight.detach() - before).square().mean().sqrt())
    assert 0.1 * 0.01 < size < 0.3 * 0.01


def test_long_gradients_come_to_the_length_and_short_ones_stay() -> None:
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    clip(gradients, 10.0)
    assert [g.tolist() for g in gradients] == [[3.0, 0.0], [[4.0]]]
    clip(gradients, 1.0)
    torch.testing.assert_close(gradients, [torch.tensor([0.6, 0.0]), torch.tensor([[0.8]])])
    clip([], 1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(RuntimeError, match="non-finite"):
        clip([torch.tensor([1.0]), torch.tensor([value])], 1.0)

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from seqmodels.training import AdamW, Muon
from seqmodels.training.optimizers import FusedAdamW, OrthogonalizedMomentum, QueuedClip, clip, orthogonalized


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


def test_muon_passes_on_its_iterations_and_refuses_none() -> None:
    muon, _ = Muon(newton_schulz_steps=2).build(Small(), 0.1, 0.0)
    assert muon.param_groups[0]["ns_steps"] == 2
    with pytest.raises(ValueError, match="newton_schulz_steps is 0; pass at least 1"):
        Muon(newton_schulz_steps=0).check()


def test_a_step_of_muon_has_the_size_that_adams_have_in_practice() -> None:
    module = nn.Module()
    module.network = nn.Linear(32, 32, bias=False)
    before = module.network.weight.detach().clone()
    (muon,) = Muon().build(module, 0.01, 0.0)
    module.network.weight.grad = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    muon.step()
    size = float((module.network.weight.detach() - before).square().mean().sqrt())
    assert 0.1 * 0.01 < size < 0.3 * 0.01


@pytest.mark.parametrize("n_iterations", [5, 3])
def test_muon_on_a_cpu_takes_torchs_steps_and_keeps_its_state(n_iterations: int) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((6, 4), (4, 9), (5, 5), (3, 3))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    mine = OrthogonalizedMomentum(list(ours), 0.01, 0.3, 0.9, n_iterations)
    mine.dtype = torch.bfloat16  # in which torch's always multiplies
    torchs = torch.optim.Muon(
        theirs, lr=0.01, weight_decay=0.3, momentum=0.9, ns_steps=n_iterations, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(4):
        for a, b in zip(ours[:-1], theirs, strict=False):  # a weight without a gradient stays as it is
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        mine.step()
        torchs.step()
        if step == 1:  # each goes on from the other's state
            states = [copy.deepcopy(optimizer.state_dict()["state"]) for optimizer in (mine, torchs)]
            mine.load_state_dict({**mine.state_dict(), "state": states[1]})
            torchs.load_state_dict({**torchs.state_dict(), "state": states[0]})
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 6)])
def test_a_direction_has_the_singular_vectors_of_its_matrix(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.norm()
    for _ in range(5):  # the same polynomial of each singular value
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(orthogonalized(matrix, torch.float64, 5), u @ torch.diag(s) @ vt)
    assert 0.6 < float(s.min()) <= float(s.max()) < 1.3
    assert torch.equal(orthogonalized(torch.zeros(shape), torch.float32, 5), torch.zeros(shape))


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


def test_a_queued_clip_takes_the_same_steps_and_refuses_one_late() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [torch.optim.AdamW([w], lr=0.1, fused=True) for w in weights]
    queued = QueuedClip(optimizers[:1], max_norm=1.0)
    assert not QueuedClip.can_clip(optimizers)  # of weights on the CPU
    for length in (0.1, 5.0, 0.5, 30.0):
        gradient = length * torch.nn.functional.normalize(torch.randn(3, generator=generator), dim=0)
        for weight in weights:
            weight.grad = gradient.clone()
        queued([weights[0].grad])
        clip([weights[1].grad], 1.0)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(*weights, rtol=1e-6, atol=0)
    before = weights[0].detach().clone()
    weights[0].grad = torch.tensor([1.0, torch.inf, 0.0])
    queued([weights[0].grad])
    optimizers[0].step()
    assert torch.equal(weights[0], before)
    with pytest.raises(RuntimeError, match="non-finite"):
        queued([weights[0].grad])
    queued.check()  # said once


def test_adamw_on_a_cpu_takes_torchs_steps_and_keeps_its_state() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one = Small()
    other = copy.deepcopy(one)
    (fused,) = AdamW(eps=1e-6).build(one, 0.1, 0.3)
    groups = [{**group, "params": []} for group in fused.param_groups]
    weights = dict(zip(one.parameters(), other.parameters(), strict=True))
    for group, of_fused in zip(groups, fused.param_groups, strict=True):
        group["params"] = [weights[p] for p in of_fused["params"]]
    torchs = torch.optim.AdamW(groups, lr=0.1, betas=(0.9, 0.99), eps=1e-6, fused=True)
    assert isinstance(fused, FusedAdamW)
    for seed in range(4):
        for a, b in weights.items():
            a.grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(seed))
            b.grad = a.grad.clone()
        one.head.bias.grad = other.head.bias.grad = None  # a weight without a gradient stays as it is
        fused.step()
        torchs.step()
        if seed == 1:  # each goes on from the other's state
            states = [copy.deepcopy(optimizer.state_dict()["state"]) for optimizer in (fused, torchs)]
            fused.load_state_dict({**fused.state_dict(), "state": states[1]})
            torchs.load_state_dict({**torchs.state_dict(), "state": states[0]})
    assert all(torch.equal(a, b) for a, b in weights.items())
    states = [optimizer.state_dict()["state"] for optimizer in (fused, torchs)]
    assert states[0].keys() == states[1].keys()
    for mine, theirs in zip(*(s.values() for s in states), strict=True):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    fused.zero_grad()
    assert all(p.grad is None for p in one.parameters())


def test_training_on_a_cpu_does_not_import_the_compiler() -> None:
    code = (
        "import sys, numpy as np, seqmodels as sm; "
        "x = [np.arange(9) % 3] * 3; sm.GRU(d_model=4, max_steps=2).fit(x, validation=None).score(x); "
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""The gated scan: its equation step by step, its gradients, the scan by doubling, memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqmodels.neural.ops import linear_scan
from seqmodels.neural.ops.linear_scan import gated_scan, scan_by_doubling


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_definition(projected: Tensor, state: Tensor) -> Tensor:
    """One step after the other, by autograd."""
    states = []
    for step in projected.unbind(1):
        gate, candidate = step.chunk(2, -1)
        state = (1 - gate.sigmoid()) * state + gate.sigmoid() * candidate
        states.append(state)
    return torch.stack(states, 1)


@pytest.fixture(params=["steps", "doubling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Steps in blocks of three; or, on the CPU too, what other devices do."""
    monkeypatch.setattr(linear_scan, "BLOCK", 3)
    if request.param == "doubling":
        monkeypatch.setattr(linear_scan, "scans_by_steps", lambda device: False)
    return str(request.param)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 7, 8, 9])
def test_states_and_gradients_are_those_of_the_definition(way: str, n_steps: int) -> None:
    inputs = [draw(2, n_steps, 10).requires_grad_(), draw(2, 5, seed=1).requires_grad_()]
    weights = draw(2, n_steps, 5, seed=2)
    found, expected = gated_scan(*inputs), by_definition(*inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    mine, theirs = (torch.autograd.grad((states * weights).sum(), inputs) for states in (found, expected))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-13)


def test_doubling_is_the_recurrence_where_products_of_decays_underflow() -> None:
    decay, added = draw(1, 3_000, 2).sigmoid() * 0.1, draw(1, 3_000, 2, seed=1)
    assert decay.prod(1).max() == 0
    state, expected = draw(1, 2, seed=2), []
    found = scan_by_doubling(decay, added, state)
    for a, b in zip(decay.unbind(1), added.unbind(1), strict=True):
        state = a * state + b
        expected.append(state)
    torch.testing.assert_close(found, torch.stack(expected, 1), rtol=0, atol=1e-13)


def test_half_precision_is_summed_in_float32() -> None:
    projected = draw(2, 50, 8).bfloat16()
    states = gated_scan(projected, torch.zeros(2, 4))
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, by_definition(projected.float(), torch.zeros(2, 4)), rtol=0, atol=1e-5)
    projected.requires_grad_()
    (gradient,) = torch.autograd.grad(gated_scan(projected, torch.zeros(2, 4)).sum(), projected)
    assert gradient.dtype == torch.bfloat16


def test_memory_for_the_backward_pass_is_the_same_a_step_however_long() -> None:
    def kept_a_step(n_steps: int) -> float:
        kept: list[int] = []

        def count(tensor: Tensor) -> Tensor:
            kept.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            gated_scan(torch.zeros(1, n_steps, 8, requires_grad=True), torch.zeros(1, 4))
        return (sum(kept) - 4) / n_steps  # without the first state

    assert kept_a_step(16_384) == kept_a_step(64) == 12

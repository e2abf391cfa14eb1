"""minGRU: its equation, steps against all at once, and as a model: saved, streamed, long sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import seqmodels as sm
from seqmodels.neural import MinGRUCell, Recurrent
from seqmodels.neural.recurrent.stack import CellStack

X = [np.array([0, 1, 2, 1, 0, 2, 2, 1, 0, 1, 1]), np.array([2, 1, 0]), np.array([1])]
SMALL: dict[str, Any] = {
    "d_model": 6,
    "n_layers": 2,
    "architecture__residual": True,
    "architecture__layer_norm": True,
    "max_steps": 3,
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cell(n_lags: int) -> MinGRUCell:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MinGRUCell(3, 5, n_lags).double()


@pytest.mark.parametrize("n_lags", [0, 1, 3])
def test_it_is_its_equation_at_once_and_step_by_step(n_lags: int) -> None:
    one, x = cell(n_lags), draw(2, 9, 3)
    weight, bias = (p.detach().numpy() for p in one.project.parameters())
    padded = np.concatenate([np.zeros((2, n_lags, 3)), x.numpy()], 1)
    h, expected = np.zeros((2, 5)), []
    for t in range(9):
        gate, candidate = np.split(padded[:, t : t + n_lags + 1].reshape(2, -1) @ weight.T + bias, 2, 1)
        z = 1 / (1 + np.exp(-gate))
        h = (1 - z) * h + z * candidate
        expected.append(h)
    at_once, last = one.unroll(x, one.initial_state(2))
    np.testing.assert_allclose(at_once.detach(), np.stack(expected, 1), rtol=0, atol=1e-12)
    state = one.initial_state(2)
    for t, step in enumerate(x.unbind(1)):
        output, state = one(step, state)
        torch.testing.assert_close(output, at_once[:, t], rtol=0, atol=1e-14)
    torch.testing.assert_close(state, last, rtol=0, atol=1e-14)


def test_no_steps_leave_the_state_as_it_is() -> None:
    one = cell(2)
    state = (draw(2, 5), draw(2, 2, 3))
    outputs, after = one.unroll(torch.zeros(2, 0, 3, dtype=torch.float64), state)
    assert outputs.shape == (2, 0, 5)
    assert after is state


def test_gates_start_from_short_to_long() -> None:
    keep = torch.sigmoid(-cell(1).project.bias[:5])
    assert keep[0] == 0.5
    assert 0.95 < keep[-1] < 0.96


def test_fewer_lags_than_none_are_refused() -> None:
    with pytest.raises(ValueError, match="n_lags is -1"):
        MinGRUCell(3, 5, -1)


def test_the_state_of_a_cursor_does_not_grow() -> None:
    network = CellStack(MinGRUCell, 8, 2).double()
    sizes = []
    state = network.start(1)
    for _ in range(3):
        sizes.append([part.shape for layer in state for part in layer])
        _, state = network(draw(1, 50, 8), state)
    assert sizes[0] == sizes[1] == sizes[2] == [(1, 8), (1, 1, 8)] * 2


def test_a_model_of_it_is_saved_streamed_and_scores_what_it_streams(tmp_path: Path) -> None:
    model = Recurrent(cell=MinGRUCell, dtype="float64").set_params(**SMALL).fit(X, validation=None)
    model.save(tmp_path / "model.sm")
    loaded = sm.load(tmp_path / "model.sm", classes=[MinGRUCell])
    for x, steps, again in zip(X, model.log_prob_steps(X), loaded.log_prob_steps(X), strict=True):
        stream = model.stream()
        np.testing.assert_allclose([stream.update(symbol) for symbol in x], steps[: len(x)], rtol=0, atol=1e-10)
        np.testing.assert_allclose(again, steps, rtol=1e-12, atol=1e-12)


def test_gradients_reach_the_first_of_many_steps() -> None:
    one = cell(0)
    with torch.no_grad():
        one.project.weight[:5] = 0.0
        one.project.bias[:5] = -10.0
    x = draw(1, 16_384, 3).requires_grad_()
    outputs, _ = one.unroll(x, one.initial_state(1))
    (gradient,) = torch.autograd.grad(outputs[0, -1, 0], x)
    z = torch.sigmoid(torch.tensor(-10.0, dtype=torch.float64))
    expected = z * (1 - z) ** 16_383 * one.project.weight[5]
    torch.testing.assert_close(gradient[0, 0], expected.detach(), rtol=1e-10, atol=0)


def test_under_autocast_only_products_are_in_half_precision() -> None:
    one, x = cell(1).float(), draw(2, 40, 3).float()
    expected, _ = one.unroll(x, one.initial_state(2))
    with torch.autocast("cpu", torch.bfloat16):
        found, (h, recent) = one.unroll(x, one.initial_state(2))
    assert found.dtype == h.dtype == recent.dtype == torch.float32
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-2)

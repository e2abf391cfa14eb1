"""The compiled LSTM against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("numba", reason="without numba nothing is compiled")

from seqmodels.neural.ops import precision
from seqmodels.neural.ops.compiled_lstm import lstm_directions
from seqmodels.neural.recurrent.lstm import lstm

B, D = 3, 5


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def layer(n_layers: int = 1, *, bidirectional: bool) -> nn.LSTM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.LSTM(4, D, n_layers, batch_first=True, bidirectional=bidirectional)


def with_gradients(outputs: tuple[Tensor, ...], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    total = sum((x.float() * draw(*x.shape, seed=i).detach()).sum() for i, x in enumerate(outputs))
    return *(x.detach().float() for x in outputs), *torch.autograd.grad(total, leaves)


@pytest.mark.parametrize("n_steps", [4, 20])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_in_float32_it_is_torchs_up_to_rounding(bidirectional: bool, n_steps: int) -> None:
    rnn, n = layer(bidirectional=bidirectional), 2 if bidirectional else 1
    inputs, h, c = draw(B, n_steps, 4), draw(n, B, D, seed=1), draw(n, B, D, seed=2)
    leaves = [inputs, h, c, *rnn.parameters()]
    outputs, last = rnn(inputs, (h, c))
    expected = with_gradients((outputs, *last), leaves)
    found = with_gradients(lstm_directions(inputs, (h, c), list(rnn.parameters())), leaves)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not precision.has_kernels_for_bfloat16(), reason="it computes in float32 there")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_in_bfloat16_layers_are_as_near_float32_as_torchs(bidirectional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rnn, inputs = layer(2, bidirectional=bidirectional), draw(B, 20, 4)
    leaves, errors = [inputs, *rnn.parameters()], []
    outputs, last = rnn(inputs)
    exact = with_gradients((outputs, *last), leaves)
    for least in (0, 1 << 60):
        monkeypatch.setattr(precision, "COMPILED_FROM", least)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs, last = lstm(rnn, inputs)
            assert outputs.dtype == last[0].dtype == last[1].dtype == torch.bfloat16
        rough = with_gradients((outputs, *last), leaves)
        errors.append([float((x - y).norm() / y.norm()) for x, y in zip(rough, exact, strict=True)])
    assert max(errors[1]) > 1e-3  # it is in bfloat16
    assert all(compiled <= 1.5 * of_torch + 0.005 for compiled, of_torch in zip(*errors, strict=True))


def test_without_gradients_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "COMPILED_FROM", 0)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert not precision.may_be_compiled(draw(B, 20, 4), D)

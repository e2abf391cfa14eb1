from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.ops.scan import Nonlinearity, elman_scan, gru_scan

T, B, D = 5, 3, 4


def drawn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("nonlinearity", ["tanh", "sigmoid", "relu", "relu6"])
def test_gradients_of_an_elman_scan(nonlinearity: Nonlinearity) -> None:
    inputs = (4 * drawn(T, B, D), drawn(B, D), drawn(D, D))  # large enough for some to be cut off
    assert torch.autograd.gradcheck(lambda *given: elman_scan(*given, nonlinearity), inputs, nondet_tol=1e-12)


def test_gradients_of_a_gru_scan() -> None:
    inputs = drawn(T, B, 3 * D), drawn(B, D), drawn(3 * D, D), drawn(D)
    assert torch.autograd.gradcheck(gru_scan, inputs, nondet_tol=1e-12)


def test_an_elman_scan_is_torchs() -> None:
    rnn = nn.RNN(D, D).double()
    projected = F.linear(drawn(T, B, D), rnn.weight_ih_l0, rnn.bias_ih_l0 + rnn.bias_hh_l0)
    expected, _ = rnn(drawn(T, B, D), drawn(1, B, D))
    torch.testing.assert_close(elman_scan(projected, drawn(1, B, D)[0], rnn.weight_hh_l0, "tanh"), expected)


def test_a_gru_scan_is_torchs() -> None:
    rnn = nn.GRU(D, D).double()
    gate_biases = torch.cat([rnn.bias_hh_l0[: 2 * D], torch.zeros(D)])
    projected = F.linear(drawn(T, B, D), rnn.weight_ih_l0, rnn.bias_ih_l0 + gate_biases)
    expected, _ = rnn(drawn(T, B, D), drawn(1, B, D))
    hidden = gru_scan(projected, drawn(1, B, D)[0], rnn.weight_hh_l0, rnn.bias_hh_l0[2 * D :])
    torch.testing.assert_close(hidden, expected)


@pytest.mark.parametrize("scan", ["elman", "gru"])
def test_half_precision_is_near(scan: str) -> None:
    gates = 1 if scan == "elman" else 3
    projected, state, weight, bias = drawn(40, B, gates * D), drawn(B, D), 0.3 * drawn(gates * D, D), drawn(D)

    def run(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        x, w = projected.detach().to(dtype).requires_grad_(), weight.detach().to(dtype)
        hidden = elman_scan(x, state, w, "tanh") if scan == "elman" else gru_scan(x, state, w, bias.detach().to(dtype))
        hidden.double().square().sum().backward()
        assert hidden.dtype == dtype
        assert x.grad is not None
        return hidden.double(), x.grad.double()

    for half, full in zip(run(torch.bfloat16), run(torch.float64), strict=True):
        assert (half - full).norm() < 0.03 * full.norm()

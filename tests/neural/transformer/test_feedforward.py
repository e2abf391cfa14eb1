import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.neural.transformer.feedforward import FeedForward, activate, default_width

HIDDEN = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(2, 6)


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("relu", lambda x: x.clamp(min=0)),
        ("relu2", lambda x: x.clamp(min=0) ** 2),
        ("gelu", gelu),
        ("gelu-tanh", gelu_tanh),
        ("swiglu", lambda x: x[:, :3] * torch.sigmoid(x[:, :3]) * x[:, 3:]),
    ],
)
def test_activations_are_their_formulas(name, formula) -> None:
    torch.testing.assert_close(activate(HIDDEN, name), formula(HIDDEN), rtol=1e-12, atol=1e-12)


def test_the_gradient_of_the_square_is_autograds() -> None:
    x = HIDDEN.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda h: activate(h, "relu2"), x)


def test_the_gated_network_is_three_matrices() -> None:
    with torch.random.fork_rng(devices=[]):
        network = FeedForward(4, 5, "swiglu").double()
    x = torch.arange(8, dtype=torch.float64).reshape(2, 4) / 4
    (gate, linear), (c, b) = network.expand.weight.chunk(2), network.expand.bias.chunk(2)
    expected = network.contract(F.silu(x @ gate.T + c) * (x @ linear.T + b))
    torch.testing.assert_close(network(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d_model", [8, 96, 128])
def test_every_kind_has_about_as_many_parameters(d_model: int) -> None:
    def count(activation) -> int:
        network = FeedForward(d_model, default_width(d_model, activation), activation, bias=False)
        return sum(p.numel() for p in network.parameters())

    assert count("gelu") == 8 * d_model**2
    assert count("gelu") <= count("swiglu") < count("gelu") + 24 * d_model

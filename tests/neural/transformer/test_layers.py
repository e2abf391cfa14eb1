import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.transformer.layers import (
    NORM_EPSILON,
    FeedForward,
    Residual,
    RMSNorm,
    activate,
    default_width,
    make_norm,
)

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


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("affine", [True, False])
def test_rms_is_torchs(affine: bool) -> None:
    ours = RMSNorm(6, affine=affine).double()
    theirs = nn.RMSNorm(6, eps=NORM_EPSILON, elementwise_affine=affine).double()
    if affine:
        ours.weight.data = draw(6, seed=1)
        theirs.weight.data = draw(6, seed=1)
    x = draw(2, 3, 6).requires_grad_()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(norm(x).pow(3).sum(), x)[0] for norm in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
    assert len(list(ours.parameters())) == affine


def test_a_gain_for_each_head() -> None:
    norm = RMSNorm(2, 1, 4)
    norm.weight.data[1] = 3.0
    out = norm(torch.ones(5, 2, 3, 4))
    torch.testing.assert_close(out[:, 1], 3 * out[:, 0])


def test_rms_of_half_precision_is_computed_in_full() -> None:
    x = (1 + 1e-2 * draw(4, 64)).to(torch.bfloat16)
    out = RMSNorm(64, affine=False)(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, RMSNorm(64, affine=False)(x.float()).to(torch.bfloat16), rtol=0, atol=0)


def test_where_the_norm_stands() -> None:
    layer, x, f = nn.LayerNorm(6).double(), draw(2, 6), nn.Linear(6, 6).double()
    layer.weight.data, layer.bias.data = draw(6, seed=1), draw(6, seed=2)
    expected = {"pre": x + f(layer(x)), "post": layer(x + f(x)), "residual": x + layer(f(x))}
    for norm, value in expected.items():
        residual = Residual(norm, layer, 0.0)
        torch.testing.assert_close(residual.add(x, f(residual.sublayer_input(x))), value, rtol=1e-12, atol=1e-12)


def test_norms_by_name() -> None:
    assert sum(p.numel() for p in make_norm("layer", 6).parameters()) == 12
    assert sum(p.numel() for p in make_norm("layer", 6, bias=False).parameters()) == 6
    assert sum(p.numel() for p in make_norm("rms", 6).parameters()) == 6
    for kind in ("layer", "rms"):
        assert list(make_norm(kind, 6, affine=False).parameters()) == []


@pytest.mark.parametrize(("kind", "theirs"), [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
def test_what_is_added_to_the_mean_square_is_chosen(kind, theirs) -> None:
    x = draw(4, 6)
    torch.testing.assert_close(make_norm(kind, 6, epsilon=0.3).double()(x), theirs(6, eps=0.3).double()(x))

"""Products and their gradients are torch's, whichever library computes them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqmodels.common import onednn
from seqmodels.neural.ops import linear as module
from seqmodels.neural.ops.linear import REPEATS, ROWS, apply_linear, linear, repeated_linear

needs_avx512 = pytest.mark.skipif(not onednn.has_avx512(), reason="the processor has no AVX-512")


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Shapes of what ``F.linear`` is called with."""
    shapes: list[torch.Size] = []
    plain = F.linear

    def recorded(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        shapes.append(x.shape)
        return plain(x, *rest)

    monkeypatch.setattr(module.F, "linear", recorded)
    return shapes


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2 * ROWS, 5), (3, ROWS, 5), (ROWS - 1, 5), (5,)])
@torch.no_grad()
def test_products_are_those_of_torch(shape: tuple[int, ...], bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(5, 7, bias=bias)
    x = torch.randn(shape, generator=generator)
    torch.testing.assert_close(linear(x, layer.weight, layer.bias), layer(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(apply_linear(layer, x), layer(x), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_layouts_do_not_matter() -> None:
    x, weight = torch.randn(5, 3, 40).transpose(0, 2), torch.randn(5, 7).t()
    torch.testing.assert_close(linear(x, weight), x @ weight.t(), rtol=1e-5, atol=1e-5)


@needs_avx512
@torch.no_grad()
def test_float32_is_computed_by_onednn(products: list[torch.Size]) -> None:
    x, weight = torch.ones(ROWS, 3), torch.ones(2, 3)
    linear(x, weight)
    assert products == []
    linear(x[1:], weight)
    linear(x.double(), weight.double())
    assert products == [(ROWS - 1, 3), (ROWS, 3)]


@needs_avx512
def test_in_training_float32_is_computed_by_onednn(products: list[torch.Size]) -> None:
    x, weight = torch.ones(ROWS, 3), torch.ones(2, 3, requires_grad=True)
    linear(x, weight).sum().backward()
    assert products == []
    assert weight.grad is not None
    assert (weight.grad == ROWS).all()
    linear(x.double(), weight.double()).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert len(products) == 2


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2 * ROWS, 5), (3, ROWS, 5)])
def test_gradients_are_those_of_torch(shape: tuple[int, ...], bias: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(5, 7, bias=bias)
    x = torch.randn(shape, generator=generator, requires_grad=True)
    g = torch.randn(*shape[:-1], 7, generator=generator)
    needed = [x, *layer.parameters()]
    expected = torch.autograd.grad((layer(x).square() * g).sum(), needed)
    first = torch.autograd.grad((apply_linear(layer, x).square() * g).sum(), needed)
    torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-4)


def test_second_derivatives_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(2)
    layer = nn.Linear(5, 7)
    x = torch.randn(ROWS, 5, generator=generator)
    found = []
    for function in (apply_linear, lambda of, rows: of(rows)):
        first = torch.autograd.grad(function(layer, x).pow(3).sum(), list(layer.parameters()), create_graph=True)
        total = torch.stack([d.square().sum() for d in first]).sum()
        found.append(torch.autograd.grad(total, list(layer.parameters())))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_times", [1, REPEATS])
@pytest.mark.parametrize("transposed", [False, True])
@torch.no_grad()
def test_repeated_products_are_those_of_torch(dtype: torch.dtype, n_times: int, transposed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(7, 5, generator=generator).to(dtype)
    weight = weight.t().contiguous().t() if transposed else weight
    product = repeated_linear(weight, 3, n_times)
    for n_rows in (3, 2):
        rows = torch.randn(n_rows, 9, generator=generator).to(dtype)[:, 2:7]
        tolerance = torch.finfo(dtype).eps
        torch.testing.assert_close(product(rows), rows @ weight.t(), rtol=4 * tolerance, atol=16 * tolerance)


@needs_avx512
@torch.no_grad()
def test_weights_are_laid_out_for_many_products_only(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[torch.Size] = []
    plain = torch.mm

    def recorded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        products.append(x.shape)
        return plain(x, y)

    monkeypatch.setattr(module.torch, "mm", recorded)
    x, weight = torch.ones(3, 5), torch.ones(2, 5)
    for n_times in (REPEATS, REPEATS - 1):
        repeated_linear(weight, 3, n_times)(x)
    repeated_linear(weight.double(), 3, REPEATS)(x.double())
    assert len(products) == 2

"""Packed weights compute what the modules they come from do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.transformer.layers import RMSNorm
from seqmodels.neural.transformer.packed_weights import HeadLayout, PackedHeadNorm, PackedLinear, packed_norm
from seqmodels.neural.transformer.positions import rotate, rotation

N, H, G, D = 3, 4, 2, 6


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bias", [False, True])
def test_maps_are_those_of_linear(bias: bool) -> None:
    linear, x, before = nn.Linear(4, 5, bias=bias).double(), draw(N, 4), draw(N, 5, seed=1)
    packed, expected = PackedLinear.from_linear(linear), linear(x)
    torch.testing.assert_close(packed(x), expected)
    written, total = torch.empty(N, 5, dtype=torch.float64), before.clone()
    packed.write(x, written)
    torch.testing.assert_close(written, expected)
    assert packed.add_to(total, x) is total
    torch.testing.assert_close(total, before + expected)
    order, factor = torch.tensor([4, 0, 2]), draw(3)
    torch.testing.assert_close(packed.rearranged(order, factor)(x), expected[:, order] * factor)


@pytest.mark.parametrize("weights", [True, False])
def test_norms_are_those_of_the_modules(weights: bool) -> None:
    x = draw(N, 5)
    for norm in (
        nn.LayerNorm(5, elementwise_affine=weights),
        nn.LayerNorm(5, elementwise_affine=weights, bias=False, eps=0.1),
        RMSNorm(5, affine=weights, epsilon=0.1),
    ):
        for parameter in norm.double().parameters():
            nn.init.normal_(parameter)
        torch.testing.assert_close(packed_norm(norm, x)(x), norm(x))


def test_a_product_of_complex_numbers_is_the_rotation_and_leaves_values() -> None:
    heads, steps, x = HeadLayout(H, G, D, paired=True), 7, draw(7, H + 2 * G, D)
    rotation_of_steps = rotation(3, steps, D, like=x)
    laid_out = x.flatten(1)[:, heads.order()]
    pairs = torch.view_as_complex(laid_out.view(steps, -1, 2))
    rotated = torch.view_as_real(pairs * heads.rotation_factors(rotation_of_steps)).flatten(1)
    query_and_key = rotate(x[:, : H + G].transpose(0, 1), rotation_of_steps).transpose(0, 1)
    expected = torch.cat([query_and_key, x[:, H + G :]], 1).flatten(1)[:, heads.order()]
    torch.testing.assert_close(rotated, expected)


def test_heads_without_pairs_stay_where_they_are() -> None:
    assert HeadLayout(2, 1, 3, paired=False).order().tolist() == list(range(12))
    assert HeadLayout(1, 1, 4, paired=True).order().tolist() == [0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("paired", [True, False])
def test_normalised_heads_are_those_of_the_module_scaled(affine: bool, paired: bool) -> None:
    norm = RMSNorm(H + G, 1, D, affine=affine, epsilon=0.1).double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    heads, x = HeadLayout(H, G, D, paired=paired), draw(N, H + 2 * G, D)
    normed = norm(x[:, : H + G].unsqueeze(2)).squeeze(2)
    expected = torch.cat([normed[:, :H] * D**-0.5, normed[:, H:], x[:, H + G :]], 1).flatten(1)[:, heads.order()]
    laid_out = x.flatten(1)[:, heads.order()]
    PackedHeadNorm(norm, heads, x)(laid_out)
    torch.testing.assert_close(laid_out, expected)

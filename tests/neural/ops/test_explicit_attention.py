"""The hand-written backward pass of attention against autograd's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqmodels.neural.ops.explicit_attention import explicit_attention
from seqmodels.neural.transformer.attention import AttentionMask, attend

B, H, T, S, D = 2, 3, 4, 5, 6
SHAPES = {"none": None, "every": (B, H, T, S), "of heads": (H, T, S), "of keys": (B, 1, 1, S)}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(which: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries are a view whose heads do not stand side by side, as those of one projection are."""
    query = draw(B, T, H, D).transpose(1, 2)
    shape = SHAPES[which]
    return query, draw(B, H, S, D, seed=1), draw(B, H, S, D, seed=2), None if shape is None else draw(*shape, seed=3)


def plain(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    scores = query @ key.transpose(-2, -1) / D**0.5
    return (scores if bias is None else scores + bias).softmax(-1) @ value


@pytest.mark.parametrize("which", SHAPES)
def test_context_and_gradients_are_autograds(which: str) -> None:
    given = [x if x is None else x.requires_grad_() for x in inputs(which)]
    leaves = [x for x in given if x is not None]
    results = []
    for attention in (explicit_attention, plain):
        context = attention(*given)
        results.append((context, *torch.autograd.grad((context * draw(B, H, T, D, seed=4)).sum(), leaves)))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-13)


def test_what_is_barred_has_neither_weight_nor_gradient() -> None:
    query, key, value = (x.requires_grad_() for x in inputs("none")[:3] if x is not None)
    bias = torch.zeros(T, S, dtype=torch.float64).masked_fill_(torch.ones(T, S, dtype=torch.bool).triu(2), -torch.inf)
    context = explicit_attention(query, key, value, bias)
    torch.testing.assert_close(context, plain(query, key, value, bias), rtol=1e-12, atol=1e-13)
    for gradient in torch.autograd.grad(context[:, :, :2].sum(), (key, value)):
        assert gradient[:, :, :3].abs().min() > 0
        assert gradient[:, :, 3:].abs().max() == 0


@pytest.mark.parametrize("length", [12, 30, 32])
@pytest.mark.products_repeat
def test_in_bfloat16_it_is_as_near_to_double_precision_as_autograd_is(length: int) -> None:
    exact = [draw(8, 4, length, 64, seed=i).bfloat16() for i in range(4)]
    errors = {}
    wanted = gradients(plain_of_width_64, [x.double() for x in exact])
    for name, attention in {"explicit": explicit_attention, "plain": plain_of_width_64}.items():
        found = gradients(attention, exact)
        errors[name] = [float((f.double() - w).norm() / w.norm()) for f, w in zip(found, wanted, strict=True)]
    assert max(errors["plain"]) > 1e-3  # it is in bfloat16
    assert all(w < 1.01 * p for w, p in zip(errors["explicit"], errors["plain"], strict=True))


def plain_of_width_64(query: Tensor, key: Tensor, value: Tensor, _: None) -> Tensor:
    return (query / 8 @ key.transpose(-2, -1)).softmax(-1) @ value


def gradients(attention, given: list[Tensor]) -> tuple[Tensor, ...]:
    query, key, value = (x.clone().requires_grad_() for x in given[:3])
    context = attention(query, key, value, None)
    return context.detach(), *torch.autograd.grad(context, (query, key, value), given[3])


def test_training_takes_it_and_weights_that_are_wanted_or_dropped_do_not() -> None:
    query, key, value, bias = inputs("every")
    query.requires_grad_()
    mask = AttentionMask(bias, explicit=True)
    explicit, _ = attend(query, key, value, mask, 0.0)
    others = attend(query, key, value, mask, 0.0, need_weights=True)[0], attend(query, key, value, mask, 0.5)[0]
    assert "ExplicitAttention" in str(explicit.grad_fn)
    assert all("ExplicitAttention" not in str(context.grad_fn) for context in others)
    torch.testing.assert_close(explicit, others[0], rtol=1e-12, atol=1e-13)

"""Heads against torch's own, a loop over pairs, and each other: fused or explicit, shared keys or not."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.transformer.attention import (
    AttentionMask,
    CrossAttention,
    ForwardPass,
    MaskBuilder,
    SelfAttention,
    attend,
    explicit_is_faster,
    padding_mask,
)
from seqmodels.neural.transformer.cache import plan_update
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.positions import AlibiBias, RotaryEmbedding, Rotation, T5Bias, make_score_bias

B, T, S, D, H = 3, 4, 6, 8, 2
MASK = torch.arange(S) < torch.tensor([[6], [2], [4]])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def filled(module: nn.Module) -> Any:
    for i, parameter in enumerate(module.double().parameters()):
        parameter.data.copy_(draw(*parameter.shape, seed=i))
    return module


def config(**changes: Any) -> TransformerConfig:
    return TransformerConfig(**({"d_model": D, "n_heads": H} | changes))


def build(kind: type, **changes: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        return filled(kind(config(**changes)))


# -- cross-attention ------------------------------------------------------------------------------------------


def torchs(ours: CrossAttention) -> nn.MultiheadAttention:
    with torch.random.fork_rng(devices=[]):
        theirs = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64)
    state = theirs.state_dict()
    state["in_proj_weight"].copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    state["in_proj_bias"].copy_(torch.cat([ours.query.bias, torch.zeros(D), ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return theirs


@pytest.mark.parametrize("explicit", [False, True])
def test_cross_attention_is_torchs_with_and_without_weights(explicit: bool) -> None:
    ours, query, source = build(CrossAttention), draw(B, T, D), draw(B, S, D, seed=1)
    mask = padding_mask(MASK, query, explicit=explicit)
    prepared = ours.prepare(source, MASK)
    fast, none = ours(query, *prepared, mask)
    slow, weights = ours(query, *prepared, mask, need_weights=True)
    masked = torchs(ours)(query, source, source, key_padding_mask=~MASK, average_attn_weights=False)
    assert none is None
    torch.testing.assert_close((slow, weights), masked, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fast, masked[0], rtol=1e-12, atol=1e-12)
    assert (weights.masked_select(~MASK[:, None, None]) == 0.0).all()


@pytest.mark.parametrize("explicit", [False, True])
def test_what_is_masked_has_no_influence_even_if_it_is_nan(explicit: bool) -> None:
    ours, query, source = build(CrossAttention, qk_norm=True), draw(B, T, D), draw(B, S, D, seed=1)
    mask = padding_mask(MASK, query, explicit=explicit)
    expected, _ = ours(query, *ours.prepare(source, MASK), mask)
    found, _ = ours(query, *ours.prepare(source.masked_fill(~MASK[..., None], torch.nan), MASK), mask)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert all(g.isfinite().all() for g in torch.autograd.grad(found.sum(), list(ours.parameters())))


def test_normalised_queries_and_keys_are_as_precise_as_values() -> None:
    ours = build(CrossAttention, qk_norm=True).float()
    query, source = draw(B, T, D).float().requires_grad_(), draw(B, S, D, seed=1).float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        key, value = ours.prepare(source, MASK)
        assert key.dtype == value.dtype == torch.bfloat16
        ours(query, key, value, padding_mask(MASK, query, explicit=True))[0].sum().backward()
    assert query.grad is not None
    assert source.grad is not None


# -- self-attention -------------------------------------------------------------------------------------------


def self_attend(module: SelfAttention, x: Tensor, mask: AttentionMask, rotation: Rotation | None = None) -> Tensor:
    return module(x, None, ForwardPass(plan_update(None, x.shape[1])[0], mask, rotation))[0]


def looped(module: SelfAttention, x: Tensor, causal: bool, window: int, bias: Any) -> Tensor:
    """Query by query and head by head, from the definition."""
    heads = module.project(x).unflatten(-1, (-1, module.d_head))
    out = torch.zeros(*x.shape[:2], module.n_heads, module.d_head, dtype=x.dtype)
    groups = module.n_heads // module.n_kv_heads
    for i, h in product(range(x.shape[1]), range(module.n_heads)):
        seen = [j for j in range(x.shape[1]) if abs(i - j) < window and (j <= i or not causal)]
        keys, values = (heads[:, :, k + h // groups] for k in (module.n_heads, module.n_heads + module.n_kv_heads))
        scores = torch.stack([(heads[:, i, h] * keys[:, j]).sum(-1) for j in seen], -1) / math.sqrt(module.d_head)
        if bias is not None:
            scores = scores + torch.stack([bias(torch.tensor([[i - j]]))[h, 0, 0] for j in seen])
        out[:, i, h] = (scores.softmax(-1)[..., None] * values[:, seen]).sum(1)
    return module.output(out.flatten(2))


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("n_kv_heads", [2, 1])
@pytest.mark.parametrize("window", [None, 1, 3, 9])
@pytest.mark.parametrize("kind", [None, "alibi", "t5"])
@pytest.mark.parametrize("causal", [True, False])
def test_self_attention_is_its_definition(
    causal: bool, kind: Any, window: Any, n_kv_heads: int, explicit: bool
) -> None:
    module, x = build(SelfAttention, n_kv_heads=n_kv_heads), draw(B, S, D)
    bias = make_score_bias(kind, H, causal=causal)
    if bias is not None:
        bias.double()
    if isinstance(bias, T5Bias):
        bias.table.data = draw(*bias.table.shape, seed=4)
    mask = MaskBuilder(causal, window).build(x, 0, None, bias, explicit=explicit)
    expected = looped(module, x, causal, window or S, bias)
    torch.testing.assert_close(self_attend(module, x, mask), expected, rtol=0, atol=1e-12)


def test_as_many_shared_heads_as_heads_are_plain_heads() -> None:
    plain, x = build(SelfAttention), draw(B, S, D)
    mask = MaskBuilder(True, None).build(x, 0)
    torch.testing.assert_close(
        self_attend(build(SelfAttention, n_kv_heads=H), x, mask), self_attend(plain, x, mask), rtol=1e-12, atol=1e-12
    )
    shared = build(SelfAttention, n_kv_heads=1)
    with torch.no_grad():  # the one head of keys and values, copied for every head of queries
        query, rest = shared.project.weight.split((D, D))
        plain.project.weight.copy_(torch.cat([query, *([rest[: D // H]] * H), *([rest[D // H :]] * H)]))
        query, rest = shared.project.bias.split((D, D))
        plain.project.bias.copy_(torch.cat([query, *([rest[: D // H]] * H), *([rest[D // H :]] * H)]))
        plain.output.load_state_dict(shared.output.state_dict())
    expected = self_attend(plain, x, mask)
    torch.testing.assert_close(self_attend(shared, x, mask), expected, rtol=0, atol=1e-12)


def test_normalised_queries_and_keys_forget_their_lengths() -> None:
    module, x = build(SelfAttention, qk_norm=True), draw(B, S, D)
    mask = MaskBuilder(True, None).build(x, 0)
    before = self_attend(module, x, mask)
    with torch.no_grad():
        module.project.weight[: 2 * D] *= 1000
        module.project.bias[: 2 * D] *= 1000
    torch.testing.assert_close(self_attend(module, x, mask), before, rtol=1e-4, atol=1e-4)
    module.norm.weight.data[0] *= 2
    assert (self_attend(module, x, mask) - before).abs().max() > 1e-3


# -- masks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("bias", [None, AlibiBias(H)])
def test_an_encoder_never_looks_at_padding_nor_at_nothing(mask: Any, window: Any, bias: Any) -> None:
    x = draw(B, S, D)
    built = MaskBuilder(False, window).build(x, 0, mask, bias)
    _, weights = attend(*(draw(B, H, S, 4, seed=i) for i in range(3)), built, 0.0, need_weights=True)
    assert weights.isfinite().all()
    if mask is not None:
        real = mask[:, None, :, None] & ~mask[:, None, None, :]
        assert (weights.masked_select(real) == 0).all()


def test_a_plain_square_is_left_to_the_kernel_and_one_query_sees_all() -> None:
    x, plain = draw(B, S, D), MaskBuilder(True, None)
    assert plain.build(x, 0) == AttentionMask(causal=True)
    assert plain.build(x[:, :1], 5) == AttentionMask()
    assert MaskBuilder(True, 3).build(x[:, :1], 5) == AttentionMask(first_key=3)
    explicit = plain.build(x, 0, explicit=True)
    assert not explicit.causal
    assert explicit.bias.isneginf().equal(torch.ones(1, 1, S, S, dtype=torch.bool).triu(1))


def test_attention_is_explicit_only_where_that_is_faster() -> None:
    x = torch.zeros(1, 2, 3, dtype=torch.bfloat16)
    assert explicit_is_faster(x, 1, 0.0)
    assert not explicit_is_faster(x.float(), 1, 0.0)
    assert explicit_is_faster(x.float(), 1, 0.1)
    with torch.no_grad():
        assert not explicit_is_faster(x, 1, 0.0)
        assert explicit_is_faster(x[:, :1].float(), 1, 0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert explicit_is_faster(x.float(), 1, 0.0)


def test_the_weights_of_long_contexts_are_not_kept() -> None:
    x = torch.zeros(1, 4096, 2, dtype=torch.bfloat16, requires_grad=True)
    assert explicit_is_faster(x[:, :1024], 2, 0.0)
    assert not explicit_is_faster(x, 2, 0.0)
    assert explicit_is_faster(x, 2, 0.1)
    assert explicit_is_faster(x[:, :512].expand(1000, -1, -1), 2, 0.0)


@pytest.mark.parametrize("kind", [None, "rotary", "alibi", "t5"])
def test_half_precision_is_near_full_precision(kind: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = SelfAttention(config(positions=kind))
    x, bias = draw(B, S, D).float(), make_score_bias(kind, H, causal=True)
    builder, rotary = MaskBuilder(True, None), RotaryEmbedding(D // H)
    rotation = (lambda: rotary(x)) if kind == "rotary" else (lambda: None)
    full = self_attend(module, x, builder.build(x, 0, None, bias), rotation())
    with torch.autocast("cpu", torch.bfloat16):
        mask = builder.build(x, 0, None, bias, explicit=explicit_is_faster(x, H, 0.0))
        half = self_attend(module, x, mask, rotation())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), full, rtol=0, atol=0.02)


def test_dropout_of_weights_is_in_training_only() -> None:
    module, x = build(SelfAttention, attention_dropout=1.0), draw(B, S, D)
    mask = MaskBuilder(True, None).build(x, 0, explicit=True)
    torch.testing.assert_close(self_attend(module, x, mask), module.output.bias.expand(B, S, D), rtol=1e-12, atol=1e-12)
    kept = build(SelfAttention)
    module.eval()
    torch.testing.assert_close(self_attend(module, x, mask), self_attend(kept, x, mask), rtol=1e-12, atol=1e-12)
    fused = replace(mask, explicit=False)
    torch.testing.assert_close(self_attend(module, x, fused), self_attend(kept, x, mask), rtol=0, atol=1e-12)

import math

import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.attention import AdditiveAttention, Attention, MultiHeadAttention, MultiplicativeAttention

B, T, S, D, H = 3, 4, 6, 8, 2
MASK = torch.arange(S) < torch.tensor([[6], [2], [4]])
MAKERS = {
    "additive": lambda: AdditiveAttention(D),
    "multiplicative": lambda: MultiplicativeAttention(D),
    "dot": lambda: MultiplicativeAttention(D, projections=False),
    "heads": lambda: MultiHeadAttention(D, H),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        module = MAKERS[name]().double()
    for i, parameter in enumerate(module.parameters()):
        parameter.data.copy_(draw(*parameter.shape, seed=i))
    return module


def attend(module: nn.Module, query: Tensor, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    prepared = module.prepare(source, mask)
    if isinstance(module, Attention):
        context, weights = module(query, *prepared, mask)
        return context, weights[:, None]  # (B, 1, T, S)
    return module(query, *prepared, mask, need_weights=True)


@pytest.mark.parametrize("name", MAKERS)
def test_weights_are_zero_where_masked_and_sum_to_one(name: str) -> None:
    context, weights = attend(build(name), draw(B, T, D), draw(B, S, D, seed=1), MASK)
    assert context.shape == (B, T, D)
    assert (weights.masked_select(~MASK[:, None, None]) == 0.0).all()
    assert (weights.masked_select(MASK[:, None, None]) > 0.0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_masked_has_no_influence_even_if_it_is_nan(name: str) -> None:
    module, query, source = build(name), draw(B, T, D), draw(B, S, D, seed=1)
    expected, _ = attend(module, query, source, MASK)
    broken = source.masked_fill(~MASK[..., None], torch.nan)
    found, _ = attend(module, query, broken, MASK)
    assert torch.equal(found, expected)
    gradients = torch.autograd.grad(found.sum(), list(module.parameters())) if name != "dot" else ()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", MAKERS)
def test_the_order_of_what_is_attended_to_does_not_matter(name: str) -> None:
    module, query, source = build(name), draw(B, T, D), draw(B, S, D, seed=1)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    context, weights = attend(module, query, source, MASK)
    moved_context, moved_weights = attend(module, query, source[:, order], MASK[:, order])
    torch.testing.assert_close(moved_context, context, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved_weights, weights[..., order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_no_mask_is_a_mask_without_padding(name: str) -> None:
    module, query, source = build(name), draw(B, T, D), draw(B, S, D, seed=1)
    everything = torch.ones(B, S, dtype=torch.bool)
    torch.testing.assert_close(
        attend(module, query, source, None), attend(module, query, source, everything), rtol=1e-13, atol=1e-13
    )


def test_additive_attention_is_bahdanaus_equation() -> None:
    module, query, source = build("additive").requires_grad_(False), draw(B, T, D), draw(B, S, D, seed=1)
    context, weights = module(query, *module.prepare(source, MASK), MASK)
    w, b, u, v = module.query.weight, module.query.bias, module.key.weight, module.energy.weight[0]
    for i in range(B):
        for t in range(T):
            real = [s for s in range(S) if MASK[i, s]]
            energies = [float(v @ torch.tanh(w @ query[i, t] + u @ source[i, s] + b)) for s in real]
            total = sum(math.exp(e) for e in energies)
            expected = [math.exp(e) / total for e in energies]
            assert weights[i, t, real].tolist() == pytest.approx(expected, rel=1e-12)
            mean = sum(p * source[i, s] for p, s in zip(expected, real, strict=True))
            torch.testing.assert_close(context[i, t], mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["multiplicative", "dot"])
def test_multiplicative_attention_is_a_scaled_dot_product(name: str) -> None:
    module, query, source = build(name), draw(B, T, D), draw(B, S, D, seed=1)
    context, weights = module(query, *module.prepare(source, MASK), MASK)
    q, k, v = module.query(query), module.key(source), module.value(source)
    scores = torch.einsum("btd,bsd->bts", q, k) / math.sqrt(D)
    expected = torch.where(MASK[:, None], scores.exp(), 0.0)
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(weights, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(context, torch.einsum("bts,bsd->btd", expected, v), rtol=1e-12, atol=1e-12)


def torch_heads(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    with torch.random.fork_rng(devices=[]):
        theirs = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64)
    state = theirs.state_dict()
    state["in_proj_weight"].copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    state["in_proj_bias"].copy_(torch.cat([ours.query.bias, torch.zeros(D), ours.value.bias]))
    state["out_proj.weight"].copy_(ours.output.weight)
    state["out_proj.bias"].copy_(ours.output.bias)
    return theirs


@pytest.mark.parametrize("causal", [False, True])
def test_heads_are_torchs_with_and_without_weights(causal: bool) -> None:
    ours, query = build("heads"), draw(B, S, D)
    source = query if causal else draw(B, S, D, seed=1)
    prepared = ours.prepare(source, MASK)
    fast, _ = ours(query, *prepared, MASK, causal=causal)
    slow, weights = ours(query, *prepared, MASK, causal=causal, need_weights=True)
    expected, expected_weights = torch_heads(ours)(
        *(query, source, source),
        key_padding_mask=~MASK,
        attn_mask=torch.ones(S, S, dtype=torch.bool).triu(1) if causal else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(weights, expected_weights, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slow, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fast, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_last", [1, 2, 5])
@pytest.mark.parametrize("need_weights", [False, True])
def test_last_queries_on_a_filled_cache_are_those_of_the_whole(n_last: int, need_weights: bool) -> None:
    module, x = build("heads"), draw(B, S, D)
    prepared = module.prepare(x)
    whole, _ = module(x, *prepared, causal=True)
    last, _ = module(x[:, -n_last:], *prepared, causal=True, need_weights=need_weights)
    torch.testing.assert_close(last, whole[:, -n_last:], rtol=1e-13, atol=1e-13)


def test_an_empty_cache_holds_no_positions() -> None:
    key, value = build("heads").empty_cache(5)
    assert key.shape == value.shape == (5, H, 0, D // H)
    assert key.dtype == torch.float64


@pytest.mark.parametrize("n_heads", [0, 3])
def test_heads_must_divide_the_width(n_heads: int) -> None:
    with pytest.raises(ValueError, match=f"n_heads={n_heads} does not divide d_model=8"):
        MultiHeadAttention(8, n_heads)


@pytest.mark.parametrize("name", ["additive", "multiplicative", "heads"])
def test_every_parameter_gets_a_gradient(name: str) -> None:
    module = build(name)
    attend(module, draw(B, T, D), draw(B, S, D, seed=1), MASK)[0].pow(2).sum().backward()
    flat = [n for n, parameter in module.named_parameters() if parameter.grad is None or parameter.grad.norm() < 1e-9]
    assert flat == []

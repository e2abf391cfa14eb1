import math

import pytest
import torch
from torch import Tensor

from seqmodels.neural.seq2seq.attention import AdditiveAttention, Attention, MultiplicativeAttention

B, T, S, D = 3, 4, 6, 8
MASK = torch.arange(S) < torch.tensor([[6], [2], [4]])
MAKERS = {
    "additive": lambda: AdditiveAttention(D),
    "multiplicative": lambda: MultiplicativeAttention(D),
    "dot": lambda: MultiplicativeAttention(D, projections=False),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build(name: str) -> Attention:
    with torch.random.fork_rng(devices=[]):
        module = MAKERS[name]().double()
    for i, parameter in enumerate(module.parameters()):
        parameter.data.copy_(draw(*parameter.shape, seed=i))
    return module


def attend(module: Attention, query: Tensor, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    context, weights = module(query, *module.prepare(source, mask), mask)
    return context, weights[:, None]  # (B, 1, T, S)


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


@pytest.mark.parametrize("name", ["additive", "multiplicative"])
def test_every_parameter_gets_a_gradient(name: str) -> None:
    module = build(name)
    attend(module, draw(B, T, D), draw(B, S, D, seed=1), MASK)[0].pow(2).sum().backward()
    flat = [n for n, parameter in module.named_parameters() if parameter.grad is None or parameter.grad.norm() < 1e-9]
    assert flat == []

import math

import pytest
import torch
from torch import Tensor

from seqmodels.neural.seq2seq.attention import AdditiveAttention, Attention, MultiplicativeAttention
from tests.neural.seq2seq.attentions import WITH_EARLIER_WEIGHTS, WITHOUT_EARLIER_WEIGHTS

B, T, S, D = 3, 4, 6, 8
MASK = torch.arange(S) < torch.tensor([[6], [2], [4]])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build(name: str) -> Attention:
    with torch.random.fork_rng(devices=[]):
        module = (WITHOUT_EARLIER_WEIGHTS | WITH_EARLIER_WEIGHTS)[name](D).double()
    for i, parameter in enumerate(module.parameters()):
        parameter.data.copy_(draw(*parameter.shape, seed=i))
    return module


def attend(module: Attention, query: Tensor, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    context, weights = module(query, *module.prepare(source, mask), mask)
    return context, weights[:, None]  # (B, 1, T, S)


@pytest.mark.parametrize("name", WITHOUT_EARLIER_WEIGHTS)
def test_weights_are_zero_where_masked_and_sum_to_one(name: str) -> None:
    context, weights = attend(build(name), draw(B, T, D), draw(B, S, D, seed=1), MASK)
    assert context.shape == (B, T, D)
    assert (weights.masked_select(~MASK[:, None, None]) == 0.0).all()
    assert (weights.masked_select(MASK[:, None, None]) > 0.0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", WITHOUT_EARLIER_WEIGHTS)
def test_what_is_masked_has_no_influence_even_if_it_is_nan(name: str) -> None:
    module, query, source = build(name), draw(B, T, D), draw(B, S, D, seed=1)
    expected, _ = attend(module, query, source, MASK)
    broken = source.masked_fill(~MASK[..., None], torch.nan)
    found, _ = attend(module, query, broken, MASK)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(found.sum(), list(module.parameters())) if name != "dot" else ()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", WITHOUT_EARLIER_WEIGHTS)
def test_the_order_of_what_is_attended_to_does_not_matter(name: str) -> None:
    module, query, source = build(name), draw(B, T, D), draw(B, S, D, seed=1)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    context, weights = attend(module, query, source, MASK)
    moved_context, moved_weights = attend(module, query, source[:, order], MASK[:, order])
    torch.testing.assert_close(moved_context, context, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved_weights, weights[..., order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WITHOUT_EARLIER_WEIGHTS)
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


def earlier(seed: int = 7) -> Tensor:
    """Weights of a step before."""
    return draw(B, S, seed=seed).masked_fill(~MASK, -torch.inf).softmax(-1)


def by_hand(scores: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (B, S) of one query -> context and weights."""
    raised = torch.where(MASK, scores.exp(), 0.0)
    weights = raised / raised.sum(-1, keepdim=True)
    return torch.einsum("bs,bsd->bd", weights, source), weights


def check_one_step(module: Attention, scores: Tensor, query: Tensor, source: Tensor, past: Tensor | None) -> None:
    expected_context, expected = by_hand(scores, source)
    context, weights = module(query, *module.prepare(source, MASK), MASK, past)
    torch.testing.assert_close(weights[:, 0], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(context[:, 0], expected_context, rtol=1e-12, atol=1e-12)


def test_general_attention_is_a_bilinear_form() -> None:
    module, query, source = build("general"), draw(B, 1, D), draw(B, S, D, seed=1)
    scores = torch.einsum("bd,de,bse->bs", query[:, 0], module.key.weight, source)
    check_one_step(module, scores, query, source, None)


def test_coverage_enters_the_network_of_additive_attention() -> None:
    module, query, source = build("additive coverage"), draw(B, 1, D), draw(B, S, D, seed=1)
    past = earlier() + earlier(8)
    added = module.query(query) + module.key(source) + past[..., None] * module.recall.weight[:, 0]
    check_one_step(module, added.tanh() @ module.energy.weight[0], query, source, past)


def test_location_features_are_a_convolution_of_the_previous_weights() -> None:
    module, query, source = build("location"), draw(B, 1, D), draw(B, S, D, seed=1)
    past, filters = earlier(), module.features.weight[:, 0]  # (F, 3)
    around = torch.stack([past.roll(1, 1), past, past.roll(-1, 1)], -1)  # (B, S, 3): before, at, after
    around[:, 0, 0] = around[:, -1, 2] = 0.0
    added = module.query(query) + module.key(source) + module.recall(around @ filters.T)
    check_one_step(module, added.tanh() @ module.energy.weight[0], query, source, past)


def test_coverage_adds_a_multiple_of_the_sum_to_a_bilinear_form() -> None:
    module, query, source = build("general coverage"), draw(B, 1, D), draw(B, S, D, seed=1)
    past = earlier() + earlier(8)
    scores = torch.einsum("bd,de,bse->bs", query[:, 0], module.key.weight, source) + module.cover * past
    check_one_step(module, scores, query, source, past)


def test_heads_attend_apart() -> None:
    module, query, source = build("heads"), draw(B, T, D), draw(B, S, D, seed=1)
    context, weights = module(query, *module.prepare(source, MASK), MASK)
    q, k, v = module.query(query), module.key(source), module.value(source)
    alone, half = MultiplicativeAttention(D // 2, projections=False), D // 2
    parts = [alone(q[..., i : i + half], k[..., i : i + half], v[..., i : i + half], MASK) for i in (0, half)]
    torch.testing.assert_close(context, torch.cat([part[0] for part in parts], -1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weights, (parts[0][1] + parts[1][1]) / 2, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WITH_EARLIER_WEIGHTS)
def test_what_is_remembered_is_the_last_weights_or_their_sum(name: str) -> None:
    module = build(name)
    past = module.no_weights(draw(B, S, D))
    assert torch.equal(past, torch.zeros(B, S, dtype=torch.float64))
    for weights in (earlier(1), earlier(2)):
        past = module.add_weights(past, weights)
    torch.testing.assert_close(past, earlier(2) + (0.0 if name == "location" else earlier(1)), rtol=0, atol=0)
    assert build("additive").add_weights(build("additive").no_weights(draw(B, S, D)), past) is None


@pytest.mark.parametrize("name", WITH_EARLIER_WEIGHTS)
def test_weights_that_depend_on_earlier_ones_are_a_distribution_over_the_real_source(name: str) -> None:
    module, query, source = build(name), draw(B, 1, D), draw(B, S, D, seed=1)
    key, value = module.prepare(source.masked_fill(~MASK[..., None], torch.nan), MASK)
    _, plain = module(query, key, value, MASK, module.no_weights(key))
    _, weights = module(query, key, value, MASK, earlier())
    assert (weights[:, 0][~MASK] == 0.0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 1, dtype=torch.float64), rtol=0, atol=1e-14)
    assert not torch.allclose(weights, plain)


@pytest.mark.parametrize("name", [name for name in WITH_EARLIER_WEIGHTS if "location" not in name])
def test_coverage_does_not_mind_the_order_of_the_source(name: str) -> None:
    module, query, source = build(name), draw(B, 1, D), draw(B, S, D, seed=1)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    context, weights = module(query, *module.prepare(source, MASK), MASK, earlier())
    moved = module(query, *module.prepare(source[:, order], MASK[:, order]), MASK[:, order], earlier()[:, order])
    torch.testing.assert_close(moved, (context, weights[..., order]), rtol=1e-12, atol=1e-12)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="n_heads is 3, which does not divide d_model=8"):
        MultiplicativeAttention(D, n_heads=3)
    with pytest.raises(ValueError, match="width is 4; pass an odd number"):
        AdditiveAttention(D, features="location", width=4)


@pytest.mark.parametrize("name", [name for name in [*WITHOUT_EARLIER_WEIGHTS, *WITH_EARLIER_WEIGHTS] if name != "dot"])
def test_every_parameter_gets_a_gradient(name: str) -> None:
    module, query, source = build(name), draw(B, 1, D), draw(B, S, D, seed=1)
    past = None if module.earlier_weights is None else earlier()
    module(query, *module.prepare(source, MASK), MASK, past)[0].pow(2).sum().backward()
    flat = [n for n, parameter in module.named_parameters() if parameter.grad is None or parameter.grad.norm() < 1e-9]
    assert flat == []

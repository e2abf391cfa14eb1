"""The sublayers of training against the modules whose values and gradients they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.network import Source
from seqmodels.neural.ops.precision import autocast
from seqmodels.neural.transformer.attention import AttentionMask, ForwardPass
from seqmodels.neural.transformer.cache import plan_update
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.network import TransformerNetwork, TransformerSeq2SeqNetwork
from seqmodels.neural.transformer.positions import rotation
from seqmodels.neural.transformer.stack import TransformerBlock, TransformerStack
from seqmodels.neural.transformer.training_sublayers import (
    feedforward_sublayer,
    self_attention_sublayer,
)

B, T, S, D = 2, 5, 3, 8
CONFIGS = {
    "as default": {"bias": False, "activation": "relu2"},
    "biases": {"bias": True, "activation": "gelu"},
    "no gains": {"norm_affine": False, "activation": "relu"},
    "dropout": {"dropout": 0.4, "activation": "gelu-tanh"},
}


def block_of(**options: object) -> TransformerBlock:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        block = TransformerBlock(TransformerConfig(d_model=D, n_heads=2, **options), cross=False).double()
        for p in block.parameters():
            nn.init.normal_(p)
    return block


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def values_and_gradients(function, leaves: list[Tensor]) -> list[Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        out = function()
        loss = sum((x * draw(*x.shape, seed=i)).sum() for i, x in enumerate(out))
    return [*(x.detach() for x in out), *torch.autograd.grad(loss, leaves)]


def causal() -> Tensor:
    return torch.zeros(T, T, dtype=torch.float64).masked_fill_(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("bias", [causal()[None, None], draw(B, 1, 1, T, seed=7), draw(1, 2, T, T, seed=8), None])
@pytest.mark.parametrize("rotated", [False, True])
def test_self_attention(options: dict[str, object], bias: Tensor | None, rotated: bool) -> None:
    block, x = block_of(**options), draw(B, T, D).requires_grad_()
    mask = AttentionMask(bias, explicit=True)
    angles = rotation(0, T, D // 2, like=x) if rotated else None
    attention, residual = block.attention, block.attention_residual

    def plain() -> tuple[Tensor, ...]:
        shared = ForwardPass(plan_update(None, T)[0], mask, angles)
        update, buffers = attention(residual.sublayer_input(x), None, shared)
        return residual.add(x, update), *buffers

    def at_once() -> tuple[Tensor, ...]:
        y, buffers = self_attention_sublayer(x, attention, residual, mask, angles)
        return y, *buffers

    leaves = [x, *attention.parameters(), *residual.parameters()]
    torch.testing.assert_close(values_and_gradients(at_once, leaves), values_and_gradients(plain, leaves))


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_feedforward(options: dict[str, object]) -> None:
    block, x = block_of(**options), draw(B, T, D).requires_grad_()
    layer, residual = block.feedforward, block.feedforward_residual
    leaves = [x, *layer.parameters(), *residual.parameters()]
    plain = values_and_gradients(lambda: (residual.add(x, layer(residual.sublayer_input(x))),), leaves)
    at_once = values_and_gradients(lambda: (feedforward_sublayer(x, layer, residual),), leaves)
    torch.testing.assert_close(at_once, plain)


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.products_repeat
def test_in_bfloat16_they_are_as_near_to_double_precision(options: dict[str, object], monkeypatch) -> None:
    wide = {**options, "dropout": 0.0, "zero_init": False, "positions": "rotary"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        stack = TransformerStack(TransformerConfig(d_model=64, n_layers=1, n_heads=2, **wide), causal=True)
    x = draw(3, 9, 64).float().requires_grad_()
    leaves = [x, *stack.parameters()]

    def found(precision: torch.dtype | None) -> list[Tensor]:
        def run() -> tuple[Tensor, ...]:
            with autocast(x.device, precision):
                return (stack(x)[0].double(),)

        return [part.double() for part in values_and_gradients(run, leaves)]

    exact, at_once = found(None), found(torch.bfloat16)
    monkeypatch.setattr(TransformerStack, "_has_training_sublayers", lambda *_: False)
    plain = found(torch.bfloat16)
    errors = [((a - e).norm(), (p - e).norm(), e.norm()) for e, a, p in zip(exact, at_once, plain, strict=True)]
    assert any(of_plain > 1e-3 * norm for _, of_plain, norm in errors)  # it is in bfloat16
    assert all(error < 1.3 * of_plain + 1e-6 * norm for error, of_plain, norm in errors)


@pytest.mark.parametrize("options", [{"norm": "post"}, {"norm_type": "rms"}, {"qk_norm": True}, {"n_kv_heads": 1}])
def test_what_they_do_not_know_is_left_to_the_modules(options: dict[str, object]) -> None:
    assert not names_of_operations(TransformerConfig(d_model=D, n_layers=1, n_heads=2, **options))
    assert names_of_operations(TransformerConfig(d_model=D, n_layers=1, n_heads=2)) == {
        "SelfAttentionSublayer",
        "FeedForwardSublayer",
    }


def names_of_operations(config: TransformerConfig) -> set[str]:
    """Of the graph of a training step in bfloat16, those of a sublayer."""
    network = TransformerNetwork(config)
    with autocast(torch.device("cpu"), torch.bfloat16):
        hidden, _ = network(torch.zeros(1, 3, D), network.start(1))
    seen, names, todo = set(), set(), [hidden.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.add(node.name().removesuffix("Backward"))
            todo += [following for following, _ in node.next_functions]
    return {name for name in names if name.endswith("Sublayer")}


def test_steps_after_others_are_those_of_one_pass() -> None:
    network = TransformerSeq2SeqNetwork(TransformerConfig(d_model=D, n_layers=1, n_heads=2, dropout=0.0))
    x, source = draw(B, T, D).float(), Source(draw(B, S, D).float(), torch.ones(B, S, dtype=torch.bool))
    with autocast(x.device, torch.bfloat16):
        state = network.start(B, source)
        whole, _ = network(x, state)
        first, state = network(x[:, :2], state)
        rest, _ = network(x[:, 2:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, rtol=0.05, atol=0.05)

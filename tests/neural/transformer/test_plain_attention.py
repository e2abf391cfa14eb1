"""Attention without projections: its equation in plain numpy, and one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels import plot, presets
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.plain_attention import PlainAttentionNetwork

V = 5
RNG = np.random.default_rng(0)
X = [RNG.integers(0, V, n) for n in (7, 1, 4)]


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def plain(x: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """``y_i = Σ_j w_ij x_j`` and the weights, one step after the other."""
    weights = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        weights[i, : i + 1] = softmax(np.array([x[i] @ x[j] for j in range(i + 1)]) * scale)
    return weights @ x, weights


@pytest.mark.parametrize("scale_scores", [True, False])
def test_the_preset_is_the_equation_of_the_textbook(scale_scores: bool) -> None:
    model = presets.plain_attention(8, scale_scores=scale_scores)
    model.set_params(encoding=sm.Symbols(V), length="given", dtype="float64", device="cpu", max_steps=30)
    model.fit(X, validation=None)
    table, begin = (w.detach().double().numpy() for w in (model.module_.embedding.map.weight, model.module_.begin))
    head = model.module_.head
    found = model.log_prob_steps(X)
    for x, steps, attention in zip(X, found, model.attention(X), strict=True):
        read = np.concatenate([begin[None], table[x[:-1]]])
        y, weights = plain(read, 8**-0.5 if scale_scores else 1.0)
        logits = y @ head.weight.detach().double().numpy().T + head.bias.detach().double().numpy()
        np.testing.assert_allclose(steps, np.log(softmax(logits))[np.arange(len(x)), x], rtol=0, atol=1e-10)
        np.testing.assert_allclose(attention, weights, rtol=0, atol=1e-10)
        assert plot.attention(attention, [str(symbol) for symbol in x]).get_ylabel() == "predicted step"
        stream = model.stream()
        np.testing.assert_allclose([stream.update(symbol) for symbol in x], steps, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"positions": None},
        {"positions": "rotary"},
        {"positions": "alibi", "window": 2},
        {"positions": "learned"},
        {"positions": "t5"},
        {"positions": "sinusoidal", "window": 3},
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_steps_are_the_batch(options: dict[str, Any], gradients: bool) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(d_model=8, n_layers=2, n_heads=2, dropout=0.0, **options)
    network = PlainAttentionNetwork(config, max_length=16, convolution_lags=2).double()
    inputs = torch.randn(3, 7, 8, dtype=torch.float64)
    with torch.set_grad_enabled(gradients):
        at_once, _ = network(inputs, network.start(3))
        state, parts = network.start(3), []
        for part in inputs.split([1, 3, 1, 2], 1):
            hidden, state = network(part, state)
            parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), at_once, rtol=0, atol=1e-12)
    weights = network.self_attention_weights(inputs, 0)
    x = network.positions(network.previous(inputs, network.previous.start(3))[0], 0)
    first = (weights @ x.unflatten(2, (2, 4)).transpose(1, 2)).transpose(1, 2).flatten(2)
    one = PlainAttentionNetwork(TransformerConfig(**{**vars(config), "n_layers": 1}), max_length=16, convolution_lags=2)
    one.load_state_dict(network.state_dict())
    torch.testing.assert_close(one.double()(inputs, one.start(3))[0], first, rtol=0, atol=1e-12)


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="pass projections=False too"):
        sm.Transformer(architecture=sm.neural.TransformerArchitecture(scale_scores=False)).fit(X)
    with pytest.raises(ValueError, match="keys are the queries themselves"):
        sm.Transformer(architecture=sm.neural.TransformerArchitecture(projections=False, n_kv_heads=1)).fit(X)

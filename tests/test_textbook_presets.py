"""The presets of the textbook: each model's log-probabilities, computed anew from its weights in plain torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import seqmodels as sm
from seqmodels import presets

V = 5
X = [np.array([0, 3, 1]), np.array([2, 4, 4, 0, 1]), np.array([1])]
Y = [np.array([1, 1, 0, 2]), np.array([3, 0]), np.array([4, 2, 0])]
SMALL: dict[str, Any] = {"encoding": sm.Symbols(V), "length": "given", "dtype": "float64"}


def trained(model: Any, *data: Any) -> Any:
    """Fitted for two steps, with noise in every weight."""
    model = copy.deepcopy(model.set_params(**SMALL, max_steps=2).fit(*data, validation=None))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.module_.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    model.module_.double().requires_grad_(False)
    return model


def embedded(model: Any, y: np.ndarray) -> Tensor:
    """Inputs of the decoder (T, d): the learned start, then the embeddings of all symbols but the last."""
    table, begin = model.module_.embedding.map.weight, model.module_.begin
    return torch.cat([begin[None], table[torch.from_numpy(y[:-1])]]) * model.module_.embedding.scale


def log_probs(model: Any, hidden: Tensor, y: np.ndarray) -> np.ndarray:
    """log softmax(W h + b) of the symbols y, from hidden states (T, d)."""
    head = model.module_.head
    return (hidden @ head.weight.T + head.bias).log_softmax(-1)[torch.arange(len(y)), torch.from_numpy(y)].numpy()


def check(model: Any, hidden: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
    module = model.module_
    table = (module.source_embedding or module.embedding).map.weight
    for x, y, steps in zip(X, Y, model.log_prob_steps(X, Y), strict=True):
        states = hidden(module.network, table[torch.from_numpy(x)] * module.embedding.scale, embedded(model, y))
        np.testing.assert_allclose(steps, log_probs(model, states, y), rtol=0, atol=1e-10)


@pytest.mark.parametrize("left_to_right", [False, True])
def test_rabiner1989(left_to_right: bool) -> None:
    model = presets.rabiner1989(3, left_to_right=left_to_right).set_params(**SMALL, max_iter=3).fit([*X, *Y])
    pi, a, b = model.initial_, model.transition_, model.emission_
    for o, log_prob in zip(X, model.log_prob(X), strict=True):
        alpha = pi * b[:, o[0]]
        for symbol in o[1:]:
            alpha = (alpha @ a) * b[:, symbol]
        assert np.log(alpha.sum()) == pytest.approx(log_prob, abs=1e-10)
    if left_to_right:
        assert (pi == [1, 0, 0]).all()
        assert (np.tril(a, -1) == 0).all()


def test_elman1990() -> None:
    model = trained(presets.elman1990(8), X)
    for x, steps in zip(X, model.log_prob_steps(X), strict=True):
        u, v, b, c = model.module_.network.rnn.all_weights[0]
        h, states = torch.zeros(8, dtype=torch.float64), []
        for e in embedded(model, x):
            h = 1 / (1 + torch.exp(-(u @ e + v @ h + b + c)))
            states.append(h)
        np.testing.assert_allclose(steps, log_probs(model, torch.stack(states), x), rtol=0, atol=1e-10)
    assert model.bptt == 1


def gated_unit(cell: Any, x: Tensor, s: Tensor) -> Tensor:
    """z, r and the candidate of Cho et al."""
    (w_z, w_r, w), (b_z, b_r, b) = cell.drive.weight.chunk(3), cell.drive.bias.chunk(3)
    (u_z, u_r), u = cell.gates.weight.chunk(2), cell.candidate.weight
    z, r = torch.sigmoid(w_z @ x + b_z + u_z @ s), torch.sigmoid(w_r @ x + b_r + u_r @ s)
    return (1 - z) * s + z * torch.tanh(w @ x + b + u @ (r * s))


def test_bahdanau2015() -> None:
    def hidden(net: Any, source: Tensor, inputs: Tensor) -> Tensor:
        ahead, back = [source.new_zeros(8)], [source.new_zeros(8)]
        for j in range(len(source)):
            ahead.append(gated_unit(net.encoder_forwards, source[j], ahead[-1]))
            back.append(gated_unit(net.encoder_backwards, source[-1 - j], back[-1]))
        h = torch.cat([torch.stack(ahead[1:]), torch.stack(back[1:]).flip(0)], 1)  # annotations (S, 2d)
        s, outputs = torch.tanh(net.first_state(back[-1])), []
        for y in inputs:
            e = (
                torch.tanh(net.attention_query.weight @ s + h @ net.attention_key.weight.T)
                @ net.attention_energy.weight[0]
            )
            c = e.softmax(0) @ h
            t = net.readout.weight @ torch.cat([s, y, c]) + net.readout.bias
            outputs.append(torch.maximum(t[0::2], t[1::2]))
            s = gated_unit(net.decoder, torch.cat([y, c]), s)
        return torch.stack(outputs)

    model = trained(presets.bahdanau2015(8), X, Y)
    check(model, hidden)
    weights = model.align(X, Y)
    assert [w.shape for w in weights] == [(len(y), len(x)) for x, y in zip(X, Y, strict=True)]
    assert all(np.allclose(w.sum(1), 1) for w in weights)


def lstm_step(cells: Any, x: Tensor, states: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    after = []
    for cell, (h, c) in zip(cells, states, strict=True):
        i, f, g, o = (cell.weight_ih @ x + cell.weight_hh @ h + cell.bias_ih + cell.bias_hh).chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        x = torch.sigmoid(o) * torch.tanh(c)
        after.append((x, c))
    return x, after


def test_luong2015() -> None:
    def hidden(net: Any, source: Tensor, inputs: Tensor) -> Tensor:
        zero = source.new_zeros(8)
        states, encoded, a, outputs = [(zero, zero)] * 2, [], zero, []
        for x in source:
            g, states = lstm_step(net.encoder, x, states)
            encoded.append(g)
        g = torch.stack(encoded)
        for y in inputs:
            h, states = lstm_step(net.decoder, torch.cat([y, a]), states)
            c = (g @ net.attention_key.weight.T @ h).softmax(0) @ g
            a = torch.tanh(net.combine.weight @ torch.cat([c, h]))
            outputs.append(a)
        return torch.stack(outputs)

    check(trained(presets.luong2015(8, 2), X, Y), hidden)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Two heads of width 4: softmax(Q Kᵀ / √d_k) V."""
    heads = zip(q.chunk(2, -1), k.chunk(2, -1), v.chunk(2, -1), strict=True)
    return torch.cat([(q @ k.T / 2).masked_fill(~mask, -torch.inf).softmax(-1) @ v for q, k, v in heads], -1)


def test_vaswani2017() -> None:
    def positions(x: Tensor) -> Tensor:
        rate = 10_000 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        angles = torch.arange(len(x))[:, None] * rate
        return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)

    def norm(residual: Any, x: Tensor) -> Tensor:
        return F.layer_norm(x, (8,), residual.norm.weight, residual.norm.bias)

    def self_attention(block: Any, x: Tensor, mask: Tensor) -> Tensor:
        context = attend(*block.attention.project(x).chunk(3, -1), mask)
        return norm(block.attention_residual, x + block.attention.output(context))

    def cross_attention(block: Any, y: Tensor, x: Tensor) -> Tensor:
        cross, mask = block.cross_attention, torch.ones(len(y), len(x), dtype=torch.bool)
        context = attend(cross.query(y), cross.key(x), cross.value(x), mask)
        return norm(block.cross_residual, y + cross.output(context))

    def feedforward(block: Any, x: Tensor) -> Tensor:
        return norm(block.feedforward_residual, x + block.feedforward.contract(torch.relu(block.feedforward.expand(x))))

    def hidden(net: Any, source: Tensor, inputs: Tensor) -> Tensor:
        x, y = positions(source), positions(inputs)
        everything = torch.ones(len(x), len(x), dtype=torch.bool)
        for block in net.encoder:
            x = feedforward(block, self_attention(block, x, everything))
        causal = torch.ones(len(y), len(y), dtype=torch.bool).tril()
        for block in net.decoder:
            y = feedforward(block, cross_attention(block, self_attention(block, y, causal), x))
        return y

    model = presets.vaswani2017("base")
    assert (model.d_model, model.n_layers, model.n_heads, model.d_feedforward, model.dropout) == (512, 6, 8, 2048, 0.1)
    check(trained(model.set_params(d_model=8, n_layers=2, n_heads=2, d_feedforward=16), X, Y), hidden)
    with pytest.raises(ValueError, match='size is \'huge\'; pass "base" or "big"'):
        presets.vaswani2017("huge")  # type: ignore[arg-type]

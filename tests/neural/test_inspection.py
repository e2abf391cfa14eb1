from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.neural import gradient_by_lag, inspection

RNG = np.random.default_rng(0)
SYMBOLS = [RNG.integers(4, size=n) for n in (12, 7, 9, 3)]
VECTORS = [RNG.normal(size=(n, 2)).cumsum(0) for n in (10, 6)]
SMALL = {"d_model": 8, "max_steps": 3, "dtype": "float64"}


def test_elmans_gradient_is_a_product_of_jacobians() -> None:
    """``∂h_t/∂e_{t-1} = diag(1 - h_t^2) U``, and ``diag(1 - h^2) V`` for every step more."""
    model = sm.ElmanRNN(**SMALL, length="given", nonlinearity="tanh").fit(SYMBOLS, validation=None)
    x, module = SYMBOLS[0], model._evaluation_module()
    u, v, b, b_recurrent = (w.detach() for w in module.network.rnn.all_weights[0])
    inputs = torch.cat([module.begin[None], module.embedding(torch.as_tensor(x[:-1]))]).detach()
    h, states = torch.zeros(8).double(), []
    for e in inputs:
        h = torch.tanh(u @ e + v @ h + b + b_recurrent)
        states.append(h)
    norms: dict[int, list[float]] = {1: [], 2: [], 5: []}
    for t in range(1, len(x)):
        outward = torch.eye(4)[x[t]].double() - torch.softmax(module.head(states[t]), -1).detach()
        slope = outward @ module.head.weight.detach()  # d log p(x_t) / d h_t
        for lag in range(1, t + 1):
            slope = slope * (1 - states[t - lag + 1] ** 2)
            if lag in norms:
                norms[lag].append(float((slope @ u).norm()))
            slope = slope @ v
    found = gradient_by_lag(model, [x], [1, 2, 5])
    assert found["lag"].tolist() == [1, 2, 5]
    assert found["n_steps"].tolist() == [11, 10, 7]
    assert_allclose(found["gradient"], [np.mean(each) for each in norms.values()], rtol=1e-10)


@pytest.mark.parametrize("make", [sm.LSTM, sm.GRU, lambda **o: sm.Transformer(n_layers=1, n_heads=2, context=12, **o)])
@pytest.mark.parametrize("data", [SYMBOLS, VECTORS], ids=["symbols", "vectors"])
def test_batches_change_nothing_and_all_sequences_count(make, data, monkeypatch: pytest.MonkeyPatch) -> None:
    model, lags = make(**SMALL).fit(data, validation=None), [1, 3, 8]
    together = gradient_by_lag(model, data, lags)
    alone = [gradient_by_lag(model, [x], [lag for lag in lags if lag < len(x)]) for x in data]
    for i, lag in enumerate(lags):
        parts = [frame[frame["lag"] == lag].iloc[0] for frame in alone if lag in frame["lag"].tolist()]
        n = sum(part["n_steps"] for part in parts)
        assert together["n_steps"][i] == n == sum(max(0, len(x) - lag) for x in data)
        mean = sum(part["gradient"] * part["n_steps"] for part in parts) / n
        assert_allclose(together["gradient"][i], mean, rtol=1e-10)
    monkeypatch.setattr(inspection, "MAX_STEPS_PER_BATCH", 1)
    assert_allclose(gradient_by_lag(model, data, lags)["gradient"], together["gradient"], rtol=1e-10)


def test_what_cannot_be_asked() -> None:
    model = sm.LSTM(**SMALL).fit(SYMBOLS, validation=None)
    for lags in ([], [0, 1]):
        with pytest.raises(ValueError, match=r"lags are \["):
            gradient_by_lag(model, SYMBOLS, lags)
    with pytest.raises(ValueError, match="lag 12 is asked for but the longest sequence has 12 steps"):
        gradient_by_lag(model, SYMBOLS, [12])
    short = sm.Transformer(n_layers=1, n_heads=2, context=11, **SMALL).fit(SYMBOLS, validation=None)
    with pytest.raises(ValueError, match="a sequence has 12 steps, but the context of the model is 11"):
        gradient_by_lag(short, SYMBOLS, [1])
    given = sm.LSTM(**SMALL).fit(SYMBOLS, SYMBOLS, validation=None)
    with pytest.raises(ValueError, match=r"needs p\(x\); fit without y"):
        gradient_by_lag(given, SYMBOLS, [1])


def small_transformer(**options: Any) -> sm.Transformer:
    model = sm.Transformer(d_model=8, n_heads=2, n_layers=2, context=6, max_steps=3, dtype="float64", device="cpu")
    return model.set_params(**options).fit(SYMBOLS_READ, validation=None)


SYMBOLS_READ = [np.random.default_rng(n).integers(0, 4, n) for n in (5, 6, 16)]


def test_self_attention_is_the_softmax_of_scaled_products() -> None:
    model = small_transformer(n_layers=1, n_heads=1, positions=None, convolution_lags=0, context=20)
    module = model._evaluation_module()
    attention = module.network.decoder.blocks[0].attention
    for x, found in zip(SYMBOLS_READ, model.attention(SYMBOLS_READ), strict=True):
        read = torch.cat([module.begin[None], module.embedding.map.weight[torch.as_tensor(x[:-1])]])
        normed = torch.nn.functional.layer_norm(
            read, (8,), module.network.decoder.blocks[0].attention_residual.norm.weight
        )
        query, key, _ = (normed @ attention.project.weight.T).detach().split(8, 1)
        scores = (query @ key.T / 8**0.5).masked_fill(torch.ones(len(x), len(x)).triu(1) > 0, -torch.inf)
        np.testing.assert_allclose(found, scores.softmax(1), rtol=0, atol=1e-12)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"positions": "alibi"},
        {"positions": "learned"},
        {"positions": "sinusoidal", "architecture__n_kv_heads": 1},
        {"positions": "rotary", "architecture__n_kv_heads": 1, "d_model": 16, "n_heads": 4},
        {"window": 2, "architecture__qk_norm": True},
        {"architecture__projections": False},
        {"architecture__projections": False, "positions": "t5", "architecture__scale_scores": False},
        {"architecture__projections": False, "positions": "learned", "convolution_lags": 0},
    ],
)
def test_self_attention_is_of_windows_layers_and_heads(options: dict[str, Any]) -> None:
    model = small_transformer(**options)
    mean, first = model.attention(SYMBOLS_READ), model.attention(SYMBOLS_READ, layer=0)
    heads = [model.attention(SYMBOLS_READ, head=h) for h in range(model.n_query_heads)]
    for i, x in enumerate(SYMBOLS_READ):
        assert mean[i].shape == (len(x), len(x))
        np.testing.assert_allclose(mean[i].sum(1), 1, rtol=0, atol=1e-12)
        assert not np.triu(mean[i], 1).any()
        np.testing.assert_allclose(np.mean([head[i] for head in heads], 0), mean[i], rtol=0, atol=1e-12)
    assert not np.allclose(mean[2], first[2])
    assert not np.allclose(heads[0][2], heads[1][2])
    # Windows of six begin three steps apart: step 9 is scored in the one that begins at 6.
    assert not mean[2][9, :6].any()
    assert mean[2][9, 8:10].all()


def test_self_attention_that_is_not_there_is_refused() -> None:
    model = small_transformer()
    with pytest.raises(ValueError, match="layer is 2, but there are 2"):
        model.attention(SYMBOLS_READ, layer=2)
    with pytest.raises(ValueError, match="head is -1, but there are 2"):
        model.attention(SYMBOLS_READ, head=-1)
    pairs = model.clone().fit(SYMBOLS_READ, SYMBOLS_READ, validation=None)
    with pytest.raises(ValueError, match="fit without y"):
        pairs.attention(SYMBOLS_READ)

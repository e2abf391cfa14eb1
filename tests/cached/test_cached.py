"""Caches against their equations, written out for one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.cached.caches import Cache, CountCache, HiddenStateCache
from seqmodels.preparation import Data

SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 20, "batch_size": 4}


def sequences(n: int, length: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.integers(4) + np.cumsum(rng.random(length) < 0.6)) % 4 for _ in range(n)]


def hidden_share(h: np.ndarray, x: np.ndarray, t: int, window: int, theta: float) -> float:
    past = range(max(0, t - window), t)
    weights = {i: np.exp(theta * h[t] @ h[i]) for i in past}
    return sum(w for i, w in weights.items() if x[i] == x[t]) / sum(weights.values()) if weights else np.nan


def count_share(x: np.ndarray, t: int, window: int, order: int) -> float:
    n = order - 1
    followed = [x[i] for i in range(max(0, t - window) + n, t) if (x[i - n : i] == x[t - n : t]).all()]
    return followed.count(x[t]) / len(followed) if followed and t >= n else np.nan


@pytest.mark.parametrize("window", [1, 3, 1_000])
def test_the_cache_of_hidden_states(window: int) -> None:
    (x,), h = sequences(1, 700), np.random.default_rng(1).standard_normal((700, 3))
    expected = [hidden_share(h, x, t, window, 0.7) for t in range(700)]
    found = HiddenStateCache(window, 0.7).log_prob(torch.from_numpy(h), torch.from_numpy(x)).exp()
    assert_allclose(found[:-1], expected, rtol=1e-9)
    assert found[-1] == 0  # the end is none of its symbols


@pytest.mark.parametrize(("window", "order"), [(1, 1), (3, 1), (3, 3), (9, 2), (1_000, 3), (1_000, 5)])
def test_the_cache_of_counts(window: int, order: int) -> None:
    (x,) = sequences(1, 60, seed=2)
    expected = [count_share(x, t, window, order) for t in range(60)]
    found = CountCache(window, order).log_prob(torch.zeros(60, 0), torch.from_numpy(x)).exp()
    assert_allclose(found[:-1], expected, rtol=1e-12)


@pytest.mark.parametrize("cache", [HiddenStateCache(5, 0.9), CountCache(5, 1), CountCache(6, 3)], ids=repr)
def test_one_step_and_a_whole_sequence_agree(cache: Cache) -> None:
    (x,), h = sequences(1, 25, seed=3), np.random.default_rng(4).standard_normal((25, 3))
    symbols, features = torch.from_numpy(x), torch.from_numpy(h)
    whole = cache.log_prob(features, symbols)
    for t in range(25):
        last = slice(max(0, t - cache.window), t)
        log_p = cache.log_probs(features[t][None], features[last][None], symbols[last][None], 4)[0]
        assert_allclose(log_p[x[t]], whole[t], rtol=0, atol=1e-12)
        assert bool(log_p.isnan().all()) or abs(float(log_p.exp().sum()) - 1) < 1e-12


def test_a_network_and_its_cache_are_mixed() -> None:
    network = sm.LSTM(**SMALL, dtype="float64").fit(sequences(6, 20), validation=None)
    model = sm.Cached.from_fitted(network, weight=0.3, theta=0.5, window=4, dtype="float64").tune(sequences(2, 9))
    (x,) = sequences(1, 30, seed=5)
    module = network._evaluation_module()
    step = torch.arange(31)
    inputs = torch.from_numpy(np.append(0, x))[None]
    with torch.no_grad():
        everywhere = torch.ones(1, 31, dtype=torch.bool)
        h = module.hidden(inputs, (step == 0)[None], everywhere, module.start(1, None, None))[0][0].numpy()
    plain, mixed = network.log_prob_steps([x])[0], model.log_prob_steps([x])[0]
    shares = np.array([hidden_share(h, x, t, 4, 0.5) for t in range(30)])
    assert_array_equal(mixed[0], plain[0])
    assert_allclose(np.exp(mixed[1:30]), 0.7 * np.exp(plain[1:30]) + 0.3 * shares[1:], rtol=1e-10)
    assert_allclose(np.exp(mixed[30]), 0.7 * np.exp(plain[30]), rtol=1e-10)  # the end


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize(("window", "order"), [(1, 1), (4, 2), (30, 1), (30, 3)])
def test_a_model_and_counts_are_mixed(window: int, order: int, conditional: bool, length: Any) -> None:
    """Of targets the cache holds no source, and of the end nothing."""
    train, inner = sequences(6, 12), sm.NGram(2, length=length, dtype="float64")
    sources = sequences(6, 5, seed=8)
    wrapped = sm.Cached(model=inner, weight=0.3, window=window, order=order, length=length, dtype="float64")
    for x in (sequences(1, 40, seed=9)[0], np.array([2])):
        data = [sources, train] if conditional else [train]
        new = [[sources[0]], [x]] if conditional else [[x]]
        model = wrapped.clone().fit(*data, validation=None)
        plain, found = model.model_.log_prob_steps(*new)[0], model.log_prob_steps(*new)[0]
        shares = np.array([count_share(x, t, window, order) for t in range(len(x))])
        if length == "stop":  # of which the cache gives none, where it has what to compare with
            shares = np.append(shares, 0 * count_share(np.append(x, 0), len(x), window, order))
        expected = np.where(np.isnan(shares), np.exp(plain), 0.7 * np.exp(plain) + 0.3 * shares)
        assert_allclose(np.exp(found), expected, rtol=1e-10)


def test_auto_gains_where_texts_have_words_of_their_own_and_does_no_harm_where_not() -> None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(300)]

    def text(seed: int) -> str:
        few = np.random.default_rng(seed).choice(words, 4)  # each text has few of the words, over and over
        return " ".join(np.random.default_rng(seed).choice(few, 40))

    train, test = [text(seed) for seed in range(20)], [text(seed) for seed in range(100, 103)]
    for inner in (sm.NGram(3), sm.GRU(**SMALL)):
        model = sm.Cached(inner).fit(train)
        assert model.weight_ > 0
        assert model.score(test) > model.model_.score(test) + 0.1
        assert model.measure_.memory == model.memory_ == "adaptive"
    noise = [rng.integers(4, size=40) for _ in range(40)]
    same = sm.Cached(sm.NGram(1)).fit(noise)
    assert same.weight_ == 0
    assert_array_equal(same.log_prob(noise), same.model_.log_prob(noise))


def test_a_wrapped_model_may_be_adaptive_itself() -> None:
    train = sequences(6, 20)
    inner = sm.Dynamic(sm.GRU(**SMALL), segment=4, lr=0.05, decay=0.1)
    model = sm.Cached(inner, weight=0.2, order=2, dtype="float64").fit(train, validation=None)
    (x,) = sequences(1, 14, seed=6)
    stream = model.stream()
    found = [stream.update(symbol) for symbol in x]
    assert_allclose(found, model.log_prob_steps([x])[0][:-1], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sm.Cached(sm.NGram(2), cache="hidden"), "NGram has no hidden states of a network"),
        (lambda: sm.Cached(sm.NGram(2), cache="all"), "cache is 'all'"),
        (lambda: sm.Cached(sm.NGram(2), window=0), "window is 0; pass at least 1"),
        (lambda: sm.Cached(sm.NGram(2), window=2, order=3), "order is 3, but the window has 2 steps"),
        (lambda: sm.Cached(sm.NGram(2), weight=1.0), "weight is 1.0"),
        (lambda: sm.Cached(sm.LSTM(), theta=-1.0), "theta is -1.0"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().fit(["to be or not to be"])


def test_vectors_are_refused_and_what_is_not_tuned_says_so() -> None:
    with pytest.raises(ValueError, match="a cache is for symbols and text"):
        sm.Cached(sm.HMM(2)).fit([np.random.default_rng(0).standard_normal((9, 2))])
    model = sm.Cached.from_fitted(sm.NGram(2).fit(["to be or not"]))
    with pytest.raises(sm.NotFittedError, match="call tune"):
        model.score(["to be"])


def test_no_more_steps_are_held_out_than_are_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.cached.model.MAX_HELD_OUT", 7)
    model = sm.Cached(model=sm.NGram(2), weight=0.3, order=1).fit(sequences(6, 5), validation=None)
    examples = model._setting().examples(Data.of(sequences(6, 5)))
    assert [len(symbols) for _, symbols, _ in model._held_out([], examples)] == [5, 2]

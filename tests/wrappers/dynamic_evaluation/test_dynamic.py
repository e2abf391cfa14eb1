"""Dynamic evaluation: each figure against a loop written out by hand, and what must not change."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn import functional as F

import seqmodels as sm
from seqmodels.encodings.examples import Example
from seqmodels.wrappers.dynamic_evaluation.segment_gradients import LearningRule, clip_factor
from seqmodels.wrappers.dynamic_evaluation.tuning import choose_rates, segment_length

SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 20, "batch_size": 4}


def sequences(n: int, length: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.integers(4) + np.cumsum(rng.random(length) < 0.6)) % 4 for _ in range(n)]


def dynamic(network: Any, **options: Any) -> sm.Dynamic:
    given: dict[str, Any] = {"segment": 4, "lr": 0.05, "decay": 0.1, "length": "given", "dtype": "float64"}
    model = sm.Dynamic(network, **(given | options))
    return model.fit(sequences(6, 20), validation=None)


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([t.detach().flatten() for t in tensors])


class Loop:
    """The rule of the class's docstring, one weight tensor after the other."""

    def __init__(self, model: sm.Dynamic) -> None:
        self.module = copy.deepcopy(model.model_.module_).double().eval()  # type: ignore[attr-defined]
        self.model, self.weights = model, list(self.module.parameters())
        self.fitted = [w.detach().clone() for w in self.weights]
        rms = torch.from_numpy(model.rms_).double()
        sizes = [w.numel() for w in self.weights]
        self.scale = [part + 0.1 * rms.mean() for part in rms.split(sizes)]

    def learn(self, loss: torch.Tensor) -> None:
        gradients = torch.autograd.grad(loss, self.weights)
        norm = float(flat(gradients).norm())
        factor = min(1.0, self.model.max_norm_ / norm)
        with torch.no_grad():
            for w, w_0, g, scale in zip(self.weights, self.fitted, gradients, self.scale, strict=True):
                back = self.model.decay_ * (w_0 - w)
                w += back - self.model.lr_ * factor * g / scale.view_as(w)

    def outputs(self, symbols: torch.Tensor, steps: range, state: Any) -> tuple[torch.Tensor, Any]:
        """Log-probabilities of all symbols at these steps, each with the symbol before it for an input."""
        step = torch.tensor([*steps])
        inputs = symbols[(step - 1).clamp(min=0)][None]
        logits, state = self.module(inputs, (step == 0)[None], torch.ones(1, len(step), dtype=torch.bool), state)
        return F.log_softmax(logits[0], -1), state


def test_a_recurrent_network_learns_after_each_segment() -> None:
    model = dynamic(sm.LSTM(**SMALL, n_layers=2))
    (sequence,) = sequences(1, 14, seed=5)
    symbols, loop = torch.from_numpy(sequence), Loop(model)
    state, expected = loop.module.start(1, None, None), []
    for begin in range(0, 14, 4):
        steps = range(begin, min(begin + 4, 14))
        log_p, after = loop.outputs(symbols, steps, state)
        nats = log_p[torch.arange(len(steps)), symbols[list(steps)]]
        expected += nats.tolist()
        loop.learn(-nats.mean())
        state = tuple(part.detach() for part in after)
    (found,) = model.log_prob_steps([sequence])
    assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert np.abs(found - model.model_.set_params(dtype="float64").log_prob_steps([sequence])[0]).max() > 1e-3


def test_a_transformer_learns_from_the_windows_of_each_segment() -> None:
    """Context 4: windows of the steps 0-3, 2-5 (of which 4-5 are scored), 4-7, ..."""
    model = dynamic(sm.Transformer(**SMALL, n_layers=2, n_heads=2, context=4))
    (sequence,) = sequences(1, 12, seed=6)
    symbols, loop, expected = torch.from_numpy(sequence), Loop(model), []
    for windows in (((0, 0, 4),), ((2, 4, 6), (4, 6, 8)), ((6, 8, 10), (8, 10, 12))):
        nats = []
        for window, begin, end in windows:
            state = loop.module.start(1, None, None)
            if window < begin:
                with torch.no_grad():  # what the window had before the segment
                    _, state = loop.outputs(symbols, range(window, begin), state)
            log_p, _ = loop.outputs(symbols, range(begin, end), state)
            nats.append(log_p[torch.arange(end - begin), symbols[begin:end]])
        expected += torch.cat(nats).tolist()
        loop.learn(-torch.cat(nats).mean())
    assert_allclose(model.log_prob_steps([sequence])[0], expected, rtol=0, atol=1e-12)


def test_statistics_are_of_the_gradients_of_segments_in_training() -> None:
    model = dynamic(sm.ElmanRNN(**SMALL), segment=5)
    module, squares, norms = Loop(model).module, [], []
    for sequence in sequences(6, 20)[:-1]:  # of the last, rates would be chosen
        symbols, state = torch.from_numpy(sequence), module.start(1, None, None)
        for begin in range(0, 20, 5):
            step = torch.arange(begin, begin + 5)
            inputs = symbols[(step - 1).clamp(min=0)][None]
            logits, state = module(inputs, (step == 0)[None], torch.ones(1, 5, dtype=torch.bool), state)
            gradient = flat(torch.autograd.grad(F.cross_entropy(logits[0], symbols[step]), [*module.parameters()]))
            squares.append(gradient**2)
            norms.append(float(gradient.norm()))
            state = tuple(part.detach() for part in state)
    max_norm = 2 * float(np.median(norms[:16]))
    expected = [min(1.0, max_norm / norm) ** 2 * square for norm, square in zip(norms, squares, strict=True)]
    assert_allclose(model.max_norm_, max_norm, rtol=1e-12)
    assert_allclose(model.rms_, torch.stack(expected).mean(0).sqrt(), rtol=1e-5, atol=1e-9)


def test_the_rule_pulls_back_and_clips() -> None:
    rule = LearningRule(torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.25]), 0.1, 5.0)
    weights = torch.tensor([2.0, 0.0])
    rule.apply(weights, torch.tensor([6.0, 8.0]))  # of length 10, so half of it
    assert_allclose(weights, [2 - 0.1 - 0.5 * 3, 0 + 0.1 - 0.25 * 4], rtol=1e-6)
    rule.apply(weights, None)
    assert_allclose(weights, [0.4, -0.9], rtol=1e-6)
    assert clip_factor(torch.zeros(3), 1.0) == 1.0


def test_every_sequence_begins_with_the_fitted_weights_and_short_ones_teach_nothing() -> None:
    model = dynamic(sm.GRU(**SMALL))
    long, short = sequences(1, 30, seed=7)[0], sequences(3, 4, seed=8)
    before = flat(model.model_.module_.parameters())  # type: ignore[attr-defined]
    first, *of_short, again = model.log_prob_steps([long, *short, short[0][:1], long])
    assert_allclose(first, again, rtol=1e-9, atol=1e-9)
    inner = model._inner()
    for found, expected in zip(of_short, inner.log_prob_steps([*short, short[0][:1]]), strict=True):
        assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert_array_equal(flat(model.model_.module_.parameters()), before)  # type: ignore[attr-defined]
    static = copy.deepcopy(model)
    static.lr_ = 0.0
    assert_allclose(static.log_prob_steps([long])[0], inner.log_prob_steps([long])[0], rtol=1e-9, atol=1e-9)


def test_one_state_of_a_cursor_goes_on_in_several_ways() -> None:
    """Past the ends of two more segments, and of windows; sequences that differ are then read with other weights."""
    model = dynamic(sm.Transformer(**SMALL, n_heads=2, context=6), segment=4)
    start, *ends = sequences(1, 6, seed=9)[0], *sequences(3, 9, seed=10)
    cursor, state = model.cursor(), model.cursor().start(n=2)
    for x in start:
        state = cursor.advance(state, torch.tensor([x, x]))
    rows = cursor.select(state, torch.tensor([1, 0, 1]))
    expected = np.array([model.log_prob_steps([np.append(start, end)])[0][6:] for end in ends])
    for _ in range(2):
        at, found = rows, []
        for x in torch.from_numpy(np.array(ends)).T:
            found.append(cursor.distribution(at).log_prob(x).numpy())
            at = cursor.advance(at, x)
        assert_allclose(np.array(found).T, expected, rtol=0, atol=1e-11)
    picked = cursor.select(at, torch.tensor([2, 0]))
    assert_allclose(
        cursor.distribution(picked).log_probs(), cursor.distribution(at).log_probs()[[2, 0]], rtol=1e-9, atol=1e-9
    )


def test_a_segment_of_probability_zero_teaches_nothing() -> None:
    model = dynamic(sm.LSTM(**SMALL), decay=0.0)
    with torch.no_grad():
        model.model_.module_.head.bias[3] = -torch.inf  # type: ignore[attr-defined]
    plain = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    zero = plain.copy()
    zero[2] = 3
    steps, impossible = model.log_prob_steps([plain, zero])
    assert np.isneginf(impossible[2])
    assert np.isfinite(np.delete(impossible, 2)).all()
    untaught = model._inner().log_prob_steps([zero])[0]
    assert_allclose(impossible[4:], untaught[4:], rtol=0, atol=1e-12)
    assert np.abs(steps[4:] - model._inner().log_prob_steps([plain])[0][4:]).max() > 1e-4


def test_float32_is_near_float64() -> None:
    model = dynamic(sm.LSTM(**SMALL))
    sequence = sequences(1, 60, seed=11)
    double = model.log_prob_steps(sequence)[0]
    assert_allclose(copy.deepcopy(model).set_params(dtype="float32").log_prob_steps(sequence)[0], double, atol=2e-4)


def test_densities_far_values_and_shared_weights() -> None:
    rng = np.random.default_rng(3)
    frames = [np.cumsum(rng.standard_normal((30, 2)), 0) for _ in range(4)]
    model = sm.Dynamic(sm.GRU(**SMALL), segment=5, lr=0.02, decay=0.05, dtype="float64").fit(frames, validation=None)
    far = frames[0].copy()
    far[7] = 1e9
    steps = model.log_prob_steps([far])[0]
    assert np.isfinite(steps).all()
    assert steps[10:].mean() > -100  # a far value moves the weights no further than another
    bits = [(rng.random((20, 3)) < 0.4).astype(float) for _ in range(4)]
    observation = sm.Chords(4)
    chords = sm.Dynamic(sm.GRU(**SMALL, observation=observation), segment=5, lr=0.1, decay=0.0, dtype="float64")
    chords.fit(bits, validation=None)
    cursor = chords.cursor()
    state, found = cursor.start(n=4), []
    for x in torch.from_numpy(np.array(bits)).transpose(0, 1):
        found.append(cursor.distribution(state).log_prob(x).numpy())
        state = cursor.advance(state, x)
    assert_allclose(np.array(found).T, chords.log_prob_steps(bits), rtol=0, atol=1e-10)


# -- rates -------------------------------------------------------------------------------------------------------------


def test_rates_that_gain_most_are_chosen_and_none_where_nothing_is_sure() -> None:
    def peak(lr: float, decay: float) -> np.ndarray:
        return np.array([1.0, 1.1, 0.9]) * (5 - abs(np.log(lr / 2.7e-2)) - abs(decay - 0.01))

    assert choose_rates(peak, None, None) == (pytest.approx(2.7e-2), 0.01)
    assert choose_rates(peak, 0.5, None) == (0.5, 0.01)
    assert choose_rates(peak, None, 0.3)[1] == 0.3
    assert choose_rates(peak, 0.5, 0.2) == (0.5, 0.2)
    assert choose_rates(lambda lr, decay: np.array([5.0, -4.0, 0.5]), None, None)[0] == 0
    assert choose_rates(lambda lr, decay: np.zeros(0), None, None)[0] == 0
    assert choose_rates(lambda lr, decay: np.array([np.nan, 1.0]), None, None)[0] == 0
    small = choose_rates(lambda lr, decay: np.array([1.0, 1.1]) * (-1.0 if lr > 2e-5 else 1.0), None, None)
    assert 0 < small[0] < 2e-5


@pytest.mark.slow
def test_auto_learns_where_a_text_has_words_of_its_own_and_does_no_harm_where_not() -> None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(300)]

    def text(seed: int, n: int) -> str:
        own = np.random.default_rng(seed)
        few = own.choice(words, 4)  # each text has few of the words, over and over
        return " ".join(own.choice(few, n))

    train = [text(seed, 60) for seed in range(20)]
    model = sm.Dynamic(sm.LSTM(d_model=32, max_steps=60), segment=16).fit(train)
    assert model.lr_ > 0
    test = [text(100, 80)]
    assert model.score(test) > model.model_.score(test) + 0.1
    names = sm.Dynamic(sm.LSTM(**SMALL)).fit(["ann", "bob", "eve", "mary", "tom"] * 5)
    assert names.lr_ == 0
    assert_allclose(names.log_prob(["anna", "bo"]), names.model_.log_prob(["anna", "bo"]), rtol=1e-5, atol=1e-5)


def test_segments_follow_the_length_of_sequences() -> None:
    def examples(*lengths: int) -> list[Example]:
        return [Example(np.zeros(n)) for n in lengths]

    assert segment_length(examples(1_000_000), None) == 256
    assert segment_length(examples(1_000_000), 64) == 128
    assert segment_length(examples(30, 50), None) == 10
    assert segment_length(examples(3, 5), 64) == 8


# -- around a fitted network, and what is refused ----------------------------------------------------------------------


def test_a_fitted_network_is_wrapped_and_tuned() -> None:
    train = sequences(6, 20)
    network = sm.GRU(**SMALL, length="given").fit(train, validation=None)
    model = sm.Dynamic.from_fitted(network, segment=4, lr=0.05, decay=0.1)
    with pytest.raises(sm.NotFittedError, match="call tune"):
        model.score(train)
    with pytest.raises(sm.NotFittedError, match="call tune"):
        model.stream()
    fitted = sm.Dynamic(sm.GRU(**SMALL), segment=4, lr=0.05, decay=0.1, length="given").fit(train, validation=None)
    assert_allclose(model.tune(train).log_prob(train), fitted.log_prob(train), rtol=1e-5)
    assert model.model_ is network


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sm.Dynamic(sm.NGram(2)), "NGram is none; pass an LSTM"),
        (lambda: sm.Dynamic(sm.LSTMSeq2Seq()), "reads sources by an encoder"),
        (lambda: sm.Dynamic(sm.LSTM(), segment=0), "segment is 0; pass at least 1 step"),
        (lambda: sm.Dynamic(sm.LSTM(), lr=-1.0), "lr is -1.0; pass 0 or more"),
        (lambda: sm.Dynamic(sm.LSTM(), decay=1.5), "decay is 1.5; pass a part from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().fit(["to be or not to be"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rms": np.zeros(3, np.float32)}, "rms should be"),
        ({"segment": 0}, "segment is 0 in the file"),
        ({"lr": -1.0}, "lr is -1.0 in the file"),
        ({"decay": 2.0}, "decay is 2.0 in the file"),
    ],
)
def test_a_file_with_other_numbers_is_refused(wrong: dict[str, Any], message: str) -> None:
    model = dynamic(sm.ElmanRNN(**SMALL))
    with pytest.raises(ValueError, match=message):
        model._restore({**model._state(), **wrong})

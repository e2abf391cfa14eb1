"""The bidirectional Transformer: what it learns from both sides, its pseudo-log-likelihood, states, guesses, errors."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.neural.masked import inference
from seqmodels.neural.masked.network import BEGIN, END, MASK
from seqmodels.neural.masked.training import MaskedBatch, MaskedObjective, Masking

RNG = np.random.default_rng(0)
SYMBOLS = [RNG.integers(0, 4, size=n) for n in (12, 1, 7, 15, 2, 8)]
TEXTS = ["né", "to be", "a", "nota bene", "€ 5", "an ant"]
V = 4


def small(**options):
    return sm.MaskedTransformer(
        **({"d_model": 8, "n_layers": 2, "n_heads": 2, "max_steps": 3, "dtype": "float64"} | options)
    )


@cache
def rough(max_length=32, texts=False):
    """Fitted briefly, with noise in every weight: near its gentle start much would look alike. Not to be changed."""
    model = small(max_length=max_length).fit(TEXTS if texts else SYMBOLS, validation=None)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.module_.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


@torch.no_grad()
def one_by_one(model, x, window=None):
    """``log p(x_t | x_\\t)``, a forward pass without padding at a time."""
    n, module, row = model.encoding_.size, model._evaluation_module(), []
    for t in range(len(x)):
        steps = torch.tensor([n + BEGIN, *x[:t], n + MASK, *x[t + 1 :], n + END])
        at = t + 1
        if window is not None and len(steps) > window:
            begin = min(max(at - window // 2, 0), len(steps) - window)
            steps, at = steps[begin : begin + window], at - begin
        hidden, _ = module.encoder(module.positions(module.embedding(steps[None])))
        row.append(float(module.head(hidden)[0, at].log_softmax(-1)[x[t]]))
    return np.array(row)


def bits(n, rng):
    """Symbols of two bits, the second of which is the first of the next: between its neighbours each is certain."""
    b = rng.integers(0, 2, size=n + 1)
    return 2 * b[:-1] + b[1:]


# -- pseudo-log-likelihood ---------------------------------------------------------------------------------


def test_pseudo_log_prob_is_the_sum_over_positions():
    found = rough().pseudo_log_prob(SYMBOLS)
    assert found.dtype == np.float64
    assert_allclose(found, [one_by_one(rough(), x).sum() for x in SYMBOLS], rtol=1e-10)
    assert rough().pseudo_score(SYMBOLS) == pytest.approx(found.sum() / sum(map(len, SYMBOLS)), rel=1e-12)


def test_each_conditional_is_a_distribution_and_does_not_see_its_symbol():
    module, x = rough()._evaluation_module(), SYMBOLS[2]
    every = [np.array([*x[:3], v, *x[4:]]) for v in range(V)]
    steps = inference.conditional_log_probs(module, every, [np.array([3])] * V, 32)
    assert np.exp(np.concatenate(steps)).sum() == pytest.approx(1, rel=1e-12)


def test_long_sequences_are_seen_through_windows_around_each_symbol():
    model = rough(max_length=6)
    expected = [one_by_one(model, x, window=6) for x in SYMBOLS]
    assert_allclose(model.pseudo_log_prob(SYMBOLS), [steps.sum() for steps in expected], rtol=1e-10)
    x = SYMBOLS[3]
    far, near = x.copy(), x.copy()
    far[-1], near[4] = (far[-1] + 1) % V, (near[4] + 1) % V
    steps = inference.conditional_log_probs(model._evaluation_module(), [x, far, near], [np.array([3])] * 3, 6)
    assert steps[0] == pytest.approx(steps[1], rel=1e-12)
    assert abs(steps[0] - steps[2]) > 1e-6


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_order_batches_and_padding_change_nothing(dtype, monkeypatch):
    model = small(max_length=10, dtype=dtype)
    model.encoding_, model.module_ = rough().encoding_, rough().module_
    alone = np.concatenate([model.pseudo_log_prob([x]) for x in SYMBOLS])
    alone_states = [model.encode([x])[0] for x in SYMBOLS]
    for at_once in (1, 40, 16_384):
        monkeypatch.setattr(inference, "MAX_BATCH_STEPS", at_once)
        assert_allclose(model.pseudo_log_prob(SYMBOLS[::-1])[::-1], alone, rtol=1e-6)
        for found, expected in zip(model.encode(SYMBOLS[::-1])[::-1], alone_states, strict=True):
            assert_allclose(found, expected, atol=1e-12 if dtype == "float64" else 1e-5)


def test_an_estimate_from_some_positions_is_unbiased():
    exact = rough().pseudo_log_prob(SYMBOLS)
    drawn = np.array([rough().pseudo_log_prob(SYMBOLS, n_samples=2, random_state=s) for s in range(200)])
    error = drawn.std(0, ddof=1) / math.sqrt(len(drawn))
    long = np.array([len(x) > 2 for x in SYMBOLS])
    assert (np.abs(drawn.mean(0) - exact)[long] < 3 * error[long]).all()
    assert (drawn.std(0)[long] > 0.1).all()
    # No more than two symbols: exact.
    assert_allclose(drawn[:, ~long], np.tile(exact[~long], (200, 1)), rtol=1e-12, atol=1e-12)
    assert_allclose(rough().pseudo_log_prob(SYMBOLS, n_samples=15), exact, rtol=1e-12, atol=1e-12)


def test_an_estimate_does_not_depend_on_the_order():
    found = rough().pseudo_log_prob(SYMBOLS, n_samples=3)
    assert_allclose(rough().pseudo_log_prob(SYMBOLS[::-1], n_samples=3)[::-1], found, rtol=1e-12, atol=1e-12)
    assert (rough().pseudo_log_prob(SYMBOLS, n_samples=3, random_state=1) != found).any()


def test_sequences_of_one_length_are_masked_in_different_places():
    draws = {tuple(inference.sampled_positions(np.full(20, v), 5, 0)) for v in range(6)}
    assert len(draws) == 6
    assert all(len(set(draw)) == 5 for draw in draws)


def test_text_is_scored_per_byte():
    model = rough(texts=True)
    n_bytes = sum(len(text.encode()) for text in TEXTS)
    assert model.pseudo_score(TEXTS) == pytest.approx(model.pseudo_log_prob(TEXTS).sum() / n_bytes, rel=1e-12)
    assert_allclose(model.pseudo_log_prob(TEXTS[:1]), one_by_one(model, list("né".encode())).sum(), rtol=1e-10)
    pieces = small(encoding=sm.Characters()).fit(TEXTS, validation=None)
    assert pieces.pseudo_score(["né"]) == pytest.approx(pieces.pseudo_log_prob(["né"])[0] / 3, rel=1e-12)


# -- learning ----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_only_masked_positions_are_scored():
    model, rng = rough(), np.random.default_rng(0)
    module = model._evaluation_module()
    rows = model._rows(sm.as_sequences(SYMBOLS))
    batch = MaskedBatch.from_windows(rows, Masking(fraction=0.3), module, rng)
    expected, n = 0.0, 0
    for i, row in enumerate(rows):
        inputs, masked = batch.inputs[i, : len(row)], batch.masked[i, : len(row)]
        log_p = module.logits(module.hidden(inputs[None], torch.ones(1, len(row), dtype=torch.bool)))[0].log_softmax(-1)
        expected += sum(float(log_p[t, row[t]]) for t in torch.nonzero(masked).flatten())
        n += int(masked.sum())
        assert not batch.masked[i, len(row) :].any()
    step = MaskedObjective(module)(batch)
    assert float(step.log_prob) == pytest.approx(expected, rel=1e-10)
    assert step.n_units == step.weight == n == sum(max(1, round(0.3 * len(x))) for x in SYMBOLS)


@cache
def taught(objective="tokens", fraction=0.15):
    rng = np.random.default_rng(5)
    model = small(d_model=32, n_layers=1, max_steps=250, lr=1e-2, dropout=0.0)
    return model.set_params(objective=objective, mask_fraction=fraction).fit([bits(6, rng) for _ in range(500)])


def unseen(n):
    rng = np.random.default_rng(6)
    return [bits(6, rng) for _ in range(n)]


@pytest.mark.slow
def test_it_sees_the_future():
    steps = np.array(
        inference.conditional_log_probs(taught()._evaluation_module(), unseen(50), [np.arange(6)] * 50, 32)
    )
    assert steps[:, 1:-1].mean() > -0.05  # from the left alone it could not be above -log 2
    assert_allclose(steps[:, [0, -1]].mean(0), -math.log(2), atol=0.1)  # at each end one bit is unknown
    validation = taught().history_["validation"]
    assert validation.iloc[-1] > validation.iloc[0] + 1


def test_pseudo_log_likelihood_is_no_likelihood():
    every = [2 * np.array(b[:-1]) + np.array(b[1:]) for b in product((0, 1), repeat=7)]
    total = np.exp(taught().pseudo_log_prob(every)).sum()  # of the 128 sequences that can occur
    assert total == pytest.approx(128 / 4, rel=0.3)  # two unknown bits each: a quarter, where a likelihood has 1 / 128


@pytest.mark.slow
def test_spans_are_learned_too():
    inner = inference.conditional_log_probs(
        taught("spans", 0.3)._evaluation_module(), unseen(50), [np.arange(1, 5)] * 50, 32
    )
    assert np.mean(inner) > -0.2


def test_it_fills_in():
    for x in unseen(20):
        filled = taught().fill([*x[:2], 0, *x[3:]], mask=[2])
        assert_array_equal(filled.item, x)
        assert_array_equal(filled.symbols, x[2:3])


def test_masked_places_are_not_looked_at_and_filled_independently():
    model, x = rough(), SYMBOLS[0]
    filled = model.fill(x, mask=[1, 9, 4])
    steps = torch.tensor([[V + BEGIN, *x, V + END]])
    steps[0, [2, 10, 5]] = V + MASK
    with torch.no_grad():
        network = model._evaluation_module()
        expected = network.head(network.encoder(network.embedded(steps))[0])[0, [2, 10, 5]].softmax(-1)
    assert_allclose(filled.probabilities, expected, rtol=1e-10)
    assert_array_equal(filled.item[[1, 9, 4]], filled.probabilities.argmax(1))
    others = [t for t in range(len(x)) if t not in (1, 9, 4)]
    assert_array_equal(filled.item[others], x[others])
    changed = x.copy()
    changed[[1, 9, 4]] = (x[[1, 9, 4]] + 1) % V
    assert_allclose(model.fill(changed, mask=[1, 9, 4]).probabilities, filled.probabilities, rtol=1e-12, atol=1e-12)


def test_text_is_filled_by_the_byte():
    filled = rough(texts=True).fill("to b?", mask=[4])
    assert filled.item == "to b" + bytes(filled.symbols.tolist()).decode(errors="replace")
    assert filled.probabilities.shape == (1, 256)


def test_one_masked_symbol_is_filled_by_its_conditional():
    x = SYMBOLS[0]
    filled = rough().fill(x, mask=[4])
    assert math.log(filled.probabilities[0, x[4]]) == pytest.approx(one_by_one(rough(), x)[4], rel=1e-10)
    with pytest.raises(ValueError, match="positions from 0 to 11"):
        rough().fill(x, mask=[12])
    with pytest.raises(ValueError, match="positions from 0 to 11"):
        rough().fill(x, mask=[True] * 12)


def test_runs_repeat_and_leave_the_global_generator_alone():
    state = torch.random.get_rng_state()
    first, second = (small().fit(SYMBOLS).pseudo_log_prob(SYMBOLS) for _ in range(2))
    assert_allclose(first, second, rtol=1e-4, atol=1e-4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (small(random_state=1).fit(SYMBOLS).pseudo_log_prob(SYMBOLS) != first).all()


def test_long_text_is_cut_in_training():
    model = small(max_length=8).fit(["to be or not to be " * 20])
    assert model.history_["validation"].notna().all()
    assert len(model.encode(["or not to be, that is"])[0]) == 21


# -- states ------------------------------------------------------------------------------------------------


def test_hidden_states_of_every_layer():
    model, x = rough(), SYMBOLS[0]
    module = model._evaluation_module()
    steps = torch.tensor([[V + BEGIN, *x, V + END]])
    first = module.positions(module.embedding(steps))
    last, _ = module.encoder(first)
    assert_allclose(model.encode([x], layer=0)[0], first[0, 1:-1].detach(), rtol=1e-12)
    assert_allclose(model.encode([x])[0], last[0, 1:-1].detach(), rtol=1e-12)
    assert_allclose(model.encode([x], layer=2)[0], model.encode([x])[0], rtol=1e-12, atol=1e-12)
    assert_allclose(model.encode([x], layer=1)[0], model.encode([x], layer=-2)[0], rtol=1e-12, atol=1e-12)
    # The second block and the final norm lie between the first layer and the last.
    second = list(module.encoder)[1]
    found = []
    handle = second.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
    model.encode([x])
    handle.remove()
    assert_allclose(model.encode([x], layer=1)[0], found[0][0, 1:-1].detach(), rtol=1e-12)
    with pytest.raises(ValueError, match="layer is 3 but the model has 2"):
        model.encode([x], layer=3)


def test_states_of_long_sequences_are_those_of_the_window_they_are_most_central_in():
    model, x, size = rough(max_length=6), SYMBOLS[3], 6
    module, row = model._evaluation_module(), torch.tensor([V + BEGIN, *x, V + END])
    begins = range(0, len(row) - size // 2, size // 2)
    with torch.no_grad():
        windows = {b: module.encoder(module.embedded(row[None, b : b + size]))[0][0] for b in begins}
    for t, found in enumerate(model.encode([x])[0], start=1):
        containing = [b for b in begins if b <= t < b + size]
        edge = {b: min(t - b if b else size, b + size - 1 - t if b + size < len(row) else size) for b in containing}
        best = [windows[b][t - b] for b in containing if edge[b] == max(edge.values())]
        assert any(np.allclose(found, state, rtol=1e-10) for state in best), t


def test_pooled_states_are_means_over_real_positions():
    model = rough(max_length=6)
    pooled = model.encode(SYMBOLS, pooled=True)
    assert pooled.shape == (len(SYMBOLS), 8)
    assert_allclose(pooled, [s.mean(0) for s in model.encode(SYMBOLS)], rtol=1e-10)


# -- its place among the models ----------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [False, True])
def test_saved_and_loaded(texts, tmp_path):
    X, model = (TEXTS if texts else SYMBOLS), rough(texts=texts)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert isinstance(loaded, sm.MaskedTransformer)
    assert repr(loaded) == repr(model)
    assert_allclose(loaded.pseudo_log_prob(X), model.pseudo_log_prob(X), rtol=1e-5)
    assert loaded.n_parameters_ == model.n_parameters_
    pd.testing.assert_frame_equal(loaded.history_, model.history_, check_dtype=False)


def test_it_is_no_sequence_model_and_compare_refuses_it():
    model = rough()
    assert not isinstance(model, sm.SequenceModel)
    assert not {"log_prob", "score", "log_prob_steps", "measure_"} & set(dir(model))
    untouched = sm.HMM(2, max_iter=2)
    for test in (None, SYMBOLS):
        with pytest.raises(sm.IncomparableError, match=r"'bert' is a MaskedTransformer.* no likelihood"):
            sm.compare({"hmm": untouched, "bert": model}, SYMBOLS, test=test)
    with pytest.raises(sm.NotFittedError):
        untouched.score(SYMBOLS)


def test_it_has_scikit_learns_habits():
    model = small(encoding=sm.Symbols(6))
    assert model.get_params()["encoding__n_symbols"] == 6
    assert model.clone().get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert repr(sm.MaskedTransformer(d_model=8)) == "MaskedTransformer(d_model=8)"
    assert model.fit(SYMBOLS, validation=SYMBOLS[:2]) is model
    assert model.module_.n_symbols == 6
    with pytest.raises(sm.NotFittedError, match="MaskedTransformer is not fitted"):
        small().encode(SYMBOLS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_heads": 3}, "n_heads=3 does not divide d_model=8"),
        ({"max_length": 2}, "max_length is 2; pass at least 3"),
        ({"max_steps": None}, "never end"),
        ({"max_seconds": -1.0}, "max_seconds is -1"),
        ({"n_layers": 0}, "n_layers is 0"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"dtype": "half"}, "dtype is 'half'"),
        ({"objective": "words"}, "objective is 'words'"),
        ({"keep_share": 0.3}, "sum to 1"),
    ],
)
def test_hyperparameters_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).fit(SYMBOLS)


def test_data_that_cannot_be_leave_the_fit_as_it_was():
    model = small().fit(SYMBOLS, validation=None)
    before = model.pseudo_log_prob(SYMBOLS)
    with pytest.raises(ValueError, match="X is vectors; pass texts or integer sequences"):
        model.fit([np.zeros((3, 2))])
    with pytest.raises(ValueError, match="fitted on symbols but got text"):
        model.pseudo_log_prob(["to be"])
    with pytest.raises(ValueError, match="sequence 0 has symbol 9"):
        model.encode([np.array([1, 9])])
    with pytest.raises(ValueError, match="n_samples is 0"):
        model.pseudo_log_prob(SYMBOLS, n_samples=0)
    assert_allclose(model.pseudo_log_prob(SYMBOLS), before, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint_to_the_same_weights(tmp_path):
    class Killed(Exception):
        pass

    def kill(row):
        if row["step"] >= 9:
            raise Killed

    def make(**options):
        return sm.MaskedTransformer(d_model=8, n_layers=1, dropout=0.2, max_steps=14, batch_size=2).set_params(
            **options
        )

    texts, path = ["to be or not", "that is the question", "whether"], str(tmp_path / "run")
    straight = make().fit(texts)
    with pytest.raises(Killed):
        make(training__checkpoint=path, training__checkpoint_seconds=0, training__callbacks=[kill]).fit(texts)
    resumed = make(training__resume_from=path).fit(texts)
    np.testing.assert_allclose(resumed.pseudo_log_prob(texts), straight.pseudo_log_prob(texts), rtol=1e-4)
    pd.testing.assert_frame_equal(
        resumed.history_.drop(columns="seconds"), straight.history_.drop(columns="seconds"), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ValueError, match="other training data"):
        make(training__resume_from=path).fit([*texts[1:], "to be or not!"])


def test_self_attention_is_of_both_sides_and_by_windows() -> None:
    x = [np.random.default_rng(n).integers(0, 5, n) for n in (4, 20)]
    model = sm.MaskedTransformer(d_model=8, n_heads=2, n_layers=2, max_length=8, max_steps=2, dtype="float64").fit(x)
    mean, heads = model.attention(x), [model.attention(x, head=h) for h in range(2)]
    for i, symbols in enumerate(x):
        assert mean[i].shape == (len(symbols) + 2, len(symbols) + 2)
        np.testing.assert_allclose(mean[i].sum(1), 1, rtol=0, atol=1e-12)
        np.testing.assert_allclose((heads[0][i] + heads[1][i]) / 2, mean[i], rtol=0, atol=1e-12)
    assert mean[0].all()  # of later steps as well
    assert not mean[1][11, :8].any()  # the middle of 22 steps is seen in the window from 8 to 15
    assert mean[1][11, 8:16].all()
    assert not np.allclose(mean[0], model.attention(x, layer=0)[0])
    network = model._evaluation_module()
    row = np.concatenate([[5 + BEGIN], x[0], [5 + END]])
    block, inputs = list(network.encoder)[1], network.layer_states(torch.as_tensor(row)[None], torch.ones(1, 6) > 0, 1)
    value = block.attention._heads(block.attention_residual.sublayer_input(inputs), None)[2]
    context = torch.stack([torch.as_tensor(h[0]) for h in heads]) @ value[0]
    whole = block.attention.output(context.transpose(0, 1).flatten(1))
    states = block.attention_residual.add(inputs, whole[None])
    states = block.feedforward_residual.add(
        states, block.feedforward(block.feedforward_residual.sublayer_input(states))
    )
    found = network.encoder.final_norm(states)[0].detach().numpy()
    np.testing.assert_allclose(found[1:-1], model.encode(x[:1])[0], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="head is 2, but there are 2"):
        model.attention(x, head=2)

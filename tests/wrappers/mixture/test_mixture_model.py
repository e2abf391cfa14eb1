"""Mixtures: what their members are fitted to, what their weights learn, and that states are values."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp

import seqmodels as sm
from seqmodels.encodings.binary_code import BinaryCode
from seqmodels.encodings.raw_data import Data
from seqmodels.generation import event_log_probs
from seqmodels.wrappers.mixture.held_out import hold_out_steps
from seqmodels.wrappers.mixture.kernels import row_of_lead, row_of_odds
from seqmodels.wrappers.mixture.model import WeightsName
from seqmodels.wrappers.mixture.symbol_gate import Layout, SymbolGate
from tests.families import make_data

WEIGHTS: tuple[WeightsName, ...] = ("static", "posterior", "switching", "gated")
OF_SYMBOLS: tuple[WeightsName, ...] = (*WEIGHTS, "contextual")
SYMBOLS = make_data("symbols", (30, 25, 1, 40, 12, 9), (), 0, 1)
VECTORS = make_data("vectors", (30, 25, 20, 40, 12, 9), (), 0, 2)
TEXT = "she sells sea shells by the sea shore, and the shells that she sells are sea shells. " * 6


def ngrams(*orders: int, **options: Any) -> list[sm.SequenceModel]:
    return [sm.NGram(order, dtype="float64", **options) for order in orders]


def fitted_ngrams(X: Any, *orders: int, **options: Any) -> list[sm.SequenceModel]:
    return [model.fit(X) for model in ngrams(*orders, **options)]


@pytest.mark.parametrize("kind", ["symbols", "vectors"])
def test_a_posterior_mixture_is_one_of_whole_sequences(kind: str) -> None:
    if kind == "symbols":
        X, members = SYMBOLS, fitted_ngrams(SYMBOLS[:3], 1, 3)
    else:
        X = VECTORS
        members = [sm.HMM(k, max_iter=3, dtype="float64").fit(VECTORS) for k in (1, 3)]
    mixture = sm.Mixture.from_fitted(members, weights="posterior", prior=[0.3, 0.7])
    expected = logsumexp([np.log(w) + m.log_prob(X) for w, m in zip([0.3, 0.7], members, strict=True)], axis=0)
    assert_allclose(mixture.log_prob(X), expected, rtol=1e-11)
    assert mixture.memory_ == mixture.measure_.memory == "adaptive"


def test_a_static_mixture_has_the_probabilities_of_its_members() -> None:
    members = fitted_ngrams(SYMBOLS, 1, 3)
    mixture = sm.Mixture.from_fitted(members, prior=[0.25, 0.75])
    steps = zip(*(m.log_prob_steps(SYMBOLS) for m in members), strict=True)
    for found, (a, b) in zip(mixture.log_prob_steps(SYMBOLS), steps, strict=True):
        assert_allclose(np.exp(found), 0.25 * np.exp(a) + 0.75 * np.exp(b), rtol=1e-12)
    assert (mixture.memory_, mixture.context_) == ("static", 2)


def test_members_are_not_fitted_to_the_steps_that_weights_are_learned_on() -> None:
    mixture = sm.Mixture(ngrams(2, 3), held_out=0.5, random_state=1).fit(SYMBOLS)
    examples = mixture._setting().examples(Data.of(SYMBOLS))
    rest, held_out = hold_out_steps(examples, 0.5, mixture.encoding_, 1)
    assert len(rest) + len(held_out) == len(SYMBOLS)
    alone = fitted_ngrams([e.values for e in rest], 2, 3, encoding=sm.Symbols(3))
    for member, model in zip(mixture.members_, alone, strict=True):
        assert_allclose(member.log_prob(SYMBOLS), model.log_prob(SYMBOLS), rtol=1e-12)
    again = sm.Mixture(ngrams(2, 3), held_out=0.5, random_state=1, refit=[True, False]).fit(SYMBOLS)
    whole = sm.NGram(2, dtype="float64").fit(SYMBOLS)
    assert_allclose(again.members_[0].log_prob(SYMBOLS), whole.log_prob(SYMBOLS), rtol=1e-12)
    assert_allclose(again.members_[1].log_prob(SYMBOLS), alone[1].log_prob(SYMBOLS), rtol=1e-12)
    assert_array_equal(again.weights_.prior, mixture.weights_.prior)


def test_of_one_text_the_head_is_held_out() -> None:
    mixture = sm.Mixture(ngrams(2), held_out=0.25).fit([TEXT])
    at = round(0.25 * len(TEXT))
    assert_allclose(mixture.members_[0].log_prob(["sea"]), sm.NGram(2).fit([TEXT[at:]]).log_prob(["sea"]))
    examples = mixture._setting().examples(Data.of([TEXT]))
    (rest,), (head,) = hold_out_steps(examples, 0.25, mixture.encoding_, 0)
    assert (head.n_units, rest.n_units) == (at, len(TEXT) - at)


def test_one_short_sequence_leaves_nothing_to_learn_weights_from() -> None:
    with pytest.warns(UserWarning, match="all members get the same weight"):
        mixture = sm.Mixture(ngrams(1, 2)).fit(SYMBOLS[-1:])
    assert_allclose(mixture.weights_.prior, 0.5)


@pytest.mark.parametrize("weights", OF_SYMBOLS)
def test_a_state_stays_what_it_was(weights: WeightsName) -> None:
    mixture = sm.Mixture(ngrams(1, 3), weights=weights, held_out=0.4).fit(SYMBOLS)
    cursor = mixture.cursor()
    state = cursor.advance(cursor.start(n=2), torch.tensor([0, 1]))
    before = cursor.distribution(state).log_probs()
    one = cursor.advance(cursor.advance(state, torch.tensor([1, 1])), torch.tensor([2, 0]))
    expected = cursor.distribution(one).log_probs()
    other = cursor.advance(state, torch.tensor([2, 0]))
    assert_array_equal(cursor.distribution(state).log_probs(), before)
    assert_array_equal(cursor.distribution(one).log_probs(), expected)
    assert (cursor.distribution(other).log_probs() != before).any()
    swapped = cursor.distribution(cursor.select(one, torch.tensor([1, 0, 0]))).log_probs()
    assert_array_equal(swapped, expected[[1, 0, 0]])


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kind", ["symbols", "vectors"])
def test_scoring_changes_nothing(weights: WeightsName, kind: str) -> None:
    X: list[Any] = SYMBOLS if kind == "symbols" else VECTORS
    models = ngrams(1, 3) if kind == "symbols" else [sm.HMM(k, max_iter=2, dtype="float64") for k in (1, 2)]
    mixture = sm.Mixture(models, weights=weights, held_out=0.4, dtype="float64").fit(X)
    before = mixture.log_prob(X)
    assert_allclose(mixture.log_prob(X[::-1])[::-1], before, rtol=1e-12, atol=1e-12)
    assert_allclose(np.concatenate([mixture.log_prob([x]) for x in X]), before, rtol=1e-12)


def test_a_gate_of_bits_is_logistic_regression_on_log_odds() -> None:
    X = [np.array([0, 1] * 6 + [1, 1, 0]), np.array([1, 1])]
    members = fitted_ngrams(X, 1, 2, length="given")
    mixture = sm.Mixture.from_fitted(members, X, weights="gated")
    gate = mixture.weights_
    assert isinstance(gate, SymbolGate)
    weights, past, recent, leads = gate.weights.copy(), [2, 2], np.zeros(2), set()
    for t, found in enumerate(mixture.log_prob_steps(X[:1])[0]):
        p = np.array([m.predict_next(X[0][:t]).probs.numpy() for m in members])
        odds = np.log(p[:, 1]) - np.log(p[:, 0])
        first, pair = gate.layout.code.n_nodes * (1 + past[-1]), gate.layout.code.n_nodes * 4 + past[-1] * 3 + past[-2]
        bins = np.clip(np.floor((odds + 9) / 2), 0, 8).astype(int)  # of two nats each
        binned = gate.layout.code.n_nodes * 4 + 9 + bins[0] * 9 + bins[1]
        level = min(int(abs(recent[1] - recent[0]) * 8 + 0.5), 4)
        number = level + 4 * (recent[1] > recent[0]) if level else 0
        lead = gate.layout.code.n_nodes * 4 + 9 + 81 + 2 * number + 1
        rows = [1, first + 1, pair, binned, lead]
        leads.add(number)
        p_one = expit(weights[rows].sum(0) @ odds)
        assert_allclose(np.exp(found), p_one if X[0][t] else 1 - p_one, rtol=1e-10)
        for row in rows:
            weights[row] += gate.rate * (X[0][t] - p_one) * odds
        recent = 0.8 * recent + 0.2 * np.log(p[:, X[0][t]])
        past.append(int(X[0][t]))
    assert len(leads) > 2


def test_a_gate_learns_which_member_knows_a_context() -> None:
    """After 0 the symbol before it comes again, and after others each is as probable: a bigram does not see that."""
    rng, sequences = np.random.default_rng(0), []
    for _ in range(40):
        x = [1, 2]
        while len(x) < 120:
            x.append(x[-2] if x[-1] == 0 else int(rng.integers(3)))
        sequences.append(np.array(x))
    scores = {
        weights: sm.Mixture(ngrams(1, 6), weights=weights, held_out=0.5).fit(sequences[:30]).score(sequences[30:])
        for weights in WEIGHTS
    }
    assert scores["gated"] > max(scores[w] for w in ("static", "posterior", "switching")) + 0.02


def test_weights_of_contexts_stay_as_they_were_fitted() -> None:
    """The same past in the same symbols has the same prediction, however much was read before it."""
    members = fitted_ngrams(SYMBOLS[:3], 1, 2)
    mixture = sm.Mixture.from_fitted(members, SYMBOLS[3:], weights="contextual")
    gate = mixture.weights_
    assert isinstance(gate, SymbolGate)
    assert (mixture.memory_, mixture.context_, gate.rate) == ("static", 2, 0.0)
    assert (gate.weights[gate.layout.code.n_nodes :] != 0).any()
    long = np.concatenate([SYMBOLS[3], SYMBOLS[0][-2:]])
    found, expected = mixture.predict_next(long), mixture.predict_next(np.append(SYMBOLS[5], SYMBOLS[0][-2:]))
    assert_allclose(found.probs, expected.probs, rtol=1e-12)
    learning = sm.Mixture.from_fitted(members, SYMBOLS[3:], weights="gated")
    assert (learning.predict_next(long).probs - learning.predict_next(SYMBOLS[0][-2:]).probs).abs().max() > 1e-6


def test_contexts_do_not_weigh_densities() -> None:
    models: list[sm.SequenceModel] = [sm.HMM(k, max_iter=2) for k in (1, 2)]
    with pytest.raises(ValueError, match="mix the bits of symbols"):
        sm.Mixture(models, weights="contextual").fit(VECTORS)
    with pytest.raises(ValueError, match="mix the bits of symbols"):
        sm.Mixture.from_fitted([m.fit(VECTORS) for m in models], VECTORS, weights="contextual")


@pytest.mark.parametrize("n_models", [1, 2, 3, 4, 5, 8])
def test_rows_of_log_odds_and_leads_are_the_kernels(n_models: int) -> None:
    """As those that the compiled loop takes, each within its set."""
    layout = Layout(BinaryCode(5, True), n_models)
    rng = np.random.default_rng(n_models)
    odds, recent = rng.normal(0, 6, (200, n_models)), rng.normal(-1, 0.3, (200, n_models))
    recent[:50] = 0.0  # no model was better
    binned, lead = layout.binned(odds), layout.lead(recent)
    assert layout.bins_at <= binned.min() <= binned.max() < layout.leads_at
    assert layout.leads_at <= lead.min()
    assert lead.max() + layout.code.n_bits < layout.n_rows
    assert_array_equal(binned, [row_of_odds(layout.odds_bins, each) for each in odds])
    assert_array_equal(lead, [row_of_lead(layout.leads, each, layout.code.n_bits + 1) for each in recent])
    assert_array_equal(lead[:50], layout.leads_at)


def test_large_alphabets_share_rows() -> None:
    layout = Layout(BinaryCode(5_000, True), 2)
    contexts = layout.contexts(np.array([4_999, 5_000]), np.array([5_000, 0]))
    rows = np.where(contexts >= 0, contexts + layout.code.n_nodes - 1, -1 - contexts)
    assert rows.max() < layout.n_rows < 1_000_000


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: sm.NGram(3, **o),
        lambda **o: sm.LSTM(d_model=8, max_steps=2, **o),
        lambda **o: sm.Transformer(d_model=8, n_layers=2, n_heads=2, context=4, max_steps=2, **o),
        lambda **o: sm.Dynamic(sm.LSTM(d_model=8, max_steps=2), segment=5, lr=0.05, decay=0.1, **o),
        lambda **o: sm.Dynamic(
            sm.Transformer(d_model=8, n_layers=1, n_heads=2, context=4, max_steps=2), segment=3, lr=0.05, **o
        ),
    ],
)
def test_all_events_at_all_steps_agree_with_the_cursor(make: Any, length: str) -> None:
    model = make(length=length, dtype="float64").fit(SYMBOLS, validation=None)
    examples = model._setting().examples(Data.of([SYMBOLS[i] for i in (1, 2, 5)]))
    for example, found in zip(examples, model._event_log_probs(examples), strict=True):
        expected = event_log_probs(model.cursor(), example.values)
        assert_array_equal(np.isneginf(found), np.isneginf(expected))
        assert_allclose(np.exp(found), np.exp(expected), rtol=1e-9)


@pytest.mark.parametrize("weights", ["static", "gated"])
def test_a_mixture_is_a_member_of_another(weights: WeightsName) -> None:
    inner = sm.Mixture(ngrams(1, 2), weights=weights, held_out=0.3)
    mixture = sm.Mixture([inner, sm.HMM(2, max_iter=2)], weights=weights, held_out=0.3, dtype="float64")
    mixture.fit(SYMBOLS)
    assert mixture.memory_ == ("static" if weights == "static" else "adaptive")
    stream = mixture.stream()
    streamed = [stream.update(x) for x in SYMBOLS[0]] + [stream.log_end()]
    assert_allclose(streamed, mixture.log_prob_steps(SYMBOLS[:1])[0], rtol=1e-10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("weights", ["static", "gated"])
def test_members_that_read_byte_pairs_make_a_bound(weights: WeightsName) -> None:
    mixture = sm.Mixture(ngrams(1, 2), weights=weights, encoding=sm.BPE(270)).fit([TEXT, TEXT[5:]])
    assert mixture.measure_.kind == "bound"
    assert mixture.log_prob_marginal([TEXT[:20]]) >= mixture.log_prob([TEXT[:20]])


def test_seeds_differ_in_their_random_state_alone() -> None:
    mixture = sm.Mixture.of_seeds(sm.GRU(d_model=4, max_steps=2, random_state=5), 3, weights="posterior")
    assert [model.random_state for model in mixture.models] == [5, 6, 7]
    mixture.fit(SYMBOLS)
    scores = [member.score(SYMBOLS) for member in mixture.members_]
    assert len(set(scores)) == 3
    assert min(scores) < mixture.score(SYMBOLS)


def test_paths_of_vectors_come_from_all_members() -> None:
    near, far = [[np.random.default_rng(k).normal(9 * k, 0.1, (50, 1))] for k in range(2)]
    encoding = sm.HMM(1).learned_encoding(near + far)
    near, far = [sm.HMM(1, observation=sm.GaussianMixture(1)).fit_encoded(encoding, each) for each in (near, far)]
    mixture = sm.Mixture.from_fitted([near, far], prior=[0.25, 0.75])
    drawn = np.concatenate(mixture.sample(400, length=1)).ravel()
    assert abs((drawn > 5).mean() - 0.75) < 0.07
    frame = mixture.forecast([np.zeros((2, 1))], 2).frame
    assert frame["mean"].between(5.5, 8).all()
    posterior = sm.Mixture.from_fitted([near, far], weights="posterior", prior=[0.25, 0.75])
    assert abs(np.concatenate(posterior.sample(50, length=4, prefix=np.zeros((1, 1))))).max() < 2  # it stays with one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": []}, "pass a list of models"),
        ({"weights": "mean"}, "weights is 'mean'"),
        ({"held_out": 1.0}, "pass a fraction between 0 and 1"),
        ({"refit": [True]}, "1 answers for 2 models"),
        ({"warm_start": True}, "leave it False"),
        ({"observation": sm.Categorical()}, "leave observation='auto'"),
        ({"models": [sm.LSTMSeq2Seq()]}, "reads sources by an encoder"),
        ({"models": [sm.NGram(0)]}, "order is 0"),
        ({"models": [sm.NGram(2, encoding=sm.Symbols(3)), sm.NGram(2)]}, "read by different encodings"),
        ({"models": [sm.NGram(2, length="given"), sm.NGram(2)]}, "length='given' and others"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.Mixture(**({"models": ngrams(1, 2)} | options)).fit(SYMBOLS)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_models_of_vectors_do_not_read_symbols(weights: WeightsName) -> None:
    members: list[sm.SequenceModel] = [sm.HMM(2, observation=sm.GaussianMixture(2)), sm.HMM(2)]
    for X, kind in ((SYMBOLS, "symbols"), ([TEXT[:50], TEXT[50:90]], "text")):
        message = (
            rf"models\[0\], HMM, has the observation GaussianMixture.* emits vectors, but the sequences are {kind}"
        )
        with pytest.raises(ValueError, match=message):
            sm.Mixture(members, weights=weights).fit(X)
    members = [sm.HMM(2), sm.GRU(observation=sm.Categorical())]
    with pytest.raises(ValueError, match=r"models\[1\], GRU, .* emits symbols, but the sequences are vectors; pass"):
        sm.Mixture(members, weights=weights).fit(VECTORS)


def test_fitted_models_that_do_not_belong_together_are_refused() -> None:
    a, b = fitted_ngrams(SYMBOLS, 1, 2)
    given = sm.NGram(2, length="given").fit(SYMBOLS)
    with pytest.raises(sm.IncomparableError, match="length is"):
        sm.Mixture.from_fitted([a, given])
    with pytest.raises(ValueError, match="reads by another encoding"):
        sm.Mixture.from_fitted([sm.HMM(1).fit(VECTORS), sm.HMM(1).fit(VECTORS[:2])])
    with pytest.raises(ValueError, match="2 weights that sum to one"):
        sm.Mixture.from_fitted([a, b], prior=[0.5, 0.6])
    with pytest.raises(ValueError, match="pass sequences X"):
        sm.Mixture.from_fitted([a, b], weights="gated")
    with pytest.raises(ValueError, match="pass one of the two"):
        sm.Mixture.from_fitted([a, b], SYMBOLS, prior=[0.5, 0.5])
    with pytest.raises(sm.NotFittedError):
        sm.Mixture.from_fitted([a, sm.NGram(2)])


def test_a_saved_gate_with_weights_that_are_no_numbers_is_refused(tmp_path: Any) -> None:
    mixture = sm.Mixture(ngrams(1, 2), weights="gated", held_out=0.3).fit(SYMBOLS)
    gate = mixture.weights_
    assert isinstance(gate, SymbolGate)
    gate.weights[0, 0] = np.nan
    mixture.save(tmp_path / "model")
    with pytest.raises(ValueError, match="'table' has nan"):
        sm.load(tmp_path / "model")


def test_members_compute_in_the_precision_of_the_mixture() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixture = sm.Mixture([sm.GRU(d_model=4, max_steps=2), sm.HMM(2, max_iter=2)], held_out=0.3).fit(VECTORS)
    far = [1e9 * VECTORS[0]]
    assert np.isfinite(mixture.log_prob(far)).all()  # beyond float32: again in float64
    single = mixture.log_prob(VECTORS)
    assert_allclose(mixture.set_params(dtype="float64").log_prob(VECTORS), single, rtol=1e-4)
    assert (mixture.log_prob(VECTORS) != single).any()


def driven(n: int = 12, seed: int = 0) -> sm.Sequences:
    """Vectors around an input ``heat``, beside ``wind``, which says nothing of them."""
    rng = np.random.default_rng(seed)
    inputs = list(rng.normal(size=(n, 20, 2)))
    items = [3.0 * u[:, :1] + rng.normal(size=(20, 1)) for u in inputs]
    return sm.Sequences(items, inputs=inputs, input_names=["heat", "wind"])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("weights", ["static", "switching", "gated"])
def test_members_read_their_own_inputs(weights: WeightsName, tmp_path: Any) -> None:
    X, test = driven(), driven(4, seed=1)
    few: dict[str, Any] = {"max_iter": 3, "n_init": 1, "observation": sm.GaussianMixture(1)}
    few["encoding"] = sm.Standardize()  # else changes are tried beside levels
    regression = sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=["heat"]), **few)
    members = [
        sm.HMM(2, **few),
        regression,
        sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=["wind"]), **few),
    ]
    model = sm.Mixture([*members], weights=weights, held_out=0.3).fit(X)
    assert model.input_names_ == model.measure_.inputs == ("heat", "wind")
    assert [member.input_names_ for member in model.members_] == [(), ("heat",), ("wind",)]
    assert model.score(test) == pytest.approx(regression.fit(X).score(test), abs=0.1)
    (steps,), stream = model.log_prob_steps(test.take([0])), model.stream()
    assert test.inputs is not None
    streamed = [stream.update(x, inputs=u) for x, u in zip(test[0], test.inputs[0], strict=True)]
    np.testing.assert_allclose(streamed, steps, atol=1e-4)
    hot, cold = ([{"heat": [h] * 2, "wind": [0.0] * 2}] * 4 for h in (2.0, -2.0))
    means = [model.forecast(test, 2, n=200, inputs=u).frame["mean"].mean() for u in (hot, cold)]
    assert means[0] - means[1] == pytest.approx(12.0, abs=3.0)
    assert len(model.sample(2, inputs={"heat": np.zeros(5), "wind": np.zeros(5)})[0]) == 5
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_allclose(
        sm.load(tmp_path / "m.safetensors").log_prob(test), model.log_prob(test), rtol=1e-5, atol=1e-5
    )
    if weights != "static":
        return
    again = sm.Mixture.from_fitted([m.clone().fit(X) for m in members], prior=[0.0, 1.0, 0.0])
    assert again.input_names_ == ("heat", "wind")
    assert again.score(test) == pytest.approx(regression.score(test), abs=1e-6)
    with pytest.raises(ValueError, match="the models standardise the input 'heat' differently"):
        sm.Mixture.from_fitted([regression, regression.clone().fit_encoded(regression.encoding_, X[:6])])
    with pytest.raises(ValueError, match="the model reads the inputs heat, wind, but the sequences have no inputs"):
        model.score([np.zeros((3, 1))])


def test_inputs_say_how_long_a_sequence_is_for_all_members() -> None:
    rng = np.random.default_rng(0)
    X = sm.Sequences([rng.integers(0, 3, 8) for _ in range(8)], inputs=list(rng.normal(size=(8, 8))))
    read = sm.HMM(2, input_effects=sm.hmm.ChainInputEffects(transitions=True), max_iter=2)
    model = sm.Mixture([sm.NGram(2), read], weights="contextual").fit(X)
    assert model.length_ == "given"
    assert [member.length_ for member in model.members_] == ["given", "given"]
    with pytest.raises(sm.IncomparableError, match="some models have length='given' and others length='stop'"):
        sm.Mixture([sm.NGram(2, length="stop"), read]).fit(X)


def test_the_head_of_one_sequence_is_held_out_with_its_inputs() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(300, 1))
    X = sm.Sequences([3.0 * u + 0.1 * rng.normal(size=(300, 1))], inputs=[u], input_names=["heat"])
    regression = sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=True), max_iter=3, n_init=1)
    model = sm.Mixture([regression], held_out=0.3).fit(X)
    expected = regression.clone().fit(X).score(X)
    assert model.score(X) == pytest.approx(expected, abs=0.05)
    assert model.history_["validation"].iloc[-1] == pytest.approx(expected, abs=0.2)

"""What the users' networks add to the contract: warm starts, budgets, attention weights, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import seqmodels as sm
from seqmodels.encodings.examples import Example
from seqmodels.neural.model import VALIDATION_STEPS, _limit
from seqmodels.neural.training_options import sequences_per_batch

RNG = np.random.default_rng(0)
SYMBOLS = [RNG.integers(0, 4, size=n) for n in (12, 9, 15, 11, 8, 14)]
VECTORS = [RNG.normal(size=(n, 2)).cumsum(0) for n in (12, 9, 15, 11, 8, 14)]

BFLOAT16 = {"training__precision": "bfloat16"}


def small(cls=sm.LSTM, **options):
    return cls(d_model=8, n_layers=1, max_steps=4).set_params(**options)


def test_warm_start_continues_and_a_cold_one_begins_again():
    once = small().fit(SYMBOLS, validation=None)
    first = once.score(SYMBOLS)
    frozen = once.set_params(warm_start=True, lr=1e-12).fit(SYMBOLS, validation=None).score(SYMBOLS)
    assert frozen == pytest.approx(first, abs=1e-6)
    cold = once.set_params(warm_start=False).fit(SYMBOLS, validation=None).score(SYMBOLS)
    assert abs(cold - first) > 1e-3


@pytest.mark.parametrize("change", [{"d_model": 4}, {"length": "given"}, {"n_layers": 2}])
def test_warm_start_refuses_another_network(change):
    model = small(warm_start=True).fit(SYMBOLS, validation=None)
    before = model.log_prob(SYMBOLS)
    with pytest.raises(ValueError, match="warm_start cannot continue"):
        model.set_params(**change).fit(SYMBOLS, validation=None)
    np.testing.assert_allclose(model.log_prob(SYMBOLS), before, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps is 0"),
        ({"max_seconds": -1.0}, "max_seconds is -1"),
        ({"max_steps": None}, "never end"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"bptt": 0}, "at least 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"training__precision": "float16"}, "precision"),
    ],
)
def test_budgets_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).fit(SYMBOLS)


def test_heads_that_do_not_divide():
    with pytest.raises(ValueError, match="n_heads=3 does not divide d_model=8"):
        small(sm.Transformer, n_heads=3).fit(SYMBOLS)
    assert small(sm.Transformer, d_model=96).n_query_heads == 3
    assert small(sm.Transformer, d_model=7).n_query_heads == 1
    assert small(sm.Transformer, d_model=66).n_query_heads == 1  # two heads of 33 have no pairs to turn
    assert small(sm.Transformer, d_model=66, positions=None).n_query_heads == 2


ALIGNED = {
    "additive": {"attention": "additive"},
    "heads": {"attention": "multiplicative", "n_heads": 2},
    "location": {"attention": "location", "architecture__coverage": True},
    "current": {"attention": "general", "query": "current"},
}


@pytest.mark.parametrize("name", ALIGNED)
def test_alignments_are_distributions_over_the_source(name):
    x, y = [v[:5] for v in VECTORS], [v[5:] for v in VECTORS]
    weights = small(sm.LSTMSeq2Seq, **ALIGNED[name]).fit(x, y).align(x, y)
    for w, source, target in zip(weights, x, y, strict=True):
        assert w.shape == (len(target), len(source))
        assert w.sum(1) == pytest.approx(1, abs=1e-6)
        assert (w > 0).all()


def test_alignments_of_a_transformer_are_of_a_layer_and_a_head():
    x, y = [s[:5] for s in SYMBOLS], [s[5:] for s in SYMBOLS]
    model = small(sm.TransformerSeq2Seq, n_layers=2, n_heads=2, length="stop").fit(x, y)
    mean, last, first = (model.align(x, y, **o) for o in ({}, {"layer": 1}, {"layer": 0}))
    heads = [model.align(x, y, head=h) for h in range(2)]
    for i, (source, target) in enumerate(zip(x, y, strict=True)):
        assert mean[i].shape == (len(target), len(source))
        assert mean[i].sum(1) == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose((heads[0][i] + heads[1][i]) / 2, mean[i], rtol=0, atol=1e-6)
        np.testing.assert_allclose(last[i], mean[i], rtol=0, atol=1e-6)
    assert not any(np.allclose(a, b) for a, b in ((mean[0], first[0]), (heads[0][0], heads[1][0])))


def test_alignments_that_cannot_be():
    x, y = [s[:3] for s in SYMBOLS], [s[3:] for s in SYMBOLS]
    with pytest.raises(ValueError, match="attention is None"):
        small(sm.LSTMSeq2Seq, attention=None).fit(x, y).align(x, y)
    model = small(sm.TransformerSeq2Seq, n_heads=2).fit(x, y)
    with pytest.raises(ValueError, match="layer is 1, but there are 1"):
        model.align(x, y, layer=1)
    with pytest.raises(ValueError, match="head is 2, but there are 2"):
        model.align(x, y, head=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "local"}, "attention is 'local'; pass"),
        ({"n_heads": 2}, "n_heads is 2, but attention='additive' has one"),
        ({"attention": None, "architecture__coverage": True}, "coverage=True adds up attention weights"),
        ({"query": "next"}, "query is 'next'"),
    ],
)
def test_attention_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        small(sm.LSTMSeq2Seq, **options).fit(SYMBOLS)


@pytest.mark.parametrize(("attention", "n_weights"), [("additive", 8), ("multiplicative", 1), ("general", 1)])
def test_coverage_has_weights_of_its_own_where_it_is_asked_for(attention, n_weights):
    """Of additive attention one for each hidden unit; of the products one a head."""
    X, y = [np.array([0, 1, 2])], [np.array([2, 1, 0])]
    sizes = [
        sm.LSTMSeq2Seq(
            d_model=8,
            max_steps=1,
            attention=attention,
            architecture=sm.neural.LSTMSeq2SeqArchitecture(coverage=coverage),
        )
        .fit(X, y)
        .n_parameters_
        for coverage in (False, True)
    ]
    assert sizes[1] - sizes[0] == n_weights


def test_the_batch_holds_about_as_many_steps_whatever_the_length():
    model = small(batch_size="auto").fit(SYMBOLS)
    sizes = [sequences_per_batch(model, [n + 1] * 3, model.bptt) for n in (4, 31, 5000)]
    assert sizes == [64, 32, 16]


def test_history_ends_with_the_figures_of_the_best_weights():
    model = small(max_steps=40, lr=0.05, training__patience=2).fit(SYMBOLS, validation=SYMBOLS[:2])
    assert set(model.history_) >= {"step", "seconds", "log_prob", "validation", "objective", "floor_hits"}
    assert model.score(SYMBOLS[:2]) == pytest.approx(model.history_["validation"].max(), abs=1e-6)


def test_held_out_steps_are_cut_side_by_side():
    long = Example(np.arange(2000), log_det=-20.0, n_units=2000)
    parts = _limit([long, long], 1100)
    assert [len(p.values) for p in parts] == [VALIDATION_STEPS] * 3
    assert sum(p.log_det for p in parts) == pytest.approx(-20.0 * 3 * VALIDATION_STEPS / 2000)
    assert parts[1].values[0] == VALIDATION_STEPS


def test_seconds_alone_end_a_fit_and_steps_repeat_it():
    timed = small(max_steps="auto", max_seconds=0.3).fit(SYMBOLS)
    assert timed.history_["seconds"].iloc[-1] < 5
    assert timed.history_["step"].iloc[-1] > 4
    assert small().fit(SYMBOLS).score(SYMBOLS) == pytest.approx(small().fit(SYMBOLS).score(SYMBOLS), rel=1e-5)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: small(sm.LSTM, bptt=3, batch_size=2, **o),
        lambda **o: small(
            sm.GRU,
            dropout=0.3,
            bptt=4,
            training=sm.training.GradientTraining(optimizer=sm.training.Muon(), averaging=0.5),
            **o,
        ),
        lambda **o: small(
            sm.Transformer, n_heads=2, context=5, batch_size=2, training=sm.training.GradientTraining(accumulate=2), **o
        ),
        lambda **o: small(sm.LSTMSeq2Seq, batch_size=2, bptt=4, **o),
        lambda **o: small(
            sm.LSTMSeq2Seq, **{"batch_size": 2, "bptt": 4, "architecture__coverage": True} | BFLOAT16 | o
        ),
        lambda **o: small(sm.LSTMSeq2Seq, **{"batch_size": 2, "bptt": 4, "query": "current"} | BFLOAT16 | o),
        lambda **o: small(sm.TransformerSeq2Seq, n_heads=2, batch_size=2, max_length=6, positions="rotary", **o),
        lambda **o: small(sm.LSTMTagger, batch_size=2, dropout=0.2, **o),
        lambda **o: small(sm.TransformerTagger, n_heads=2, batch_size=2, **o),
    ],
    ids=[
        "lstm",
        "gru",
        "transformer",
        "seq2seq",
        "seq2seq-coverage",
        "seq2seq-current",
        "transformer-seq2seq",
        "lstm-tagger",
        "transformer-tagger",
    ],
)
@pytest.mark.products_repeat
def test_training_goes_on_to_the_same_weights(make, tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(row):
        if row["step"] >= 9:
            raise Interrupted

    paired = type(make()).__name__.endswith(("Seq2Seq", "Tagger"))
    ask = (SYMBOLS, [x[::-1] for x in SYMBOLS]) if paired else (SYMBOLS,)
    straight = make(max_steps=14).fit(*ask, validation=None)
    with pytest.raises(Interrupted):
        make(
            max_steps=14,
            training__checkpoint=str(tmp_path / "run"),
            training__checkpoint_seconds=0,
            training__callbacks=[interrupt],
        ).fit(*ask, validation=None)
    resumed = make(max_steps=14, training__resume_from=str(tmp_path / "run")).fit(*ask, validation=None)
    assert resumed.history_["step"].iloc[-1] == 14
    np.testing.assert_allclose(resumed.log_prob(*ask), straight.log_prob(*ask), rtol=1e-4)
    shorter = make(max_steps=8).fit(*ask, validation=None)
    assert np.abs(shorter.log_prob(*ask) / straight.log_prob(*ask) - 1).max() > 4e-4


def test_a_model_with_a_function_for_a_callback_is_saved_without_it(tmp_path):
    heard = []
    model = small(training__callbacks=[heard.append]).fit(SYMBOLS, validation=None)
    assert heard[-1]["step"] == 4
    model.save(tmp_path / "model.safetensors")
    assert sm.load(tmp_path / "model.safetensors").training.callbacks == ()


def test_optimisers_and_schedules_are_saved_and_searched(tmp_path):
    model = small(
        training__optimizer=sm.training.AdamW(betas=(0.8, 0.9)), training__schedule=sm.training.Cosine(final=0.2)
    ).fit(SYMBOLS, validation=None)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert repr(loaded.training.optimizer) == repr(model.training.optimizer)
    assert loaded.get_params()["training__schedule__final"] == 0.2
    assert model.clone().set_params(training__schedule__final=0.3).training.schedule.final == 0.3


def test_a_step_that_a_network_did_not_foresee_costs_no_more_than_the_background_says() -> None:
    rng = np.random.default_rng(0)
    x = np.sin(np.arange(60) / 5)[:, None] + 0.05 * rng.normal(size=(60, 1))
    jump = x.copy()
    jump[40] += 30.0
    network: dict[str, Any] = {"d_model": 8, "max_steps": 60, "encoding": sm.Standardize(), "dtype": "float64"}
    robust = sm.GRU(**network).fit([x])
    assert robust.observation_.get_params() == sm.GaussianMixture(4, "full", background=0.005).get_params()
    shift, scale = (float(each[0]) for each in robust.encoding_.affine())
    broad = scipy.stats.norm.logpdf(jump[:, 0], shift, np.sqrt(10) * scale) + np.log(0.005)
    steps = robust.log_prob_steps([jump])[0]
    assert (steps > broad - 1e-9).all()
    plain = sm.GRU(**network, observation=sm.GaussianMixture(4, "full")).fit([x])
    assert plain.log_prob_steps([jump])[0][40] < broad[40] - 100
    stream = robust.stream()
    np.testing.assert_allclose([stream.update(frame) for frame in jump], steps, rtol=1e-9)

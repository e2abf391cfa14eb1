"""The standard comparison: the tasks it sets, and that a whole run writes what it says."""

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.runs.suites import (
    QUICK,
    SPEECH_DENSITY,
    TEXT_DENSITY,
    Choice,
    DataSize,
    Task,
    expected_seconds,
    pair_tasks,
    speech_tasks,
    table_tasks,
    text_tasks,
)

TEXT = sm.Sequences(["It was the best of times, it was the worst of times. " * 200])


def test_text_tasks_hold_out_the_tail_and_pair_context_with_rest():
    density, continuation = text_tasks(TEXT)
    assert density.train[0][0] + density.test[0][0] == TEXT[0]
    x, y = continuation.train
    assert len(x[0]) == 64
    assert len(y[0]) == 128
    assert x[0] + y[0] == TEXT[0][:192]
    assert continuation.test[0].clusters is not None
    assert {"seq2seq-additive", "seq2seq-multiplicative", "transformer", "elman", "hmm", "iid"} <= set(
        continuation.models
    )


def test_quick_is_density_with_fewer_models():
    (only,) = text_tasks(TEXT, Choice(quick=True))
    assert only.name == "text-density"
    assert set(only.models) == set(QUICK) - {"var"}


def test_models_are_those_that_were_asked_for_and_what_is_left_out_is_said():
    density, continuation = text_tasks(TEXT, Choice(("iid", "hmm")))
    assert [*density.models] == [*continuation.models] == ["iid", "hmm"]
    assert density.baseline == "hmm"
    density, _ = text_tasks(TEXT, Choice(("lstm", "iid")))
    assert [*density.models] == ["lstm", "iid"]
    assert density.baseline == "lstm"
    vectors = sm.Sequences(list(np.random.default_rng(0).normal(size=(10, 9, 2))))
    said = (
        r"left out of 'Table: log p\(x\)': ngram, which is a model of text and symbols; seq2seq-fixed, which is a model"
    )
    with pytest.warns(UserWarning, match=said):
        (table,) = table_tasks(vectors, Choice(("ngram", "seq2seq-fixed", "var")))
    assert [*table.models] == ["var"]
    assert table.baseline == "var"
    with pytest.raises(ValueError, match="no model 'gpt'"):
        text_tasks(TEXT, Choice(("gpt",)))


def n_parameters(hmm: sm.HMM, size: int) -> int:
    """Of a chain without an end, and of diagonal Gaussians or symbols."""
    k, m = hmm.n_states, getattr(hmm.observation, "n_components", None)
    return k * k - 1 + k * (size - 1 if m is None else m * (2 * size + 1) - 1)


@pytest.mark.parametrize(
    ("n", "n_features", "states", "gaussians"),
    [(30, 2, 2, 1), (300, 2, 10, 1), (967, 13, 24, 3), (30_000, 13, 24, 4)],
)
def test_an_hmm_of_vectors_has_four_values_for_every_parameter(n, n_features, states, gaussians):
    hmm = SPEECH_DENSITY["hmm"][0](DataSize(n, n_features), 0)
    assert (hmm.n_states, hmm.observation.n_components) == (states, gaussians)
    assert 4 * n_parameters(hmm, n_features) <= n * n_features
    larger = hmm.clone().set_params(n_states=states + 1)
    assert states == 24 or 4 * n_parameters(larger, n_features) > n * n_features


def test_an_hmm_of_symbols_has_four_for_every_parameter_and_networks_are_as_wide_as_their_steps_allow():
    few, many = DataSize(1_000, 20), DataSize(45_000, 90)
    assert [TEXT_DENSITY["hmm"][0](n, 0).n_states for n in (DataSize(3, 3), few, many)] == [2, 8, 64]
    assert 4 * n_parameters(sm.HMM(8), 20) <= 1_000 < 4 * n_parameters(sm.HMM(9), 20)
    assert [TEXT_DENSITY["lstm"][0](n, 0).d_model for n in (DataSize(3, 3), few, many)] == [32, 96, "auto"]
    assert [SPEECH_DENSITY["transformer"][0](n, 0).d_model for n in (DataSize(30, 2), few, many)] == [32, 96, 96]
    assert [DataSize(n, 1, 2).n_states_given_inputs() for n in (5, 1_152, 10_000)] == [2, 10, 12]
    assert SPEECH_DENSITY["iid"][0](DataSize(40, 40), 0).observation.covariance_type == "diag"


def test_the_hmm_of_a_short_table_is_no_worse_than_one_gaussian():
    rng = np.random.default_rng(0)
    train, test = (sm.Sequences([rng.normal([70, 120], [5, 9], (n, 2))]) for n in (50, 500))
    build, _ = SPEECH_DENSITY["hmm"]
    assert DataSize.of(train) == DataSize(50, 2)
    entropy = np.log(5 * 9 * 2 * np.pi * np.e)
    assert build(DataSize.of(train), 0).fit(train).score(test) == pytest.approx(-entropy, abs=0.2)


def test_speech_tasks_hold_out_speakers_where_there_are_many():
    many = sm.data.speech(40, 20, features="mfcc", syllables=(2, 3)).sequences
    density, continuation = speech_tasks(many)
    train, test = density.train[0], density.test[0]
    assert not set(train.metadata["speaker"]) & set(test.metadata["speaker"])
    assert test.clusters is not None
    assert {len(x) for x in continuation.train[0]} == {20}
    few = many.take(many.metadata["speaker"].isin(["s00", "s01"]) | (many.metadata.index < 8))
    assert speech_tasks(few)[0].test[0].clusters is None


def test_tables_go_by_their_kind_and_pairs_stay_together():
    numbers = np.random.default_rng(0)
    (vectors,) = table_tasks(sm.Sequences([numbers.normal(size=(9, 2)) for _ in range(10)]))
    assert {"var", "hmm", "lstm"} <= set(vectors.models)
    (symbols,) = table_tasks(sm.Sequences([numbers.integers(0, 3, 9) for _ in range(10)]))
    assert {"ngram", "hmm", "lstm"} <= set(symbols.models)
    X, y = sm.Sequences([f"x{i}" for i in range(20)]), sm.Sequences([f"y{i}" for i in range(20)])
    (task,) = pair_tasks(X, y, Choice(("ngram",)))
    assert len(task.test[0]) == 2
    for sources, targets in (task.train, task.test):
        assert [x[1:] for x in sources] == [t[1:] for t in targets]
    with pytest.raises(ValueError, match="at least two are needed"):
        pair_tasks(X[:1], y[:1])


def test_what_is_expected_follows_the_budget():
    lstm = sm.LSTM(max_steps=100)
    assert expected_seconds(lstm, 10.0, seconds=None, steps=None) == 10.0
    assert expected_seconds(lstm, 10.0, seconds=None, steps=50) == 5.0
    assert expected_seconds(lstm, 10.0, seconds=2.0, steps=None) == 2.0
    assert expected_seconds(lstm, 10.0, seconds=2.0, steps=50) == 2.0
    assert expected_seconds(sm.NGram(), 1.0, seconds=60.0, steps=None) == 1.0
    x = sm.Sequences(["ab"])
    task = Task("t", "T", (x, None), (x, None), {"lstm": lstm, "ngram": sm.NGram()}, 11.0, "ngram", {"lstm": 10.0})
    held = task.under_budget(seconds=4.0, steps=None)
    assert held.seconds == 4.0
    assert held.models["lstm"].max_seconds == 4.0


def test_models_of_a_table_with_inputs_are_fitted_without_and_with_them():
    rng = np.random.default_rng(0)
    given = {"inputs": list(rng.normal(size=(10, 8))), "input_names": ["heat"]}
    vectors = sm.Sequences(list(rng.normal(size=(10, 8, 1))), **given)
    (task,) = table_tasks(vectors)
    assert task.title == "Table: log p(x), and given heat"
    read = [name for name, model in task.models.items() if model._reads_inputs]
    assert read == [f"{name}-inputs" for name in ("var", "hmm", "elman", "lstm", "gru", "transformer")]
    assert {model.length for model in task.models.values()} == {"given"}
    (quick,) = table_tasks(vectors, Choice(quick=True))
    both = [f"{name}{given}" for name in ("var", "hmm", "lstm", "transformer") for given in ("", "-inputs")]
    assert [*quick.models] == ["iid", *both]
    given = {"inputs": list(rng.normal(size=(30, 8))), "input_names": ["heat"]}
    (few,) = table_tasks(
        sm.Sequences([rng.integers(0, 2, 8) for _ in range(30)], **given), Choice(("hmm", "hmm-inputs"))
    )
    assert [*few.models] == ["hmm", "hmm-inputs"]
    models = {name: model.set_params(max_iter=2, n_states=2) for name, model in few.models.items()}
    result = sm.compare(models, few.train[0], test=few.test[0], baseline="hmm")
    assert (result.frame["error"] == "").all()
    (plain,) = table_tasks(sm.Sequences(list(rng.normal(size=(10, 8, 1)))))
    assert not any(name.endswith("-inputs") for name in plain.models)
    assert plain.models["hmm"].length == "auto"

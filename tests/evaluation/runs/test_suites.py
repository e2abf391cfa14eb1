"""The standard comparison: the tasks it sets, and that a whole run writes what it says."""

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.runs.suites import (
    QUICK,
    Choice,
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


def test_models_are_chosen_by_name_and_the_baseline_stays():
    density, _ = text_tasks(TEXT, Choice(("iid",)))
    assert list(density.models) == ["iid", "hmm"]
    with pytest.raises(ValueError, match="no model 'gpt'"):
        text_tasks(TEXT, Choice(("gpt",)))


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
    (few,) = table_tasks(sm.Sequences([rng.integers(0, 2, 8) for _ in range(30)], **given), Choice(("hmm-inputs",)))
    assert [*few.models] == ["hmm", "hmm-inputs"]
    models = {name: model.set_params(max_iter=2, n_states=2) for name, model in few.models.items()}
    result = sm.compare(models, few.train[0], test=few.test[0], baseline="hmm")
    assert (result.frame["error"] == "").all()
    (plain,) = table_tasks(sm.Sequences(list(rng.normal(size=(10, 8, 1)))))
    assert not any(name.endswith("-inputs") for name in plain.models)
    assert plain.models["hmm"].length == "auto"

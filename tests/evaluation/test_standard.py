"""The standard comparison: the tasks it sets, and that a whole run writes what it says."""

import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.evaluation.run import announce, run
from seqmodels.evaluation.standard import QUICK, Task, pair_tasks, speech_tasks, table_tasks, text_tasks

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
    (only,) = text_tasks(TEXT, quick=True)
    assert only.name == "text-density"
    assert set(only.models) == set(QUICK) - {"var"}


def test_models_are_chosen_by_name_and_the_baseline_stays():
    density, _ = text_tasks(TEXT, names=["iid"])
    assert list(density.models) == ["iid", "hmm"]
    with pytest.raises(ValueError, match="no model 'gpt'"):
        text_tasks(TEXT, names=["gpt"])


def test_speech_tasks_hold_out_speakers_where_there_are_many():
    many = sm.data.speech(40, 20, features="mfcc", syllables=(2, 3)).sequences
    density, continuation = speech_tasks(many)
    train, test = density.train[0], density.test[0]
    assert not set(train.metadata["speaker"]) & set(test.metadata["speaker"])
    assert test.clusters is not None
    assert {len(x) for x in continuation.train[0]} == {20}
    few = many.take(many.metadata["speaker"].isin(["s00", "s01"]) | (many.metadata.index < 8))
    assert speech_tasks(few)[0].test[0].clusters is None


def test_run_writes_tables_pictures_and_the_config(tmp_path):
    tasks = text_tasks(TEXT, names=["iid", "hmm"], quick=True)
    tasks[0].models["hmm"].set_params(n_states=4, max_iter=3)
    said: list[str] = []
    (result,) = run(tasks, tmp_path, say=said.append)
    assert {p.name for p in tmp_path.iterdir()} == {
        "text-density",
        "text-density.csv",
        "text-density.html",
        "text-density.png",
        "text-density-learning.png",
        "text-density.json",
    }
    config = json.loads((tmp_path / "text-density.json").read_text())
    assert config["sha256"]["test x"] == sm.data.sha256(tasks[0].test[0])
    assert config["models"]["hmm"]["params"]["n_states"] == 4
    assert config["random_state"] == 0
    assert pd.read_csv(tmp_path / "text-density.csv")["score"].tolist() == pytest.approx(result.frame["score"].tolist())
    assert said[0] == announce(tasks)
    assert "min on two cores" in said[0]


def test_tables_go_by_their_kind_and_pairs_stay_together():
    numbers = np.random.default_rng(0)
    (vectors,) = table_tasks(sm.Sequences([numbers.normal(size=(9, 2)) for _ in range(10)]))
    assert {"var", "hmm", "lstm"} <= set(vectors.models)
    (symbols,) = table_tasks(sm.Sequences([numbers.integers(0, 3, 9) for _ in range(10)]))
    assert {"ngram", "hmm", "lstm"} <= set(symbols.models)
    X, y = sm.Sequences([f"x{i}" for i in range(20)]), sm.Sequences([f"y{i}" for i in range(20)])
    (task,) = pair_tasks(X, y, names=["ngram"])
    assert len(task.test[0]) == 2
    for sources, targets in (task.train, task.test):
        assert [x[1:] for x in sources] == [t[1:] for t in targets]
    with pytest.raises(ValueError, match="at least two are needed"):
        pair_tasks(X[:1], y[:1])


def test_interrupted_the_models_that_were_fitted_are_compared(tmp_path):
    def interrupt(row: dict[str, float]) -> None:
        raise KeyboardInterrupt

    models = {
        "first": sm.NGram(2),
        "second": sm.LSTM(d_model=8, max_steps=2, callbacks=[interrupt]),
        "third": sm.NGram(3),
    }
    train, test = TEXT.split(0.1)
    task = Task("mine", "Mine", (train, None), (test, None), models, 3.0, "second")
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run([task], tmp_path, say=said.append)
    assert pd.read_csv(tmp_path / "mine.csv")["model"].tolist() == ["first"]
    assert "interrupted: 1 of 3 models" in "".join(said)
    assert (tmp_path / "mine.html").exists()

"""The standard comparison: the tasks it sets, and that a whole run writes what it says."""

import json

import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.evaluation.run import announce, run
from seqmodels.evaluation.standard import QUICK, speech_tasks, text_tasks

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

"""fit, score and inspect: one model on the command line, its family and its hyperparameters."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy.io import wavfile

import seqmodels as sm
from seqmodels.cli.fit import FAMILIES, complete_family, model_of, parse_setting
from seqmodels.data import MFCC, text


@pytest.fixture
def model(call, book, tmp_path):
    file = tmp_path / "hmm.safetensors"
    done = call("fit", "hmm", book, "--set", "n_states=3", "--steps", 4, "--out", file, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["class"] == "HMM"
    assert said["n_parameters"] > 0
    assert said["data"]["units"] == len(book.read_text())
    assert said["last"]["step"] == 4
    return file


def test_fit_is_the_librarys(model, book):
    by_hand = sm.HMM(3, max_iter=4).fit(text(book))
    loaded = sm.load(model)
    assert loaded.score(text(book)) == pytest.approx(by_hand.score(text(book)), rel=1e-6)
    assert loaded.verbose == by_hand.verbose


def test_settings_are_typed_and_nested(call, book, tmp_path):
    out = tmp_path / "m.safetensors"
    given = ["--set", "max_iter=2", "--set", "n_states=2", "--set", "observation={class='Categorical'}"]
    done = call("fit", "hmm", book, *given, "--set", "observation__pseudocount=0.5", "--out", out)
    assert done.exit_code == 0, done.output
    assert sm.load(out).observation.pseudocount == 0.5
    given = ["--set", "max_iter=1", "--set", "n_states=2", "--set", "observation__pseudocount=0.25"]
    assert call("fit", "hmm", book, *given, "--out", out).exit_code == 0  # of the default
    assert sm.load(out).observation_.pseudocount == 0.25
    for setting, said in (
        ("n_states=many", "n_states of HMM is 'many'; pass an integer"),
        ("states=3", "HMM has no parameter 'states'"),
        ("algorithm=magic", 'pass "em", "stepwise", "gradient" or "variational"'),
        ("n_states", "is not key=value"),
        ("observation__order=1", "observation is 'auto', which has no order to set"),
    ):
        refused = call("fit", "hmm", book, "--set", setting, "--out", out)
        assert refused.exit_code == 2
        assert said in refused.stderr
    assert "there is no model 'gpt'" in call("fit", "gpt", book).stderr
    assert "there is no folder" in call("fit", "hmm", book, "--out", tmp_path / "none" / "m").stderr


def test_score_is_the_librarys_and_writes_steps(call, model, book, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("It was the age of wisdom.")
    steps = tmp_path / "steps.csv"
    done = call("score", model, book, other, "--steps", steps, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    loaded = sm.load(model)
    nats = [loaded.score(text(file)) for file in (book, other)]
    assert [entry["nats"] for entry in said["files"].values()] == pytest.approx(nats)
    assert said["files"][str(other)]["bits"] == pytest.approx(-nats[1] / math.log(2))
    assert said["files"][str(other)]["perplexity"] == pytest.approx(math.exp(-nats[1]))
    assert said["total"]["units"] == 25 + len(book.read_text())
    table = pd.read_csv(steps)
    mine = table[table["file"] == str(other)]
    assert mine["position"].tolist() == list(range(1, 27))  # 25 bytes and the end
    assert mine["log_prob"].to_numpy() == pytest.approx(loaded.log_prob_steps(text(other))[0])
    shown = call("score", model, other).stdout
    assert "bits per byte" in shown
    assert f"{nats[1]:.4f}" in shown


def test_pairs_are_fitted_scored_and_sampled(call, tmp_path):
    (tmp_path / "en").write_text("one\ntwo\nthree\n" * 4)
    (tmp_path / "fr").write_text("un\ndeux\ntrois\n" * 4)
    out = tmp_path / "pairs.safetensors"
    done = call("fit", "ngram", tmp_path / "en", "--target", tmp_path / "fr", "--set", "order=3", "--out", out)
    assert done.exit_code == 0, done.output
    scored = call("score", out, tmp_path / "en", "--target", tmp_path / "fr", "--json")
    X, y = sm.data.pairs(tmp_path / "en", tmp_path / "fr")
    assert json.loads(scored.stdout)["total"]["nats"] == pytest.approx(sm.load(out).score(X, y))
    assert "pass --target" in call("score", out, tmp_path / "en").stderr
    drawn = call("sample", out, "--source", "two", "--json", "--seed", 3)
    assert json.loads(drawn.stdout)["samples"] == sm.load(out).sample(source="two", random_state=3)


def test_recordings_are_read_as_they_were(call, recordings, tmp_path):
    out = tmp_path / "speech.safetensors"
    done = call("fit", "hmm", recordings, "--set", "n_states=2", "--steps", 2, "--out", out, "-q")
    assert done.exit_code == 0, done.output
    one = recordings / "u0.wav"
    said = json.loads(call("score", out, one, "--json").stdout)
    assert said["total"]["nats"] == pytest.approx(sm.load(out).score(sm.data.audio(one, mfcc=MFCC())))
    assert "perplexity" not in said["total"]
    wavfile.write(tmp_path / "fast.wav", 16000, wavfile.read(one)[1])
    refused = call("score", out, tmp_path / "fast.wav")
    assert refused.exit_code == 2
    assert "16000 Hz but the model was fitted on 8000" in refused.stderr
    shown = call("inspect", out, "--json")
    assert json.loads(shown.stdout)["sample_rate"] == 8000


def test_inspect_says_what_it_is(call, model):
    said = json.loads(call("inspect", model, "--json").stdout)
    assert said["class"] == "HMM"
    assert said["hyperparameters"]["n_states"] == 3
    assert said["measure"]["unit"] == "byte"
    assert [state["state"] for state in said["states"]] == [0, 1, 2]
    assert sum(state["share"] for state in said["states"]) == pytest.approx(1)
    shown = call("inspect", model).stdout
    assert "n_states = 3" in shown
    assert "p(x) of text, nats per byte, exact; ends are scored" in shown
    assert "step 4" in shown


def test_what_is_no_model_is_said(call, book, tmp_path):
    assert "is not a saved model" in call("inspect", book).stderr
    assert "there is no file" in call("score", tmp_path / "none", book).stderr
    masked = sm.MaskedTransformer(d_model=8, n_layers=1, max_steps=1).fit([np.array([0, 1, 1, 0] * 5)])
    masked.save(tmp_path / "masked.safetensors")
    refused = call("score", tmp_path / "masked.safetensors", book)
    assert refused.exit_code == 2
    assert "has no likelihood" in refused.stderr


def test_every_name_is_a_model():
    for name in FAMILIES:
        assert isinstance(model_of(name, [], 7), sm.SequenceModel)
        assert model_of(name, [], 7).random_state == 7
    known = {"hmm", "ngram", "context-tree", "elman", "lstm", "gru", "transformer", "seq2seq", "transformer-seq2seq"}
    assert known | {"alignment-hmm", "context-mixing"} <= set(FAMILIES)
    assert isinstance(model_of("LSTMTagger", [], 0), sm.LSTMTagger)


def test_the_shell_completes_them():
    assert complete_family("t") == ["transformer", "transformer-seq2seq", "transformer-tagger"]
    assert complete_family("") == list(FAMILIES)


def test_values_are_toml_and_words_need_no_quotes():
    assert parse_setting("norm_type=rms") == ("norm_type", "rms")
    assert parse_setting("lr = 1e-3") == ("lr", 0.001)
    assert parse_setting("tied=[0, 0, 1]") == ("tied", [0, 0, 1])
    assert parse_setting("verbose=True") == ("verbose", True)
    assert parse_setting("a=b=c") == ("a", "b=c")
    model = model_of("hmm", ["observation__covariance_type=full", 'observation={class="GaussianMixture"}'], 0)
    assert model.observation.covariance_type == "full"
    seeded = model_of("seq2seq", ["random_state=3", "attention=none"], 0)
    assert (seeded.random_state, seeded.attention) == (3, None)

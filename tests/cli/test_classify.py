"""classify: what the command says, writes and saves is the library's."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm

LEVELS = {"rest": 0.0, "walk": 3.0, "run": 6.0}
FIT = ["--set", "n_states=1", "--steps", 3, "--by", "trial"]


def table(file, n, seed, label="activity", names=tuple(LEVELS)):
    """n trials of 12 steps for each label, of six subjects; without the column of labels if it has no name."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(n * len(names)):
        name = names[i % len(names)]
        part = pd.DataFrame(rng.normal(LEVELS[name], 1.0, size=(12, 2)), columns=["speed", "pulse"])
        part.insert(0, "trial", f"t{i}")
        part["cluster"] = f"s{i % 6}"
        if label:
            part[label] = name
        parts.append(part)
    pd.concat(parts).to_csv(file, index=False)
    return file


@pytest.fixture
def data(tmp_path):
    return table(tmp_path / "activities.csv", 10, 0)


@pytest.fixture
def saved(call, data, tmp_path):
    file = tmp_path / "classifier.safetensors"
    done = call("classify", "hmm", data, *FIT, "--label", "activity", "--folds", 0, "--save", file, "-q")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"Written to {file}\n"
    return file


def by_hand(data):
    X = sm.data.read(data, by="trial", label="activity")
    return X, sm.GenerativeClassifier(sm.HMM(1, max_iter=3), random_state=0).fit(X)


def test_it_is_fitted_judged_and_saved(call, data, tmp_path):
    file, out, plot = tmp_path / "c.safetensors", tmp_path / "held-out.csv", tmp_path / "confusion.png"
    outputs = ["--save", file, "--out", out, "--plot", plot]
    done = call("classify", "hmm", data, *FIT, "--label", "activity", *outputs, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    X, classifier = by_hand(data)
    predicted = classifier.cross_val_predict(X)
    assert said["judged"] == 30
    assert said["right"] == (predicted == np.array(X.labels)).sum()
    assert said["most_frequent"] == 10
    assert said["labels"] == ["rest", "run", "walk"]
    assert np.sum(said["confusion"]) == 30
    assert np.trace(said["confusion"]) == said["right"] > 25
    assert said["temperature"] == pytest.approx(classifier.temperature_, rel=1e-9)
    assert said["written"] == [str(path) for path in (file, out, plot)]
    written = pd.read_csv(out)
    assert written["predicted"].tolist() == predicted.tolist()
    assert written["sequence"].tolist() == X.names
    assert plot.read_bytes()[:4] == b"\x89PNG"
    new = sm.data.read(table(tmp_path / "new.csv", 2, 1), by="trial", columns=["speed", "pulse"])
    np.testing.assert_allclose(sm.load(file).predict_proba(new), classifier.predict_proba(new), rtol=1e-9, atol=1e-9)


def test_in_words(call, data):
    done = call("classify", "hmm", data, *FIT, "--label", "activity", "--folds", 3)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Read activities.csv: 30 sequences")
    assert "of 30 sequences are labelled right" in lines[1]
    assert "; 10 would be by the most frequent label alone" in lines[1]
    assert lines[3].split() == ["predicted", "rest", "run", "walk"]


def test_new_files_are_labelled(call, data, saved, tmp_path):
    """Also without the column of labels; where there is one, errors are counted."""
    _, classifier = by_hand(data)
    new = table(tmp_path / "new.csv", 4, 1, label="")
    done = call("classify", saved, new)
    assert done.exit_code == 0, done.output
    printed = pd.read_csv(io.StringIO(done.stdout))
    expected = classifier.predict_proba(sm.data.read(new, by="trial", columns=["speed", "pulse"]))
    np.testing.assert_allclose(printed[["p_rest", "p_run", "p_walk"]], expected, atol=1e-5)
    assert printed["predicted"].tolist() == classifier.classes_[expected.argmax(1)].tolist()
    assert "label" not in printed
    known = table(tmp_path / "known.csv", 4, 1)
    both = json.loads(call("classify", saved, new, known, "--json").stdout)
    assert both["judged"] == 12
    assert both["right"] == sum(
        row["label"] == row["predicted"] for row in both["predictions"] if row["label"] is not None
    )
    assert len(both["predictions"]) == 24


def test_a_label_that_it_does_not_know_is_an_error_of_it(call, data, tmp_path):
    two = table(tmp_path / "two.csv", 10, 0, names=("rest", "run"))
    file = tmp_path / "two.safetensors"
    assert call("classify", "hmm", two, *FIT, "--label", "activity", "--save", file, "-q").exit_code == 0
    said = json.loads(call("classify", file, data, "--json").stdout)
    assert said["labels"] == ["rest", "run", "walk"]
    assert said["judged"] == 30
    assert said["right"] <= 20
    assert sum(said["confusion"][2]) == 10


def test_folders_are_labels(call, tmp_path):
    """Of texts, whose files lie in folders; one file without a folder is labelled by what is saved."""
    for label, text in (("low", "aab aab aa"), ("high", "xyz zyx zz")):
        (tmp_path / "texts" / label).mkdir(parents=True)
        for i in range(4):
            (tmp_path / "texts" / label / f"{i}.txt").write_text(text[i:] * 3)
    file = tmp_path / "texts.safetensors"
    done = call("classify", "ngram", tmp_path / "texts", "--set", "order=2", "--save", file, "--folds", 2)
    assert done.exit_code == 0, done.output
    assert "8 of 8 sequences are labelled right (100.0%)" in done.stdout
    new = tmp_path / "new.txt"
    new.write_text("aa aab")
    assert pd.read_csv(io.StringIO(call("classify", file, new).stdout))["predicted"].tolist() == ["low"]


def test_recordings(call, recordings, tmp_path):
    folder = tmp_path / "said"
    for i, file in enumerate(sorted(recordings.glob("*.wav"))):
        (folder / ("even", "odd")[i % 2]).mkdir(parents=True, exist_ok=True)
        (folder / ("even", "odd")[i % 2] / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "voices.safetensors"
    done = call("classify", "hmm", folder, "--set", "n_states=1", "--steps", 1, "--folds", 0, "--save", file)
    assert done.exit_code == 0, done.output
    assert sm.load(file).classes_.tolist() == ["even", "odd"]
    judged = json.loads(call("classify", file, folder, "--json").stdout)
    assert judged["judged"] == 8


def test_what_cannot_be_is_refused(call, data, saved, tmp_path):
    hmm = tmp_path / "hmm.safetensors"
    assert call("fit", "hmm", data, "--by", "trial", "--set", "n_states=1", "--steps", 1, "--out", hmm).exit_code == 0
    label = ["--label", "activity"]
    unlabelled = table(tmp_path / "unlabelled.csv", 2, 1, label="")
    partly = tmp_path / "partly.csv"
    frame = pd.read_csv(data)
    frame.loc[frame["trial"] == "t7", "activity"] = None
    frame.to_csv(partly, index=False)
    for arguments, said in (
        (["hmm", unlabelled, *FIT], "has no labels; name their column with --label"),
        (["hmm", data, *FIT, "--label", "mood"], "has no column 'mood'"),
        (["hmm", partly, *FIT, *label], "sequence 't7' has no label"),
        (["lstn", data], "there is no model 'lstn'"),
        (["hmm", data, *FIT, *label, "--save", tmp_path / "c.bin"], "should end in .safetensors"),
        (["hmm", data, *FIT, *label, "--plot", tmp_path / "c.gif"], "should end in .png"),
        (["hmm", data, *FIT, *label, "--out", tmp_path / "none" / "c.csv"], "there is no folder"),
        (["hmm", data, *FIT, *label, "--folds", 0, "--out", tmp_path / "c.csv"], "--out has nothing to hold"),
        (["hmm", data, *FIT, *label, "--folds", 1], "--folds is 1"),
        ([saved, unlabelled, "--plot", tmp_path / "c.png"], "--plot has nothing to draw"),
        ([saved, data, *label], "leave --by, --columns, --time, --inputs or --label out"),
        ([saved, data, "--set", "n_states=3"], "leave --set out"),
        ([hmm, data], "holds an HMM, which is not a classifier"),
        ([tmp_path / "none.safetensors", data], "there is no file"),
    ):
        done = call("classify", *arguments)
        assert done.exit_code == 2, (arguments, done.output)
        assert said in done.stderr, (said, done.stderr)
        assert done.stderr.count("\n") == 1

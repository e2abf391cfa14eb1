"""anomalies: the command writes what the library finds, and says it in words."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm


def table(file, n, seed, spike=None):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(20 * n, 2)), columns=["flow", "heat"])
    frame.insert(0, "machine", np.repeat([f"m{i}" for i in range(n)], 20))
    if spike is not None:
        frame.loc[spike, "heat"] += 20
    frame.to_csv(file, index=False)
    return file


@pytest.fixture
def model(call, tmp_path):
    file = tmp_path / "hmm.safetensors"
    data = table(tmp_path / "train.csv", 10, 0)
    done = call("fit", "hmm", data, "--by", "machine", "--set", "n_states=1", "--steps", 2, "--out", file, "-q")
    assert done.exit_code == 0, done.output
    return file


@pytest.mark.slow
def test_anomalies_are_the_librarys(call, model, tmp_path):
    normal, new = table(tmp_path / "normal.csv", 10, 1), table(tmp_path / "new.csv", 3, 2, spike=47)
    out, plot = tmp_path / "out.csv", tmp_path / "worst.png"
    done = call("anomalies", model, normal, new, "--quantile", 0.99, "--out", out, "--plot", plot, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    written = pd.read_csv(out)
    detector = sm.Anomalies(sm.load(model), quantile=0.99, feature_names=["flow", "heat"])
    X = [sm.Sequences.from_frame(pd.read_csv(f), by="machine", columns=["flow", "heat"]) for f in (normal, new)]
    expected = detector.calibrate(X[0]).predict(X[1])
    assert written["sequence"].tolist() == expected["sequence"].tolist()
    for column in ("log_prob", "p_value", "log_prob_flow", "log_prob_heat"):
        np.testing.assert_allclose(written[column], expected[column])
    assert said["anomalies"] == expected["is_anomaly"].sum() == written["is_anomaly"].sum()
    worst = said["worst"][0]
    assert (worst["sequence"], worst["step"], worst["feature"]) == ("m2", 7, "heat")
    assert (said["judged"], said["n_held_out"]) == (60, 200)
    assert said["by_chance"] == pytest.approx(0.6)
    assert plot.read_bytes()[:4] == b"\x89PNG"


def test_in_words_and_by_sequence(call, model, tmp_path):
    normal, new = table(tmp_path / "normal.csv", 10, 1), table(tmp_path / "new.csv", 3, 2, spike=47)
    out = tmp_path / "out.csv"
    given = ["--quantile", 0.9, "--out", out]
    shown = call("anomalies", model, normal, new, *given).stdout
    assert "of 60 steps are anomalies; 6 would be by chance" in shown
    assert "m2" in shown
    assert "heat" in shown
    assert f"Written to {out}" in shown
    shown = call("anomalies", model, normal, new, *given, "--per", "sequence").stdout
    assert "of 3 sequences" in shown
    assert pd.read_csv(out)["worst_step"].tolist()[2] == 7
    assert call("anomalies", model, normal, new, *given, "--per", "5").exit_code == 0
    assert pd.read_csv(out)["score"].isna().sum() == 12


def test_text(call, book, tmp_path):
    model, new, out = tmp_path / "ngram.safetensors", tmp_path / "new.txt", tmp_path / "out.csv"
    assert call("fit", "ngram", book, "--set", "order=4", "--out", model).exit_code == 0
    new.write_text("It was the bqst of times.")
    done = call("anomalies", model, book, new, "--quantile", 0.99, "--out", out, "--plot", tmp_path / "p.svg")
    assert done.exit_code == 0, done.output
    frame = pd.read_csv(out, keep_default_na=False)
    assert "q" in frame.loc[frame["is_anomaly"].astype(str) == "True", "value"].tolist()


def test_a_saved_threshold_needs_no_normal_data(call, model, tmp_path):
    normal, new = table(tmp_path / "normal.csv", 10, 1), table(tmp_path / "new.csv", 3, 2, spike=47)
    file, first, second = tmp_path / "detector.safetensors", tmp_path / "1.csv", tmp_path / "2.csv"
    given = ["--quantile", 0.99, "--per", "3"]
    done = call("anomalies", model, normal, new, *given, "--out", first, "--save", file, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["written"] == [str(first), str(file)]
    done = call("anomalies", file, new, "--out", second, "--plot", tmp_path / "p.pdf")
    assert done.exit_code == 0, done.output
    assert "the 0.99 quantile of 180 steps of normal data" in done.stdout
    assert second.read_text() == first.read_text()
    assert (tmp_path / "p.pdf").read_bytes()[:4] == b"%PDF"
    loaded = sm.load(file)
    assert (loaded.quantile, loaded.per) == (0.99, 3)
    loaded.save(tmp_path / "by hand.safetensors")  # without how the data were read
    values = tmp_path / "values.csv"
    pd.read_csv(new)[["flow", "heat"]].to_csv(values, index=False)
    assert call("anomalies", tmp_path / "by hand.safetensors", values, "--out", second).exit_code == 0
    refused = call("anomalies", file, new, "--per", "step")
    assert refused.exit_code == 2
    assert "already has a threshold; leave --per out" in refused.stderr


def test_what_cannot_be_is_refused(call, model, tmp_path):
    normal = table(tmp_path / "normal.csv", 10, 1)
    out = ["--out", tmp_path / "out.csv"]
    for arguments, said in (
        ([model, normal, normal, *out], "needs at least 999 held-out steps, but there are 200"),
        ([model, normal, normal, *out, "--per", "minute"], "--per is 'minute'"),
        ([model, normal, normal, *out, "--quantile", 2], "quantile is 2.0"),
        ([model, normal, normal, "--out", tmp_path / "none" / "out.csv"], "there is no folder"),
        ([model, normal, tmp_path / "none.csv", *out, "--quantile", 0.9], "none.csv"),
        ([tmp_path / "none", normal, normal, *out], "there is no file"),
        ([model, normal, *out], "has no threshold, so pass two files"),
    ):
        done = call("anomalies", *arguments)
        assert done.exit_code == 2, done.output
        assert said in done.stderr
    X = [np.arange(4) % 2] * 4
    sm.HMMTagger(max_iter=1).fit(X, X).save(tmp_path / "tagger.safetensors")
    assert "p(y | x)" in call("anomalies", tmp_path / "tagger.safetensors", normal, normal, *out).stderr

"""choose: the command chooses, draws and saves what the library does."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.cli.choose import parse_values
from seqmodels.common import progress

GIVEN = ["--by", "who", "--set", "max_iter=10", "--set", 'observation={class="GaussianMixture", n_components=1}']


@pytest.fixture
def data(tmp_path):
    x, _ = sm.data.hmm_draws(12, 30, n_states=2, n_features=1, separation=6.0, random_state=1)
    frames = [pd.DataFrame({"who": f"p{i}", "v": np.asarray(item)[:, 0]}) for i, item in enumerate(x)]
    file = tmp_path / "x.csv"
    pd.concat(frames).to_csv(file, index=False)
    return file


def test_it_chooses_as_the_library_does(call, data, tmp_path):
    save, out, plot = tmp_path / "best.safetensors", tmp_path / "values.csv", tmp_path / "curve.png"
    outputs = ["--save", save, "--out", out, "--plot", plot]
    done = call("choose", "hmm", data, "--values", "n_states=1..3", *GIVEN, "--folds", 3, *outputs, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    X = sm.data.read(data, by="who")
    model = sm.HMM(max_iter=10, observation=sm.GaussianMixture(1), random_state=0)
    expected = sm.choose(model, X, folds=3, n_states=[1, 2, 3])
    assert (said["parameter"], said["chosen"], said["best"]) == ("n_states", expected.chosen, expected.best)
    assert expected.chosen == 2
    figures = ["value", "cv", "cv_se", "train", "bic", "aic"]
    pd.testing.assert_frame_equal(pd.read_csv(out)[figures], expected.frame[figures], check_dtype=False, rtol=1e-6)
    assert [row["cv"] for row in said["values"]] == pytest.approx(expected.frame["cv"].tolist())
    assert sm.load(save).score(X) == pytest.approx(expected.model.score(X), rel=1e-6)
    assert plot.read_bytes()[:4] == b"\x89PNG"
    assert said["written"] == [str(path) for path in (save, out, plot)]


def test_in_words_without_cross_validation(call, data):
    done = call("choose", "hmm", data, "--values", "n_states=2,1", *GIVEN, "--folds", 0, "--criterion", "bic")
    assert done.exit_code == 0, done.output
    assert "n_states = 2\n  by BIC: 2" in done.stdout
    header = done.stdout.splitlines()[-3].split()
    assert header == ["value", "train", "bic", "aic", "n_parameters"]


def test_quiet_shows_no_bar(call, data, monkeypatch):
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    monkeypatch.setattr(progress, "AFTER", 0.0)
    given = ["choose", "hmm", data, "--values", "n_states=1,2", *GIVEN, "--folds", 2]
    assert "choose: " in call(*given).stderr
    assert call(*given, "--quiet").stderr == ""


def test_observations_that_the_values_propose(call, data, tmp_path):
    given = ["--by", "who", "--set", "max_iter=5", "--set", "n_states=2", "--folds", 2]
    done = call("choose", "hmm", data, "--values", "observation=proposed", *given)
    assert done.exit_code == 0, done.output
    assert "observation = GaussianMixture(n_components=1)" in done.stdout
    assert "    v: reals: GaussianMixture(n_components=1), StudentT()" in done.stdout
    out = tmp_path / "best.safetensors"
    said = json.loads(
        call("choose", "hmm", data, "--values", "observation=proposed", *given, "--save", out, "--json").stdout
    )
    assert said["proposed"] == ["v: reals: GaussianMixture(n_components=1), StudentT()"]
    assert [row["value"] for row in said["values"]] == ["GaussianMixture(n_components=1)", "StudentT()"]
    assert repr(sm.load(out).observation_) == said["chosen"]


@pytest.mark.parametrize(
    ("text", "values"),
    [("a=1..1", [1]), ("a=-1..1", [-1, 0, 1]), ("a=0.5,2", [0.5, 2]), ("a=full,diag", ["full", "diag"]), ("a=7", [7])],
)
def test_values_are_read(text, values):
    assert parse_values(text) == ("a", values)


def test_what_cannot_be_is_refused(call, data, tmp_path):
    for options, said in (
        (["--values", "n_states"], "is not key=values"),
        (["--values", "n_states=3..1"], "write the smaller one first"),
        (["--values", "states=1..2"], "HMM has no parameter 'states'"),
        (["--values", "n_states=1..2", "--folds", 1], "folds is 1"),
        (["--values", "n_states=1..2", "--folds", 0], "nothing is cross-validated"),
        (["--values", "n_states=1..2", "--plot", tmp_path / "a.gif"], "should end in .png"),
        (["--values", "n_states=1..2", "--out", tmp_path / "none" / "a.csv"], "there is no folder"),
    ):
        done = call("choose", "hmm", data, *GIVEN, *options)
        assert done.exit_code == 2, done.output
        assert said in done.stderr


def test_recipes_that_a_careful_analyst_would_try(call, data):
    given = ["--by", "who", "--set", "max_iter=3", "--set", "n_states=2", "--folds", 2]
    said = json.loads(call("choose", "hmm", data, "--values", "recipe=proposed", *given, "--json").stdout)
    assert said["parameter"] == "recipe"
    tried = [row["value"] for row in said["values"]]
    assert tried[:2] == ["the arguments as they are", "observation=AutoregressiveGaussian(), n_init=1"]
    assert said["chosen"] in tried

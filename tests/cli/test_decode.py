"""``seqmodels decode``: a state for every step, as a table and a picture."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import seqmodels as sm

CHAIN = {"initial": [0.5, 0.5], "transition": [[0.95, 0.05], [0.1, 0.9]]}


@pytest.fixture
def series(call, tmp_path):
    """A CSV of two sequences, and an HMM that the command line fitted to it."""
    model = sm.HMM.from_parameters(**CHAIN, means=[[0, 1], [1.5, 2]], covariances=np.ones((2, 2)))
    items = model.sample(2, length=60, random_state=2)
    frame = pd.concat(
        [pd.DataFrame(x, columns=["speed", "pulse"]).assign(who=w) for x, w in zip(items, "ab", strict=True)]
    )
    file, saved = tmp_path / "series.csv", tmp_path / "hmm.safetensors"
    frame.to_csv(file, index=False)
    fitted = [
        "fit",
        "hmm",
        file,
        "--by",
        "who",
        "--set",
        "n_states=2",
        "--set",
        "start=free",
        "--steps",
        20,
        "--out",
        saved,
        "-q",
    ]
    assert call(*fitted).exit_code == 0
    return file, saved


def test_states_are_those_of_the_library(call, series):
    file, saved = series
    done = call("decode", saved, file)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(io.StringIO(done.stdout))
    assert table.columns.tolist() == ["file", "sequence", "name", "position", "state", "probability"]
    assert table["name"].tolist() == ["a"] * 60 + ["b"] * 60
    assert table["position"].tolist() == [*range(1, 61)] * 2
    model = sm.load(saved)
    data = sm.Sequences.from_frame(pd.read_csv(file), by="who", columns=["speed", "pulse"])
    paths = np.concatenate(model.decode(data))
    assert table["state"].tolist() == paths.tolist()
    posterior = np.concatenate(model.posterior(data))
    np.testing.assert_allclose(table["probability"], posterior[np.arange(120), paths], rtol=1e-5)
    assert len(set(paths)) == 2
    assert (posterior.argmax(1) != paths).any()  # the probability is that of the state on the path, not the largest


@pytest.mark.slow
def test_table_picture_and_summary_are_written(call, series, tmp_path):
    file, saved = series
    out, picture = tmp_path / "states.csv", tmp_path / "states.svg"
    options = ["--out", out, "--plot", picture, "--sequence", "b", "--state-names", "rest,walk"]
    done = call("decode", saved, file, *options)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out)
    assert set(table["state"]) == {"rest", "walk"}
    share = (table["state"] == "walk").mean()
    assert f"{share:.1%}" in done.stdout
    assert str(picture) in done.stdout
    assert "<svg" in picture.read_text()
    facts = json.loads(call("decode", saved, file, *options, "--json").stdout)
    assert facts["written"] == [str(out), str(picture)]
    assert facts["steps"]["state"] == table["state"].tolist()
    assert {row["state"]: row["share"] for row in facts["states"]}["walk"] == pytest.approx(share)
    pictures = [tmp_path / f"{name}.png" for name in ("first", "other")]
    for name, each in zip("ab", pictures, strict=True):
        assert call("decode", saved, file, "--sequence", name, "--out", out, "--plot", each).exit_code == 0
    assert pictures[0].read_bytes() != pictures[1].read_bytes()
    assert pyplot.get_fignums() == []


@pytest.mark.slow
def test_symbols_of_texts_stand_beside_their_states(call, book, tmp_path):
    saved = tmp_path / "text.safetensors"
    book.write_text(book.read_text()[:400])
    assert call("fit", "hmm", book, "--set", "n_states=2", "--steps", 2, "--out", saved, "-q").exit_code == 0
    table = pd.read_csv(io.StringIO(call("decode", saved, book).stdout), keep_default_na=False)
    assert "".join(table["symbol"]) == book.read_text()
    assert call("decode", saved, book, "--out", tmp_path / "s.csv", "--plot", tmp_path / "s.pdf").exit_code == 0
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")


def test_states_of_pairs_are_those_of_targets(call, tmp_path):
    (tmp_path / "x.txt").write_text("abc\nca\n")
    (tmp_path / "y.txt").write_text("cb\nacb\n")
    saved = tmp_path / "pairs.safetensors"
    given = [tmp_path / "x.txt", "--target", tmp_path / "y.txt"]
    assert call("fit", "hmm", *given, "--set", "n_states=2", "--steps", 2, "--out", saved, "-q").exit_code == 0
    done = call("decode", saved, *given)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(io.StringIO(done.stdout))
    assert "".join(table["symbol"]) == "cbacb"
    paths = sm.load(saved).decode(["abc", "ca"], ["cb", "acb"])
    assert table["state"].tolist() == [*paths[0][3:], *paths[1][2:]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--plot", "states.xyz"], "--plot is states.xyz; its name should end in .png, .pdf, .svg"),
        (["--plot", "none/states.png"], "there is no folder none"),
        (["--state-names", "a"], "--state-names has 1 names, but the model has 2 states"),
        (["--plot", "states.png", "--sequence", "c"], "there is no sequence 'c' to draw; there are a, b"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(call, series, options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = call("decode", series[1], series[0], *options)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert list(tmp_path.glob("states*")) == []


def test_only_an_hmm_is_decoded(call, tmp_path, book):
    saved = tmp_path / "ngram.safetensors"
    sm.NGram(2).fit(["abc"]).save(saved)
    refused = call("decode", saved, book)
    assert refused.exit_code == 2
    assert "holds an NGram, which has no hidden states" in refused.stderr

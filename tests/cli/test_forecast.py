"""``seqmodels forecast``: a table and a picture of what follows."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm


@pytest.fixture
def walks(tmp_path):
    rng = np.random.default_rng(0)
    frames = [pd.DataFrame({"id": name, "v": np.cumsum(rng.normal(size=30))}) for name in ("a", "b")]
    file = tmp_path / "walks.csv"
    pd.concat(frames).to_csv(file, index=False)
    return file


@pytest.fixture
def fitted(call, walks, tmp_path):
    file = tmp_path / "hmm.safetensors"
    done = call("fit", "hmm", walks, "--by", "id", "--set", "n_states=2", "--steps", 3, "--out", file, "-q")
    assert done.exit_code == 0, done.output
    return file


def test_the_table_is_that_of_the_model(call, fitted, walks, tmp_path):
    printed = call("forecast", fitted, walks, "-k", 3, "--quantiles", "0.1,0.5,0.9")
    assert printed.exit_code == 0, printed.output
    found = pd.read_csv(io.StringIO(printed.stdout))
    x = sm.Sequences.from_frame(pd.read_csv(walks), by="id", columns=["v"])
    expected = sm.load(fitted).forecast(x, 3, quantiles=(0.1, 0.5, 0.9)).frame
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)
    out = tmp_path / "forecast.csv"
    written = call("forecast", fitted, walks, "-k", 3, "--quantiles", "0.1,0.5,0.9", "--out", out)
    assert written.stdout.strip() == f"Written to {out}"
    pd.testing.assert_frame_equal(pd.read_csv(out), found)
    rows = json.loads(call("forecast", fitted, walks, "-k", 1, "--json").stdout)["rows"]
    assert [row["sequence"] for row in rows] == ["a", "b"]


def test_a_picture_of_one_sequence(call, fitted, walks, tmp_path):
    picture = tmp_path / "fan.png"
    done = call("forecast", fitted, walks, "--plot", picture, "--sequence", "b", "--out", tmp_path / "f.csv")
    assert done.exit_code == 0, done.output
    assert picture.stat().st_size > 5000
    for name in ("0", "v"):
        told = call("forecast", fitted, walks, "--plot", tmp_path / "fan.svg", "--feature", name)
        assert told.exit_code == 0, told.output
        assert (tmp_path / "fan.svg").read_text().startswith("<?xml")
    refused = call("forecast", fitted, walks, "--plot", picture, "--feature", "w")
    assert "feature is 'w', but there are 1, numbered from 0: v" in refused.stderr
    refused = call("forecast", fitted, walks, "--plot", picture, "--sequence", "c")
    assert refused.exit_code == 2
    assert "no sequence 'c'" in refused.stderr


def test_bad_input_is_said_in_one_line(call, fitted, walks, tmp_path):
    for options, says in (
        (("--quantiles", "0.1,x"), "--quantiles is '0.1,x'"),
        (("--quantiles", "0.9,0.1"), "increasing numbers"),
        (("--out", tmp_path / "none" / "f.csv"), "there is no folder"),
    ):
        refused = call("forecast", fitted, walks, *options)
        assert refused.exit_code == 2
        assert says in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_text(call, tmp_path):
    file, book = tmp_path / "ngram.safetensors", tmp_path / "book.txt"
    sm.NGram(3).fit(["to be or not to be"] * 3).save(file)
    book.write_text("to b")
    found = pd.read_csv(io.StringIO(call("forecast", file, book, "-k", 2, "--top-k", 2).stdout))
    assert found["symbol"].iloc[0] == "e"
    assert len(found) == 4

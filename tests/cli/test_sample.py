"""``seqmodels sample``: text and frames."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm


@pytest.fixture
def by_bytes(tmp_path):
    file = tmp_path / "ngram.safetensors"
    sm.NGram(3).fit(["It was the best of times. " * 4] * 3).save(file)
    return file


def test_text_is_the_models_own(call, by_bytes):
    mine = sm.load(by_bytes).sample(2, prefix="It", random_state=1, temperature=0.5, max_length=30)
    drawn = call("sample", by_bytes, "-n", 2, "--prefix", "It", "--seed", 1, "--temperature", 0.5, "--max-length", 30)
    assert drawn.exit_code == 0, drawn.output
    first, second = drawn.stdout.split("\n" + "-" * 40 + "\n")
    assert [first, second.rstrip("\n")] == [each.rstrip("\n") for each in mine]
    begun = call("sample", by_bytes, "--prefix", "It was ", "--length", 4, "--temperature", 0, "-q")
    assert begun.stdout == "It was the \n"  # four steps after the prefix
    as_json = call("sample", by_bytes, "-n", 2, "--seed", 1, "--max-length", 9, "--json")
    assert json.loads(as_json.stdout)["samples"] == sm.load(by_bytes).sample(2, random_state=1, max_length=9)


def test_cepstra_are_a_table_of_frames(call, recordings, tmp_path):
    model, out = tmp_path / "m.safetensors", tmp_path / "frames.csv"
    assert call("fit", "hmm", recordings, "--set", "n_states=3", "--steps", 3, "--out", model, "-q").exit_code == 0
    begun = call("sample", model, "--length", 7, "--seed", 4, "--prefix", recordings / "u0.wav", "--out", out)
    assert begun.exit_code == 0, begun.output
    prefix = sm.data.audio(recordings / "u0.wav")[0]
    (frames,) = sm.load(model).sample(1, length=7, prefix=prefix, random_state=4)
    assert pd.read_csv(out).iloc[:, 1:].to_numpy() == pytest.approx(np.asarray(frames))
    refused = call("sample", model, "--top-p", 0.5)
    assert refused.exit_code == 2
    assert "top_p" in refused.stderr


def test_other_vectors_are_a_table_that_can_be_fitted(call, tmp_path):
    file = tmp_path / "walk.safetensors"
    sm.HMM(1, observation=sm.GaussianMixture(1)).fit([np.random.default_rng(0).normal(size=(20, 2))]).save(file)
    drawn = call("sample", file, "-n", 2, "--length", 5)
    assert drawn.exit_code == 0, drawn.output
    table = pd.read_csv(io.StringIO(drawn.stdout))
    assert table["sequence"].tolist() == [0] * 5 + [1] * 5
    mine = sm.load(file).sample(2, length=5, random_state=0)
    assert table[["x0", "x1"]].to_numpy() == pytest.approx(np.concatenate(mine))
    written = tmp_path / "walk.csv"
    assert call("sample", file, "-n", 3, "--length", 9, "--out", written).exit_code == 0
    again = call("fit", "hmm", written, "--by", "sequence", "--steps", 1, "-q", "--out", tmp_path / "again.safetensors")
    assert again.exit_code == 0, again.output

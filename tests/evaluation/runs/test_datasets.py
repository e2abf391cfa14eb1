"""Data that can be read again: tables, and paths that move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.evaluation.runs.datasets import DATASETS, BuiltinSpeech, Parallel, Table, TextFiles, hashed
from seqmodels.evaluation.runs.toml import from_table, to_table


def test_a_table_is_vectors_or_symbols(tmp_path):
    frame = pd.DataFrame({"t": [2, 1, 1, 2], "who": ["a", "a", "b", "b"], "x": [0.5, 1, 2, 3], "k": [1, 0, 2, 2]})
    file = str(tmp_path / "t.csv")
    frame.to_csv(file, index=False)
    X, y = Table(file, "who", time="t").read()
    assert y is None
    assert X.names == ["a", "b"]
    assert X[0].tolist() == [[1.0, 0.0], [0.5, 1.0]]  # in order of t, which is no feature
    assert Table(file, "who", ["k"], "t").read()[0][0].tolist() == [0, 1]
    assert Table(file, "who", ["x"]).read()[0][0].tolist() == [[0.5], [1.0]]
    assert Table(file, "who", ["x"], dither=True).read()[0].grid == (0.5,)  # of the whole table, before it is split
    with pytest.warns(UserWarning, match="2 sequences, one for each 'who'; pass by="):
        assert Table(file, columns=["x"]).read()[0].names == ["a", "b"]
    for table, said in (
        (Table(file, "nobody"), "no column 'nobody'"),
        (Table(file, "who", ["z"]), "no column 'z'"),
    ):
        with pytest.raises(ValueError, match=said):
            table.read()


def test_paths_are_relative_to_a_folder_and_found_again(tmp_path):
    (tmp_path / "a").mkdir()
    data = Parallel(str(tmp_path / "a" / "en"), str(tmp_path / "fr"))
    relative = data.relative_to(tmp_path / "a")
    assert relative.paths() == ("en", str(Path("..") / "fr"))
    resolved = relative.resolved_from(tmp_path / "a")
    assert [Path(p).resolve() for p in resolved.paths()] == [Path(p) for p in data.paths()]
    assert BuiltinSpeech(3).relative_to(tmp_path).paths() == ()


def test_described_they_read_the_same(tmp_path):
    (tmp_path / "b.txt").write_text("one\n\ntwo\n")
    data = TextFiles(str(tmp_path / "b.txt"), "line")
    again = from_table(to_table(data, DATASETS), DATASETS)
    assert again.sha256() == data.sha256() == sm.data.sha256(sm.Sequences(["one", "two"]))
    X = sm.Sequences([np.zeros((2, 1))])
    assert hashed((X, X)) == f"{hashed((X, None))} {hashed((X, None))}"

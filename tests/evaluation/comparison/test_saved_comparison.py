"""Comparisons on disk: the same figures come back to the last bit, and nothing else is taken."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.evaluation.comparison import saved_comparison
from seqmodels.evaluation.comparison.comparison import _completed
from seqmodels.evaluation.comparison.saved_comparison import (
    as_json,
    frame_from_json,
    frame_to_json,
    read_sequences,
    write_sequences,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "0.1.0"


def conditional():
    X, y = ["to be", "né", "or", "not", "that", "is"] * 2, ["être", "€", "ou", "ne", "ça", "est"] * 2
    X, y = sm.Sequences(X), sm.Sequences([f"{text}{i}" for i, text in enumerate(y)])
    models = {"hmm/1 état": sm.HMM(2, max_iter=2), "lstm": sm.LSTMSeq2Seq(d_model=4, max_steps=2)}
    test = (X[6:], sm.Sequences(y.items[6:], clusters=list("aabbcc"), names=[f"n{i}" for i in range(6)]))
    with pytest.warns(UserWarning, match="no interval"):
        return sm.compare(models, X[:6], y[:6], test=test, title="Dictionary")


def vectors():
    x, _ = sm.data.hmm_draws(20, 9, n_states=2, n_features=2, random_state=0)
    models = {"one": sm.HMM(1, max_iter=2), "bad": sm.NGram(), "gru": sm.GRU(d_model=4, max_steps=2)}
    train, test = x.split(0.5)
    test = sm.Sequences(test.items, metadata=pd.DataFrame({"speaker": list("abcde") * 2, "age": range(10)}))
    with pytest.warns(UserWarning, match="bad failed"):
        return sm.compare(
            models,
            train,
            test=test,
            cluster="speaker",
            search=sm.Search({name: {"dtype": ["float32"]} for name in models}, 1, 2),
        )


@pytest.mark.parametrize("make", [conditional, vectors])
def test_everything_comes_back(make, tmp_path):
    result = make()
    result.save(tmp_path / "run" / "one")
    again = sm.evaluation.Comparison.load(tmp_path / "run" / "one")
    for here, there in ((again.frame, result.frame), (again.steps, result.steps), (again.search, result.search)):
        pd.testing.assert_frame_equal(here, there, check_exact=True)
        assert here.attrs == there.attrs
    assert again.measure == result.measure
    assert str(again) == str(result)
    assert again.to_markdown() == result.to_markdown()
    assert again.provenance == result.provenance
    for name, history in result.histories.items():
        pd.testing.assert_frame_equal(again.histories[name], history, check_exact=True)
    asked = (result.test, None) if result.source is None else (result.source, result.test)
    here = (again.test, None) if again.source is None else (again.source, again.test)
    for name, model in result.models.items():
        assert again.models[name].score(*here) == pytest.approx(model.score(*asked), rel=1e-6)
    assert again.test.metadata.equals(result.test.metadata)


def test_no_file_is_a_pickle(tmp_path):
    vectors().save(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}
    for path in tmp_path.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no comparison"):
        sm.evaluation.Comparison.load(tmp_path)
    (tmp_path / "comparison.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="holds no comparison"):
        sm.evaluation.Comparison.load(tmp_path)


def test_a_comparison_that_lost_its_data_says_so(tmp_path):
    vectors().save(tmp_path)
    next(tmp_path.glob("files-*/test.json")).unlink()
    with pytest.raises(ValueError, match=r"has lost its test\.json"):
        sm.evaluation.Comparison.load(tmp_path)


def test_frames_keep_dtypes_and_what_is_not_a_number():
    frame = pd.DataFrame(
        {
            "x": [0.1 + 0.2, math.nan, -math.inf],
            "n": [1, 2, 3],
            "flag": [True, False, True],
            "word": ["", "é", "NaN"],
            "mixed": pd.Series([None, 3, "a"], dtype=object),
            "day": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]),
        }
    )
    frame.attrs = {"title": "t"}
    again = frame_from_json(json.loads(json.dumps(frame_to_json(frame), allow_nan=False)))
    pd.testing.assert_frame_equal(again, frame, check_exact=True)
    assert again.attrs == frame.attrs


def test_metadata_that_json_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="column 'where' holds a tuple"):
        frame_to_json(pd.DataFrame({"where": [(1, 2)]}))


@pytest.mark.parametrize("items", [["né", "x\n"], [[0, 1], [2]], [np.array([[1.5, math.nan]]), np.ones((3, 2)) / 3]])
def test_sequences_of_each_kind_come_back(items, tmp_path):
    x = sm.Sequences(items, names=["a", "b"])
    write_sequences(tmp_path, "x", x)
    again = read_sequences(tmp_path, "x")
    assert again.kind == x.kind
    assert again.names == ["a", "b"]
    for here, there in zip(again, x, strict=True):
        np.testing.assert_array_equal(here, there)
    assert read_sequences(tmp_path, "other") is None


def test_a_description_is_json_whatever_is_in_it():
    described = as_json({"a": np.eye(2), "b": (np.float64(0.5), sm.Categorical()), 3: len})
    assert described["a"] == [[1.0, 0.0], [0.0, 1.0]]
    assert described["b"][1]["class"] == "Categorical"
    assert "len" in described["3"]
    json.dumps(described)


def test_a_second_save_that_fails_leaves_the_first_and_nothing_else(tmp_path):
    first = vectors()
    first.save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    bad = replace(
        first, test=sm.Sequences(first.test.items, metadata=pd.DataFrame({"where": [(1, 2)] * len(first.test)}))
    )
    with pytest.raises(ValueError, match="holds a tuple"):
        bad.save(tmp_path)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    assert str(sm.evaluation.Comparison.load(tmp_path)) == str(first)
    first.save(tmp_path)
    assert len(list(tmp_path.glob("files-*"))) == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_comparison_of_the_oldest_format_is_replaced_and_its_files_removed(tmp_path):
    shutil.copytree(FIXTURES / "comparison", tmp_path / "kept")
    old = sm.evaluation.Comparison.load(tmp_path / "kept")
    old.save(tmp_path / "kept")
    assert {path.name for path in (tmp_path / "kept").iterdir() if not path.name.startswith("files-")} == {
        "comparison.json"
    }
    assert str(sm.evaluation.Comparison.load(tmp_path / "kept")) == str(old)


def test_files_of_two_comparisons_do_not_mix(tmp_path):
    old = sm.evaluation.Comparison.load(FIXTURES / "comparison")
    old.save(tmp_path / "a")
    replace(old, log_prob_steps={name: [s + 1 for s in each] for name, each in old.log_prob_steps.items()}).save(
        tmp_path / "b"
    )
    a, b = (next((tmp_path / name).glob("files-*")) / "steps.safetensors" for name in "ab")
    a.write_bytes(b.read_bytes())
    with pytest.raises(ValueError, match=r"steps\.safetensors is damaged"):
        sm.evaluation.Comparison.load(tmp_path / "a")


def test_a_table_that_an_older_version_saved_is_read_in_todays_terms():
    """Bits had the sign of the score, and there was neither a rank nor what a floor does to a score."""
    models = {"one": sm.HMM(1, max_iter=1), "bad": sm.HMM(2, observation=sm.GaussianMixture(1))}
    with pytest.warns(UserWarning, match="bad failed"):
        now = sm.compare(models, ["abab", "ba"] * 6, test=["abba"] * 6).frame
    then = now.drop(columns=["rank", "floor_effect"]).assign(bits=-now["bits"])
    pd.testing.assert_frame_equal(_completed(then)[now.columns], now, check_exact=True)
    assert now["rank"].tolist() == pytest.approx([1.0, 2.0, np.nan], nan_ok=True)


def test_the_grid_of_dithered_sequences_is_kept(tmp_path):
    x = sm.Sequences([np.arange(6.0)[:, None] * 0.5]).dithered()
    write_sequences(tmp_path, "x", x)
    again = read_sequences(tmp_path, "x")
    assert again is not None
    assert again.grid == x.grid == (0.5,)


def test_of_two_saved_into_one_folder_at_once_the_second_is_refused(tmp_path):
    with saved_comparison.replaced(tmp_path / "result") as (files, content):
        with (
            pytest.raises(ValueError, match="result is being written to by another run"),
            saved_comparison.replaced(tmp_path / "result"),
        ):
            pytest.fail("both write")
        content["first"] = True
        assert files.is_dir()
    assert saved_comparison.read_main(tmp_path / "result")["first"]


def test_times_of_a_past_come_back(tmp_path):
    dates = np.datetime64("2024-03-01") + np.array([0, 1, 5, 6]).astype("timedelta64[D]")
    for times in (np.array([0.0, 0.5, 4.0, 4.5]), dates):
        x = sm.Sequences([np.arange(4.0)[:, None]], times=[times]).chunks(2, past=None)
        write_sequences(tmp_path, "x", x)
        back = read_sequences(tmp_path, "x")
        assert back.past_times[0] is None
        np.testing.assert_array_equal(back.past_times[1], times[:2])
        model = sm.hmm.ContinuousTimeHMM.from_parameters(
            [[-1.0, 1.0], [1.0, -1.0]], means=[[0], [2]], covariances=[[1], [1]]
        )
        np.testing.assert_allclose(model.log_prob(back), model.log_prob(x), rtol=1e-12)

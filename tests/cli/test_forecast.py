"""``seqmodels forecast``: a table and a picture of what follows."""

from __future__ import annotations

import io
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.evaluation.forecasting import series


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


@pytest.fixture
def sales(tmp_path):
    t = np.arange(40)
    months = pd.date_range("2022-01", periods=40, freq="MS").strftime("%Y-%m")
    y = 50 + t + 5 * np.sin(2 * np.pi * t / 12) + np.random.default_rng(0).normal(size=40)
    frame = pd.DataFrame({"month": months, "sales": y.round(3), "cost": (y[::-1] + 3).round(3)})
    file = tmp_path / "sales.csv"
    frame.drop([20]).to_csv(file)  # with a column of row numbers, which has no name
    return file


def test_a_table_alone_is_forecast_by_itself(call, sales, tmp_path):
    picture, options = tmp_path / "fan.png", ("--horizon", 3, "--quantiles", "0.1,0.5,0.9", "--max-seconds", 0.01)
    done = call("forecast", sales, "--columns", "sales", "--plot", picture, *options)
    assert done.exit_code == 0, done.output
    words, table = done.stdout.split("\n\n")
    assert words.startswith("The series has 40 steps, 2022-01 to 2025-04, a value a month; 1 of them (2.5 %) missing.")
    found = pd.read_csv(io.StringIO(table))
    assert found["time"].tolist() == ["2025-05-01", "2025-06-01", "2025-07-01"]
    assert set(found["feature"]) == {"sales"}
    assert (found["10%"] < found["90%"]).all()
    assert picture.stat().st_size > 5000
    said = json.loads(call("forecast", sales, *options, "--season", 1, "--json").stdout)
    assert {row["feature"] for row in said["rows"]} == {"sales", "cost"}
    assert {"sequence", "feature", "model", "crps_scaled", "chosen"} <= said["tried"][0].keys()
    assert any("No season" in sentence for sentence in said["words"])


def test_an_array_and_several_series_are_forecast_by_themselves(call, walks, tmp_path):
    np.save(tmp_path / "x.npy", np.cumsum(np.random.default_rng(1).normal(size=(40, 2)), axis=0))
    out = tmp_path / "ahead.csv"
    done = call("forecast", tmp_path / "x.npy", "--horizon", 2, "--max-seconds", 0.01, "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"Written to {out}\n")
    assert len(pd.read_csv(out)) == 4
    by_id = call("forecast", walks, "--by", "id", "-k", 2, "--max-seconds", 0.01, "--json")
    assert [row["sequence"] for row in json.loads(by_id.stdout)["rows"]] == ["a", "a", "b", "b"]


def test_options_of_models_and_of_tables_are_not_mixed(call, fitted, walks, sales):
    for arguments, says in (
        ((fitted,), "is a model; pass the file that it forecasts, too"),
        ((fitted, walks, "--season", 4), "--season is for a table alone"),
        ((sales, "-n", 10), "-n is for a model"),
        ((sales, "--columns", "sale"), "has no column 'sale'; it has"),
        ((sales, "--time", "when"), "has no column 'when'; it has"),
        ((sales.parent / "none.csv",), "none.csv"),
    ):
        refused = call("forecast", *arguments)
        assert refused.exit_code == 2, refused.output
        assert says in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_inputs_of_a_table_are_known_ahead(call, sales, tmp_path, monkeypatch):
    ticks = itertools.count()  # by a clock on which the first model takes all the time, both calls try the same models
    monkeypatch.setattr(series, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    t = np.arange(45)
    frame = pd.read_csv(sales, index_col=0).assign(cost=0, promo=(t[:39] % 4 == 0).astype(int))
    frame = frame.assign(month=pd.date_range("2022-01", periods=39, freq="MS").strftime("%Y-%m"))
    months = pd.date_range("2025-04", periods=6, freq="MS").strftime("%Y-%m")
    ahead = pd.DataFrame({"month": months, "promo": (t[39:] % 4 == 0).astype(int)})
    frame.to_csv(tmp_path / "past.csv", index=False)
    ahead.to_csv(tmp_path / "ahead.csv", index=False)
    pd.concat([frame, ahead]).to_csv(tmp_path / "all.csv", index=False)
    options = ("--columns", "sales", "--inputs", "promo", "-k", 6, "--max-seconds", 0.001, "--json")
    together = call("forecast", tmp_path / "all.csv", *options)
    assert together.exit_code == 0, together.output
    rows = json.loads(together.stdout)["rows"]
    assert {row["feature"] for row in rows} == {"sales"}
    assert [row["time"][:7] for row in rows] == list(months)
    apart = call("forecast", tmp_path / "past.csv", "--inputs-file", tmp_path / "ahead.csv", *options)
    assert json.loads(apart.stdout)["rows"] == rows
    for arguments, says in (
        ((tmp_path / "past.csv", *options), "inputs are known for 0 steps after the last value"),
        ((tmp_path / "past.csv", "--inputs", "prom"), "has no column 'prom'; it has"),
        ((tmp_path / "past.csv", "--inputs-file", tmp_path / "ahead.csv"), "no inputs are named; pass --inputs a,b"),
    ):
        refused = call("forecast", *arguments)
        assert refused.exit_code == 2, refused.output
        assert says in refused.stderr


@pytest.mark.parametrize(
    "values",
    [
        np.append(np.full(59, 5.0), 6.0),
        np.tile([1.0, 4.0, 2.0, np.nan], 15)[:-1],
        np.append(np.random.default_rng(0).normal(size=30), np.full(30, np.nan)),
        0.1 * np.arange(60),
    ],
    ids=["a step", "a phase that was never seen", "half missing at the end", "a line"],
)
def test_json_is_all_that_is_printed(call, capfd, tmp_path, values):
    pd.DataFrame({"v": values}).to_csv(tmp_path / "v.csv", na_rep="nan")
    season = 1 if values[3] == values[3] else 4
    done = call("forecast", tmp_path / "v.csv", "-k", 4, "--json", "--season", season, "--max-seconds", 0.2)
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["rows"]) == 4
    assert capfd.readouterr().out == ""  # nor by libraries, past Python

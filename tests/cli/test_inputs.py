"""Data of every format in the shell: what they are taken for is said, names are kept, and others are read alike."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.cli.inputs import ReadOptions, dataset_of
from seqmodels.evaluation.runs.datasets import Files, Recordings, TextFiles


@pytest.fixture
def states(tmp_path):
    """Eight people who sit and walk, with the times of their steps."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "who": np.repeat([f"p{i}" for i in range(8)], 12),
            "time": np.tile(pd.date_range("2020-01-01", periods=12, freq="min"), 8),
            "state": rng.choice(["sit", "walk"], 96),
        }
    )
    file = tmp_path / "states.csv"
    frame.to_csv(file, index=False)
    return file


def test_states_by_name_from_the_file_to_what_is_drawn(call, states, tmp_path):
    model = tmp_path / "m.safetensors"
    done = call("fit", "hmm", states, "--by", "who", "--set", "n_states=2", "--steps", 3, "--out", model)
    assert done.exit_code == 0, done.output
    said = "Read states.csv: 8 sequences, 96 symbols: sit, walk; by who; time from 2020-01-01 to 2020-01-01 00:11:00"
    assert done.stdout.splitlines()[0] == said
    by_hand = sm.HMM(2, max_iter=3).fit(sm.data.read(states, by="who"))
    expected = by_hand.score(sm.data.read(states, by="who"))
    assert sm.load(model).score(sm.data.read(states, by="who")) == pytest.approx(expected, rel=1e-9)
    shown = call("inspect", model)
    assert "symbols      sit, walk" in shown.stdout
    assert json.loads(call("inspect", model, "--json").stdout)["names"] == ["sit", "walk"]
    assert "sit 0." in shown.stdout  # what a state emits
    drawn = call("sample", model, "-n", 2, "--seed", 3)
    table = pd.read_csv(io.StringIO(drawn.stdout))
    assert list(table.columns) == ["sequence", "state"]
    assert table["state"].tolist() == np.concatenate(by_hand.sample(2, random_state=3)).tolist()
    steps = tmp_path / "steps.csv"
    scored = call("score", model, states, "--json", "--steps", steps)
    written = pd.read_csv(steps)
    assert written["time"].tolist()[:2] == ["2020-01-01 00:00:00", "2020-01-01 00:01:00"]
    assert written["time"].isna().tolist()[10:14] == [False, False, True, False]  # the end of the first sequence
    assert json.loads(scored.stdout)["total"]["nats"] == pytest.approx(by_hand.score(sm.data.read(states, by="who")))
    other = tmp_path / "other.csv"
    other.write_text("who,time,state\np,2020-01-01,run\n")
    assert "'run' at position 0, but the model knows sit, walk" in call("score", model, other).stderr


def test_features_by_name(call, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"t": np.arange(60), "ax": rng.normal(size=60), "ay": rng.normal(size=60)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    model = tmp_path / "m.safetensors"
    given = ["--set", "n_states=2", "--steps", 2, "--out", model, "--set", "observation={class='GaussianMixture'}"]
    done = call("fit", "hmm", tmp_path / "a.csv", *given)
    assert done.exit_code == 0, done.output
    assert "Read a.csv: 1 sequence, 60 frames, features ax, ay: real; t from 0 to 59" in done.stdout
    assert sm.load(model).feature_names_in_.tolist() == ["ax", "ay"]
    shown = call("inspect", model).stdout
    assert "features     ax, ay" in shown
    assert "mean ax " in shown
    drawn = call("sample", model, "--length", 4).stdout
    assert drawn.splitlines()[0] == "sequence,ax,ay"
    frame[["ay", "t", "ax"]].to_csv(tmp_path / "b.csv", index=False)  # columns in another order, found by their names
    first, second = (json.loads(call("score", model, tmp_path / f"{n}.csv", "--json").stdout)["total"] for n in "ab")
    assert first == second
    frame[["t", "ax"]].to_csv(tmp_path / "c.csv", index=False)
    assert "has no column 'ay'" in call("score", model, tmp_path / "c.csv").stderr
    as_json = call("fit", "hmm", tmp_path / "a.csv", *given, "--json")
    assert json.loads(as_json.stdout)["data"]["description"].startswith("1 sequence, 60 frames")
    assert "Read a.csv" in as_json.stderr
    assert "Read" not in call("fit", "hmm", tmp_path / "a.csv", *given, "-q").output


def test_integers_are_read_as_in_python_and_kind_overrides(call, tmp_path):
    (tmp_path / "n.csv").write_text("n\n" + "".join(f"{n}\n" for n in [0, 1, 3, 2, 0, 5] * 8))
    given = ["--steps", 1, "--out", tmp_path / "m.safetensors", "--set", "n_states=2"]
    assert "48 symbols: 0 to 5" in call("fit", "hmm", tmp_path / "n.csv", *given).stdout
    assert sm.data.read(tmp_path / "n.csv").kind == "symbols"
    poisson = ["--kind", "vectors", "--set", 'observation={class="Poisson"}']
    done = call("fit", "hmm", tmp_path / "n.csv", *given, *poisson)
    assert done.exit_code == 0, done.output
    assert "48 frames, features n: counts" in done.stdout
    (tmp_path / "one.csv").write_text("n\n1\n2\n")
    scored = call("score", tmp_path / "m.safetensors", tmp_path / "one.csv", "--json")
    assert json.loads(scored.stdout)["measure"]["space"] == "N^1"


def test_fasta_and_json_are_not_modelled_as_text(call, tmp_path):
    (tmp_path / "a.fasta").write_text(">s1 human\nACGT\n>s2\nGATTACA\n")
    (tmp_path / "a.jsonl").write_text('["sit", "walk"]\n["walk"]\n')
    out = ["--out", tmp_path / "m.safetensors", "--set", "order=2"]
    assert "2 sequences, 11 symbols: A, C, G, T" in call("fit", "ngram", tmp_path / "a.fasta", *out).stdout
    assert "2 sequences, 3 symbols: sit, walk" in call("fit", "ngram", tmp_path / "a.jsonl", *out).stdout
    (tmp_path / "a.txt").write_text(">s1 human\nACGT\n")
    done = call("fit", "ngram", tmp_path / "a.txt", *out)
    assert done.exit_code == 0, done.output
    assert "warning: " in done.stderr
    assert "a.txt looks like FASTA, and its headers are modelled as text" in done.stderr


def test_several_series_are_not_one(call, tmp_path):
    (tmp_path / "a.csv").write_text("who,time,x\na,0,0.5\na,1,1.5\nb,0,2.5\n")
    said = call("fit", "hmm", tmp_path / "a.csv", "--set", "n_states=1", "--out", tmp_path / "m").stderr
    assert "'time' repeats, so the rows are taken for 2 sequences, one for each 'who'; pass by=" in said
    (tmp_path / "a.csv").write_text("time,x\n0,0.5\n1,1.5\n0,2.5\n")
    refused = call("fit", "hmm", tmp_path / "a.csv", "--out", tmp_path / "m")
    assert refused.exit_code == 2
    assert "'time' is 0 in row 0 and in row 2, so there are several sequences" in refused.stderr
    assert "--by" in refused.stderr


def test_what_reads_what(tmp_path, recordings):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    (tmp_path / "a.csv").write_text("a\n1\n")
    for path, options, expected in (
        (tmp_path / "texts", ReadOptions(cut="line"), TextFiles(str(tmp_path / "texts"), "line")),
        (tmp_path / "README", ReadOptions(), TextFiles(str(tmp_path / "README"))),
        (recordings, ReadOptions(), Recordings(str(recordings))),
        (tmp_path / "a.csv", ReadOptions(by="a"), Files(str(tmp_path / "a.csv"), by="a", columns=[])),
        (tmp_path / "texts", ReadOptions(kind="symbols"), Files(str(tmp_path / "texts"), "symbols", columns=[])),
    ):
        assert repr(dataset_of(str(path), None, options)) == repr(expected)


@pytest.mark.slow
@pytest.mark.usefixtures("_plain_pages")
def test_any_data_are_compared(call, states, tmp_path):
    given = ["--by", "who", "--models", "ngram", "--quick", "--steps", 1, "--out", tmp_path / "out"]
    result = call("compare", "--data", states, *given)
    assert result.exit_code == 0, result.output
    assert "Read states.csv: 8 sequences, 96 symbols: sit, walk; by who" in result.stdout
    again = call("compare", "--config", tmp_path / "out" / "run.toml", "--out", tmp_path / "again", "--json", "-q")
    assert again.exit_code == 0, again.output
    assert {row["model"] for row in json.loads(again.stdout)["table-density"]["models"]} >= {"ngram"}
    both = call("compare", "--data", states, "--csv", states)
    assert both.exit_code == 2
    assert "pass --data alone" in both.stderr


# -- inputs of a table -------------------------------------------------------------------------------------------------


@pytest.fixture
def heated(tmp_path):
    """Six days whose visitors follow the heat, and the heat of the three steps after each."""
    rng = np.random.default_rng(0)
    heat = rng.normal(20, 5, (6, 25))
    day = np.repeat([f"d{i}" for i in range(6)], 25)
    frame = pd.DataFrame({"day": day, "heat": heat.ravel(), "wind": rng.normal(size=150)})
    frame["visitors"] = 3 * frame["heat"] + rng.normal(size=150)
    file, ahead = tmp_path / "days.csv", tmp_path / "ahead.csv"
    frame.to_csv(file, index=False)
    pd.DataFrame({"heat": [25.0, 15.0, 20.0] * 6, "day": np.repeat([f"d{5 - i}" for i in range(6)], 3)}).to_csv(
        ahead, index=False
    )
    return file, ahead


def test_a_model_given_inputs_from_the_table_to_what_comes_next(call, heated, tmp_path):
    file, ahead = heated
    saved = tmp_path / "m.safetensors"
    given = ["--by", "day", "--columns", "visitors", "--inputs", "heat", "--set", "n_states=1"]
    done = call("fit", "hmm", file, *given, "--set", "input_effects__emissions=true", "--out", saved)
    assert done.exit_code == 0, done.output
    assert "features visitors: real; inputs heat; by day" in done.stdout
    X = sm.data.read(file, by="day", columns=["visitors"], inputs=["heat"])
    by_hand = sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=True)).fit(X)
    scored = json.loads(call("score", saved, file, "--json").stdout)
    assert scored["total"]["nats"] == pytest.approx(by_hand.score(X))
    assert scored["measure"]["inputs"] == ["heat"]
    printed = call("forecast", saved, file, "-k", 3, "--inputs-file", ahead)
    frame = pd.read_csv(io.StringIO(printed.stdout))
    assert frame["mean"][:3].tolist() == pytest.approx([75, 45, 60], abs=1.0)
    expected = by_hand.forecast(X, 3, inputs=[{"heat": [25.0, 15.0, 20.0]}] * 6).frame
    np.testing.assert_allclose(frame["mean"], expected["mean"], rtol=1e-6)
    one = tmp_path / "one.csv"
    pd.DataFrame({"heat": [10.0, 30.0]}).to_csv(one, index=False)
    drawn = pd.read_csv(io.StringIO(call("sample", saved, "--inputs-file", one).stdout))
    assert drawn["visitors"].tolist() == pytest.approx([30.0, 90.0], abs=6.0)
    assert "p(x | heat) of R^1" in call("inspect", saved).stdout
    flagged = call("anomalies", saved, file, file, "--quantile", 0.9, "--out", tmp_path / "a.csv")
    assert flagged.exit_code == 0, flagged.output
    for options, said in (
        (["-k", 3], "reads the inputs heat; pass --inputs-file, a table of these columns with a row for each of the 3"),
        (["-k", 2, "--inputs-file", ahead], "has 3 rows of the sequence 'd0', but -k is 2"),
        (["-k", 3, "--inputs-file", one], "has no column 'day'"),
        (["-k", 3, "--inputs-file", file.parent / "none.csv"], "none.csv"),
    ):
        refused = call("forecast", saved, file, *options)
        assert refused.exit_code == 2
        assert said in refused.stderr
    assert "pass --inputs-file" in call("sample", saved).stderr


def test_networks_read_what_inputs_names_and_others_say_what_to_do(call, heated, tmp_path):
    file, ahead = heated
    read = ["--by", "day", "--columns", "visitors", "--inputs", "heat, wind", "--out", tmp_path / "m.safetensors"]
    done = call("fit", "gru", file, *read, "--set", "d_model=8", "--steps", 3)
    assert done.exit_code == 0, done.output
    assert sm.load(tmp_path / "m.safetensors").input_names_ == ("heat", "wind")
    for family, options, said in (
        (
            "hmm",
            [],
            "nothing of this HMM depends on inputs; pass --set input_effects__transitions=true",
        ),
        ("ngram", [], "an NGram reads no inputs; take hmm, elman, lstm, gru or transformer"),
        ("seq2seq", [], "an LSTMSeq2Seq reads sources and no inputs beside them"),
        ("gru", ["--columns", "heat"], "the input 'heat' is named as something else too"),
    ):
        refused = call("fit", family, file, *read, *options)
        assert refused.exit_code == 2
        assert said in refused.stderr
    plain = call("fit", "hmm", file, "--by", "day", "--columns", "visitors", "--set", "input_effects__transitions=true")
    assert "the sequences have none; pass Sequences(items, inputs=...), or on the command line --inputs" in plain.stderr
    call("fit", "hmm", file, "--by", "day", "--columns", "visitors", "--steps", 2, "--out", tmp_path / "p.safetensors")
    refused = call("forecast", tmp_path / "p.safetensors", file, "--inputs-file", ahead)
    assert "but the model reads no inputs; leave it out" in refused.stderr
    options = ["--by", "day", "--columns", "visitors", "--inputs", "heat", "--folds", 2, "--steps", 2]
    chosen = call(
        "choose", "hmm", file, "--values", "input_effects__emissions=none,true", "--set", "n_states=1", *options
    )
    assert "input_effects__emissions = True" in chosen.stdout, chosen.output


@pytest.mark.slow
@pytest.mark.usefixtures("_plain_pages")
def test_what_inputs_are_worth_is_compared(call, heated, tmp_path):
    file, _ = heated
    out = tmp_path / "results"
    read = [
        "--data",
        file,
        "--by",
        "day",
        "--columns",
        "visitors",
        "--models",
        "var,var-inputs",
        "--steps",
        2,
        "--out",
        out,
    ]
    done = call("compare", *read, "--inputs", "heat", "--json")
    assert done.exit_code == 0, done.output
    rows = {row["model"]: row for row in json.loads(done.stdout)["table-density"]["models"]}
    assert rows["var-inputs"]["score"] > rows["var"]["score"] + 1
    assert rows["var-inputs"]["inputs"] == "heat"
    again = call("compare", "--config", out / "run.toml", "--out", tmp_path / "again", "--json")
    assert again.exit_code == 0, again.output
    assert {row["model"]: row["score"] for row in json.loads(again.stdout)["table-density"]["models"]} == pytest.approx(
        {name: row["score"] for name, row in rows.items()}, rel=1e-9
    )
    refused = call("compare", *read)
    assert "--models names var-inputs, which reads inputs, but there are none; pass --inputs" in refused.stderr

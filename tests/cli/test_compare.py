"""``seqmodels compare``, as a user calls it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seqmodels import data
from seqmodels.evaluation.runs import run


def test_help_names_the_commands_and_teaches(call):
    shown = call("--help").stdout
    for command in ("compare", "fit", "score", "sample", "inspect", "report"):
        assert command in shown
        told = call(command, "--help").stdout
        assert f"Example: seqmodels {command}" in " ".join(told.split())
        assert "The figures" in told or command == "sample"
        assert "Exit codes" in told
        assert "--json" in told


@pytest.mark.usefixtures("_undrawn")
def test_a_text_file_until_it_changes(call, book, tmp_path):
    out = tmp_path / "out"
    done = call("compare", "--text", book, "--models", "iid", "--quick", "--steps", 1, "--out", out)
    assert done.exit_code == 0, done.output
    assert "nats per byte" in done.stdout
    assert str(out / "text-density.html") in done.stdout.splitlines()[-1]
    written = tomllib.loads((out / "run.toml").read_text())
    sha256 = written["data"]["text"].pop("sha256")
    assert written["data"]["text"] == {"class": "TextFiles", "path": "../book.txt", "cut": "whole"}
    assert sha256 == data.sha256(data.text(book))
    assert written["budget"] == {"steps": 1}
    assert [*written["models"]["text-density"]] == ["iid"]
    assert written["models"]["text-density"]["iid"]["max_iter"] == 1
    book.write_text(book.read_text() + "!")
    refused = call("compare", "--config", out / "run.toml")
    assert "book.txt has changed since the run was written" in one_line(refused)


@pytest.mark.usefixtures("_plain_pages")
def test_of_two_runs_into_one_folder_the_second_is_refused_before_it_reads_or_writes(call, book, tmp_path, monkeypatch):
    out, refused = tmp_path / "out", []
    write_figures = run.write_figures

    def with_a_second(*arguments: object) -> None:
        refused.append(call("compare", "--text", tmp_path / "missing.txt", "--out", out))
        write_figures(*arguments)

    monkeypatch.setattr(run, "write_figures", with_a_second)
    first = call("compare", "--text", book, "--models", "iid", "--quick", "--steps", 1, "--out", out)
    assert first.exit_code == 0, first.output
    assert "is being written to by another run (process" in one_line(refused[0])
    assert "book.txt" in (out / "run.toml").read_text()
    assert not (out / ".seqmodels.lock").exists()


@pytest.mark.usefixtures("_plain_pages")
def test_a_run_is_had_again(call, book, tmp_path):
    config, out, again = tmp_path / "mine.toml", tmp_path / "out", tmp_path / "again"
    config.write_text(
        'random_state = 3\nquick = true\n[data.text]\nclass = "TextFiles"\npath = "book.txt"\n'
        '[models.lstm]\nclass = "LSTM"\nd_model = 8\nmax_steps = 3\noptimizer = {class = "AdamW"}\n'
        '[models.hmm]\nclass = "HMM"\nn_states = 2\nmax_iter = 3\n'
    )
    assert call("compare", "--config", config, "--out", out).exit_code == 0
    second = call("compare", "--config", out / "run.toml", "--out", again, "--json")
    assert second.exit_code == 0, second.output
    table = pd.read_csv(out / "text-density.csv")
    rows = json.loads(second.stdout)["text-density"]["models"]
    assert [row["model"] for row in rows] == table["model"].tolist()
    assert [row["score"] for row in rows] == pytest.approx(table["score"].tolist(), rel=1e-6)
    first, then = (tomllib.loads((folder / "run.toml").read_text()) for folder in (out, again))
    assert first["models"] == then["models"]
    assert first["data"] == then["data"]
    assert first["models"]["text-density"]["lstm"]["training"]["optimizer"]["class"] == "AdamW"


@pytest.mark.slow
@pytest.mark.usefixtures("_plain_pages")
def test_recordings_tables_and_pairs(call, recordings, tmp_path):
    frame = pd.DataFrame({"who": np.repeat(np.arange(12), 9), "x": np.random.default_rng(0).normal(size=108)})
    frame.assign(y=frame["x"] ** 2).to_csv(tmp_path / "walks.csv", index=False)
    (tmp_path / "en").write_text("one\ntwo\nthree\nfour\n" * 5)
    (tmp_path / "fr").write_text("un\ndeux\ntrois\nquatre\n" * 5)
    given = ["--audio", recordings, "--csv", tmp_path / "walks.csv", "--by", "who"]
    given += ["--pairs", tmp_path / "en", tmp_path / "fr"]
    out = tmp_path / "out"
    result = call("compare", *given, "--models", "iid", "--quick", "--steps", 1, "--out", out, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    tables = json.loads(result.stdout)
    units = {name: table["unit"] for name, table in tables.items()}
    assert units == {"speech-density": "frame", "table-density": "frame", "pairs": "byte"}
    assert all(Path(table["page"]).is_file() for table in tables.values())
    assert {row["model"] for row in tables["pairs"]["models"]} == {"iid"}


@pytest.mark.usefixtures("_plain_pages")
def test_models_of_other_data_are_left_out_with_a_warning_and_none_is_added(call, tmp_path):
    frame = pd.DataFrame({"who": np.repeat(np.arange(6), 9), "x": np.random.default_rng(0).normal(size=54)})
    frame.to_csv(tmp_path / "walks.csv", index=False)
    given = ("compare", "--data", tmp_path / "walks.csv", "--by", "who", "--steps", 1, "--out", tmp_path / "out")
    done = call(*given, "--models", "ngram,var", "--json")
    assert done.exit_code == 0, done.output
    (table,) = json.loads(done.stdout).values()
    assert table["baseline"] == "var"
    assert {row["model"] for row in table["models"]} == {"var", "iid"}  # which is a reference, and not fitted
    assert "ngram, which is a model of text and symbols" in done.stderr
    assert "none of the models ngram is for these data" in call(*given, "--models", "ngram").stderr


@pytest.mark.usefixtures("_plain_pages")
def test_a_failing_model_is_exit_code_1_and_the_others_stand(call, book, tmp_path):
    (tmp_path / "run.toml").write_text(
        '[data.text]\nclass = "TextFiles"\npath = "book.txt"\n'
        '[models.good]\nclass = "NGram"\norder = 2\n[models.bad]\nclass = "NGram"\norder = 2\n'
        'encoding = {class = "Symbols"}\n'
    )
    result = call("compare", "--config", tmp_path / "run.toml", "--out", tmp_path / "out")
    assert result.exit_code == 1, result.output
    assert "good: -" in result.stdout
    assert "bad: failed" in result.stdout
    assert "warning: bad failed" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "given", "said"),
    [
        ("bad.txt", b"caf\xe9 ", "--text", "is not UTF-8"),
        ("empty.txt", b"", "--text", "holds only blank text"),
        ("missing.txt", None, "--text", "there is no file or folder"),
        ("folder/notes.txt", b"x", "--audio", "has no .wav file; convert"),
        ("folder/broken.wav", b"RIFF", "--audio", "is not a WAV file"),
        ("rows.csv", b"a,b\n1,2\n", "--csv", "--by"),
        ("rows.csv", b"a,b\n1,2\n", "--data", "--by"),
        ("run.toml", b"seeds = \n", "--config", "is not TOML"),
        ("run.toml", b"", "--config", "there is no data"),
        ("run.toml", b"turtles = 1", "--config", "'turtles'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(call, tmp_path, name, content, given, said):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    if content is not None:
        file.write_bytes(content)
    result = call("compare", given, file.parent if given == "--audio" else file, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert said in one_line(result)
    assert not (tmp_path / "out").exists()


def test_bad_choices_are_one_line_too(call, book, tmp_path):
    assert "no model 'gpt'" in one_line(call("compare", "--text", book, "--models", "gpt"))
    assert "above zero" in one_line(call("compare", "--text", book, "--quick", "--seconds", 0))
    (tmp_path / "run.toml").write_text("")
    both = call("compare", "--config", tmp_path / "run.toml", "--text", book)
    assert "--text cannot be given too" in one_line(both)
    short = tmp_path / "short.txt"
    short.write_text("Hello there.")
    assert "--quick" in one_line(call("compare", "--text", short, "--out", tmp_path / "out"))


def one_line(result) -> str:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("seqmodels: ")
    return lines[0]


@pytest.mark.slow
@pytest.mark.usefixtures("_plain_pages")
def test_another_comparison_is_not_overwritten_unasked(call, book, tmp_path):
    out = tmp_path / "out"
    given = ("compare", "--text", book, "--models", "iid", "--quick", "--out", out, "--steps")
    assert call(*given, 1).exit_code == 0
    assert call(*given, 1).exit_code == 0  # the same run
    before = (out / "run.toml").read_bytes()
    said = one_line(call(*given, 2))
    assert "--overwrite" in said
    assert str(out / "run.toml") in said
    assert (out / "run.toml").read_bytes() == before
    assert call(*given, 2, "--overwrite").exit_code == 0
    assert tomllib.loads((out / "run.toml").read_text())["budget"] == {"steps": 2}

"""Bad options of every command: exit code 2 and one line, before any data are read, so that nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

import seqmodels as sm
from seqmodels.cli import app

NOTHING = "none.csv"  # data that are not there: whoever reads them first says so
SMALL = {
    "ngram": lambda: sm.NGram(2).fit(["to be or not to be"] * 3),
    "hmm": lambda: sm.HMM(2, max_iter=1, observation=sm.GaussianMixture(1)).fit(
        [np.random.default_rng(0).normal(size=(20, 2))]
    ),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of text, one of vectors, a text, a folder and a pipe."""
    folder = tmp_path_factory.mktemp("checks")
    for name, fitted in SMALL.items():
        fitted().save(folder / f"{name}.safetensors")
    (folder / "book.txt").write_text("to be or not to be that is")
    (folder / "series.csv").write_text("a,b\n0.5,1\n1.5,2\n")
    (folder / "no.safetensors").write_bytes(b"abc")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    return folder


def ended(folder: Path, line: str) -> Result:
    before = Path.cwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(app, line.split(" "))
    finally:
        os.chdir(before)


LONG = "9" * 5000
FIT, CHOOSE = f"fit hmm {NOTHING}", f"choose hmm {NOTHING} --values n_states=1..3"
COMPARE, SCORE, SAMPLE = f"compare --data {NOTHING}", f"score ngram.safetensors {NOTHING}", "sample ngram.safetensors"
AUDIT, DECODE = f"audit ngram.safetensors {NOTHING}", f"decode hmm.safetensors {NOTHING}"
CLASSIFY, FORECAST = f"classify hmm {NOTHING}", f"forecast hmm.safetensors {NOTHING}"
ANOMALIES = f"anomalies hmm.safetensors {NOTHING} {NOTHING}"
BAD = [
    *(
        (f"{command} {option} .", f"{option} is ., a folder; pass the name of a file")
        for command, option in (
            (FIT, "--out"),
            (CHOOSE, "--out"),
            (CHOOSE, "--save"),
            (SCORE, "--steps"),
            (SAMPLE, "--out"),
            (AUDIT, "--out"),
            (DECODE, "--out"),
            (DECODE, "--plot"),
            (CLASSIFY, "--out"),
            (CLASSIFY, "--save"),
            (ANOMALIES, "--out"),
            (ANOMALIES, "--save"),
            (ANOMALIES, "--plot"),
            (FORECAST, "--out"),
            (FORECAST, "--plot"),
        )
    ),
    *(
        (f"{command} {option} none/x{ending}", "there is no folder none to write x")
        for command, option, ending in (
            (FIT, "--out", ".safetensors"),
            (CHOOSE, "--plot", ".png"),
            (SCORE, "--steps", ".csv"),
            (SAMPLE, "--out", ""),
            (FORECAST, "--plot", ".png"),
            (DECODE, "--out", ".csv"),
            (ANOMALIES, "--save", ".safetensors"),
        )
    ),
    *(
        (f"{command} --seed -1", "Invalid value for '--seed'")
        for command in (FIT, CHOOSE, COMPARE, SAMPLE, AUDIT, CLASSIFY, FORECAST)
    ),
    (f"{FIT} --set n_states=-1", "n_states is -1; pass at least 1"),
    ("fit ngram none.txt --set order=-1", "order is -1; pass at least 1"),
    *(
        (f"fit lstm none.txt --set {setting}", said)
        for setting, said in (
            ("lr=nan", "lr of LSTM is nan"),
            ("lr=inf", "lr is inf"),
            ("device=x", "device is 'x'; pass 'auto'"),
            ("dtype=x", "dtype is 'x'; pass one of"),
            ("observation__n_components=0", "n_components of GaussianMixture is 0"),
            ("observation__rank=-1", "rank of GaussianMixture is -1"),
            ("training__checkpoint=none/run.ckpt", "there is no folder none"),
            ("training__resume_from=run.ckpt", "resume_from is run.ckpt, but there is no such file"),
        )
    ),
    (f"{CLASSIFY} --set n_states=0", "n_states is 0; pass at least 1"),
    (f"{FIT} --set n_states={LONG}", "--set n_states has a value of 5,000 characters"),
    (f"{FIT} --set n_states={'[' * 2000}", "--set n_states has a value of 2,000 characters"),
    (f"{FIT} --seconds nan", "seconds is nan; pass a number"),
    (f"{FIT} --out model.wav", "--out is model.wav, but what is written is a model"),
    ("fit ngram book.txt --out book.txt", "--out is book.txt, but what is written is a model"),
    ("fit hmm pipe", "pipe is a pipe, not a file on disk"),
    (f"choose hmm {NOTHING} --values n_states=1..99999999999", "has 99,999,999,999 values, each of which is fitted"),
    (f"choose hmm {NOTHING} --values n_states=1..{LONG}", "--values has a value of 5,012 characters"),
    (f"choose hmm {NOTHING} --values n_states=0..3", "n_states is 0; pass at least 1"),
    (f"choose hmm {NOTHING} --values nothing=1,2", "HMM has no parameter 'nothing'"),
    (f"{CHOOSE} --jobs 0", "--jobs is 0; pass the number of fits to run at a time"),
    (f"{CHOOSE} --folds 1", "folds is 1; pass at least 2"),
    (f"{CHOOSE} --plot a.txt", "--plot is a.txt; its name should end in .png"),
    (f"{CHOOSE} --out a.csv --plot a.png --save a.png", "--save is a.png, but what is written is a model"),
    (f"{CHOOSE} --out a --save a", "--save and --out name the same file, a; pass two names"),
    (f"{COMPARE} --models ,", "--models is ',', which names no model"),
    (f"{COMPARE} --models hmm,nothing", "there is no model 'nothing'; choose from"),
    (f"{COMPARE} --jobs 0", "--jobs is 0; pass the number of fits to run at a time"),
    (f"{COMPARE} --steps 0", "steps of the budget is 0"),
    (f"{COMPARE} --out book.txt", "--out is book.txt, but book.txt is a file; pass a folder"),
    (f"{COMPARE} --out book.txt/x", "is a file; pass a folder"),
    ("compare --by who", "--by says how a table is read, but there is none"),
    ("compare --config pipe", "pipe is a pipe, not a file on disk"),
    ("compare --config book.txt", "book.txt is not TOML"),
    ("compare --text pipe", "pipe is a pipe, not a file on disk"),
    (
        "score ngram.safetensors book.txt --steps book.txt",
        "--steps is book.txt, which the command reads",
    ),
    (f"{SCORE} --steps steps.wav", "--steps is steps.wav, but what is written is text"),
    ("score pipe book.txt", "there is no file pipe"),
    ("score no.safetensors book.txt", "no.safetensors"),
    (f"{DECODE} --sequence a", "--sequence is 'a', but there is no picture that it is for"),
    (f"{DECODE} --state-names a", "--state-names has 1 names, but the model has 2 states"),
    (f"{DECODE} --state-names a,a", "--state-names is 'a,a'; pass 2 different names"),
    (f"{CLASSIFY} --folds 1", "--folds is 1"),
    (f"{ANOMALIES} --quantile 2", "--quantile is 2.0; pass a number between 0 and 1"),
    (f"{ANOMALIES} --per 0", "--per is '0'; pass step, sequence or a number of steps"),
    (f"{ANOMALIES} --per {LONG}", "--per has a value of 5,000 characters"),
    (f"{ANOMALIES} --plot a.txt", "--plot is a.txt; its name should end in .png"),
    (f"{SAMPLE} --out x.wav", "--out is x.wav, but what is written is text"),
    (f"{SAMPLE} --out x.xlsx", "--out is x.xlsx, but what is written is text"),
    ("sample hmm.safetensors --out x.wav", "--out is x.wav, but what is written is text, such as .csv"),
    (f"{SAMPLE} -n 100000 --length 100000", "draw at most 1,000,000,000 at a time"),
    (f"{SAMPLE} --length 0", "Invalid value for '--length'"),
    (f"{SAMPLE} --temperature nan", "temperature is nan"),
    (f"{FORECAST} --quantiles 2", "--quantiles is '2'; pass increasing numbers between 0 and 1"),
    (f"{FORECAST} --quantiles nan", "--quantiles is 'nan'"),
    (f"{FORECAST} -k 99999999999", "Invalid value for '-k'"),
    (f"{FORECAST} --sequence a", "--sequence is 'a', but there is no picture that it is for"),
    ("forecast hmm.safetensors pipe", "pipe is a pipe, not a file on disk"),
    ("inspect pipe", "there is no file pipe"),
    ("report pipe", "there is no folder pipe"),
    ("report folder --out book.txt", "--out is book.txt, but book.txt is a file"),
]


@pytest.mark.parametrize(("line", "said"), BAD, ids=[f"{line:.70}: {said:.30}" for line, said in BAD])
def test_bad_options_are_said_in_one_line_before_anything_is_read(here: Path, line: str, said: str) -> None:
    there = sorted(here.iterdir())
    done = ended(here, line)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert said in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 or lines[0].startswith("Usage: ")  # of what the shell's parser refuses
    assert sorted(here.iterdir()) == there
    assert (here / "book.txt").read_text() == "to be or not to be that is"


def test_what_a_fit_refuses_is_bad_input(here: Path) -> None:
    (here / "constant.csv").write_text("a,b\n" + "0.5,1\n" * 30)
    done = ended(here, "fit hmm constant.csv --out m.safetensors -q")
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1


def test_what_there_is_no_memory_for_is_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(sm.NGram, "fit", fit)
    done = ended(here, "fit ngram book.txt --out m.safetensors -q")
    assert done.exit_code == 1
    assert done.stderr == "seqmodels: there is not enough memory; pass less data or a smaller model\n"

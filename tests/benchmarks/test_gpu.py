"""The figures of a GPU, in their smallest form on the CPU: every part runs, resumes, and names what it misses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import gpu
import numpy as np
import pandas as pd
import pytest
from workloads import make

import seqmodels as sm

TINY = gpu.Run("cpu", True)


def ended(pid: int) -> bool:
    """Whether a process is gone, or is dead and perhaps not yet waited for."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    "part", ["agreement", "em", "nanogpt", "gpt2", "recurrent", "decoding", "memory", "long_sequence"]
)
def test_a_part_runs_in_its_smallest_size(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    run = replace(TINY, out=tmp_path)
    assert gpu.run_part(part, run) == "whole"
    table = pd.read_csv(tmp_path / f"{part}.csv")
    assert (table["device"] == "cpu").all()
    assert (table["state"] == "whole").all()
    assert len(capsys.readouterr().out.splitlines()) == len(table) > 0
    assert gpu.is_done(part, run)
    assert not gpu.is_done(part, replace(run, tiny=False))
    assert str(table["what"][0]) in gpu.summary(run)


def test_what_is_missing_is_named_and_without_data_they_are_made_up(tmp_path: Path) -> None:
    with pytest.raises(gpu.Missing, match="the packages there_is_none, nor_this"):
        gpu.needs("there_is_none", "numpy", "nor_this")
    with pytest.raises(gpu.Missing, match=r"train\.de"):
        gpu.lines(tmp_path, "train.de")
    text, is_given = TINY.characters()
    assert (len(text), is_given) == (20_000, False)
    assert len(TINY.pairs_of_sentences()["train"][0]) == 60
    (tmp_path / "text").write_text("to be")
    assert replace(TINY, text=tmp_path / "text").characters() == ("to be", True)
    assert gpu.in_processes([], TINY, [], 60.0) == {}


def test_a_part_goes_on_where_it_was_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five measurements one is whole, one fails, one misses something, one is ended in the middle, one is left."""
    run, begun = replace(TINY, out=tmp_path), list[str]()

    def rows(name: str) -> Iterator[gpu.Row]:
        begun.append(name)
        yield {"what": name, "value": 1.0}
        if name == "bad":
            raise ArithmeticError("no memory left")
        if name == "lacks":
            raise gpu.Missing("the package x")
        if name == "ended":
            raise KeyboardInterrupt
        yield {"what": f"{name} too", "value": 2.0, "unit": "s", "goal": 1}

    def part(names: list[str]) -> list[gpu.Measurement]:
        return [gpu.Measurement(name, 1, partial(rows, name)) for name in names]

    names = ["good", "bad", "lacks", "ended", "left"]
    monkeypatch.setitem(gpu.PARTS, "em", lambda run: part(names))
    with pytest.raises(KeyboardInterrupt):
        gpu.run_part("em", run)
    table = pd.read_csv(tmp_path / "em.unfinished.csv")
    assert table["what"].tolist() == ["good", "good too", "bad", "bad", "lacks", "lacks", "ended"]
    assert table["state"].tolist() == ["whole", "whole", "failed", "failed", "missing", "missing", "ended"]
    assert table["note"][3] == "failed: ArithmeticError: no memory left"
    assert table["note"][5] == "needs the package x"
    assert not gpu.is_done("em", run)
    assert "NOT REACHED" in gpu.summary(run)
    begun.clear()
    monkeypatch.setitem(gpu.PARTS, "em", lambda run: part([n for n in names if n != "ended"]))
    assert gpu.run_part("em", run) == "failed"
    assert begun == ["left", "bad", "lacks"]
    assert gpu.run_part("em", replace(run, tiny=False), seconds=30) == "left"


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert gpu.exit_code(["sh", "-c", f"sleep 600 & echo $! > '{pid}'; wait"], 2.0) is None
    for _ in range(1000):  # a killed process may be told of as running for a moment yet
        if ended(int(pid.read_text())):
            break
        time.sleep(0.02)
    assert ended(int(pid.read_text()))
    assert gpu.exit_code(["sh", "-c", "exit 4"], 60.0) == 4


def test_the_options_of_each_process_are_those_given() -> None:
    assert gpu.without_only(["--tiny", "--only", "em", "tests", "--minutes", "9", "--device", "cpu"]) == [
        "--tiny",
        "--device",
        "cpu",
    ]
    assert gpu.without_only(["--only", "em"]) == []


def test_loss_in_windows_leaves_out_the_first_of_each() -> None:
    model = sm.Transformer(
        d_model=8, n_layers=1, context=4, max_steps=1, length="given", encoding=sm.Bytes(), device="cpu"
    ).fit(["abcabcabc" * 20], validation=None)
    steps = np.concatenate([model.log_prob_steps([window])[0][1:] for window in ("abcab", "bcabc")])
    assert gpu.loss_in_windows(model, "abcabcabc") == pytest.approx(-steps.mean())


def test_workloads_grow_by_copies_and_states() -> None:
    base = make("W4").first(3)
    twice = gpu.repeated(base, 2)
    assert (len(twice.x), len(twice.lengths)) == (2 * len(base.x), 6)
    larger = gpu.with_states(base, 300)
    assert larger.transition.shape == (300, 300)
    assert np.allclose(np.asarray(larger.emission).sum(1), 1)
    assert gpu.plain_loop(gpu.make("W4").first(2), "cpu") > 0


def test_a_share_of_the_roof_counts_bytes_and_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "device_name", lambda device: "NVIDIA H200 141GB")
    workload = make("W4").first(2)
    n, k = len(workload.x), len(workload.initial)
    shares = gpu.shares(TINY, workload, 1e-3)
    assert shares["share_of_memory"] == pytest.approx(20 * n * k / 1e-3 / 4.8e12)
    assert shares["share_of_arithmetic"] == pytest.approx(6 * n * k**2 / 1e-3 / 67e12)

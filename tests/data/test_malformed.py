"""Malformed files of every format are refused by name, or warned of; none hangs."""

from __future__ import annotations

import gzip
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.data import csv_files, file_contents, read
from seqmodels.sequences.columns import timed_rows
from tests.malformed import PARTS, X, midi, npy, npz, outcome, wav

LONGEST = 20  # seconds, of all files of a part


@pytest.fixture
def _ends() -> Iterator[None]:
    """Fails a test that does not end."""

    def fail(*_: Any) -> None:
        pytest.fail("a reader does not end")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_ends")
@pytest.mark.parametrize("part", PARTS, ids=[part.__name__ for part in PARTS])
def test_malformed_files_are_refused_by_name(tmp_path: Path, part: Callable[[], Any]) -> None:
    for package in {
        "recordings": ["soundfile"],
        "pieces": ["mido"],
        "special": ["soundfile", "mido"],
        "bombs": ["pyarrow"],
    }.get(part.__name__, ()):
        pytest.importorskip(package)
    wrong = []
    for i, case in enumerate(each for each in part() if not each.is_large):
        folder = tmp_path / str(i)
        folder.mkdir()
        case.make(folder / case.name)
        came, words = outcome(case, folder / case.name)
        if came != case.expected:
            wrong.append(f"{case}: {came}, not {case.expected}: {words}"[:400])
    assert wrong == []


def test_what_unpacks_to_far_more_than_the_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_contents, "UNPACKED_ANYHOW", 1 << 18)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b" a" * (1 << 18)))
    with pytest.raises(ValueError, match=r"a.txt.gz has [\d,]+ bytes and unpacks to more than 262,144, .* unpack it"):
        read(tmp_path / "a.txt.gz")
    (tmp_path / "a.npz").write_bytes(npz(("a.npy", npy(np.zeros(1 << 16)))))
    with pytest.raises(ValueError, match=r"a.npz .* of [\d,]+ bytes it unpacks to 524,416, .* numpy.savez"):
        read(tmp_path / "a.npz")
    monkeypatch.setattr(file_contents, "UNPACKED_ANYHOW", 1 << 20)
    assert read(tmp_path / "a.txt.gz").n_units.tolist() == [1 << 19]
    assert read(tmp_path / "a.npz").n_units.tolist() == [1 << 16]
    monkeypatch.setattr(file_contents, "UNPACKED_ANYHOW", 1)
    monkeypatch.setattr(file_contents, "UNPACKED_RATIO", 2000)  # more than deflate has
    assert read(tmp_path / "a.txt.gz").n_units.tolist() == [1 << 19]


def test_what_is_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("to be " * 9)
    np.save(tmp_path / "a.npy", X)
    monkeypatch.setattr("seqmodels.common.main_memory.main_memory", lambda: 50.0)
    for name in ("a.txt", "a.npy"):
        with pytest.raises(ValueError, match=rf"{name} would take .* bytes of memory, .*data.on_disk"):
            read(tmp_path / name)


def test_good_files_are_read_as_before(tmp_path: Path) -> None:
    """What is checked is not refused where it agrees."""
    (tmp_path / "a.npz").write_bytes(npz(("walk.npy", npy(X)), ("sit.npy", npy(np.asfortranarray(X + 1)))))
    assert np.asarray(read(tmp_path / "a.npz")["sit"]).tolist() == (X + 1).tolist()
    (tmp_path / "a.wav").write_bytes(wav(801, channels=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(sm.data.audio(tmp_path / "a.wav", features="waveform")[0]) == 801
    (tmp_path / "a.ts").write_text(
        "@univariate false\n@dimensions 2\n@equalLength true\n@seriesLength 3\n@classLabel true one two\n@data\n"
        "1,2,?:4,5,?:one\n1,2,3:4,5,6:two\n"
    )
    assert read(tmp_path / "a.ts").describe().endswith("labels one, two")
    (tmp_path / "a.csv").write_text('a,b\n1.5,"x\ny"\n2.5,\n\n3.5,"z, w"\n')
    with pytest.warns(UserWarning, match=r"left out b \(words\)"):
        assert np.asarray(read(tmp_path / "a.csv")[0]).tolist() == [[1.5], [2.5], [3.5]]


def test_a_line_of_a_csv_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n"1\n",2\n\n3\n')
    with pytest.raises(ValueError, match=r"a.csv:5 has 1 cell, but the header has 2; write all of them"):
        read(tmp_path / "a.csv")


def test_frames_are_held_to_the_same_rules() -> None:
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": [1 + 2j, 2 + 0j]})
    with pytest.raises(ValueError, match="the frame: the column 'b' holds complex numbers; model their real"):
        sm.data.table(frame)
    with pytest.raises(ValueError, match="the column 'b' holds complex numbers"):
        sm.Sequences.from_frame(frame)
    with pytest.raises(ValueError, match="the frame has two columns called 'a'; give them"):
        sm.data.table(pd.DataFrame([[1.5, 2.5]], columns=["a", "a"]))
    with pytest.raises(ValueError, match="row 1 of the frame has an infinite number under 'a'; correct it"):
        sm.data.table(pd.DataFrame({"a": [1.5, np.inf]}))
    wide = pd.DataFrame(np.zeros((2, csv_files.MAX_COLUMNS + 1)))
    with pytest.raises(ValueError, match=r"the frame has 10,001 columns, .* 10,000 columns at most; exchange"):
        sm.data.table(wide)
    with pytest.warns(UserWarning, match=r"1 of 2 sequences have no label, the first is 'q'"):
        sm.data.table(
            pd.DataFrame({"who": ["p", "p", "q", "q"], "a": [1.5, 2, 3, 4], "label": ["x", "x", None, None]}), by="who"
        )


@pytest.mark.slow
def test_a_table_of_many_columns_takes_no_time_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of numbers are not looked at one by one: a frame of 4,000 took 3 s."""
    looked_at = []
    monkeypatch.setattr(timed_rows, "read_dates", lambda column, **_: looked_at.append(column.name))
    x = sm.data.table(pd.DataFrame(np.arange(8000.0).reshape(2, 4000) + 0.5))
    assert (x.n_features, looked_at) == (4000, [])


def test_rows_of_a_dataset_have_the_same_columns() -> None:
    with pytest.raises(ValueError, match="row 1 of the dataset has no column 'tokens', which row 0 has"):
        sm.data.from_rows([{"tokens": ["a"]}, {"words": ["a"]}], "tokens")


def test_a_time_of_a_piece_that_is_damaged_is_named(tmp_path: Path) -> None:
    pytest.importorskip("mido")
    for steps in (0.5, float("nan"), "4"):
        with pytest.raises(ValueError, match=r"steps_per_beat is .*; pass an integer from 1 on"):
            sm.data.midi(tmp_path / "a.mid", steps_per_beat=steps)  # type: ignore[arg-type]
    (tmp_path / "a.mid").write_bytes(midi(b"\x00\x90\x3c\x40\x90\x80\x00\x80\x3c\x00"))  # 2^18 beats
    with pytest.raises(ValueError, match=r"a.mid says that a note sounds until beat 262,144 or later, but a piece has"):
        read(tmp_path / "a.mid")

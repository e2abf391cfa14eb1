"""MIDI files, written and read back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.data.midi import KEYS

TICKS = 480  # to a beat


def write(path: Path, *tracks: list[tuple[str, int, int, int]], kind: int = 1, channel: int = 0) -> Path:
    """Tracks of messages ``(type, note, velocity, ticks after the message before)``."""
    mido = pytest.importorskip("mido")
    file = mido.MidiFile(type=kind, ticks_per_beat=TICKS)
    for messages in tracks:
        track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=400_000, time=0)])
        track += [
            mido.Message(name, note=note, velocity=velocity, time=time, channel=channel)
            for name, note, velocity, time in messages
        ]
        file.tracks.append(track)
    path.parent.mkdir(parents=True, exist_ok=True)
    file.save(path)
    return path


def sounding(roll: Any) -> list[list[str]]:
    return [[KEYS[k] for k in np.flatnonzero(step)] for step in np.asarray(roll)]


def test_notes_are_read_back(tmp_path: Path) -> None:
    melody = [("note_on", 60, 64, 0), ("note_off", 60, 0, 480), ("note_on", 62, 64, 0), ("note_on", 62, 0, 240)]
    bass = [("note_on", 36, 64, 470), ("note_off", 36, 0, 20), ("note_on", 48, 10, 110)]  # the last is not released
    x = sm.data.midi(write(tmp_path / "piece.mid", melody, bass))
    assert sounding(x[0]) == [["C4"]] * 4 + [["C2", "D4"], ["C3", "D4"]]
    assert (x.names, x.features, x.time_unit) == (["piece"], KEYS, "beat")
    assert x.times is not None
    assert x.times[0].tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]
    assert sounding(sm.data.midi(tmp_path / "piece.mid", steps_per_beat=1)[0]) == [["C4"], ["C2", "C3", "D4"]]


def test_a_note_struck_while_it_sounds_lasts_to_its_last_release(tmp_path: Path) -> None:
    twice = [("note_on", 60, 9, 0), ("note_on", 60, 9, 120), ("note_off", 60, 0, 120), ("note_off", 60, 0, 240)]
    assert sounding(sm.data.midi(write(tmp_path / "a.mid", twice))[0]) == [["C4"]] * 4


def test_a_folder_of_files_is_a_sequence_each(tmp_path: Path) -> None:
    notes = [("note_on", 60, 64, 0), ("note_off", 60, 0, 960)]
    for name in ("bach/one.mid", "bach/two.MIDI", "ives/three.mid"):
        write(tmp_path / name, notes)
    x = sm.data.read(tmp_path)
    assert (x.names, x.labels) == (["bach/one", "bach/two", "ives/three"], ["bach", "bach", "ives"])
    assert (x.n_features, x.features) == (88, KEYS)
    model = sm.HMM(2, observation=sm.Bernoulli(pseudocount=1.0), max_iter=2).fit(x)
    assert model.sample(length=3, random_state=0)[0].shape == (3, 88)
    with pytest.raises(ValueError, match=r"one.mid holds vectors, so its kind is not 'text'"):
        sm.data.read(tmp_path, kind="text")


def test_what_is_no_piano_roll_is_refused(tmp_path: Path) -> None:
    notes = [("note_on", 60, 64, 0), ("note_off", 60, 0, 960)]
    for says, file in (
        ("type 2", write(tmp_path / "a.mid", notes, notes, kind=2)),
        ("no notes", write(tmp_path / "b.mid", notes, channel=9)),
        ("the note 20, but a piano has 21 to 108", write(tmp_path / "c.mid", [("note_on", 20, 64, 0)])),
        ("steps_per_beat is 0", tmp_path / "a.mid"),
    ):
        with pytest.raises(ValueError, match=says):
            sm.data.midi(file, steps_per_beat=0 if "steps" in says else 4)
    whole = (tmp_path / "a.mid").read_bytes()
    for content in (b"no music", whole[:30], whole[:-3], b""):
        (tmp_path / "d.mid").write_bytes(content)
        with pytest.raises(ValueError, match=r"d.mid cannot be read as a MIDI file: \w"):
            sm.data.midi(tmp_path / "d.mid")
    with pytest.raises(FileNotFoundError):
        sm.data.midi(tmp_path / "none.mid")


def test_without_mido_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mido", None)
    with pytest.raises(ImportError, match=r"seqmodels\[music\]"):
        sm.data.midi(tmp_path / "a.mid")


def test_a_time_halfway_between_two_steps_is_of_the_later(tmp_path: Path) -> None:
    notes = [("note_on", 60, 64, TICKS // 8), ("note_off", 60, 0, TICKS // 4)]  # from step 0.5 to 1.5
    assert sounding(sm.data.midi(write(tmp_path / "a.mid", notes))[0]) == [[], ["C4"]]

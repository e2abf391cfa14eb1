"""Reading MIDI files as piano rolls: which of 88 keys sound at each step."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import PositiveInt, checked
from seqmodels.data.file_contents import read_bytes
from seqmodels.data.file_format import FileFormat
from seqmodels.sequences import Sequences

LOWEST, N_KEYS = 21, 88  # the keys of a piano, from A0, which is the MIDI number 21, to C8
DRUMS = 9  # the channel whose notes are instruments, not pitches
PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
MAX_BEATS = 100_000  # the longest piece: 14 hours at 120 beats a minute
# A number in a MIDI file has at most three bytes of 128 or more before its last. In a title such bytes may also follow
# each other, so only very many in a row are refused.
ENDLESS_NUMBER = re.compile(rb"[\x80-\xff]{1024}")
KEYS = tuple(f"{PITCH_CLASSES[n % 12]}{n // 12 - 1}" for n in range(LOWEST, LOWEST + N_KEYS))

Note = tuple[int, int, int]  # MIDI number, first tick, tick of the release


@checked
def midi(path: str | Path, *, steps_per_beat: PositiveInt = 4) -> Sequences:
    """Read a MIDI file as one sequence of zeros and ones, shape ``(T, 88)``, that says which keys sound at each step.

    It suits the observations ``Bernoulli`` and ``Chords``. All tracks and channels are combined, without drums. A note
    sounds from the step nearest to its beginning to the step nearest to its release, and for at least one step. Tempo
    and loudness are dropped, and a note that is struck again at once looks like one that is held. The pedal does not
    lengthen notes.

    Args:
        path: the path of the file.
        steps_per_beat: number of steps in a quarter note.

    Returns:
        One sequence, named after the file, with features named after the keys, ``"A0"`` to ``"C8"``, and times in
            beats.

    Raises:
        ImportError: mido is not installed.
        ValueError: the file is not a MIDI file or is damaged; it has no notes, or notes beyond the keys of a piano; its
            tracks are separate pieces (type 2); it lasts more than ``MAX_BEATS`` beats or does not fit into memory; or
            it is a pipe or a device.
    """
    path = Path(path)
    file = _read(path)
    if file.type == 2:
        raise ValueError(f"{path} is a MIDI file of type 2, whose tracks are pieces of their own; save each by itself")
    if file.ticks_per_beat < 1:
        raise ValueError(f"{path} counts time in frames of film, not in beats; save it with ticks per quarter note")
    notes = list(_notes(file.tracks))
    if not notes:
        raise ValueError(f"{path} has no notes, apart from drums; there is nothing to model")
    outside = [number for number, _, _ in notes if not LOWEST <= number < LOWEST + N_KEYS]
    if outside:
        raise ValueError(
            f"{path} has the note {outside[0]}, but a piano has {LOWEST} to {LOWEST + N_KEYS - 1}; leave it out, or "
            "move it by octaves"
        )
    n_beats = max(stop for _, _, stop in notes) // file.ticks_per_beat
    if n_beats > MAX_BEATS:
        raise ValueError(
            f"{path} says that a note sounds until beat {min(n_beats, 10**15):,} or later, but a piece has "
            f"{MAX_BEATS:,} at most; a time in it is damaged, or cut it into several pieces"
        )
    n_bytes = 8.0 * N_KEYS * n_beats * steps_per_beat
    refuse_beyond_memory(f"{path} at {steps_per_beat} steps a beat", n_bytes, "pass a smaller steps_per_beat")
    scale = steps_per_beat / file.ticks_per_beat
    bounds = [(number - LOWEST, _nearest(a * scale), _nearest(b * scale)) for number, a, b in notes]
    bounds = [(key, first, max(stop, first + 1)) for key, first, stop in bounds]
    roll = np.zeros((max(stop for _, _, stop in bounds), N_KEYS))
    for key, first, stop in bounds:
        roll[first:stop, key] = 1.0
    beats = np.arange(len(roll)) / steps_per_beat
    return Sequences([roll], names=[path.stem], features=KEYS, times=[beats], time_unit="beat")


MUSIC = FileFormat("MIDI", (".mid", ".midi"), midi, kind="vectors", binary=(".mid", ".midi"))


def _nearest(step: float) -> int:
    return int(np.floor(step + 0.5))


def _notes(tracks: list[Any]) -> Iterator[Note]:
    """Yield the notes of all tracks as ``(number, first tick, last tick)``, track by track in the order of release.

    A note that is never released lasts until the end of its track. Drums are left out.
    """
    for track in tracks:
        tick, began, held = 0, {}, Counter[tuple[int, int]]()
        for message in track:
            tick += message.time
            if message.type not in ("note_on", "note_off") or message.channel == DRUMS:
                continue
            key = (message.channel, message.note)
            if message.type == "note_on" and message.velocity > 0:
                if not held[key]:
                    began[key] = tick
                held[key] += 1
            elif held[key]:
                held[key] -= 1
                if not held[key]:
                    yield message.note, began[key], tick
        yield from ((number, began[channel, number], tick) for (channel, number), n in held.items() if n)


def _read(path: Path) -> Any:
    mido = _mido()
    raw = read_bytes(path)
    if ENDLESS_NUMBER.search(raw):
        raise ValueError(f"{path} cannot be read as a MIDI file: it has a number of a thousand bytes; it is damaged")
    try:
        file = mido.MidiFile(file=io.BytesIO(raw))
    except (OSError, EOFError, ValueError, TypeError, IndexError, KeyError, mido.KeySignatureError) as error:
        said = "it is cut off" if isinstance(error, EOFError) else str(error) or type(error).__name__
        raise ValueError(f"{path} cannot be read as a MIDI file: {said}; export it again") from error
    n_there = _n_tracks(raw)
    if n_there != len(file.tracks):
        raise ValueError(
            f"{path} says that it has {len(file.tracks)} tracks, but it has {n_there}, of which some would be lost; "
            "export it again"
        )
    return file


def _n_tracks(raw: bytes) -> int:
    """Count the track chunks in the bytes of a MIDI file, without relying on the header."""
    n, at = 0, 8 + int.from_bytes(raw[4:8])
    while raw[at : at + 4] == b"MTrk":
        n, at = n + 1, at + 8 + int.from_bytes(raw[at + 4 : at + 8])
    return n


def _mido() -> Any:
    try:
        import mido
    except ImportError as error:
        raise ImportError("reading MIDI needs mido: pip install 'seqmodels[music]'") from error
    return mido

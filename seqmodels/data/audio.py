"""Reading recordings as ``Sequences``: waveforms or cepstra, with metadata from the file names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seqmodels.common.parameters import checked
from seqmodels.data.file_contents import check_file, files_in, is_file
from seqmodels.data.file_format import FileFormat
from seqmodels.data.mfcc import MFCC
from seqmodels.data.wav_header import REPAIRED, WavHeader
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    import pandas as pd

Features = Literal["mfcc", "waveform"]
DEFAULT_PATTERN = r"(?:^|/)(?P<label>[^_/]+)_(?P<speaker>[^_/]+)_(?P<index>\d+)\.[^./]+$"


@checked
def audio(
    folder: str | Path, *, features: Features = "mfcc", pattern: str | None = None, mfcc: MFCC | None = None
) -> Sequences:
    """Read every ``.wav`` file in a folder, in the order of the paths, as waveforms or cepstra.

    This needs ``pip install 'seqmodels[audio]'``. Several channels are averaged into one. Waveforms are floats in [-1,
    1] and lie on the grid of their bit depth: call ``.dithered()`` before fitting a density to them. Cepstra are
    dithered when they are computed.

    Args:
        folder: path of a folder, whose subfolders are read too, or of one file. All files must have the same sample
            rate.
        features: ``"mfcc"`` for cepstra, shape ``(T, n_coefficients)``; ``"waveform"`` for samples, shape ``(n, 1)``.
        pattern: regular expression to search in each path relative to the folder (with ``/``); its named groups become
            columns of the metadata. None means that ``label_speaker_index.wav`` is recognised if all files have such
            names; otherwise the label of a file is the name of its folder.
        mfcc: how cepstra are computed; None means ``MFCC()``.

    Returns:
        Sequences named after the files without their endings (after the paths if such names repeat). The metadata have
        the columns ``path`` and ``sample_rate`` and a column for each group of the pattern. ``cluster`` is the speaker,
        if the pattern has one; ``index`` is an integer if all values are. Times are in seconds; for cepstra they are
        the beginnings of the frames.

    Raises:
        ImportError: soundfile is not installed.
        FileNotFoundError: there is no such file or folder.
        ValueError: a file has another sample rate, is too short, does not match ``pattern``, is not a WAV file, is cut
            off or contradicts its header, or is a pipe or a device. The message names the file.

    >>> digits = audio("digits")  # doctest: +SKIP
    >>> train, test = digits.split(test=0.2, by="speaker")  # doctest: +SKIP
    """
    path = Path(folder)
    is_one = is_file(path)
    root = path.parent if is_one else path
    paths = [path.name] if is_one else _wav_paths(root)
    metadata = _metadata(root, paths, pattern)
    waveforms, sample_rate = _read_all(root, paths)
    metadata["sample_rate"] = sample_rate
    if features == "waveform":
        items, samples_per_step = [x[:, None] for x in waveforms], 1
    else:
        extract = MFCC() if mfcc is None else mfcc
        items = [_cepstra(extract, name, x, sample_rate) for name, x in zip(paths, waveforms, strict=True)]
        _, samples_per_step = extract.frame(sample_rate)
    times = [np.arange(len(item)) * samples_per_step / sample_rate for item in items]
    return Sequences(items, metadata=metadata, times=times, time_unit="s")


RECORDINGS = FileFormat("WAV", (".wav",), audio, kind="vectors", binary=(".wav",), reader_of_folder=audio)


def _wav_paths(root: Path) -> list[str]:
    if not root.is_dir():
        raise FileNotFoundError(f"there is no file or folder {root}")
    files = (f for f in files_in(root) if f.suffix.lower() == ".wav")
    paths = sorted(check_file(f).relative_to(root).as_posix() for f in files)
    if not paths:
        raise ValueError(
            f"the folder {root} has no .wav file; convert what it has, for example with ffmpeg -i in.mp3 out.wav"
        )
    return paths


def _read_all(root: Path, paths: list[str]) -> tuple[list[np.ndarray], int]:
    soundfile = _soundfile()
    waveforms, first = [], 0
    for path in paths:
        samples, rate = _read(soundfile, root / path)
        first = first or rate
        if rate != first:
            raise ValueError(
                f"{path} has a sample rate of {rate} Hz but {paths[0]} has {first}; resample one of them first"
            )
        if not len(samples):
            raise ValueError(f"{path} holds no samples; leave it out")
        if not np.isfinite(samples).all():
            bad = int(np.argmin(np.isfinite(samples).all(axis=1)))
            raise ValueError(f"{path} is not finite at sample {bad}; leave it out, or cut that part away")
        waveforms.append(samples.mean(axis=1))
    return waveforms, first


def _read(soundfile: Any, file: Path) -> tuple[np.ndarray, int]:
    """Read a recording, and return its n samples per channel, shape ``(n, channels)``, and its sample rate in Hz.

    Args:
        soundfile: the module ``soundfile``.
        file: path of the recording.

    Raises:
        ValueError: if the file cannot be read or contradicts its header.
    """
    header = WavHeader.read(file)
    try:
        with soundfile.SoundFile(file) as opened:
            n_frames, rate = opened.frames, int(opened.samplerate)
            if not opened.seekable():
                raise ValueError(f"{file} packs its samples as {opened.subtype}, which is not read; {REPAIRED}")
            samples = opened.read(dtype="float64", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{file} cannot be read as audio ({error.error_string.rstrip('.')}); leave it out") from None
    except MemoryError:
        raise ValueError(f"{file} does not fit into memory; cut it into several recordings") from None
    said = (n_frames if header.n_frames is None else header.n_frames, header.n_channels, header.sample_rate)
    if (len(samples), samples.shape[1], rate) != said:
        raise ValueError(
            f"{file} has {len(samples):,} frames of {samples.shape[1]} channels at {rate} Hz, but its header says "
            f"{said[0]:,} of {said[1]} at {said[2]}; {REPAIRED}"
        )
    return samples, rate


def _soundfile() -> Any:
    try:
        import soundfile
    except ImportError as error:
        raise ImportError("reading audio needs soundfile: pip install 'seqmodels[audio]'") from error
    return soundfile


def _cepstra(extract: MFCC, path: str, waveform: np.ndarray, sample_rate: int) -> np.ndarray:
    try:
        return extract(waveform, sample_rate)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _metadata(root: Path, paths: list[str], pattern: str | None) -> pd.DataFrame:
    """Return a table with one row per recording: its name, its path, the groups of the pattern, and its cluster.

    Args:
        root: the folder.
        paths: paths of the recordings relative to it.
        pattern: regular expression for the paths; None means the default.
    """
    import pandas as pd

    table = pd.DataFrame({"name": _names(paths), "path": paths})
    for column, values in _groups(root, paths, pattern).items():
        table[column] = values
    if "index" in table and all(value.isdigit() for value in table["index"]):
        table["index"] = table["index"].astype(int)
    if "speaker" in table and "cluster" not in table:
        table["cluster"] = table["speaker"]
    return table


def _groups(root: Path, paths: list[str], pattern: str | None) -> dict[str, list[str]]:
    expression = re.compile(DEFAULT_PATTERN if pattern is None else pattern)
    if not expression.groupindex:
        raise ValueError(f"the pattern {pattern!r} has no named group; write one as (?P<label>[^/]+)")
    searched = [expression.search(path) for path in paths]
    matches = [match for match in searched if match is not None]
    if len(matches) == len(paths):
        return {name: [match.group(name) or "" for match in matches] for name in expression.groupindex}
    if pattern is not None:
        raise ValueError(f"{paths[searched.index(None)]} does not match the pattern {pattern!r}; all files must")
    if not any("/" in path for path in paths):
        return {}  # because one folder for all files says nothing about a single one
    return {"label": [(root.resolve() / path).parent.name for path in paths]}


def _names(paths: list[str]) -> list[str]:
    stems = [Path(path).stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [Path(path).with_suffix("").as_posix() for path in paths]

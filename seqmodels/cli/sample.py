"""The command ``seqmodels sample``: draw texts, sounds or frames from a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from scipy.io import wavfile

from seqmodels.cli.checks import NO_TEXT, check_outputs
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, Seed, check_inputs_file, read_inputs
from seqmodels.common.files import replaced, write_text
from seqmodels.data import from_mfcc
from seqmodels.evaluation.runs.datasets import Files, Recordings
from seqmodels.model import SequenceModel
from seqmodels.sequences import Item

SEPARATOR = "\n" + "-" * 40 + "\n"  # between texts
DEFAULT_FRAMES = 100  # default length of a draw of frames, a second of sound
MAX_STEPS = 10**9  # the most steps of all draws together
SOUND, FRAMES = ".wav", ".csv"


def sample(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    n: Annotated[int, typer.Option("-n", help="The number of sequences to draw.", min=1, max=MAX_STEPS)] = 1,
    length: Annotated[
        int | None,
        typer.Option(
            help="The number of steps (bytes, frames) after the prefix; by default to the end, or 100 frames.",
            min=1,
            max=MAX_STEPS,
        ),
    ] = None,
    max_length: Annotated[
        int,
        typer.Option(help="The most steps after the prefix, if no end comes before.", min=1, max=MAX_STEPS),
    ] = 1000,
    prefix: Annotated[
        str | None, typer.Option(help="The beginning of each sequence: text, or a file with a sequence.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="For p(y | x): the x, as text.")] = None,
    inputs_file: Annotated[
        str | None,
        typer.Option(
            help="For a model that reads inputs: a table with a row of inputs for each step of the prefix and the draw."
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(help="Below 1, likely steps are drawn more often than the model says; 0 takes the likeliest."),
    ] = 1.0,
    top_p: Annotated[
        float | None, typer.Option(help="Draw only from the likeliest steps that make up this probability.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw only from this number of likeliest steps.")] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write: .wav for sounds (by default sample.wav), .csv for frames, or text."),
    ] = None,
    sample_rate: Annotated[
        int | None,
        typer.Option(help="The sample rate in Hz, for cepstra whose file does not state it.", min=1, max=10**6),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw sequences from a saved model: text is printed, cepstra become a WAV, anything else is printed as CSV.

    Example: seqmodels sample model.safetensors -n 3 --prefix "It was" --temperature 0.8

    A sound is reconstructed from its cepstra by the method of Griffin and Lim. It has the vowels and the rhythm of
    speech, but a whispering or buzzing voice, because cepstra do not hold pitch and phase. With the default temperature
    and without --top-p and --top-k the draws follow the model's own distribution.
    """
    console = Console(as_json, quiet)
    with console.errors():
        saved = SavedModel.read(model)
        known = _inputs(saved.model.input_names_, inputs_file)
        _check_size(n, length if length is not None else max_length if known is None else len(known))
        _check_out(saved, out, model, prefix, sample_rate)
        is_open = length is None and saved.model.length_ == "given" and source is None and known is None
        items = saved.model.sample(
            n,
            length=DEFAULT_FRAMES if is_open else length,
            prefix=None if prefix is None else _prefix(saved, prefix),
            source=source,
            max_length=max_length,
            random_state=seed,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            inputs=known,
        )
    with console.errors(FAILED):
        if _is_sound(saved, sample_rate) and (out is None or out.suffix.lower() != FRAMES):
            _write_sounds(saved, items, out or Path("sample.wav"), sample_rate, seed, console)
        else:
            _write(items, _columns(saved, items), out, console)


def _inputs(names: Sequence[str], path: str | None) -> np.ndarray | None:
    """Return the inputs of all steps of prefix and draw, shape ``(T, U)``; None if the model reads no inputs.

    Args:
        names: names of the inputs that the model reads.
        path: path of a table with the inputs, or None.

    Raises:
        ValueError: there is no table but the model reads inputs, or the reverse.
    """
    check_inputs_file(names, path, "step of the prefix and of what is drawn")
    return None if path is None else read_inputs(path, names)[""]


def _check_size(n: int, length: int) -> None:
    if n * length > MAX_STEPS:
        raise ValueError(
            f"{n:,} sequences of {length:,} steps have {n * length:,} steps; draw at most {MAX_STEPS:,} at a time"
        )


def _check_out(
    saved: SavedModel[SequenceModel], out: Path | None, model: str, prefix: str | None, sample_rate: int | None
) -> None:
    """Raise ``ValueError`` if the ending of ``--out`` or the option ``--sample-rate`` does not fit what is drawn.

    Args:
        saved: the saved model.
        out: the file to write; None means the default.
        model: path of the model.
        prefix: the prefix, or a file with it.
        sample_rate: the sample rate of sounds in Hz, or None.
    """
    unit = saved.model.measure_.unit
    if sample_rate is not None and unit != "frame":
        raise ValueError(f"--sample-rate is for sounds, but {model} is a model of {unit}s; leave it out")
    if out is None:
        return
    ending = out.suffix.lower()
    if _is_sound(saved, sample_rate):
        if ending not in (SOUND, FRAMES):
            raise ValueError(f"--out is {out}; for sounds its name should end in {SOUND}, for frames in {FRAMES}")
    elif ending in NO_TEXT:
        what = "text" if unit == "byte" else f"{unit}s, as a CSV"
        way_out = "; for cepstra pass --sample-rate too" if ending == SOUND and unit == "frame" else ""
        raise ValueError(f"--out is {out}, but what is drawn is {what}; pass another name{way_out}")
    is_sound = ending == SOUND
    check_outputs(
        sounds={"--out": out} if is_sound else {}, texts={} if is_sound else {"--out": out}, inputs=(model, prefix)
    )


def _prefix(saved: SavedModel[SequenceModel], prefix: str) -> Item:
    if saved.model.measure_.space == "text":
        return prefix
    return saved.like(prefix).read()[0][0]


def _is_sound(saved: SavedModel[SequenceModel], sample_rate: int | None) -> bool:
    return isinstance(saved.data, Recordings) or sample_rate is not None


def _write_sounds(
    saved: SavedModel[SequenceModel], items: list[Item], out: Path, sample_rate: int | None, seed: int, console: Console
) -> None:
    mfcc = saved.data.mfcc if isinstance(saved.data, Recordings) else None
    rate = sample_rate or saved.sample_rate
    assert rate is not None
    written = []
    for path, item in zip(_numbered(out, len(items)), items, strict=True):
        wave = from_mfcc(np.asarray(item), rate, mfcc, random_state=seed)
        with replaced(path) as partial:
            wavfile.write(partial, rate, np.round(32767 * wave).astype(np.int16))
        written.append({"file": str(path), "seconds": len(wave) / rate})
    words = "\n".join(f"{each['file']}: {each['seconds']:.2f} s at {rate} Hz" for each in written)
    console.result({"sample_rate": rate, "written": written}, words)


def _numbered(out: Path, n: int) -> list[Path]:
    return [out] if n == 1 else [out.with_name(f"{out.stem}-{i}{out.suffix}") for i in range(1, n + 1)]


def _columns(saved: SavedModel[SequenceModel], items: list[Item]) -> list[str]:
    """Return the names of the features, or of the column of symbols, that a saved model was fitted to.

    If they are unknown, or do not fit ``items``, the names are ``x0, x1, ...``.
    """
    steps = np.asarray(items[0])
    n = steps.shape[1] if steps.ndim == 2 else 1
    said = saved.data.columns if isinstance(saved.data, Files) else ()
    names = list(saved.model.encoding_.names or ()) if steps.ndim == 2 else list(said)
    return names if len(names) == n else [f"x{i}" for i in range(n)]


def _write(items: list[Item], columns: list[str], out: Path | None, console: Console) -> None:
    text = SEPARATOR.join(map(str, items)) if isinstance(items[0], str) else _as_csv(items, columns)
    if out is not None:
        write_text(out, text)
        console.result({"written": [{"file": str(out)}]}, f"Written to {out}")
    else:
        console.result({"samples": list(items)}, text.removesuffix("\n"))


def _as_csv(items: list[Any], columns: list[str]) -> str:
    """Return items as a CSV with one row per step, and the number of its sequence in the first column, ``sequence``."""
    frames = [pd.DataFrame(np.asarray(item)).set_axis(columns, axis=1) for item in items]
    table = pd.concat({i: f for i, f in enumerate(frames)}, names=["sequence", None]).reset_index(level=0)
    return str(table.to_csv(index=False))

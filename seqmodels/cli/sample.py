"""The command ``seqmodels sample``: draw texts or frames from a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from seqmodels.cli.checks import check_outputs
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, Seed, check_inputs_file, read_inputs
from seqmodels.common.files import write_text
from seqmodels.evaluation.runs.datasets import Files
from seqmodels.model import SequenceModel
from seqmodels.sequences import Item

SEPARATOR = "\n" + "-" * 40 + "\n"  # between texts
DEFAULT_FRAMES = 100  # default length of a draw of frames
MAX_STEPS = 10**9  # the most steps of all draws together


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
        typer.Option(help="The file to write, of text or, for frames, of CSV; by default the draws are printed."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw sequences from a saved model: text is printed as it is, anything else as CSV.

    Example: seqmodels sample model.safetensors -n 3 --prefix "It was" --temperature 0.8

    With the default temperature and without --top-p and --top-k the draws follow the model's own distribution.
    """
    console = Console(as_json, quiet)
    with console.errors():
        saved = SavedModel.read(model)
        known = _inputs(saved.model.input_names_, inputs_file)
        _check_size(n, length if length is not None else max_length if known is None else len(known))
        check_outputs(texts={"--out": out}, inputs=(model, prefix))
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
        _write(items, _columns(saved, items), out, console)


def _inputs(names: Sequence[str], path: str | None) -> np.ndarray | None:
    """Return the values of U inputs at the T steps of the prefix and then of those to draw, ``(T, U)``.

    It is None if the model reads none.

    Args:
        names: names of the inputs that the model reads.
        path: path of a table with the inputs, or None.

    Raises:
        ValueError: there is no table but the model reads inputs, or the reverse; or the table does not have them.
    """
    check_inputs_file(names, path, "step of the prefix and of what is drawn")
    return None if path is None else read_inputs(path, names)[""]


def _check_size(n: int, length: int) -> None:
    if n * length > MAX_STEPS:
        raise ValueError(
            f"{n:,} sequences of {length:,} steps have {n * length:,} steps; draw at most {MAX_STEPS:,} at a time"
        )


def _prefix(saved: SavedModel[SequenceModel], prefix: str) -> Item:
    if saved.model.measure_.space == "text":
        return prefix
    return saved.like(prefix).read()[0][0]


def _columns(saved: SavedModel[SequenceModel], items: list[Item]) -> list[str]:
    """Return the names of the features, or of the column of symbols, that a saved model was fitted to.

    If they are unknown, or do not fit the draws, the names are ``x0, x1, ...``.

    Args:
        saved: the saved model.
        items: sequences that were drawn from it.
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

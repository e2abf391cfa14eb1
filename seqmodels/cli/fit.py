"""``seqmodels fit``: one model to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.families import NAMES, complete, model_of
from seqmodels.cli.inputs import Saved, dataset_of
from seqmodels.evaluation.limits import limited


def fit(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.", autocompletion=complete)],
    data: Annotated[str, typer.Argument(help="A text file, a folder of .txt or of WAV, a WAV, or a .csv (with --by).")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("model.safetensors"),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A hyperparameter, key=value; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Train for this long.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train for so many steps (EM: iterations at most).")] = None,
    target: Annotated[
        str | None, typer.Option(help="Line i of this file given line i of DATA: p(target | data).")
    ] = None,
    by: Annotated[str, typer.Option(help="A CSV's column that says which sequence a row is of.")] = "",
    columns: Annotated[str, typer.Option(help="A CSV's features, a,b,c; by default all other numeric columns.")] = "",
    time: Annotated[str, typer.Option(help="A CSV's column to order a sequence by.")] = "",
    cut: Annotated[
        Literal["whole", "line", "paragraph"], typer.Option(help="What one sequence of a text is.")
    ] = "whole",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit one model to one set of data, and save it. Networks hold out a tenth of the data to stop by.

    Example: seqmodels fit lstm book.txt --set d_model=256 --seconds 120

    A hyperparameter is written as the constructor takes it: --set n_states=32, --set attention=none,
    --set 'observation={class="GaussianMixture", n_components=8}'.

    The figures: nats per byte, frame or symbol of the data it was trained on (and of what it held out), higher is better. For
    an honest figure score data that it has not seen: seqmodels score.

    Ctrl-C ends training and writes the best that was found; a second one writes nothing.
    """
    console = Console(as_json, quiet)
    with console.errors():
        wanted = limited(model_of(model, settings or (), seed), seconds=seconds, steps=steps)
        source = dataset_of(data, target, by, [name for name in columns.split(",") if name], time, cut)
        read = source.read()
        if not out.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {out.parent} to write {out.name} to; make it first")
    with console.errors(FAILED):
        shown = wanted.verbose
        wanted.set_params(verbose=shown or console.shows_progress).fit(*read)
        wanted.set_params(verbose=shown)
        saved = Saved.of(wanted, source, read)
        saved.write(out)
        console.result(_facts(saved, out), _words(saved, out))
        if wanted.interrupted_:
            raise KeyboardInterrupt


def _facts(saved: Saved, out: Path) -> dict[str, Any]:
    model = saved.model
    return {
        "out": str(out),
        "class": type(model).__name__,
        "n_parameters": model.n_parameters_,
        "fit_seconds": model.fit_seconds_,
        "converged": model.converged_,
        "measure": model.measure_.to_json(),
        "data": saved.about,
        "last": model.history_.iloc[-1].to_dict() if len(model.history_) else {},
    }


def _words(saved: Saved, out: Path) -> str:
    facts = _facts(saved, out)
    about, last = facts["data"], facts["last"]
    figures = [f"{last['log_prob']:.4f} nats per {about['unit']} in training"] if "log_prob" in last else []
    if last.get("validation") == last.get("validation") and "validation" in last:
        figures.append(f"{last['validation']:.4f} on what it held out")
    return (
        f"{facts['class']} with {facts['n_parameters']:,} parameters, fitted to {about['units']:,} {about['unit']}s in "
        f"{facts['fit_seconds']:.1f} s{': ' * bool(figures)}{', '.join(figures)}.\nWritten to {out}"
    )

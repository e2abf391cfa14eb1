"""``seqmodels forecast``: what follows each sequence of a file, as a table and a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from seqmodels.cli.checks import check_outputs, check_value
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, Seed, check_inputs_file, read_inputs
from seqmodels.common.files import replaced
from seqmodels.sequences import Sequences


def forecast(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    file: Annotated[str, typer.Argument(help="The sequences that are known; read as the data of the fit were.")],
    k: Annotated[int, typer.Option("-k", help="Steps ahead (frames, bytes).", min=1, max=10**6)] = 10,
    inputs_file: Annotated[
        str | None,
        typer.Option(help="Of a model that reads inputs: a table of their columns, a row for each step ahead."),
    ] = None,
    target: Annotated[str | None, typer.Option(help="For p(y | x): a file of how the targets begin.")] = None,
    quantiles: Annotated[str, typer.Option(help="Levels between 0 and 1, separated by commas.")] = "0.05,0.5,0.95",
    n: Annotated[int, typer.Option("-n", help="Drawn paths, where there is no closed form.", min=1, max=10**7)] = 500,
    top_k: Annotated[int, typer.Option(help="Of symbols: how many of the most probable at each step.", min=1)] = 5,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="A CSV to write to, instead of printing it.")] = None,
    plot: Annotated[Path | None, typer.Option(help="A picture (.png, .svg, .pdf) of one sequence to write.")] = None,
    sequence: Annotated[str | None, typer.Option(help="In the picture: its name; by default the first.")] = None,
    feature: Annotated[
        str | None, typer.Option(help="In the picture: its name, or its number, from 0; by default all.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast the next steps of each sequence of a file: mean and quantiles, or probabilities.

    Example: seqmodels forecast model.safetensors series.csv -k 24 --plot fan.png

    A model that reads inputs (seqmodels fit --inputs) needs those of the steps ahead, too: --inputs-file ahead.csv. Of
    several sequences, it has the column that says which one a row is of.

    A row of the CSV is a feature (or a symbol) of a step of a sequence. method says whether its figures are in closed
    form (exact) or means over drawn paths (sampled). The parameters of the model are taken for certain.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_outputs(texts={"--out": out}, pictures={"--plot": plot}, inputs=(model, file, target, inputs_file))
        if sequence is not None and plot is None:
            raise ValueError(f"--sequence is {sequence!r}, which is for the picture, but there is none; pass --plot")
        if feature is not None:
            check_value("--feature", feature)
        levels = _levels(quantiles)
        saved = SavedModel.read(model)
        X, y = saved.like(file, target).read()
        ahead = _inputs_ahead(saved.model.input_names_, inputs_file, X, k)
        options: dict[str, Any] = {"quantiles": levels, "n": n, "top_k": top_k, "random_state": seed}
        result = saved.model.forecast(X, k, y=y, inputs=ahead, **options)
        if plot is not None:
            from matplotlib import pyplot

            names = {str(name): name for name in result.history.names}
            chosen: int | str | None = int(feature) if feature is not None and feature.isdecimal() else feature
            drawn = result.plot(sequence=None if sequence is None else names.get(sequence, sequence), feature=chosen)
            figure: Any = drawn.figure  # of axes that may be in a part of one
            with replaced(plot) as partial:
                figure.savefig(partial, format=plot.suffix.lstrip(".") or "png", dpi=150)
            pyplot.close(figure)
        if out is not None:
            with replaced(out) as partial:
                result.frame.to_csv(partial, index=False, float_format="%.8g")
        buffer = io.StringIO()
        result.frame.to_csv(buffer, index=False, float_format="%.8g")
        written = [str(path) for path in (out, plot) if path is not None]
        said = buffer.getvalue().removesuffix("\n") if out is None else f"Written to {', '.join(written)}"
        console.result({"written": written, "rows": result.frame.to_dict("records")}, said)


def _inputs_ahead(names: Sequence[str], path: str | None, X: Sequences, k: int) -> list[np.ndarray] | None:
    """``(k, U)`` for each sequence; None of a model that reads none."""
    check_inputs_file(names, path, f"of the {k} steps ahead")
    if path is None:
        return None
    known = read_inputs(path, names, None if len(X) == 1 else X.by)
    if len(X) == 1:
        each = [*known.values()]
    else:
        without = [name for name in X.names if str(name) not in known]
        if without:
            raise ValueError(f"{path} has no rows of the sequence {without[0]!r}, in the column {X.by!r}")
        each = [known[str(name)] for name in X.names]
    wrong = [(name, len(u)) for name, u in zip(X.names, each, strict=True) if len(u) != k]
    if wrong:
        raise ValueError(
            f"{path} has {wrong[0][1]} rows of the sequence {wrong[0][0]!r}, but -k is {k}; pass a row for each step "
            "ahead"
        )
    return each


def _levels(quantiles: str) -> list[float]:
    try:
        levels = [float(level) for level in quantiles.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels) or sorted(set(levels)) != levels:
        raise ValueError(
            f"--quantiles is {quantiles!r}; pass increasing numbers between 0 and 1, separated by commas: 0.05,0.5,0.95"
        )
    return levels

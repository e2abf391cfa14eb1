"""``seqmodels forecast``: what follows each sequence of a file, as a table and a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodels.cli.checks import check_outputs, check_value
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, Seed
from seqmodels.common.files import replaced


def forecast(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    file: Annotated[str, typer.Argument(help="The sequences that are known; read as the data of the fit were.")],
    k: Annotated[int, typer.Option("-k", help="Steps ahead (frames, bytes).", min=1, max=10**6)] = 10,
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

    A row of the CSV is a feature (or a symbol) of a step of a sequence. method says whether its figures are in closed
    form (exact) or means over drawn paths (sampled). The parameters of the model are taken for certain.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_outputs(texts={"--out": out}, pictures={"--plot": plot}, inputs=(model, file, target))
        if sequence is not None and plot is None:
            raise ValueError(f"--sequence is {sequence!r}, which is for the picture, but there is none; pass --plot")
        if feature is not None:
            check_value("--feature", feature)
        levels = _levels(quantiles)
        saved = SavedModel.read(model)
        X, y = saved.like(file, target).read()
        result = saved.model.forecast(X, k, y=y, quantiles=levels, n=n, top_k=top_k, random_state=seed)
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

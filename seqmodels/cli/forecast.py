"""``seqmodels forecast``: what follows each sequence of a file, as words, a table and a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from seqmodels.cli.checks import SAVED, check_outputs, check_value
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, Seed, check_inputs_file, names_of, read_inputs
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import listed
from seqmodels.common.files import replaced
from seqmodels.data import is_table
from seqmodels.data.read import read
from seqmodels.data.tables import read_table
from seqmodels.evaluation.forecasting import forecast as automatic_forecast
from seqmodels.evaluation.forecasting.inputs import with_steps_ahead
from seqmodels.evaluation.forecasting.tables import regular_sequences
from seqmodels.sequences import Sequences
from seqmodels.sequences.columns.numbers import refuse_unread

STEPS_OF_MODEL, STEPS_OF_TABLE = 10, 12  # ahead, where none are asked for
LEVELS_OF_MODEL, LEVELS_OF_TABLE = "0.05,0.5,0.95", "0.05,0.25,0.5,0.75,0.95"


def forecast(
    model: Annotated[
        str,
        typer.Argument(
            help="A file that seqmodels fit (or model.save) wrote; or a table alone, which is forecast by itself.",
            metavar="MODEL|TABLE",
        ),
    ],
    file: Annotated[
        str | None,
        typer.Argument(
            help="With a MODEL: the sequences that are known; read as the data of the fit were.", metavar="[FILE]"
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", "--horizon", help="Steps ahead; by default 10, of a table 12.", min=1, max=10**6),
    ] = None,
    season: Annotated[
        int | None,
        typer.Option(help="Of a table: steps of a season, 1 for none; by default what dates and values say.", min=1),
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Of a table: its column of times; by default dates, or one called time.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Of a table: its column that says which series a row is of.")] = None,
    date_format: Annotated[
        str | None,
        typer.Option(help="Of a table: how its dates are written, as strptime takes it: %d/%m/%Y."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Of a table: what is forecast, a,b,c; by default all other numeric columns.")
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(help="Of a table: after so many seconds a series no further model is tried.", min=0.001),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(help="Of a table: columns, a,b, that are known at each step, those ahead too, such as holidays."),
    ] = None,
    inputs_file: Annotated[
        str | None,
        typer.Option(
            help="A table with the inputs (of a model that reads some, or --inputs) of the steps ahead, a row each; a "
            "table that is forecast may have them in its last rows."
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="For p(y | x): a file of how the targets begin.")] = None,
    quantiles: Annotated[
        str | None,
        typer.Option(
            help=f"Levels between 0 and 1, separated by commas; by default {LEVELS_OF_MODEL}, of a table "
            f"{LEVELS_OF_TABLE}."
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option("-n", help="Drawn paths, where there is no closed form; by default 500.", min=1, max=10**7),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Of symbols: how many of the most probable at each step; by default 5.", min=1)
    ] = None,
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

    Example: seqmodels forecast sales.csv --horizon 12 --plot fan.png

    Of a table alone (.csv, .tsv, .parquet, .npy) models are tried on its own last part and the best are averaged; what
    was found is said in words. Columns that --inputs names, such as holidays or prices, are not forecast: models
    regress on them, and their values of the steps ahead are in the last rows of the table, where all else is empty, or
    in --inputs-file ahead.csv, with its times.

    Example: seqmodels forecast model.safetensors series.csv -k 24 --plot fan.png

    A model that reads inputs (seqmodels fit --inputs) needs those of the steps ahead, too: --inputs-file ahead.csv. Of
    several sequences, it has the column that says which one a row is of.

    A row of the CSV is a feature (or a symbol) of a step of a sequence. method says whether its figures are in closed
    form (exact) or means over drawn paths (sampled). The parameters of the model are taken for certain.
    """
    console = Console(as_json, quiet)
    with console.errors():
        files = [path for path in (model, file, target, inputs_file) if path is not None]
        check_outputs(texts={"--out": out}, pictures={"--plot": plot}, inputs=files)
        if sequence is not None and plot is None:
            raise ValueError(f"--sequence is {sequence!r}, which is for the picture, but there is none; pass --plot")
        if feature is not None:
            check_value("--feature", feature)
        of_table = {"--season": season, "--time": time, "--by": by, "--columns": columns, "--max-seconds": max_seconds}
        of_table |= {"--date-format": date_format, "--inputs": inputs}
        of_model = {"--target": target, "-n": n, "--top-k": top_k}
        if file is None:
            _refuse(of_model, f"is for a model, but {model} alone is forecast by itself; leave it out")
            levels = _levels(quantiles or LEVELS_OF_TABLE)
            names = [] if inputs is None else names_of(inputs)
            if inputs_file is not None and not names:
                raise ValueError(f"--inputs-file is {inputs_file}, but no inputs are named; pass --inputs a,b")
            table = series_of_file(model, columns, time, by, date_format, names, inputs_file)
            options: dict[str, Any] = {"season": season, "quantiles": levels, "inputs": names}
            options |= {} if max_seconds is None else {"max_seconds": max_seconds}
            result: Any = automatic_forecast(table, k or STEPS_OF_TABLE, **options)
        else:
            _refuse(of_table, f"is for a table alone, but {model} is a model; leave it out, or leave the model out")
            result = _forecast_of_model(
                model,
                file,
                target,
                inputs_file,
                k or STEPS_OF_MODEL,
                _levels(quantiles or LEVELS_OF_MODEL),
                n,
                top_k,
                seed,
            )
        if plot is not None:
            _draw(result, plot, sequence, feature)
        if out is not None:
            with replaced(out) as partial:
                result.frame.to_csv(partial, index=False, float_format="%.8g")
        written = [str(path) for path in (out, plot) if path is not None]
        words = list(result.words) if file is None else []
        said = _as_csv(result.frame) if out is None else f"Written to {', '.join(written)}"
        content: dict[str, Any] = {"written": written, "rows": result.frame.to_dict("records")}
        if file is None:
            content |= {"words": words, "tried": result.table.to_dict("records")}
        console.result(content, "\n".join([*words, *[""] * bool(words), said]))


def _forecast_of_model(
    model: str,
    file: str,
    target: str | None,
    inputs_file: str | None,
    k: int,
    levels: list[float],
    n: int | None,
    top_k: int | None,
    seed: int,
) -> Any:
    saved = SavedModel.read(model)
    X, y = saved.like(file, target).read()
    ahead = _inputs_ahead(saved.model.input_names_, inputs_file, X, k)
    options: dict[str, Any] = {"quantiles": levels, "n": n or 500, "top_k": top_k or 5, "random_state": seed}
    return saved.model.forecast(X, k, y=y, inputs=ahead, **options)


def series_of_file(
    path: str,
    columns: str | None,
    time: str | None,
    by: str | None,
    date_format: str | None,
    inputs: Sequence[str],
    inputs_file: str | None,
) -> Sequences:
    """The regular series of a table, with inputs of the steps ahead if there are, or the sequences of another file."""
    if Path(path).suffix == SAVED:
        raise ValueError(f"{path} is a model; pass the file that it forecasts, too: seqmodels forecast {path} FILE")
    if is_table(path):
        frame, place = read_table(Path(path), [by])
        frame.columns = [str(column) for column in frame.columns]
        named = [] if columns is None else names_of(columns)
        missing = [name for name in (*named, *inputs, time, by) if name is not None and name not in frame]
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
        left_out = [c for c in frame if c not in (time, by, *named, *inputs) and _has_no_name(frame[c])]
        if left_out and not named:
            warn_caller(f"{path}: left out {listed(left_out)}, which has no name")
        frame = frame.drop(columns=left_out)
        unread = [c for c in (named or frame) if c not in (time, by)]
        refuse_unread(frame, unread, place, "name what is forecast with --columns, or the column of series with --by")
        if inputs:
            future, names = _future(inputs_file, (time, by, *inputs)), (path, str(inputs_file))
            dates = {"time": time, "by": by, "date_format": date_format}
            frame = with_steps_ahead(frame, inputs, future, names=names, **dates)
        features = [*named, *inputs] if named else None
        try:
            return regular_sequences(frame, time=time, by=by, columns=features, date_format=date_format, inputs=inputs)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    of_table = {"--time": time, "--by": by, "--columns": columns, "--date-format": date_format}
    of_table |= {"--inputs": ",".join(inputs) or None}
    _refuse(of_table, f"is for a table, but {path} is none; leave it out")
    return read(path, kind="vectors")


def _future(path: str | None, kept: Sequence[str | None]) -> Any:
    """The frame of a table of inputs, of whose numbers only those ``kept`` are read; None of no table."""
    if path is None:
        return None
    frame, _ = read_table(Path(path), kept[:2])
    frame.columns = [str(column) for column in frame.columns]
    return frame[[c for c in frame if c in kept or frame[c].dtype.kind not in "iufb"]]


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


def _has_no_name(column: Any) -> bool:
    """Whether a column of numbers has no name in the file, as an index that was written into it."""
    from pandas.api.types import is_numeric_dtype

    return is_numeric_dtype(column) and (not column.name or column.name.startswith("Unnamed:"))


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} {why}")


def _as_csv(frame: Any) -> str:
    buffer = io.StringIO()
    frame.to_csv(buffer, index=False, float_format="%.8g")
    return buffer.getvalue().removesuffix("\n")


def _draw(result: Any, path: Path, sequence: str | None, feature: str | None) -> None:
    """Write the picture of a forecast."""
    from matplotlib import pyplot

    names = {str(name): name for name in result.history.names}
    chosen: int | str | None = int(feature) if feature is not None and feature.isdecimal() else feature
    drawn = result.plot(sequence=None if sequence is None else names.get(sequence, sequence), feature=chosen)
    figure: Any = drawn.figure  # of axes that may be in a part of one
    with replaced(path) as partial:
        figure.savefig(partial, format=path.suffix.lstrip(".") or "png", dpi=150)
    pyplot.close(figure)

"""The command ``seqmodels forecast``: forecast each sequence of a file, as text, a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from seqmodels.cli.checks import SAVED, check_outputs, check_value
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, Seed, check_inputs_file, names_of, read_inputs
from seqmodels.cli.pictures import write_picture
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

STEPS_OF_MODEL, STEPS_OF_TABLE = 10, 12  # default numbers of steps ahead
LEVELS_OF_MODEL, LEVELS_OF_TABLE = "0.05,0.5,0.95", "0.05,0.25,0.5,0.75,0.95"


def forecast(
    model: Annotated[
        str,
        typer.Argument(
            help="A file that seqmodels fit (or model.save) wrote, or a table, for which models are chosen "
            "automatically.",
            metavar="MODEL|TABLE",
        ),
    ],
    file: Annotated[
        str | None,
        typer.Argument(
            help="With a MODEL: the sequences to forecast, read like the data of the fit.", metavar="[FILE]"
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "-k", "--horizon", help="The number of steps ahead; by default 10, for a table 12.", min=1, max=10**6
        ),
    ] = None,
    season: Annotated[
        int | None,
        typer.Option(
            help="For a table: the number of steps in a season, 1 for none; by default dates and values decide.", min=1
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="For a table: its column of times; by default dates, or a column called time.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="For a table: the column that says which series a row belongs to.")
    ] = None,
    date_format: Annotated[
        str | None,
        typer.Option(help="For a table: how its dates are written, in the notation of strptime: %d/%m/%Y."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="For a table: the columns to forecast, a,b,c; by default all other numeric columns."),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            help="For a table: the number of seconds per series after which no further model is tried.", min=0.001
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            help="For a table: columns, a,b, that are known at each step and at the steps ahead, such as holidays."
        ),
    ] = None,
    inputs_file: Annotated[
        str | None,
        typer.Option(
            help="A table with a row of inputs for each step ahead, if the model reads inputs or --inputs is given; a "
            "table that is forecast may have them in its last rows."
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="For p(y | x): a file with the beginnings of the targets.")] = None,
    quantiles: Annotated[
        str | None,
        typer.Option(
            help=f"Levels between 0 and 1, separated by commas; by default {LEVELS_OF_MODEL}, for a table "
            f"{LEVELS_OF_TABLE}."
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "-n", help="The number of sample paths, if there is no closed form; by default 500.", min=1, max=10**7
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(help="For symbols: the number of most probable ones at each step; by default 5.", min=1),
    ] = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="The CSV to write; by default it is printed.")] = None,
    plot: Annotated[Path | None, typer.Option(help="The picture (.png, .svg, .pdf) of one sequence to write.")] = None,
    sequence: Annotated[
        str | None, typer.Option(help="The name of the sequence in the picture; by default the first.")
    ] = None,
    feature: Annotated[
        str | None,
        typer.Option(help="The name of the feature in the picture, or its number from 0; by default all features."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast the next steps of each sequence of a file: mean and quantiles, or probabilities.

    Example: seqmodels forecast sales.csv --horizon 12 --plot fan.png

    For a table alone (.csv, .tsv, .parquet, .npy), models are tried on its own last part and the best are averaged; the
    result is described in words. Columns named by --inputs, such as holidays or prices, are not forecast: models
    regress on them. Their values at the steps ahead are in the last rows of the table, where all other columns are
    empty, or in --inputs-file ahead.csv, together with the times.

    Example: seqmodels forecast model.safetensors series.csv -k 24 --plot fan.png

    A model that reads inputs (seqmodels fit --inputs) needs the inputs of the steps ahead too: --inputs-file ahead.csv.
    If there are several sequences, that file also has the column that says which one a row belongs to.

    Each row of the CSV is a feature (or a symbol) at a step of a sequence. method says if its figures have a closed
    form (exact) or are means over sample paths (sampled). The uncertainty of the model's parameters is not included.
    """
    console = Console(as_json, quiet)
    with console.errors():
        files = [path for path in (model, file, target, inputs_file) if path is not None]
        check_outputs(texts={"--out": out}, pictures={"--plot": plot}, inputs=files)
        if sequence is not None and plot is None:
            raise ValueError(f"--sequence is {sequence!r}, but there is no picture that it is for; pass --plot too")
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
        as_csv = result.frame.to_csv(index=False, float_format="%.8g").removesuffix("\n")
        said = as_csv if out is None else f"Written to {', '.join(written)}"
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
    """Return the sequences of a file to be forecast; those of a table as regular series, one row for each step.

    Inputs are columns that are known at each step, such as holidays. If there are some, the series have them, also for
    the steps ahead.

    Args:
        path: the path of the file.
        columns: the columns to forecast, separated by commas; None means all other columns of numbers.
        time: the column of times; None means that it is recognised.
        by: the column that says which series a row belongs to; None means that it is recognised.
        date_format: format of the dates for ``datetime.strptime``; None means that it is recognised.
        inputs: the columns of inputs.
        inputs_file: the path of a table with the inputs of the steps ahead; None means that they are in the last rows.

    Raises:
        ValueError: the file is a model, a column is missing or is not read as numbers, or the series are not regular.
    """
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
    """Read the table of inputs at the steps ahead from a file, without other columns of numbers.

    Args:
        path: path of the file; None means that there is none, and returns None.
        kept: columns that are kept: that of times, that of series (both may be None), and the inputs.
    """
    if path is None:
        return None
    frame, _ = read_table(Path(path), kept[:2])
    frame.columns = [str(column) for column in frame.columns]
    return frame[[c for c in frame if c in kept or frame[c].dtype.kind not in "iufb"]]


def _inputs_ahead(names: Sequence[str], path: str | None, X: Sequences, k: int) -> list[np.ndarray] | None:
    """Return the values of U inputs at the ``k`` steps ahead for each sequence, shape ``(k, U)``; None without inputs.

    Args:
        names: names of the inputs that the model reads.
        path: path of a table with the inputs, or None.
        X: the sequences to forecast.
        k: number of steps ahead.

    Raises:
        ValueError: a sequence has no rows in the table, or not ``k``; or a table is missing or not needed.
    """
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
    """Return True for a column of numbers without a name in the file, such as an index that was written into it."""
    from pandas.api.types import is_numeric_dtype

    return is_numeric_dtype(column) and (not column.name or column.name.startswith("Unnamed:"))


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} {why}")


def _draw(result: Any, path: Path, sequence: str | None, feature: str | None) -> None:
    """Write the picture of a forecast.

    Args:
        result: the forecast.
        path: path of the picture.
        sequence: name of the sequence to draw; None means the first.
        feature: name or number of the feature to draw; None means all.
    """
    names = {str(name): name for name in result.history.names}
    chosen: int | str | None = int(feature) if feature is not None and feature.isdecimal() else feature
    drawn = result.plot(sequence=None if sequence is None else names.get(sequence, sequence), feature=chosen)
    write_picture(drawn.figure, path)

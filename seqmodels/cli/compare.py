"""The command ``seqmodels compare``: fit the standard models, or the models of a run.toml, and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodels.cli.checks import check_budget, check_folder, check_jobs
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import (
    OF_FORMATS,
    By,
    Columns,
    DateFormat,
    Inputs,
    Jobs,
    Kinds,
    ReadOptions,
    Seed,
    Time,
    dataset_of,
    names_of,
    understood,
)
from seqmodels.common.files import locked_folder
from seqmodels.evaluation import Comparison
from seqmodels.evaluation.runs.datasets import (
    BuiltinSpeech,
    BuiltinText,
    Dataset,
    Parallel,
    Recordings,
    Table,
    TextFiles,
    hashed,
)
from seqmodels.evaluation.runs.run import run
from seqmodels.evaluation.runs.run_config import RunConfig
from seqmodels.evaluation.runs.suites import GIVEN, Choice, Task, check_names


def compare(
    text: Annotated[str | None, typer.Option(help="A UTF-8 text file, or a folder of .txt files.")] = None,
    audio: Annotated[str | None, typer.Option(help="A folder of WAV files.")] = None,
    csv: Annotated[str | None, typer.Option(help="A CSV with a row for each step.")] = None,
    data: Annotated[str | None, typer.Option(help=OF_FORMATS)] = None,
    by: By = "",
    columns: Columns = "",
    dither: Annotated[
        bool, typer.Option(help="Add noise to the values of a table, which are rounded, one step of their grid wide.")
    ] = False,
    time: Time = "",
    date_format: DateFormat = "",
    inputs: Inputs = "",
    kind: Kinds = None,
    pairs: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Two UTF-8 files with a pair on each line, for p(target | source).", metavar="SRC TGT"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A run.toml, whose run is repeated. Data that have changed are refused.")
    ] = None,
    models: Annotated[
        str,
        typer.Option(
            help="Fit only these models, separated by commas: lstm,hmm. Differences are to hmm if it is among them, "
            "otherwise to the first."
        ),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare densities only, with fewer models and half the steps.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(help="Train every model for this long, in place of its own budget.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Train every model for this number of steps (for EM, iterations).")
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(help="The number of fits of each model; scores are means, and a column has their spread.", min=1),
    ] = 1,
    seed: Seed = 0,
    jobs: Jobs = 1,
    out: Annotated[Path, typer.Option(help="The folder for pages, tables and pictures.")] = Path("results"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another comparison in the folder of --out.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit every family of models to the same data, and say which explains held-out data best, and how sure that is.

    Each data set is compared on two tasks: the density of whole sequences, log p(x), and continuation, log p(rest |
    beginning). Without data of your own, built-in text and synthetic speech are used.

    Example: seqmodels compare --text book.txt --models hmm,lstm --seconds 60

    Sizes follow the training data, so that every parameter of an HMM is learned from at least 4 symbols or values: up
    to 64 states over symbols, and 24 states of 4 Gaussians over vectors. The width of a network is one for every 8
    frames or symbols, from 32 to 256. run.toml states the sizes, and other sizes can be set there.

    With --inputs every model that can read inputs is fitted both without and with them, as hmm and hmm-inputs.

    The figures: score is nats per byte, frame or symbol of held-out data, higher is better. bits are the cost of a
    unit, -nats / 0.693. difference is the score minus the baseline's on the same sequences, with a 95 % interval; if
    that contains 0, the two may be equal. run.toml beside the results repeats the run. Ctrl-C keeps the models fitted
    so far.
    """
    console = Console(as_json, quiet)
    options: dict[str, object] = {
        "--text": text,
        "--audio": audio,
        "--csv": csv,
        "--data": data,
        "--kind": kind,
        "--pairs": pairs,
        "--dither": dither,
        "--inputs": inputs,
        "--models": models,
        "--quick": quick,
        "--seconds": seconds,
        "--steps": steps,
        "--seed": seed,
        "--seeds": seeds - 1,
    }
    with console.errors():
        check_jobs(jobs)
        check_folder("--out", out)
        check_budget(seconds, steps)
        names = _names(models)
        if config is not None:
            _refuse_options([name for name, value in options.items() if value])
            run_config = RunConfig.read(config)
        else:
            if csv is not None and data is not None:
                raise ValueError("--csv and --data both name a table; pass --data alone")
            names_of_columns, names_of_inputs = names_of(columns), names_of(inputs)
            reading = [name for name in names if name.endswith(GIVEN)]
            if reading and not names_of_inputs:
                raise ValueError(f"--models names {reading[0]}, which reads inputs, but there are none; pass --inputs")
            datasets: dict[str, Dataset] = {}
            if text is not None:
                datasets["text"] = TextFiles(text)
            if audio is not None:
                datasets["audio"] = Recordings(audio)
            if csv is not None:
                its_inputs = names_of_inputs or ()
                datasets["table"] = Table(csv, by, names_of_columns, time, dither, kind or "", its_inputs, date_format)
            if data is not None:
                read_options = ReadOptions(
                    by,
                    names_of_columns,
                    time,
                    kind=kind,
                    dither=dither,
                    inputs=names_of_inputs,
                    date_format=date_format,
                )
                datasets["data"] = dataset_of(data, None, read_options)
            if pairs is not None:
                datasets["pairs"] = Parallel(*pairs)
            builtin: dict[str, Dataset] = {"text": BuiltinText(), "speech": BuiltinSpeech(random_state=seed)}
            of_tables = {"--by": by, "--columns": columns, "--time": time, "--kind": kind, "--dither": dither}
            of_tables |= {"--inputs": inputs, "--date-format": date_format}
            _refuse_options_without_table([name for name, value in of_tables.items() if value], csv, data)
            run_config = RunConfig(datasets or builtin, {}, Choice(names, quick, seed), seeds, seconds, steps)
    with console.errors(), locked_folder(out):
        tasks = _prepare(run_config, out, console, overwrite=overwrite)
        results = _run(run_config, tasks, out, console, jobs)
    if any((result.frame["error"] != "").any() for result in results):
        raise typer.Exit(FAILED)


def _refuse_options(names: list[str]) -> None:
    if names:
        raise ValueError(
            f"--config says everything, so {names[0]} cannot be given too; change it in the file, or leave it out"
        )


def _refuse_options_without_table(names: list[str], csv: str | None, data: str | None) -> None:
    """Check that options of tables are given only together with ``--csv`` or ``--data``.

    Args:
        names: the options of tables that were given.
        csv: path of ``--csv``, or None.
        data: path of ``--data``, or None.

    Raises:
        ValueError: there are such options, but neither path.
    """
    if names and csv is None and data is None:
        raise ValueError(f"{names[0]} says how a table is read, but there is none; pass --data, or leave it out")


def _names(models: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in models.split(",") if name.strip())
    if models and not names:
        raise ValueError(f"--models is {models!r}, which names no model; pass names, hmm,lstm, or leave it out for all")
    check_names(names)
    return names


def _prepare(run_config: RunConfig, out: Path, console: Console, *, overwrite: bool) -> list[Task]:
    """Read the data, print what was understood, and write ``run.toml`` into the folder of the results.

    The models get the limits on seconds or steps that the run states. The folder must be locked.

    Args:
        run_config: configuration of the run: data, models and budget.
        out: the folder of the results.
        console: where to print.
        overwrite: True to replace the results of another run.

    Returns:
        The comparisons to run, the quickest first.

    Raises:
        ValueError: the folder holds the results of another run and ``overwrite`` is False.
    """
    data = run_config.read_data()
    for name, pair in data.items():
        if run_config.data[name].paths() and not console.quiet:
            console.say(understood(run_config.data[name], pair))
    tasks = [task.under_budget(seconds=run_config.seconds, steps=run_config.steps) for task in run_config.tasks(data)]
    tasks.sort(key=lambda task: task.seconds)
    sha256 = {name: hashed(pair) for name, pair in data.items()}
    path = out / "run.toml"
    if path.exists() and not overwrite and not run_config.is_written(path, tasks, sha256):
        raise ValueError(
            f"{out} holds the results of another comparison, see {path}; write --overwrite to replace them, or --out "
            "with another folder"
        )
    run_config.write(path, tasks, sha256)
    return tasks


def _run(run_config: RunConfig, tasks: list[Task], out: Path, console: Console, jobs: int) -> list[Comparison]:
    with console.errors(FAILED):
        results = run(
            tasks,
            out,
            random_state=run_config.choice.random_state,
            n_seeds=run_config.seeds,
            seconds=run_config.seconds,
            steps=run_config.steps,
            n_jobs=jobs,
            say=console.say,
            progress=console.shows_progress,
            is_locked=True,
        )
        if console.json:
            console.result({t.name: _as_json(r, t, out) for r, t in zip(results, tasks, strict=True)}, "")
    return results


def _as_json(result: Comparison, task: Task, out: Path) -> dict[str, Any]:
    return {
        "title": task.title,
        "unit": result.measure.unit,
        "baseline": result.baseline,
        "page": str(out / f"{task.name}.html"),
        "models": result.frame.to_dict("records"),
    }

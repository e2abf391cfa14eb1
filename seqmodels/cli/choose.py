"""The command ``seqmodels choose``: choose one hyperparameter of a model by cross-validation, BIC or AIC."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from tqdm.auto import tqdm

from seqmodels.cli.checks import check_jobs, check_outputs, check_value
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.fit import complete_family, model_of, parse_setting
from seqmodels.cli.inputs import (
    By,
    Columns,
    Cut,
    DateFormat,
    Inputs,
    Jobs,
    Kinds,
    ReadOptions,
    SavedModel,
    Seed,
    Target,
    Time,
    dataset_of,
    names_of,
    that_reads,
    understood,
)
from seqmodels.cli.pictures import write_picture
from seqmodels.common.files import replaced
from seqmodels.common.parameters import Configurable
from seqmodels.evaluation.tuning import model_selection
from seqmodels.evaluation.tuning.budget import within_budget
from seqmodels.evaluation.tuning.recipes import Proposal

MAX_VALUES = 1000  # the most values of a range, because a model is fitted for each
RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def choose(
    model: Annotated[
        str, typer.Argument(help="A family: hmm, ngram, lstm, gru, transformer, ...", autocompletion=complete_family)
    ],
    data: Annotated[str, typer.Argument(help="A file or a folder, read as by seqmodels fit.")],
    values: Annotated[
        str,
        typer.Option(
            help="A hyperparameter and the values to try: n_states=1..8, d_model=32,64. observation=proposed tries the "
            "observations that suit the values of the features, and recipe=proposed what a careful analyst would try.",
            metavar="KEY=VALUES",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another hyperparameter, key=value; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Train each model for this long.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Train each model for this number of steps (for EM, at most so many iterations).")
    ] = None,
    folds: Annotated[
        int, typer.Option(help="The number of parts of the data, each held out once; 0 means no cross-validation.")
    ] = 5,
    criterion: Annotated[Literal["cv", "bic", "aic"], typer.Option(help="The criterion that decides.")] = "cv",
    rule: Annotated[
        Literal["auto", "one_se", "paired_se", "best"],
        typer.Option(
            help="How cv decides: for the fewest parameters within a standard error of the best, or for the best."
        ),
    ] = "auto",
    target: Target = None,
    by: By = "",
    columns: Columns = "",
    time: Time = "",
    date_format: DateFormat = "",
    inputs: Inputs = "",
    kind: Kinds = None,
    cut: Cut = "whole",
    seed: Seed = 0,
    jobs: Jobs = 1,
    save: Annotated[
        Path | None, typer.Option(help="The file to write the chosen model to, which is fitted to all data.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The CSV to write, with a row for each value.")] = None,
    plot: Annotated[Path | None, typer.Option(help="The picture of the curves to write: .png, .pdf or .svg.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose a value of one hyperparameter: by cross-validation, with BIC and AIC beside it.

    Example: seqmodels choose hmm series.csv --by subject --values n_states=1..8 --plot states.png

    Each row of the table is a value. cv is the mean log-probability of held-out data in nats per byte, frame or symbol,
    higher is better, and cv_se is its standard error over the folds. train is the same figure for the data that the
    model was fitted to. For bic and aic, lower is better. If the data have clusters (speakers, documents), whole
    clusters are held out.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_jobs(jobs)
        check_outputs(models={"--save": save}, texts={"--out": out}, pictures={"--plot": plot}, inputs=(data, target))
        parameter, tried = parse_values(values)
        read = [] if "input" in parameter else names_of(inputs)
        chosen = that_reads(model_of(model, settings or (), seed), read)
        unfitted = within_budget(chosen, seconds=seconds, steps=steps)
        is_proposed = parameter in ("observation", model_selection.RECIPE) and tried == [model_selection.PROPOSED]
        checked: list[Any] = [] if is_proposed else tried
        model_selection.check(unfitted, parameter, checked, folds or None, criterion, rule, "auto")
        options = ReadOptions(by, names_of(columns), time, cut, kind, inputs=names_of(inputs), date_format=date_format)
        dataset = dataset_of(data, target, options)
        pair = dataset.read()
        if not quiet:
            console.say(understood(dataset, pair))
        of_parameter: dict[str, Any] = {parameter: model_selection.PROPOSED if is_proposed else tried}
        choice = model_selection.choose(
            unfitted,
            *pair,
            folds=folds or None,
            criterion=criterion,
            rule=rule,
            random_state=seed,
            n_jobs=jobs,
            progress=(lambda line: tqdm.write(line, sys.stderr)) if console.shows_progress else None,
            **of_parameter,
        )
    with console.errors(FAILED):
        if save is not None:
            SavedModel.of(choice.model, dataset, pair).write(save)
        if out is not None:
            with replaced(out) as partial:
                choice.frame.to_csv(partial, index=False, float_format="%.8g")
        if plot is not None:
            write_picture(choice.plot().figure, plot)
        written = [str(path) for path in (save, out, plot) if path is not None]
        facts = {"parameter": parameter, "chosen": choice.chosen, "best": choice.best, "written": written}
        rows = choice.frame.to_dict("records")
        if choice.proposals is not None:
            facts["proposed"] = repr(choice.proposals).splitlines()
        console.result(_with_observations_in_words({**facts, "values": rows}), _in_words(choice, written))


def _with_observations_in_words(facts: Any) -> Any:
    """Return ``facts`` with each configurable object replaced by the text of its constructor, which JSON can hold."""
    if isinstance(facts, dict):
        return {key: _with_observations_in_words(value) for key, value in facts.items()}
    if isinstance(facts, list):
        return [_with_observations_in_words(each) for each in facts]
    return repr(facts) if isinstance(facts, Configurable | Proposal) else facts


def parse_values(text: str) -> tuple[str, list[Any]]:
    """Return the name of a hyperparameter and the list of its values from ``key=a,b,c`` or ``key=1..8``.

    Args:
        text: the text; each value is written as for ``--set``.

    Raises:
        ValueError: the text has another form.

    >>> parse_values("n_states=1..3"), parse_values("rule=best,none"), parse_values("lr=[0.1, 0.01]")
    (('n_states', [1, 2, 3]), ('rule', ['best', None]), ('lr', [0.1, 0.01]))
    """
    key, equals, listed = check_value("--values", text).partition("=")
    if not equals or not key.strip() or not listed.strip():
        raise ValueError(f"--values {text} is not key=values; write for example --values n_states=1..8")
    whole_range = RANGE.fullmatch(listed.strip())
    if whole_range is not None:
        first, last = map(int, whole_range.groups())
        if first > last:
            raise ValueError(f"--values {text} has no values; write the smaller one first")
        if last - first >= MAX_VALUES:
            raise ValueError(
                f"--values {text} has {last - first + 1:,} values, each of which is fitted; pass {MAX_VALUES:,} at "
                f"most, or some of them with commas between: {key.strip()}={first},{10 * max(first, 1)}"
            )
        return key.strip(), list(range(first, last + 1))
    _, value = parse_setting(text)
    if isinstance(value, list):
        return key.strip(), value
    return key.strip(), [parse_setting(f"{key}={each}")[1] for each in listed.split(",")]


def _in_words(choice: model_selection.ModelSelection, written: list[str]) -> str:
    columns = ["value", "cv", "cv_se", "train", "bic", "aic", "n_parameters"]
    table = choice.frame[[column for column in columns if column in choice.frame]]
    table = table.dropna(axis=1, how="all")
    lines = [repr(choice), "", table.to_string(index=False, float_format=lambda x: f"{x:,.4f}")]
    return "\n".join(lines + ([f"Written to {', '.join(written)}"] if written else []))

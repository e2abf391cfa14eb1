"""The command ``seqmodels fit``: fit one model and save it to a file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodels.cli.checks import check_outputs, check_value
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import (
    OF_FORMATS,
    By,
    Columns,
    Cut,
    DateFormat,
    Inputs,
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
from seqmodels.common.parameters import Configurable, check_argument
from seqmodels.evaluation.runs.toml import from_table
from seqmodels.evaluation.tuning.budget import within_budget
from seqmodels.loading import MODELS
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import check_arguments

FITTED_ALONE = ("seqmodels.counts.", "seqmodels.hmm.", "seqmodels.neural.")  # packages whose models wrap no other
SHORTER = {"NGram": "ngram", "ElmanRNN": "elman", "LSTMSeq2Seq": "seq2seq"}
BETWEEN_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _families() -> dict[str, str]:
    """Return the models whose constructors need no arguments, as a mapping from command-line name to class name.

    The command-line name is the class name in lower case with hyphens between words, such as ``context-tree``; a few
    are shorter.
    """
    alone = [cls for cls in MODELS if issubclass(cls, SequenceModel) and cls.__module__.startswith(FITTED_ALONE)]
    names = [cls.__name__ for cls in alone if all(p.default is not p.empty for p in signature(cls).parameters.values())]
    return {SHORTER.get(name, BETWEEN_WORDS.sub("-", name).lower()): name for name in sorted(names)}


FAMILIES = _families()


def complete_family(incomplete: str) -> list[str]:
    """Return the names of families of models that begin with ``incomplete``, for completion in a shell."""
    return [name for name in FAMILIES if name.startswith(incomplete)]


def fit(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(FAMILIES)}.", autocompletion=complete_family)],
    data: Annotated[
        str,
        typer.Argument(help=OF_FORMATS),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("model.safetensors"),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A hyperparameter, key=value; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Train for this long.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Train for this number of steps (for EM, at most so many iterations).")
    ] = None,
    target: Target = None,
    by: By = "",
    columns: Columns = "",
    time: Time = "",
    date_format: DateFormat = "",
    inputs: Inputs = "",
    kind: Kinds = None,
    cut: Cut = "whole",
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit one model to one set of data, and save it. Networks hold out a tenth of the data to decide when to stop.

    Example: seqmodels fit lstm book.txt --set d_model=256 --seconds 120

    The command first prints what it took the data for; --kind, --by, --columns and --time change that.

    A hyperparameter is written as for the constructor: --set n_states=32, --set attention=none, --set
    'observation={class="GaussianMixture", n_components=8}'.

    The figures are nats per byte, frame or symbol of the data that it was trained on (and of held-out data), higher is
    better. For an unbiased figure score data that it has not seen: seqmodels score.

    Ctrl-C ends training and writes the best model found so far; a second Ctrl-C writes nothing.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_outputs(models={"--out": out}, inputs=(data, target))
        chosen = that_reads(model_of(model, settings or (), seed), names_of(inputs))
        unfitted = within_budget(chosen, seconds=seconds, steps=steps)
        options = ReadOptions(by, names_of(columns), time, cut, kind, inputs=names_of(inputs), date_format=date_format)
        dataset = dataset_of(data, target, options)
        pair = dataset.read()
        if not quiet:
            console.say(understood(dataset, pair))
        verbose = unfitted.verbose
        fitted = unfitted.set_params(verbose=False if quiet else verbose).fit(*pair)
    with console.errors(FAILED):
        saved = SavedModel.of(fitted.set_params(verbose=verbose), dataset, pair)
        saved.write(out)
        facts = _facts(saved, out)
        console.result(facts, _in_words(facts))
        if fitted.interrupted_:
            raise KeyboardInterrupt


def _facts(saved: SavedModel[SequenceModel], out: Path) -> dict[str, Any]:
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


def _in_words(facts: dict[str, Any]) -> str:
    about = facts["data"]
    last = facts["last"]
    figures = [f"{last['log_prob']:.4f} nats per {about['unit']} in training"] if "log_prob" in last else []
    if last.get("validation") == last.get("validation") and "validation" in last:
        figures.append(f"{last['validation']:.4f} on what it held out")
    return (
        f"{facts['class']} with {facts['n_parameters']:,} parameters, fitted to {about['units']:,} {about['unit']}s in "
        f"{facts['fit_seconds']:.1f} s{': ' * bool(figures)}{', '.join(figures)}.\nWritten to {facts['out']}"
    )


# -- the model of the command line ----------------------------------------------------------------------------


def model_of(family: str, settings: Sequence[str], random_state: int) -> Any:
    """Return an unfitted model with the hyperparameters that a user gave on the command line.

    Args:
        family: name of a family, such as ``"hmm"``, or of a class.
        settings: hyperparameters as texts ``key=value``.
        random_state: seed of the model.

    Raises:
        ValueError: the family or a hyperparameter is unknown, or a value has the wrong type.
    """
    known = [cls.__name__ for cls in MODELS if issubclass(cls, SequenceModel)]
    name = FAMILIES.get(family.lower(), family)
    if name not in known:
        raise ValueError(f"there is no model {family!r}; choose from {', '.join(FAMILIES)}")
    pairs = dict(map(parse_setting, settings))
    direct = {key: value for key, value in pairs.items() if "__" not in key}
    model = from_table({"class": name, "random_state": random_state, **direct})
    for key in sorted(pairs.keys() - direct.keys()):
        _set_nested(model, key, pairs[key])
    check_arguments(model)
    model._check_hyperparameters()
    return model


def _set_nested(model: Any, path: str, value: Any) -> None:
    """Set a nested hyperparameter of a model.

    Args:
        model: the model, which is changed in place.
        path: name of the hyperparameter, such as ``"observation__n_components"``.
        value: its value.

    Raises:
        ValueError: there is no such hyperparameter, or the value has the wrong type.
    """
    outer, _, inner = path.partition("__")
    holder = model._value_with(outer, inner) if outer in model.get_params(deep=False) else None
    if not isinstance(holder, Configurable):
        raise ValueError(
            f"{outer} is {holder!r}, which has no {inner} to set; say which it is, for example "
            "--set 'observation={class=\"GaussianMixture\", n_components=8}'"
        )
    check_argument(type(holder), inner, value)
    model.set_params(**{path: value})


def parse_setting(setting: str) -> tuple[str, Any]:
    """Return the key and the value of a text ``key=value``.

    The value is written as in TOML, except that a word needs no quotes and ``none`` is None.

    Args:
        setting: the text.

    Raises:
        ValueError: there is no key or no ``=``.

    >>> parse_setting("d_model=64"), parse_setting("attention=none"), parse_setting("observation={class='Poisson'}")
    (('d_model', 64), ('attention', None), ('observation', {'class': 'Poisson'}))
    """
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {setting} is not key=value; write for example --set d_model=64")
    return key.strip(), _value(check_value(f"--set {key.strip()[:40]}", text.strip()))


def _value(text: str) -> Any:
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text

"""The command ``seqmodels inspect``: describe a saved model, and the states of an HMM."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel
from seqmodels.encodings import Encoding
from seqmodels.encodings.text import Text, symbol_names
from seqmodels.evaluation.runs import toml
from seqmodels.evaluation.runs.toml import to_table
from seqmodels.hmm import HMM
from seqmodels.model import SequenceModel
from seqmodels.observations import Categorical, GaussianMixture

MAX_LISTED = 5  # the most symbols of a state, and features of its mean, that are listed


def inspect(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Describe a saved model: class and hyperparameters, what its figures measure, its data, how its training ended.

    Example: seqmodels inspect model.safetensors

    The figures log_prob and validation are nats per byte, frame or symbol, higher is better. For an HMM every state is
    shown: its share of the steps in the long run, the mean number of steps that it lasts, and the symbols that it emits
    most often (with their probabilities) or the mean of its vectors, in raw units.
    """
    console = Console(as_json, quiet)
    with console.errors():
        saved = SavedModel.read(model)
    with console.errors(FAILED):
        facts = _facts(saved)
        console.result(facts, _in_words(facts))


def _facts(saved: SavedModel[SequenceModel]) -> dict[str, Any]:
    model = saved.model
    table = to_table(model)
    return {
        "class": table.pop("class"),
        "hyperparameters": table,
        "measure": model.measure_.to_json(),
        "n_parameters": model.n_parameters_,
        "context": model.context_,
        "observation": to_table(model.observation_),
        "encoding": type(model.encoding_).__name__,
        "names": _names(model.encoding_),
        "source_names": _names(model.source_encoding_) if model.source_encoding_ is not model.encoding_ else None,
        "converged": model.converged_,
        "fit_seconds": model.fit_seconds_,
        "last": model.history_.iloc[-1].to_dict() if len(model.history_) else {},
        "data": saved.about,
        "sample_rate": saved.sample_rate,
        "states": states_of(model) if isinstance(model, HMM) else [],
    }


def _names(encoding: Encoding | None) -> list[str] | None:
    """Return the names of the features or symbols of an encoding, or None if the data had none."""
    return None if encoding is None or encoding.names is None else list(encoding.names)


def _in_words(facts: dict[str, Any]) -> str:
    measure = facts["measure"]
    inputs = ", ".join(measure.get("inputs", ()))
    p = "p(y | x)" if measure["conditional"] else f"p(x | {inputs})" if inputs else "p(x)"
    ends = "ends are scored" if measure["length"] == "stop" else "lengths are given"
    context = "the whole sequence" if facts["context"] is None else f"{facts['context']} steps back"
    lines = [
        f"{facts['class']}: {p} of {measure['space']}, nats per {measure['unit']}, {measure['kind']}; {ends}",
        f"parameters   {facts['n_parameters']:,}",
        f"sees         {context}",
        f"encoding     {facts['encoding']}",
        *(f"{what}{', '.join(names)}" for what, names in _named(facts) if names),
        f"observation  {toml.inline(facts['observation'])}",
        f"data         {_data_in_words(facts)}",
        f"training     {_training_in_words(facts)}",
        "",
        *(f"{key} = {toml.inline(value)}" for key, value in facts["hyperparameters"].items()),
    ]
    return "\n".join([*lines, *_state_lines(facts["states"])])


def _named(facts: dict[str, Any]) -> list[tuple[str, list[str] | None]]:
    return [
        ("features     " if facts["measure"]["unit"] == "frame" else "symbols      ", facts["names"]),
        ("of sources   ", facts["source_names"]),
    ]


def _data_in_words(facts: dict[str, Any]) -> str:
    about = facts["data"]
    if about is None:
        return "not known: the file was not written by seqmodels fit"
    rate = f", recorded at {facts['sample_rate']} Hz" if facts["sample_rate"] else ""
    if "description" in about:
        return f"{about['description']}{rate}; sha256 {about['sha256'][:12]}"
    width = f" of {about['n_features']} features" if about["unit"] == "frame" else ""
    words = f"{about['sequences']:,} sequence{'s' * (about['sequences'] != 1)}, {about['units']:,} {about['unit']}s"
    return f"{words}{width}{rate}; sha256 {about['sha256'][:12]}"


def _training_in_words(facts: dict[str, Any]) -> str:
    last = ", ".join(f"{k} {v:,.4g}" for k, v in facts["last"].items() if v == v)
    end = "stopped by itself" if facts["converged"] else "stopped by its budget"
    return f"{last}; {end}, {facts['fit_seconds']:.1f} s in all"


def _state_lines(states: list[dict[str, Any]]) -> list[str]:
    if not states:
        return []
    rows = (f"{s['state']:>5}  {s['share']:>6.1%}  {s['duration']:>8.1f}  {s['emits']}" for s in states)
    return ["", "state   share  duration  emits", *rows]


# -- the states of an HMM -------------------------------------------------------------------------------------


def states_of(model: HMM) -> list[dict[str, Any]]:
    """Return a description of each hidden state of an HMM, a dictionary with four entries.

    They are ``state`` (its number), ``share`` (of the steps in the long run), ``duration`` (the mean, in steps) and
    ``emits``, a text: the most probable symbols with their probabilities, or the mean.
    """
    summary, emitted = model.state_summary(), _emissions(model)
    shares, durations = summary["share"].tolist(), summary["mean_duration"].tolist()
    return [
        {"state": k, "share": share, "duration": durations[k], "emits": emitted[k]} for k, share in enumerate(shares)
    ]


def _emissions(model: HMM) -> list[str]:
    observation = model.observation_
    if isinstance(observation, Categorical):
        names = _names_of_symbols(model.encoding_)
        return [_symbols(names, row) for row in np.asarray(model.emission_)]
    if isinstance(observation, GaussianMixture):
        means = (np.asarray(model.weights_)[..., None] * np.asarray(model.means_)).sum(axis=1)  # (K, D)
        return [_mean(row, model.encoding_.names) for row in means]
    return [type(observation).__name__] * len(model.initial_)


def _symbols(names: list[str], probabilities: np.ndarray) -> str:
    top = np.argsort(-probabilities, kind="stable")[:MAX_LISTED]
    return "  ".join(f"{names[k]} {probabilities[k]:.2f}" for k in top if probabilities[k] > 0.005)


def _names_of_symbols(encoding: Encoding) -> list[str]:
    names = symbol_names(encoding)
    return [repr(name) for name in names] if isinstance(encoding, Text) else names


def _mean(mean: np.ndarray, names: tuple[str, ...] | None) -> str:
    more = " ..." if len(mean) > MAX_LISTED else ""
    if names is not None:
        return f"mean {', '.join(f'{n} {x:.3g}' for n, x in zip(names[:MAX_LISTED], mean, strict=False))}{more}"
    return f"mean [{', '.join(f'{x:.3g}' for x in mean[:MAX_LISTED])}{more}]"

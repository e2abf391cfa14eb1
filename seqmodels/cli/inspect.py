"""``seqmodels inspect``: what a saved model is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import Saved
from seqmodels.cli.states import states_of
from seqmodels.evaluation import toml
from seqmodels.evaluation.settings import to_table
from seqmodels.hmm import HMM


def inspect(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what a saved model is: its class and hyperparameters, what its figures measure, its data, and how its training ended.

    Example: seqmodels inspect model.safetensors

    The figures: log_prob and validation are nats per byte, frame or symbol, higher is better. Of an HMM every state is shown: its
    share of the time in the long run, the mean number of steps it lasts, and the symbols it emits most often (with their
    probabilities) or the mean of its vectors, in raw units.
    """
    console = Console(as_json, quiet)
    with console.errors():
        saved = Saved.read(model)
    with console.errors(FAILED):
        facts = _facts(saved)
        console.result(facts, _words(facts))


def _facts(saved: Saved) -> dict[str, Any]:

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
        "converged": model.converged_,
        "fit_seconds": model.fit_seconds_,
        "last": model.history_.iloc[-1].to_dict() if len(model.history_) else {},
        "data": saved.about,
        "sample_rate": saved.sample_rate,
        "states": states_of(model) if isinstance(model, HMM) else [],
    }


def _words(facts: dict[str, Any]) -> str:

    measure = facts["measure"]
    p = "p(y | x)" if measure["conditional"] else "p(x)"
    ends = "ends are scored" if measure["length"] == "stop" else "lengths are given"
    context = "the whole sequence" if facts["context"] is None else f"{facts['context']} steps back"
    lines = [
        f"{facts['class']}: {p} of {measure['space']}, nats per {measure['unit']}, {measure['kind']}; {ends}",
        f"parameters   {facts['n_parameters']:,}",
        f"sees         {context}",
        f"encoding     {facts['encoding']}",
        f"observation  {toml.inline(facts['observation'])}",
        f"data         {_data(facts)}",
        f"training     {_training(facts)}",
        "",
        *(f"{key} = {toml.inline(value)}" for key, value in facts["hyperparameters"].items()),
    ]
    return "\n".join([*lines, *_states(facts["states"])])


def _data(facts: dict[str, Any]) -> str:
    about = facts["data"]
    if about is None:
        return "not known: the file was not written by seqmodels fit"
    rate = f", recorded at {facts['sample_rate']} Hz" if facts["sample_rate"] else ""
    width = f" of {about['n_features']} features" if about["unit"] == "frame" else ""
    words = f"{about['sequences']:,} sequence{'s' * (about['sequences'] != 1)}, {about['units']:,} {about['unit']}s"
    return f"{words}{width}{rate}; sha256 {about['sha256'][:12]}"


def _training(facts: dict[str, Any]) -> str:
    last = ", ".join(f"{k} {v:,.4g}" for k, v in facts["last"].items() if v == v)
    end = "stopped by itself" if facts["converged"] else "stopped by its budget"
    return f"{last}; {end}, {facts['fit_seconds']:.1f} s in all"


def _states(states: list[dict[str, Any]]) -> list[str]:
    if not states:
        return []
    rows = (f"{s['state']:>5}  {s['share']:>6.1%}  {s['duration']:>8.1f}  {s['emits']}" for s in states)
    return ["", "state   share  duration  emits", *rows]

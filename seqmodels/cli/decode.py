"""The command ``seqmodels decode``: the hidden state of every step of files under a saved HMM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from seqmodels import plot
from seqmodels.cli.checks import check_outputs
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel
from seqmodels.cli.pictures import write_picture
from seqmodels.common.display import a_or_an
from seqmodels.common.files import replaced
from seqmodels.evaluation.runs.datasets import Pair
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.model import SequenceModel


def decode(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit hmm (or HMM.save) wrote.", metavar="MODEL")],
    files: Annotated[list[str], typer.Argument(help="Files or folders, read like the data of the fit.")],
    target: Annotated[str | None, typer.Option(help="The file of targets, for a model of pairs.")] = None,
    out: Annotated[Path | None, typer.Option(help="The CSV to write; by default it is printed.")] = None,
    plot: Annotated[Path | None, typer.Option(help="The picture of one sequence to write: .png, .pdf or .svg.")] = None,
    sequence: Annotated[
        str | None, typer.Option(help="The name of the sequence in the picture; by default the first.")
    ] = None,
    state_names: Annotated[str, typer.Option(help="Names of the states, a,b,c; by default their numbers.")] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Segment sequences: the most probable path of hidden states (Viterbi) through each.

    Example: seqmodels decode model.safetensors series.csv --out states.csv --plot states.png

    Each row of the CSV is a step. It has the file, the sequence and the position, the state on the most probable path
    of the whole sequence, and the probability of that state at that step given the whole sequence. If the probability
    is low, another state would explain the step as well. For a model of pairs the steps are the targets' steps.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_outputs(texts={"--out": out}, pictures={"--plot": plot}, inputs=(model, *files, target))
        if sequence is not None and plot is None:
            raise ValueError(f"--sequence is {sequence!r}, but there is no picture that it is for; pass --plot too")
        saved, hmm = _checked_model(model, files, target)
        names = _names_of_states(state_names, len(hmm.state_summary()))
        pairs = {file: saved.like(file, target).read() for file in files}
        table = pd.concat([_decode(hmm, file, pair) for file, pair in pairs.items()], ignore_index=True)
        if plot is not None:
            _plot(hmm, pairs, sequence, names, plot)
        facts = _facts(table, names, (out, plot))
        table["state"] = [names[state] for state in table["state"]]
        if out is not None:
            with replaced(out) as partial:
                table.to_csv(partial, index=False, float_format="%.6g")
        said = table.to_csv(index=False, float_format="%.6g").removesuffix("\n") if out is None else _in_words(facts)
        console.result({**facts, "steps": table.to_dict("list")}, said)


def _checked_model(
    path: str, files: list[str], target: str | None
) -> tuple[SavedModel[SequenceModel], HiddenChainModel]:
    """Return a saved file and its model, after checking them against the other arguments of the command.

    Args:
        path: path of the saved file.
        files: files of sequences, or of sources.
        target: file of targets, for a model of pairs; None means none.

    Raises:
        ValueError: the model has no hidden states, or there is a target file but not exactly one file of sources.
    """
    saved = SavedModel.read(path)
    if not isinstance(saved.model, HiddenChainModel):
        raise ValueError(f"{path} holds {a_or_an(type(saved.model))}, which has no hidden states; fit an HMM")
    if target is not None and len(files) != 1:
        raise ValueError(f"--target goes with one file of sources, but there are {len(files)}; pass one")
    return saved, saved.model


def _names_of_states(names: str, n_states: int) -> list[str]:
    each = names.split(",") if names else [str(state) for state in range(n_states)]
    if len(each) != n_states:
        raise ValueError(f"--state-names has {len(each)} names, but the model has {n_states} states")
    if len(set(each)) < n_states or not all(each):
        raise ValueError(f"--state-names is {names!r}; pass {n_states} different names, to tell the states apart")
    return each


def _decode(model: HiddenChainModel, file: str, pair: Pair) -> pd.DataFrame:
    """Return a table with one row per step of the sequences of a file, with their states.

    Args:
        model: the model.
        file: path of the file, which any ``ValueError`` names.
        pair: sequences of the file, and their targets or None.
    """
    try:
        frame = model.decode_frame(*pair)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    frame.insert(0, "file", file)
    return frame


def _plot(model: HiddenChainModel, pairs: dict[str, Pair], sequence: str | None, names: list[str], file: Path) -> None:
    """Write a picture of one sequence and its hidden states.

    Args:
        model: the model.
        pairs: sequences, and their targets or None, by the file that they were read from.
        sequence: name of the sequence; None means the first.
        names: names of the states.
        file: path of the picture.

    Raises:
        ValueError: there is no sequence with this name.
    """
    known = [(X, y, i) for X, y in pairs.values() for i in range(len(X))]
    chosen = [(X, y, i) for X, y, i in known if sequence in (None, str((X if y is None else y).names[i]))]
    if not chosen:
        some = ", ".join(str((X if y is None else y).names[i]) for X, y, i in known[:10])
        raise ValueError(f"there is no sequence {sequence!r} to draw; there are {some}{' ...' * (len(known) > 10)}")
    X, y, i = chosen[0]
    axes = plot.states(model, X.take([i]), None if y is None else y.take([i]), state_names=names)
    axes.set_title(str((X if y is None else y).names[i]))
    write_picture(axes.figure, file)


def _facts(table: pd.DataFrame, names: list[str], outputs: tuple[Path | None, ...]) -> dict[str, Any]:
    from seqmodels.evaluation.comparison.report.inspection import visits  # imported here because it loads matplotlib

    states = visits([part["state"].to_numpy() for _, part in table.groupby(["file", "sequence"], sort=False)])
    states["state"] = [names[state] for state in states["state"]]
    return {"written": [str(path) for path in outputs if path is not None], "states": states.to_dict("records")}


def _in_words(facts: dict[str, Any]) -> str:
    states = pd.DataFrame(facts["states"])
    states["share"] = [f"{share:.1%}" for share in states["share"]]
    states["mean duration"] = [f"{steps:.1f}" for steps in states["mean duration"]]
    return f"{states.to_string(index=False)}\nWritten to {', '.join(facts['written'])}"

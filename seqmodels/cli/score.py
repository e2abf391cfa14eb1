"""The command ``seqmodels score``: the log-probability that a saved model gives to files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from seqmodels.cli.checks import check_outputs
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel
from seqmodels.common.files import replaced
from seqmodels.evaluation.runs.datasets import Pair
from seqmodels.model import SequenceModel
from seqmodels.sequences.zones import with_zone


def score(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    files: Annotated[list[str], typer.Argument(help="Files or folders, read like the data of the fit.")],
    target: Annotated[str | None, typer.Option(help="The file of targets, for a model of pairs.")] = None,
    steps: Annotated[
        Path | None, typer.Option(help="The CSV to write with the log-probability of every step and its time.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score files with a saved model. Only files that it was not trained on give an unbiased figure.

    Example: seqmodels score model.safetensors chapter1.txt chapter2.txt --steps steps.csv

    The figures: nats per byte (frame, symbol) are log p / length, higher is better. bits are the cost of one, -log2 p /
    length, lower is better: a text of b bits per byte would be compressed to b / 8 of its size. perplexity, exp(-nats),
    is the number of equally likely bytes that would be as uncertain; vectors have none, because they have a density.
    Texts and symbols include their end.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_outputs(texts={"--steps": steps}, inputs=(model, *files, target))
        saved = SavedModel.read(model)
        if target is not None and len(files) != 1:
            raise ValueError(f"--target goes with one file of sources, but there are {len(files)}; pass one")
        pairs = {file: saved.like(file, target).read() for file in files}
        table = pd.concat([_score_steps(saved, file, pair) for file, pair in pairs.items()], ignore_index=True)
        if steps is not None:
            with replaced(steps) as partial:
                table.to_csv(partial, index=False)
        facts = _facts(saved, pairs, table)
        console.result(facts, _in_words(facts))


def _score_steps(saved: SavedModel[SequenceModel], file: str, pair: Pair) -> pd.DataFrame:
    """Return a table with the log-probability of each step of the sequences of a file.

    Args:
        saved: the saved model.
        file: path of the file, which any ``ValueError`` names.
        pair: sequences of the file, and their targets or None.
    """
    X, y = pair
    saved.check_sample_rate(file, X)
    try:
        each = saved.model.log_prob_steps(X, y)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    parts = [
        pd.DataFrame({"sequence": i, "name": name, "position": range(1, len(steps) + 1), "log_prob": steps})
        for i, (name, steps) in enumerate(zip(X.names, each, strict=True))
    ]
    scored = X if y is None else y
    if scored.times is not None:
        for part, times in zip(parts, scored.times, strict=True):
            of_steps = pd.Series(with_zone(times, scored.time_unit))
            part.insert(3, "time", of_steps.reindex(part.index))  # an end that is scored has no time
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "file", file)
    return table


def _facts(saved: SavedModel[SequenceModel], pairs: dict[str, Pair], table: pd.DataFrame) -> dict[str, Any]:
    units = {file: int((X if y is None else y).n_units.sum()) for file, (X, y) in pairs.items()}
    sums = table.groupby("file", sort=False)["log_prob"].sum()
    measure = saved.model.measure_
    files = {file: _figures(float(sums[file]), n, measure.space) for file, n in units.items()}
    total = _figures(float(sums.sum()), sum(units.values()), measure.space)
    return {"measure": measure.to_json(), "files": files, "total": total}


def _figures(log_prob: float, n_units: int, space: str) -> dict[str, float]:
    mean = log_prob / n_units
    figures = {"units": n_units, "log_prob": log_prob, "nats": mean, "bits": -mean / math.log(2)}
    return {**figures, "perplexity": math.exp(-mean)} if space in ("text", "symbols") else figures


def _in_words(facts: dict[str, Any]) -> str:
    unit = facts["measure"]["unit"]
    rows = {**facts["files"], **({"all": facts["total"]} if len(facts["files"]) > 1 else {})}
    frame = pd.DataFrame(
        [
            {
                "file": file,
                f"{unit}s": f"{row['units']:,}",
                f"bits per {unit}": f"{row['bits']:.4f}",
                f"nats per {unit}": f"{row['nats']:.4f}",
                **({"perplexity": f"{row['perplexity']:.3f}"} if "perplexity" in row else {}),
            }
            for file, row in rows.items()
        ]
    )
    return frame.to_string(index=False)

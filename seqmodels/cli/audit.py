"""The command ``seqmodels audit``: check, rule by rule, if the figures of a saved model are log-probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seqmodels.cli.checks import check_outputs
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, Seed, Target
from seqmodels.common.files import replaced
from seqmodels.evaluation.auditing import Audit
from seqmodels.evaluation.auditing import audit as audit_model


def audit(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    data: Annotated[
        str, typer.Argument(help="A file or folder that it was not fitted to, read like the data of the fit.")
    ],
    target: Target = None,
    effort: Annotated[
        Literal["quick", "normal", "thorough"],
        typer.Option(help="How much to score: from seconds for a small model to a hundred times as much."),
    ] = "normal",
    out: Annotated[Path | None, typer.Option(help="The CSV to write, with a row for each rule.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Audit a saved model: are its figures log-probabilities that may be compared?

    Example: seqmodels audit model.safetensors test.txt

    Each line is a rule: whether it is held, broken or not checked, the figure that was examined, and for a broken rule
    a sequence and step with two figures that contradict each other. The exit code is 1 if a rule is broken and 0
    otherwise, even if rules were not checked. A model that keeps all rules fails the audit by chance with a probability
    of at most one in a million.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_outputs(texts={"--out": out}, inputs=(model, data, target))
        saved = SavedModel.read(model)
        X, y = saved.like(data, target).read()
        saved.check_sample_rate(data, X)
        try:
            result = audit_model(saved.model, X, y, effort=effort, random_state=seed)
        except ValueError as error:
            raise ValueError(f"{data}: {error}") from None
        if out is not None:
            with replaced(out) as partial:
                result.frame.to_csv(partial, index=False)
        console.result(_facts(result), str(result))
    if not result.passed:
        raise typer.Exit(FAILED)


def _facts(result: Audit) -> dict[str, Any]:
    return {
        "model": result.model,
        "passed": result.passed,
        "broken": list(result.broken),
        "n_steps": result.n_steps,
        "rules": result.frame.to_dict("records"),
    }

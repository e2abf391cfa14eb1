"""The command ``seqmodels anomalies``: find steps or sequences that are improbable under a saved model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import typer

from seqmodels.cli.checks import check_outputs, check_value
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel
from seqmodels.cli.pictures import write_picture
from seqmodels.common.display import a_or_an
from seqmodels.common.files import replaced
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences
from seqmodels.wrappers.anomalies.detector import Anomalies

MAX_LISTED = 10  # the most anomalies that are printed


def anomalies(
    model: Annotated[
        str,
        typer.Argument(
            help="A file that seqmodels fit (or model.save) wrote, or a file with a threshold that --save wrote.",
            metavar="MODEL",
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            help="The files or folders to judge, read like the data of the fit. Unless MODEL has a threshold, the "
            "first is normal data that it was not fitted to, from which the threshold is computed."
        ),
    ],
    quantile: Annotated[
        float | None,
        typer.Option(
            help="The quantile of normal scores above which a step is an anomaly; the default, 0.999, gives 1 false "
            "alarm in 1000."
        ),
    ] = None,
    per: Annotated[
        str | None,
        typer.Option(help="What is judged: each step (the default), each sequence, or means over so many steps."),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="The file to write the model and the threshold to.")] = None,
    out: Annotated[Path, typer.Option(help="The CSV to write, with a row for each step or sequence.")] = Path(
        "anomalies.csv"
    ),
    plot: Annotated[
        Path | None, typer.Option(help="The picture (.png, .svg, .pdf) to write of the sequence with the worst step.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find what is improbable under a saved model: steps given all before them, or whole sequences.

    Example: seqmodels anomalies model.safetensors normal.csv new.csv --plot worst.png --save detector.safetensors

    Then, without the normal data: seqmodels anomalies detector.safetensors newer.csv

    The columns: log_prob is the log-probability of a step given all steps before it, in nats. score is -log_prob; for a
    sequence it is the mean per byte, frame or symbol. p_value is the share of the normal data's scores that are as
    high. is_anomaly says if p_value is at most 1 - quantile. For vectors, log_prob_NAME is the log-probability of each
    feature given the others, and feature names the least usual one. In data like the normal ones, a share of 1 -
    quantile is flagged by chance.
    """
    console = Console(as_json, quiet)
    with console.errors():
        check_outputs(models={"--save": save}, texts={"--out": out}, pictures={"--plot": plot}, inputs=(model, *files))
        if quantile is not None and not 0 < quantile < 1:
            raise ValueError(f"--quantile is {quantile}; pass a number between 0 and 1")
        _per(per or "step")
        saved = SavedModel.read_any(model)
        detector = _detector(model, saved, files, quantile, per)
        judged = files if saved.model is detector else files[1:]
        data = {file: _read(saved, file) for file in judged}
        table = pd.concat([_judged(detector, file, X) for file, X in data.items()], ignore_index=True)
    with console.errors(FAILED):
        if save is not None:
            replace(saved, model=detector).write(save)
        with replaced(out) as partial:
            table.to_csv(partial, index=False)
        if plot is not None:
            _draw(detector, data, table, plot)
        facts = _facts(detector, table, [path for path in (out, plot, save) if path is not None])
        console.result(facts, _in_words(facts))


def _detector(
    path: str, saved: SavedModel[Any], files: list[str], quantile: float | None, per: str | None
) -> Anomalies:
    """Return the saved detector of anomalies, or make one from the saved model with normal data of the first file.

    Args:
        path: path of the saved file.
        saved: its content.
        files: the files of the command; without a saved detector, the first has normal data.
        quantile: quantile of normal scores that is the threshold; None if the option was not given.
        per: what is judged: ``"step"``, ``"sequence"`` or a number of steps; None if the option was not given.

    Raises:
        ValueError: the file has no sequence model, or options and files do not fit it.
    """
    detector = saved.model if isinstance(saved.model, Anomalies) else None
    model = saved.model if detector is None else detector.model_
    if not isinstance(model, SequenceModel):
        raise ValueError(f"{path} holds {a_or_an(type(model))}, which has no likelihood of sequences")
    if model.measure_.conditional:
        raise ValueError(f"{path} is p(y | x); use seqmodels.Anomalies from Python for pairs")
    if detector is not None:
        if quantile is not None or per is not None:
            option = "--per" if quantile is None else "--quantile"
            raise ValueError(f"{path} already has a threshold; leave {option} out, or pass the model and normal data")
        return detector
    if len(files) < 2:
        raise ValueError(
            f"{path} has no threshold, so pass two files: normal data that it was not fitted to, and the data to judge"
        )
    detector = Anomalies(model, quantile=0.999 if quantile is None else quantile, per=_per(per or "step"))
    return detector.calibrate(_read(saved, files[0]))


def _per(per: str) -> Literal["step", "sequence"] | int:
    if per == "sequence":
        return "sequence"
    if per != "step" and not (check_value("--per", per).isdecimal() and int(per)):
        raise ValueError(f"--per is {per!r}; pass step, sequence or a number of steps")
    return int(per) if per.isdecimal() else "step"


def _read(saved: SavedModel[Any], file: str) -> Sequences:
    X, _ = saved.like(file).read()
    saved.check_sample_rate(file, X)
    return X


def _judged(detector: Anomalies, file: str, X: Sequences) -> pd.DataFrame:
    try:
        table = detector.predict(X)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    table.insert(0, "file", file)
    return table


def _draw(detector: Anomalies, data: dict[str, Sequences], table: pd.DataFrame, path: Path) -> None:
    worst = table.iloc[int(table["score"].argmax())]
    X = data[worst["file"]]
    title = f"{Path(worst['file']).name}, {worst['sequence']}"
    figure = detector.plot(X.take([X.names.index(worst["sequence"])]), title=title).figure
    write_picture(figure, path)


def _facts(detector: Anomalies, table: pd.DataFrame, written: list[Path]) -> dict[str, Any]:
    judged = table[table["score"].notna()]
    worst = judged[judged["is_anomaly"]].sort_values("score", ascending=False, kind="stable").head(MAX_LISTED)
    return {
        "threshold": detector.threshold_,
        "quantile": detector.quantile,
        "per": detector.per,
        "n_held_out": len(detector.scores_),
        "judged": len(judged),
        "anomalies": int(judged["is_anomaly"].sum()),
        "by_chance": (1 - detector.quantile) * len(judged),
        "files": judged.groupby("file", sort=False)["is_anomaly"].sum().to_dict(),
        "worst": worst.to_dict("records"),
        "written": [str(path) for path in written],
    }


def _in_words(facts: dict[str, Any]) -> str:
    what = "sequences" if facts["per"] == "sequence" else "steps"
    lines = [
        f"{facts['anomalies']:,} of {facts['judged']:,} {what} are anomalies; {facts['by_chance']:.3g} would be by "
        "chance",
        f"(score above {facts['threshold']:.4g} nats, the {facts['quantile']} quantile of {facts['n_held_out']:,} "
        f"{what} of normal data)",
    ]
    if facts["worst"]:
        columns = ["file", "sequence", "step", "time", "worst_step", "value", "score", "p_value", "feature", "reason"]
        table = pd.DataFrame(facts["worst"])
        table = table[[c for c in columns if c in table and not (c == "reason" and table[c].eq("").all())]]
        lines += ["", table.to_string(index=False, float_format=lambda x: f"{x:.4g}")]
    lines += ["", f"Written to {', '.join(facts['written'])}"]
    return "\n".join(lines)

"""``seqmodels anomalies``: the steps or sequences of files that are improbable under a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import typer

from seqmodels.anomalies import Anomalies
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel
from seqmodels.files import replaced
from seqmodels.sequences import Sequences

MAX_LISTED = 10  # anomalies that are printed


def anomalies(
    model: Annotated[str, typer.Argument(help="A file that seqmodels fit (or model.save) wrote.", metavar="MODEL")],
    calibration: Annotated[
        str, typer.Argument(help="Normal data that the model was not fitted to: they give the threshold.")
    ],
    files: Annotated[list[str], typer.Argument(help="Files or folders to judge; read as the data of the fit were.")],
    quantile: Annotated[
        float, typer.Option(help="Of normal scores, above which there is an anomaly: 0.999 has 1 false alarm in 1000.")
    ] = 0.999,
    per: Annotated[str, typer.Option(help="What is judged: step, sequence, or a number: means of as many steps.")] = (
        "step"
    ),
    out: Annotated[Path, typer.Option(help="The CSV to write, a row a step or sequence.")] = Path("anomalies.csv"),
    plot: Annotated[
        Path | None, typer.Option(help="A picture (.png, .svg, .pdf) of the sequence with the worst step.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find what is improbable under a saved model: steps given all before them, or whole sequences.

    Example: seqmodels anomalies model.safetensors normal.csv new.csv --plot worst.png

    The figures: log_prob is log p of a step given all before it, in nats; score is -log_prob, of a sequence per byte,
    frame or symbol; p_value is the share of the normal data's scores that are as high, and is_anomaly says whether
    that is at most 1 - quantile. Columns log_prob_NAME of vectors are of each feature given the others; feature names
    the one that is least usual. Of data like the normal ones a share of 1 - quantile is flagged by chance.
    """
    console = Console(as_json, quiet)
    with console.errors():
        saved = SavedModel.read(model)
        if saved.model.measure_.conditional:
            raise ValueError(f"{model} is p(y | x); use seqmodels.Anomalies from Python for pairs")
        for path in (out, plot):
            if path is not None and not path.parent.is_dir():
                raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to; make it first")
        detector = Anomalies(saved.model, quantile=quantile, per=_per(per))
        detector.calibrate(_read(saved, calibration))
        data = {file: _read(saved, file) for file in files}
        table = pd.concat([_judged(detector, file, X) for file, X in data.items()], ignore_index=True)
    with console.errors(FAILED):
        with replaced(out) as partial:
            table.to_csv(partial, index=False)
        if plot is not None:
            _draw(detector, data, table, plot)
        facts = _facts(detector, table, out, plot)
        console.result(facts, _in_words(facts))


def _per(per: str) -> Literal["step", "sequence"] | int:
    if per == "sequence":
        return "sequence"
    if per != "step" and not per.isdecimal():
        raise ValueError(f"--per is {per!r}; pass step, sequence or a number of steps")
    return int(per) if per.isdecimal() else "step"


def _read(saved: SavedModel, file: str) -> Sequences:
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
    above, _ = detector.plot(X[X.names.index(worst["sequence"])], title=title)
    figure = above.get_figure(root=True)
    assert figure is not None, "the detector drew on a figure"
    with replaced(path) as partial:
        figure.savefig(partial, format=path.suffix.removeprefix(".") or "png")


def _facts(detector: Anomalies, table: pd.DataFrame, out: Path, plot: Path | None) -> dict[str, Any]:
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
        "out": str(out),
        "plot": None if plot is None else str(plot),
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
        columns = ["file", "sequence", "step", "worst_step", "value", "score", "p_value", "feature", "reason"]
        table = pd.DataFrame(facts["worst"])
        table = table[[c for c in columns if c in table and not (c == "reason" and table[c].eq("").all())]]
        lines += ["", table.to_string(index=False, float_format=lambda x: f"{x:.4g}")]
    lines += ["", f"Written to {facts['out']}" + (f" and {facts['plot']}" if facts["plot"] else "")]
    return "\n".join(lines)

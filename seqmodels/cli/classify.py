"""The command ``seqmodels classify``: fit a classifier to labelled sequences, or label files with a saved one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from seqmodels.cli.checks import SAVED, check_outputs
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.cli.fit import complete_family, model_of
from seqmodels.cli.inputs import (
    By,
    Columns,
    Cut,
    DateFormat,
    Inputs,
    Kinds,
    ReadOptions,
    SavedModel,
    Seed,
    Time,
    dataset_of,
    names_of,
    that_reads,
    understood,
)
from seqmodels.cli.pictures import write_picture
from seqmodels.common.display import a_or_an
from seqmodels.common.files import replaced
from seqmodels.data import is_table, is_text
from seqmodels.data.tables import read_table
from seqmodels.evaluation.runs.datasets import Dataset, Files
from seqmodels.evaluation.tuning.budget import within_budget
from seqmodels.plot import confusion
from seqmodels.sequences import Sequences
from seqmodels.wrappers.classification import GenerativeClassifier

MAX_SHOWN = 12  # the most labels with which the confusion matrix is printed


def classify(
    model: Annotated[
        str,
        typer.Argument(
            help="A family (hmm, ngram, lstm, ...), from which a model is fitted to each label, or a file that --save "
            "wrote.",
            autocompletion=complete_family,
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(help="Files or folders to label; for a family, the labelled data come first."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A hyperparameter of the family, key=value; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Train each label's model for this long.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Train each model for this number of steps (for EM, at most so many iterations).")
    ] = None,
    label: Annotated[
        str, typer.Option(help="The column of labels in a table; by default a column called label or class.")
    ] = "",
    by: By = "",
    columns: Columns = "",
    time: Time = "",
    date_format: DateFormat = "",
    inputs: Inputs = "",
    kind: Kinds = None,
    cut: Cut = "whole",
    folds: Annotated[
        int,
        typer.Option(
            help="The number of parts of the labelled data, each held out once to count errors; 0 holds out nothing.",
            min=0,
        ),
    ] = 5,
    seed: Seed = 0,
    save: Annotated[
        Path | None,
        typer.Option(help="The file to write the classifier to; seqmodels classify FILE then labels with it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The CSV of predictions to write, with a row for each sequence.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="The picture of the confusion matrix to write: .png, .pdf or .svg.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a classifier to labelled sequences and say how often it is right, or label files with a saved one.

    Example: seqmodels classify hmm gestures.csv --by trial --label gesture --set n_states=3 --save gestures.safetensors

    Then: seqmodels classify gestures.safetensors new.csv --out labels.csv

    Labels are a column of a table, or the names of the folders in a folder. A density fitted to the sequences with each
    label gives the label of a new sequence by Bayes' rule. Errors are counted on held-out parts, which are whole
    clusters if the data have clusters; the saved classifier is then fitted to all data. Each row of the CSV is a
    sequence with its label, if it has one, and the predicted one. It also has the calibrated probability of each label,
    except for held-out sequences.
    """
    console = Console(as_json, quiet)
    with console.errors():
        if save is not None and not save.is_dir() and save.suffix != SAVED:
            raise ValueError(f"--save is {save}; its name should end in {SAVED}")
        check_outputs(models={"--save": save}, texts={"--out": out}, pictures={"--plot": plot}, inputs=(model, *files))
        if folds == 1:
            raise ValueError("--folds is 1, which leaves nothing to fit to; pass at least 2, or 0 to hold out nothing")
        is_saved = Path(model).suffix == SAVED or Path(model).is_file()
        options = ReadOptions(
            by, names_of(columns), time, cut, kind, label, inputs=names_of(inputs), date_format=date_format
        )
        if is_saved:
            given: dict[str, Any] = {"--set": settings, "--save": save, "--seconds": seconds, "--steps": steps}
            given |= {"--by, --columns, --time, --inputs or --label": options.of_tables, "--kind": kind}
            _refuse_options_of_fit(model, given)
            saved, data, first = _read_classifier(model), None, None
        else:
            chosen = that_reads(model_of(model, settings or (), seed), names_of(inputs))
            unfitted = within_budget(chosen, seconds=seconds, steps=steps)
            classifier = GenerativeClassifier(unfitted, random_state=seed)
            data = _labelled_data(files[0], options)
            first = _read_labelled(files[0], data)
            if not quiet:
                console.say(understood(data, (first, None)))
        parts: list[pd.DataFrame] = []
        if data is not None and first is not None:
            if folds:
                parts.append(_held_out(classifier, files[0], first, folds))
            saved = SavedModel.of(classifier.fit(first), data, (first, None))
    with console.errors(FAILED):
        if data is not None and save is not None:
            saved.write(save)
    with console.errors():
        parts += [_predicted(saved, file) for file in (files if is_saved else files[1:])]
        table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        outputs = [save, _write(table, out), _draw(table, saved.model.classes_, plot)]
        facts = _facts(saved.model, table, [str(path) for path in outputs if path is not None])
        console.result(facts, _in_words(facts, table.iloc[:0] if out is not None else _without_label(table)))


# -- reading -----------------------------------------------------------------------------------------------------------


def _refuse_options_of_fit(model: str, given: dict[str, Any]) -> None:
    for option, value in given.items():
        if value:
            raise ValueError(f"{model} is fitted and knows how its data were read; leave {option} out")


def _read_classifier(path: str) -> SavedModel[GenerativeClassifier]:
    saved = SavedModel.read_any(path)
    if not isinstance(saved.model, GenerativeClassifier):
        raise ValueError(
            f"{path} holds {a_or_an(type(saved.model))}, which is not a classifier; seqmodels classify FAMILY DATA "
            "--save FILE writes one"
        )
    return saved


def _labelled_data(path: str, options: ReadOptions) -> Dataset:
    if is_text(path) and options.kind in (None, "text") and not options.of_tables:
        return Files(path, options.kind or "", cut=options.cut)  # because it reads the names of folders as labels
    return dataset_of(path, None, options)


def _read_labelled(path: str, data: Dataset) -> Sequences:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* sequences have no label")  # because it is an error below
        X, _ = data.read()
    if X.labels is None:
        raise ValueError(
            f"{path} has no labels; name their column with --label, or put the files of a label into a folder of its "
            "name"
        )
    without = np.flatnonzero(pd.isna(pd.Series(X.labels, dtype=object)))
    if len(without):
        raise ValueError(f"{path}: sequence {X.names[without[0]]!r} has no label; give it one, or leave it out")
    return X


def _without_missing_label(data: Dataset, file: str) -> Dataset:
    """Return a data set without its column of labels if a file lacks it.

    Args:
        data: how the data of the fit were read.
        file: path of the file that is to be read in the same way.
    """
    if isinstance(data, Files) and data.label and Path(file).is_file() and is_table(file):
        if data.label not in map(str, read_table(Path(file), None)[0].columns):
            return data.clone().set_params(label="")
    return data


# -- predictions -------------------------------------------------------------------------------------------------------


def _held_out(classifier: GenerativeClassifier, file: str, X: Sequences, folds: int) -> pd.DataFrame:
    predicted = classifier.cross_val_predict(X, n_folds=folds)
    return pd.DataFrame(
        {"file": file, "sequence": X.names, "label": X.labels, "predicted": predicted.tolist()}, dtype=object
    )


def _predicted(saved: SavedModel[GenerativeClassifier], file: str) -> pd.DataFrame:
    X, _ = _without_missing_label(saved.like(file), file).read()
    saved.check_sample_rate(file, X)
    try:
        probabilities = saved.model.predict_proba(X)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    table = pd.DataFrame({"file": file, "sequence": X.names})
    if X.labels is not None:
        table["label"] = pd.Series(X.labels, dtype=object)
    table["predicted"] = saved.model.classes_[probabilities.argmax(axis=1)]
    for c, label in enumerate(saved.model.classes_):
        table[f"p_{label}"] = probabilities[:, c]
    return table


def _write(table: pd.DataFrame, out: Path | None) -> Path | None:
    if out is None:
        return None
    if not len(table):
        raise ValueError("--out has nothing to hold: there are no other files, and --folds is 0; leave --out out")
    with replaced(out) as partial:
        table.to_csv(partial, index=False, float_format="%.6g")
    return out


def _with_label(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["label"].notna()] if "label" in table else table.iloc[:0]


def _without_label(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["label"].isna()].drop(columns="label") if "label" in table else table


def _all_labels(rows: pd.DataFrame, classes: np.ndarray) -> list[Any]:
    """Return the labels that a classifier knows, followed by labels of a table that it does not know.

    Args:
        rows: a table with a column ``label``.
        classes: labels of the classifier, ``(C,)``.
    """
    known: list[Any] = classes.tolist()
    return known + [label for label in dict.fromkeys(rows["label"]) if label not in known]


def _draw(table: pd.DataFrame, classes: np.ndarray, plot: Path | None) -> Path | None:
    if plot is None:
        return None
    rows = _with_label(table)
    if not len(rows):
        raise ValueError("--plot has nothing to draw: no sequence that was judged has a label; leave --plot out")
    axes = confusion(rows["label"].tolist(), rows["predicted"].tolist(), classes=_all_labels(rows, classes))
    write_picture(axes.figure, plot)
    return plot


# -- the result --------------------------------------------------------------------------------------------------------


def _facts(classifier: GenerativeClassifier, table: pd.DataFrame, written: list[str]) -> dict[str, Any]:
    rows = _with_label(table)
    labels = _all_labels(rows, classifier.classes_) if len(rows) else classifier.classes_.tolist()
    counts = pd.crosstab(rows["label"], rows["predicted"]) if len(rows) else pd.DataFrame()
    counts = counts.reindex(index=labels, columns=labels, fill_value=0).astype(int)
    return {
        "labels": labels,
        "judged": len(rows),
        "right": int((rows["label"] == rows["predicted"]).sum()) if len(rows) else 0,
        "most_frequent": int(rows["label"].value_counts().max()) if len(rows) else 0,
        "confusion": counts.to_numpy().tolist(),
        "temperature": classifier.temperature_,
        "predictions": table.to_dict("records"),
        "written": written,
    }


def _in_words(facts: dict[str, Any], listed: pd.DataFrame) -> str:
    lines = []
    judged, labels = facts["judged"], facts["labels"]
    if judged:
        lines.append(
            f"{facts['right']:,} of {judged:,} sequences are labelled right ({facts['right'] / judged:.1%}); "
            f"{facts['most_frequent']:,} would be by the most frequent label alone"
        )
        if len(labels) <= MAX_SHOWN:
            counts = pd.DataFrame(facts["confusion"], index=labels, columns=labels)
            lines += ["", counts.rename_axis(index="label", columns="predicted").to_string()]
    if len(listed):
        lines += [""] * bool(lines) + [listed.to_csv(index=False, float_format="%.6g").removesuffix("\n")]
    if facts["written"]:
        lines += [""] * bool(lines) + [f"Written to {', '.join(facts['written'])}"]
    return "\n".join(lines) or f"Fitted to {len(labels)} labels; --save FILE keeps the classifier"

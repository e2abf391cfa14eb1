"""``Comparison``: the table, and what can be drawn and written from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from seqmodels.evaluation.plots import context_shown
from seqmodels.measure import Measure
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences


@dataclass(frozen=True)
class Comparison:
    """The outcome of ``compare``.

    Attributes:
        frame: one row a model, best first: ``model``, ``score`` (nats per unit), ``bits``, ``train_score``, ``score_sd`` (over seeds),
            ``difference`` to the baseline with ``ci_low``, ``ci_high``, ``p_value`` (Holm), ``method``, ``n_clusters``, ``n_parameters``,
            ``fit_seconds``, ``steps``, ``context``, ``kind``, ``source`` (of p(y | x): read or ignored), ``floor_hits``, ``n_impossible``, ``error``.
        measure: what the scores measure; the same for every row.
        log_prob_steps: for each model the nats of every step of every test sequence.
        histories: for each model its ``history_``.
        models: the fitted models.
        test: the scored sequences.
        source: of p(y | x): what they were given.
        provenance: command, date, versions, hardware; sha256 of the data's parts, the models described.
        search: a row a trial, where settings were searched.
    """

    frame: pd.DataFrame
    measure: Measure
    log_prob_steps: Mapping[str, list[np.ndarray]]
    histories: Mapping[str, pd.DataFrame]
    models: Mapping[str, SequenceModel]
    test: Sequences
    source: Sequences | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    search: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def baseline(self) -> str:
        """The model the others are compared to."""
        return str(self.frame.attrs["baseline"])

    def table(self) -> pd.DataFrame:
        """The columns that a reader needs, formatted."""
        frame, base = self.frame, self.baseline
        shown = pd.DataFrame({"model": frame["model"]})
        shown["score"] = [_number(x) for x in frame["score"]]
        shown["bits"] = [_number(x) for x in frame["bits"]]
        shown["difference"] = [
            "(baseline)" if name == base else _number(d, "+.4f") for name, d in _columns(frame, "model", "difference")
        ]
        shown["interval"] = [
            "" if np.isnan(low) else f"[{low:+.4f}, {high:+.4f}]" for low, high in _columns(frame, "ci_low", "ci_high")
        ]
        shown["p"] = ["<0.001" if p < 1e-3 else _number(p, ".3f") for p in frame["p_value"]]
        shown["parameters"] = [_number(n, ",.0f") for n in frame["n_parameters"]]
        shown["fit s"] = [_number(s, ".1f") for s in frame["fit_seconds"]]
        shown["context"] = list(map(context_shown, frame["context"]))
        shown["kind"] = frame["kind"]
        if (frame["source"] == "ignored").any():
            shown["source"] = frame["source"]
        if frame["floor_hits"].any():
            shown["floor hits"] = [f"{int(n)}" for n in frame["floor_hits"]]
        if frame["n_impossible"].any():
            shown["impossible"] = [f"{int(n)}" for n in frame["n_impossible"]]
        if frame["score_sd"].notna().any():
            shown["sd over seeds"] = [_number(s) for s in frame["score_sd"]]
        return shown

    def how_to_read(self) -> str:
        """What the figures mean, in words."""
        m, n = self.measure, len(self.test)
        given = "of y given x, " if m.conditional else ""
        ends = "lengths are given" if m.length == "given" else "the end of each sequence is scored too"
        methods = sorted({x for x in self.frame["method"] if x and not x.startswith("moving")})
        blocks = [int(x.split()[3]) for x in self.frame["method"] if x.startswith("moving")]
        if blocks:
            methods.append(f"moving blocks of {min(blocks)} to {max(blocks)} steps")
        how = f" Intervals (95 %): {'; '.join(methods)}." if methods else ""
        bound = (
            ' A "bound" is a lower bound: the model may be better than it says.'
            if "bound" in set(self.frame["kind"])
            else ""
        )
        return (
            f"score: nats per {m.unit} {given}on {n} held-out sequence{'s' * (n != 1)} ({int(self.test.n_units.sum()):,} {m.unit}s); higher "
            f"is better; {ends}. difference: score minus that of {self.baseline!r} on the same sequences.{how}{bound}"
        )

    def __str__(self) -> str:
        title = str(self.frame.attrs.get("title", ""))
        failed = [f"{name} failed: {error}" for name, error in _columns(self.frame, "model", "error") if error]
        body = self.table().to_string(index=False)
        return "\n".join([*([title] if title else []), body, "", self.how_to_read(), *failed])

    def plot_forest(self) -> Any:
        """A matplotlib figure: each model's difference to the baseline with its interval."""
        from seqmodels.evaluation import plots  # lazily: matplotlib is slow to import

        return plots.forest(self.frame[self.frame["error"] == ""].pipe(_with_attrs, self.frame.attrs))

    def plot_learning_curves(self) -> Any:
        """A matplotlib figure: nats per unit against seconds of training."""
        from seqmodels.evaluation import plots

        # A history of one line is no curve, but keeps its place, so that every picture has the same colours.
        curves = {name: history.iloc[: len(history) * (len(history) > 1)] for name, history in self.histories.items()}
        return plots.learning_curves(curves, unit=self.measure.unit, title=str(self.frame.attrs.get("title", "")))

    def plot_by_position(self) -> Any:
        """A matplotlib figure: nats per unit against position in the sequence."""
        from seqmodels.evaluation import plots

        return plots.by_position(
            self.log_prob_steps, unit=self.measure.unit, title=str(self.frame.attrs.get("title", ""))
        )

    def plot_calibration(self) -> Any:
        """A matplotlib figure: a reliability diagram of symbols, or histograms of the probability integral transform of vectors.

        Raises:
            ValueError: no model can be judged: of bits and counts, or of pairs whose sources were not kept.
        """
        from seqmodels.evaluation.report.calibration import calibrated

        drawn = calibrated(self)
        if drawn is None:
            raise ValueError("calibration is of symbols and of real vectors, and of pairs needs their sources")
        return drawn[0]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``frame``."""
        self.frame.to_csv(path, index=False)

    def to_markdown(self) -> str:
        """The table as Markdown, and how to read it."""
        table = self.table()
        lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{self.how_to_read()}\n"

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: the answer, the ranking, where models differ, samples, how to have it again.

        Draws from the models and walks them over some of the test data: seconds.
        """
        from seqmodels.evaluation.report import html_report  # lazily: matplotlib is slow to import

        Path(path).write_text(html_report(self), encoding="utf-8")


def _columns(frame: pd.DataFrame, *names: str) -> Any:
    return zip(*(frame[name] for name in names), strict=True)


def _number(value: float, form: str = ".4f") -> str:
    return "" if np.isnan(value) else format(value, form)


def _with_attrs(frame: pd.DataFrame, attrs: Mapping[Any, Any]) -> pd.DataFrame:
    frame.attrs = dict(attrs)
    return frame

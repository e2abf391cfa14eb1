"""``Comparison``: the outcome of ``compare``: its table, plots, HTML report and saved form."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.files import replaced, write_text
from seqmodels.common.parameters import checked
from seqmodels.evaluation.comparison import saved
from seqmodels.evaluation.comparison.latex import latex_table
from seqmodels.evaluation.comparison.outcome import Outcome
from seqmodels.evaluation.prequential import CodeLengths
from seqmodels.sequences.measure import Measure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Outcome):
    """The outcome of ``compare``.

    Attributes:
        frame: a row for each model, best first, with the columns below; repeated, a comparison gives the same figures,
            but for rounding, in all of them but ``fit_seconds``, ``scoring_throughput`` and ``peak_memory``.
        measure: what the scores measure; the same for every row.
        log_prob_steps: for each model a list of ``(T,)`` nats, the steps of each test sequence, the mean over seeds;
            ``steps`` is the same as a frame.
        histories: for each model its ``history_``.
        models: the fitted models, of the first seed.
        test: the scored sequences.
        source: of p(y | x): the sequences that the scored ones were given.
        provenance: command, date, versions, hardware; sha256 of the data's parts, the models described, budget, search,
            seeds.
        search: a row for each trial: model, trial, settings, score (nats per unit over the folds), seconds, best,
            error.
        log_prob_by_seed: with several seeds for each model ``(S, n)`` nats of each test sequence, a row a seed; of one
            long sequence ``(S, T)`` nats of its steps. Empty with one seed, and in files of older versions.
        code_lengths: with ``prequential`` what the training part costs under each model, coded from nothing; else None.

    The columns of ``frame``:

    - ``model``, ``rank`` (from 1; NaN of a score that a floor made, and of no step of training, see ``compare``),
      ``error`` (empty if none).
    - ``score``: nats per unit, higher is better. ``bits``: ``-score / log 2``, what a unit costs, lower is better.
      ``perplexity``: ``exp(-score)``, lower is better; NaN of densities. ``train_score``: nats per unit on as much of
      the training part as there is to test. ``score_sd``: standard deviation over seeds; NaN of one seed.
    - ``difference`` to the baseline on the same sequences, with its 95 % interval ``ci_low``, ``ci_high``, all in nats
      per unit, and ``p_value``, two-sided, each of that model alone: the interval leaves out zero where ``p_value`` is
      below 0.05. ``p_holm``: corrected for the number of models. ``method``: how they were computed, or why not, with
      ``block`` (steps) and ``n_clusters``. ``p_best``: the MCS p-value; see ``confidence_set``.
    - ``n_parameters``; ``context``: steps back that a model sees, NaN: all; ``kind``: exact, bound (a
      lower one) or failed; ``source``: of p(y | x), read or ignored, else empty.
    - ``fit_seconds`` of one fit, the mean over seeds; ``scoring_throughput``: test units per second; ``peak_memory``:
      MB (1e6 bytes) of main memory that fit and scoring held at most, above what the process held before; memory that
      an allocator kept and used again is not in it; NaN where the system does not say.
    - ``budget`` and ``settings``: what a budget set, what a search of so many ``trials`` chose; ``steps`` of training;
      ``converged``: every seed.
    - ``floor_hits`` at the last step of training; ``floor_effect``: nats per unit by which the score moves if the floor
      of the variances is doubled or halved; ``n_impossible``: test sequences of probability zero; ``n_unseen``:
      test symbols that training never had, the same for every row.
    - ``score_error``, where a ``kind`` is ``"estimate"``: its Monte Carlo standard error, nats per unit;
    - ``code_length``, with ``prequential``: nats per unit of the training part, coded from nothing by a model that
      learns as it goes; lower is better; NaN where it could not be.
    """

    # Plots and the report import matplotlib, which takes a second, when they are made.

    @checked
    def plot_ranking(self, ax: Axes | None = None) -> Axes:
        """Each model's difference to the baseline with its interval, best first, on ``ax`` or a new figure."""
        from seqmodels.plot.forest import draw_forest, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self._scored_rows)), self._title)
            note_in_label(axes, draw_forest(axes, self._scored_rows))
        return axes

    @checked
    def plot_curves(self, ax: Axes | None = None) -> Axes:
        """Nats per unit against seconds of training, on ``ax`` or a new figure."""
        from seqmodels.plot.curves import draw_learning_curves, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self.histories)), self._title)
            note_in_label(axes, draw_learning_curves(axes, self._curves, unit=self.measure.unit))
        return axes

    @checked
    def plot_by_position(self, ax: Axes | None = None) -> Axes:
        """Nats per unit against position in the sequence, on ``ax`` or a new figure."""
        from seqmodels.plot.curves import draw_by_position, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self.log_prob_steps)), self._title)
            note_in_label(axes, draw_by_position(axes, self.log_prob_steps, unit=self.measure.unit))
        return axes

    @checked
    def plot_pairwise(self, ax: Axes | None = None) -> Axes:
        """A matrix of the differences of all pairs, row minus column, on ``ax`` or a new figure.

        Coloured where the p-value, corrected for the number of pairs, is below 0.05.
        """
        from seqmodels.plot.pairwise import draw_pairwise, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self.ranked)), self._title)
            note_in_label(axes, draw_pairwise(axes, self.pairwise(), self.ranked, unit=self.measure.unit))
        return axes

    @checked
    def plot_gain_by_position(self, model: str, other: str, ax: Axes | None = None) -> Axes:
        """``gain_by_position`` as bars over octaves of position, on ``ax`` or a new figure."""
        from seqmodels.plot.adaptation_gain import draw_gain_by_position
        from seqmodels.plot.style import axes_or_new, in_style

        with in_style():
            axes = axes_or_new(ax, 3.2, self._title)
            gains = {model: self.gain_by_position(model, other)}
            draw_gain_by_position(axes, gains, {model: other}, unit=self.measure.unit)
        return axes

    @checked
    def plot_code_lengths(self, ax: Axes | None = None) -> Axes:
        """Nats per unit of each block of the training part against the units before it, on ``ax`` or a new figure.

        Raises:
            ValueError: a comparison without ``prequential``.
        """
        if self.code_lengths is None:
            raise ValueError("there are no code lengths; pass prequential=True to compare")
        return self.code_lengths.plot(ax)

    @checked
    def plot_calibration(self, ax: Axes | None = None) -> Axes:
        """A reliability diagram of symbols, or histograms of the probability integral transform of vectors.

        Raises:
            ValueError: no model can be evaluated: of bits and counts, or of pairs whose sources were not kept.
        """
        from seqmodels.evaluation.comparison.calibration import calibration_axes
        from seqmodels.evaluation.comparison.report.data import pair_of

        data = pair_of(self)
        axes = None if data is None else calibration_axes(ax, self.models, *data)
        if axes is None:
            raise ValueError("calibration is of symbols and of real vectors, and of pairs needs their sources")
        return axes

    @checked
    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``frame``, a row a model, as CSV; atomically. Raises ``OSError`` if it cannot be written."""
        with replaced(path) as partial:
            self.frame.to_csv(partial, index=False)

    def to_markdown(self) -> str:
        """The table as Markdown, and how to read it."""
        table = self.table()
        lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{self.how_to_read()}\n"

    @checked
    def to_latex(self, *, caption: str = "", label: str = "") -> str:
        """The table in LaTeX, with the rules of the package ``booktabs``; every text is escaped.

        Args:
            caption: with it, or a label, the table stands in a ``table`` environment.
            label: of the table, for ``\\ref``; written as it is.
        """
        return latex_table(self.table(), caption=caption, label=label)

    @checked
    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: a summary, the ranking, where models differ, samples, and the provenance.

        Samples from the models and runs them over some of the test data, which takes seconds.
        """
        from seqmodels.evaluation.comparison.report.page import html_report

        write_text(path, html_report(self))

    @checked
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the table, every step, the test data, provenance and the models into ``folder``, which is created.

        JSON and safetensors, so that nothing in it can run code. A comparison that is there is replaced once the new
        one is complete; other files in the folder stay. Raises ``ValueError`` for metadata that are neither text nor
        numbers, and where another process, or thread, is saving there.
        """
        with saved.replaced(folder) as (files, content):
            saved.write_arrays(files / "steps.safetensors", self.log_prob_steps)
            if self.log_prob_by_seed:
                by_seed = {name: list(rows) for name, rows in self.log_prob_by_seed.items()}
                saved.write_arrays(files / "seeds.safetensors", by_seed)
            saved.write_sequences(files, "test", self.test)
            if self.source is not None:
                saved.write_sequences(files, "source", self.source)
            content |= {
                "measure": self.measure.to_json(),
                "frame": saved.frame_to_json(self.frame),
                "search": saved.frame_to_json(self.search),
                "histories": {name: saved.frame_to_json(history) for name, history in self.histories.items()},
                "models": saved.write_models(files, self.models),
                "provenance": dict(self.provenance),
            }
            if self.code_lengths is not None:
                codes = self.code_lengths
                content["code_lengths"] = {
                    "frame": saved.frame_to_json(codes.frame),
                    "blocks": saved.frame_to_json(codes.blocks),
                    "unit": codes.unit,
                }

    @classmethod
    @checked
    def load(cls, folder: str | os.PathLike[str], *, classes: Iterable[type] = ()) -> Comparison:
        """The inverse of ``save``, to the last bit; folders of unknown origin may be loaded (see ``seqmodels.load``).

        Args:
            folder: that of ``save``.
            classes: classes of one's own that its models hold, as of ``seqmodels.load``.

        Raises:
            ValueError: any other folder, a damaged one (naming the file), or one of a newer version.
        """
        with saved.opened(folder) as (files, content):
            test = saved.read_sequences(files, "test")
            if test is None:
                raise ValueError("it has lost its test.json, without which nothing in it has a meaning; save it again")
            steps = saved.read_arrays(files, "steps")
            saved.check_steps(steps, test)
            by_seed = saved.read_arrays(files, "seeds") if (files / "seeds.safetensors").exists() else {}
            saved.check_seeds(by_seed, steps)
            return cls(
                _completed(saved.frame_from_json(content["frame"])),
                Measure(**content["measure"]),
                steps,
                {name: saved.frame_from_json(history) for name, history in content["histories"].items()},
                saved.read_models(files, content["models"], classes),
                test,
                source=saved.read_sequences(files, "source") if content["measure"]["conditional"] else None,
                provenance=content["provenance"],
                search=saved.frame_from_json(content["search"]),
                log_prob_by_seed={name: np.stack(rows) for name, rows in by_seed.items()},
                code_lengths=_code_lengths(content.get("code_lengths")),
            )


def _code_lengths(content: Mapping[str, Any] | None) -> CodeLengths | None:
    """Of a saved comparison; older ones have none."""
    if content is None:
        return None
    frame, blocks = (saved.frame_from_json(content[name]) for name in ("frame", "blocks"))
    if not (
        {"model", "nats_per_unit"} <= {*frame} and {"model", "n_before", "nats_per_unit", "model_nats"} <= {*blocks}
    ):
        raise ValueError("its code lengths have not the columns that they should have")
    return CodeLengths(frame, blocks, str(content["unit"]))


def _completed(frame: pd.DataFrame) -> pd.DataFrame:
    """As this version has it, a table that an older one saved, when bits were not yet costs and there was no rank."""
    if "rank" in frame:
        return frame
    scored = frame["error"] == ""
    ranks = scored.cumsum().where(scored).astype(float)
    return frame.assign(bits=-frame["score"] / np.log(2), rank=ranks, floor_effect=np.where(scored, 0.0, np.nan))

"""``Comparison``: the result of ``compare``, with its table, plots, HTML report and saved form."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.files import replaced, write_text
from seqmodels.common.parameters import checked
from seqmodels.evaluation.comparison import saved_comparison
from seqmodels.evaluation.comparison.comparison_data import ComparisonData
from seqmodels.evaluation.comparison.latex import latex_table
from seqmodels.evaluation.prequential import CodeLengths
from seqmodels.sequences.measure import Measure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ComparisonData):
    """The result of ``compare``: the scores of every model on the same test sequences, with tables, plots and a report.

    Attributes:
        frame: a frame with a row for each model, best first; its columns are listed below. A repeated comparison gives
            the same figures, except for rounding, in all columns but ``fit_seconds``, ``scoring_throughput`` and
            ``peak_memory``.
        measure: what the scores measure; the same for every row.
        log_prob_steps: for each model, the log-probability of each step of each test sequence, a list of ``(T,)``
            arrays in nats, the mean over seeds. ``steps`` has the same as a frame.
        histories: the ``history_`` of each model.
        models: the fitted models of the first seed, by name.
        test: the scored sequences.
        source: for p(y | x), the sequences x that the scored ones were given; else None.
        provenance: command, date, versions and hardware; the sha256 of each part of the data; and a description of the
            models, budget, search and seeds.
        search: a frame with a row for each trial: model, trial, settings, score (nats per unit over the folds),
            seconds, best, error.
        log_prob_by_seed: with several seeds, for each model the log-probability of n test sequences in nats,
            ``(S, n)``, a row for each of S seeds; for one long sequence, the log-probability of its steps, ``(S, T)``.
            Empty with one seed, and in files of older versions.
        code_lengths: with ``prequential``, the code length of the training part under each model; else None.

    The columns of ``frame``:

    - ``model``: name of the model. ``rank``: position from 1; NaN if a variance floor set the score or no step of
      training was taken, see ``compare``. ``error``: the error of a model that failed, else empty.
    - ``score``: nats per unit, higher is better. ``bits``: ``-score / log 2``, the bits that a unit costs, lower is
      better, with their 95 % interval ``bits_low``, ``bits_high``. ``perplexity``: ``exp(-score)``, lower is better;
      NaN for densities. ``train_score``: nats per unit on a sample of the training part as large as the test part.
      ``score_sd``: standard deviation of the score over seeds; NaN with one seed.
    - ``difference``: score minus the baseline's score on the same sequences, with its 95 % interval ``ci_low``,
      ``ci_high``, all in nats per unit. ``p_value``: two-sided p-value of that model alone; the interval leaves out
      zero if it is below 0.05. ``p_holm``: the p-value corrected for the number of models. ``method``: how interval and
      p-value were computed, or why there are none, with ``block`` (steps) and ``n_clusters``. ``p_best``: the p-value
      of the model confidence set; see ``confidence_set``.
    - ``largest_share``: sum of the differences of the 1 % of steps where the model and the baseline differ most, over
      the sum of all; above 1 or below 0 the other steps favour the other model. ``difference_of_rest``: the mean
      difference of those other steps, in nats per step. ``pareto_k``: shape of the generalised Pareto distribution of
      the largest or smallest differences of single steps (Vehtari et al. 2024); from 0.5 on their variance is infinite,
      and no interval is to be trusted. NaN for the baseline, and ``pareto_k`` below 25 steps.
    - ``stacking_weight``: weight of the model in the mixture ``Σ_k w_k p_k(x_t)`` of the tested models that predicts
      the held-out steps best (Yao et al. 2018), or if a ``kind`` is ``"bound"``, in the mixture of the probabilities of
      whole sequences. The weights sum to 1. Of more than 200,000 steps every m-th is taken.
    - ``n_parameters``: number of parameters. ``n_effective``: effective number of parameters, how many units of the
      training part times nats per unit the model's ``train_score`` exceeds its ``score``, minus the same of the
      reference ``iid``, plus the reference's number of parameters; noisy on few data; NaN without the reference or the
      training part. ``context``: how many steps back a model sees; NaN means all. ``kind``:
      ``"exact"``, ``"bound"`` (a lower bound), ``"estimate"`` or ``"failed"``. ``source``: for p(y | x), whether the
      model has read or ignored x, else empty.
    - ``memory``: ``"static"``, or ``"adaptive"`` for a model that goes on learning within a sequence. ``inputs``,
      present if sequences have inputs or a model reads their times: what the model was given beside the sequence.
      ``encoding``, present if the data decided how a model reads a series: the encoding.
    - ``fit_seconds``: seconds of one fit, the mean over seeds. ``scoring_throughput``: test units scored per second.
      ``peak_memory``: the most main memory that fit and scoring held beyond what the process held before, in MB (1e6
      bytes); memory that an allocator kept and used again is not counted; NaN if the system does not report it.
    - ``budget``: hyperparameters that the budget set. ``trials``: number of trials of the search. ``settings``:
      hyperparameters that it chose. ``steps``: steps of training. ``converged``: True if every seed converged.
    - ``floor_hits``: how often a variance floor, the least variance allowed, set a density at the end of training.
      ``floor_effect``: nats per unit by which the score moves if the variance floor is doubled or halved.
      ``n_impossible``: number of test sequences of probability zero. ``n_unseen``: number of test symbols that the
      training part lacks, the same for every row.
    - ``score_error``, present if a ``kind`` is ``"estimate"``: Monte Carlo standard error of the score in nats per
      unit.
    - ``code_length``, present with ``prequential``: nats per unit of the training part under a model that is fitted
      again and again to what came before; lower is better; NaN if it could not be computed.
    """

    # Plots and the report are imported only when they are made, because matplotlib takes a second to import.

    @checked
    def plot_ranking(self, ax: Axes | None = None) -> Axes:
        """Plot each model's difference to the baseline with its interval, best first; return the axes.

        Args:
            ax: axes to draw on; None makes a new figure.
        """
        from seqmodels.plot.forest import draw_forest, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self._scored_rows)), self._title)
            note_in_label(axes, draw_forest(axes, self._scored_rows))
        return axes

    @checked
    def plot_curves(self, ax: Axes | None = None) -> Axes:
        """Plot learning curves, nats per unit against seconds of training, a line for each model; return the axes.

        Args:
            ax: axes to draw on; None makes a new figure.
        """
        from seqmodels.plot.curves import draw_learning_curves, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self.histories)), self._title)
            note_in_label(axes, draw_learning_curves(axes, self._curves, unit=self.measure.unit))
        return axes

    @checked
    def plot_by_position(self, ax: Axes | None = None) -> Axes:
        """Plot nats per unit against position in the sequence, a line for each model; return the axes.

        Args:
            ax: axes to draw on; None makes a new figure.
        """
        from seqmodels.plot.curves import draw_by_position, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self.log_prob_steps)), self._title)
            note_in_label(axes, draw_by_position(axes, self.log_prob_steps, unit=self.measure.unit))
        return axes

    @checked
    def plot_pairwise(self, ax: Axes | None = None) -> Axes:
        """Plot a matrix of the differences in score of all pairs of models, row minus column; return the axes.

        A cell is coloured if its p-value, corrected for the number of pairs, is below 0.05.

        Args:
            ax: axes to draw on; None makes a new figure.
        """
        from seqmodels.plot.pairwise import draw_pairwise, height_of
        from seqmodels.plot.style import axes_or_new, in_style, note_in_label

        with in_style():
            axes = axes_or_new(ax, height_of(len(self.ranked)), self._title)
            note_in_label(axes, draw_pairwise(axes, self.pairwise(), self.ranked, unit=self.measure.unit))
        return axes

    @checked
    def plot_gain_by_position(self, model: str, other: str, ax: Axes | None = None) -> Axes:
        """Plot how much one model gains on another by position in the sequence; return the axes.

        The bars show ``gain_by_position``: the mean difference of log p, in nats per step, over octaves of position
        (2^i to 2^(i+1) - 1).

        Args:
            model: name of the model.
            other: name of the model that it is compared to.
            ax: axes to draw on; None makes a new figure.

        Raises:
            ValueError: a name is not among the scored models.
        """
        from seqmodels.plot.adaptation_gain import draw_gain_by_position
        from seqmodels.plot.style import axes_or_new, in_style

        with in_style():
            axes = axes_or_new(ax, 3.2, self._title)
            gains = {model: self.gain_by_position(model, other)}
            draw_gain_by_position(axes, gains, {model: other}, unit=self.measure.unit)
        return axes

    @checked
    def plot_code_lengths(self, ax: Axes | None = None) -> Axes:
        """Plot nats per unit of each block of the training part against the units before it; return the axes.

        Each block is coded by a model that was fitted to the blocks before it.

        Args:
            ax: axes to draw on; None makes a new figure.

        Raises:
            ValueError: the comparison was made without ``prequential``.
        """
        if self.code_lengths is None:
            raise ValueError("there are no code lengths; pass prequential=True to compare")
        return self.code_lengths.plot(ax)

    @checked
    def plot_calibration(self, ax: Axes | None = None) -> Axes:
        """Plot how well the predicted probabilities are calibrated on test steps; return the axes.

        For symbols it is a reliability diagram; for real vectors, histograms of the probability integral transform.

        Args:
            ax: axes to draw on; None makes a new figure.

        Raises:
            ValueError: no model can be evaluated, because the data are bits or counts, or pairs whose sources were not
                kept.
        """
        from seqmodels.evaluation.comparison.calibration import calibration_axes
        from seqmodels.evaluation.comparison.report.data import pair_of

        data = pair_of(self)
        axes = None if data is None else calibration_axes(ax, self.models, *data)
        if axes is None:
            raise ValueError(
                "no model can be evaluated: calibration is measured for symbols and real vectors, and for pairs it "
                "needs their sources"
            )
        return axes

    @checked
    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``frame`` to a CSV file, a row for each model.

        An existing file is replaced only when the new one is complete.

        Raises:
            OSError: the file cannot be written.
        """
        with replaced(path) as partial:
            self.frame.to_csv(partial, index=False)

    def to_markdown(self) -> str:
        """Return the table as Markdown, followed by a paragraph on how to read it."""
        table = self.table()
        lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{self.how_to_read()}\n"

    @checked
    def to_latex(self, *, caption: str = "", label: str = "") -> str:
        r"""Return the table in LaTeX, with the rules of the package ``booktabs``; special characters are escaped.

        Args:
            caption: caption of the table. With a caption or a label, the table stands in a ``table`` environment.
            label: label of the table, for ``\\ref``; it is written as it is, not escaped.
        """
        return latex_table(self.table(), caption=caption, label=label)

    @checked
    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML page with a summary, the ranking, where models differ, samples, and provenance.

        It draws samples from the models and applies them to some of the test data, which takes seconds.

        Args:
            path: the file to write.
        """
        from seqmodels.evaluation.comparison.report.page import html_report

        write_text(path, html_report(self))

    @checked
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the table, the score of every step, the test data, provenance and models into a folder.

        The files are JSON and safetensors, so that loading them runs no code. An existing comparison is replaced once
        the new one is complete; other files in the folder stay.

        Args:
            folder: the folder, which is created if needed.

        Raises:
            ValueError: metadata are neither text nor numbers, or another process or thread is saving into the folder.
        """
        with saved_comparison.replaced(folder) as (files, content):
            saved_comparison.write_arrays(files / "steps.safetensors", self.log_prob_steps)
            if self.log_prob_by_seed:
                by_seed = {name: list(rows) for name, rows in self.log_prob_by_seed.items()}
                saved_comparison.write_arrays(files / "seeds.safetensors", by_seed)
            saved_comparison.write_sequences(files, "test", self.test)
            if self.source is not None:
                saved_comparison.write_sequences(files, "source", self.source)
            content |= {
                "measure": self.measure.to_json(),
                "frame": saved_comparison.frame_to_json(self.frame),
                "search": saved_comparison.frame_to_json(self.search),
                "histories": {
                    name: saved_comparison.frame_to_json(history) for name, history in self.histories.items()
                },
                "models": saved_comparison.write_models(files, self.models),
                "provenance": dict(self.provenance),
            }
            if self.code_lengths is not None:
                codes = self.code_lengths
                content["code_lengths"] = {
                    "frame": saved_comparison.frame_to_json(codes.frame),
                    "blocks": saved_comparison.frame_to_json(codes.blocks),
                    "unit": codes.unit,
                }

    @classmethod
    @checked
    def load(cls, folder: str | os.PathLike[str], *, classes: Iterable[type] = ()) -> Comparison:
        """Load a comparison from a folder, exactly as ``save`` wrote it; folders of unknown origin are safe to load.

        Args:
            folder: the folder that was passed to ``save``.
            classes: your own classes of models, encodings or observations that it uses, as in ``seqmodels.load``.

        Raises:
            ValueError: the folder holds no comparison, is damaged (the message names the file), or is of a newer
                version.
        """
        with saved_comparison.opened(folder) as (files, content):
            test = saved_comparison.read_sequences(files, "test")
            if test is None:
                raise ValueError("it has lost its test.json, without which it cannot be read; save it again")
            steps = saved_comparison.read_arrays(files, "steps")
            saved_comparison.check_steps(steps, test)
            by_seed = saved_comparison.read_arrays(files, "seeds") if (files / "seeds.safetensors").exists() else {}
            saved_comparison.check_seeds(by_seed, steps)
            return cls(
                _completed(saved_comparison.frame_from_json(content["frame"])),
                Measure(**content["measure"]),
                steps,
                {name: saved_comparison.frame_from_json(history) for name, history in content["histories"].items()},
                saved_comparison.read_models(files, content["models"], classes),
                test,
                source=saved_comparison.read_sequences(files, "source") if content["measure"]["conditional"] else None,
                provenance=content["provenance"],
                search=saved_comparison.frame_from_json(content["search"]),
                log_prob_by_seed={name: np.stack(rows) for name, rows in by_seed.items()},
                code_lengths=_code_lengths(content.get("code_lengths")),
            )


def _code_lengths(content: Mapping[str, Any] | None) -> CodeLengths | None:
    """Restore the code lengths of a saved comparison from their entry in ``comparison.json``; None if it has none.

    Args:
        content: the entry, a mapping with ``frame``, ``blocks`` and ``unit``, or None.

    Raises:
        ValueError: columns are missing.
    """
    if content is None:
        return None
    frame, blocks = (saved_comparison.frame_from_json(content[name]) for name in ("frame", "blocks"))
    if not (
        {"model", "nats_per_unit"} <= {*frame} and {"model", "n_before", "nats_per_unit", "model_nats"} <= {*blocks}
    ):
        raise ValueError("its code lengths lack columns that they should have")
    return CodeLengths(frame, blocks, str(content["unit"]))


def _completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert the table of a saved comparison to the columns of this version.

    Tables of old versions have no ranks, and their ``bits`` have the opposite sign.
    """
    if "rank" in frame:
        return frame
    scored = frame["error"] == ""
    ranks = scored.cumsum().where(scored).astype(float)
    return frame.assign(bits=-frame["score"] / np.log(2), rank=ranks, floor_effect=np.where(scored, 0.0, np.nan))

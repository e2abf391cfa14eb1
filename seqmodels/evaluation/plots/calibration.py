"""Calibration of several models, measured, drawn and described: reliability of symbols, transforms of vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from seqmodels.evaluation.calibration import Reliability, histogram, pit, reliability
from seqmodels.model import SequenceModel
from seqmodels.plot_style import (
    INK,
    MIN_FULL_WIDTH,
    MUTED,
    WIDTH,
    axes_or_new,
    colour_of,
    dash_of,
    figure_of,
    in_style,
    is_narrow,
    new_axes,
    note_below,
    note_in_label,
    short_in,
)
from seqmodels.sequences import Sequences

MIN_PROBABILITY = 1e-3  # at the corner of the axes
HISTOGRAM_WIDTH = 1.7  # inches, at least
TRANSFORMS_IN_WORDS = "flat: calibrated; humped: predictions too wide; hollow: too narrow"


@dataclass(frozen=True)
class CalibrationPlot:
    """How to draw it as wide as this, what was measured, how to read it, and each model's calibration error."""

    draw: Callable[[float], Figure]
    description: str
    caption: str
    errors: dict[str, float]


def calibration_plot(
    models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None = None
) -> CalibrationPlot | None:
    """Reliability of symbols, or the probability integral transform of vectors, on a sample of the steps.

    Args:
        models: fitted, by name.
        X, y: held-out sequences, and targets for p(y | x).

    Returns:
        None where the calibration of no model can be measured: of bits and counts, of models without predictions of
        steps.
    """
    scored = X if y is None else y
    return _plot_of_vectors(models, X, y) if scored.kind == "vectors" else _plot_of_symbols(models, X, y)


def calibration_axes(
    ax: Axes | None, models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None = None
) -> Axes | None:
    """The same measurements of all models on one axes, new ones of pyplot if ``ax`` is None."""
    if (X if y is None else y).kind != "vectors":
        measured = _reliabilities(models, X, y)
        if not measured:
            return None
        tables = {name: each.table for name, each in measured.items()}
        with in_style():
            axes = axes_or_new(ax, max(4.2, 1.0 + 0.2 * len(tables)))
            note_in_label(axes, draw_reliability(axes, tables, {name: each.error for name, each in measured.items()}))
        return axes
    histograms = {name: histogram(values) for name, values in _transforms(models, X, y).items()}
    if not histograms:
        return None
    heights = {name: heights_of_bins for name, (heights_of_bins, _) in histograms.items()}
    errors = {name: error for name, (_, error) in histograms.items()}
    with in_style():
        axes = axes_or_new(ax, max(3.2, 1.0 + 0.2 * len(heights)))
        note_in_label(axes, draw_transforms(axes, heights, errors))
    return axes


def _reliabilities(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> dict[str, Reliability]:
    """Of the models that predict steps."""
    return {name: reliability(model, X, y) for name, model in models.items() if model._predicts_steps}


def _transforms(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> dict[str, np.ndarray]:
    """Of the models of real numbers with known cdfs: bits and counts have none."""
    return {name: pit(model, X, y) for name, model in models.items() if _has_cdfs(model)}


def _has_cdfs(model: SequenceModel) -> bool:
    observation = model.observation_
    return observation.has_marginal_cdfs and set(observation.values(model.encoding_.size)) == {"reals"}


def _plot_of_symbols(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> CalibrationPlot | None:
    measured = _reliabilities(models, X, y)
    if not measured:
        return None
    errors = {name: each.error for name, each in measured.items()}
    tables = {name: each.table for name, each in measured.items()}
    caption = "On the diagonal a model means what it says; the calibration error is in brackets."
    chance = [each.by_chance for each in measured.values()]
    steps = max(each.n_steps for each in measured.values())
    description = (
        f"On {steps:,} test steps: of all the symbols that a model gave a probability of about p, what share came? The "
        "calibration error adds up, over bins of p, by how many per step the symbols that came differ from those "
        f"expected. For models that were right it would be {min(chance):.3f} to {max(chance):.3f}, by chance alone."
    )
    return CalibrationPlot(lambda w: reliability_diagram(tables, errors, width=w), description, caption, errors)


def _plot_of_vectors(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> CalibrationPlot | None:
    transforms = _transforms(models, X, y)
    if not transforms:
        return None
    histograms = {name: histogram(values) for name, values in transforms.items()}
    errors = {name: error for name, (_, error) in histograms.items()}
    heights = {name: of_bins for name, (of_bins, _) in histograms.items()}
    n = max(len(values) for values in transforms.values())
    description = (
        f"Where did each feature of {n:,} test frames fall in what the model said of it, given the past (the "
        "probability integral transform)? For a model that is right, anywhere between 0 and 1 equally often."
    )
    caption = (
        "A flat histogram: calibrated. In brackets the share of all values that would have to move to make it flat."
    )
    return CalibrationPlot(lambda w: transform_histograms(heights, errors, width=w), description, caption, errors)


# -- the figures ----------------------------------------------------------------------------------------------


def reliability_diagram(
    tables: Mapping[str, pd.DataFrame], errors: Mapping[str, float], *, width: float = WIDTH
) -> Figure:
    """A figure of ``draw_reliability``, with a note on how to read it."""
    with in_style():
        below = 0.0 if width >= MIN_FULL_WIDTH else 0.3 + 0.2 * len(tables)  # of a legend that stands there
        figure, axes = new_axes(max(4.2, 1.0 + 0.2 * len(tables)) + below, "", width)
        note_below(figure, draw_reliability(axes, tables, errors))
    return figure


def draw_reliability(axes: Axes, tables: Mapping[str, pd.DataFrame], errors: Mapping[str, float]) -> str:
    """Observed frequency against predicted probability, both logarithmic: a calibrated model follows the diagonal.

    Args:
        axes: what is drawn on.
        tables: for each model ``predicted``, ``observed`` and ``n`` of each bin
            (``evaluation.calibration.reliability``).
        errors: for each model its expected calibration error, written after its name.

    Returns:
        A note on how to read it.
    """
    axes.plot([MIN_PROBABILITY, 1], [MIN_PROBABILITY, 1], color=INK, linewidth=0.9, zorder=1, gid="diagonal")
    for i, (name, table) in enumerate(tables.items()):
        kept = table[(table["predicted"] >= MIN_PROBABILITY) & (table["observed"] > 0)]
        style: Any = {
            "color": colour_of(i),
            "linestyle": dash_of(i),
            "label": f"{short_in(figure_of(axes), name)}  ({errors[name]:.3f})",
        }
        axes.plot(kept["predicted"], kept["observed"], marker="o", markersize=3.5, gid="model", **style)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda p, _: f"{p:g}")
    limits = (MIN_PROBABILITY, 1.15)
    axes.set(xlim=limits, ylim=limits, xlabel="predicted probability", ylabel="observed frequency")
    _legend_of_errors(axes)
    return "above the diagonal: came more often than the model said; below: less often"


def draw_transforms(axes: Axes, heights: Mapping[str, np.ndarray], errors: Mapping[str, float]) -> str:
    """The histograms of ``transform_histograms`` as steps over one another; returns a note on how to read them."""
    axes.axhline(1, color=INK, linewidth=0.9)
    for i, (name, height) in enumerate(heights.items()):
        style: Any = {
            "color": colour_of(i),
            "linestyle": dash_of(i),
            "label": f"{short_in(figure_of(axes), name)}  ({errors[name]:.3f})",
        }
        axes.stairs(height, np.linspace(0, 1, len(height) + 1), baseline=None, linewidth=1.5, gid="model", **style)
    axes.set(xlim=(0, 1), xlabel="P(X ≤ x | past)", ylabel="density")
    axes.set_ylim(bottom=0)
    _legend_of_errors(axes)
    return TRANSFORMS_IN_WORDS


def _legend_of_errors(axes: Axes) -> None:
    beside_or_below = (0, -0.18) if is_narrow(figure_of(axes)) else (1.01, 1)
    legend = axes.legend(
        loc="upper left", bbox_to_anchor=beside_or_below, frameon=False, fontsize=8.5, handlelength=2.4
    )
    legend.set_title("model (calibration error)", prop=FontProperties(size=8))


def transform_histograms(
    heights: Mapping[str, np.ndarray], errors: Mapping[str, float], *, width: float = WIDTH
) -> Figure:
    """A histogram of each model's probability integral transforms; that of a calibrated model is flat.

    Args:
        heights: for each model densities of equal bins of 0..1, with mean 1 (``evaluation.calibration.histogram``).
        errors: for each model the share that would have to move to make it flat, in its title.
        width: inches.
    """
    columns = min(max(1, int(width / HISTOGRAM_WIDTH)), len(heights))
    rows = -(-len(heights) // columns)
    with in_style():
        figure = Figure(figsize=(width, 0.9 + 1.45 * rows), dpi=150, layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for i, axes in enumerate(grid.flat):
            axes.set_visible(i < len(heights))
        for i, (name, height) in enumerate(heights.items()):
            _histogram(grid.flat[i], i, height, f"{short_in(figure, name)}  ({errors[name]:.3f})")
        note_below(figure, f"P(X ≤ x | past); {TRANSFORMS_IN_WORDS}")
    return figure


def _histogram(axes: Axes, i: int, height: np.ndarray, title: str) -> None:
    edges = np.linspace(0, 1, len(height) + 1)
    axes.bar(edges[:-1], height, width=np.diff(edges), align="edge", color=colour_of(i), alpha=0.75)
    axes.axhline(1, color=INK, linewidth=0.9)
    axes.set_title(title, fontsize=8.5, fontweight="normal")
    axes.set(xlim=(0, 1), xticks=[0, 0.5, 1])
    axes.tick_params(color=MUTED, labelcolor=INK, labelsize=8)

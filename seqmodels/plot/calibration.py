"""Plots of the calibration of several models: reliability for symbols, probability integral transforms for vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from seqmodels.plot.style import (
    INK,
    MIN_FULL_WIDTH,
    MUTED,
    WIDTH,
    colour_of,
    dash_of,
    figure_of,
    in_style,
    is_narrow,
    new_axes,
    note_below,
    short_in,
)

MIN_PROBABILITY = 1e-3  # the probability at the lower left corner of the axes
HISTOGRAM_WIDTH = 1.7  # the least width of a histogram, in inches
TRANSFORMS_IN_WORDS = "flat: calibrated; humped: predictions too wide; hollow: too narrow"


def reliability_diagram(
    tables: Mapping[str, pd.DataFrame], errors: Mapping[str, float], *, width: float = WIDTH
) -> Figure:
    """Return a figure of observed frequency against predicted probability for several models.

    Args:
        tables: for each model a table with one row for each range of predicted probabilities: their mean ``predicted``,
            the frequency ``observed`` of the events, and their number ``n`` (``evaluation.calibration.reliability``).
        errors: expected calibration error of each model, which is written after its name.
        width: width of the figure in inches.
    """
    with in_style():
        below = 0.0 if width >= MIN_FULL_WIDTH else 0.3 + 0.2 * len(tables)  # height of a legend below the axes
        figure, axes = new_axes(max(4.2, 1.0 + 0.2 * len(tables)) + below, "", width)
        note_below(figure, draw_reliability(axes, tables, errors))
    return figure


def draw_reliability(axes: Axes, tables: Mapping[str, pd.DataFrame], errors: Mapping[str, float]) -> str:
    """Draw observed frequency against predicted probability, both logarithmic; a calibrated model follows the diagonal.

    Args:
        axes: the axes to draw on.
        tables: for each model a table with one row for each range of predicted probabilities: their mean ``predicted``,
            the frequency ``observed`` of the events, and their number ``n``.
        errors: expected calibration error of each model, which is written after its name.

    Returns:
        A note on how to read the plot.
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
    """Draw histograms of the probability integral transforms of several models as lines in one plot.

    For each observed value x, the transform is the model's probability of at most x given the steps before it. The
    histogram of a calibrated model is flat.

    Args:
        axes: the axes to draw on.
        heights: for each model the heights of its histogram, whose bins have equal widths from 0 to 1; their mean is 1.
        errors: for each model the share of the values that would have to move to make its histogram flat.

    Returns:
        A note on how to read the plot.
    """
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
    """Return a figure of the histogram of each model's probability integral transforms P(X ≤ x | past).

    For each observed value x, the transform is the model's probability of at most x given the steps before it. The
    histogram of a calibrated model is flat.

    Args:
        heights: for each model the heights of its histogram (``evaluation.calibration.histogram``), whose bins have
            equal widths from 0 to 1; their mean is 1.
        errors: for each model the share of the values that would have to move to make its histogram flat; it is written
            in the title.
        width: width of the figure in inches.
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

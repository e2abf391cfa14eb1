"""Calibration plots: predicted against observed frequencies, and histograms of the probability integral transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from seqmodels.evaluation.plots.style import INK, MUTED, STYLE, WIDTH, colour_of, dash_of, new_axes, note_below, short

MIN_PROBABILITY = 1e-3  # at the corner of the axes
HISTOGRAMS_PER_ROW = 4


def reliability_diagram(tables: Mapping[str, pd.DataFrame], errors: Mapping[str, float], *, title: str = "") -> Figure:
    """Observed frequency against predicted probability, both logarithmic: a calibrated model follows the diagonal.

    Args:
        tables: for each model ``predicted``, ``observed`` and ``n`` of each bin
            (``evaluation.calibration.reliability``).
        errors: for each model its expected calibration error, written after its name.
        title: of the plot.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(max(4.2, 1.0 + 0.2 * len(tables)), title)
        axes.plot([MIN_PROBABILITY, 1], [MIN_PROBABILITY, 1], color=INK, linewidth=0.9, zorder=1, gid="diagonal")
        for i, (name, table) in enumerate(tables.items()):
            kept = table[(table["predicted"] >= MIN_PROBABILITY) & (table["observed"] > 0)]
            style: Any = {
                "color": colour_of(i),
                "linestyle": dash_of(i),
                "label": f"{short(name)}  ({errors[name]:.3f})",
            }
            axes.plot(kept["predicted"], kept["observed"], marker="o", markersize=3.5, gid="model", **style)
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda p, _: f"{p:g}")
        limits = (MIN_PROBABILITY, 1.15)
        axes.set(xlim=limits, ylim=limits, xlabel="predicted probability", ylabel="observed frequency")
        legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8.5, handlelength=2.4)
        legend.set_title("model (calibration error)", prop=FontProperties(size=8))
        note_below(figure, "above the diagonal: came more often than the model said; below: less often")
    return figure


def transform_histograms(heights: Mapping[str, np.ndarray], errors: Mapping[str, float], *, title: str = "") -> Figure:
    """A histogram of each model's probability integral transforms; that of a calibrated model is flat.

    Args:
        heights: for each model densities of equal bins of 0..1, with mean 1 (``evaluation.calibration.histogram``).
        errors: for each model the share that would have to move to make it flat, in its title.
        title: of the figure.
    """
    columns = min(HISTOGRAMS_PER_ROW, len(heights))
    rows = -(-len(heights) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + 1.45 * rows), dpi=150, layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for i, axes in enumerate(grid.flat):
            axes.set_visible(i < len(heights))
        for i, (name, height) in enumerate(heights.items()):
            _histogram(grid.flat[i], i, height, f"{short(name)}  ({errors[name]:.3f})")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)
        note_below(figure, "P(X ≤ x | past); flat: calibrated; humped: predictions too wide; hollow: too narrow")
    return figure


def _histogram(axes: Axes, i: int, height: np.ndarray, title: str) -> None:
    edges = np.linspace(0, 1, len(height) + 1)
    axes.bar(edges[:-1], height, width=np.diff(edges), align="edge", color=colour_of(i), alpha=0.75)
    axes.axhline(1, color=INK, linewidth=0.9)
    axes.set_title(title, fontsize=8.5, fontweight="normal")
    axes.set(xlim=(0, 1), xticks=[0, 0.5, 1])
    axes.tick_params(color=MUTED, labelcolor=INK, labelsize=8)

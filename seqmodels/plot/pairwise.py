"""Plot of the differences between all pairs of models as a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seqmodels.plot.style import (
    COLOURS,
    INK,
    MUTED,
    WIDTH,
    figure_of,
    in_style,
    is_narrow,
    new_axes,
    note_below,
    short_in,
)

SIGNIFICANCE = 0.05
MAX_NUMBERS = 12  # the most models with which the cells show numbers
STRENGTHS = (0.25, 0.55)  # opacity of the colour for p below 0.05, and for p below 0.001


def pairwise_matrix(pairs: pd.DataFrame, names: Sequence[str], *, unit: str = "unit", width: float = WIDTH) -> Figure:
    """Return a figure of the differences between the scores of all pairs of models as a matrix, with a note on it.

    Args:
        pairs: table with one row per pair and the columns ``model``, ``other``, ``difference`` of their scores (nats
            per unit), and ``p_holm``, its p-value after Holm's correction.
        names: names of the models in the order of rows and columns.
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the note.
        width: width of the figure in inches.
    """
    with in_style():
        figure, axes = new_axes(height_of(len(names)), "", width)
        note_below(figure, draw_pairwise(axes, pairs, names, unit=unit))
    return figure


def height_of(n_models: int) -> float:
    """Return the height in inches of a figure of a matrix with ``n_models`` rows."""
    return 1.9 + 0.3 * n_models


def draw_pairwise(axes: Axes, pairs: pd.DataFrame, names: Sequence[str], *, unit: str = "unit") -> str:
    """Draw the differences between the scores of all pairs of models, row minus column, as a matrix.

    Significant cells are blue if the row is better and orange if it is worse.

    Args:
        axes: the axes to draw on.
        pairs: table with one row per pair and the columns ``model``, ``other``, ``difference`` of their scores (nats
            per unit), and ``p_holm``, its p-value after Holm's correction.
        names: names of the models in the order of rows and columns.
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the note.

    Returns:
        A note on how to read the plot.
    """
    n = len(names)
    place = {name: i for i, name in enumerate(names)}
    difference, p = np.full((n, n), np.nan), np.full((n, n), np.nan)
    for first, second, value, p_value in zip(
        pairs["model"], pairs["other"], pairs["difference"], pairs["p_holm"], strict=True
    ):
        i, j = place[first], place[second]
        difference[i, j], difference[j, i] = value, -value
        p[i, j] = p[j, i] = p_value
    # Translucent rectangles in place of an image, because on a dark page both colours must change.
    for i, j in np.argwhere(p < SIGNIFICANCE):
        colour = COLOURS[0] if difference[i, j] > 0 else COLOURS[1]
        strength = STRENGTHS[1] if p[i, j] < 1e-3 else STRENGTHS[0]
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=colour, alpha=strength, linewidth=0, gid="told apart")
        axes.add_patch(cell)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    narrow = is_narrow(figure_of(axes))
    if n <= (MAX_NUMBERS // 2 if narrow else MAX_NUMBERS):
        for i, j in np.argwhere(~np.isnan(difference)):
            text = f"{difference[i, j]:+.3f}".replace("-", "−")
            ink = INK if p[i, j] < SIGNIFICANCE else MUTED
            axes.text(j, i, text, ha="center", va="center", fontsize=7.2 if narrow else 8, color=ink, gid="cell")
    labels = [short_in(figure_of(axes), name) for name in names]
    axes.set_yticks(range(n), labels)
    axes.set_xticks(range(n), labels, rotation=40, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return (
        f"row minus column, nats per {unit}; blue: the row is better, orange: worse, with p (Holm,\n"
        "over all pairs) below 0.05, stronger below 0.001; blank: not told apart"
    )

"""Plot of the gain of adaptive models over static ones by position in the sequence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.plot.curves import height_of, labels_at_right
from seqmodels.plot.style import INK, WIDTH, colour_of, dash_of, in_style, logarithmic, new_axes, note_below


def gains_by_position(
    gains: Mapping[str, pd.DataFrame], others: Mapping[str, str], *, unit: str = "unit", width: float = WIDTH
) -> Figure:
    """Return a figure of the mean gain of each adaptive model over a static one, against position in the sequence.

    Args:
        gains: for each adaptive model a table with one row for each range of positions: its ``first`` and ``last``
            position, and the mean difference of log p, ``gain``, in nats per step. The lengths of the ranges double.
        others: for each adaptive model the name of the static model that it is compared with.
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the labels.
        width: width of the figure in inches.
    """
    with in_style():
        figure, axes = new_axes(height_of(len(gains)), "", width)
        note_below(figure, draw_gain_by_position(axes, gains, others, unit=unit))
    return figure


def draw_gain_by_position(
    axes: Axes, gains: Mapping[str, pd.DataFrame], others: Mapping[str, str], *, unit: str = "unit"
) -> str:
    """Draw the mean gain of each model over another, in nats per step, against position in the sequence.

    There is one point for each range of positions; the lengths of the ranges double.

    Args:
        axes: the axes to draw on.
        gains: for each model a table with one row for each range: its ``first`` and ``last`` position, and the mean
            difference of log p, ``gain``, in nats per step.
        others: for each model the name of the model that it is compared with.
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the labels.

    Returns:
        A note on how to read the plot.
    """
    logarithmic(axes)
    axes.axhline(0, color=INK, linewidth=0.9, zorder=1)
    ends: dict[str, float] = {}
    for i, (name, gain) in enumerate(gains.items()):
        centres = np.sqrt(gain["first"] * gain["last"].astype(float))
        axes.plot(centres, gain["gain"], color=colour_of(i), linestyle=dash_of(i), marker="o", markersize=3.5)
        finite = gain["gain"].dropna()
        ends |= {name: float(finite.iloc[-1])} if len(finite) else {}
    axes.set_xlabel(f"position in the sequence ({unit}s)")
    every_other = set(others.values())
    over = f" over {next(iter(every_other))}" if len(every_other) == 1 else ""
    axes.set_ylabel(f"gain{over}\nnats per step")
    labels_at_right(axes, ends, list(gains))
    return "; ".join(f"{name} over {others[name]}" for name in gains)

"""Names level with the ends of lines, in place of a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from seqmodels.evaluation.plots.style import colour_of, dash_of, short


def labels_at_right(
    figure: Figure, axes: Axes, ends: Mapping[str, float], names: Sequence[str], size: float = 8.5
) -> None:
    """A name level with the end of each line, moved apart where they would touch, after a piece of its line."""
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top)
    order = sorted(ends, key=lambda name: ends[name])
    wanted = np.array([(ends[name] - bottom) / (top - bottom) for name in order])
    gap = 1.35 * size / (72 * 0.78 * figure.get_figheight())
    for name, height in zip(order, spread(np.clip(wanted, 0, 1), gap), strict=True):
        i, across = names.index(name), axes.transAxes
        swatch = Line2D(
            [1.01, 1.05], [height, height], color=colour_of(i), linestyle=dash_of(i), transform=across, clip_on=False
        )
        axes.add_artist(swatch)
        axes.text(1.06, height, short(name), transform=across, va="center_baseline", fontsize=size, gid="label")


def spread(wanted: np.ndarray, gap: float) -> np.ndarray:
    """The heights nearest to those wanted (sorted) that lie ``gap`` apart, kept within 0..1 where they fit."""
    offsets = gap * np.arange(len(wanted))
    if not len(wanted):
        return wanted
    heights = np.asarray(isotonic_regression(wanted - offsets).x)
    return np.clip(heights, 0, max(0.0, 1 - offsets[-1])) + offsets

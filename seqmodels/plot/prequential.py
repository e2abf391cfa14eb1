"""Plot of prequential code lengths: nats per unit of each block against the amount of data before it."""

from __future__ import annotations

from typing import Any, Protocol

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.plot.curves import height_of, labels_at_right
from seqmodels.plot.style import WIDTH, axes_or_new, colour_of, dash_of, in_style, logarithmic, new_axes


class DrawnCodeLengths(Protocol):
    """The interface of code lengths that can be drawn, such as ``seqmodels.evaluation.CodeLengths``.

    Attributes:
        frame: table with one row per model and the columns ``model`` and ``nats_per_unit``, of all data.
        blocks: table with one row per model and block of data, and the columns ``model``, ``n_before`` (units before
            the block), ``nats_per_unit`` and ``model_nats``, which is NaN if there was no fit.
        unit: unit of the data, such as ``"byte"``.
    """

    @property
    def frame(self) -> pd.DataFrame: ...
    @property
    def blocks(self) -> pd.DataFrame: ...
    @property
    def unit(self) -> str: ...


def plot_code_lengths(codes: DrawnCodeLengths, ax: Axes | None = None) -> Axes:
    """Draw prequential code lengths: nats per unit of each block of data against the number of units before it.

    Lower is better. A block is coded by a model fitted to all blocks before it. A ring marks a block for which there
    was no fit, so that it was coded by the reference model alone. The first block, which nothing precedes, is left out.

    Args:
        codes: the result of ``prequential_code_lengths``.
        ax: axes to draw on; None creates a figure of pyplot.
    """
    with in_style():
        axes = axes_or_new(ax, height_of(len(codes.frame)), "")
        _draw(axes, codes)
    return axes


def code_lengths_figure(codes: DrawnCodeLengths, *, width: float = WIDTH) -> Figure:
    """Return a figure of prequential code lengths: nats per unit of each block of data against the data before it.

    Args:
        codes: the result of ``prequential_code_lengths``, in which each block is coded by a model fitted to all blocks
            before it.
        width: width of the figure in inches.
    """
    with in_style():
        figure, axes = new_axes(height_of(len(codes.frame)), "", width)
        _draw(axes, codes)
    return figure


def _draw(axes: Axes, codes: DrawnCodeLengths) -> None:
    names = list(codes.frame["model"])
    totals = dict(zip(codes.frame["model"], codes.frame["nats_per_unit"], strict=True))
    logarithmic(axes)
    ends: dict[str, float] = {}
    labels = {name: f"{name} ({totals[name]:.3f})" for name in names}
    for i, name in enumerate(names):
        rows = codes.blocks[(codes.blocks["model"] == name) & (codes.blocks["n_before"] > 0)]
        style: Any = {"color": colour_of(i), "linestyle": dash_of(i), "markersize": 4}
        axes.plot(rows["n_before"], rows["nats_per_unit"], marker="o", gid="blocks", **style)
        alone = rows[rows["model_nats"].isna()]
        ring: Any = {"linestyle": "none", "markerfacecolor": "white", "color": colour_of(i), "markersize": 5}
        axes.plot(alone["n_before"], alone["nats_per_unit"], marker="o", gid="reference", **ring)
        ends[labels[name]] = float(rows["nats_per_unit"].iloc[-1])
    axes.set_xlabel(f"{codes.unit}s before the block\nin brackets: nats per {codes.unit} of all, lower is better")
    axes.set_ylabel(f"nats per {codes.unit} of the block")
    labels_at_right(axes, ends, list(labels.values()))

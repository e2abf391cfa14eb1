"""The picture that claims share: curves by name, side by side in panels.

Repeats are drawn as their mean within the band they span; where there are intervals, they are the band.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from seqmodels.plot.style import COLOURS, GRID, MUTED, WIDTH

MARKERS = "osD^vPX"
FEW = 9  # values of x that are all marked


@dataclass(frozen=True)
class Panel:
    """One plot: ``y`` against ``x``, a curve for each value of the column ``by``; rows of one name and x are repeats.

    Attributes:
        labels: of the two axes.
        log: which axes are logarithmic, such as ``"x"`` or ``"xy"``.
        upright, level: dashed lines, by what is written beside them.
        by: the column of names.
        interval: columns of the band, in place of what repeats span.
    """

    frame: pd.DataFrame
    x: str
    y: str
    title: str
    labels: tuple[str, str]
    log: str = ""
    upright: Mapping[str, float] = field(default_factory=dict)
    level: Mapping[str, float] = field(default_factory=dict)
    by: str = "name"
    interval: tuple[str, str] | None = None


def drawn(panels: Sequence[Panel], names: Sequence[str] | None = None, *, alike: bool = False) -> Figure:
    """The panels in a row under one legend, ``alike``: with one vertical axis; a name has one colour in all of them."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.frame[panel.by])) if names is None else names
    figure = Figure(figsize=(WIDTH * (0.8 + 0.45 * (len(panels) - 1)), 3.9), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), sharey=alike, squeeze=False)[0], panels, strict=True):
        _draw(axes, panel, names)
    known = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = min(len(known), 2 if len(panels) == 1 else 2 * len(panels) + 1)
    figure.legend(
        list(known.values()), list(known), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )
    if alike:
        for axes in figure.axes[1:]:
            axes.set_ylabel("")
    return figure


def _draw(axes: Axes, panel: Panel, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        rows = panel.frame[panel.frame[panel.by] == name]
        if len(rows):
            _curve(axes, panel, rows, COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], name)
    _mark(axes, panel)
    axes.set_xscale("log" if "x" in panel.log else "linear")
    axes.set_yscale("log" if "y" in panel.log else "linear")
    values = sorted(panel.frame[panel.x].unique())
    if len(values) <= FEW:
        axes.set_xticks(values, [_short(value) for value in values], minor=False)
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel(panel.labels[0])
    axes.set_ylabel(panel.labels[1])
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Axes, panel: Panel, rows: pd.DataFrame, colour: str, marker: str, name: str) -> None:
    repeats = rows.groupby(panel.x)
    mean, low, high = repeats[panel.y].mean(), repeats[panel.y].min(), repeats[panel.y].max()
    if panel.interval is not None:
        low, high = (repeats[column].mean() for column in panel.interval)
    axes.plot(mean.index, mean, color=colour, marker=marker, markersize=3.5, label=name)
    axes.fill_between(mean.index, low, high, color=colour, alpha=0.15, linewidth=0)


def _short(value: float) -> str:
    """12, 1024, 4k, 65.5k, 1M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size and (value >= 10_000 or not value % size):
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"


def _mark(axes: Axes, panel: Panel) -> None:
    for text, at in panel.upright.items():
        axes.axvline(at, color=MUTED, linewidth=0.9, linestyle="--")
        axes.annotate(
            text, (at, 1), (3, -2), ("data", "axes fraction"), "offset points", color=MUTED, fontsize=8, va="top"
        )
    for text, at in panel.level.items():
        axes.axhline(at, color=MUTED, linewidth=0.9, linestyle="--")
        axes.annotate(
            text, (1, at), (-2, 2), ("axes fraction", "data"), "offset points", color=MUTED, fontsize=8, ha="right"
        )

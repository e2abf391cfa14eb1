"""The picture that claims about networks share: curves by name, side by side in panels; repeats are a mean in the band they span."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.evaluation.plots import COLOURS, GRID, MUTED, WIDTH

MARKERS = "osD^vPX"


@dataclass(frozen=True)
class Panel:
    """One plot: ``y`` against ``x``, a curve for each value of the column ``name``; rows of one name and x are repeats.

    Attributes:
        labels: of the two axes.
        log: which axes are logarithmic, such as ``"x"`` or ``"xy"``.
        upright, level: dashed lines, by what is written beside them.
    """

    frame: pd.DataFrame
    x: str
    y: str
    title: str
    labels: tuple[str, str]
    log: str = ""
    upright: Mapping[str, float] = field(default_factory=dict)
    level: Mapping[str, float] = field(default_factory=dict)


def drawn(panels: Sequence[Panel], names: Sequence[str], *, alike: bool = False) -> Figure:
    """The panels in a row under one legend, ``alike``: with one vertical axis; a name has one colour in all of them."""
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
        repeats = panel.frame[panel.frame["name"] == name].groupby(panel.x)[panel.y]
        mean, colour = repeats.mean(), COLOURS[i % len(COLOURS)]
        axes.plot(mean.index, mean, color=colour, marker=MARKERS[i % len(MARKERS)], markersize=3.5, label=name)
        axes.fill_between(mean.index, repeats.min(), repeats.max(), color=colour, alpha=0.15, linewidth=0)
    _mark(axes, panel)
    axes.set_xscale("log" if "x" in panel.log else "linear")
    axes.set_yscale("log" if "y" in panel.log else "linear")
    if "x" in panel.log:
        ticks = sorted(panel.frame[panel.x].unique())
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        axes.minorticks_off()
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel(panel.labels[0])
    axes.set_ylabel(panel.labels[1])
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


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

"""The style of every plot: colours for the colour-blind, one width; matplotlib's global settings stay as they are."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import NullFormatter

INK, MUTED, GRID = "#222222", "#6b6b6b", "#e3e3e3"
# Okabe & Ito's palette, without its yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)))
WIDTH = 7.0  # inches
MAX_NAME_LENGTH = 40  # characters of a model's name
# Settings that artists read when they are made; ticks and grids are made when drawn, so ``new_axes`` sets theirs.
STYLE: Any = (
    {"font.family": ["sans-serif"], "font.size": 9.0, "axes.labelsize": 9.0, "axes.titlesize": 10.0}
    | {"axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK, "axes.labelweight": "normal"}
    | dict.fromkeys(["text.color", "axes.labelcolor"], INK)
    | dict.fromkeys(["figure.facecolor", "axes.facecolor"], "white")
    | dict.fromkeys(["axes.spines.top", "axes.spines.right", "axes.grid"], False)
    | {"axes.edgecolor": MUTED, "axes.linewidth": 0.8, "lines.linewidth": 1.5, "axes.axisbelow": True}
)


def new_axes(height: float, title: str) -> tuple[Figure, Axes]:
    """A figure as wide as a page and its one axes, titled, with ticks and grid in this style."""
    figure = Figure(figsize=(WIDTH, height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, wrap=True, pad=14)
    axes.tick_params(which="both", color=MUTED, labelcolor=INK, labelsize=8.5)
    axes.grid(color=GRID, linewidth=0.7)
    return figure, axes


def colour_of(i: int) -> str:
    """The i-th model's colour, the same in every plot of a comparison."""
    return COLOURS[i % len(COLOURS)]


def dash_of(i: int) -> Any:
    """The i-th model's line style: when colours run out, lines are dashed."""
    return DASHES[i // len(COLOURS) % len(DASHES)]


def logarithmic(axes: Axes) -> None:
    """Make the x axis logarithmic, labelled in plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def note_below(figure: Figure, text: str) -> None:
    """Write a note on how to read the plot under it."""
    if text:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=MUTED)


def short(name: Any) -> str:
    """A name short enough to stand beside a plot."""
    text = str(name)
    return text if len(text) <= MAX_NAME_LENGTH else text[: MAX_NAME_LENGTH - 1] + "…"


def width_of(text: str, size: float) -> float:
    """Width of a text in points, to lay out what stands outside the axes."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text.strip() else 0.0

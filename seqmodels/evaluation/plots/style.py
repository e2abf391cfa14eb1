"""The house style of every picture: colours that all eyes tell apart, one size, no decoration; global settings are left alone."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import NullFormatter

INK, MUTED, GRID = "#222222", "#6b6b6b", "#e3e3e3"
# Okabe & Ito's palette, without its yellow, which a white page swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)))
WIDTH = 7.0  # inches
_NAME = 40  # characters of a model's name
# What artists read when they are made; ticks and grids are made when drawn, so theirs is set in ``new_axes``.
STYLE: Any = (
    {"font.family": ["sans-serif"], "font.size": 9.0, "axes.labelsize": 9.0, "axes.titlesize": 10.0}
    | {"axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK, "axes.labelweight": "normal"}
    | dict.fromkeys(["text.color", "axes.labelcolor"], INK)
    | dict.fromkeys(["figure.facecolor", "axes.facecolor"], "white")
    | dict.fromkeys(["axes.spines.top", "axes.spines.right", "axes.grid"], False)
    | {"axes.edgecolor": MUTED, "axes.linewidth": 0.8, "lines.linewidth": 1.5, "axes.axisbelow": True}
)


def new_axes(height: float, title: str) -> tuple[Figure, Axes]:
    """A figure as wide as a page and its one axes, titled, with ticks and grid in the house style."""
    figure = Figure(figsize=(WIDTH, height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, wrap=True, pad=14)
    axes.tick_params(which="both", color=MUTED, labelcolor=INK, labelsize=8.5)
    axes.grid(color=GRID, linewidth=0.7)
    return figure, axes


def colour_of(i: int) -> str:
    """Of the i-th model, in every picture of a comparison the same."""
    return COLOURS[i % len(COLOURS)]


def dash_of(i: int) -> Any:
    """Of the i-th model: when colours run out, lines are dashed."""
    return DASHES[i // len(COLOURS) % len(DASHES)]


def logarithmic(axes: Axes) -> None:
    """A logarithmic axis of x, labelled in plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def note_below(figure: Figure, text: str) -> None:
    """How to read the picture, small, under it."""
    if text:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=MUTED)


def short(name: Any) -> str:
    """A name that fits beside a picture."""
    text = str(name)
    return text if len(text) <= _NAME else text[: _NAME - 1] + "…"


def width_of(text: str, size: float) -> float:
    """Points that a text takes: what stands outside the axes is laid out by hand."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text.strip() else 0.0

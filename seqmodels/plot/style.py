"""The style of all plots: colours that the colour-blind can tell apart, and one width.

Matplotlib's global settings stay as they are. Every public plot draws on ``ax``, or on a new figure of pyplot, and
returns the axes: an ``Axes``, or ``Panels`` if there are several.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator, NullFormatter

INK, MUTED, GRID = "#222222", "#6b6b6b", "#e3e3e3"
INK_ON_LIGHT = "#202020"  # text on light colours, a colour of its own because they stay light on a dark page
# Okabe & Ito's palette without its yellow, which is hard to see on white, and five more colours of other lightness.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"),
    *("#882255", "#999933", "#332288", "#8C510A", "#888888"),
)
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)))
WIDTH, NARROW = 7.0, 3.75  # width in inches of a page, and of a telephone
MAX_NAME_LENGTH = 40  # the most characters of a model's name
MAX_NARROW_NAME_LENGTH = 18  # the same in a figure that is narrower than MIN_FULL_WIDTH
MIN_FULL_WIDTH = 5.0  # inches
CHARACTERS_PER_INCH = 15  # characters of a note, whose font has 8 points
# Settings that artists read when they are made. Ticks and grids are made later, when drawn, so ``new_axes`` sets them.
STYLE: Any = (
    {"font.family": ["sans-serif"], "font.size": 9.0, "axes.labelsize": 9.0, "axes.titlesize": 10.0}
    | {"axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK, "axes.labelweight": "normal"}
    | dict.fromkeys(["text.color", "axes.labelcolor"], INK)
    | dict.fromkeys(["figure.facecolor", "axes.facecolor"], "white")
    | dict.fromkeys(["axes.spines.top", "axes.spines.right", "axes.grid"], False)
    | {"axes.edgecolor": MUTED, "axes.linewidth": 0.8, "lines.linewidth": 1.5, "axes.axisbelow": True}
)


def new_axes(height: float, title: str, width: float = WIDTH) -> tuple[Figure, Axes]:
    """Return a new figure in the style of all plots, and its only axes.

    Args:
        height: height of the figure in inches.
        title: title of the axes.
        width: width of the figure in inches.
    """
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, wrap=True, pad=14)
    _set_ticks(axes)
    return figure, axes


def colour_of(i: int) -> str:
    """Return the color of the i-th of the compared models, which is the same in every plot of a comparison."""
    return COLOURS[i % len(COLOURS)]


def dash_of(i: int) -> Any:
    """Return the line style of the i-th of the compared models; lines are dashed when the colours run out."""
    return DASHES[i // len(COLOURS) % len(DASHES)]


def logarithmic(axes: Axes) -> None:
    """Make the x axis logarithmic and label it in plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def is_narrow(figure: Figure) -> bool:
    """Return True if a figure has no room for names of full length beside its axes."""
    return float(figure.get_figwidth()) < MIN_FULL_WIDTH


def note_below(figure: Figure, text: str) -> None:
    """Write a note on how to read the plot below it, in lines that fit the width of the figure."""
    if text:
        lines = textwrap.wrap(text, int(CHARACTERS_PER_INCH * figure.get_figwidth()))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8, color=MUTED)


def short(name: Any, longest: int = MAX_NAME_LENGTH) -> str:
    """Return a name as text, cut off with an ellipsis if it has more than ``longest`` characters."""
    text = str(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def short_in(figure: Figure, name: Any) -> str:
    """Return a name as text, cut off with an ellipsis so that it fits beside the axes of a figure.

    Args:
        figure: the figure, in which names are shorter if it is narrow.
        name: the name.
    """
    return short(name, MAX_NARROW_NAME_LENGTH if is_narrow(figure) else MAX_NAME_LENGTH)


def width_of(text: str, size: float) -> float:
    """Return the width in points of ``text`` in the font size ``size``, to lay out text outside of the axes."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text.strip() else 0.0


def in_style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib draws with the fonts, lines and colours of the style of all plots."""
    return temporary_settings(STYLE)


@contextmanager
def temporary_settings(settings: Any) -> Iterator[None]:
    """Return a context in which some of matplotlib's settings have other values; afterwards only these are put back.

    ``matplotlib.rc_context`` puts back all settings. But the first figure of pyplot in a notebook chooses the backend,
    which turns ``interactive`` on; if that were put back, the notebook would no longer show figures.

    Args:
        settings: values of the settings by their names in ``matplotlib.rcParams``.
    """
    before = {name: matplotlib.rcParams[name] for name in settings}
    matplotlib.rcParams.update(settings)
    try:
        yield
    finally:
        matplotlib.rcParams.update(before)


def note_in_label(ax: Axes, text: str) -> None:
    """Write a note on how to read the plot below the label of the x axis, for a figure that may contain other axes."""
    if text:
        ax.set_xlabel(f"{ax.get_xlabel()}\n{text}")


def axes_or_new(ax: Axes | None, height: float, title: str = "") -> Axes:
    """Return ``ax``, or if it is None the axes of a new figure of pyplot in the style of all plots.

    Args:
        ax: axes that the caller passed, or None.
        height: height of the new figure in inches; it is as wide as a page.
        title: title of the new figure.
    """
    if ax is None:
        from matplotlib import pyplot  # used only here, because with a display it shows what is drawn

        _, ax = pyplot.subplots(figsize=(WIDTH, height), layout="constrained")
        _set_ticks(ax)
        ax.set_title(title, wrap=True, pad=14 if title else None)
    return ax


def positions(ax: Axes, time: np.ndarray) -> np.ndarray:
    """Return the positions of steps on the x axis as floats, shape ``(T,)``.

    Args:
        ax: the axes; its x axis becomes an axis of dates if the times are dates.
        time: times of the T steps, numbers or dates, shape ``(T,)``.
    """
    if _are_dates(time):
        ax.xaxis.update_units(time)
        locator = AutoDateLocator()
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    return as_numbers(time)


def as_numbers(time: np.ndarray) -> np.ndarray:
    """Return times as floats, shape ``(T,)``; dates become days, as matplotlib counts them.

    Args:
        time: times of T steps, numbers or dates, shape ``(T,)``.
    """
    return np.asarray(date2num(time) if _are_dates(time) else time, dtype=float)


def _are_dates(time: np.ndarray) -> bool:
    return time.dtype.kind == "M" or isinstance(time.flat[0], date)


def label_frames(ax: Axes, times: np.ndarray | None, label: str = "") -> None:
    """Label an x axis on which frames are at 0, 1, 2, ... with the times of the frames.

    Args:
        ax: the axes.
        times: times of the T frames, numbers or dates, shape ``(T,)``; None shows the numbers of the frames.
        label: label of the axis of times.
    """
    if times is None or not len(times):
        ax.set_xlabel("frame")
        return
    if _are_dates(times):
        dates = pd.DatetimeIndex(times)
        is_daily = bool((dates == dates.normalize()).all())
        one_day = bool(dates[0].normalize() == dates[-1].normalize())
        form = "%Y-%m-%d" if is_daily else "%H:%M:%S" if one_day else "%m-%d\n%H:%M"
        names = [dates[i].strftime(form) for i in range(len(dates))]
        label = str(dates[0].date()) if one_day and not is_daily else str(dates[0].year) if not is_daily else label
    else:
        names = [f"{float(t):g}" for t in times]
    ax.xaxis.set_major_locator(MaxNLocator(2 if is_narrow(figure_of(ax)) else 4, integer=True))
    ax.xaxis.set_major_formatter(lambda x, _: names[round(x)] if 0 <= round(x) < len(names) else "")
    ax.set_xlabel(label)


def edges_of(t: np.ndarray) -> np.ndarray:
    """Return the edges between steps on an axis, half-way between neighbours, shape ``(T + 1,)``.

    Args:
        t: increasing positions of the T steps, shape ``(T,)``.

    >>> edges_of(np.array([0.0, 1.0, 3.0]))
    array([-0.5,  0.5,  2. ,  4. ])
    """
    if len(t) == 1:
        return np.array([t[0] - 0.5, t[0] + 0.5])
    inner = (t[1:] + t[:-1]) / 2
    return np.concatenate([[2 * t[0] - inner[0]], inner, [2 * t[-1] - inner[-1]]])


def time_label(name: str, unit: str | None, times: np.ndarray) -> str:
    """Return the label of an axis of times, ``"name, unit"``; "" for dates, which explain themselves.

    Args:
        name: name of the times.
        unit: their unit; None or "" if they have none.
        times: the times.
    """
    if times.dtype.kind == "M":
        return ""
    return f"{name}, {unit}" if unit else name


class Panels(tuple[Axes, ...]):
    """The axes of a plot with several panels, from top to bottom, as a tuple with the attribute ``figure``."""

    @property
    def figure(self) -> Figure:
        return figure_of(self[0])


def panels_or_new(
    ax: Axes | Sequence[Axes] | None, n: int, height: float, *, share_x: bool = True, columns: int = 1
) -> Panels:
    """Return ``n`` axes: ``ax``, or if it is None the axes of a new figure of pyplot, row by row.

    Args:
        ax: a single ``Axes``, a sequence of ``n``, or None.
        n: number of axes.
        height: height of each new panel in inches.
        share_x: if True, new panels share their x axis.
        columns: number of new panels in each row, of which ``n`` is a multiple.

    Raises:
        ValueError: ``ax`` does not hold ``n`` axes.
    """
    if ax is not None:
        given = Panels([ax]) if isinstance(ax, Axes) else Panels(np.ravel(np.asarray(ax, dtype=object)))
        if len(given) != n or not all(isinstance(each, Axes) for each in given):
            raise ValueError(f"ax holds {len(given)} axes, but {n} are drawn on; pass {n} axes, or None for new ones")
        return given
    from matplotlib import pyplot  # used only here, because with a display it shows what is drawn

    rows = n // columns
    _, axes = pyplot.subplots(
        rows, columns, figsize=(WIDTH, height * rows), layout="constrained", sharex=share_x, squeeze=False
    )
    panels = Panels(axes.flat)
    for each in panels:
        _set_ticks(each)
    return panels


def _set_ticks(axes: Axes) -> None:
    axes.tick_params(which="both", color=MUTED, labelcolor=INK, labelsize=8.5)
    axes.grid(color=GRID, linewidth=0.7)


def figure_of(ax: Axes) -> Figure:
    """Return the figure that contains the axes."""
    figure = ax.get_figure(root=True)
    assert figure is not None, "axes that were removed from their figure"
    return figure


def state_colour(state: int) -> str:
    """Return the color of a hidden state, given its number; it is the same in every plot.

    After all colours of the style come the same colours at half strength.
    """
    strength = 1.0 if state // len(COLOURS) % 2 == 0 else 0.5
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(COLOURS[state % len(COLOURS)]))
    return to_hex((red, green, blue))


def ink_on(state: int) -> str:
    """Return the color for text that stands on the color of a hidden state: white on dark colours."""
    luminance = float(np.dot((0.2126, 0.7152, 0.0722), to_rgb(state_colour(state))))
    return INK_ON_LIGHT if luminance > 0.55 else "white"


def shades() -> LinearSegmentedColormap:
    """Return a color map from white, for 0, to the blue with which the style's colours begin."""
    return LinearSegmentedColormap.from_list("shades", ["white", COLOURS[0]])

"""Drawing of hidden states over the steps of one sequence: behind its data, and as an image of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from seqmodels.plot.drawn_frames import CLIP, COLOUR_MAP, Scale, image_of, runs, two_rows
from seqmodels.plot.style import (
    GRID,
    INK,
    MUTED,
    WIDTH,
    as_numbers,
    edges_of,
    figure_of,
    in_style,
    ink_on,
    label_frames,
    positions,
    shades,
    short,
    state_colour,
    width_of,
)

MAX_LINES = 6  # the most features that are drawn as lines; more are drawn as an image
CHARACTERS_PER_LINE = 60
MAX_LEGEND = 14  # the most states in a legend; more are named only in the strip
MAX_LEGEND_OF_IMAGE = 9  # the same for an image, which has a colour bar below its legend
MAX_SHAPES = 2000  # the most runs of equal states that are shapes in a PDF or SVG; more are pixels
MAX_TICKS = 30  # the most names beside an axis; if there are more, some are left out
OVER = 0.35  # opacity of states that are drawn over an existing plot
STRIP = 0.09  # height of the strip that names the states, as a share of the axes' height
SIZE = 8.5  # font size in points


# -- data over states ---------------------------------------------------------------------------------------------


def draw_vectors(
    ax: Axes,
    time: np.ndarray,
    frames: np.ndarray,
    path: np.ndarray,
    names: Sequence[str],
    features: Sequence[str] | None,
) -> None:
    """Draw features as lines on the colours of hidden states; many features become an image above a strip of states.

    Args:
        ax: the axes to draw on.
        time: times of the steps, numbers or dates, shape ``(T,)``.
        frames: D features at each of T steps, shape ``(T, D)``.
        path: state of each step, shape ``(T,)``.
        names: names of the K states.
        features: names of the D features; None numbers them.
    """
    t = positions(ax, time)
    labels = [str(d) for d in range(frames.shape[1])] if features is None else [short(name) for name in features]
    if len(labels) > MAX_LINES:
        draw_image(ax, edges_of(t), Scale([frames])(frames), labels)
        draw_strip(ax, t, path, names, (-STRIP * len(labels), 0.0))
        add_legend(ax, path, names, MAX_LEGEND_OF_IMAGE)
    else:
        if len(labels) == 1:
            _line(ax, t, frames[:, 0], "x" if features is None else labels[0])
        else:
            _lanes(ax, t, frames, labels)
        _background(ax, t, path)
        top = ax.get_ylim()[1]
        draw_strip(ax, t, path, names, (top, top + STRIP * (top - ax.get_ylim()[0])))
        add_legend(ax, path, names)


def draw_symbols(
    ax: Axes,
    time: np.ndarray,
    symbols: np.ndarray,
    path: np.ndarray,
    names: Sequence[str],
    features: Sequence[str] | None,
) -> None:
    """Draw symbols as dots, against time, on a background in the colours of the hidden states.

    Args:
        ax: the axes to draw on.
        time: times of the steps, numbers or dates, shape ``(T,)``.
        symbols: the symbol of each step, integers, shape ``(T,)``.
        path: state of each step, shape ``(T,)``.
        names: names of the K states.
        features: names of the symbols, from 0; None shows their numbers.
    """
    t = positions(ax, time)
    low, high = int(symbols.min()), int(symbols.max())
    ax.plot(t, symbols, "o", color=INK, markersize=3, gid="data")
    ax.set(xlim=edges_of(t)[[0, -1]], ylim=(low - 0.6, high + 0.6))
    if features is None:
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_ylabel("symbol")
    else:
        every = range(low, high + 1, -(-(high - low + 1) // MAX_TICKS))
        ax.set_yticks(every, [short(features[symbol]) for symbol in every])
    _background(ax, t, path)
    draw_strip(ax, t, path, names, (high + 0.6, high + 0.6 + STRIP * (high - low + 1.2)))
    add_legend(ax, path, names)


def draw_over(ax: Axes, time: np.ndarray | None, path: np.ndarray, names: Sequence[str], steps: slice) -> None:
    """Color the background of an existing plot by the hidden states, and add a strip with their names above it.

    The limits of the x axis stay, and the y axis is extended by the strip.

    Args:
        ax: the axes with the plot.
        time: times of the selected steps, in the units of the axis. None numbers the steps, or spreads them over the x
            axis if the plot shows another number of steps.
        path: state of each step, shape ``(T,)``.
        names: names of the K states.
        steps: the steps to draw.

    Raises:
        ValueError: none of the times is on the axis.
    """
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    t = _steps_on(ax, len(path))[steps] if time is None else as_numbers(time)
    if t[-1] < min(left, right) or t[0] > max(left, right):
        raise ValueError(
            f"the times of x run from {t[0]:.6g} to {t[-1]:.6g}, but ax shows {left:.6g} to {right:.6g}; pass time= in "
            "the units of ax (of dates days since 1970)"
        )
    scale = ax.transScale
    (_, bottom), (_, top) = scale.transform([(right, low), (right, high)])
    above = float(scale.inverted().transform((right, top + STRIP * (top - bottom)))[1])
    _bars(ax, edges_of(t), path[steps], (low, high - low), alpha=OVER, zorder=1.5, gid="background")
    _fill_strip(ax, t, path[steps], names, (high, above))
    ax.set(xlim=(left, right), ylim=(low, above))
    written = {text.get_text() for text in ax.texts if text.get_gid() == "state"}
    if ax.get_legend() is None and not {names[state] for state in np.unique(path[steps]).tolist()} <= written:
        handles = [Patch(color=state_colour(s), label=short(names[s])) for s in np.unique(path[steps]).tolist()]
        ax.legend(handles=handles[:MAX_LEGEND], fontsize=SIZE, handlelength=1, loc="lower right", framealpha=0.85)


def _steps_on(ax: Axes, n: int) -> np.ndarray:
    """Return positions on the x axis of ``n`` steps without times, shape ``(n,)``.

    They are 0 to n - 1 if the plot shows n steps; otherwise they are spread over the whole width.
    """
    low, high = ax.dataLim.intervalx
    is_counted = np.isclose(low, (0, -0.5)).any() and np.isclose(high, (n - 1, n - 0.5, n)).any()  # points, pixels
    if is_counted or not np.isfinite([low, high]).all():
        return np.arange(n, dtype=float)
    edges = np.linspace(low, high, n + 1)
    return np.asarray((edges[1:] + edges[:-1]) / 2)


def draw_text(ax: Axes, characters: str, path: np.ndarray, names: Sequence[str]) -> None:
    """Draw characters in lines of 60, each on the color of its hidden state.

    Args:
        ax: the axes to draw on.
        characters: the text.
        path: state of each character, shape ``(n,)``.
        names: names of the K states.
    """
    visible = {"\n": "↵", "\t": "⇥"}
    starts = range(0, len(characters), CHARACTERS_PER_LINE)
    for row, start in enumerate(starts):
        for first, end, state in runs(path[start : start + CHARACTERS_PER_LINE]):
            colour = state_colour(state)
            ax.broken_barh([(first, end - first)], (row - 0.5, 1), facecolor=colour, alpha=0.35, linewidth=0, gid="run")
        for column, character in enumerate(characters[start : start + CHARACTERS_PER_LINE]):
            ax.text(
                column + 0.5, row, visible.get(character, character), ha="center", va="center", family="monospace",
                fontsize=SIZE,
            )  # fmt: skip
    ax.set(xlim=(0, min(len(characters), CHARACTERS_PER_LINE)), ylim=(len(starts) - 0.5, -0.5), xticks=[])
    ax.set_yticks(range(len(starts)), [str(start + 1) for start in starts])
    ax.set_ylabel("first character of the line")
    ax.grid(visible=False)
    add_legend(ax, path, names)


def _line(ax: Axes, t: np.ndarray, values: np.ndarray, label: str) -> None:
    ax.plot(t, values, color=INK, linewidth=1.0, gid="data")
    ax.set(xlim=edges_of(t)[[0, -1]])
    ax.set_ylabel(label)


def _lanes(ax: Axes, t: np.ndarray, frames: np.ndarray, labels: Sequence[str]) -> None:
    """Draw the features one above the other in bands of equal height, each scaled to its own range.

    The ends of each range are written beside its band.

    Args:
        ax: the axes to draw on.
        t: positions of the steps on the x axis, shape ``(T,)``.
        frames: D features at each of T steps, shape ``(T, D)``.
        labels: names of the D features.
    """
    numbers = []
    for row, values in enumerate(frames.T[::-1]):  # the first feature on top
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        scaled = (values - low) / (high - low) if high > low else np.where(np.isfinite(values), 0.5, np.nan)
        ax.plot(t, row + 0.1 + 0.8 * scaled, color=INK, linewidth=1.0, gid="data")
        ax.axhline(row, color=GRID, linewidth=0.7)
        numbers += (
            [(row + 0.1, in_few_digits(low)), (row + 0.9, in_few_digits(high))]
            if high > low
            else [(row + 0.5, in_few_digits(low))]
        )
    ax.set_yticks([row + 0.5 for row in range(len(labels))], labels[::-1])
    ax.set_yticks([at for at, _ in numbers], [text for _, text in numbers], minor=True)
    ax.tick_params(axis="y", which="minor", labelsize=0.8 * SIZE, labelcolor=MUTED, length=2, color=MUTED)
    ax.tick_params(axis="y", which="major", length=0, pad=26)
    ax.grid(visible=False, axis="y")
    ax.set(xlim=edges_of(t)[[0, -1]], ylim=(0, len(labels)))


def in_few_digits(value: float) -> str:
    """Return a number as text with three digits; below a million, with all digits before the point.

    >>> in_few_digits(-1.634), in_few_digits(1046.2), in_few_digits(2.5e8)
    ('-1.63', '1046', '2.5e+08')
    """
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def draw_image(ax: Axes, edges: np.ndarray, standardised: np.ndarray, labels: Sequence[str]) -> None:
    """Draw standardised frames as an image over time with the first feature at the bottom.

    Args:
        ax: the axes to draw on.
        edges: edges of the frames on the x axis, shape ``(T + 1,)``.
        standardised: T frames of D features in standard deviations from the mean, shape ``(T, D)``.
        labels: names of the D features.
    """
    mesh = ax.pcolormesh(edges, np.arange(len(labels) + 1), standardised.T, cmap=COLOUR_MAP, rasterized=True)
    mesh.set_clim(-CLIP, CLIP)
    every = -(-len(labels) // MAX_TICKS)
    ax.set_yticks(np.arange(len(labels))[::every] + 0.5, labels[::every])
    ax.set_ylabel("feature")
    ax.grid(visible=False)
    ax.set(xlim=edges[[0, -1]], ylim=(0, len(labels)))
    colour_bar(ax, mesh, "sd from the mean")


def state_strip(
    frames: np.ndarray,
    path: np.ndarray,
    *,
    scale: Scale,
    width: float = WIDTH,
    times: np.ndarray | None = None,
    time_label: str = "",
) -> Figure:
    """Return a figure of one sequence's features over time, and below them the hidden state of each frame.

    Args:
        frames: T frames of D features of the sequence, shape ``(T, D)``.
        path: state of each frame, shape ``(T,)``.
        scale: standardisation by the features' means and standard deviations over all test frames.
        width: width of the figure in inches.
        times: times of the frames, numbers or dates, shape ``(T,)``; None numbers them.
        time_label: label of the axis of times.
    """
    with in_style():
        figure, (above, below) = two_rows(width)
        image = image_of(above, frames, scale)
        figure.colorbar(image, ax=above, label="sd", pad=0.01, aspect=12)
        names = [str(state) for state in range(int(path.max()) + 1)]
        below.set(xlim=(-0.5, len(path) - 0.5), ylim=(0, 1))
        draw_strip(below, np.arange(len(path), dtype=float), path, names, (0.0, 1.0))
        label_frames(below, times, time_label)
        below.set(ylabel="state", yticks=[])
    return figure


# -- states over time ---------------------------------------------------------------------------------------------


def draw_strip(ax: Axes, t: np.ndarray, path: np.ndarray, names: Sequence[str], rows: tuple[float, float]) -> None:
    """Draw the hidden state of each step as a coloured strip, with its name in each run of equal states that has room.

    The y axis is extended to the strip.

    Args:
        ax: the axes to draw on, whose x axis has its limits.
        t: positions of the steps on the x axis, shape ``(T,)``.
        path: state of each step, shape ``(T,)``.
        names: names of the K states.
        rows: lower and upper edge of the strip on the y axis.
    """
    low, high = ax.get_ylim()
    _fill_strip(ax, t, path, names, rows)
    ax.set_ylim(min(low, rows[0]), max(high, rows[1]))


def _fill_strip(ax: Axes, t: np.ndarray, path: np.ndarray, names: Sequence[str], rows: tuple[float, float]) -> None:
    bottom, top = rows
    edges = edges_of(t)
    _bars(ax, edges, path, (bottom, top - bottom), alpha=1.0, zorder=2, gid="strip")
    first_x, last_x = ax.get_xlim()
    points = 72 * figure_of(ax).get_figwidth() * ax.get_position().width / abs(last_x - first_x)
    widths = {state: width_of(names[state], SIZE) for state in set(path.tolist())}
    for first, end, state in runs(path):
        if widths[state] + 4 <= (edges[end] - edges[first]) * points:
            ax.text(
                (edges[first] + edges[end]) / 2, (bottom + top) / 2, names[state], ha="center", va="center_baseline",
                color=ink_on(state), fontsize=SIZE, clip_on=True, gid="state",
            )  # fmt: skip


def draw_posterior(ax: Axes, time: np.ndarray, posterior: np.ndarray, names: Sequence[str]) -> None:
    """Draw the probability of each hidden state at each step as an image, white at 0, with the first state on top.

    Args:
        ax: the axes to draw on.
        time: times of the steps, numbers or dates, shape ``(T,)``.
        posterior: probabilities of K states at each of T steps, shape ``(T, K)``.
        names: names of the K states.
    """
    t = positions(ax, time)
    edges = edges_of(t)
    k = len(names)
    mesh = ax.pcolormesh(edges, np.arange(k + 1) - 0.5, posterior.T, cmap=shades(), vmin=0, vmax=1, rasterized=True)
    every = -(-k // MAX_TICKS)
    ax.set_yticks(range(0, k, every), names[::every])
    ax.set(xlim=edges[[0, -1]], ylim=(k - 0.5, -0.5), ylabel="state")
    ax.grid(visible=False)
    colour_bar(ax, mesh, "probability")


def _background(ax: Axes, t: np.ndarray, path: np.ndarray) -> None:
    low, high = ax.get_ylim()
    _bars(ax, edges_of(t), path, (low, high - low), alpha=0.22, zorder=0.4, gid="background")
    ax.set_ylim(low, high)


def _bars(
    ax: Axes, edges: np.ndarray, path: np.ndarray, rows: tuple[float, float], *, alpha: float, zorder: float, gid: str
) -> None:
    """Draw each run of equal states as a bar in the state's colour, with one collection of bars per state.

    Args:
        ax: the axes to draw on.
        edges: edges of the steps on the x axis, shape ``(T + 1,)``.
        path: state of each step, shape ``(T,)``.
        rows: lower edge and height of the bars on the y axis.
        alpha: opacity.
        zorder: order of drawing.
        gid: matplotlib's group identifier of the bars, by which they can be found.
    """
    each = runs(path)
    for state in sorted({state for _, _, state in each}):
        spans = [(edges[first], edges[end] - edges[first]) for first, end, s in each if s == state]
        ax.broken_barh(
            spans, rows, facecolor=state_colour(state), alpha=alpha, linewidth=0, zorder=zorder, gid=gid,
            rasterized=len(each) > MAX_SHAPES,
        )  # fmt: skip


def add_legend(ax: Axes, path: np.ndarray, names: Sequence[str], most: int = MAX_LEGEND) -> None:
    """Add a legend of the hidden states that occur to the right of the axes, unless there are too many.

    Args:
        ax: the axes.
        path: state of each step, shape ``(T,)``.
        names: names of all states.
        most: the most states that a legend names.
    """
    visited = np.unique(path).tolist()
    if len(visited) <= most:
        handles = [Patch(color=state_colour(state), label=short(names[state])) for state in visited]
        place: Any = {"loc": "upper left", "bbox_to_anchor": (1.005, 1.0), "borderaxespad": 0}
        ax.legend(handles=handles, title="state", frameon=False, fontsize=SIZE, handlelength=1, **place)


def colour_bar(ax: Axes, mesh: Any, label: str) -> None:
    """Add the color bar of an image to the right of the lower half of the axes.

    The axes keep their width, so that axes above one another stay aligned.

    Args:
        ax: the axes.
        mesh: the image, or any artist with a color map.
        label: label of the bar.
    """
    bar = figure_of(ax).colorbar(mesh, cax=ax.inset_axes((1.01, 0.0, 0.015, 0.45)))
    bar.set_label(label, fontsize=SIZE)
    bar.ax.tick_params(labelsize=0.9 * SIZE)

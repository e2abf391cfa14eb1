"""Plot of anomalies in one sequence: the sequence and, below it, the log-probabilities of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from seqmodels.plot.style import COLOURS, INK, MUTED, Panels, edges_of, in_style, panels_or_new, positions
from seqmodels.sequences import Item

FLAGGED = COLOURS[1]
MAX_LINES = 6  # the most features that are drawn as lines; more are drawn as an image
MAX_RATIO = 20.0  # the largest ratio of all features' range to one's interquartile range with which they share an axis
TEXT_COLUMNS, TEXT_ROWS = 72, 8  # the block of characters that is drawn of a text
LABEL_ROWS = 40  # the most features of an image that are named


@dataclass(frozen=True)
class JudgedSequence:
    """A sequence with its log-probabilities and the steps that were flagged as anomalies, ready to be drawn.

    Attributes:
        item: the raw sequence of T steps.
        log_prob: log-probability of each step in nats, or the moving mean that is compared with the threshold, shape
            ``(T,)``; NaN where there is none.
        is_anomaly: True for each step that is flagged, shape ``(T,)``; all or none if whole sequences are judged.
        feature: for each step the index of the feature that makes it improbable, shape ``(T,)``; -1 if none is named.
        threshold: steps with a smaller ``log_prob`` are flagged; None if whole sequences are judged.
        names: names of the features.
        title: title above the plot.
        label: label of the lower y axis.
        times: times of the steps, except the end, shape ``(T,)``; None numbers the steps.
        time_label: label of the axis of times.
    """

    item: Item
    log_prob: np.ndarray
    is_anomaly: np.ndarray
    feature: np.ndarray
    threshold: float | None
    names: Sequence[str]
    title: str
    label: str
    times: np.ndarray | None = None
    time_label: str = ""


def plot_anomalies(judged: Sequence[JudgedSequence], ax: Sequence[Axes] | None = None, left_out: str = "") -> Panels:
    """Draw each sequence and, below it, the log-probability of its steps, with flagged steps marked in both.

    Features of vectors are lines. If one axis would not suit them all, each is scaled by its interquartile range; more
    than ``MAX_LINES`` features are rows of an image in standard deviations. Of a long text, the part around its least
    probable character is shown. Steps of probability zero are triangles at the lower edge.

    Args:
        judged: the sequences to draw.
        ax: two axes for each sequence, above and below; None creates a figure of pyplot.
        left_out: a note about sequences that are not drawn, written below.

    Returns:
        The axes, from top to bottom.
    """
    with in_style():
        panels = panels_or_new(ax, 2 * len(judged), 2.1, share_x=False)
        for i, each in enumerate(judged):
            _draw(panels[2 * i], panels[2 * i + 1], each)
        if left_out:
            panels[-1].set_xlabel(f"{panels[-1].get_xlabel()}\n{left_out}".strip())
    return panels


def _draw(above: Axes, below: Axes, judged: JudgedSequence) -> None:
    above.set_title(judged.title, wrap=True)
    if isinstance(judged.item, str):
        _draw_text(above, judged)
    elif judged.item.ndim == 1:
        _draw_symbols(above, judged)
    elif judged.item.shape[1] <= MAX_LINES:
        _draw_lines(above, judged)
    else:
        _draw_image(above, judged)
    _draw_log_prob(below, judged)
    if not isinstance(judged.item, str):
        above.set_xlim(below.get_xlim())
        above.tick_params(labelbottom=False)
        above.xaxis.get_offset_text().set_visible(False)  # the year of dates, which the lower axis shows


def _positions(axes: Axes, judged: JudgedSequence, n: int) -> np.ndarray:
    """Return the positions of ``n`` steps on the x axis, shape ``(n,)``: their times, or 0 to n - 1 without times.

    The end of the sequence, if it is a step, is placed one step after the last.

    Args:
        axes: the axes, which become axes of dates if the times are dates.
        judged: the sequence.
        n: number of steps, counting the end if it is one.
    """
    if judged.times is None:
        return np.arange(n)
    t = positions(axes, judged.times)
    return np.append(t, 2 * t[-1] - t[-2] if len(t) > 1 else t[-1] + 1)[:n]


def _draw_lines(axes: Axes, judged: JudgedSequence) -> None:
    values, unit = _on_one_scale(np.asarray(judged.item))
    steps = _positions(axes, judged, len(values))
    flagged = judged.is_anomaly[: len(values)]
    for d, name in enumerate(judged.names):
        axes.plot(steps, values[:, d], color=_colour(d), linewidth=1.0, label=name)
        at = flagged & ((judged.feature[: len(values)] == d) | (judged.feature[: len(values)] < 0))
        _mark(axes, steps[at], values[at, d])
    axes.set_ylabel(unit if len(judged.names) > 1 else judged.names[0])
    if len(judged.names) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def _on_one_scale(values: np.ndarray) -> tuple[np.ndarray, str]:
    """Return values that can be drawn on one axis, and the label of the axis.

    If one feature would be a flat line beside the others, each is divided by its interquartile range, after its median
    was subtracted; otherwise the values are returned unchanged.

    Args:
        values: D features at each of T steps, ``(T, D)``.
    """
    if np.isnan(values).all(0).any():
        return values, "value"
    lowest, low, middle, high, highest = np.nanquantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    spread = np.where(high > low, high - low, np.nanstd(values, axis=0))
    spread = np.where(spread > 0, spread, 1.0)
    if values.shape[1] == 1 or highest.max() - lowest.min() < MAX_RATIO * spread.min():
        return values, "value"
    return (values - middle) / spread, "(value - median) / IQR"


def _colour(d: int) -> str:
    others = [colour for colour in COLOURS if colour != FLAGGED]
    return others[d % len(others)]


def _draw_image(axes: Axes, judged: JudgedSequence) -> None:
    values = np.asarray(judged.item)
    deviation = np.nanstd(values, axis=0)
    z = (values - np.nanmean(values, axis=0)) / np.where(deviation > 0, deviation, 1.0)
    steps, rows = _positions(axes, judged, len(values)), np.arange(len(judged.names) + 1) - 0.5
    image = (
        axes.imshow(z.T, aspect="auto", cmap="RdBu_r", vmin=-4, vmax=4, interpolation="nearest")
        if judged.times is None
        else axes.pcolormesh(edges_of(steps), rows, z.T, cmap="RdBu_r", vmin=-4, vmax=4, rasterized=True)
    )
    axes.set_ylim(rows[-1], rows[0])
    axes.figure.colorbar(image, ax=axes, label="deviations", pad=0.01)
    axes.grid(visible=False)
    flagged = np.flatnonzero(judged.is_anomaly[: len(values)])
    named = flagged[judged.feature[flagged] >= 0]
    axes.plot(
        steps[named], judged.feature[named], color=INK, marker="o", markersize=7, fillstyle="none", linestyle="none"
    )
    if len(judged.names) <= LABEL_ROWS:
        axes.set_yticks(range(len(judged.names)), judged.names, fontsize=7)
    axes.set_ylabel("feature")


def _draw_symbols(axes: Axes, judged: JudgedSequence) -> None:
    values = np.asarray(judged.item)
    steps = _positions(axes, judged, len(values))
    axes.plot(steps, values, color=COLOURS[0], marker=".", markersize=3, linestyle="none")
    flagged = judged.is_anomaly[: len(values)]
    _mark(axes, steps[flagged], values[flagged])
    axes.set_ylabel("symbol")


def _draw_text(axes: Axes, judged: JudgedSequence) -> None:
    text = str(judged.item)
    first = _first_shown(judged, len(text))
    excerpt = text[first : first + TEXT_COLUMNS * TEXT_ROWS]
    axes.set(xlim=(0, TEXT_COLUMNS), ylim=(TEXT_ROWS, 0), xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for i, character in enumerate(excerpt):
        row, column = divmod(i, TEXT_COLUMNS)
        flagged = judged.is_anomaly[first + i]
        if flagged:
            axes.add_patch(Rectangle((column, row), 1, 1, color=FLAGGED, gid="anomaly"))
        visible = character if character.isprintable() else "·"
        style: Any = {"ha": "center", "va": "center", "family": "monospace", "fontsize": 7.5}
        axes.text(column + 0.5, row + 0.5, visible, color="white" if flagged else INK, **style)
    if len(excerpt) < len(text):
        axes.set_xlabel(f"characters {first} to {first + len(excerpt) - 1} of {len(text)}", fontsize=8, color=MUTED)


def _first_shown(judged: JudgedSequence, n: int) -> int:
    size = TEXT_COLUMNS * TEXT_ROWS
    if n <= size:
        return 0
    worst = int(np.nanargmin(judged.log_prob[:n]))
    return int(np.clip(worst // TEXT_COLUMNS * TEXT_COLUMNS - size // 2, 0, n - size))


def _draw_log_prob(axes: Axes, judged: JudgedSequence) -> None:
    steps = _positions(axes, judged, len(judged.log_prob))
    finite = np.isfinite(judged.log_prob)
    axes.plot(steps, np.where(finite, judged.log_prob, np.nan), color=COLOURS[0], linewidth=0.9)
    flagged = judged.is_anomaly
    if judged.threshold is not None:
        axes.axhline(judged.threshold, color=INK, linewidth=0.8, linestyle=(0, (5, 3)), gid="threshold")
        _mark(axes, steps[flagged & finite], judged.log_prob[flagged & finite])
    zeros = steps[np.isneginf(judged.log_prob)]
    if len(zeros):
        bottom = axes.get_ylim()[0]
        axes.plot(zeros, np.full(len(zeros), bottom), color=FLAGGED, marker="v", linestyle="none", gid="impossible")
    counted = "character" if isinstance(judged.item, str) else "step"
    axes.set(xlim=edges_of(np.asarray(steps, dtype=float))[[0, -1]], ylabel=judged.label)
    axes.set_xlabel(counted if judged.times is None else judged.time_label)


def _mark(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    if len(x):
        axes.plot(x, y, color=FLAGGED, marker="o", markersize=5, linestyle="none", zorder=4, gid="anomaly")

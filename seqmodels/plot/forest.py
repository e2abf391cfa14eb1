"""Forest plot: the difference of each model to the baseline with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.common.display import format_context
from seqmodels.plot.style import (
    COLOURS,
    INK,
    MIN_FULL_WIDTH,
    MUTED,
    WIDTH,
    figure_of,
    in_style,
    is_narrow,
    new_axes,
    note_below,
    short,
    short_in,
    width_of,
)

NAME_ABOVE = 0.38  # rows by which a name stands above its row in a narrow figure, nearer to it than to the row above
HEADING_ABOVE = -0.85  # position of the headings of a narrow figure, in rows
OUTLIER_RATIO = 6.0  # a row that would stretch the axis by this factor is written at the edge instead


def forest(frame: pd.DataFrame, *, width: float = WIDTH, title: str | None = None) -> Figure:
    """Return a figure of the difference of each model's score to that of a baseline, with its confidence interval.

    Args:
        frame: the comparison table, with one row per model and the columns ``model``, ``score``, ``difference``,
            ``ci_low``, ``ci_high`` (nats per unit), ``kind`` (``exact`` or ``bound``) and optionally ``context`` and
            ``rank``. ``frame.attrs`` holds ``unit``, ``baseline``, ``title`` and the ``level`` of the intervals.
        width: width of the figure in inches.
        title: title of the figure; None means ``frame.attrs["title"]``.
    """
    with in_style():
        title = str(frame.attrs.get("title", "")) if title is None else title
        figure, axes = new_axes(height_of(len(frame), width), title, width)
        note_below(figure, draw_forest(axes, frame))
    return figure


def height_of(n_models: int, width: float = WIDTH) -> float:
    """Return the height in inches of a forest plot with ``n_models`` rows.

    It depends on the width, because in a narrow figure names stand above the rows.
    """
    return 1.5 + 0.27 * n_models if width >= MIN_FULL_WIDTH else 1.55 + 0.44 * n_models


def draw_forest(axes: Axes, frame: pd.DataFrame) -> str:
    """Draw the difference of each model's score to that of a baseline, with its interval, and the score at the right.

    The models stand in the order of the table. In a narrow figure, name and score stand above the row, so that the axes
    have the whole width. A hollow marker is a lower bound of the likelihood. A grey marker is the baseline, a score
    that a lower bound on a variance determined, or a model that took no training step. A row without an interval has
    only a marker, a row without a finite difference gives the reason in words, and a row far from all others is written
    at the edge rather than drawn to scale.

    Args:
        axes: the axes to draw on.
        frame: the comparison table, with one row per model and the columns ``model``, ``score``, ``difference``,
            ``ci_low``, ``ci_high`` (nats per unit), ``kind`` (``exact`` or ``bound``) and optionally ``context``
            (number of last steps that the model sees; NaN: all) and ``rank`` (NaN for the models with a grey marker
            other than the baseline). ``frame.attrs`` holds ``unit``, ``baseline``, ``title``, the ``level`` of the
            intervals, and as ``no_step`` the models that took no training step.

    Returns:
        A note on how to read the plot.
    """
    names = [short(name) for name in frame["model"]]
    low, mid, high = (frame[column].to_numpy(dtype=float) for column in ("ci_low", "difference", "ci_high"))
    baseline = str(frame.attrs.get("baseline", "baseline"))
    unit = str(frame.attrs.get("unit", "unit"))
    unranked = frame["rank"].isna().to_numpy() if "rank" in frame else np.zeros(len(frame), dtype=bool)
    untrained = frame.attrs.get("no_step", ())
    scores = frame["score"].to_numpy(dtype=float)
    left, right = _limits(low, mid, high)
    axes.set_xlim(left, right)
    above = is_narrow(figure_of(axes))
    axes.set_ylim(len(names) - 0.4, HEADING_ABOVE - 0.25 if above else -0.6)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
    for row, name in enumerate(names):
        is_bound = frame["kind"].iloc[row] == "bound"
        is_grey = name == short(baseline) or bool(unranked[row])
        _draw_row(axes, _Row(row, low[row], mid[row], high[row], scores[row], is_bound, is_grey))
        if unranked[row] and np.isfinite(mid[row]):
            why = "no step of training" if frame["model"].iloc[row] in untrained else "set by the floor"
            axes.annotate(
                why, (np.clip(mid[row], left, right), row), (0, -12 if above else 5),
                textcoords="offset points", ha="center", color=MUTED, fontsize=7.5, style="italic", gid="floor",
            )  # fmt: skip
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"difference to {short_in(figure_of(axes), baseline)}\nnats per {unit}, higher is better")
    if above:
        axes.set_yticks([])
        _names_above(axes, [short_in(figure_of(axes), name) for name in frame["model"]], _numbers(scores))
    else:
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0, labelsize=9)
        columns = {"score": _numbers(scores)}
        if "context" in frame and frame["context"].astype(str).nunique() > 1:
            columns["context"] = list(map(format_context, frame["context"]))
        _columns_at_right(axes, columns)
    intervals = f"lines: {frame.attrs.get('level', 0.95):.0%} intervals"
    bounds = "; hollow: a lower bound of the log-probability" if (frame["kind"] == "bound").any() else ""
    return intervals + bounds


@dataclass(frozen=True)
class _Row:
    """One row of a forest plot: the difference of one model to the baseline, and how it is marked.

    Attributes:
        y: its position on the y axis.
        low: lower end of the interval.
        mid: difference of the model to the baseline.
        high: upper end of the interval.
        score: score of the model.
        is_bound: True if the score is a lower bound.
        is_grey: True if the marker is grey.
    """

    y: int
    low: float
    mid: float
    high: float
    score: float
    is_bound: bool
    is_grey: bool


def _draw_row(axes: Axes, row: _Row) -> None:
    left, right = axes.get_xlim()
    colour = MUTED if row.is_grey else COLOURS[0]
    text: Any = {"va": "center", "color": colour, "fontsize": 8.5, "gid": "outlier"}
    if not np.isfinite(row.mid):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        text |= {"color": MUTED, "fontsize": 8, "style": "italic", "bbox": box, "gid": "excluded"}
        axes.text(left, row.y, f" {_why_no_difference(row.mid, row.score)} ", **text)
    elif row.mid < left:
        axes.text(left, row.y, f" ◂ {_signed(row.mid)}", ha="left", **text)
    elif row.mid > right:
        axes.text(right, row.y, f"{_signed(row.mid)} ▸ ", ha="right", **text)
    else:
        interval = [row.low, row.high]
        if np.isfinite(interval).all() and row.high > row.low:
            line: Any = {"color": colour, "linewidth": 1.8, "solid_capstyle": "butt"}
            axes.plot(interval, [row.y, row.y], gid="interval", zorder=2, **line)
        face = "white" if row.is_bound else colour
        marker: Any = {"markersize": 6, "color": colour, "markerfacecolor": face, "markeredgewidth": 1.4}
        axes.plot(row.mid, row.y, "o", gid="point", zorder=3, **marker)


def _limits(low: np.ndarray, mid: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Return the limits of the x axis, which cover zero and all rows that are not too far out.

    Rows are left out if they would compress all others.

    Args:
        low: lower ends of the intervals, shape ``(n,)``.
        mid: differences to the baseline, shape ``(n,)``.
        high: upper ends of the intervals, shape ``(n,)``.
    """
    kept = np.flatnonzero(np.isfinite(mid))
    bottom = np.fmin(low, mid)
    top = np.fmax(high, mid)
    while True:
        left = min([0.0, *bottom[kept]])
        right = max([0.0, *top[kept]])
        if len(kept) < 3:
            break
        farthest = kept[np.argmax(np.abs(mid[kept] - np.median(mid[kept])))]
        rest = kept[kept != farthest]
        if right - left <= OUTLIER_RATIO * (max(0.0, *top[rest]) - min(0.0, *bottom[rest])):
            break
        kept = rest
    pad = 0.06 * (right - left) or 1.0
    return left - pad, right + pad


def _numbers(values: np.ndarray) -> list[str]:
    """Return numbers as text with the same number of decimals: three, or fewer if they are large."""
    finite = np.abs(values[np.isfinite(values)])
    decimals = 3 - int(np.clip(np.log10(max(float(finite.max()), 1.0)), 0, 3)) if len(finite) else 3
    texts = [f"{value:.{max(decimals, 1)}f}" if np.isfinite(value) else str(value) for value in values]
    return ["–" if text == "nan" else text.replace("-", "−") for text in texts]


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def _columns_at_right(axes: Axes, columns: Mapping[str, Sequence[str]]) -> None:
    at = 8.0
    for header, cells in columns.items():
        at += max(width_of(text, 9) for text in (header, *cells)) + 10
        for y, text in ((-1.0, header), *enumerate(cells)):
            axes.annotate(
                text, (1, y), (at, 0), ("axes fraction", "data"), "offset points", annotation_clip=False,
                ha="right", va="center_baseline", color=MUTED if text == header else INK, gid=header,
            )  # fmt: skip


def _names_above(axes: Axes, names: Sequence[str], scores: Sequence[str]) -> None:
    """Write the models' names at the left and their scores at the right above their rows, with headings on top.

    A white background keeps lines from crossing them.

    Args:
        axes: the axes of the forest plot.
        names: names of the models, from top to bottom.
        scores: their scores as text.
    """
    rows = [(HEADING_ABOVE, "model", "score"), *zip(np.arange(len(names)) - NAME_ABOVE, names, scores, strict=True)]
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for i, (y, name, score) in enumerate(rows):
        style: Any = {
            "color": INK if i else MUTED,
            "fontsize": 9 if i else 8,
            "fontweight": "bold" if i == 1 else "normal",
        }
        for x, side, text, gid in ((0.0, "left", name, "name"), (1.0, "right", score, "score")):
            axes.text(
                x, y, text, transform=axes.get_yaxis_transform(), ha=side, va="center_baseline", bbox=box, zorder=1.5,
                gid=gid if i else f"heading of {gid}", **style,
            )  # fmt: skip


def _why_no_difference(difference: float, score: float) -> str:
    """Return in words why a model's difference to the baseline is not finite.

    Args:
        difference: score of the model minus that of the baseline, not finite.
        score: score of the model.
    """
    if np.isnan(difference):
        return "not scored" if np.isnan(score) else "−inf for the baseline, too"
    return "−inf: impossible test data" if difference < 0 else "+inf: impossible for the baseline"

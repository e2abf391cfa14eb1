"""Who is better, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.evaluation.plots.style import (
    COLOURS,
    INK,
    MUTED,
    STYLE,
    new_axes,
    note_below,
    short,
    width_of,
)
from seqmodels.evaluation.shown import context_shown

_OUTLIER = 6.0  # a row that stretches the axis this many times over is named at the edge instead


def forest(frame: pd.DataFrame) -> Figure:
    """Each model's difference to the baseline with its interval, best first; its score stands at the right.

    A hollow marker is a lower bound of the likelihood, a grey one the baseline or a score that a variance floor made. Rows without an interval have a marker alone, rows without a
    finite difference say why in words, and a row far from all others is named at the edge rather than drawn to scale.

    Args:
        frame: the comparison table: columns model, score, difference, ci_low, ci_high (nats per unit), kind
            (``exact`` or ``bound``) and, optionally, context (NaN: all of the past) and rank (NaN: a floor made the score). ``frame.attrs`` holds unit, baseline and title, and the intervals' level.
    """
    names = [short(name) for name in frame["model"]]
    low, mid, high = (frame[column].to_numpy(dtype=float) for column in ("ci_low", "difference", "ci_high"))
    baseline, unit = str(frame.attrs.get("baseline", "baseline")), str(frame.attrs.get("unit", "unit"))
    unranked = frame["rank"].isna().to_numpy() if "rank" in frame else np.zeros(len(frame), dtype=bool)
    scores = frame["score"].to_numpy(dtype=float)
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(1.5 + 0.27 * len(names), str(frame.attrs.get("title", "")))
        left, right = _limits(low, mid, high)
        axes.set_xlim(left, right)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
        for row, name in enumerate(names):
            hollow = frame["kind"].iloc[row] == "bound"
            grey = name == short(baseline) or bool(unranked[row])
            _row(axes, row, low[row], mid[row], high[row], scores[row], hollow=hollow, grey=grey)
            if unranked[row] and np.isfinite(mid[row]):
                axes.annotate(
                    "set by the floor", (np.clip(mid[row], left, right), row), (0, 5), textcoords="offset points",
                    ha="center", color=MUTED, fontsize=7.5, style="italic", gid="floor",
                )  # fmt: skip
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0, labelsize=9)
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"difference to {short(baseline)}\nnats per {unit}, higher is better")
        columns = {"score": _numbers(scores)}
        if "context" in frame and frame["context"].astype(str).nunique() > 1:
            columns["context"] = list(map(context_shown, frame["context"]))
        _columns_at_right(axes, columns)
        intervals = f"lines: {frame.attrs.get('level', 0.95):.0%} intervals"
        bounds = "; hollow: a lower bound of the log-probability" if (frame["kind"] == "bound").any() else ""
        note_below(figure, intervals + bounds)
    return figure


def _row(axes: Axes, y: int, low: float, mid: float, high: float, score: float, *, hollow: bool, grey: bool) -> None:
    left, right = axes.get_xlim()
    colour = MUTED if grey else COLOURS[0]
    if not np.isfinite(mid):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        axes.text(
            left,
            y,
            f" {_why(mid, score)} ",
            va="center",
            color=MUTED,
            fontsize=8,
            style="italic",
            bbox=box,
            gid="excluded",
        )
        return
    if not left <= mid <= right:
        text, at, side = (f" ◂ {_signed(mid)}", left, "left") if mid < left else (f"{_signed(mid)} ▸ ", right, "right")
        axes.text(at, y, text, va="center", ha=side, color=colour, fontsize=8.5, gid="outlier")
        return
    if np.isfinite(low) and np.isfinite(high) and high > low:
        axes.plot([low, high], [y, y], color=colour, linewidth=1.8, solid_capstyle="butt", gid="interval", zorder=2)
    face = "white" if hollow else colour
    axes.plot(mid, y, "o", markersize=6, color=colour, markerfacecolor=face, markeredgewidth=1.4, gid="point", zorder=3)


def _limits(low: np.ndarray, mid: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """What the axis spans: every finite row and zero, without rows that would squeeze all others into a corner."""
    known = np.flatnonzero(np.isfinite(mid))
    bottom, top = np.fmin(low, mid), np.fmax(high, mid)
    while True:
        left, right = min([0.0, *bottom[known]]), max([0.0, *top[known]])
        if len(known) < 3:
            break
        farthest = known[np.argmax(np.abs(mid[known] - np.median(mid[known])))]
        rest = known[known != farthest]
        if right - left <= _OUTLIER * (max(0.0, *top[rest]) - min(0.0, *bottom[rest])):
            break
        known = rest
    pad = 0.06 * (right - left) or 1.0
    return left - pad, right + pad


def _numbers(values: np.ndarray) -> list[str]:
    """Aligned by their decimals: three, fewer for large figures."""
    finite = np.abs(values[np.isfinite(values)])
    decimals = 3 - int(np.clip(np.log10(max(float(finite.max()), 1.0)), 0, 3)) if len(finite) else 3
    shown = [f"{value:.{max(decimals, 1)}f}" if np.isfinite(value) else str(value) for value in values]
    return ["–" if text == "nan" else text.replace("-", "−") for text in shown]


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


def _why(difference: float, score: float) -> str:
    """Of a row without a finite difference."""
    if np.isnan(difference):
        return "not scored" if np.isnan(score) else "−inf for the baseline, too"
    return "−inf: impossible test data" if difference < 0 else "+inf: impossible for the baseline"

"""Pictures of a comparison, in one style: who is better, how they got there, and where in a sequence it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import NullFormatter
from scipy.optimize import isotonic_regression

INK, MUTED, GRID = "#222222", "#6b6b6b", "#e3e3e3"
# Okabe & Ito's palette, without its yellow, which a white page swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)))
FEW = 20  # sequences below which a mean by position is marked with their number
WIDTH = 7.0  # inches
_OUTLIER = 6.0  # a row that stretches the axis this many times over is named at the edge instead
_NAME = 40  # characters of a model's name
# What artists read when they are made; ticks and grids are made when drawn, so theirs is set in ``_new``.
_STYLE: Any = (
    {"font.family": ["sans-serif"], "font.size": 9.0, "axes.labelsize": 9.0, "axes.titlesize": 10.0}
    | {"axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK, "axes.labelweight": "normal"}
    | dict.fromkeys(["text.color", "axes.labelcolor"], INK)
    | dict.fromkeys(["figure.facecolor", "axes.facecolor"], "white")
    | dict.fromkeys(["axes.spines.top", "axes.spines.right", "axes.grid"], False)
    | {"axes.edgecolor": MUTED, "axes.linewidth": 0.8, "lines.linewidth": 1.5, "axes.axisbelow": True}
)


def forest(frame: pd.DataFrame) -> Figure:
    """Each model's difference to the baseline with its interval, best first; its score stands at the right.

    A hollow marker is a lower bound of the likelihood. Rows without an interval have a marker alone, rows without a
    finite difference say why in words, and a row far from all others is named at the edge rather than drawn to scale.

    Args:
        frame: the comparison table: columns model, score, difference, ci_low, ci_high (nats per unit), kind
            (``exact`` or ``bound``) and, optionally, context (NaN: all of the past). ``frame.attrs`` holds unit, baseline and title, and the intervals' level.
    """
    names = [_short(name) for name in frame["model"]]
    low, mid, high = (frame[column].to_numpy(dtype=float) for column in ("ci_low", "difference", "ci_high"))
    baseline, unit = str(frame.attrs.get("baseline", "baseline")), str(frame.attrs.get("unit", "unit"))
    with matplotlib.rc_context(_STYLE):
        figure, axes = _new(1.5 + 0.27 * len(names), str(frame.attrs.get("title", "")))
        left, right = _limits(low, mid, high)
        axes.set_xlim(left, right)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
        for row, name in enumerate(names):
            hollow = frame["kind"].iloc[row] == "bound"
            _row(axes, row, low[row], mid[row], high[row], hollow=hollow, is_baseline=name == _short(baseline))
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0, labelsize=9)
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"difference to {_short(baseline)}\nnats per {unit}, higher is better")
        columns = {"score": _numbers(frame["score"].to_numpy(dtype=float))}
        if "context" in frame and frame["context"].astype(str).nunique() > 1:
            columns["context"] = list(map(context_shown, frame["context"]))
        _columns_at_right(axes, columns)
        intervals = f"lines: {frame.attrs.get('level', 0.95):.0%} intervals"
        bounds = "; hollow: a lower bound of the log-probability" if (frame["kind"] == "bound").any() else ""
        _note(figure, intervals + bounds)
    return figure


def learning_curves(histories: Mapping[str, pd.DataFrame], *, unit: str = "unit", title: str = "") -> Figure:
    """Nats per unit against seconds of fitting: validation drawn full, training faint (full where nothing was held out).

    Args:
        histories: for each model its ``history_``: columns step, seconds, log_prob (training) and validation (NaN
            where it was not measured), both in nats per unit.
        unit: frame, byte or symbol, for the label.
        title: what was fitted.
    """
    with matplotlib.rc_context(_STYLE):
        figure, axes = _new(max(3.6, 1.0 + 0.2 * len(histories)), title)
        drawn = {name: _curves(history) for name, history in histories.items()}
        drawn = {name: curves for name, curves in drawn.items() if len(curves[0])}
        for i, name in enumerate(histories):
            full, faint = drawn.get(name, (np.empty((0, 2)),) * 2)
            style: Any = {"color": _colour(i), "linestyle": _dash(i)}
            axes.plot(*faint.T, alpha=0.35, linewidth=1.0, zorder=2, gid="faint", **style)
            axes.plot(*full.T, marker="o" if len(full) == 1 else "", markersize=4, zorder=3, gid="full", **style)
        _focus(axes, [curve for curves in drawn.values() for curve in curves])
        seconds = [float(full[-1, 0]) for full, _ in drawn.values() if full[-1, 0] > 0]
        if seconds and max(seconds) > 10 * min(seconds):  # a model of a second beside one of an hour
            _logarithmic(axes)
            axes.set_xlim(left=0.05 * min(seconds))
        axes.set_xlabel("seconds of fitting")
        axes.set_ylabel(f"nats per {unit}")
        _labels_at_right(figure, axes, {name: full[-1, 1] for name, (full, _) in drawn.items()}, list(histories))
        both = any(len(faint) for _, faint in drawn.values())
        _note(figure, "full: held out for validation; faint: training" if both else "training; nothing was held out")
    return figure


def by_position(steps: Mapping[str, Sequence[np.ndarray]], *, unit: str = "unit", title: str = "") -> Figure:
    """Mean nats per unit against position in the sequence: a model that profits from context rises.

    Positions are binned so that bins grow with position. Where fewer than 20 sequences reach a bin, their number
    stands above it. Steps of -inf are left out of the means and counted below.

    Args:
        steps: for each model the increments of each sequence, ``(T,)`` nats, as ``log_prob_steps`` returns them.
        unit: frame, byte or symbol, for the label.
        title: what was scored.
    """
    longest = max((len(sequence) for model in steps.values() for sequence in model), default=1)
    edges = _edges(longest)
    centres = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    with matplotlib.rc_context(_STYLE):
        figure, axes = _new(max(3.6, 1.0 + 0.2 * len(steps)), title)
        _logarithmic(axes)
        ends: dict[str, float] = {}
        left_out: list[str] = []
        for i, (name, sequences) in enumerate(steps.items()):
            means, infinite = _means(sequences, edges)
            axes.plot(centres, means, color=_colour(i), linestyle=_dash(i), marker="o", markersize=2.5)
            known = means[np.isfinite(means)]
            ends |= {name: float(known[-1])} if len(known) else {}
            left_out += [f"{infinite:,} of {name}"] if infinite else []
        axes.set_xlabel(f"position in the sequence ({unit}s)")
        axes.set_ylabel(f"nats per {unit}")
        _mark_few(axes, centres, edges, next(iter(steps.values()), []))
        _labels_at_right(figure, axes, ends, list(steps))
        _note(figure, f"steps of −inf left out: {', '.join(left_out)}" if left_out else "")
    return figure


# -- one style ------------------------------------------------------------------------------------------------


def _new(height: float, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, wrap=True, pad=14)
    axes.tick_params(which="both", color=MUTED, labelcolor=INK, labelsize=8.5)
    axes.grid(color=GRID, linewidth=0.7)
    return figure, axes


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _dash(i: int) -> Any:
    return DASHES[i // len(COLOURS) % len(DASHES)]


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _note(figure: Figure, text: str) -> None:
    if text:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=MUTED)


def _short(name: Any) -> str:
    text = str(name)
    return text if len(text) <= _NAME else text[: _NAME - 1] + "…"


def _width(text: str, size: float) -> float:
    """Points that a text takes: what stands outside the axes is laid out by hand."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text.strip() else 0.0


# -- the forest -----------------------------------------------------------------------------------------------


def _row(axes: Axes, y: int, low: float, mid: float, high: float, *, hollow: bool, is_baseline: bool) -> None:
    left, right = axes.get_xlim()
    colour = MUTED if is_baseline else COLOURS[0]
    if not np.isfinite(mid):
        why = "not scored" if np.isnan(mid) else "−inf: impossible test data"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        axes.text(left, y, f" {why} ", va="center", color=MUTED, fontsize=8, style="italic", bbox=box, gid="excluded")
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
        at += max(_width(text, 9) for text in (header, *cells)) + 10
        for y, text in ((-1.0, header), *enumerate(cells)):
            axes.annotate(
                text, (1, y), (at, 0), ("axes fraction", "data"), "offset points", annotation_clip=False,
                ha="right", va="center_baseline", color=MUTED if text == header else INK, gid=header,
            )  # fmt: skip


# -- curves ---------------------------------------------------------------------------------------------------


def _curves(history: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """``(n, 2)`` of seconds and nats: the curve to draw full, and the faint one, empty if training is all there is."""
    validation, training = (
        history.reindex(columns=["seconds", column]).dropna().to_numpy(dtype=float)
        for column in ("validation", "log_prob")
    )
    return (validation, training) if len(validation) else (training, validation)


def _focus(axes: Axes, curves: Sequence[np.ndarray]) -> None:
    """Limits by what comes after the first third of each curve: where models differ, not where they started."""
    values = np.concatenate([np.empty(0), *(curve[len(curve) // 3 :, 1] for curve in curves)])
    values = values[np.isfinite(values)]
    if len(values):
        bottom, top = float(values.min()), float(values.max())
        pad = 0.06 * (top - bottom) or 0.5
        axes.set_ylim(bottom - pad, top + pad)


def _labels_at_right(
    figure: Figure, axes: Axes, ends: Mapping[str, float], names: Sequence[str], size: float = 8.5
) -> None:
    """A name level with the end of each line, moved apart where they would touch, after a piece of its line."""
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top)
    order = sorted(ends, key=lambda name: ends[name])
    wanted = np.array([(ends[name] - bottom) / (top - bottom) for name in order])
    gap = 1.35 * size / (72 * 0.78 * figure.get_figheight())
    for name, height in zip(order, _spread(np.clip(wanted, 0, 1), gap), strict=True):
        i, across = names.index(name), axes.transAxes
        swatch = Line2D(
            [1.01, 1.05], [height, height], color=_colour(i), linestyle=_dash(i), transform=across, clip_on=False
        )
        axes.add_artist(swatch)
        axes.text(1.06, height, _short(name), transform=across, va="center_baseline", fontsize=size, gid="label")


def _spread(wanted: np.ndarray, gap: float) -> np.ndarray:
    """The heights nearest to those wanted (sorted) that lie ``gap`` apart, kept within 0..1 where they fit."""
    offsets = gap * np.arange(len(wanted))
    if not len(wanted):
        return wanted
    heights = np.asarray(isotonic_regression(wanted - offsets).x)
    return np.clip(heights, 0, max(0.0, 1 - offsets[-1])) + offsets


# -- positions ------------------------------------------------------------------------------------------------


def _edges(longest: int) -> np.ndarray:
    """First positions of the bins, from 1, some eight to a decade, and the end of the last."""
    grown = np.unique(np.round(10 ** np.arange(0, np.log10(longest) + 0.125, 0.125)).astype(int))
    return np.append(grown[grown <= longest], longest + 1)


def _means(sequences: Sequence[np.ndarray], edges: np.ndarray) -> tuple[np.ndarray, int]:
    """Mean of the finite steps in each bin of positions (NaN if none), and how many were not finite."""
    total, count, infinite = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1), 0
    for sequence in sequences:
        values = np.asarray(sequence, dtype=float)
        finite = np.isfinite(values)
        bins = np.searchsorted(edges, np.arange(1, len(values) + 1)[finite], side="right") - 1
        total += np.bincount(bins, weights=values[finite], minlength=len(total))
        count += np.bincount(bins, minlength=len(count))
        infinite += int((~finite).sum())
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0), infinite


def _mark_few(axes: Axes, centres: np.ndarray, edges: np.ndarray, sequences: Sequence[np.ndarray]) -> None:
    lengths = np.array([len(sequence) for sequence in sequences])
    apart = (centres[-1] / centres[0]) ** 0.07  # so that numbers do not touch
    shown, last = FEW, 0.0
    for centre, first in zip(centres, edges, strict=False):
        n = int((lengths >= first).sum())
        if n < shown and centre >= last * (apart if last else 1):
            axes.annotate(
                f"n = {n}" if not last else str(n), (centre, 1), (0, 2), ("data", "axes fraction"), "offset points",
                ha="center", va="bottom", fontsize=7.5, color=MUTED, gid="few", annotation_clip=False,
            )  # fmt: skip
            shown, last = n, centre


def context_shown(steps: float) -> str:
    """How many steps back a model sees, as tables and pictures say it; NaN: all."""
    return "all" if np.isnan(steps) else str(int(steps))

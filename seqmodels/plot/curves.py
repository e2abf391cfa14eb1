"""Curves of several models: nats against seconds of fitting, and nats against position in the sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from seqmodels.plot.style import (
    MUTED,
    WIDTH,
    colour_of,
    dash_of,
    figure_of,
    in_style,
    is_narrow,
    logarithmic,
    new_axes,
    note_below,
    short_in,
)

FEW_SEQUENCES = 20  # a mean over fewer sequences is marked with their number


def height_of(n_models: int) -> float:
    """Return the height in inches of a figure with a curve for each of ``n_models`` models, named beside the axes."""
    return max(3.6, 1.0 + 0.2 * n_models)


def learning_curves(
    histories: Mapping[str, pd.DataFrame], *, unit: str = "unit", title: str = "", width: float = WIDTH
) -> Figure:
    """Return a figure of the log-probability, in nats per unit, against seconds of fitting for several models.

    Args:
        histories: ``history_`` of each model, a table with the columns ``step``, ``seconds``, ``log_prob`` (training)
            and ``validation`` (NaN where it was not measured).
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the label.
        title: title of the figure.
        width: width of the figure in inches.
    """
    with in_style():
        figure, axes = new_axes(height_of(len(histories)), title, width)
        note_below(figure, draw_learning_curves(axes, histories, unit=unit))
    return figure


def draw_learning_curves(axes: Axes, histories: Mapping[str, pd.DataFrame], *, unit: str = "unit") -> str:
    """Draw the log-probability of several models, in nats per unit, against seconds of fitting.

    Validation is a full line and training a faint one. If there is no validation, training is the full line.

    Args:
        axes: the axes to draw on.
        histories: ``history_`` of each model, a table with the columns ``step``, ``seconds``, ``log_prob`` (training)
            and ``validation`` (NaN where it was not measured), both in nats per unit.
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the label.

    Returns:
        A note on how to read the plot.
    """
    curves = {name: _curves(history) for name, history in histories.items()}
    curves = {name: both for name, both in curves.items() if len(both[0])}
    for i, name in enumerate(histories):
        full, faint = curves.get(name, (np.empty((0, 2)),) * 2)
        style: Any = {"color": colour_of(i), "linestyle": dash_of(i)}
        axes.plot(*faint.T, alpha=0.35, linewidth=1.0, zorder=2, gid="faint", **style)
        axes.plot(*full.T, marker="o" if len(full) == 1 else "", markersize=4, zorder=3, gid="full", **style)
    _set_limits(axes, [curve for both in curves.values() for curve in both])
    seconds = [float(full[-1, 0]) for full, _ in curves.values() if full[-1, 0] > 0]
    if seconds and max(seconds) > 10 * min(seconds):  # because a fit of a second may stand beside one of an hour
        logarithmic(axes)
        axes.set_xlim(left=0.05 * min(seconds))
    axes.set_xlabel("seconds of fitting")
    axes.set_ylabel(f"nats per {unit}")
    labels_at_right(axes, {name: full[-1, 1] for name, (full, _) in curves.items()}, list(histories))
    held_out = any(len(faint) for _, faint in curves.values())
    return "full: held out for validation; faint: training" if held_out else "training; nothing was held out"


def _curves(history: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the full and the faint line of a training history, each ``(n, 2)`` of seconds and nats per unit.

    The full line is validation and the faint one training. Without validation, the full line is training and the faint
    one empty.

    Args:
        history: table with the columns ``seconds``, ``log_prob`` (training) and ``validation``.
    """
    validation, training = (
        history.reindex(columns=["seconds", column]).dropna().to_numpy(dtype=float)
        for column in ("validation", "log_prob")
    )
    return (validation, training) if len(validation) else (training, validation)


def _set_limits(axes: Axes, curves: Sequence[np.ndarray]) -> None:
    """Set the limits of the y axis to cover the last two thirds of each curve, where models differ.

    Args:
        axes: the axes.
        curves: arrays ``(n, 2)`` of seconds and nats per unit.
    """
    values = np.concatenate([np.empty(0), *(curve[len(curve) // 3 :, 1] for curve in curves)])
    values = values[np.isfinite(values)]
    if len(values):
        bottom = float(values.min())
        top = float(values.max())
        pad = 0.06 * (top - bottom) or 0.5
        axes.set_ylim(bottom - pad, top + pad)


# -- against position -----------------------------------------------------------------------------------------


def by_position(
    steps: Mapping[str, Sequence[np.ndarray]], *, unit: str = "unit", title: str = "", width: float = WIDTH
) -> Figure:
    """Return a figure of the mean log-probability of a step against its position in the sequence, for several models.

    Args:
        steps: for each model the log-probabilities of the T steps of each sequence in nats, shape ``(T,)``.
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the label.
        title: title of the figure.
        width: width of the figure in inches.
    """
    with in_style():
        figure, axes = new_axes(height_of(len(steps)), title, width)
        note_below(figure, draw_by_position(axes, steps, unit=unit))
    return figure


def draw_by_position(axes: Axes, steps: Mapping[str, Sequence[np.ndarray]], *, unit: str = "unit") -> str:
    """Draw the mean log-probability of a step against its position in the sequence, for several models.

    The curve of a model that uses context rises. Positions are grouped into bins, about eight per decade. If fewer than
    20 sequences reach a bin, their number is written above it. Steps of -inf are left out of the means.

    Args:
        axes: the axes to draw on.
        steps: for each model the log-probabilities of the T steps of each sequence in nats, shape ``(T,)``, as
            ``log_prob_steps`` returns them.
        unit: ``"frame"``, ``"byte"`` or ``"symbol"``, for the label.

    Returns:
        A note on how many steps were left out; empty if none were.
    """
    longest = max((len(sequence) for model in steps.values() for sequence in model), default=1)
    edges = bin_edges(longest)
    centres = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    logarithmic(axes)
    ends: dict[str, float] = {}
    excluded: list[str] = []
    for i, (name, sequences) in enumerate(steps.items()):
        means, infinite = bin_means(sequences, edges)
        axes.plot(centres, means, color=colour_of(i), linestyle=dash_of(i), marker="o", markersize=2.5)
        finite = means[np.isfinite(means)]
        ends |= {name: float(finite[-1])} if len(finite) else {}
        excluded += [f"{infinite:,} of {name}"] if infinite else []
    axes.set_xlabel(f"position in the sequence ({unit}s)")
    axes.set_ylabel(f"nats per {unit}")
    _mark_counts(axes, centres, edges, next(iter(steps.values()), []))
    labels_at_right(axes, ends, list(steps))
    return f"steps of −inf left out: {', '.join(excluded)}" if excluded else ""


def bin_edges(longest: int) -> np.ndarray:
    """Return the edges of B bins of positions in a sequence, about equally wide on a logarithmic axis, ``(B + 1,)``.

    There are about eight bins per decade, and they divide the positions 1 to ``longest``. The edges are the first
    position of each bin, and ``longest + 1``.
    """
    edges = np.unique(np.round(10 ** np.arange(0, np.log10(longest) + 0.125, 0.125)).astype(int))
    return np.append(edges[edges <= longest], longest + 1)


def bin_means(sequences: Sequence[np.ndarray], edges: np.ndarray) -> tuple[np.ndarray, int]:
    """Average the values of all sequences over bins of positions in the sequence.

    Args:
        sequences: values of the T steps of each sequence, shape ``(T,)``.
        edges: first position of each of B bins, counted from 1, and the end of the last, shape ``(B + 1,)``.

    Returns:
        means: mean of the finite values in each bin, NaN if there are none, shape ``(B,)``. n_infinite: number of
        values that are not finite.
    """
    total = np.zeros(len(edges) - 1)
    count = np.zeros(len(edges) - 1)
    infinite = 0
    for sequence in sequences:
        values = np.asarray(sequence, dtype=float)
        finite = np.isfinite(values)
        bins = np.searchsorted(edges, np.arange(1, len(values) + 1)[finite], side="right") - 1
        total += np.bincount(bins, weights=values[finite], minlength=len(total))
        count += np.bincount(bins, minlength=len(count))
        infinite += int((~finite).sum())
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0), infinite


def _mark_counts(axes: Axes, centres: np.ndarray, edges: np.ndarray, sequences: Sequence[np.ndarray]) -> None:
    """Write the number of sequences that reach a bin of positions above it, if there are fewer than ``FEW_SEQUENCES``.

    A number is written only where it is smaller than the last one written.

    Args:
        axes: the axes to write on.
        centres: position of each of B bins on the x axis, shape ``(B,)``.
        edges: first position of each bin, and the end of the last, shape ``(B + 1,)``.
        sequences: values of the steps of each sequence, shape ``(T,)``.
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    width_of_number = 0.16 if is_narrow(figure_of(axes)) else 0.07  # as a share of the axes' width
    min_ratio = (centres[-1] / centres[0]) ** width_of_number  # so that numbers do not touch
    last_n = FEW_SEQUENCES
    last_centre = 0.0
    for centre, first in zip(centres, edges, strict=False):
        n = int((lengths >= first).sum())
        if n < last_n and centre >= last_centre * (min_ratio if last_centre else 1):
            axes.annotate(
                f"n = {n}" if not last_centre else str(n), (centre, 1), (0, 2), ("data", "axes fraction"),
                "offset points", ha="center", va="bottom", fontsize=7.5, color=MUTED, gid="few", annotation_clip=False,
            )  # fmt: skip
            last_n = n
            last_centre = centre


# -- labels ---------------------------------------------------------------------------------------------------


def labels_at_right(axes: Axes, ends: Mapping[str, float], names: Sequence[str], size: float = 8.5) -> None:
    """Write the name of each line to the right of the axes, level with the line's end, in place of a legend.

    Names that would touch are moved apart.

    Args:
        axes: the axes with the lines.
        ends: value on the y axis at which each line ends, by name.
        names: all names in the order of the models' colours.
        size: font size in points.
    """
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top)
    order = sorted(ends, key=lambda name: ends[name])
    heights = np.array([(ends[name] - bottom) / (top - bottom) for name in order])
    gap = 1.35 * size / (72 * axes.get_position().height * figure_of(axes).get_figheight())
    for name, height in zip(order, spread(np.clip(heights, 0, 1), gap), strict=True):
        i = names.index(name)
        style: Any = {"color": colour_of(i), "linestyle": dash_of(i), "transform": axes.transAxes}
        axes.add_artist(Line2D([1.01, 1.05], [height, height], clip_on=False, **style))
        label = short_in(figure_of(axes), name)
        axes.text(1.06, height, label, transform=axes.transAxes, va="center_baseline", fontsize=size, gid="label")


def spread(heights: np.ndarray, gap: float) -> np.ndarray:
    """Move labels apart that would touch, as little as possible, and return their heights.

    Args:
        heights: heights of n labels as shares of the axes' height, sorted, ``(n,)``.
        gap: least distance between two of them.

    Returns:
        The heights, ``(n,)``, at least ``gap`` apart; they stay between 0 and 1 if they fit.
    """
    if not len(heights):
        return heights
    offsets = gap * np.arange(len(heights))
    nearest = np.asarray(isotonic_regression(heights - offsets).x)
    return np.clip(nearest, 0, max(0.0, 1 - offsets[-1])) + offsets

"""Where in a sequence it shows: nats against position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.evaluation.plots.labels import labels_at_right
from seqmodels.evaluation.plots.style import MUTED, STYLE, colour_of, dash_of, logarithmic, new_axes, note_below

FEW = 20  # sequences below which a mean by position is marked with their number


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
    edges = bin_edges(longest)
    centres = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(max(3.6, 1.0 + 0.2 * len(steps)), title)
        logarithmic(axes)
        ends: dict[str, float] = {}
        left_out: list[str] = []
        for i, (name, sequences) in enumerate(steps.items()):
            means, infinite = bin_means(sequences, edges)
            axes.plot(centres, means, color=colour_of(i), linestyle=dash_of(i), marker="o", markersize=2.5)
            known = means[np.isfinite(means)]
            ends |= {name: float(known[-1])} if len(known) else {}
            left_out += [f"{infinite:,} of {name}"] if infinite else []
        axes.set_xlabel(f"position in the sequence ({unit}s)")
        axes.set_ylabel(f"nats per {unit}")
        _mark_few(axes, centres, edges, next(iter(steps.values()), []))
        labels_at_right(figure, axes, ends, list(steps))
        note_below(figure, f"steps of −inf left out: {', '.join(left_out)}" if left_out else "")
    return figure


def bin_edges(longest: int) -> np.ndarray:
    """First positions of the bins, from 1, some eight to a decade, and the end of the last."""
    grown = np.unique(np.round(10 ** np.arange(0, np.log10(longest) + 0.125, 0.125)).astype(int))
    return np.append(grown[grown <= longest], longest + 1)


def bin_means(sequences: Sequence[np.ndarray], edges: np.ndarray) -> tuple[np.ndarray, int]:
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

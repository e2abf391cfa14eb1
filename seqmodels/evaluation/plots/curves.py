"""How models got where they are: nats against seconds of fitting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.evaluation.plots.labels import labels_at_right
from seqmodels.evaluation.plots.style import STYLE, colour_of, dash_of, logarithmic, new_axes, note_below


def learning_curves(histories: Mapping[str, pd.DataFrame], *, unit: str = "unit", title: str = "") -> Figure:
    """Nats per unit against seconds of fitting: validation drawn full, training faint (full where nothing was held out).

    Args:
        histories: for each model its ``history_``: columns step, seconds, log_prob (training) and validation (NaN
            where it was not measured), both in nats per unit.
        unit: frame, byte or symbol, for the label.
        title: what was fitted.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(max(3.6, 1.0 + 0.2 * len(histories)), title)
        drawn = {name: _curves(history) for name, history in histories.items()}
        drawn = {name: curves for name, curves in drawn.items() if len(curves[0])}
        for i, name in enumerate(histories):
            full, faint = drawn.get(name, (np.empty((0, 2)),) * 2)
            style: Any = {"color": colour_of(i), "linestyle": dash_of(i)}
            axes.plot(*faint.T, alpha=0.35, linewidth=1.0, zorder=2, gid="faint", **style)
            axes.plot(*full.T, marker="o" if len(full) == 1 else "", markersize=4, zorder=3, gid="full", **style)
        _focus(axes, [curve for curves in drawn.values() for curve in curves])
        seconds = [float(full[-1, 0]) for full, _ in drawn.values() if full[-1, 0] > 0]
        if seconds and max(seconds) > 10 * min(seconds):  # a model of a second beside one of an hour
            logarithmic(axes)
            axes.set_xlim(left=0.05 * min(seconds))
        axes.set_xlabel("seconds of fitting")
        axes.set_ylabel(f"nats per {unit}")
        labels_at_right(figure, axes, {name: full[-1, 1] for name, (full, _) in drawn.items()}, list(histories))
        both = any(len(faint) for _, faint in drawn.values())
        note_below(
            figure, "full: held out for validation; faint: training" if both else "training; nothing was held out"
        )
    return figure


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

"""Scores against data, parameters or seconds, with fitted power laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from seqmodels.evaluation.plots.curves import labels_at_right
from seqmodels.plot_style import colour_of, dash_of, logarithmic

if TYPE_CHECKING:
    from seqmodels.evaluation.scaling import PowerLaw

N_CURVE = 200  # points of a drawn law


def draw_power_laws(
    axes: Axes,
    points: Mapping[str, np.ndarray],
    laws: Mapping[str, PowerLaw],
    *,
    x_label: str = "n",
    unit: str = "unit",
) -> str:
    """Points of each model, and its law as a line; the exponent with its interval stands beside it.

    Args:
        axes: what is drawn on.
        points: for each model ``(m, 2)``: n and score (nats per unit).
        laws: of those models that have one.
        x_label: what n is.
        unit: frame, byte or symbol.

    Returns:
        A note on how to read it.
    """
    logarithmic(axes)
    ends: dict[str, float] = {}
    labels = []
    for i, (name, part) in enumerate(points.items()):
        label = name
        axes.plot(*part.T, linestyle="none", marker="o", markersize=4, color=colour_of(i), gid="points")
        end = float(part[-1, 1])
        if name in laws:
            law = laws[name]
            n = np.geomspace(part[:, 0].min(), part[:, 0].max(), N_CURVE)
            axes.plot(n, law.predict(n), color=colour_of(i), linestyle=dash_of(i), gid="law")
            end = float(law.predict(n[-1]))
            label = f"{name}, b {law.b:.2f} ({_bound(law.b_low)} to {_bound(law.b_high)})"
        labels.append(label)
        ends[label] = end
    axes.set_xlabel(x_label)
    axes.set_ylabel(f"nats per {unit}, higher is better")
    labels_at_right(axes, ends, labels)
    return "lines: score = c + a n^(-b) by least squares; in brackets: 95 % interval of b" if laws else ""


def _bound(value: float) -> str:
    return "∞" if np.isinf(value) else f"{value:.2f}"

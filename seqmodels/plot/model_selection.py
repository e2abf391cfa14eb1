"""Plot of a model selection: every criterion against the value of the hyperparameter."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from seqmodels.plot.style import COLOURS, INK, MUTED, axes_or_new, in_style

MAX_TICKS = 16  # the most values that are labelled


class DrawnSelection(Protocol):
    """The interface of a model selection that can be drawn, such as ``seqmodels.evaluation.ModelSelection``.

    Attributes:
        parameter: name of the hyperparameter.
        values: its values that were compared.
        chosen: the chosen value.
        frame: table with one row per value and the columns ``train``, ``cv``, ``cv_se``, ``aic`` and ``bic``.
        best_row: number of the row with the best held-out score.
        chosen_row: number of the row of the chosen value.
        criterion: column by which the value was chosen.
        rule: how the held-out score decided: ``"best"``, ``"one_se"`` (the dashed line is then drawn) or
            ``"paired_se"``.
        unit: unit of the scores, such as ``"frame"``.
        n_units: number of units of training data.
        folds: number of folds of cross-validation; None without.
    """

    @property
    def parameter(self) -> str: ...
    @property
    def values(self) -> list[Any]: ...
    @property
    def chosen(self) -> Any: ...
    @property
    def frame(self) -> pd.DataFrame: ...
    @property
    def best_row(self) -> int: ...
    @property
    def chosen_row(self) -> int: ...
    @property
    def criterion(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def n_units(self) -> int: ...
    @property
    def folds(self) -> int | None: ...


def plot_selection(selection: DrawnSelection, ax: Axes | None = None) -> Axes:
    """Draw the scores of a model selection, in nats per unit, against the hyperparameter's value; higher is better.

    The curves are the held-out score with its standard error, the training score, ``-BIC / 2n`` and ``-AIC / 2n`` with
    n units of training data. If the value was chosen by the rule ``"one_se"``, a dashed line lies one standard error
    below the best held-out score. The ring marks the chosen value.

    Args:
        selection: the result of ``seqmodels.choose``.
        ax: axes to draw on; None creates a figure of pyplot.
    """
    frame = selection.frame
    at = np.arange(len(frame))
    scale = 2.0 * selection.n_units
    with in_style():
        axes = axes_or_new(ax, 3.6, f"{selection.parameter} = {selection.chosen!r}")
        axes.plot(at, frame["train"], color=MUTED, linewidth=1.0, linestyle=(0, (1.2, 1.2)), label="training")
        for i, name in enumerate(("aic", "bic"), 1):
            axes.plot(
                at, -frame[name] / scale, color=COLOURS[i], linewidth=1.2, label=f"-{name.upper()} / 2n", gid=name
            )
        if selection.folds is not None:
            held_out = f"held out, {selection.folds} folds, ± standard error"
            style: Any = {"color": COLOURS[0], "marker": "o", "markersize": 4, "capsize": 3, "zorder": 3}
            axes.errorbar(at, frame["cv"], yerr=frame["cv_se"], label=held_out, **style)
        chosen = selection.chosen_row
        if selection.criterion == "cv":
            height = frame["cv"].iloc[chosen]
            best = frame.iloc[selection.best_row]
            if selection.rule == "one_se":
                axes.axhline(best["cv"] - best["cv_se"], color=COLOURS[0], linewidth=0.8, linestyle=(0, (5, 3)))
        else:
            height = -frame[selection.criterion].iloc[chosen] / scale
        ring: Any = {
            "markersize": 12,
            "markerfacecolor": "none",
            "markeredgecolor": INK,
            "linestyle": "none",
            "zorder": 4,
        }
        axes.plot([chosen], [height], marker="o", label=f"chosen: {selection.chosen!r}", gid="chosen", **ring)
        every = -(-len(at) // MAX_TICKS)
        axes.set_xticks(at[::every], [str(value) for value in selection.values][::every])
        axes.set(xlabel=selection.parameter, ylabel=f"nats per {selection.unit}")
        axes.legend(frameon=False, fontsize=8, loc="best")
    return axes

"""Plot of the effect of an input on a hidden Markov model, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.parameters import checked_but

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels

MOST_POINTS = 40  # values of an input that are drawn as points; more are drawn as lines
DODGE = 0.5  # share of the distance between values over which the points of states are spread
PROBABILITIES = {
    "transition": "probability after",
    "stationary": "share of steps",
    "initial": "probability of the first state",
}
COLUMNS = ("input", "value", "name", "state", "feature", "estimate", "ci_low", "ci_high")


@checked_but("frame")
def effects(
    frame: pd.DataFrame, *, ax: Axes | Sequence[Axes] | None = None, state_names: Sequence[str] | None = None
) -> Axes | Panels:
    """Draw the effect of an input with its intervals, as the method ``effects`` of an HMM returns it.

    Transitions have a panel for each current state, in which each next state has a line. Shares, probabilities of the
    first state and mean durations have one panel, and parameters of emissions one for each feature; there each state
    has a line. Fewer than 40 values of the input, such as groups, are drawn as points with bars.

    Args:
        frame: a result of the method ``effects``, or some of its rows.
        ax: axes to draw on, as many as there are panels; None creates a figure of pyplot.
        state_names: names of the K states; None means their numbers.

    Returns:
        The axes; for several panels ``Panels``, which is a tuple of axes.

    Raises:
        ValueError: ``frame`` is no result of ``effects``, or a state has no name.
    """
    if not hasattr(type(frame), "columns"):
        raise ValueError(f"frame is {frame!r:.50}; pass a result of the method effects of an HMM")
    lacking = [column for column in COLUMNS if column not in frame]
    if lacking or not len(frame):
        raise ValueError(
            f"frame has no {f'column {lacking[0]!r}' if lacking else 'rows'}; pass a result of the method effects of "
            "an HMM"
        )
    is_of_pairs = bool((frame["name"] == "transition").all())
    by, along = (["state"], "feature") if is_of_pairs else (["name", "feature"], "state")
    states = np.unique(frame[along].to_numpy(dtype=int))
    n_named = 1 + max(int(states[-1]), int(frame["state"].max()))
    names = [str(each) for each in (range(n_named) if state_names is None else state_names)]
    if len(names) < n_named:
        raise ValueError(f"state_names is {state_names!r}, but there are {n_named} states; pass a name for each")
    panels_of = [rows for _, rows in frame.groupby(by, sort=False, dropna=False)]

    from seqmodels.plot.style import in_style, panels_or_new, state_colour

    with in_style():
        panels = panels_or_new(ax, len(panels_of), 2.4)
        for axes, rows in zip(panels, panels_of, strict=True):
            for place, state in zip(np.linspace(-0.5, 0.5, len(states) + 2)[1:-1], states, strict=True):
                _draw(axes, rows[rows[along] == state], DODGE * place, state_colour(state), names[state])
            name, state, feature = rows[["name", "state", "feature"]].iloc[0]
            if name in PROBABILITIES:
                axes.set_ylim(-0.02, 1.02)
                axes.set_ylabel(f"{PROBABILITIES[name]} {names[state]}" if is_of_pairs else PROBABILITIES[name])
            elif name == "mean_durations":
                axes.set_ylabel("mean duration in steps")
            else:
                axes.set_ylabel(f"{name}: {feature}")
            if len(states) > 1:
                beside: Any = {"loc": "upper left", "bbox_to_anchor": (1.005, 1.0), "borderaxespad": 0}
                axes.legend(title="next state" if is_of_pairs else "state", frameon=False, **beside)
        panels[-1].set_xlabel(str(frame["input"].iloc[0]))
    return panels if len(panels) > 1 else panels[0]


def _draw(axes: Axes, rows: pd.DataFrame, dodge: float, colour: str, label: str) -> None:
    """Draw one line with its band, or points with bars.

    Args:
        axes: where.
        rows: a row for each value of the input.
        dodge: by which share of the distance between values points are moved.
        colour: the colour.
        label: name in the legend.
    """
    value, estimate, low, high = (rows[column].to_numpy(float) for column in ("value", "estimate", "ci_low", "ci_high"))
    if len(value) >= MOST_POINTS:
        axes.plot(value, estimate, color=colour, label=label)
        axes.fill_between(value, low, high, color=colour, alpha=0.18, linewidth=0)
        return
    distance = float(np.diff(np.unique(value)).min()) if len(value) > 1 else 1.0
    bars = np.stack([estimate - low, high - estimate])
    at = value + dodge * distance
    axes.errorbar(at, estimate, bars, color=colour, label=label, fmt="o", markersize=4, elinewidth=1.2)

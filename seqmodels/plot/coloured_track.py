"""Plot of a track: the way of an animal on a map, coloured by its hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checked
def track(
    positions: Any,
    path: Any,
    *,
    kind: Literal["plane", "great circle"] = "plane",
    state_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the way between positions, each step in the colour of its hidden state, with a ring where it begins.

    A dot at the end of each step has the same colour, so that short steps are seen beside long ones. A state has the
    same colour in every plot. Steps from or to a missing position (NaN) are left out.

    Args:
        positions: x and y of each of T positions, ``(T, 2)``; longitude and latitude on a great circle.
        path: state of each step, in the row of the position that it leads to, integers ``(T,)``, such as
            ``model.decode(X)[0]``; the first has no step.
        kind: ``"plane"`` to draw x and y on one scale; ``"great circle"`` to draw degrees of longitude and latitude so
            that lengths in the middle of the map are alike in both directions.
        state_names: names of the states, for the legend; None means their numbers.
        ax: axes to draw on; None creates a figure of pyplot.

    Returns:
        The axes; ``ax.figure.savefig("track.png")`` writes them to a file.

    Raises:
        ValueError: ``positions`` is no array ``(T, 2)`` with two known positions or more, ``path`` is no array of T
            states from 0, or a state has no name.

    >>> from seqmodels import plot
    >>> ax = plot.track([[0, 0], [1, 0], [1, 2]], [0, 0, 1], state_names=["rest", "walk"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['rest', 'walk']
    """
    xy, states = numbers_of("positions", positions, "(T, 2)"), np.asarray(path)
    if xy.ndim != 2 or xy.shape[1] != 2 or (~np.isnan(xy).any(1)).sum() < 2:
        raise ValueError(f"positions have shape {xy.shape}; pass x and y of two known positions or more, (T, 2)")
    if states.shape != (len(xy),) or states.dtype.kind not in "iu" or states.min() < 0:
        raise ValueError(
            f"path has shape {states.shape} and type {states.dtype}; pass {len(xy)} integers from 0, a state a position"
        )
    names = [str(k) for k in range(states.max() + 1)] if state_names is None else [str(each) for each in state_names]
    if states.max() >= len(names):
        raise ValueError(f"path has a state {states.max()}, but state_names has {len(names)}; pass a name for each")
    return _draw(xy, states, names, ax, is_globe=kind == "great circle")


def _draw(xy: np.ndarray, states: np.ndarray, names: list[str], ax: Axes | None, *, is_globe: bool) -> Axes:
    from matplotlib.collections import LineCollection

    from seqmodels.plot.drawn_states import add_legend
    from seqmodels.plot.style import INK, axes_or_new, in_style, state_colour

    steps = np.stack([xy[:-1], xy[1:]], 1)  # (T - 1, 2, 2)
    is_known = ~np.isnan(steps).any((1, 2))
    with in_style():
        axes = axes_or_new(ax, 4.5)
        colours = [state_colour(int(state)) for state in states[1:][is_known]]
        axes.add_collection(LineCollection(steps[is_known].tolist(), colors=colours, linewidths=1.0, capstyle="round"))
        ends = steps[is_known][:, 1]
        axes.scatter(ends[:, 0], ends[:, 1], s=7, c=colours, linewidths=0, zorder=3)
        start = xy[~np.isnan(xy).any(1)][0]
        axes.plot(*start, "o", markersize=6, markerfacecolor="none", markeredgecolor=INK, zorder=4)
        axes.set_aspect(1 / np.cos(np.radians(np.nanmean(xy[:, 1]))) if is_globe else 1.0)
        axes.autoscale_view()
        axes.set(xlabel="longitude" if is_globe else "x", ylabel="latitude" if is_globe else "y")
        add_legend(axes, states[1:][is_known], names)
    return axes

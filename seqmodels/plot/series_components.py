"""Plot of the components of a series: level, trend, seasons, effects of inputs, and the remainder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from seqmodels.common.parameters import checked_but
from seqmodels.plot.one_sequence import given_times, one_sequence, selected_steps, times_of
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels

HEIGHT = 1.5  # height of a panel in inches
ROUNDING = 1e-12  # a remainder below this share of the largest value is rounding noise and drawn as 0
LEVELS = ("level", "trend", "smooth_trend")  # components that are drawn over the series
INTERCEPT = "intercept"  # component that is constant and not drawn


class StructuralModel(Protocol):
    """The interface of a model that decomposes a series into components, such as level, trend and seasons.

    ``seqmodels.LinearGaussian`` with a structure is one.
    """

    def components(self, X: Any, *, level: float = 0.9) -> list[pd.DataFrame]: ...


@checked_but("model", "ax")
def components(
    model: StructuralModel,
    x: Any,
    *,
    ax: Any = None,
    level: float = 0.9,
    time: Any = None,
    steps: slice = slice(None),
    unit: str = "",
) -> Panels:
    """Draw the components of a series given all of its steps, one panel each, and the remainder.

    A level or trend is drawn over the series. Other components, and the effect of each input, have panels of their own.
    The last panel shows the remainder: the series minus all components and the intercept.

    Args:
        model: a fitted (or loaded) ``LinearGaussian`` with a structure.
        x: one series, shape ``(T, 1)``, or ``Sequences`` with one sequence.
        ax: axes to draw on, as many as there are panels; None creates a figure of pyplot.
        level: probability that a component lies within its band.
        time: times of the steps, which never decrease, shape ``(T,)``: numbers, dates or a ``DatetimeIndex``. None
            means the times of ``x``, if it has any, and otherwise the numbers of the steps.
        steps: the steps to draw; components are computed from all.
        unit: unit of the series, for the y axis; empty shows its name.

    Returns:
        The axes, from top to bottom.

    Raises:
        ValueError: the model has no structure, there are several sequences, or the number of times does not fit.

    >>> from seqmodels import LinearGaussian, plot
    >>> y = np.array([[1.0], [2.0], [1.5], [2.5], [3.0], [2.8]])
    >>> panels = plot.components(LinearGaussian.local_level().fit([y]), y)
    >>> [ax.get_ylabel() for ax in panels]
    ['value', 'remainder']
    """
    if not hasattr(type(model), "components"):
        raise ValueError(f"model is {model!r:.100}; pass a fitted LinearGaussian of a structure")
    sequence = one_sequence("x", x)
    (frame,) = model.components(sequence, level=level)
    series = np.asarray(sequence.items[0], dtype=float)[:, 0]
    here, time = selected_steps(steps, len(series)), given_times(sequence, time)
    t = times_of(time, len(series))[here]
    parts = {str(name): part for name, part in frame.groupby("component", sort=False)}
    remainder = series - sum(part["mean"].to_numpy() for part in parts.values())
    remainder[np.abs(remainder) < ROUNDING * np.nanmax(np.abs(series))] = 0.0
    above = next((name for name in parts if name in LEVELS), None)
    below = [name for name in parts if name not in (above, INTERCEPT)]

    from seqmodels.plot.style import COLOURS, INK, MUTED, in_style, panels_or_new, positions, time_label

    with in_style():
        panels = panels_or_new(ax, len(below) + 2, HEIGHT)
        at = positions(panels[-1], t)
        for axes in panels[:-1]:
            positions(axes, t)
        panels[0].plot(at, series[here], color=INK, linewidth=0.9, label="observed")
        if above is not None:
            _draw(panels[0], at, parts[above][here], COLOURS[0], above)
        panels[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, handlelength=1.5)
        for i, (axes, name) in enumerate(zip(panels[1:], below, strict=False)):
            axes.axhline(0, color=MUTED, linewidth=0.6)
            _draw(axes, at, parts[name][here], COLOURS[1 + i % (len(COLOURS) - 1)], name)
            axes.set_ylabel(name)
        panels[-1].axhline(0, color=MUTED, linewidth=0.6)
        panels[-1].vlines(at, 0, remainder[here], color=INK, linewidth=0.8)
        panels[-1].set_ylabel("remainder")
        panels[0].set_ylabel(unit or _name_of(sequence))
        panels[-1].set_xlabel("step" if time is None else _label(sequence, t, time_label))
        for axes in panels:
            axes.margins(x=0.01)
        panels.figure.align_ylabels(panels)
    return panels


def _name_of(sequence: Sequences) -> str:
    return "value" if sequence.features is None else str(sequence.features[0])


def _label(sequence: Sequences, t: np.ndarray, time_label: Any) -> str:
    return "" if sequence.times is None else str(time_label(sequence.time_name, sequence.time_unit, t))


def _draw(ax: Axes, at: np.ndarray, part: pd.DataFrame, colour: str, name: str) -> None:
    """Draw the mean of a component as a line, with its interval as a band.

    Args:
        ax: the axes to draw on.
        at: positions of the steps on the x axis, shape ``(T,)``.
        part: table with a row for each step and the columns ``mean``, ``low`` and ``high``.
        colour: colour of line and band.
        name: label of the line.
    """
    ax.fill_between(at, part["low"], part["high"], color=colour, alpha=0.25, linewidth=0)
    ax.plot(at, part["mean"], color=colour, linewidth=1.3, label=name)

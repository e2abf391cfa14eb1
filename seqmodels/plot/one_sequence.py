"""Plot of the frames of one sequence, and checks of what plots of one sequence are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.parameters import checked
from seqmodels.sequences import Sequences
from seqmodels.sequences.zones import on_its_clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checked
def frames(
    x: Any,
    *,
    ax: Axes | None = None,
    features: Sequence[str] | None = None,
    time: Any = None,
    steps: slice = slice(None),
) -> Axes:
    """The frames of one sequence of vectors as an image, in standard deviations from the mean of each feature.

    Args:
        x: ``(T, D)``.
        ax: where to draw; None: a new figure of pyplot.
        features: names of the D features; None: their numbers. The first is at the bottom.
        time: ``(T,)`` of the frames, never falling: numbers, dates, a ``DatetimeIndex``; None: their numbers.
        steps: which frames are drawn; the mean and deviation are those of all.

    Raises:
        ValueError: several sequences, or one of another kind; names or times that are not as many as they must be.

    >>> from seqmodels import plot
    >>> ax = plot.frames(np.arange(6.0).reshape(3, 2), features=["left", "right"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['left', 'right']
    """
    sequence = one_sequence("x", x)
    if sequence.kind != "vectors":
        raise ValueError(f"x is {sequence.kind}; an image is of vectors, (T, D)")
    frames = np.asarray(sequence.items[0])
    n_frames, n_features = frames.shape
    if features is not None and (isinstance(features, str) or len(features) != n_features):
        raise ValueError(f"features is {features!r}, but x has {n_features}; pass a list with a name for each")
    names = sequence.features if features is None else features
    labels = [str(d) for d in range(n_features)] if names is None else [str(name) for name in names]
    selected = selected_steps(steps, n_frames)
    time = given_times(sequence, time)
    t = times_of(time, n_frames)[selected]

    from seqmodels.plot import drawn_states as drawing
    from seqmodels.plot.drawn_frames import Scale
    from seqmodels.plot.style import axes_or_new, edges_of, in_style, positions, time_label

    with in_style():
        axes = axes_or_new(ax, 1.6 + 0.12 * min(n_features, 24))
        drawing.draw_image(axes, edges_of(positions(axes, t)), Scale([frames])(frames[selected]), labels)
        is_own = sequence.times is not None and time is sequence.times[0]
        label = time_label(sequence.time_name, sequence.time_unit, t) if is_own else "frame" if time is None else ""
        if label:
            axes.set_xlabel(label)
    return axes


def one_sequence(name: str, x: Any) -> Sequences:
    """What a user passes as one sequence, with its names and times; raises ``ValueError`` for several."""
    if isinstance(x, Sequences):
        _refuse_several(name, len(x))
        return x
    if isinstance(x, list | tuple) and len(x):
        if np.ndim(x[0]) == 2:
            _refuse_several(name, len(x))
        if np.ndim(x[0]) == 2 or (len(x) == 1 and isinstance(x[0], str)):
            x = x[0]
    return Sequences([x])


def _refuse_several(name: str, n: int) -> None:
    if n != 1:
        raise ValueError(f"{name} holds {n} sequences; pass one of them, such as {name}[0]")


def selected_steps(steps: slice, n_steps: int) -> slice:
    """``steps`` with both ends; raises ``ValueError`` if none are left."""
    if not isinstance(steps, slice) or steps.step not in (None, 1):
        raise ValueError(f"steps is {steps!r}; pass a slice of neighbours, such as slice(100, 200)")
    first, end, _ = steps.indices(n_steps)
    if first >= end:
        raise ValueError(f"steps is {steps!r}, which leaves none of the {n_steps} steps")
    return slice(first, end)


def given_times(sequence: Sequences, time: Any) -> Any:
    """``time``, or the times that the one sequence has, as a clock of their zone shows them; None: neither."""
    if time is None and sequence.times is not None:
        return on_its_clock(sequence.times[0], sequence.time_unit)
    return time


def times_of(time: Any, n_steps: int) -> np.ndarray:
    """``(T,)`` numbers or dates; without ``time`` the numbers of the steps, from 0."""
    if time is None:
        return np.arange(n_steps)
    times = np.asarray(time)
    if times.shape != (n_steps,):
        raise ValueError(f"time has shape {times.shape}, but the sequence has {n_steps} steps; pass a time for each")
    if times.dtype.kind in "US" or isinstance(times[0], str):
        raise ValueError(f"time is text, such as {times[0]!r}; pass numbers or dates: pandas.to_datetime(time)")
    falls = np.flatnonzero(~(times[1:] >= times[:-1]))
    if len(falls):
        raise ValueError(
            f"time falls at step {falls[0] + 1}: {times[falls[0] + 1]} comes after {times[falls[0]]}; sort the steps "
            "by time, or leave time out"
        )
    return times

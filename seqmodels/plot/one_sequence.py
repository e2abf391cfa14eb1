"""Plot of the frames of one sequence, and checks of the arguments of plots of one sequence."""

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
    """Draw the frames of one sequence of vectors as an image, in standard deviations from the mean of each feature.

    Args:
        x: one sequence of vectors, shape ``(T, D)``.
        ax: axes to draw on; None creates a figure of pyplot.
        features: names of the D features, the first at the bottom; None means their numbers.
        time: times of the frames, which never decrease, shape ``(T,)``: numbers, dates or a ``DatetimeIndex``. None
            means the times of ``x``, if it is ``Sequences`` with times, and otherwise the numbers of the frames.
        steps: the frames to draw; mean and deviation are computed from all.

    Returns:
        The axes.

    Raises:
        ValueError: there are several sequences, or one of another kind; or the number of names or times does not fit.

    >>> from seqmodels import plot
    >>> ax = plot.frames(np.arange(6.0).reshape(3, 2), features=["left", "right"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['left', 'right']
    """
    sequence = one_sequence("x", x)
    if sequence.kind != "vectors":
        raise ValueError(f"x is {sequence.kind}; pass vectors (T, D) for an image")
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
    """Return one sequence that a user passed, with its names and times, as ``Sequences``.

    Args:
        name: name of the argument, for the error.
        x: the sequence, or ``Sequences`` with one sequence.

    Raises:
        ValueError: there are several sequences.
    """
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
    """Return a slice of steps with explicit, non-negative ends.

    Args:
        steps: the slice, whose ends may be None or negative.
        n_steps: number of steps of the sequence.

    Raises:
        ValueError: it is not a slice of neighbouring steps, or selects none.
    """
    if not isinstance(steps, slice) or steps.step not in (None, 1):
        raise ValueError(f"steps is {steps!r}; pass a slice of neighbours, such as slice(100, 200)")
    first, end, _ = steps.indices(n_steps)
    if first >= end:
        raise ValueError(f"steps is {steps!r}, which leaves none of the {n_steps} steps")
    return slice(first, end)


def given_times(sequence: Sequences, time: Any) -> Any:
    """Return the times at which the steps of a sequence are drawn; None if there are none.

    Args:
        sequence: the only sequence, whose own times are used in local time.
        time: times that the user passed, which are used instead; None if he passed none.
    """
    if time is None and sequence.times is not None:
        return on_its_clock(sequence.times[0], sequence.time_unit)
    return time


def times_of(time: Any, n_steps: int) -> np.ndarray:
    """Return the times of the steps of a sequence as an array of numbers or dates, shape ``(n_steps,)``.

    Args:
        time: the times; None numbers the steps from 0.
        n_steps: number of steps.

    Raises:
        ValueError: there is not a time for each step, times are text, or they decrease.
    """
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

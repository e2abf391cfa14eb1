"""Drawing of vectors as images over time, alone, side by side, or above the difference between two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from seqmodels.plot.style import COLOURS, GRID, INK, MUTED, WIDTH, in_style, label_frames, short, short_in

CLIP = 3.0  # standard deviations at the ends of the colour scale
IMAGE_WIDTH = 1.8  # the least width in inches of each of several images side by side
MAX_NAMED = 8  # the most features whose names have room at the axis
COLOUR_MAP = "cividis"  # legible for the colour-blind and in grey


class Scale:
    """A standardisation of frames by each feature's mean and standard deviation, so that images share a color scale.

    Args:
        frames: T frames of D features of each sequence, shape ``(T, D)``, from which mean and deviation are computed.
        features: names of the features, which are written at the axis if they are few.
    """

    def __init__(self, frames: Sequence[np.ndarray], features: Sequence[str] | None = None) -> None:
        self.features = features
        all_frames = np.concatenate(list(frames))
        self.mean = np.nanmean(all_frames, axis=0)
        deviation = np.nanstd(all_frames, axis=0)
        self.deviation = np.where(deviation > 0, deviation, 1.0)

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        standardised: np.ndarray = (np.asarray(frames, dtype=float) - self.mean) / self.deviation
        return standardised


def frame_differences(
    frames: np.ndarray,
    difference: np.ndarray,
    *,
    scale: Scale,
    better: str,
    worse: str,
    width: float = WIDTH,
    times: np.ndarray | None = None,
    time_label: str = "",
) -> Figure:
    """Return a figure of one sequence's features over time and, below, of the difference between two models' scores.

    Args:
        frames: T frames of D features of the sequence, shape ``(T, D)``.
        difference: log-probability of each frame under the first model minus that under the second, in nats, shape
            ``(T,)``. If there is one more value, for the end of the sequence, it is not drawn.
        scale: standardisation by the features' means and standard deviations over all test frames.
        better: name of the first model.
        worse: name of the second model.
        width: width of the figure in inches.
        times: times of the frames, numbers or dates, shape ``(T,)``; None numbers them.
        time_label: label of the axis of times.
    """
    with in_style():
        figure, (above, below) = two_rows(width)
        image = image_of(above, frames, scale)
        figure.colorbar(image, ax=above, label="sd", pad=0.01, aspect=12)
        t = np.arange(len(frames))
        values = np.nan_to_num(np.asarray(difference)[: len(frames)], neginf=0, posinf=0)
        below.axhline(0, color=INK, linewidth=0.8)
        below.fill_between(t, values, 0, where=values >= 0, step="mid", color=COLOURS[0], linewidth=0, gid="better")
        below.fill_between(t, values, 0, where=values <= 0, step="mid", color=COLOURS[1], linewidth=0, gid="worse")
        label_frames(below, times, time_label)
        below.set(ylabel="nats")
        below.grid(color=GRID, linewidth=0.7)
        words = f"blue: {short_in(figure, better)} better; orange: {short_in(figure, worse)} better"
        below.set_title(words, fontsize=8, fontweight="normal", wrap=True)
    return figure


def side_by_side(images: Mapping[str, np.ndarray], *, scale: Scale, width: float = WIDTH) -> Figure:
    """Return a figure of several sequences of vectors as images over time with one color scale.

    Args:
        images: the frames of each sequence, shape ``(T, D)``, by its title.
        scale: standardisation by the features' means and standard deviations over all test frames.
        width: width of the figure in inches.
    """
    columns = min(max(1, int(width / IMAGE_WIDTH)), len(images))
    rows = -(-len(images) // columns)
    with in_style():
        figure = Figure(figsize=(width, 0.7 + 1.35 * rows), dpi=150, layout="constrained")
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for axes in grid.flat[len(images) :]:
            axes.set_visible(False)
        drawn = [image_of(axes, f, scale) for axes, f in zip(grid.flat, images.values(), strict=False)]
        for axes, name in zip(grid.flat, images, strict=False):
            axes.set_title(short_in(figure, name), fontsize=8.5, fontweight="normal")
        figure.colorbar(drawn[0], ax=grid, label="sd from the mean", pad=0.01, aspect=30)
    return figure


def runs(path: np.ndarray) -> list[tuple[int, int, int]]:
    """Return the runs of equal states in a path of T states, each as ``(first, end, state)`` with an exclusive ``end``.

    Args:
        path: state of each step, ``(T,)``.

    >>> runs(np.array([2, 2, 0]))
    [(0, 2, 2), (2, 3, 0)]
    """
    cuts = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [(a, b, int(path[a])) for a, b in pairwise(cuts)]


def two_rows(width: float) -> tuple[Figure, tuple[Axes, Axes]]:
    """Return a new figure with two axes that share the time axis, the upper one twice as high.

    Args:
        width: width of the figure in inches.
    """
    figure = Figure(figsize=(width, 3.1), dpi=150, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    below.tick_params(color=MUTED, labelcolor=INK, labelsize=8)
    return figure, (above, below)


def image_of(axes: Axes, frames: np.ndarray, scale: Scale) -> AxesImage:
    """Draw the frames of a sequence as an image with time to the right and the first feature at the bottom.

    Args:
        axes: the axes to draw on.
        frames: T frames of D features, shape ``(T, D)``.
        scale: standardisation that is applied to the frames before they are coloured.
    """
    axes.tick_params(color=MUTED, labelcolor=INK, labelsize=8)
    if scale.features is not None and len(scale.features) <= MAX_NAMED:
        axes.set_yticks(range(len(scale.features)), [short(name) for name in scale.features])
    else:
        axes.set_ylabel("feature", fontsize=8)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    image = axes.imshow(scale(frames).T, cmap=COLOUR_MAP, aspect="auto", origin="lower", interpolation="nearest")
    image.set_clim(-CLIP, CLIP)
    return image

"""Plot of a classifier's errors: how often each label is predicted for sequences with each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.parameters import checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL_SIZE = 0.42  # inches
MAX_NUMBERED = 24  # the most labels with which the counts are written into the cells


@checked
def confusion(
    labels: Sequence[Any],
    predicted: Sequence[Any],
    *,
    classes: Sequence[Any] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the confusion matrix: one row per label, one column per predicted label, and counts in the cells.

    A cell is darker the larger its share of its row, so that rare labels are visible too. Correct predictions lie on
    the diagonal.

    Args:
        labels: true labels, shape ``(n,)``.
        predicted: labels that ``predict`` or ``cross_val_predict`` of a classifier returned, shape ``(n,)``.
        classes: the labels in the order of the rows; None means all labels that occur, sorted.
        title: title of the plot; None shows the number of correct predictions.
        ax: axes to draw on; None creates a figure of pyplot that is large enough for the labels.

    Returns:
        The axes; ``ax.figure.savefig("confusion.png")`` writes them to a file.

    Raises:
        ValueError: labels and predictions differ in number or are empty, or a label is not in ``classes``.

    >>> from seqmodels import plot
    >>> ax = plot.confusion(["up", "up", "down"], ["up", "down", "down"])
    >>> ax.get_title(loc="left")
    '2 of 3 right (66.7 %)'
    """
    truth, said = list(labels), list(predicted)
    if len(truth) != len(said) or not truth:
        raise ValueError(f"there are {len(truth)} labels and {len(said)} predictions; pass one of each a sequence")
    order = list(classes) if classes is not None else np.unique([*truth, *said]).tolist()
    number = {label: i for i, label in enumerate(order)}
    unknown = [label for label in (*truth, *said) if label not in number]
    if unknown:
        raise ValueError(f"the label {unknown[0]!r} is not in classes; pass all labels, or leave classes out")
    counts = np.zeros((len(order), len(order)), dtype=np.int64)  # (true, predicted)
    np.add.at(counts, ([number[label] for label in truth], [number[label] for label in said]), 1)
    right = int(np.trace(counts))
    if title is None:
        title = f"{right:,} of {len(truth):,} right ({right / len(truth):.1%})".replace("%", " %")
    return _draw(counts, [str(label) for label in order], title, ax)


def _draw(counts: np.ndarray, names: list[str], title: str, ax: Axes | None) -> Axes:
    from seqmodels.plot.style import INK, axes_or_new, figure_of, in_style, shades, short, width_of

    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # of the row
    longest = max(width_of(short(name), 8.5) for name in names) / 72  # inches
    with in_style():
        axes = axes_or_new(ax, float(np.clip(1.3 + CELL_SIZE * len(names) + min(longest, 1.2), 2.6, 9.0)))
        figure = figure_of(axes)
        if ax is None:
            figure.set_figwidth(float(np.clip(2.2 + CELL_SIZE * len(names) + longest, 3.6, 9.0)))
        axes.grid(visible=False)
        image = axes.imshow(share, cmap=shades(), vmin=0.0, vmax=1.0, aspect="equal", interpolation="nearest")
        if len(names) <= MAX_NUMBERED:
            for i, j in np.argwhere(counts).tolist():
                colour = "white" if share[i, j] > 0.55 else INK
                axes.text(j, i, f"{counts[i, j]:,}", ha="center", va="center", color=colour, fontsize=8.5)
        turned = 90 if longest > 0.95 * CELL_SIZE else 0
        axes.set_xticks(range(len(names)), [short(name) for name in names], rotation=turned)
        axes.set_yticks(range(len(names)), [short(name) for name in names])
        axes.set(xlabel="predicted", ylabel="label")
        axes.set_title(title, wrap=True, pad=10)
        figure.colorbar(image, ax=axes, label="share of the label", pad=0.03)
    return axes

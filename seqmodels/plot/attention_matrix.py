"""Plot of self-attention: the weight of each input for the prediction of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.parameters import PositiveFloat, checked
from seqmodels.plot.alignment_matrix import alignment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

START = "start"


@checked
def attention(
    weights: np.ndarray,
    x: Sequence[Any] | None = None,
    *,
    title: str = "",
    full: PositiveFloat = 1.0,
    ax: Axes | None = None,
) -> Axes:
    """Draw self-attention as an image: the weight of each input (columns) for each predicted step (rows), white at 0.

    Args:
        weights: weights of one sequence of T steps as ``Transformer.attention`` returns them, shape ``(T, T)``.
        x: labels of the steps: a string, or a sequence of T labels; with None or vectors they are numbered. A column is
            labelled with its input, which is the step before, or ``"start"``.
        title: title of the plot.
        full: weight that is drawn darkest; pass less than 1 if attention is spread over many steps.
        ax: axes to draw on; None creates a figure of pyplot that is large enough for the labels.

    Returns:
        The axes; ``ax.figure.savefig("attention.png")`` writes them to a file.

    Raises:
        ValueError: the weights are not a square matrix, or the number of labels does not fit them.

    >>> from seqmodels import plot
    >>> ax = plot.attention(np.eye(3), "abc")
    >>> [label.get_text() for label in ax.get_xticklabels()], ax.get_ylabel()
    (['start', 'a', 'b'], 'predicted step')
    """
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"weights have shape {weights.shape}; pass the weights of one sequence, (steps, steps)")
    read = None if x is None or np.ndim(x) > 1 else [START, *x][: len(x)]
    axes = alignment(weights, read, x, title=title, full=full, ax=ax)
    axes.set(xlabel="input", ylabel="predicted step")
    return axes

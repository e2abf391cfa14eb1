"""Plot of an alignment: the weight of each step of a source for each step of a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from seqmodels.common.parameters import PositiveFloat, checked_but
from seqmodels.encodings import Encoding
from seqmodels.encodings.text import encoded_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL_SIZE = 0.24  # inches
NULL = "∅"  # label of the column for targets that are aligned to no step of the source
MAX_LABELS = 48  # the most steps of a side that are named; more are numbered


@runtime_checkable
class Aligner(Protocol):
    """The interface of a fitted model that aligns pairs of a source and a target sequence, whose steps become labels.

    Attributes:
        encoding_: encoding of the targets.
        source_encoding_: encoding of the sources; None if the model reads raw sources.
    """

    @property
    def encoding_(self) -> Encoding: ...
    @property
    def source_encoding_(self) -> Encoding | None: ...


@checked_but("model")
def alignment(
    weights: np.ndarray,
    x: Sequence[Any] | None = None,
    y: Sequence[Any] | None = None,
    *,
    model: Aligner | None = None,
    title: str = "",
    full: PositiveFloat = 1.0,
    ax: Axes | None = None,
) -> Axes:
    """Draw an alignment as an image: the weight of each source step (columns) for each target step (rows), white at 0.

    Args:
        weights: weights of one pair as ``align`` returns them, for S_y target steps and S_x source steps, shape ``(S_y,
            S_x)``.
        x: labels of the columns: a string, whose characters (or its bytes, if there are S_x of them) are the labels, or
            a sequence of S_x labels. With None or vectors the columns are numbered.
        y: labels of the rows, in the same form.
        model: the fitted model that aligned ``x`` and ``y``. The labels are then the steps that it reads, which with
            ``BPE`` are pieces of text. None means that ``x`` and ``y`` are the labels themselves.
        title: title of the plot.
        full: weight that is drawn darkest; pass less than 1 if attention is spread over many steps.
        ax: axes to draw on; None creates a figure of pyplot that is large enough for the labels.

    Returns:
        The axes; ``ax.figure.savefig("alignment.png")`` writes them to a file.

    Raises:
        ValueError: the weights are not a matrix, or the number of labels does not fit them.

    >>> from seqmodels import plot
    >>> ax = plot.alignment(np.eye(3), "abc", [1, 2, 3])
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['a', 'b', 'c']
    """
    weights = np.asarray(weights, dtype=float)
    if model is not None:
        if not isinstance(model, Aligner):
            raise ValueError(f"model is {model!r:.80}; pass the fitted model that aligned, or leave it out")
        x, y = _steps(model.source_encoding_, x), _steps(model.encoding_, y)
        if isinstance(x, list) and weights.shape[-1:] == (len(x) + 1,):  # the last column of an alignment HMM
            x = [*x, NULL]
    if weights.ndim != 2:
        raise ValueError(f"weights have shape {weights.shape}; pass the weights of one pair, (steps of y, steps of x)")
    rows, columns = (_labels(name, given, n) for name, given, n in zip("yx", (y, x), weights.shape, strict=True))

    from seqmodels.plot.style import WIDTH, axes_or_new, figure_of, in_style, shades

    with in_style():
        axes = axes_or_new(ax, float(np.clip(1.2 + CELL_SIZE * len(weights), 2.0, 9.0)))
        figure = figure_of(axes)
        if ax is None:
            figure.set_figwidth(float(np.clip(1.8 + CELL_SIZE * weights.shape[1], 3.0, 1.5 * WIDTH)))
        axes.grid(visible=False)
        image = axes.imshow(weights, cmap=shades(), vmin=0.0, vmax=full, aspect="auto", interpolation="nearest")
        _label_ticks(axes, columns, rows)
        axes.set(xlabel="source", ylabel="target")
        if title:
            axes.set_title(title, wrap=True, pad=14)
        figure.colorbar(image, ax=axes, label="weight", pad=0.02)
    return axes


def _steps(encoding: Encoding | None, given: Any) -> Any:
    """Return the pieces of text or the symbols that an encoding makes of a raw sequence, as labels.

    Spaces and line ends are made visible.

    Args:
        encoding: fitted encoding, or None.
        given: raw sequence; vectors, and all sequences without an encoding, are returned unchanged.
    """
    if given is None or encoding is None or encoding.reads == "vectors":
        return given
    return [step.replace(" ", "␣").replace("\n", "↵") for step in encoded_steps(encoding, given)]


def _labels(name: str, given: Sequence[Any] | None, n: int) -> list[str] | None:
    """Return a label for each of ``n`` steps, or None if the steps are numbered.

    Args:
        name: name of the argument in the message of the error.
        given: labels that the caller passed, a string or a sequence; None or vectors number the steps.
        n: number of steps.

    Raises:
        ValueError: there is not a label for each step.
    """
    if given is None or np.ndim(given) > 1:
        return None
    steps: Sequence[Any] = given
    if isinstance(given, str) and len(given) != n:
        steps = [bytes([byte]).decode(errors="replace") for byte in given.encode()]
    if len(steps) != n:
        raise ValueError(
            f"{name} has {len(steps)} steps, but the weights have {n}; pass what was aligned, a label for each encoded "
            "step, or the model that aligned it as model="
        )
    return [str(step) for step in steps] if n <= MAX_LABELS else None


def _label_ticks(axes: Axes, columns: list[str] | None, rows: list[str] | None) -> None:
    if columns is not None:
        axes.set_xticks(range(len(columns)), columns, rotation=90 if max(map(len, columns), default=0) > 2 else 0)
    if rows is not None:
        axes.set_yticks(range(len(rows)), rows)

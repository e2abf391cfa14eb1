"""What leaves a model is finite, or the logarithm of a true zero.

What float32 cannot hold is computed in float64, that sequence alone; what float64 cannot hold is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from seqmodels.preparation import Example

FLOAT32 = 1e15  # encoded values up to which float32 holds squares, and layers the squares of sums
FLOAT64 = 1e100  # and float64, with room for variances that are far below one

Score = Callable[[list[Example]], list[np.ndarray]]


def finite_steps(examples: Sequence[Example], steps: list[np.ndarray], again: Score, names: str) -> list[np.ndarray]:
    """``steps`` of the examples, those that are not finite, or of values beyond float32, in the place of what ``again`` says.

    Args:
        examples: what was scored.
        steps: log-probabilities of each, as computed first.
        again: scores examples in float64.
        names: what the sequences are called in an error: ``X`` or ``y``.

    Raises:
        ValueError: a log-probability that float64 cannot hold, by sequence and position.
    """
    doubtful = [i for i, (e, s) in enumerate(zip(examples, steps, strict=True)) if _is_doubtful(e, s)]
    if not doubtful:
        return steps
    found = list(steps)
    for i, exact in zip(doubtful, again([examples[i] for i in doubtful]), strict=True):
        if not _holds(exact):
            _refuse_unless_zero(i, examples[i], exact, again, names)
        found[i] = exact
    return found


def is_beyond_float32(values: np.ndarray | None) -> bool:
    """Whether encoded vectors have a value whose square float32 cannot be trusted with."""
    return _largest(values) > FLOAT32


def refuse_beyond_float64(values: np.ndarray, what: str) -> None:
    """Raise ``ValueError`` for encoded vectors that have a value whose square float64 cannot hold."""
    if _largest(values) > FLOAT64:
        raise ValueError(f"{what} has {_where(values)}; float64 cannot hold its density: remove or rescale the value")


def _is_doubtful(example: Example, steps: np.ndarray) -> bool:
    if _is_vectors(example.values):
        return not _holds(steps) or is_beyond_float32(example.values) or is_beyond_float32(example.source)
    # Of symbols -inf is a zero in any precision.
    return is_beyond_float32(example.source) or not (_holds(steps) or _is_zero(steps))


def _holds(steps: np.ndarray) -> bool:
    return math.isfinite(steps.sum())


def _is_zero(steps: np.ndarray) -> bool:
    """Whether some steps are -inf, and all others finite."""
    return bool((steps < np.inf).all()) and bool(np.isneginf(steps).any())


def _refuse_unless_zero(i: int, example: Example, steps: np.ndarray, again: Score, names: str) -> None:
    """Where values of a size that float64 holds have probability zero too, the zero is the model's."""
    wrong = ~np.isfinite(steps)
    if _is_zero(steps):
        if max(_largest(example.values), _largest(example.source)) <= FLOAT64:
            return
        source = None if example.source is None else _clipped(example.source)
        (clipped,) = again([replace(example, values=_clipped(example.values), source=source)])
        if np.array_equal(np.isneginf(clipped), wrong):
            return
    t = int(np.argmax(wrong)) if wrong.any() else int(np.argmin(steps))
    cause = next((_where(v) for v in (example.values, example.source) if v is not None and _largest(v) > FLOAT32), None)
    raise ValueError(
        f"sequence {i} of {names} has no log-probability that float64 can hold at step {t}"
        + (f": it has {cause}" if cause else "")
        + "; remove or rescale what is far from the training data, or mark it missing with NaN"
    )


def _is_vectors(values: np.ndarray | None) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 2


def _largest(values: np.ndarray | None) -> float:
    """Magnitude, of what is not missing; 0 where there are no vectors in memory."""
    if values is None or not _is_vectors(values):
        return 0.0
    largest = max(float(np.fmax.reduce(values, axis=None)), -float(np.fmin.reduce(values, axis=None)))
    return 0.0 if math.isnan(largest) else largest


def _clipped(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -FLOAT64, FLOAT64) if _is_vectors(values) else values


def _where(values: np.ndarray) -> str:
    frame, feature = np.unravel_index(int(np.nanargmax(np.abs(values))), values.shape)
    return f"{abs(values[frame, feature]):.3g} times the usual deviation at frame {frame}, feature {feature}"

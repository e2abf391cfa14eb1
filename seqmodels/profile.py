"""What the values of one feature look like: missing, constant, whole numbers, a grid, a spike at one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Shape = Literal["missing", "constant", "bits", "counts", "spike", "grid", "reals"]

MIN_SPIKE = 0.05  # of the frames: rarer, a value is not worth an observation of its own
SPIKE_OVER_NEXT = 5  # a spike is this many times as frequent as any other value
MANY_REPEATS = 0.5  # of the frames off the spike have a value that another has: a grid
ROUNDING = 1e-9  # of the range of the values: smaller gaps are rounding noise (0.3 and 0.1 + 0.2)


@dataclass(frozen=True)
class Profile:
    """One feature.

    Args:
        missing: share of the frames.
        n_values: how many different values there are, but for rounding noise.
        low, high: the range; NaN where all is missing.
        step: the smallest gap between values, where most of them repeat; NaN elsewhere.
        spike: the value that far more frames have than any other; NaN: there is none.
        spike_share: of the frames that are observed.
        deviation: of the values off the spike.
        kind: in a word.
    """

    missing: float
    n_values: int
    low: float
    high: float
    step: float
    spike: float
    spike_share: float
    deviation: float
    kind: Shape


def profile_of(column: np.ndarray) -> Profile:
    """Of the values ``(N,)`` of one feature; NaN is missing."""
    seen = column[~np.isnan(column)].astype(np.float64)
    missing = 1.0 - len(seen) / len(column)
    values, counts = _distinct(seen)
    if len(values) < 2:
        end = float(values[0]) if len(values) else np.nan
        kind: Shape = "constant" if len(values) else "missing"
        return Profile(missing, len(values), end, end, np.nan, np.nan, 0.0, 0.0, kind)
    top = int(np.argmax(counts))
    others = np.delete(counts, top)
    share = counts[top] / counts.sum()
    is_spike = len(values) > 2 and share >= MIN_SPIKE and counts[top] >= SPIKE_OVER_NEXT * others.max()
    rest = others if is_spike else counts
    repeats = 1.0 - len(rest) / rest.sum() >= MANY_REPEATS
    off = seen[seen != values[top]] if is_spike else seen
    return Profile(
        missing,
        len(values),
        float(values[0]),
        float(values[-1]),
        float(np.diff(values).min()) if repeats else np.nan,
        float(values[top]) if is_spike else np.nan,
        float(share) if is_spike else 0.0,
        float(off.std()),
        _kind(values, is_spike=is_spike, repeats=repeats),
    )


def grid_step(column: np.ndarray) -> float:
    """The smallest gap between the values ``(N,)`` of a feature, but for rounding noise; 0 where they are all the same."""
    values, _ = _distinct(column[~np.isnan(column)])
    return float(np.diff(values).min()) if len(values) > 1 else 0.0


def _distinct(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different values, in order, and how many frames have each; values that differ by rounding noise are one."""
    values, counts = np.unique(seen, return_counts=True)
    if len(values) < 2:
        return values, counts
    first = np.concatenate([[True], np.diff(values) > ROUNDING * (values[-1] - values[0])])
    return values[first], np.add.reduceat(counts, np.flatnonzero(first))


def _kind(values: np.ndarray, *, is_spike: bool, repeats: bool) -> Shape:
    if len(values) == 2 and (values == [0.0, 1.0]).all():
        return "bits"
    if is_spike:
        return "spike"
    if repeats and (values >= 0).all() and (values == np.rint(values)).all():
        return "counts"
    return "grid" if repeats else "reals"

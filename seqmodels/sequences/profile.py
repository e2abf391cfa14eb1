"""Profiles of features: values that are missing, constant, integers, on a grid, or often equal to one value.

A density grows without bound on values that repeat, so features that are not plain reals are warned of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqmodels.common.caller_warnings import warn_caller

Shape = Literal["missing", "constant", "bits", "counts", "spike", "grid", "reals"]

MIN_SPIKE = 0.05  # the least share of frames with a spike, because a rarer value is not worth an observation of its own
SPIKE_OVER_NEXT = 5  # a spike is this many times as frequent as any other value
MANY_REPEATS = 0.5  # the share of frames, off the spike, with a value that repeats, from which on there is a grid
ROUNDING = 1e-9  # gaps below this share of the range are rounding noise (0.3 and 0.1 + 0.2)
N_PROFILED = 1 << 14  # the most frames, from all over the data, that are profiled for a warning
MIN_FRAMES = 100  # the least frames for a warning, because in fewer a frequent value may be chance
COARSE_STEP = 0.05  # of a standard deviation; on a grid of larger steps a variance can collapse
MAX_COPIES = 0.05  # the largest share of copied frames without a warning
OFF_GRID = 1e-3  # the most by which rounded values may lie off their grid, in steps
STEPS_OF_A_CELL = 3  # values within a cell of so many steps, in each feature, are neighbours
MOST_EXACT = 0.6  # the largest share of neighbours that rounding makes equal; in one feature it makes 1/3 equal


@dataclass(frozen=True)
class Profile:
    """A description of the values of one feature, which shows risks for a density, such as repeated values.

    Args:
        missing: share of the frames in which the feature is missing.
        n_values: number of distinct values, apart from rounding noise.
        low: the smallest value; NaN if all are missing.
        high: the largest value; NaN if all are missing.
        step: the smallest gap between values if most of them repeat; otherwise NaN.
        spike: a value that far more frames have than any other; NaN if there is none.
        spike_share: share of the observed frames that have the spike.
        deviation: standard deviation of the values other than the spike.
        kind: the shape that these figures amount to, such as ``"constant"``, ``"grid"`` or ``"reals"``.
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
    """Return a description of the values of one feature, with their range, repetitions and kind.

    Args:
        column: the values, shape ``(N,)``, in which NaN means missing.
    """
    observed = column[~np.isnan(column)].astype(np.float64)
    missing = 1.0 - len(observed) / len(column)
    values, counts = _distinct(observed)
    if len(values) < 2:
        only = float(values[0]) if len(values) else np.nan
        kind: Shape = "constant" if len(values) else "missing"
        return Profile(missing, len(values), only, only, np.nan, np.nan, 0.0, 0.0, kind)
    top = int(np.argmax(counts))
    others = np.delete(counts, top)
    share = counts[top] / counts.sum()
    is_spike = len(values) > 2 and share >= MIN_SPIKE and counts[top] >= SPIKE_OVER_NEXT * others.max()
    rest = others if is_spike else counts
    repeats = 1.0 - len(rest) / rest.sum() >= MANY_REPEATS
    off_spike = observed[observed != values[top]] if is_spike else observed
    return Profile(
        missing,
        len(values),
        float(values[0]),
        float(values[-1]),
        float(np.diff(values).min()) if repeats else np.nan,
        float(values[top]) if is_spike else np.nan,
        float(share) if is_spike else 0.0,
        float(off_spike.std()),
        _kind(values, is_spike=is_spike, repeats=repeats),
    )


def grid_step(column: np.ndarray) -> float:
    """Return the smallest gap between the values of a feature; 0 if all are equal.

    Gaps that are only rounding noise do not count.

    Args:
        column: the values, shape ``(N,)``.
    """
    values, _ = _distinct(column[~np.isnan(column)])
    return float(np.diff(values).min()) if len(values) > 1 else 0.0


def _distinct(observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of ``observed`` in increasing order, and how many frames have each.

    Values that differ only by rounding noise count as one.
    """
    values, counts = np.unique(observed, return_counts=True)
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


def warn_of_repeats(frames: np.ndarray, features: Sequence[object] | None = None) -> None:
    """Warn of values that repeat, because a density grows without bound on them.

    The lower bound of its variances would then decide the score.

    Args:
        frames: frames of D real features, shape ``(N, D)``.
        features: their names, or their numbers in the raw data; None means 0 to D - 1.
    """
    repeats = _spikes_and_grids(frames, range(frames.shape[1]) if features is None else features) + _copies(frames)
    if repeats:
        warn_caller(
            f"{'; '.join(repeats)}: densities grow without bound on values that repeat, and min_covariance may set "
            "the score and the ranking. Leave out a feature with a spike, or give it an observation of whole numbers "
            "(Columns with Bernoulli or Poisson); X.dithered(), before split, spreads values over their grid; "
            "X.profile() shows all features",
        )


def _spikes_and_grids(frames: np.ndarray, features: Sequence[object]) -> list[str]:
    if len(frames) < MIN_FRAMES:
        return []
    some = frames[:: -(-len(frames) // N_PROFILED)]
    profiles = [(n, profile_of(column)) for n, column in zip(features, some.T, strict=True)]
    spikes = [(n, p) for n, p in profiles if p.kind == "spike"]
    words = [f"feature {n} is {p.spike:g} in {p.spike_share:.0%} of the frames" for n, p in spikes]
    grids = ("grid", "counts", "bits")
    coarse = [(n, p.step) for n, p in profiles if p.kind in grids and p.step > COARSE_STEP * p.deviation]
    if coarse:
        which = ", ".join(str(n) for n, _ in coarse)
        steps = ", ".join(f"{step:g}" for _, step in coarse)
        words.append(
            f"feature {which} lies on a grid of step {steps}"
            if len(coarse) == 1
            else f"features {which} lie on grids of steps {steps}"
        )
    return words


def _copies(frames: np.ndarray) -> list[str]:
    """Return a phrase, in a list, that gives the share of frames that are copies of others; [] if they are few.

    Rounded values that coincide by chance do not count. If values are rounded to a step far below their spread, frames
    coincide by chance about as often as they differ by a step in each feature. Frames that were copied have no more
    neighbours than others.
    """
    complete = frames[~np.isnan(frames).any(axis=1)]
    if len(complete) < 2:
        return []
    distinct, counts = np.unique(complete, axis=0, return_counts=True)
    share = 1 - len(distinct) / len(complete)
    if share <= MAX_COPIES:
        return []
    steps = np.array([_rounded_to(column) for column in complete.T])
    if (steps > 0).all() and (steps <= COARSE_STEP * complete.std(axis=0)).all():
        cells = np.floor(np.rint((distinct - distinct.min(axis=0)) / steps) / STEPS_OF_A_CELL)
        _, of_cell = np.unique(cells, axis=0, return_inverse=True)
        n_near = np.bincount(of_cell.ravel(), weights=counts)
        n_pairs, n_pairs_near = (counts * (counts - 1)).sum(), (n_near * (n_near - 1)).sum()
        if n_pairs < MOST_EXACT * n_pairs_near:
            return []
    return [f"{share:.0%} of the frames are exact copies of others"]


def _rounded_to(column: np.ndarray) -> float:
    """Return the largest step that divides all differences between values of ``column (N,)``; 0 if there is none."""
    values, _ = _distinct(column)
    gaps = np.diff(values)
    if not len(gaps):
        return 0.0
    multiples = gaps / gaps.min()
    off = np.abs(multiples - np.rint(multiples)).max()
    return float(gaps.min()) if off < OFF_GRID else 0.0

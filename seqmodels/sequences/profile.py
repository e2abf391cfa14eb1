"""What the values of a feature look like: missing, constant, whole numbers, a grid, a spike at one value.

A density grows without bound on values that repeat, so features that are no plain reals are warned of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqmodels.common.caller_warnings import warn_caller

Shape = Literal["missing", "constant", "bits", "counts", "spike", "grid", "reals"]

MIN_SPIKE = 0.05  # of the frames: rarer, a value is not worth an observation of its own
SPIKE_OVER_NEXT = 5  # a spike is this many times as frequent as any other value
MANY_REPEATS = 0.5  # of the frames off the spike have a value that another has: a grid
ROUNDING = 1e-9  # of the range of the values: smaller gaps are rounding noise (0.3 and 0.1 + 0.2)
N_PROFILED = 1 << 14  # frames, from all over the data, that are profiled for a warning
MIN_FRAMES = 100  # from which on what is frequent is no accident
COARSE_STEP = 0.05  # of a standard deviation: a variance can shrink on a grid of larger steps
MAX_COPIES = 0.05  # of the frames: more are warned of
OFF_GRID = 1e-3  # of a step, by which values may lie off the grid to which they are rounded
STEPS_OF_A_CELL = 3  # for each feature, within which values are neighbours
MOST_EXACT = 0.6  # of the pairs of neighbours: rounding makes 1/3 of them equal, in a feature


@dataclass(frozen=True)
class Profile:
    """What the values of one feature look like.

    Args:
        missing: share of the frames.
        n_values: how many different values there are, but for rounding noise.
        low, high: the range; NaN where all is missing.
        step: the smallest gap between values, where most of them repeat; NaN elsewhere.
        spike: the value that far more frames have than any other; NaN: there is none.
        spike_share: of the frames that are observed.
        deviation: of the values off the spike.
        kind: which of these shapes it has.
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
    """The profile of the values ``(N,)`` of one feature; NaN is missing."""
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
    """The smallest gap between the values ``(N,)`` of a feature, but for rounding noise; 0 where all are the same."""
    values, _ = _distinct(column[~np.isnan(column)])
    return float(np.diff(values).min()) if len(values) > 1 else 0.0


def _distinct(observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different values, in order, and how many frames have each; values that differ by rounding noise are one."""
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
    """Warn of values that repeat: a density grows without bound on them, and its floor would set the figure.

    Args:
        frames: ``(N, D)`` of real features.
        features: their names, or numbers in the raw data; None: 0 to D - 1.
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
    """What share of the frames are exact copies, unless their values are rounded and copies are as rare as neighbours.

    Values that are rounded to a step far below their spread meet by chance: then about as many frames differ by a step
    in each feature as agree in all. Frames that were copied have no more neighbours than others.
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
    """The step of which all differences between the values ``(N,)`` are multiples; 0 where there is none."""
    values, _ = _distinct(column)
    gaps = np.diff(values)
    if not len(gaps):
        return 0.0
    multiples = gaps / gaps.min()
    off = np.abs(multiples - np.rint(multiples)).max()
    return float(gaps.min()) if off < OFF_GRID else 0.0

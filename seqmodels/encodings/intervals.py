"""Encodings of vectors whose values are known up to an interval: rounded values on a grid, or pairs of interval ends.

Intervals have probabilities, which do not depend on units: with ``z = (x - mean) / scale``, ``log p(x) = log p(z)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.common.parameters import PositiveFloat
from seqmodels.encodings.vectors import Vectors, frames_of, refuse_unseen, robust_units, summary_of
from seqmodels.observations.interval_censored import ENDLESS
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.measure import Values

OFF_GRID = 1e-6  # distance from a point of the grid, as a fraction of the width, that counts as on the point
ROUNDING = 8  # units in the last place by which a value on the grid may differ from its point


class Probabilities(Vectors):
    """The base class of encodings of rounded or censored values, which have probabilities instead of densities.

    Log-determinants are therefore 0. To add one, define ``fit`` and ``values``.
    """

    has_log_det = False

    def log_det(self, item: Item) -> float:
        return 0.0


@dataclass(eq=False, repr=False)
class Grid(Probabilities):
    """An encoding of rounded values, which are multiples of a width from an origin.

    Values are standardised like reals, but shifted by a multiple of the width.

    Args:
        width: distance between points of the grid in raw units, or a list with one for each feature.
        origin: a point of the grid in raw units, or a list with one for each feature.
        kind: kind of the values before rounding: ``"reals"`` are standardised, ``"positive"`` values are scaled,
            ``"proportions"`` are left unchanged.
        robust: if True, a feature whose standard deviation a few outliers dominate is standardised by its median and
            the spread of its middle quantiles instead.

    Raises:
        ValueError: if a feature is missing in every frame; ``check`` raises it for a value that is not on the grid.
    """

    width: PositiveFloat | list[PositiveFloat]
    origin: float | list[float] = 0.0
    kind: Values = "reals"
    robust: bool = False

    def values(self) -> tuple[Values, ...]:
        rounded: Values = "rounded"
        return (rounded,) * self.size

    def grid(self) -> tuple[float, ...]:
        return tuple(np.broadcast_to(np.asarray(self.width, dtype=np.float64), (self.size,)).tolist())

    def fit(self, sequences: Sequences) -> Self:
        values = summary_of(sequences)
        observed = values.n - values.n_missing
        refuse_unseen(observed == 0, sequences.features or range(sequences.n_features))
        width = np.asarray(self.width, dtype=np.float64)
        deviation = np.sqrt(values.squares / observed)
        middle, deviation = robust_units(values.mean, deviation, frames_of(sequences), self.robust)
        mean, scale = _units(middle, np.maximum(deviation, width), self.kind)
        return self.restore({"mean": width * np.rint(mean / width), "scale": scale})

    def decode(self, steps: np.ndarray) -> Item:
        width, origin = (np.asarray(each, dtype=np.float64) for each in (self.width, self.origin))
        point: np.ndarray = origin + width * np.rint((np.asarray(super().decode(steps)) - origin) / width)
        return point

    def _check_values(self, i: int, frames: np.ndarray) -> None:
        width, origin = (np.asarray(each, dtype=np.float64) for each in (self.width, self.origin))
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(frames - (origin + width * np.rint((frames - origin) / width)))
            wrong = ~np.isnan(frames) & ~(off <= OFF_GRID * width + ROUNDING * np.spacing(np.abs(frames)))
        if wrong.any():
            frame, feature = np.argwhere(wrong)[0]
            step, point = (float(np.broadcast_to(each, wrong.shape[1:])[feature]) for each in (width, origin))
            raise ValueError(
                f"sequence {i} has {frames[frame, feature]:.10g} at frame {frame}, feature {feature}, which is on no "
                f"point of the grid {point:g} + k * {step:g}; pass the width (and origin) that the values were rounded "
                "to, or round them so first"
            )
        half = 0.5 * width
        outside = (frames + half <= 0) & (self.kind != "reals") | (frames - half >= 1) & (self.kind == "proportions")
        if outside.any():
            frame, feature = np.argwhere(outside)[0]
            raise ValueError(
                f"sequence {i} has {frames[frame, feature]:.10g} at frame {frame}, feature {feature}, whose cell "
                f"contains no {self.kind}; mark unknown values with NaN, or pass a density of other values"
            )


@dataclass(eq=False, repr=False)
class Intervals(Probabilities):
    """An encoding of intervals given by their ends, two columns (low, high) for each feature.

    Both ends are standardised by the mean and the standard deviation of the middles of the intervals.

    Args:
        kind: kind of the values in the intervals: ``"reals"`` are standardised, ``"positive"`` values are scaled,
            ``"proportions"`` are left unchanged.
        robust: if True, a feature whose standard deviation a few outliers dominate is standardised by its median and
            the spread of its middle quantiles instead.

    Raises:
        ValueError: if a feature has no finite end, or if an interval is empty or contains no possible value.
    """

    kind: Values = "reals"
    robust: bool = False
    reads_infinite = True

    def values(self) -> tuple[Values, ...]:
        ends: Values = "ends"
        return (ends,) * self.size

    def fit(self, sequences: Sequences) -> Self:
        for i, x in enumerate(sequences):
            self._check_values(i, np.asarray(x))
        frames = np.concatenate([np.asarray(x, dtype=np.float64) for x in sequences])
        low, high = frames[:, 0::2], frames[:, 1::2]
        if self.kind != "reals":
            low = np.maximum(low, 0.0)
        ends = np.stack([low, high], -1)  # (N, D, 2)
        is_finite = np.isfinite(ends)
        n = is_finite.sum(-1)
        refuse_unseen((n == 0).all(0), range(n.shape[1]))
        middle = np.where(is_finite, ends, 0.0).sum(-1) / np.where(n, n, np.nan)
        centre, deviation = robust_units(np.nanmean(middle, 0), np.nanstd(middle, 0), middle, self.robust)
        mean, scale = _units(centre, np.where(deviation > 0, deviation, 1.0), self.kind)
        return self.restore({"mean": np.repeat(mean, 2), "scale": np.repeat(scale, 2)})

    def _check_values(self, i: int, frames: np.ndarray) -> None:
        if frames.shape[1] % 2:
            raise ValueError(f"sequence {i} has {frames.shape[1]} columns; pass two a feature, low and high")
        low, high = frames[:, 0::2], frames[:, 1::2]
        wrong = ~((low < high) | (np.isnan(low) & np.isnan(high)))
        if self.kind != "reals":
            wrong |= high <= 0
        if self.kind == "proportions":
            wrong |= low >= 1
        if wrong.any():
            frame, feature = np.argwhere(wrong)[0]
            raise ValueError(
                f"sequence {i} has at frame {frame}, feature {feature}, the interval from {low[frame, feature]:g} to "
                f"{high[frame, feature]:g}; pass low < high with {self.kind} between them, -inf and inf where there is "
                "no end, and NaN for both where nothing is known"
            )

    def encode(self, item: Item) -> np.ndarray:
        steps: np.ndarray = np.clip(super().encode(item), -ENDLESS, ENDLESS)
        return steps

    def decode(self, steps: np.ndarray) -> Item:
        ends = np.asarray(steps, dtype=np.float64)
        is_infinite = np.abs(ends) >= 0.5 * ENDLESS
        decoded: np.ndarray = np.where(is_infinite, np.sign(ends) * np.inf, np.asarray(super().decode(ends)))
        return decoded


def _units(mean: np.ndarray, deviation: np.ndarray, kind: Values) -> tuple[np.ndarray, np.ndarray]:
    """Return the shift and the scale that standardise values, each ``(D,)``: no shift unless they are reals.

    Proportions are not scaled either.

    Args:
        mean: shift of reals, ``(D,)``.
        deviation: scale of reals and positive values, ``(D,)``.
        kind: ``"reals"``, ``"positive"`` or ``"proportions"``.
    """
    shift = mean if kind == "reals" else np.zeros_like(mean)
    return shift, np.ones_like(deviation) if kind == "proportions" else deviation

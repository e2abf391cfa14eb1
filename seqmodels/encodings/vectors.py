"""Encodings of vectors by an affine map of each feature, ``z = (x - mean) / scale``, ``log p(x) = log p(z) - Σ log
scale``.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.step_maps import ConstantEncoder, StepMap, VectorEncoding
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.items import are_many_short
from seqmodels.sequences.mapped import MappedArray, Summary, any_mapped, parts_of
from seqmodels.sequences.measure import Values, is_atom
from seqmodels.sequences.profile import N_PROFILED, warn_of_repeats

SMALLEST_SCALE = float(np.nextafter(0, 1))
LARGEST_VALUE = 1e290  # float64 can sum much data of this size
RELATIVE_ROUNDING = 1e-12  # a deviation smaller than this, relative to the mean, is float64's rounding error
MIDDLE = ((0.8, 2.5631), (0.95, 3.9199))  # share of a distribution, and width of that middle part of a Gaussian
SET_BY_OUTLIERS = 3.0  # outliers dominate a deviation that is more than this many robust deviations
LARGEST_ANGLE = float(np.float32(np.pi))  # π, which float32 rounds up
N_RUNS_READ = 1 << 8  # number of runs of consecutive frames that are read of a memory-mapped array


class Vectors(VectorEncoding, ABC):
    """The base class of encodings of vectors that shift and scale each feature, ``encoded = (raw - mean) / scale``.

    To add one, define ``fit``, which calls ``restore`` with a state that has ``mean (D,)`` and ``scale (D,)`` of the D
    features.
    """

    reads = "vectors"
    is_unit_wise = True
    reads_infinite: ClassVar[bool] = False  # whether values may be infinite

    def check(self, i: int, item: Item) -> None:
        width = np.asanyarray(item).shape[1]
        if width != self.size:
            raise ValueError(
                f"sequence {i} has {width} features but the model was fitted on {self.size}; "
                "pass the same features as in fit"
            )
        frames = np.asanyarray(item)
        if not self.reads_infinite:
            refuse_infinite(i, item)
        self._check_values(i, frames)

    def check_all(self, sequences: Sequences) -> None:
        if are_many_short(sequences.items) and not any_mapped(sequences.items):
            with suppress(ValueError):  # the check below names the sequence
                self.check(0, np.concatenate(sequences.items))
                return
        super().check_all(sequences)

    def _check_values(self, i: int, frames: np.ndarray) -> None:
        """Raise ValueError if a feature cannot have one of the values of a sequence.

        Args:
            i: number of the sequence, which the message names.
            frames: raw frames, ``(T, D)``.
        """

    def check_finite(self, sequences: Sequences) -> None:
        for i, item in enumerate(sequences if not self.reads_infinite else ()):
            refuse_infinite(i, item)

    def encode(self, item: Item) -> np.ndarray:
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which scoring refuses with its position
            steps: np.ndarray = np.asarray(item) - self.mean
            steps /= self.scale
        return steps

    def decode(self, steps: np.ndarray) -> Item:
        item: np.ndarray = np.asarray(steps, dtype=np.float64) * self.scale + self.mean
        return item

    @property
    def has_atoms(self) -> bool:
        """True if some values have a probability, which no unit changes, so that log-determinants depend on values."""
        return "amounts" in self.values()

    def log_det(self, item: Item) -> np.ndarray | float:
        log_scales: np.ndarray = self._has_density(np.asarray(item)) @ np.log(self.scale)
        return -log_scales

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        return np.where(self._has_density(frames), -np.log(self.scale), 0.0)

    def _has_density(self, frames: np.ndarray) -> np.ndarray:
        is_known: np.ndarray = ~np.isnan(frames)
        return is_known & ~is_atom(frames, self.values()) if self.has_atoms else is_known

    def step_encoder(self, past: np.ndarray) -> ConstantEncoder:
        shift, scale = (np.asarray(each, dtype=np.float64)[None] for each in (self.mean, self.scale))
        return ConstantEncoder(StepMap(shift, scale, values=self.values() if self.has_atoms else None))

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.arange(len(steps))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mean, self.scale

    def state(self) -> State:
        return {"mean": self.mean, "scale": self.scale, **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        # For a float32 array on disk both are float32, so that encoded values are too.
        mean = state.get("mean") if isinstance(state, dict) else None
        dtype = np.float32 if isinstance(mean, np.ndarray) and mean.dtype == np.float32 else np.float64
        self.mean = check_between("mean", array_of(state, "mean", dtype, (None,)), -np.inf)
        self.scale = check_between("scale", array_of(state, "scale", dtype, self.mean.shape), SMALLEST_SCALE)
        self.size = len(self.mean)
        self.names = names_of_state(state, self.size)
        return self

    def identity(self, n_features: int) -> Self:
        """Return the encoding fitted as the map that changes nothing, for models whose parameters were given.

        Args:
            n_features: number of features.
        """
        return self.restore({"mean": np.zeros(n_features), "scale": np.ones(n_features)})


@dataclass(eq=False, repr=False)
class Standardize(Vectors):
    """An encoding that gives each feature zero mean and unit variance over the observed values of the training frames.

    A memory-mapped array is read once, one block at a time.

    Args:
        with_mean: if False, values are scaled and not shifted, for observations of positive reals.
        robust: if True, a feature whose standard deviation a few outliers dominate is standardised by its median and by
            the spread of its middle quantiles instead (``robust_units``); a list has one value for each feature.
            ``encoding="auto"`` sets it for densities with heavy tails, whose floor ``min_scale`` is in these units.

    Raises:
        ValueError: if a feature is constant over the training data, because its density would be unbounded.
    """

    with_mean: bool = True
    robust: bool | list[bool] = False

    def fit(self, sequences: Sequences) -> Self:
        mean, scale, frames = moments(sequences, np.ones(sequences.n_features, dtype=bool))
        warn_of_repeats(frames, sequences.features)
        mean, scale = robust_units(mean, scale, frames, self.robust)
        return self.restore({"mean": mean if self.with_mean else np.zeros_like(mean), "scale": scale})


@dataclass(eq=False, repr=False)
class Features(Vectors):
    """An encoding of vectors whose features are of several kinds, such as reals, bits and counts.

    Reals are standardised, positive values and amounts scaled, and all others left unchanged. Bits, counts and amounts
    of 0 have probabilities, which do not depend on units.

    Args:
        kinds: ``"reals"``, ``"positive"`` (above 0), ``"amounts"`` (0 or above), ``"proportions"`` (above 0 and below
            1), ``"angles"`` (radians from -π to π), ``"bits"`` (0 or 1) or ``"counts"`` (0, 1, 2, ...) for all
            features, or a list with one for each.
        robust: if True, reals whose standard deviation a few outliers dominate are standardised by their median and the
            spread of their middle quantiles instead; a list has one value for each feature.

    Raises:
        ValueError: if a feature that has a density is constant over the training data; ``check`` raises it for a value
            that a feature cannot have.
    """

    kinds: Values | list[Values]
    robust: bool | list[bool] = False

    def values(self) -> tuple[Values, ...]:
        return _kind_of_each(self.kinds, self.size)

    def fit(self, sequences: Sequences) -> Self:
        of_each = _kind_of_each(self.kinds, sequences.n_features)
        values = np.array(of_each)
        has_density = ~np.isin(values, ("bits", "counts"))
        mean, scale, frames = moments(sequences, has_density)
        # No warning about impossible values, because ``check`` refuses them with the caller's number of the sequence.
        if has_density.any() and not _impossible(frames, of_each).any():
            names: Sequence[object] = sequences.features or range(len(values))
            kept = [name for name, is_kept in zip(names, has_density, strict=True) if is_kept]
            warn_of_repeats(np.where(is_atom(frames, of_each), np.nan, frames)[:, has_density], kept)
        units = robust_units(mean, scale, frames, self.robust)
        mean, scale = (np.where(values == "reals", *each) for each in zip(units, (mean, scale), strict=True))
        scale = np.where(np.isin(values, ("reals", "positive", "amounts")), scale, 1.0)
        return self.restore({"mean": np.where(values == "reals", mean, 0.0), "scale": scale})

    def _check_values(self, i: int, frames: np.ndarray) -> None:
        for start, part in parts_of(frames):
            _refuse_values(i, part, self.values(), start)


def refuse_infinite(i: int, item: Item) -> None:
    """Raise ValueError if a sequence of vectors in memory has infinite values.

    Only vectors with an even number of columns, which could be ends of intervals, are searched; ``Sequences`` refuses
    infinite values in all others.

    Args:
        i: number of the sequence, which the message names.
        item: the sequence.
    """
    if isinstance(item, MappedArray) or np.shape(item)[1] % 2:
        return
    is_infinite = np.isinf(np.asarray(item))
    if is_infinite.any():
        raise ValueError(
            f"sequence {i} has an infinite value at frame {int(np.argmax(is_infinite.any(axis=1)))}; remove it or mark "
            "it missing with NaN; if values are ends of intervals, pass observation=observations.IntervalCensored(...)"
        )


def _kind_of_each(kinds: Values | list[Values], size: int) -> tuple[Values, ...]:
    if isinstance(kinds, str):
        return (kinds,) * size
    if len(kinds) != size:
        raise ValueError(f"kinds says what {len(kinds)} features are but the sequences have {size}; name one for each")
    return tuple(kinds)


# For each kind with a limited range: its range in words, and the observations that allow other values.
RANGES: dict[Values, tuple[str, str]] = {
    "positive": ("above 0", "GaussianMixture for all reals"),
    "amounts": ("0 or above", "GaussianMixture for all reals"),
    "proportions": ("above 0 and below 1", "GaussianMixture for all reals"),
    "angles": ("an angle in radians, from -π to π", "GaussianMixture for all reals"),
    "bits": ("0 or 1", "Poisson for counts, GaussianMixture for reals"),
    "counts": ("a count: 0, 1, 2, ...", "GaussianMixture for reals"),
}


def is_value(frames: np.ndarray, kind: Values) -> np.ndarray:
    """Return a mask of the values that a feature of a given kind may have, in the shape of ``frames``.

    Args:
        frames: raw values.
        kind: kind of the values, such as ``"reals"``, ``"bits"`` or ``"angles"``.
    """
    if kind == "positive":
        return np.asarray(frames > 0)
    if kind == "amounts":
        return np.asarray(frames >= 0)
    if kind == "proportions":
        return np.asarray((frames > 0) & (frames < 1))
    if kind == "angles":
        return np.asarray(np.abs(frames) <= LARGEST_ANGLE)
    if kind == "reals":
        return np.ones(frames.shape, dtype=bool)
    whole = (frames >= 0) & (frames == np.rint(frames))
    return np.asarray(whole & (frames <= 1) if kind == "bits" else whole)


def _impossible(frames: np.ndarray, values: tuple[Values, ...]) -> np.ndarray:
    """Return a mask of the values that their feature cannot have, ``(N, D)``; a missing value is possible.

    Args:
        frames: raw frames, ``(N, D)``.
        values: kind of the values of each feature.
    """
    bad = ~np.isnan(frames)
    for kind in set(values):
        columns = np.array([value == kind for value in values])
        bad[:, columns] &= ~is_value(frames[:, columns], kind)
    return np.asarray(bad)


def _refuse_values(i: int, frames: np.ndarray, values: tuple[Values, ...], start: int) -> None:
    bad = _impossible(frames, values)
    if not bad.any():
        return
    frame, feature = np.argwhere(bad)[0]
    expected, others = RANGES[values[feature]]
    if values[feature] == "positive" and frames[frame, feature] == 0:
        others += (
            ". If 0 says that nothing happened (an animal at rest, a day without rain), give it a probability of its "
            "own: observations.ZeroInflated(observations.Gamma())"
        )
    raise ValueError(
        f"sequence {i} has {frames[frame, feature]:g} at frame {start + frame}, feature {feature}, which must be "
        f"{expected}; mark unknown values with NaN, or give the feature another observation: {others}"
    )


# -- units where there are outliers ------------------------------------------------------------------------


def robust_units(
    mean: np.ndarray, deviation: np.ndarray, frames: np.ndarray, may_have_outliers: bool | Sequence[bool] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each feature, each ``(D,)``, or robust ones if outliers dominate.

    The robust units are the median, and the standard deviation of a Gaussian with the same middle quantiles: those of
    the middle four fifths of the values or, if these are all equal, of the middle nineteen twentieths. Outliers
    dominate if the deviation is more than ``SET_BY_OUTLIERS`` times the robust one.

    Args:
        mean, deviation: ordinary mean and standard deviation of each feature, each ``(D,)``.
        frames: frames that the quantiles are taken from, ``(N, D)``.
        may_have_outliers: True for features that may have outliers; one value, or one for each feature.

    Raises:
        ValueError: if ``may_have_outliers`` has another number of values.
    """
    if np.shape(may_have_outliers) not in ((), mean.shape):
        raise ValueError(f"robust has {len(np.ravel(may_have_outliers))} values but there are {len(mean)} features")
    mean, deviation = mean.copy(), deviation.copy()
    for d in np.flatnonzero(np.broadcast_to(may_have_outliers, mean.shape)):
        known = frames[:, d][np.isfinite(frames[:, d])].astype(np.float64)
        if not len(known):
            continue
        median = float(np.median(known))
        for share, width in MIDDLE:
            low, high = np.quantile(known, [0.5 - share / 2, 0.5 + share / 2])
            robust = (high - low) / width
            if robust > RELATIVE_ROUNDING * abs(median):
                break
        if robust > RELATIVE_ROUNDING * abs(median) and deviation[d] > SET_BY_OUTLIERS * robust:
            mean[d], deviation[d] = median, robust
    return mean, deviation


# -- mean and deviation ------------------------------------------------------------------------------------


def moments(sequences: Sequences, reals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each feature, each ``(D,)``, and the frames ``(N, D)``.

    Missing values are left out. The frames are all frames in memory, and a part of each array on disk.

    Args:
        sequences: training sequences of vectors.
        reals: True for each feature that is to be standardised, ``(D,)``; the others get mean 0 and deviation 1.

    Raises:
        ValueError: if a feature to standardise is constant or too large, or if a feature is always missing; the message
            names the feature.
    """
    names: Sequence[object] = range(sequences.n_features) if sequences.features is None else sequences.features
    frames = frames_of(sequences)
    if any(isinstance(x, MappedArray) for x in sequences):
        return *_moments_of_summary(summary_of(sequences), reals, names), frames
    return *_moments_in_memory(frames, reals, names), frames


def frames_of(sequences: Sequences) -> np.ndarray:
    """Return the frames of all sequences of vectors in one array, ``(N, D)``; of an array on disk, only a part."""
    most = -(-N_PROFILED // len(sequences))
    return np.concatenate([_some_of(x, most) if isinstance(x, MappedArray) else np.asarray(x) for x in sequences])


def summary_of(sequences: Sequences) -> Summary:
    """Return the extremes, moments and numbers of missing values of each feature of vectors over all sequences."""
    each = (x.summary if isinstance(x, MappedArray) else Summary.of(np.asarray(x)) for x in sequences)
    return reduce(Summary.with_, each)


def _some_of(frames: MappedArray, most: int) -> np.ndarray:
    """Return some frames of an array on disk, in contiguous parts spread over it; a short array is read whole.

    Args:
        frames: the array.
        most: about how many frames to return.
    """
    if len(frames) <= max(most, N_RUNS_READ):
        return frames.read(0, len(frames))
    length = -(-most // N_RUNS_READ)
    starts = np.linspace(0, len(frames) - length, N_RUNS_READ).astype(int)
    return np.concatenate([frames.read(t, t + length) for t in starts.tolist()]).astype(np.float64)


def _moments_of_summary(summary: Summary, reals: np.ndarray, names: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
    refuse_unseen(summary.n_missing == summary.n, names)
    largest = np.maximum(summary.highest, -summary.lowest)
    wrong = reals & (largest > LARGEST_VALUE)
    if wrong.any():
        feature = int(np.argmax(wrong))
        raise ValueError(
            f"feature {names[feature]} has a value of magnitude {largest[feature]:.3g} in the training data, which "
            "float64 cannot add up; pass it in other units, or mark the value missing with NaN"
        )
    scale = np.sqrt(summary.squares / np.maximum(summary.n - summary.n_missing, 1))
    constant = reals & (scale <= RELATIVE_ROUNDING * np.abs(summary.mean))
    if constant.any():
        feature = int(np.argmax(constant))
        _refuse_constant(summary.lowest[feature], summary.highest[feature], names[feature])
    _refuse_unsquarable(np.where(reals, scale, 1.0), names)
    return np.where(reals, summary.mean, 0.0), np.where(reals, scale, 1.0)


def refuse_unseen(unseen: np.ndarray, names: Sequence[object]) -> None:
    """Raise ValueError if a feature has no known value in the training data.

    Args:
        unseen: True for each feature without a known value, ``(D,)``.
        names: names of the features for the message.
    """
    if unseen.any():
        raise ValueError(f"feature {names[int(np.argmax(unseen))]} is missing in every frame; leave the feature out")


def _moments_in_memory(frames: np.ndarray, reals: np.ndarray, names: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
    refuse_unseen(np.isnan(frames).all(axis=0), names)
    _refuse_large(frames, reals, names)
    with np.errstate(over="ignore"):  # counts may overflow, but their mean is not used
        mean = np.nanmean(frames, axis=0)
        scale = _deviation(frames - mean)
    # A constant column still shows rounding noise around a large mean.
    constant = reals & (scale <= RELATIVE_ROUNDING * np.abs(mean))
    if constant.any():
        feature = int(np.argmax(constant))
        lowest, highest = np.nanmin(frames[:, feature]), np.nanmax(frames[:, feature])
        _refuse_constant(lowest, highest, names[feature], _observation_of_whole_numbers(frames))
    _refuse_unsquarable(np.where(reals, scale, 1.0), names)
    return np.where(reals, mean, 0.0), np.where(reals, scale, 1.0)


def _refuse_large(frames: np.ndarray, reals: np.ndarray, names: Sequence[object]) -> None:
    """Raise ValueError if a feature to standardise has a value too large for float64 to add up.

    Args:
        frames: raw frames, ``(N, D)``.
        reals: True for each feature that is to be standardised, ``(D,)``.
        names: names of the features for the message.
    """
    largest = np.maximum(np.nanmax(frames, axis=0), -np.nanmin(frames, axis=0)).astype(np.float64)
    wrong = reals & (largest > LARGEST_VALUE)
    if wrong.any():
        feature = int(np.argmax(wrong))
        frame = int(np.nanargmax(np.abs(frames[:, feature])))
        raise ValueError(
            f"feature {names[feature]} is {frames[frame, feature]:.3g} at frame {frame} of the training data, which "
            "float64 cannot add up; pass it in other units, or mark the value missing with NaN"
        )


def _observation_of_whole_numbers(frames: np.ndarray) -> str | None:
    """Return advice for an error to use an observation of bits or counts; None unless all values are whole numbers."""
    values = frames[~np.isnan(frames)]
    if not ((values >= 0) & (values == np.rint(values))).all():
        return None
    return (
        "all features are bits: pass observation=Bernoulli()"
        if values.max() <= 1
        else ("all features are counts: pass observation=Poisson()")
    )


def _refuse_constant(lowest: float, highest: float, name: object, hint: str | None = None) -> None:
    if lowest == highest:
        raise ValueError(
            f"feature {name} is constant over the training data, so its density is unbounded; "
            + ("leave the feature out" if hint is None else f"{hint}, or leave the feature out")
        )
    raise ValueError(
        f"feature {name} is constant over the training data up to rounding errors: its values go "
        f"from {lowest!r} to {highest!r}, and float64 has 16 digits; subtract its offset in higher precision first, "
        "or leave the feature out"
    )


def _deviation(centred: np.ndarray) -> np.ndarray:
    """Return the root mean square of each column of centred values, computed so that no magnitude overflows."""
    largest = np.nanmax(np.abs(centred), axis=0)
    safe = np.where(largest > 0, largest, 1.0)
    deviation: np.ndarray = largest * np.sqrt(np.nanmean((centred / safe) ** 2, axis=0))
    return deviation


def _refuse_unsquarable(scale: np.ndarray, names: Sequence[object]) -> None:
    with np.errstate(over="ignore", under="ignore"):
        lost = ~np.isfinite(scale**2) | (scale**2 < np.finfo(np.float64).tiny)
    if lost.any():
        i = int(np.argmax(lost))
        raise ValueError(
            f"feature {names[i]} has standard deviation {scale[i]:.3g}, whose square float64 cannot hold; "
            "pass it in other units"
        )

"""Vectors: ``z = (x - mean) / scale`` a feature, ``log p(x) = log p(z) - Σ log scale``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.encodings.affine import Affine
from seqmodels.profile import profile_of
from seqmodels.sequences import Sequences

LARGEST = 1e290  # value whose sum over much data float64 holds
RESOLVED = 1e-12  # of a feature's mean: a smaller deviation is of the order of what float64 rounds off
SAMPLE, PIECES = 1 << 20, 1 << 8  # frames and pieces that stand for a memory-mapped array
PROFILED = 1 << 14  # frames, from all over the data, that show what the values of a feature are like
FEWEST = 100  # frames, from which on what is frequent is no accident
COARSE = 0.05  # of a standard deviation: a grid of larger steps is one that a variance can shrink on


@dataclass(eq=False, repr=False)
class Standardize(Affine):
    """Zero mean and unit variance over the training frames; observed values only where some are missing.

    Of a memory-mapped array longer than ``SAMPLE`` frames, pieces from all over it stand for the whole.

    Raises:
        ValueError: a feature is constant over the training data (its density is unbounded).
    """

    @classmethod
    def identity(cls, n_features: int) -> Standardize:
        """The map that changes nothing, for models given by their parameters."""
        return cls().restore({"mean": np.zeros(n_features), "scale": np.ones(n_features)})

    def fit(self, sequences: Sequences) -> Self:
        frames = _in_memory(sequences)
        mean, scale = moments(frames, np.ones(frames.shape[1], dtype=bool))
        warn_of_atoms(frames)
        return self.restore({"mean": mean, "scale": scale})


def moments(frames: np.ndarray, reals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(D,)`` mean and deviation of the observed values; 0 and 1 where ``reals`` is false. Raises for a constant real."""
    unseen = np.isnan(frames).all(axis=0)
    if unseen.any():
        raise ValueError(f"feature {int(np.argmax(unseen))} is missing in every frame; leave the feature out")
    _refuse_large(frames, reals)
    with np.errstate(over="ignore"):  # of counts, whose mean is not used
        mean = np.nanmean(frames, axis=0)
        scale = _deviation(frames - mean)
    # A constant column still shows rounding noise around a large mean.
    constant = reals & (scale <= RESOLVED * np.abs(mean))
    if constant.any():
        _refuse_constant(frames, int(np.argmax(constant)))
    _refuse_immense(np.where(reals, scale, 1.0))
    return np.where(reals, mean, 0.0), np.where(reals, scale, 1.0)


def _refuse_large(frames: np.ndarray, reals: np.ndarray) -> None:
    """Values that float64 cannot add up."""
    largest = np.maximum(np.nanmax(frames, axis=0), -np.nanmin(frames, axis=0)).astype(np.float64)
    wrong = reals & (largest > LARGEST)
    if wrong.any():
        feature = int(np.argmax(wrong))
        frame = int(np.nanargmax(np.abs(frames[:, feature])))
        raise ValueError(
            f"feature {feature} is {frames[frame, feature]:.3g} at frame {frame} of the training data, which float64 "
            "cannot add up; pass it in other units, or mark the value missing with NaN"
        )


def _refuse_constant(frames: np.ndarray, feature: int) -> None:
    lowest, highest = np.nanmin(frames[:, feature]), np.nanmax(frames[:, feature])
    if lowest == highest:
        raise ValueError(
            f"feature {feature} is constant over the training data, so its density is unbounded; leave the feature out"
        )
    raise ValueError(
        f"feature {feature} is constant over the training data but for less than its values can hold: it goes from {lowest!r} to "
        f"{highest!r}, and float64 has 16 digits; subtract its offset in higher precision first, or leave the feature out"
    )


def _deviation(centred: np.ndarray) -> np.ndarray:
    """Root mean square of each column, whatever its magnitude."""
    largest = np.nanmax(np.abs(centred), axis=0)
    safe = np.where(largest > 0, largest, 1.0)
    return largest * np.sqrt(np.nanmean((centred / safe) ** 2, axis=0))


def _refuse_immense(scale: np.ndarray) -> None:
    with np.errstate(over="ignore", under="ignore"):
        lost = ~np.isfinite(scale**2) | (scale**2 < np.finfo(np.float64).tiny)
    if lost.any():
        i = int(np.argmax(lost))
        raise ValueError(
            f"feature {i} has standard deviation {scale[i]:.3g}, whose square float64 cannot hold; pass it in other units"
        )


def _in_memory(sequences: Sequences) -> np.ndarray:
    """``(N, D)`` all frames; of memory-mapped arrays, pieces spread over them, at most ``SAMPLE`` frames each."""
    return np.concatenate([_sample(x) if isinstance(x, np.memmap) else np.asarray(x) for x in sequences])


def _sample(frames: np.memmap) -> np.ndarray:
    if len(frames) <= SAMPLE:
        return np.asarray(frames)
    first = np.linspace(0, len(frames) - SAMPLE // PIECES, PIECES).astype(int)
    return np.concatenate([frames[a : a + SAMPLE // PIECES] for a in first]).astype(np.float64)


def warn_of_atoms(frames: np.ndarray, features: np.ndarray | None = None) -> None:
    """Values that repeat let a density grow without bound: the floor would set the figure.

    Args:
        frames: ``(N, D)`` of real features.
        features: their numbers in the raw data; None: 0 to D - 1.
    """
    numbers = np.arange(frames.shape[1]) if features is None else features
    found = _spikes(frames, numbers) + _repeated(frames)
    if found:
        warnings.warn(
            f"{'; '.join(found)}: densities grow without bound on values that repeat, and min_covariance may set the score and the "
            "ranking. Leave out a feature with a spike, or give it an observation of whole numbers (Columns with Bernoulli or Poisson); "
            "X.dithered(), before split, spreads values over their grid; X.profile() shows all features",
            UserWarning,
            stacklevel=4,
        )


def _spikes(frames: np.ndarray, numbers: np.ndarray) -> list[str]:
    if len(frames) < FEWEST:
        return []
    some = frames[:: -(-len(frames) // PROFILED)]
    profiles = [profile_of(column) for column in some.T]
    found = [
        f"feature {n} is {p.spike:g} in {p.spike_share:.0%} of the frames"
        for n, p in zip(numbers, profiles, strict=True)
        if p.kind == "spike"
    ]
    coarse = [
        (n, p.step)
        for n, p in zip(numbers, profiles, strict=True)
        if p.kind in ("grid", "counts", "bits") and p.step > COARSE * p.deviation
    ]
    if coarse:
        which, steps = (", ".join(f"{x:g}" for x in each) for each in zip(*coarse, strict=True))
        one = len(coarse) == 1
        found.append(
            f"feature {which} lies on a grid of step {steps}"
            if one
            else f"features {which} lie on grids of steps {steps}"
        )
    return found


def _repeated(frames: np.ndarray) -> list[str]:
    seen = frames[~np.isnan(frames).any(axis=1)]
    share = 1 - len(np.unique(seen, axis=0)) / len(seen) if len(seen) > 1 else 0.0
    return [f"{share:.0%} of the frames are exact copies of others"] if share > 0.05 else []

"""Vectors: ``z = (x - mean) / scale`` a feature, ``log p(x) = log p(z) - Σ log scale``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.encodings.base import Encoding, State
from seqmodels.sequences import Item, Sequences

SAMPLE, PIECES = 1 << 20, 1 << 8  # frames and pieces that stand for a memory-mapped array


@dataclass(eq=False, repr=False)
class Standardize(Encoding):
    """Zero mean and unit variance over the training frames; observed values only where some are missing.

    Of a memory-mapped array longer than ``SAMPLE`` frames, pieces from all over it stand for the whole.

    Raises:
        ValueError: a feature is constant over the training data (its density is unbounded).
    """

    reads = "vectors"

    @classmethod
    def identity(cls, n_features: int) -> Standardize:
        """The map that changes nothing, for models given by their parameters."""
        return cls().restore({"mean": np.zeros(n_features), "scale": np.ones(n_features)})

    def fit(self, sequences: Sequences) -> Self:
        frames = _in_memory(sequences)
        unseen = np.isnan(frames).all(axis=0)
        if unseen.any():
            raise ValueError(f"feature {int(np.argmax(unseen))} is missing in every frame; leave the feature out")
        mean, scale = np.nanmean(frames, axis=0), np.nanstd(frames, axis=0)
        # A constant column still shows rounding noise around a large mean.
        constant = scale <= 1e-12 * np.abs(mean)
        if constant.any():
            raise ValueError(
                f"feature {int(np.argmax(constant))} is constant over the training data, so its density is unbounded; "
                "leave the feature out"
            )
        _warn_of_atoms(frames)
        return self.restore({"mean": mean, "scale": scale})

    def check(self, i: int, item: Item) -> None:
        width = np.asarray(item).shape[1]
        if width != self.size:
            raise ValueError(
                f"sequence {i} has {width} features but the model was fitted on {self.size}; pass the same features as in fit"
            )

    def encode(self, item: Item) -> np.ndarray:
        return (np.asarray(item) - self.mean) / self.scale

    def decode(self, steps: np.ndarray) -> Item:
        return np.asarray(steps, dtype=np.float64) * self.scale + self.mean

    def log_det(self, item: Item) -> np.ndarray | float:
        return -(~np.isnan(np.asarray(item)) @ np.log(self.scale))

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return np.arange(len(steps))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mean, self.scale

    def state(self) -> State:
        return {"mean": self.mean, "scale": self.scale}

    def restore(self, state: State) -> Self:
        self.mean, self.scale = np.asarray(state["mean"]), np.asarray(state["scale"])
        self.size = len(self.mean)
        return self


def _in_memory(sequences: Sequences) -> np.ndarray:
    """``(N, D)`` all frames; of memory-mapped arrays, pieces spread over them, at most ``SAMPLE`` frames each."""
    return np.concatenate([_sample(x) if isinstance(x, np.memmap) else np.asarray(x) for x in sequences])


def _sample(frames: np.memmap) -> np.ndarray:
    if len(frames) <= SAMPLE:
        return np.asarray(frames)
    first = np.linspace(0, len(frames) - SAMPLE // PIECES, PIECES).astype(int)
    return np.concatenate([frames[a : a + SAMPLE // PIECES] for a in first]).astype(np.float64)


def _warn_of_atoms(frames: np.ndarray) -> None:
    """Repeated frames and values on a grid let a density grow without bound: the floor would set the figure."""
    seen = frames[~np.isnan(frames).any(axis=1)]
    if len(seen) < 2:
        return
    repeated = 1 - len(np.unique(seen, axis=0)) / len(seen)
    if repeated > 0.05:
        warnings.warn(
            f"{repeated:.0%} of the frames are exact copies of others (repeated or quantised values): densities grow without "
            "bound on them, and min_covariance may set the score; X.dithered() spreads values over their grid",
            UserWarning,
            stacklevel=4,
        )

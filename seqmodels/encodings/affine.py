"""Vectors by an affine map a feature: ``z = (x - mean) / scale``, ``log p(x) = log p(z) - Σ log scale``."""

from __future__ import annotations

from abc import ABC
from typing import Self

import numpy as np

from seqmodels.arrays import array_of, check_between
from seqmodels.encodings.base import Encoding, State
from seqmodels.sequences import Item

TINY = float(np.nextafter(0, 1))


class Affine(Encoding, ABC):
    """What encodings of vectors share. To add one, define ``fit``, which calls ``restore`` with ``mean (D,)`` and ``scale (D,)``."""

    reads = "vectors"

    def check(self, i: int, item: Item) -> None:
        width = np.asarray(item).shape[1]
        if width != self.size:
            raise ValueError(
                f"sequence {i} has {width} features but the model was fitted on {self.size}; pass the same features as in fit"
            )
        self._check_values(i, np.asarray(item))

    def _check_values(self, i: int, frames: np.ndarray) -> None:
        """Raise ``ValueError`` for values that a feature cannot have."""

    def encode(self, item: Item) -> np.ndarray:
        with np.errstate(over="ignore"):  # infinite then, which scoring refuses by sequence and position
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
        # Of a float32 array on disk both are float32, so that what is encoded is too.
        mean = state.get("mean") if isinstance(state, dict) else None
        dtype = np.float32 if isinstance(mean, np.ndarray) and mean.dtype == np.float32 else np.float64
        self.mean = check_between("mean", array_of(state, "mean", dtype, (None,)), -np.inf)
        self.scale = check_between("scale", array_of(state, "scale", dtype, self.mean.shape), TINY)
        self.size = len(self.mean)
        return self

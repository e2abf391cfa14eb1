"""Vectors whose features are reals, bits or counts: reals are standardised, whole numbers are left as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.encodings.affine import Affine
from seqmodels.encodings.standardize import moments, warn_of_atoms
from seqmodels.measure import Values
from seqmodels.sequences import Sequences


@dataclass(eq=False, repr=False)
class Features(Affine):
    """Each feature by what it may be; the likelihood of bits and counts is a probability, so it has no unit to convert.

    Args:
        kinds: ``"reals"``, ``"bits"`` (0 or 1) or ``"counts"`` (0, 1, 2, ...) of all features, or a list with one for each.

    Raises:
        ValueError: a real feature is constant over the training data; from ``check``: a value that a feature cannot have.
    """

    kinds: Values | list[Values]

    def values(self) -> tuple[Values, ...]:
        return _expanded(self.kinds, self.size)

    def fit(self, sequences: Sequences) -> Self:
        frames = np.concatenate([np.asarray(x) for x in sequences])
        reals = np.array([value == "reals" for value in _expanded(self.kinds, frames.shape[1])])
        mean, scale = moments(frames, reals)
        if reals.any():
            warn_of_atoms(frames[:, reals], np.flatnonzero(reals))
        return self.restore({"mean": mean, "scale": scale})

    def _check_values(self, i: int, frames: np.ndarray) -> None:
        _refuse_values(i, frames, self.values())


def _expanded(kinds: Values | list[Values], size: int) -> tuple[Values, ...]:
    if isinstance(kinds, str):
        return (kinds,) * size
    if len(kinds) != size:
        raise ValueError(f"kinds says what {len(kinds)} features are but the sequences have {size}; name one for each")
    return tuple(kinds)


def _refuse_values(i: int, frames: np.ndarray, values: tuple[Values, ...]) -> None:
    observed = ~np.isnan(frames)
    whole = (frames >= 0) & (frames == np.rint(frames))
    bits, counts = (np.array([value == kind for value in values]) for kind in ("bits", "counts"))
    bad = observed & ((bits & ~(whole & (frames <= 1))) | (counts & ~whole))
    if bad.any():
        frame, feature = np.argwhere(bad)[0]
        wanted = "0 or 1" if values[feature] == "bits" else "a count: 0, 1, 2, ..."
        other = (
            "Poisson for counts, GaussianMixture for reals"
            if values[feature] == "bits"
            else "GaussianMixture for reals"
        )
        raise ValueError(
            f"sequence {i} has {frames[frame, feature]:g} at frame {frame}, feature {feature}, which must be {wanted}; mark what "
            f"is unknown with NaN, or give the feature another observation ({other})"
        )

"""Standardization by the mean and deviation of the sequence so far, ``z_t = (x_t - m_t-1) / s_t-1``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between
from seqmodels.common.parameters import PositiveFloat
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import StepMap, as_frames
from seqmodels.encodings.vectors import SMALLEST_SCALE, Standardize
from seqmodels.sequences import Item, Sequences


@dataclass(eq=False, repr=False)
class RunningScale(SeriesEncoding):
    """An encoding that standardises each frame by the frames before it in its sequence.

    ``z_t = (x_t - m) / s`` with their mean m and standard deviation s, so
    ``log p(x_t | x_<t) = log p(z_t | z_<t) - log s``. m and s² are the mean and the variance of the observed frames
    before and of ``prior_frames`` pseudo-frames with the mean and the variance of the training data. So the first frame
    is standardised by the training data.

    Args:
        prior_frames: number of pseudo-frames from the training data.

    Raises:
        ValueError: if a feature is constant over the training data.

    >>> from seqmodels import Sequences
    >>> from seqmodels.encodings import RunningScale
    >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> RunningScale(2).fit(Sequences([x])).encode(10 * x).round(2).ravel().tolist()
    [-12.65, -0.35, 2.09, 2.34]
    """

    prior_frames: PositiveFloat = 10.0

    def fit(self, sequences: Sequences) -> Self:
        standard = Standardize().fit(sequences)
        return self.restore({"mean": standard.mean.astype(np.float64), "scale": standard.scale.astype(np.float64)})

    def encode(self, item: Item) -> np.ndarray:
        frames = as_frames(item)
        shift, scale = self._maps(frames)
        return np.asarray((frames - shift) / scale)

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(frames), 0.0, -np.log(self._maps(frames)[1]))

    def _maps(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the standard deviation by which each of T frames is standardised, each ``(T, D)``."""
        if not len(frames):
            return frames, np.ones_like(frames)
        start = RunningScaleEncoder(self, *(np.zeros((1, self.size)) for _ in range(3)))
        sums = RunningScaleEncoder(self, *(np.cumsum(each, axis=0)[:-1] for each in start.addends(frames)))
        steps = start.map, sums.map
        return np.concatenate([s.shift for s in steps]), np.concatenate([s.scale for s in steps])

    def step_encoder(self, past: np.ndarray) -> RunningScaleEncoder:
        start = RunningScaleEncoder(self, *(np.zeros((1, self.size)) for _ in range(3)))
        if not len(past):
            return start
        return RunningScaleEncoder(self, *(np.cumsum(each, axis=0)[-1:] for each in start.addends(past)))

    def state(self) -> State:
        return {"mean": self.mean, "scale": self.scale, **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        self.mean = check_between("mean", array_of(state, "mean", np.float64, (None,)), -np.inf)
        self.scale = check_between("scale", array_of(state, "scale", np.float64, self.mean.shape), SMALLEST_SCALE)
        self.size = len(self.mean)
        self.names = names_of_state(state, self.size)
        return self


@dataclass(frozen=True)
class RunningScaleEncoder:
    """The state of a ``RunningScale`` encoding after some frames of B sequences, as sums over their known values.

    Args:
        encoding: the fitted encoding, which has the ``mean`` and the ``scale`` of the training data.
        n: number of observed values, ``(B, D)``.
        total: sum of ``y = (x - mean) / scale`` over them, ``(B, D)``.
        squares: sum of ``y²`` over them, ``(B, D)``.
    """

    encoding: RunningScale
    n: np.ndarray
    total: np.ndarray
    squares: np.ndarray

    @property
    def map(self) -> StepMap:
        prior = self.encoding.prior_frames
        weight = prior + self.n
        mean = self.total / weight
        # At least the variance that the pseudo-frames would leave if all other frames were at the mean.
        variance = np.maximum((prior + self.squares) / weight - mean**2, prior / weight)
        scale = self.encoding.scale
        return StepMap(self.encoding.mean + scale * mean, scale * np.sqrt(variance))

    def addends(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what the next frames of B sequences add to the sums ``n``, ``total`` and ``squares``, each ``(B, D)``.

        Args:
            x: a raw frame of each sequence, ``(B, D)``.
        """
        is_seen = ~np.isnan(x)
        y = np.where(is_seen, (x - self.encoding.mean) / self.encoding.scale, 0.0)
        return is_seen.astype(np.float64), y, y * y

    def after(self, x: np.ndarray) -> RunningScaleEncoder:
        n, total, squares = self.addends(x)
        return replace(self, n=self.n + n, total=self.total + total, squares=self.squares + squares)

    def select(self, rows: np.ndarray) -> RunningScaleEncoder:
        return replace(self, n=self.n[rows], total=self.total[rows], squares=self.squares[rows])

"""``Differences``: ``z_t = (1 - B)^order (1 - B^season) x_t``, where ``B x_t = x_t-1`` (Box & Jenkins 1970)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between
from seqmodels.common.parameters import NotNegative, PositiveInt
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import StepMap, as_frames
from seqmodels.encodings.vectors import SMALLEST_SCALE
from seqmodels.sequences import Item, Sequences

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(eq=False, repr=False)
class Differences(SeriesEncoding):
    """Differences to earlier frames of the same sequence: ``z_t = (1 - B)^order (1 - B^season) x_t``.

    Given the past that is a shift, so its log-determinant is 0. The first ``order + season`` frames are no differences,
    and a model does not read them; they have a density of their own: ``x_1 ~ N(m, s²)``, and after it the random walk
    ``x_t ~ N(x_t-1 + c, r²)``, independent over features. m and s² are the mean and variance of the first frames of the
    training sequences and of one more that is spread as all frames are: of a single series half of it is the spread of
    the whole series. c and r² are the mean and variance of all changes from one training frame to the next.

    A missing value is refused: a frame after it would have no difference.

    Args:
        order: how many times the change from the frame before is taken.
        season: frames of a season, whose change is taken once; None: there is none.

    Raises:
        ValueError: neither an order nor a season; a season of 1, which is an order; from ``check``: a missing value.

    >>> from seqmodels import Sequences
    >>> from seqmodels.encodings import Differences
    >>> x = np.array([[1.0], [3.0], [7.0], [4.0]])
    >>> Differences(1).fit(Sequences([x])).encode(x).ravel().tolist()
    [2.0, 4.0, -3.0]
    """

    order: NotNegative = 1
    season: PositiveInt | None = None

    @property
    def n_initial(self) -> int:
        return self.order + (self.season or 0)

    @property
    def keeps_missing(self) -> bool:
        return False

    @property
    def _past_weights(self) -> dict[int, float]:
        """``c_j`` by lag j, those that are not 0: ``z_t = x_t - Σ_j c_j x_t-j``."""
        polynomial = np.ones(1)
        for _ in range(self.order):
            polynomial = np.convolve(polynomial, [1.0, -1.0])
        if self.season is not None:
            polynomial = np.convolve(polynomial, [1.0, *[0.0] * (self.season - 1), -1.0])
        return {lag: -float(weight) for lag, weight in enumerate(polynomial) if lag and weight}

    def fit(self, sequences: Sequences) -> Self:
        if self.n_initial == 0:
            raise ValueError("Differences of order 0 and no season changes nothing; pass an order or a season")
        if self.season == 1:
            raise ValueError("season is 1, which is a difference to the frame before; pass order instead")
        self.size = sequences.n_features
        frames = [as_frames(item) for item in sequences]
        self.refuse_short(sequences)
        for i, each in enumerate(frames):
            self.check_values(i, each)
        first, every = np.stack([each[0] for each in frames]), np.concatenate(frames)
        overall = every.mean(0)
        mean = (first.sum(0) + overall) / (len(first) + 1)
        squares = ((first - mean) ** 2).sum(0) + every.var(0) + (overall - mean) ** 2
        changes = np.concatenate([np.diff(each, axis=0) for each in frames])
        scale, step_scale = np.sqrt(squares / (len(first) + 1)), changes.std(0)
        names = range(self.size) if sequences.features is None else sequences.features
        for feature in np.flatnonzero(~(scale > 0) | ~(step_scale > 0)):
            raise ValueError(
                f"feature {names[feature]} is constant, or changes by one amount, over the training data, so its "
                "density is unbounded; leave the feature out"
            )
        return self.restore({"mean": mean, "scale": scale, "step_mean": changes.mean(0), "step_scale": step_scale})

    def check_values(self, i: int, frames: np.ndarray) -> None:
        missing = np.isnan(frames).any(axis=1)
        if missing.any():
            raise ValueError(
                f"sequence {i} has a NaN at frame {int(np.argmax(missing))}, and this model cannot sum out what is "
                f"missing, to which {self!r} has no difference; fill it in, or pass encoding=Standardize(), which "
                "reads levels"
            )

    def encode(self, item: Item) -> np.ndarray:
        frames, d = as_frames(item), self.n_initial
        steps = frames[d:]
        if not len(steps):
            return steps.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(steps - self._shift(lambda lag: frames[d - lag : len(frames) - lag]))

    def _shift(self, before: Callable[[int], np.ndarray]) -> np.ndarray:
        """``Σ_j c_j x_t-j`` of frames ``before`` by a lag."""
        return np.asarray(sum(weight * before(lag) for lag, weight in self._past_weights.items()))

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        result = np.zeros(frames.shape)
        early = frames[: self.n_initial]
        if len(early):
            before = np.concatenate([self.mean[None], early[:-1] + self.step_mean])
            scale = np.concatenate([self.scale[None], np.broadcast_to(self.step_scale, (len(early) - 1, self.size))])
            z = (early - before) / scale
            result[: len(early)] = -0.5 * (z * z + LOG_2PI) - np.log(scale)
        return result

    def step_encoder(self, past: np.ndarray) -> DifferencesEncoder:
        return DifferencesEncoder(self, past[None, max(0, len(past) - self.n_initial) :])

    def map_after(self, last: np.ndarray) -> StepMap:
        """Of n sequences whose ``last (n, p, D)`` frames these are, all of them where p is below ``n_initial``."""
        n, p = last.shape[:2]
        if p == self.n_initial:
            return StepMap(self._shift(lambda lag: last[:, p - lag]), np.ones((n, self.size)))
        shift, scale = (self.mean, self.scale) if p == 0 else (last[:, -1] + self.step_mean, self.step_scale)
        size = (n, self.size)
        return StepMap(np.broadcast_to(shift, size), np.broadcast_to(scale, size), is_modelled=False)

    def state(self) -> State:
        first = {"mean": self.mean, "scale": self.scale}
        return {**first, "step_mean": self.step_mean, "step_scale": self.step_scale, **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        mean = array_of(state, "mean", np.float64, (None,))
        means = [array_of(state, name, np.float64, mean.shape) for name in ("mean", "step_mean")]
        scales = [array_of(state, name, np.float64, mean.shape) for name in ("scale", "step_scale")]
        self.mean, self.step_mean = (check_between("mean", each, -np.inf) for each in means)
        self.scale, self.step_scale = (check_between("scale", each, SMALLEST_SCALE) for each in scales)
        self.size = len(mean)
        self.names = names_of_state(state, self.size)
        return self


@dataclass(frozen=True)
class DifferencesEncoder:
    """``encoding`` after the ``last (n, p, D)`` frames of n sequences."""

    encoding: Differences
    last: np.ndarray

    @property
    def map(self) -> StepMap:
        """The map of the next step, given the frames so far."""
        return self.encoding.map_after(self.last)

    def after(self, x: np.ndarray) -> DifferencesEncoder:
        """After each sequence's next raw step, ``x (n, D)``."""
        last = np.concatenate([self.last, x[:, None]], axis=1)
        return replace(self, last=last[:, max(0, last.shape[1] - self.encoding.n_initial) :])

    def select(self, rows: np.ndarray) -> DifferencesEncoder:
        """Of the sequences ``rows (m,)``."""
        return replace(self, last=self.last[rows])

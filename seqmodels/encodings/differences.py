"""Differences of a series, ``z_t = (1 - B)^order (1 - B^season) x_t`` with ``B x_t = x_t-1`` (Box and Jenkins 1970)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between
from seqmodels.common.constants import LOG_2PI
from seqmodels.common.parameters import NotNegative, PositiveInt
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import StepMap, as_frames
from seqmodels.encodings.vectors import SMALLEST_SCALE, refuse_unseen
from seqmodels.sequences import Item, Sequences


@dataclass(eq=False, repr=False)
class Differences(SeriesEncoding):
    """An encoding of each frame by its differences to earlier frames, ``z_t = (1 - B)^order (1 - B^season) x_t``.

    B is the lag operator, ``B x_t = x_t-1``. Given the past, this is a shift, so the log-determinant is 0. The first
    ``order + season`` frames have no difference, and the model does not read them. They have a density of their own:
    ``x_1 ~ N(m, s²)``, and then a random walk ``x_t ~ N(x_t-1 + c, r²)``, independent over features. m and s² are the
    mean and the variance of the first frames of the training sequences together with one pseudo-frame that is
    distributed like all frames; for a single series, half of this estimate comes from the spread of the whole series. c
    and r² are the mean and the variance of all changes from one training frame to the next.

    If values before a frame are missing, z is the deviation of the frame from its expectation given everything observed
    before, under independent Gaussian differences with the mean and the variance of the random walk. It is scaled to
    the unit of a difference: divided by the ratio by which the missing values enlarge its standard deviation, so that
    the log-determinant of the frame is minus the logarithm of this ratio. After a gap of k frames under
    ``Differences(1)``, z is ``c + (x_t - x_t-k-1 - (k + 1) c) / √(k + 1)``. Under ``Differences(0, s)``, a missing
    frame one season earlier is replaced by the frame two seasons earlier plus one season's growth. A missing value
    always gives a missing z.

    Args:
        order: number of times the change from the frame before is taken.
        season: number of frames in a season, whose change is taken once; None means no season.

    Raises:
        ValueError: if there is neither an order nor a season, if the season is 1 (which is an order), or if a feature
            does not change.

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
    def n_past(self) -> int:
        return self.n_initial

    @property
    def _past_weights(self) -> dict[int, float]:
        """The weights ``c_j`` by lag j that are not 0 in the difference ``z_t = x_t - Σ_j c_j x_t-j``."""
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
        names = range(self.size) if sequences.features is None else sequences.features
        every = np.concatenate(frames)
        if np.isnan(every).any():
            refuse_unseen(np.isnan(every).all(0), names)
            columns = [_walk_with_gaps([each[:, d] for each in frames]) for d in range(self.size)]
            mean, scale, step_mean, step_scale = np.array(columns).T
        else:
            first, overall = np.stack([each[0] for each in frames]), every.mean(0)
            mean = (first.sum(0) + overall) / (len(first) + 1)
            squares = ((first - mean) ** 2).sum(0) + every.var(0) + (overall - mean) ** 2
            changes = np.concatenate([np.diff(each, axis=0) for each in frames])
            scale, step_mean, step_scale = np.sqrt(squares / (len(first) + 1)), changes.mean(0), changes.std(0)
        smallest = rounding(every)
        for feature in np.flatnonzero(~(scale > smallest) | ~(step_scale > smallest)):
            raise ValueError(
                f"feature {names[feature]} is constant, or changes by a constant amount, over the training data, so "
                "its density is unbounded; leave the feature out"
            )
        return self.restore({"mean": mean, "scale": scale, "step_mean": step_mean, "step_scale": step_scale})

    def encode(self, item: Item) -> np.ndarray:
        frames, d = as_frames(item), self.n_initial
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isnan(frames).any():
                shift, scale = self._maps(frames)
                return np.asarray(((frames - shift) / scale)[d:])
            return np.asarray(frames[d:] - self._of_earlier(frames))

    def _of_earlier(self, frames: np.ndarray) -> np.ndarray:
        """Return the weighted sum of earlier frames that a difference subtracts, ``Σ_j c_j x_t-j``.

        The result is ``(T - n_initial, D)``, for all frames that have a difference.
        """
        n, d = len(frames), self.n_initial
        if n <= d:
            return np.zeros((0, self.size))
        return np.asarray(sum(weight * frames[d - lag : n - lag] for lag, weight in self._past_weights.items()))

    def _maps(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the shift and the scale in ``x_t = shift + scale z_t`` for each of T frames, each ``(T, D)``."""
        d, n = self.n_initial, len(frames)
        first = np.concatenate([self.mean[None], frames[: d - 1] + self.step_mean])[: min(d, n)]
        shift, scale = np.concatenate([first, self._of_earlier(frames)]), np.ones(frames.shape)
        scale[:d], scale[:1] = self.step_scale, self.scale
        is_complete = self._are_complete(frames)
        encoder: DifferencesEncoder | None = None
        for t in np.flatnonzero(~is_complete[:-1]).tolist():
            if encoder is None or is_complete[t - 1]:
                encoder = DifferencesEncoder.after_complete(self, frames[: t - 1])
            encoder = encoder.after(frames[t - 1 : t])
            shift[t], scale[t] = encoder.map.shift[0], encoder.map.scale[0]
        return shift, scale

    def _are_complete(self, frames: np.ndarray) -> np.ndarray:
        """Return a mask ``(T + 1,)``, True at t if none of the frames that a difference at t uses has a missing value.

        They are the ``n_initial`` frames before frame t.
        """
        at = np.arange(len(frames))
        missing = np.maximum.accumulate(np.where(np.isnan(frames).any(1), at, -1))  # the last of frames up to each
        return np.concatenate([[True], at - missing >= np.minimum(at + 1, self.n_initial)])

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        d, is_missing = self.n_initial, np.isnan(frames)
        has_gaps = bool(is_missing.any())
        read = frames if has_gaps else frames[:d]  # without gaps, only the first frames have values
        result = np.zeros(frames.shape)
        if len(read):
            shift, scale = self._maps(read)
            z = (read[:d] - shift[:d]) / scale[:d]
            result[: len(read)] = -np.log(scale)
            result[:d] += -0.5 * (z * z + LOG_2PI)
        if has_gaps:
            result[is_missing] = 0.0
        return result

    def step_encoder(self, past: np.ndarray) -> DifferencesEncoder:
        start = int(np.flatnonzero(self._are_complete(past))[-1])
        encoder = DifferencesEncoder.after_complete(self, past[:start])
        for frame in past[start:]:
            encoder = encoder.after(frame[None])
        return encoder

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


def rounding(x: np.ndarray) -> np.ndarray:
    """Return the standard deviation below which changes of values may be rounding errors only, ``(...)``.

    Args:
        x: the values of T frames, ``(T, ...)``.

    >>> x = 0.1 * np.arange(50)  # its changes differ in the last digit
    >>> bool(0 < np.diff(x).std() < rounding(x))
    True
    """
    return np.asarray(2 * np.finfo(np.float64).eps * np.nanmax(np.abs(x), axis=0))


def _walk_with_gaps(columns: list[np.ndarray]) -> tuple[float, float, float, float]:
    """Fit a random walk to series of one feature, arrays ``(T,)`` with NaN, and return its parameters ``(m, s, c, r)``.

    m and s are the mean and the deviation of the first observed value of a column, c and r those of the change from one
    frame to the next. A change over k frames has mean k c and variance k r²; c and r² are their most likely values, or
    0 if no column has two observed frames.
    """
    observed = [np.flatnonzero(~np.isnan(x)) for x in columns]
    first = np.array([x[at[0]] for x, at in zip(columns, observed, strict=True) if len(at)])
    every = np.concatenate([x[at] for x, at in zip(columns, observed, strict=True)])
    mean = (first.sum() + every.mean()) / (len(first) + 1)
    squares = ((first - mean) ** 2).sum() + every.var() + (every.mean() - mean) ** 2
    changes = np.concatenate([np.diff(x[at]) for x, at in zip(columns, observed, strict=True)])
    gaps = np.concatenate([np.diff(at) for at in observed])
    if not len(changes):
        return mean, np.sqrt(squares / (len(first) + 1)), 0.0, 0.0
    step_mean = changes.sum() / gaps.sum()
    step_scale = np.sqrt(((changes - gaps * step_mean) ** 2 / gaps).mean())
    return mean, np.sqrt(squares / (len(first) + 1)), step_mean, step_scale


@dataclass(frozen=True)
class DifferencesEncoder:
    """The state of a ``Differences`` encoding after some frames of n sequences, which encodes their next step.

    It is a Kalman filter of the missing values among the last frames.

    Args:
        encoding: the fitted encoding.
        last: the last p frames, oldest first, ``(n, p, D)``, where p is ``n_initial`` or fewer at the start; a missing
            value is replaced by its expectation given everything observed.
        lags: how many frames ago each of the k frames with a missing value was, ``(k,)``.
        covariance: covariance of the missing values of each feature at these k frames, ``(n, D, k, k)``, or
            ``(1, D, k, k)`` if it is the same for all sequences.
        weights: the weights ``c_j`` of earlier frames in a difference ``x_t - Σ_j c_j x_t-j``, by lag j.
    """

    encoding: Differences
    last: np.ndarray
    lags: np.ndarray
    covariance: np.ndarray
    weights: dict[int, float]

    @classmethod
    def after_complete(cls, encoding: Differences, past: np.ndarray) -> DifferencesEncoder:
        """Return the state of the encoding of one sequence after frames of which the last have no missing value.

        Args:
            encoding: the fitted encoding.
            past: the frames, ``(T, D)``; the last ``n_initial``, the number of frames that a difference needs, are
                complete.
        """
        last, none = past[None, max(0, len(past) - encoding.n_initial) :], np.zeros(0, dtype=np.int64)
        return cls(encoding, last, none, np.zeros((1, encoding.size, 0, 0)), encoding._past_weights)

    def _mean(self) -> np.ndarray:
        """Return the expectation of the next frame, ``(n, D)``."""
        if self._has_differences:
            return np.asarray(self._of_earlier() + self._growth)
        if self.last.shape[1]:
            return np.asarray(self.last[:, -1] + self.encoding.step_mean)
        return np.broadcast_to(self.encoding.mean, (len(self.last), self.encoding.size))

    @property
    def _has_differences(self) -> bool:
        return bool(self.last.shape[1] == self.encoding.n_initial)

    @property
    def _growth(self) -> np.ndarray:
        """The expected next difference, ``(D,)``, if each frame changes by the mean step of the training data."""
        return np.asarray(self.encoding.step_mean * sum(lag * c for lag, c in self.weights.items()))

    @property
    def _deviation(self) -> np.ndarray:
        """The standard deviation of the next frame given complete frames before it, ``(D,)``."""
        return self.encoding.step_scale if self.last.shape[1] else self.encoding.scale

    def _of_earlier(self) -> np.ndarray:
        """Return the weighted sum of earlier frames that the next difference subtracts, ``(n, D)``."""
        p = self.last.shape[1]
        return np.asarray(sum(weight * self.last[:, p - lag] for lag, weight in self.weights.items()))

    def _covariance_with_next(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what k frames with missing values contribute to the prediction of the next frame.

        The first result is their covariance with the next frame, ``(n, D, k)``; the second is the variance that they
        add to it, ``(n, D)``. n may be 1.
        """
        by_lag = self.weights if self._has_differences else {1: 1.0}
        weights = np.array([by_lag.get(lag, 0.0) for lag in self.lags.tolist()])
        with_next = self.covariance @ weights
        return with_next, np.maximum(with_next @ weights, 0.0)

    @property
    def map(self) -> StepMap:
        deviation, ratio = self._deviation, np.ones((len(self.last), self.encoding.size))
        if len(self.lags):
            ratio *= np.sqrt(1 + self._covariance_with_next()[1] / deviation**2)
        if not self._has_differences:
            return StepMap(self._mean(), deviation * ratio, is_modelled=False)
        shift = self._of_earlier()
        return StepMap(shift + (1 - ratio) * self._growth if len(self.lags) else shift, ratio)

    def after(self, x: np.ndarray) -> DifferencesEncoder:
        last, lags, covariance, is_missing = self.last, self.lags, self.covariance, np.isnan(x)
        if len(lags) or is_missing.any():
            is_seen, mean, (with_next, added) = ~is_missing, self._mean(), self._covariance_with_next()
            variance = added + self._deviation**2
            seen = is_seen[:1] if len(covariance) == 1 and (is_seen == is_seen[:1]).all() else is_seen
            gain = np.where(seen[..., None], with_next / variance[..., None], 0.0)
            errors = np.where(is_seen, x - mean, 0.0)
            x = np.where(is_seen, x, mean)
            last = last.copy()
            last[:, last.shape[1] - lags] += (gain * errors[..., None]).swapaxes(1, 2)
            covariance = covariance - gain[..., None] * with_next[..., None, :]
            next_with = np.where(seen[..., None], 0.0, with_next)
            next_variance = np.where(seen, 0.0, variance)
            covariance = np.concatenate([covariance, next_with[..., None, :]], axis=2)
            column = np.concatenate([next_with, next_variance[..., None]], axis=2)
            covariance = np.concatenate([covariance, column[..., None]], axis=3)
            lags = np.append(lags + 1, 1)
            is_kept = (lags <= self.encoding.n_initial) & covariance.any(axis=(0, 1, 3))
            lags, covariance = lags[is_kept], covariance[:, :, is_kept][..., is_kept]
        last = np.concatenate([last, x[:, None]], axis=1)
        last = last[:, max(0, last.shape[1] - self.encoding.n_initial) :]
        return DifferencesEncoder(self.encoding, last, lags, covariance, self.weights)

    def select(self, rows: np.ndarray) -> DifferencesEncoder:
        covariance = self.covariance if len(self.covariance) == 1 else self.covariance[rows]
        return replace(self, last=self.last[rows], covariance=covariance)

"""The Kalman filter and smoother of one autoregression, of missing values alone.

Once p complete frames have passed all of the past is known. A *gap* is what lies between: from a frame with a missing
value to the first frame whose past is known again. There the filter holds mean and covariance of the missing values
among the last p frames and of nothing else, however far the autoregression looks back (Durbin and Koopman 2012, *Time
series analysis by state space methods*, chapter 4). Gaps are filtered side by side: the k-th step has the k-th frames
of all that have so many.

Which values are missing depends on the data alone (``Gaps``), what is known of them on the regression (``filtered``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.observations import AutoregressiveGaussian


class Step(NamedTuple):
    """The k-th frames of n gaps, of whose past up to m values are missing, and of themselves up to u.

    Attributes:
        rows: which rows of ``Gaps`` they are.
        places: ``(n, m + u)`` which of the ``(p + 1) D`` values of past and frame are missing, in order, first the m of
            the past; ``(p + 1) D`` stands for none, where a gap has fewer.
        regressors: ``(n, m)`` those of the past, none of the first p frames, which do not depend on it.
        frame: ``(n, u, D)`` float64, 1 in row i at the i-th missing feature of the frame; None: frames are complete.
        kept: ``(n', m')`` which of the m + u are missing of the past of the n' gaps' next frame; None: the first m'.
        is_kept: ``(n', m')`` float64, 0 where a gap has fewer; None: all have m'.
    """

    rows: slice
    places: Tensor
    regressors: Tensor
    frame: Tensor | None
    kept: Tensor | None
    is_kept: Tensor | None


@dataclass(frozen=True)
class Moments:
    """Gaussians of missing values: of each step means ``(n, m)`` and covariances ``(n, m, m)``, zero for none."""

    means: list[Tensor]
    covariances: list[Tensor]


@dataclass(frozen=True)
class Gaps:
    """All gaps of some sequences, the longest first; their frames are rows, step by step.

    A gap that does not end before its sequence has one frame more, the one to come, of which all is missing.

    Attributes:
        steps: what is missing where.
        sequence, time: ``(R,)`` which frame a row is.
        is_first: ``(R,)`` whether it is the first of a gap, whose past is known.
        is_to_come: ``(R,)`` whether it is the one after the end of its sequence.
        is_early: ``(R,)`` whether it is one of the first p frames, which do not depend on the past.
        values: ``(R, (p + 1) D)`` float64, past and frame, zero where a value is missing or before the start.
        is_observed: ``(R, D)`` of the frame.
    """

    steps: list[Step]
    sequence: np.ndarray
    time: np.ndarray
    is_first: np.ndarray
    is_to_come: np.ndarray
    is_early: Tensor
    values: Tensor
    is_observed: Tensor

    @classmethod
    def of(cls, sequences: Sequence[np.ndarray], order: int) -> Gaps:
        """Those of encoded sequences ``(T, D)``, NaN where values are missing, for an autoregression of ``order`` p."""
        bounds = [(stop - first, i, first) for i, x in enumerate(sequences) for first, stop in gaps_of(x, order)]
        bounds.sort(reverse=True)
        n_frames, which, first = np.array(bounds, dtype=np.int64).reshape(-1, 3).T
        n_frames, size = n_frames + 1, sequences[0].shape[1]
        sizes = [int((n_frames > k).sum()) for k in range(int(n_frames.max(initial=0)))]
        frames = [_frames(sequences[i], t - order, t + n) for n, i, t in zip(n_frames, which, first, strict=True)]
        joined = np.concatenate([np.empty((0, size)), *frames])
        gap, k = np.concatenate([np.arange(0), *map(np.arange, sizes)]), np.repeat(np.arange(len(sizes)), sizes)
        time, start = first[gap] + k, (np.cumsum(n_frames + order) - n_frames - order)[gap] + k
        places = np.arange(order + 1)
        windows = joined[start[:, None] + places]  # (R, p + 1, D)
        is_missing = np.isnan(windows) & (time[:, None] + places >= order)[:, :, None]
        return cls(
            _steps(is_missing.reshape(len(k), (order + 1) * size), time < order, size, sizes),
            which[gap],
            time,
            k == 0,
            time == np.array([len(x) for x in sequences])[which[gap]],
            torch.from_numpy(time < order),
            torch.from_numpy(np.nan_to_num(windows).reshape(len(k), (order + 1) * size)),
            torch.from_numpy(~is_missing[:, -1]),
        )

    @property
    def width(self) -> int:
        """(p + 1) D, how many values past and frame have."""
        return self.values.shape[1]

    def dense(self, moments: Moments, width: int) -> tuple[Tensor, Tensor]:
        """Means ``(R, width)`` and covariances ``(R, width, width)`` of the first values of past and frame."""
        means = self._filled(moments)[:, :width]
        covariances = means.new_zeros(len(means), width, width)
        row, i, j = self._pairs(moments)
        is_some = (i < width) & (j < width)
        covariances[row[is_some], i[is_some], j[is_some]] = _flat(moments.covariances)[is_some]
        return means, covariances

    def sums(self, moments: Moments, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``Σ E[w wᵀ]``, ``Σ E[w]`` and ``Σ 1`` of past and frame w, over rows of ``weights (R,)``.

        Frames that do not depend on their past, and those to come, do not count.
        """
        counts = weights.masked_fill(self.is_early | torch.from_numpy(self.is_to_come), 0.0)
        means, width = self._filled(moments), self.width + 1
        weighted = counts.unsqueeze(1) * means
        row, i, j = self._pairs(moments)
        covariances = torch.bincount(i * width + j, counts[row] * _flat(moments.covariances), width * width)
        products = weighted.T @ means + covariances.view(width, width)[:-1, :-1]
        return products, weighted.sum(0), counts.sum()

    def _filled(self, moments: Moments) -> Tensor:
        """``(R, (p + 1) D)`` values of past and frame, means in the place of missing ones."""
        row, place = self._places(moments)
        filled = torch.nn.functional.pad(self.values, (0, 1))
        filled[row, place] = _flat(moments.means)
        return filled[:, :-1]

    def _places(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Row and place of each of the means."""
        places = [step.places[:, : m.shape[1]] for step, m in zip(self.steps, moments.means, strict=True)]
        return self._rows([each.shape[1] for each in places]), _flat(places, torch.int64)

    def _pairs(self, moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
        """Row and both places of each of the covariances."""
        places = [step.places[:, : m.shape[1]] for step, m in zip(self.steps, moments.means, strict=True)]
        i = _flat([each.unsqueeze(2).expand(-1, -1, each.shape[1]) for each in places], torch.int64)
        j = _flat([each.unsqueeze(1).expand(-1, each.shape[1], -1) for each in places], torch.int64)
        return self._rows([each.shape[1] ** 2 for each in places]), i, j

    def _rows(self, n_values: list[int]) -> Tensor:
        """The row of each of the values that rows of each step have so many of."""
        n_rows = torch.tensor([len(step.places) for step in self.steps], dtype=torch.int64)
        of_each = torch.tensor(n_values, dtype=torch.int64).repeat_interleave(n_rows)
        return torch.arange(len(self.values)).repeat_interleave(of_each)


def gaps_of(x: np.ndarray, order: int) -> list[tuple[int, int]]:
    """``[first, stop)``: from a frame with a missing value until ``order`` complete frames have passed."""
    missing = np.isnan(np.asarray(x)).any(axis=1)
    if not missing.any():
        return []
    # After frame t the past is uncertain if one of its last p frames misses a value.
    uncertain = np.convolve(missing, np.ones(order))[: len(x)] > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], uncertain, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _frames(x: np.ndarray, start: int, stop: int) -> np.ndarray:
    """``[start, stop)`` float64, NaN before the first and after the last frame."""
    inside = np.asarray(x[max(0, start) : stop], dtype=np.float64)
    return np.pad(inside, ((max(0, -start), max(0, stop - len(x))), (0, 0)), constant_values=np.nan)


def _steps(is_missing: np.ndarray, is_early: np.ndarray, size: int, sizes: list[int]) -> list[Step]:
    """Of ``is_missing (R, (p + 1) D)``, past and frame of each row, of ``sizes`` rows a step and D = ``size``."""
    width = is_missing.shape[1]
    n_oldest, n_past, n_frame = (is_missing[:, part].sum(1) for part in (slice(size), slice(-size), slice(-size, None)))
    past, frame = _left_aligned(is_missing[:, :-size], width), _left_aligned(is_missing[:, -size:], size)
    regressors = np.where(is_early[:, None], width, past)
    of_frame = np.where(frame < size, frame + width - size, width)
    edges = np.cumsum([0, *sizes]).tolist()
    rows = [slice(a, b) for a, b in pairwise(edges)]
    m, u = ([int(n[each].max()) for each in rows] for n in (n_past, n_frame))
    steps = []
    for k, each in enumerate(rows):
        places = torch.from_numpy(np.concatenate([past[each, : m[k]], of_frame[each, : u[k]]], 1))
        one_hot = torch.from_numpy(np.eye(size + 1)[frame[each, : u[k]], :size]) if u[k] else None
        step = Step(each, places, torch.from_numpy(regressors[each, : m[k]]), one_hot, None, None)
        if k + 1 < len(rows):
            following = rows[k + 1]
            here = slice(each.start, each.start + sizes[k + 1])
            if u[k] or n_oldest[here].any():
                # What is missing of the past but for its oldest frame, then of the frame.
                j = np.arange(m[k + 1]) + n_oldest[here, None]
                j = np.where(j < n_past[here, None], j, j - n_past[here, None] + m[k])
                is_some = np.arange(m[k + 1]) < n_past[following, None]
                is_kept = None if is_some.all() else torch.from_numpy(is_some.astype(np.float64))
                step = step._replace(kept=torch.from_numpy(np.where(is_some, j, 0)), is_kept=is_kept)
        steps.append(step)
    return steps


def _left_aligned(mask: np.ndarray, none: int) -> np.ndarray:
    """``(R, most)``: where each row of ``mask`` is True, then ``none``."""
    row, place = np.nonzero(mask)
    counts = mask.sum(1)
    result = np.full((len(mask), counts.max(initial=0)), none)
    result[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = place
    return result


def _flat(tensors: Sequence[Tensor], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=dtype), *(each.flatten() for each in tensors)])


@dataclass(frozen=True)
class FilteredGaps:
    """What is known of the missing values of ``gaps``.

    Attributes:
        past: of those of the past, given all that was observed before the frame.
        joint: of those of past and frame, given the frame too.
        log_prob: ``(R,)`` of what the frame has of values, given all before it.
    """

    gaps: Gaps
    past: Moments
    joint: Moments
    log_prob: Tensor

    @torch.no_grad()
    def smoothed(self) -> Moments:
        """As ``joint``, given the whole sequence: the smoother of Rauch, Tung and Striebel (1965).

        Nothing after a gap says more of it.
        """
        means, covariances = list(self.joint.means), list(self.joint.covariances)
        for k in reversed(range(len(means) - 1)):
            step, mean, covariance = self.gaps.steps[k], means[k], covariances[k]
            mean_next, covariance_next = self.past.means[k + 1], self.past.covariances[k + 1]
            n, m = mean_next.shape
            mean_after, covariance_after = means[k + 1][:, :m], covariances[k + 1][:, :m, :m]
            if step.kept is not None or m < mean.shape[1]:  # else they are the same values
                # What stands for no value has a variance of zero.
                is_none = torch.diag_embed((covariance_next.diagonal(dim1=-2, dim2=-1) == 0).double())
                gain = torch.linalg.solve(covariance_next + is_none, _kept(covariance[:n], step, m)).mT  # (n, m + u, m)
                mean_after = mean[:n] + (gain @ (mean_after - mean_next).unsqueeze(-1)).squeeze(-1)
                covariance_after = covariance[:n] + gain @ (covariance_after - covariance_next) @ gain.mT
            # Of gaps that have ended what was filtered is all that there is to know.
            means[k] = torch.cat([mean_after, mean[n:]])
            covariances[k] = torch.cat([0.5 * (covariance_after + covariance_after.mT), covariance[n:]])
        return Moments(means, covariances)


def _kept(values: Tensor, step: Step, m: int) -> Tensor:
    """``(n', m + u, ...)`` -> ``(n', m', ...)``: the rows of what is missing of the next frame's past."""
    if step.kept is None:
        return values[:, :m]
    shape = (-1, -1, *[1] * (values.dim() - 2))
    rows = values.gather(1, step.kept.view(*step.kept.shape, *shape[2:]).expand(-1, -1, *values.shape[2:]))
    return rows if step.is_kept is None else rows * step.is_kept.view(*step.is_kept.shape, *shape[2:])


@torch.no_grad()
def filtered(gaps: Gaps, observation: AutoregressiveGaussian, output_parameters: Tensor) -> FilteredGaps:
    """The filter of the regression with ``output_parameters (P,)`` of ``observation``, float64 on the CPU.

    With ``u ~ N(m, P)`` the missing values of the past and o the others, ``x = A_u u + A_o o + c + e`` is Gaussian with
    mean ``A_u m + A_o o + c`` and covariance ``A_u P A_uᵀ + Σ``, and ``Cov(u, x) = P A_uᵀ``. What x has of values is
    conditioned on.
    """
    size = gaps.is_observed.shape[1]
    width = gaps.width - size
    matrix, intercept, noise, first_mean, first = observation.regression(output_parameters.double().cpu(), size)
    noises = torch.where(gaps.is_early[:, None, None], first, noise)
    predicted = torch.where(gaps.is_early[:, None], first_mean, intercept + gaps.values[:, :width] @ matrix.mT)
    coefficients = torch.cat([matrix.mT, matrix.new_zeros(size + 1, size)])  # of each place
    past, joint, factors, whitened = Moments([], []), Moments([], []), [], []
    n = len(gaps.steps[0].places) if gaps.steps else 0
    mean, covariance = predicted.new_zeros(n, 0), predicted.new_zeros(n, 0, 0)
    for step in gaps.steps:
        n, m = step.regressors.shape
        if joint.means:
            last = gaps.steps[len(joint.means) - 1]
            mean = _kept(mean[:n], last, m)
            covariance = _kept(_kept(covariance[:n], last, m).mT, last, m)
        past.means.append(mean)
        past.covariances.append(covariance)
        a = coefficients[step.regressors]  # (n, m, D)
        across = covariance @ a  # Cov(u, x), (n, m, D)
        mean_x, spread = predicted[step.rows] + (mean.unsqueeze(1) @ a).squeeze(1), a.mT @ across + noises[step.rows]
        deviation = gaps.values[step.rows, width:] - mean_x
        if step.frame is not None:
            mean, covariance, across = _with_frame(mean, covariance, mean_x, across, spread, step.frame)
            observed = gaps.is_observed[step.rows]
            together = observed.unsqueeze(-1) & observed.unsqueeze(-2)
            spread = torch.where(together, spread, torch.eye(size, dtype=torch.float64))
            across, deviation = across * observed.unsqueeze(1), deviation * observed
        factor = torch.linalg.cholesky(spread)
        solved = torch.linalg.solve_triangular(factor, torch.cat([across.mT, deviation.unsqueeze(-1)], 2), upper=False)
        gain, white = solved[..., :-1], solved[..., -1:]  # (n, D, m + u), (n, D, 1)
        mean, covariance = mean + (gain.mT @ white).squeeze(-1), covariance - gain.mT @ gain
        joint.means.append(mean)
        joint.covariances.append(covariance)
        factors.append(factor.diagonal(dim1=-2, dim2=-1))
        whitened.append(white.squeeze(-1))
    if not gaps.steps:
        return FilteredGaps(gaps, past, joint, predicted.new_zeros(0))
    log_det, squares = torch.cat(factors).log().sum(1), torch.cat(whitened).square().sum(1)
    log_prob = -log_det - 0.5 * (squares + math.log(2 * math.pi) * gaps.is_observed.sum(1, dtype=torch.float64))
    return FilteredGaps(gaps, past, joint, log_prob)


def _with_frame(
    mean: Tensor, covariance: Tensor, mean_x: Tensor, across: Tensor, spread: Tensor, frame: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and covariance of missing values of the past ``(n, m)`` and of the frame, and their covariance with x."""
    of_frame = frame @ spread  # (n, u, D)
    corner = across @ frame.mT
    covariance = torch.cat([torch.cat([covariance, corner], 2), torch.cat([corner.mT, of_frame @ frame.mT], 2)], 1)
    return (
        torch.cat([mean, (frame @ mean_x.unsqueeze(-1)).squeeze(-1)], 1),
        covariance,
        torch.cat([across, of_frame], 1),
    )

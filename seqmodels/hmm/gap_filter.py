"""The Kalman filter and smoother of one autoregression, of missing values alone.

Once p complete frames have passed all of the past is known. A *gap* is what lies between: from a frame with a missing
value to the first frame whose past is known again. There the filter holds mean and covariance of the missing values
among the last p frames and of nothing else, however far the autoregression looks back (Durbin and Koopman 2012, *Time
series analysis by state space methods*, chapter 4).

No value is added to them by complete frames. A *run* is some of these and the frame with missing values, if there is
one, that ends it; its frames are one regression on the same values, so that one factor of their covariance has what is
known after each of them. Gaps are filtered side by side, run by run.

Which values are missing depends on the data alone (``Gaps``), what is known of them on the regression (``filtered``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.observations import AutoregressiveGaussian

VALUES_IN_RUN = 64  # whose covariance is factored at once, at most, unless a frame has more


class Step(NamedTuple):
    """The k-th runs of n gaps, of up to l frames, of whose past m values are missing and u of their last frame.

    ``(p + 1) D``, a place that no value has, stands for those that a run does not have.

    Attributes:
        rows: ``(n, l)`` which rows of ``Gaps`` they are; R, no row, after the end of a run.
        places: ``(n, l, m + u)`` where they stand among the ``(p + 1) D`` values of past and frame, first the m.
        regressors: ``(n, l, m)`` the same, no place in the first p frames, which do not depend on their past.
        is_observed: ``(n, l D)`` of the frames; None: all is.
        missing: ``(n, u, l D)`` float64, 1 in row i at the i-th missing value of the last frame; None: u is 0.
        kept: ``(n', m')`` which of the m + u are missing of the past of the n' gaps' next run; None: the first m'.
        is_kept: ``(n', m')`` float64, 0 where a gap has fewer; None: all have m'.
    """

    rows: Tensor
    places: Tensor
    regressors: Tensor
    is_observed: Tensor | None
    missing: Tensor | None
    kept: Tensor | None
    is_kept: Tensor | None


@dataclass(frozen=True)
class Moments:
    """Gaussians of missing values, of each step: means ``(n, l, m)`` and covariances ``(n, l, m, m)``."""

    means: list[Tensor]
    covariances: list[Tensor]


@dataclass(frozen=True)
class Gaps:
    """All gaps of some sequences; their frames are rows, gap after gap.

    A gap that does not end before its sequence has one frame more, the one to come, of which all is missing.

    Attributes:
        steps: what is missing where.
        sequence, time: ``(R,)`` which frame a row is.
        is_first: ``(R,)`` whether it is the first of a gap, whose past is known.
        is_to_come: ``(R,)`` whether it is the one after the end of its sequence.
        is_early: ``(R,)`` whether it is one of the first p frames, which do not depend on the past.
        values: ``(R, (p + 1) D)`` float64, past and frame, zero where a value is missing or before the start.
        n_features: D.
    """

    steps: list[Step]
    sequence: np.ndarray
    time: np.ndarray
    is_first: np.ndarray
    is_to_come: np.ndarray
    is_early: Tensor
    values: Tensor
    n_features: int

    @classmethod
    def of(cls, sequences: Sequence[np.ndarray], order: int) -> Gaps:
        """Those of encoded sequences ``(T, D)``, NaN where values are missing, for an autoregression of ``order`` p."""
        bounds = [(i, first, stop + 1) for i, x in enumerate(sequences) for first, stop in gaps_of(x, order)]
        which, first, stop = np.array(bounds, dtype=np.int64).reshape(-1, 3).T
        n_frames, size = stop - first, sequences[0].shape[1]
        frames = [_frames(sequences[i], a - order, b) for i, a, b in bounds]
        joined = np.concatenate([np.empty((0, size)), *frames])
        gap = np.repeat(np.arange(len(bounds)), n_frames)
        row, lags = np.arange(len(gap)), np.arange(order + 1)
        is_first = row == (np.cumsum(n_frames) - n_frames)[gap]
        time = first[gap] + row - row[is_first][gap]
        windows = joined[(row + gap * order)[:, None] + lags]  # (R, p + 1, D)
        is_missing = np.isnan(windows) & (time[:, None] + lags >= order)[:, :, None]
        width = (order + 1) * size
        return cls(
            _steps(is_missing.reshape(-1, width), is_first, time < order, size),
            which[gap],
            time,
            is_first,
            time == np.array([len(x) for x in sequences])[which[gap]],
            torch.from_numpy(time < order),
            torch.from_numpy(np.nan_to_num(windows).reshape(-1, width)),
            size,
        )

    @property
    def width(self) -> int:
        """(p + 1) D, how many values past and frame have."""
        return self.values.shape[1]

    def dense(self, moments: Moments, width: int) -> tuple[Tensor, Tensor]:
        """Means ``(R, width)`` and covariances ``(R, width, width)`` of the first values of past and frame."""
        covariances = self.values.new_zeros(len(self.values), width, width)
        row, i, j = self._pairs([mean.shape[2] for mean in moments.means])
        is_value = (row < len(self.values)) & (i < width) & (j < width)
        covariances[row[is_value], i[is_value], j[is_value]] = _joined(moments.covariances)[is_value]
        return self._filled(moments)[:, :width], covariances

    def sums(self, joint: Moments) -> tuple[Tensor, Tensor, Tensor]:
        """``Σ E[w wᵀ]``, ``Σ E[w]`` and ``Σ 1`` of past and frame w, of which ``joint`` has all missing values.

        Frames that do not depend on their past, and those to come, do not count.
        """
        means, width = self._filled(joint), self.width + 1
        is_used = ~self.is_early & torch.from_numpy(~self.is_to_come)
        cell, place = self._used_pairs
        of_place = torch.bincount(place, _joined(joint.covariances)[cell], width * width).view(width, width)
        means = means[is_used]
        return means.T @ means + of_place[:-1, :-1], means.sum(0), is_used.sum().double()

    @cached_property
    def _used_pairs(self) -> tuple[Tensor, Tensor]:
        """Which of the covariances ``sums`` adds up, and where."""
        row, i, j = self._pairs([step.places.shape[2] for step in self.steps])
        is_used = torch.nn.functional.pad(~self.is_early & torch.from_numpy(~self.is_to_come), (0, 1))
        cell = (is_used[row] & (i < self.width) & (j < self.width)).nonzero().squeeze(1)
        return cell, i[cell] * (self.width + 1) + j[cell]

    def _filled(self, moments: Moments) -> Tensor:
        """``(R, (p + 1) D)`` values of past and frame, means in the place of missing ones."""
        row = _joined([step.rows.unsqueeze(2).expand_as(m) for step, m in zip(self.steps, moments.means, strict=True)])
        place = _joined([s.places[..., : m.shape[2]] for s, m in zip(self.steps, moments.means, strict=True)])
        filled = torch.nn.functional.pad(self.values, (0, 1, 0, 1))
        filled[row.long(), place.long()] = _joined(moments.means)
        return filled[:-1, :-1]

    def _pairs(self, n_values: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Row and both places of each covariance of the first so many values of each step."""
        rows, firsts, seconds = [], [], []
        for step, m in zip(self.steps, n_values, strict=True):
            places = step.places[..., :m]
            shape = (*places.shape, m)
            rows.append(step.rows[..., None, None].expand(shape))
            firsts.append(places.unsqueeze(3).expand(shape))
            seconds.append(places.unsqueeze(2).expand(shape))
        return _joined(rows).long(), _joined(firsts).long(), _joined(seconds).long()


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
    frames = np.full((stop - start, x.shape[1]), np.nan)
    frames[max(0, -start) : len(x) - start] = x[max(0, start) : stop]
    return frames


def _steps(is_missing: np.ndarray, is_first: np.ndarray, is_early: np.ndarray, size: int) -> list[Step]:
    """Of ``is_missing (R, (p + 1) D)``, past and frame of each row; D is ``size``."""
    n_rows, width = is_missing.shape
    of_past, of_frame = is_missing[:, :-size], is_missing[:, -size:]
    past, frame = _left_aligned(of_past, width), _left_aligned(of_frame, size)
    n_past, n_frame = of_past.sum(1), of_frame.sum(1)
    # Runs: from the first frame of a gap or after one with missing values, cut where they are too long.
    starts_anew = is_first | np.concatenate([[True], n_frame[:-1] > 0])[:n_rows]
    row = np.arange(n_rows)
    place_in_run = row - np.maximum.accumulate(np.where(starts_anew, row, 0))
    starts = np.flatnonzero(place_in_run % max(1, VALUES_IN_RUN // size) == 0)
    lengths = np.diff(np.append(starts, n_rows))
    # The k-th runs of all gaps, those of the most runs first.
    of_gap = np.flatnonzero(is_first[starts])
    n_runs = np.diff(np.append(of_gap, len(starts)))
    order = np.argsort(-n_runs, kind="stable")
    of_gap, n_runs = of_gap[order], n_runs[order]
    steps = []
    for k in range(n_runs.max(initial=0)):
        n = int((n_runs > k).sum())
        start, length = starts[of_gap[:n] + k], lengths[of_gap[:n] + k]
        last = start + length - 1
        m, u, j = int(n_past[start].max()), int(n_frame[last].max()), np.arange(length.max())
        is_frame = j < length[:, None]  # (n, l)
        rows = np.where(is_frame, start[:, None] + j, n_rows)
        places = past[start, None, :m] - j[:, None] * size  # (n, l, m)
        is_value = (past[start, None, :m] < width) & (places >= 0) & is_frame[:, :, None]
        places = np.where(is_value, places, width)
        is_last = (rows == last[:, None])[:, :, None]
        new = np.where(is_last & (frame[last, None, :u] < size), frame[last, None, :u] + width - size, width)
        first_rows = np.append(is_early, False)[rows]
        is_observed = (~np.concatenate([of_frame, np.ones((1, size), dtype=bool)])[rows]).reshape(n, -1)
        missing = None
        if u:
            one_hot = np.zeros((n, u, len(j), size + 1))
            one_hot[np.arange(n)[:, None], np.arange(u), length[:, None] - 1, frame[last, :u]] = 1.0
            missing = one_hot[..., :size].reshape(n, u, -1)
        kept = is_kept = None
        n_next = int((n_runs > k + 1).sum())
        if n_next:
            # What is missing of the past but for its oldest frames, then of the last frame.
            n_dropped = (past[start[:n_next], :m] < length[:n_next, None] * size).sum(1)
            n_left = n_past[starts[of_gap[:n_next] + k + 1]]
            if u or n_dropped.any():
                kept = np.arange(n_left.max()) + n_dropped[:, None]
                n_before = n_past[start[:n_next], None]
                kept = np.where(kept < n_before, kept, kept - n_before + m)
                is_kept = np.arange(n_left.max()) < n_left[:, None]
                kept = np.where(is_kept, kept, 0)
        steps.append(
            Step(
                torch.from_numpy(rows),
                torch.from_numpy(np.concatenate([places, new], 2)),
                torch.from_numpy(np.where(first_rows[:, :, None], width, places)),
                None if is_observed.all() else torch.from_numpy(is_observed),
                None if missing is None else torch.from_numpy(missing),
                None if kept is None else torch.from_numpy(kept),
                None if is_kept is None or is_kept.all() else torch.from_numpy(is_kept.astype(np.float64)),
            )
        )
    return steps


def _left_aligned(mask: np.ndarray, none: int) -> np.ndarray:
    """``(R, most)``: where each row of ``mask`` is True, then ``none``."""
    row, place = np.nonzero(mask)
    counts = mask.sum(1)
    result = np.full((len(mask), counts.max(initial=0)), none)
    result[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = place
    return result


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """All values one after the other."""
    return torch.cat([each.flatten() for each in tensors]) if tensors else torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True)
class FilteredGaps:
    """What is known of the missing values of ``gaps``.

    Attributes:
        before: of each step, means ``(n, m)`` and covariances of those of the past, given all before the run.
        joint: of those of past and last frame, given all up to each frame of the run.
        whitened: of each step ``(n, l D)``, what was observed, with a standard normal distribution given all before it.
        scales: of each step ``(n, l D)``, their standard deviations given all before, 1 where nothing was observed.
    """

    gaps: Gaps
    before: list[tuple[Tensor, Tensor]]
    joint: Moments
    whitened: list[Tensor]
    scales: list[Tensor]

    @property
    def log_prob(self) -> float:
        """Nats of all observed values of the gaps, each given what was observed before."""
        n_missing = sum(int((~step.is_observed).sum()) for step in self.gaps.steps if step.is_observed is not None)
        white, scale = _joined(self.whitened), _joined(self.scales)
        return float(
            -scale.log().sum() - 0.5 * (white.square().sum() + math.log(2 * math.pi) * (len(white) - n_missing))
        )

    @property
    def past(self) -> Moments:
        """Of those of the past, given all that was observed before the frame."""
        means, covariances = [], []
        for (mean, covariance), mean_after, covariance_after in zip(
            self.before, self.joint.means, self.joint.covariances, strict=True
        ):
            m = mean.shape[1]
            means.append(torch.cat([mean.unsqueeze(1), mean_after[:, :-1, :m]], 1))
            covariances.append(torch.cat([covariance.unsqueeze(1), covariance_after[:, :-1, :m, :m]], 1))
        return Moments(means, covariances)

    @torch.no_grad()
    def smoothed(self) -> Moments:
        """As ``joint``, given the whole sequence: the smoother of Rauch, Tung and Striebel (1965), run by run.

        All frames of a run have the same values, of which as much is known. Nothing after a gap says more of it.
        """
        results: list[tuple[Tensor, Tensor]] = []  # of the last step first
        for k in reversed(range(len(self.gaps.steps))):
            step = self.gaps.steps[k]
            mean, covariance = self.joint.means[k][:, -1], self.joint.covariances[k][:, -1]
            if results:
                mean_next, covariance_next = self.before[k + 1]
                n, m = mean_next.shape
                mean_after, covariance_after = results[-1][0][:, :m], results[-1][1][:, :m, :m]
                if step.kept is not None or m < mean.shape[1]:  # else they are the same values
                    # What stands for no value has a variance of zero.
                    is_none = torch.diag_embed((covariance_next.diagonal(dim1=-2, dim2=-1) == 0).double())
                    gain = torch.linalg.solve(covariance_next + is_none, _kept(covariance[:n], step, m)).mT
                    mean_after = mean[:n] + (gain @ (mean_after - mean_next).unsqueeze(-1)).squeeze(-1)
                    covariance_after = covariance[:n] + gain @ (covariance_after - covariance_next) @ gain.mT
                    covariance_after = 0.5 * (covariance_after + covariance_after.mT)
                # Of gaps that have ended what was filtered is all that there is to know.
                mean, covariance = torch.cat([mean_after, mean[n:]]), torch.cat([covariance_after, covariance[n:]])
            results.append((mean, covariance))
        results.reverse()
        n_frames = [step.rows.shape[1] for step in self.gaps.steps]
        means = [mean.unsqueeze(1).expand(-1, n, -1) for (mean, _), n in zip(results, n_frames, strict=True)]
        return Moments(
            means, [each.unsqueeze(1).expand(-1, n, -1, -1) for (_, each), n in zip(results, n_frames, strict=True)]
        )


def _kept(values: Tensor, step: Step, m: int) -> Tensor:
    """``(n', m + u, ...)`` -> ``(n', m', ...)``: the rows of what is missing of the next run's past."""
    if step.kept is None:
        return values[:, :m]
    ones = [1] * (values.dim() - 2)
    rows = values.gather(1, step.kept.view(*step.kept.shape, *ones).expand(-1, -1, *values.shape[2:]))
    return rows if step.is_kept is None else rows * step.is_kept.view(*step.is_kept.shape, *ones)


@torch.no_grad()
def filtered(gaps: Gaps, observation: AutoregressiveGaussian, output_parameters: Tensor) -> FilteredGaps:
    """The filter of the regression with ``output_parameters (P,)`` of ``observation``, float64 on the CPU.

    With ``v ~ N(m, P)`` the missing values of the past and o the others, ``x = A_v v + A_o o + c + e``: the frames of a
    run are jointly Gaussian with v. Of ``L Lᵀ``, the covariance of what is observed of them, in order, and the
    whitened deviations ``w = L⁻¹ (x - E[x])``, all of the first t frames are what L has of these: v given them has mean
    ``m + Gᵀ w`` and covariance ``P - Gᵀ G``, summed over t frames, with ``G = L⁻¹ Cov(x, v)``.
    """
    size = gaps.n_features
    q = gaps.width - size
    matrix, intercept, noise, first_mean, first_noise = observation.regression(output_parameters.double().cpu(), size)
    is_early = torch.nn.functional.pad(gaps.is_early, (0, 1))
    values = torch.nn.functional.pad(gaps.values, (0, 0, 0, 1))
    predicted = torch.where(is_early.unsqueeze(1), first_mean, intercept + values[:, :q] @ matrix.mT)
    deviations = values[:, q:] - predicted  # (R + 1, D), as if what is missing were 0
    coefficients = torch.cat([matrix.mT, matrix.new_zeros(size + 1, size)])  # of each place
    result = FilteredGaps(gaps, [], Moments([], []), [], [])
    n = len(gaps.steps[0].rows) if gaps.steps else 0
    mean, covariance = matrix.new_zeros(n, 0), matrix.new_zeros(n, 0, 0)
    ones = torch.eye(max(VALUES_IN_RUN, size), dtype=torch.float64)
    for k, step in enumerate(gaps.steps):
        n, length, m = step.regressors.shape
        if k:
            mean = _kept(mean[:n], gaps.steps[k - 1], m)
            covariance = _kept(_kept(covariance[:n], gaps.steps[k - 1], m).mT, gaps.steps[k - 1], m)
        result.before.append((mean, covariance))
        a = coefficients[step.regressors].transpose(1, 2).flatten(2)  # (n, m, l D)
        across = covariance @ a  # Cov(v, x)
        spread = a.mT @ across
        blocks = spread.view(n, length, size, length, size).diagonal(dim1=1, dim2=3)  # (n, D, D, l)
        blocks += torch.where(is_early[step.rows][:, None, None], first_noise[..., None], noise[..., None])
        deviation = deviations[step.rows].flatten(1) - (mean.unsqueeze(1) @ a).squeeze(1)
        if step.missing is not None:
            of_frame, corner = step.missing @ spread, across @ step.missing.mT
            top, bottom = torch.cat([covariance, corner], 2), torch.cat([corner.mT, of_frame @ step.missing.mT], 2)
            covariance, across = torch.cat([top, bottom], 1), torch.cat([across, of_frame], 1)
            # A missing value is 0 in ``values``.
            mean = torch.cat([mean, -(step.missing @ deviation.unsqueeze(-1)).squeeze(-1)], 1)
        if step.is_observed is not None:
            together = step.is_observed.unsqueeze(2) & step.is_observed.unsqueeze(1)
            spread = torch.where(together, spread, ones[: length * size, : length * size])
            across, deviation = across * step.is_observed.unsqueeze(1), deviation * step.is_observed
        factor = torch.linalg.cholesky(spread)
        solved = torch.linalg.solve_triangular(factor, torch.cat([across.mT, deviation.unsqueeze(-1)], 2), upper=False)
        gain, white = solved[..., :-1].unflatten(1, (length, size)), solved[..., -1].unflatten(1, (length, size))
        means = mean.unsqueeze(1) + (white.unsqueeze(2) @ gain).squeeze(2).cumsum(1)  # (n, l, m + u)
        covariances = covariance.unsqueeze(1) - (gain.mT @ gain).cumsum(1)
        result.joint.means.append(means)
        result.joint.covariances.append(covariances)
        mean, covariance = means[:, -1], covariances[:, -1]
        result.whitened.append(solved[..., -1])
        result.scales.append(factor.diagonal(dim1=-2, dim2=-1))
    return result

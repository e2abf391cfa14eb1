"""The Kalman filter and smoother of one autoregression, over its missing values alone.

After p complete frames the whole past is known. A *gap* is the part of a sequence from a frame with a missing value to
the first frame whose past is known again. There the filter holds mean and covariance of the missing values among the
last p frames and of nothing else, however far the autoregression looks back (Durbin and Koopman 2012, *Time series
analysis by state space methods*, chapter 4).

Complete frames add no missing values. A *run* is a series of complete frames and the frame with missing values, if
there is one, that ends it. Its frames are one regression on the same missing values, so that one Cholesky factor of
their covariance gives the filter after each of them. Gaps are filtered together, run by run.

The positions of missing values depend on the data alone (``Gaps``), and their distributions on the regression
(``filtered``).
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

VALUES_IN_RUN = 64  # most values of a run, whose covariance is factored at once, unless a frame has more


class Step(NamedTuple):
    """The positions of missing values in one run of each of n gaps, for one step of the Kalman filter.

    A gap is a part of a sequence in which some of the p frames before a frame have missing values. A run is up to l
    frames of a gap, of which only the last has missing values; m values are missing in the p frames before a run, u in
    its last frame. The ``(p + 1) D`` values of a frame and the p frames before it, of D features, are numbered from the
    oldest on; such a number is called a *place*. Absent values have the number ``(p + 1) D``.

    Attributes:
        rows: numbers of the frames among the R rows of ``Gaps``, ``(n, l)``; R, which is no row, after the end of a
            run.
        places: places of the missing values, ``(n, l, m + u)``, first the m.
        regressors: places of the m values, ``(n, l, m)``; absent in the first p frames, which do not depend on their
            past.
        is_observed: True for the observed values of the frames, ``(n, l D)``; None if all are.
        missing: 1 in row i at the i-th missing value of the last frame, else 0, ``(n, u, l D)`` float64; None if u is
            0.
        kept: indices among the m + u of the values missing in the past of the next runs of n' gaps, ``(n', m')``; None
            means the first m'.
        is_kept: 1, or 0 where a gap has fewer values, ``(n', m')`` float64; None if all have m'.
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
    """Means and covariances of the missing values in gaps, for each step of the Kalman filter.

    A step handles one run of frames of each of n gaps, with up to l frames and m missing values.

    Attributes:
        means: ``(n, l, m)`` for each step.
        covariances: ``(n, l, m, m)`` for each step.
    """

    means: list[Tensor]
    covariances: list[Tensor]


@dataclass(frozen=True)
class Gaps:
    """All gaps of some sequences, parts with missing values among the p frames that an autoregression reads.

    The frames of the gaps are R rows, gap after gap. A gap that lasts to the end of its sequence has one more frame,
    the one to come, all of whose values are missing.

    Attributes:
        steps: the steps of the Kalman filter; step k has the positions of missing values in the k-th run of each gap.
        sequence, time: sequence and time of each row, ``(R,)``.
        is_first: True for the first row of each gap, whose past is known, ``(R,)``.
        is_to_come: True for frames after the end of their sequence, ``(R,)``.
        is_early: True for the first p frames of a sequence, which do not depend on the past, ``(R,)``.
        values: past and frame of each row, zero where a value is missing or before the start, ``(R, (p + 1) D)``
            float64.
        n_features: number of features D.
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
        """Return the gaps of some encoded sequences for an autoregression.

        Args:
            sequences: encoded frames of each sequence, ``(T, D)``, NaN where a value is missing.
            order: number of past frames that the autoregression reads, p.
        """
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
        """Number of values in a frame and the p frames before it, ``(p + 1) D``."""
        return self.values.shape[1]

    def dense(self, moments: Moments, width: int) -> tuple[Tensor, Tensor]:
        """Return the means and covariances of the values of each row, a frame with the p frames before it.

        Observed values are their own means and have covariances of zero.

        Args:
            moments: means and covariances of the missing values.
            width: how many of the ``(p + 1) D`` values to return, the oldest first.

        Returns:
            Means ``(R, width)`` and covariances ``(R, width, width)`` of the R rows.
        """
        covariances = self.values.new_zeros(len(self.values), width, width)
        row, i, j = self._pairs([mean.shape[2] for mean in moments.means])
        is_value = (row < len(self.values)) & (i < width) & (j < width)
        covariances[row[is_value], i[is_value], j[is_value]] = _joined(moments.covariances)[is_value]
        return self._filled(moments)[:, :width], covariances

    def sums(self, joint: Moments) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``Σ E[w wᵀ]``, ``Σ E[w]`` and the number of rows, where w is a frame with the p frames before it.

        For ``w (W,)`` with ``W = (p + 1) D`` the results are ``(W, W)``, ``(W,)`` and a scalar. Frames that do not
        depend on their past, and frames after the end of their sequence, are left out.

        Args:
            joint: means and covariances of all missing values of w.
        """
        means, width = self._filled(joint), self.width + 1
        is_used = ~self.is_early & torch.from_numpy(~self.is_to_come)
        cell, place = self._used_pairs
        of_place = torch.bincount(place, _joined(joint.covariances)[cell], width * width).view(width, width)
        means = means[is_used]
        return means.T @ means + of_place[:-1, :-1], means.sum(0), is_used.sum().double()

    @cached_property
    def _used_pairs(self) -> tuple[Tensor, Tensor]:
        """Indices of the covariances that ``sums`` adds up, and the flat indices in the sum to which each is added."""
        row, i, j = self._pairs([step.places.shape[2] for step in self.steps])
        is_used = torch.nn.functional.pad(~self.is_early & torch.from_numpy(~self.is_to_come), (0, 1))
        cell = (is_used[row] & (i < self.width) & (j < self.width)).nonzero().squeeze(1)
        return cell, i[cell] * (self.width + 1) + j[cell]

    def _filled(self, moments: Moments) -> Tensor:
        """Return the values of each row with means in the place of missing ones, ``(R, (p + 1) D)``.

        A row has the D values of a frame and of the p frames before it; ``moments`` holds the means.
        """
        row = _joined([step.rows.unsqueeze(2).expand_as(m) for step, m in zip(self.steps, moments.means, strict=True)])
        place = _joined([s.places[..., : m.shape[2]] for s, m in zip(self.steps, moments.means, strict=True)])
        filled = torch.nn.functional.pad(self.values, (0, 1, 0, 1))
        filled[row.long(), place.long()] = _joined(moments.means)
        return filled[:-1, :-1]

    def _pairs(self, n_values: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the row of each covariance of two missing values, and the places of the two values in that row.

        A place is the number of a value among a frame and the p frames before it. The covariances of all steps are
        listed one after the other.

        Args:
            n_values: for each step, how many of its missing values have covariances.
        """
        rows, firsts, seconds = [], [], []
        for step, m in zip(self.steps, n_values, strict=True):
            places = step.places[..., :m]
            shape = (*places.shape, m)
            rows.append(step.rows[..., None, None].expand(shape))
            firsts.append(places.unsqueeze(3).expand(shape))
            seconds.append(places.unsqueeze(2).expand(shape))
        return _joined(rows).long(), _joined(firsts).long(), _joined(seconds).long()


def gaps_of(x: np.ndarray, order: int) -> list[tuple[int, int]]:
    """Return the first frame of each gap of a sequence, and the frame after its last.

    A gap starts at a frame with a missing value and ends when ``order`` complete frames have passed.

    Args:
        x: frames of one sequence, ``(T, D)``, NaN where a value is missing.
        order: number of past frames that the autoregression reads.
    """
    missing = np.isnan(np.asarray(x)).any(axis=1)
    if not missing.any():
        return []
    # After frame t the past is uncertain if one of the last p frames misses a value.
    uncertain = np.convolve(missing, np.ones(order))[: len(x)] > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], uncertain, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _frames(x: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return some frames of a sequence ``x (T, D)`` in float64; NaN before its first and after its last frame.

    Args:
        x: frames of the sequence, ``(T, D)``.
        start: number of the first frame to return, which may be negative.
        stop: number of the frame after the last, which may be past the end.
    """
    frames = np.full((stop - start, x.shape[1]), np.nan)
    frames[max(0, -start) : len(x) - start] = x[max(0, start) : stop]
    return frames


def _steps(is_missing: np.ndarray, is_first: np.ndarray, is_early: np.ndarray, size: int) -> list[Step]:
    """Return the steps of the Kalman filter over all gaps: step k has the k-th run of frames of each gap.

    Args:
        is_missing: True for the missing values of a row, a frame with the p frames before it, ``(R, (p + 1) D)``.
        is_first: True for the first row of each gap, ``(R,)``.
        is_early: True for the first p frames of a sequence, ``(R,)``.
        size: number of features D.
    """
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
    # The k-th runs of all gaps, gaps with the most runs first.
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
            # First the missing values of the past without its oldest frames, then those of the last frame.
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
    """Return the column numbers of the True entries of each row of ``mask``, padded on the right with ``none``.

    The shape is ``(R, most)``, where ``most`` is the largest number of True entries in a row.
    """
    row, place = np.nonzero(mask)
    counts = mask.sum(1)
    result = np.full((len(mask), counts.max(initial=0)), none)
    result[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = place
    return result


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.flatten() for each in tensors]) if tensors else torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True)
class FilteredGaps:
    """The Gaussian distributions of the missing values of ``gaps`` given earlier observed values, by the Kalman filter.

    A step of the filter handles one run of up to l frames of each of n gaps; m values are missing in the p frames
    before a run (its past), and D is the number of features.

    Attributes:
        gaps: the parts of sequences whose past has missing values.
        before: for each step, means ``(n, m)`` and covariances ``(n, m, m)`` of the missing values of the past, given
            all values before the run.
        joint: distributions of the missing values of the past and of a run's last frame, given all values up to each
            frame of the run.
        whitened: for each step, observed values transformed to a standard normal distribution given all values before,
            ``(n, l D)``.
        scales: for each step, standard deviations of the observed values given all values before, ``(n, l D)``; 1 where
            a value is missing.
    """

    gaps: Gaps
    before: list[tuple[Tensor, Tensor]]
    joint: Moments
    whitened: list[Tensor]
    scales: list[Tensor]

    @property
    def log_prob(self) -> float:
        """Log-density in nats of all observed values of the gaps, each given the observed values before it."""
        n_missing = sum(int((~step.is_observed).sum()) for step in self.gaps.steps if step.is_observed is not None)
        white, scale = _joined(self.whitened), _joined(self.scales)
        return float(
            -scale.log().sum() - 0.5 * (white.square().sum() + math.log(2 * math.pi) * (len(white) - n_missing))
        )

    @property
    def past(self) -> Moments:
        """Distributions of the missing values among the p frames before each frame, given all earlier values."""
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
        """Return the distributions of all missing values given the whole sequence (Rauch, Tung and Striebel 1965).

        The smoother runs backwards over runs, whose frames all have the same missing values and the same distribution
        of them. Values after a gap say nothing more about its missing values, because the past is complete there.
        """
        results: list[tuple[Tensor, Tensor]] = []  # from the last step to the first
        for k in reversed(range(len(self.gaps.steps))):
            step = self.gaps.steps[k]
            mean, covariance = self.joint.means[k][:, -1], self.joint.covariances[k][:, -1]
            if results:
                mean_next, covariance_next = self.before[k + 1]
                n, m = mean_next.shape
                mean_after, covariance_after = results[-1][0][:, :m], results[-1][1][:, :m, :m]
                if step.kept is not None or m < mean.shape[1]:  # else they are the same values
                    # Absent values have a variance of zero, which a one on the diagonal makes invertible.
                    is_none = torch.diag_embed((covariance_next.diagonal(dim1=-2, dim2=-1) == 0).double())
                    gain = torch.linalg.solve(covariance_next + is_none, _kept(covariance[:n], step, m)).mT
                    mean_after = mean[:n] + (gain @ (mean_after - mean_next).unsqueeze(-1)).squeeze(-1)
                    covariance_after = covariance[:n] + gain @ (covariance_after - covariance_next) @ gain.mT
                    covariance_after = 0.5 * (covariance_after + covariance_after.mT)
                # For gaps that end here the filter is already the smoother.
                mean, covariance = torch.cat([mean_after, mean[n:]]), torch.cat([covariance_after, covariance[n:]])
            results.append((mean, covariance))
        results.reverse()
        n_frames = [step.rows.shape[1] for step in self.gaps.steps]
        means = [mean.unsqueeze(1).expand(-1, n, -1) for (mean, _), n in zip(results, n_frames, strict=True)]
        return Moments(
            means, [each.unsqueeze(1).expand(-1, n, -1, -1) for (_, each), n in zip(results, n_frames, strict=True)]
        )


def _kept(values: Tensor, step: Step, m: int) -> Tensor:
    """Return the entries of ``values`` for those missing values that are also missing in the past of the next run.

    Args:
        values: one entry for each of the m + u values missing in the past and the last frame of a run, ``(n', m + u,
            ...)``, for the n' gaps that have another run.
        step: the step of the filter that handled the run.
        m: number m' of missing values in the past of the next run.

    Returns:
        The entries, ``(n', m', ...)``; zeros where a gap has fewer missing values.
    """
    if step.kept is None:
        return values[:, :m]
    ones = [1] * (values.dim() - 2)
    rows = values.gather(1, step.kept.view(*step.kept.shape, *ones).expand(-1, -1, *values.shape[2:]))
    return rows if step.is_kept is None else rows * step.is_kept.view(*step.is_kept.shape, *ones)


@torch.no_grad()
def filtered(gaps: Gaps, observation: AutoregressiveGaussian, output_parameters: Tensor) -> FilteredGaps:
    """Return the distributions of the missing values in gaps under one autoregression, by the Kalman filter.

    Args:
        gaps: the parts of sequences in which frames before a frame have missing values.
        observation: the autoregression.
        output_parameters: its coefficients, intercepts and covariances as the P numbers that it takes, ``(P,)``.

    With ``v ~ N(m, P)`` the missing values of the past and o the observed ones, ``x = A_v v + A_o o + c + e``: the
    frames of a run are jointly Gaussian with v. Let ``L Lᵀ`` be the covariance of their observed values in order, and
    ``w = L⁻¹ (x - E[x])`` the whitened deviations. Given the first t frames, v has mean ``m + Gᵀ w`` and covariance
    ``P - Gᵀ G``, summed over t frames, with ``G = L⁻¹ Cov(x, v)``. The computation is in float64 on the CPU.
    """
    size = gaps.n_features
    q = gaps.width - size
    matrix, intercept, noise, first_mean, first_noise = observation.regression(output_parameters.double().cpu(), size)
    is_early = torch.nn.functional.pad(gaps.is_early, (0, 1))
    values = torch.nn.functional.pad(gaps.values, (0, 0, 0, 1))
    predicted = torch.where(is_early.unsqueeze(1), first_mean, intercept + values[:, :q] @ matrix.mT)
    deviations = values[:, q:] - predicted  # (R + 1, D), with 0 for missing values
    coefficients = torch.cat([matrix.mT, matrix.new_zeros(size + 1, size)])  # (width + 1, D), one row for each place
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
            # The deviation of a missing value is minus its mean, because the value is 0 in ``values``.
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

"""Beliefs about past frames with missing values: a Kalman filter of one autoregression that all states share.

The density of a frame in a state needs the p frames before it. Missing values among those are Gaussian given all
earlier observed values, ``N(m, P)``, under an autoregression fitted to the data as if they had one state. m and P are
functions of the observed past alone, so that the densities of all frames multiply to one probability of the observed
values. A single state without a background is its own filter, so that this is exactly the probability of a vector
autoregression, and EM smooths: it uses the distribution of missing values given the whole sequence (Durbin and Koopman
2012, *Time series analysis by state space methods*, sections 4.4 and 4.10; Shumway and Stoffer 1982). Several states,
and the background of one, differ in their predictions from the past but share the beliefs about it, because the exact
beliefs would be a mixture with a component for every path of states, or of jumps, through a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.on_disk import OnDisk
from seqmodels.hmm.emissions import quadratic
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.gap_filter import FilteredGaps, Gaps, filtered
from seqmodels.observations import AutoregressiveGaussian, gaussian

MAX_ROUNDS = 40  # most rounds of fitting the autoregression
TOLERANCE = 1e-5  # change of every parameter, in standardised units, below which fitting ends
MAX_FRAMES = 100_000  # most frames to which it is fitted


@dataclass(frozen=True)
class Beliefs:
    """The Gaussian distributions of missing values in the past of some steps of one sequence.

    The past of a step are the p frames before it, which an autoregression of order p reads; D features.

    Attributes:
        steps: the m steps whose past has missing values, in order, ``(m,)``; the last may be the step after the
            sequence.
        past: means and covariances of the p frames before each, ``(m, p + p²D, D)`` float64 on the CPU, in the form
            that ``AutoregressiveGaussian`` takes: p rows of means, then covariances.
    """

    steps: np.ndarray
    past: Tensor


@dataclass(frozen=True)
class PastFilter:
    """The Kalman filter for missing values among the p frames that an autoregression reads before each step.

    All states of an HMM share it, as if the sequence followed this one autoregression.

    Attributes:
        observation: the autoregression.
        row: its coefficients, intercepts and covariances as the P numbers that it takes, ``(P,)`` float64.
    """

    observation: AutoregressiveGaussian
    row: Tensor

    def advance(self, past: Tensor, x: Tensor) -> Tensor:
        """Return the distribution of the last p steps after a next frame of each of n sequences, ``(n, p + p²D, D)``.

        Args:
            past: the distribution before: p rows of means, then covariances, ``(n, p + p²D, D)``; or p frames without
                missing values, ``(n, p, D)``.
            x: the next frames, ``(n, D)``, NaN where missing.
        """
        history, spread = self.observation.split_past(self.widened(past))
        assert spread is not None, "widened returns covariances"
        x, row = x.double(), self.row.to(past.device)
        first, of_row = _runs(spread.flatten(1), torch.isnan(history), torch.isnan(x))
        covariance = self.observation.joint(row, history[first], spread[first])[1]
        gain, left = gaussian.covariance_given_last(covariance, ~torch.isnan(x[first]))
        mean = gaussian.mean_given_last(self.observation.joint_mean(row, history), gain[of_row], x)
        size = x.shape[-1]
        return self.observation.join_past(mean[:, size:], left[:, size:, size:][of_row])

    def widened(self, past: Tensor) -> Tensor:
        """Return the p frames before each of n steps with their covariances, ``(n, p + p²D, D)`` float64.

        Means are the first p rows, and covariances the others. Frames ``(n, p, D)`` without missing values get
        covariances of zero; a ``past`` that has covariances is unchanged.
        """
        past = past.double()
        history, spread = self.observation.split_past(past)
        if spread is not None:
            return past
        spread = torch.zeros(*history.shape, history.shape[-1], dtype=torch.float64, device=past.device)
        return self.observation.join_past(history, spread)

    @torch.no_grad()
    def beliefs(self, sequences: Sequence[np.ndarray]) -> list[Beliefs | None]:
        """Return the distributions of each sequence's missing values before each step; None where none is missing.

        ``sequences`` are encoded, ``(T, D)`` each, NaN where a value is missing.
        """
        gaps = Gaps.of(sequences, self.observation.order)
        past = self._wide_past(filtered(gaps, self.observation, self.row))
        return _by_sequence(len(sequences), gaps, past, ~gaps.is_first)

    def _wide_past(self, known: FilteredGaps) -> Tensor:
        """Return means and covariances of the p frames before each frame of some gaps, ``(R, p + p²D, D)``.

        ``known`` has the distributions of the missing values in the gaps (parts of sequences with missing values),
        whose frames are R rows.
        """
        gaps, p = known.gaps, self.observation.order
        history, spread = gaps.dense(known.past, gaps.width - gaps.n_features)
        is_before = torch.arange(p).repeat_interleave(gaps.n_features) < torch.from_numpy(p - gaps.time).unsqueeze(1)
        return self.observation.join_past(history.masked_fill(is_before, torch.nan), spread)


def _runs(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of the first row of each run of equal adjacent rows, and the run's number for each row ``(n,)``.

    Rows are equal if they are equal in all ``tensors``, each ``(n, m)``.
    """
    changes = torch.stack([(each[1:] != each[:-1]).any(-1) for each in tensors]).any(0)  # (n - 1,)
    is_first = torch.nn.functional.pad(changes, (1, 0), value=True)
    return is_first.nonzero().squeeze(1), is_first.cumsum(0) - 1


def _by_sequence(n_sequences: int, gaps: Gaps, past: Tensor, is_used: np.ndarray) -> list[Beliefs | None]:
    """Return the distributions of missing values of each sequence; None for a sequence that has none.

    Args:
        n_sequences: number of sequences.
        gaps: the parts of sequences with missing values, whose frames are R rows.
        past: means and covariances of the p frames before each row, ``(R, p + p²D, D)``.
        is_used: True for the rows whose past has missing values, ``(R,)``.
    """
    rows = np.lexsort((gaps.time, gaps.sequence))
    rows = rows[is_used[rows]]
    edges = np.searchsorted(gaps.sequence[rows], np.arange(n_sequences + 1))
    times, past = gaps.time[rows], past[torch.from_numpy(rows)]
    return [Beliefs(times[a:b], past[a:b]) if b > a else None for a, b in pairwise(edges.tolist())]


def fitted_filter(emission: AutoregressiveEmission, sequences: Sequence[np.ndarray]) -> PastFilter:
    """Return the Kalman filter of an autoregression that is fitted here, to sequences with missing values.

    The fit alternates until nothing changes: the filter gives means m and covariances P of the missing values before
    each frame, and frames are regressed on m, with P added to the sums of products. ``E[x_t | observed past]`` is
    linear in m, so that the coefficients are consistent, unlike the coefficients of a regression on filled-in values.

    Args:
        emission: the emission of the autoregression, which has its M-step.
        sequences: encoded sequences, ``(T, D)`` each, NaN where a value is missing; at most the first 100,000 frames
            are used.
    """
    observation = emission.plain
    emission = AutoregressiveEmission(observation, emission.size)  # the beliefs are those of the regression alone
    within = np.cumsum([len(x) for x in sequences]) <= MAX_FRAMES
    used = [np.asarray(x, dtype=np.float64) for x, few in zip(sequences, within, strict=True) if few]
    if not used:
        used = [np.asarray(sequences[0][:MAX_FRAMES], dtype=np.float64)]
    order, gaps = observation.order, Gaps.of(used, observation.order)
    x = torch.as_tensor(np.concatenate(used))
    table = emission.white_noise(x, torch.cat([torch.arange(len(each)) < order for each in used]), 1)
    # The sums of frames outside of gaps are computed once, because they have no missing values.
    starts = np.cumsum([0, *map(len, used)])
    is_complete = torch.ones(len(x), dtype=torch.bool)
    is_complete[torch.from_numpy((starts[gaps.sequence] + gaps.time)[~gaps.is_to_come])] = False
    past = torch.as_tensor(np.concatenate([_windows(each, order) for each in used]))[is_complete]
    (of_complete,) = emission.statistics(table, x[is_complete], past, torch.ones(len(past), 1, dtype=torch.float64))
    for _ in range(MAX_ROUNDS):
        of_gaps = quadratic.sums_of_moments(*gaps.sums(filtered(gaps, observation, table[0]).joint))
        updated = emission.maximise((of_complete + of_gaps,), table)
        change = float((updated - table).abs().max())
        table = updated
        if change < TOLERANCE:
            break
    return PastFilter(observation, table[0])


def mean_filter(observation: AutoregressiveGaussian, table: Tensor, weights: np.ndarray) -> PastFilter:
    """Return the filter for missing values of an HMM that was fitted to complete data.

    Its autoregression is the average of those of the states; with one state it is that state's own.

    Args:
        observation: the autoregression.
        table: coefficients, intercepts and covariances of each state as the P numbers that it takes, ``(K, P)``.
        weights: weights of the states in the average, their shares of the steps, ``(K,)``.
    """
    share = torch.as_tensor(weights, dtype=torch.float64)
    return PastFilter(observation, observation.mean_parameters(table.double().cpu(), share))


def filters_itself(observation: AutoregressiveGaussian, n_states: int) -> bool:
    """Return True if EM filters and smooths missing values exactly, by the autoregression that it fits.

    It does for one state without a background. Otherwise a filter that is fitted once, before EM, is kept.

    Args:
        observation: the autoregression.
        n_states: number of states.
    """
    return n_states == 1 and not observation.background


def has_missing(sequences: Sequence[np.ndarray]) -> bool:
    """Return True if any value of any of the encoded ``sequences`` is missing (NaN)."""
    return any(x.has_missing if isinstance(x, OnDisk) else bool(np.isnan(np.asarray(x)).any()) for x in sequences)


def with_beliefs(past: Tensor, parts: Sequence[tuple[Beliefs | None, int, int]]) -> Tensor:
    """Return the p frames before some steps with the distributions of missing values, ``(N, p + p²D, D)`` float64.

    Means are the first p rows of each step, and covariances the others; those of observed values are zero.

    Args:
        past: the p frames before each of N steps, ``(N, p, D)``.
        parts: the N steps as consecutive parts of sequences; for each part the distributions of missing values of its
            sequence, or None, the number of its first step and that of the step after its last.
    """
    n, p, size = past.shape
    wide = torch.zeros(n, p + p * p * size, size, dtype=torch.float64)
    wide[:, :p] = past
    row = 0
    for beliefs, first, stop in parts:
        if beliefs is not None:
            a, b = np.searchsorted(beliefs.steps, [first, stop])
            wide[torch.as_tensor(beliefs.steps[a:b] - first + row)] = beliefs.past[a:b]
        row += stop - first
    return wide


def _windows(x: np.ndarray, p: int) -> np.ndarray:
    """Return the p frames before each frame of ``x (T, D)``, oldest first, ``(T, p, D)``; NaN before the start."""
    padded = np.concatenate([np.full((p, x.shape[1]), np.nan), x])
    return np.stack([padded[i : i + len(x)] for i in range(p)], axis=1)

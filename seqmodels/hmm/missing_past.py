"""What is known of past frames with missing values: a Kalman filter of one autoregression that all states share.

The density of a frame in a state needs the p frames before it. Where values of those are missing, they are Gaussian
given all that was observed before, ``N(m, P)``, under an autoregression fitted to the data as if they had one state.
m and P are functions of the observed past alone, so that the densities of all frames multiply to one probability of
what was observed. One state is its own filter, so that this is the probability of a vector autoregression, exactly, and
EM smooths: what is known of missing values given the whole sequence (Durbin and Koopman 2012, *Time series analysis by
state space methods*, sections 4.4 and 4.10; Shumway and Stoffer 1982). Several states differ in what they predict from
the past but not in what they know of it: exact would be a mixture with a component for every path of states through a
gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.observations import AutoregressiveGaussian, gaussian
from seqmodels.preparation import OnDisk

MAX_ROUNDS = 40  # of fitting the autoregression,
TOLERANCE = 1e-5  # or until no coefficient moves by more, in standardised units
MAX_FRAMES = 100_000  # that it is fitted to


@dataclass(frozen=True)
class Beliefs:
    """Where a sequence's past has missing values: ``steps (m,)``, and what is known there, ``past (m, p + p²D, D)``.

    ``past`` is as ``AutoregressiveGaussian`` takes it, float64 on the CPU; of ``PastFilter.smoothed`` it has further
    rows, what is known of past and frame given the whole sequence. Steps are in order, the last perhaps the one after
    the sequence.
    """

    steps: np.ndarray
    past: Tensor


@dataclass(frozen=True)
class PastFilter:
    """The Kalman filter of ``observation`` with output parameters ``row (P,)``, float64."""

    observation: AutoregressiveGaussian
    row: Tensor

    def advance(self, past: Tensor, x: Tensor) -> Tensor:
        """What is known of the last p steps after ``x (n, D)``: ``(n, p or p + p²D, D)`` -> ``(n, p + p²D, D)``."""
        return self._past_of(*self._joint_after(self.widened(past), x))

    def widened(self, past: Tensor) -> Tensor:
        """``past (n, p, D)``, all known, as ``(n, p + p²D, D)`` float64; what has this shape already as it is."""
        history, spread = self.observation.split_past(past.double())
        if spread is None:
            spread = torch.zeros(*history.shape, history.shape[-1], dtype=torch.float64, device=past.device)
        return self.observation.join_past(history, spread)

    def _joint_after(self, past: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance of the last p steps and ``x (n, D)``, given what x has of values."""
        history, spread = self.observation.split_past(past)
        assert spread is not None, "it was widened"
        mean, covariance = self.observation.joint(self.row.to(past.device), history, spread)
        return gaussian.given_last(mean, covariance, x.double())

    def _past_of(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """What is known of the last p steps, from mean and covariance of p + 1."""
        size = mean.shape[-1] // (self.observation.order + 1)
        return self.observation.join_past(mean[:, size:], covariance[:, size:, size:])

    @torch.no_grad()
    def beliefs(self, sequences: Sequence[np.ndarray]) -> list[Beliefs | None]:
        """Of each encoded sequence ``(T, D)``; None of one without missing values.

        Only gaps, which begin with a missing value and end with p complete frames, are filtered, side by side.
        """
        gaps = [(i, *bounds) for i, x in enumerate(sequences) for bounds in _gaps(x, self.observation.order)]
        gaps.sort(key=lambda s: s[1] - s[2])  # the longest first
        pasts, _ = self._filtered(sequences, gaps)
        return _by_sequence(len(sequences), [(i, first + 1, stop + 1) for i, first, stop in gaps], pasts[1:])

    @torch.no_grad()
    def smoothed(self, sequences: Sequence[np.ndarray]) -> list[Beliefs | None]:
        """As ``beliefs``, with the ``smoothed_joint`` of the observation: what EM of one state needs.

        It is of no use before the first p frames are over, whose Gaussian does not depend on the past.
        """
        p = self.observation.order
        # With the first frame after which the past is known again: what is known before it is smoothed too.
        gaps = [(i, first, min(stop + 1, len(x))) for i, x in enumerate(sequences) for first, stop in _gaps(x, p)]
        gaps.sort(key=lambda s: s[1] - s[2])
        pasts, joints = self._filtered(sequences, gaps)
        size = p * sequences[0].shape[1]
        for k in reversed(range(len(joints) - 1)):
            n = len(joints[k + 1][0])  # gaps that go on; of the others what was filtered is all that there is to know
            (mean, covariance), (mean_after, covariance_after) = joints[k], joints[k + 1]
            smoothed = _smoothed(mean[:n], covariance[:n], mean_after[:, :size], covariance_after[:, :size, :size])
            joints[k] = torch.cat([smoothed[0], mean[n:]]), torch.cat([smoothed[1], covariance[n:]])
        pasts = [
            torch.cat(
                [past[: len(mean)], _rows(mean, p + 1), _rows(covariance.flatten(-2), (p + 1) ** 2 * size // p)], 1
            )
            for past, (mean, covariance) in zip(pasts, joints, strict=False)
        ]
        return _by_sequence(len(sequences), gaps, pasts)

    def _filtered(
        self, sequences: Sequence[np.ndarray], gaps: Sequence[tuple[int, int, int]]
    ) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """What is known of the past before each step of the gaps, the longest first, and at the end of them; and mean
        and covariance of past and frame after each frame. The k-th of the latter are of the gaps of more than k steps.
        """
        if not gaps:
            return [], []
        past = torch.stack([torch.as_tensor(_window(sequences[i], t, self.observation.order)) for i, t, _ in gaps])
        lengths = np.array([stop - first for _, first, stop in gaps])
        pasts, joints = [self.widened(past)], []
        for k in range(int(lengths.max())):
            n = int((lengths > k).sum())
            x = torch.as_tensor(np.stack([sequences[i][first + k] for i, first, _ in gaps[:n]]))
            joints.append(self._joint_after(pasts[-1][:n], x))
            pasts.append(self._past_of(*joints[-1]))
        return pasts, joints


def _smoothed(mean: Tensor, covariance: Tensor, mean_after: Tensor, covariance_after: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the smoother of Rauch, Tung and Striebel (1965).

    ``mean (n, (p + 1) D)`` and ``covariance`` are of past and frame given what came so far, those ``after`` of all but
    the oldest frame, ``(n, pD)``, given the whole sequence.
    """
    drop = mean.shape[-1] - mean_after.shape[-1]
    filtered = covariance[:, drop:, drop:]
    # What is known has variances of exactly zero.
    is_known = torch.diag_embed((filtered.diagonal(dim1=-2, dim2=-1) == 0).to(mean.dtype))
    gain = torch.linalg.solve(filtered + is_known, covariance[:, drop:]).mT  # (n, (p + 1) D, pD)
    mean = mean + (gain @ (mean_after - mean[:, drop:]).unsqueeze(-1)).squeeze(-1)
    covariance = covariance + gain @ (covariance_after - filtered) @ gain.mT
    return mean, 0.5 * (covariance + covariance.mT)


def _rows(values: Tensor, n: int) -> Tensor:
    """``(m, n D)`` -> ``(m, n, D)``."""
    rows: Tensor = values.unflatten(-1, (n, -1))
    return rows


def _by_sequence(
    n_sequences: int, gaps: Sequence[tuple[int, int, int]], pasts: Sequence[Tensor]
) -> list[Beliefs | None]:
    """Beliefs of each sequence, from ``(sequence, first, stop)`` of each gap and the k-th step of all that have it."""
    parts: list[list[tuple[np.ndarray, Tensor]]] = [[] for _ in range(n_sequences)]
    for row, (i, first, stop) in sorted(enumerate(gaps), key=lambda item: item[1]):
        of_gap = torch.stack([past[row] for past in pasts[: stop - first]])
        parts[i].append((np.arange(first, stop), of_gap))
    return [
        Beliefs(np.concatenate([s for s, _ in each]), torch.cat([b for _, b in each])) if each else None
        for each in parts
    ]


def fitted_filter(emission: AutoregressiveEmission, sequences: Sequence[np.ndarray]) -> PastFilter:
    """The autoregression of one state: its regression is that of each frame on what its own filter knows of the past.

    Frames are regressed on m, with P in the sums, and filtered again, until both agree: ``E[x_t | observed past]`` is
    linear in m, so that the coefficients are consistent, where a regression on filled-in values is not.
    """
    observation = emission.observation
    within = np.cumsum([len(x) for x in sequences]) <= MAX_FRAMES
    used = [np.asarray(x, dtype=np.float64) for x, few in zip(sequences, within, strict=True) if few]
    if not used:
        used = [np.asarray(sequences[0][:MAX_FRAMES], dtype=np.float64)]
    x = torch.as_tensor(np.concatenate(used))
    gamma = torch.ones(len(x), 1, dtype=torch.float64)
    windows = torch.as_tensor(np.concatenate([_windows(each, observation.order) for each in used]))
    table = emission.white_noise(x, torch.cat([torch.arange(len(each)) < observation.order for each in used]), 1)
    for _ in range(MAX_ROUNDS):
        beliefs = PastFilter(observation, table[0]).beliefs(used)
        parts = [(each, 0, len(values)) for each, values in zip(beliefs, used, strict=True)]
        past = with_beliefs(windows, parts)
        updated = emission.maximise(emission.statistics(table, x, past, gamma), table)
        change = float((updated - table).abs().max())
        table = updated
        if change < TOLERANCE:
            break
    return PastFilter(observation, table[0])


def mean_filter(observation: AutoregressiveGaussian, table: Tensor, weights: np.ndarray) -> PastFilter:
    """The filter of an HMM that was fitted to complete data: the states' mean autoregression.

    ``weights (K,)`` are the shares of the states; of one state it is the state's own.
    """
    share = torch.as_tensor(weights, dtype=torch.float64)
    return PastFilter(observation, observation.mean_parameters(table.double().cpu(), share))


def has_missing(sequences: Sequence[np.ndarray]) -> bool:
    """Whether a value of any is NaN."""
    return any(x.has_missing if isinstance(x, OnDisk) else bool(np.isnan(np.asarray(x)).any()) for x in sequences)


def with_beliefs(past: Tensor, parts: Sequence[tuple[Beliefs | None, int, int]]) -> Tensor:
    """``past (N, p, D)`` of some steps, with what is known of missing values: ``(N, p + p²D, D)`` float64, or with
    further rows where it was smoothed.

    ``parts``: of each run of steps in turn the beliefs of its sequence, its first step and the one after its last.
    """
    n, p, size = past.shape
    n_rows = max((b.past.shape[1] for b, *_ in parts if b is not None), default=p + p * p * size)
    wide = torch.zeros(n, n_rows, size, dtype=torch.float64)
    wide[:, :p] = past
    row = 0
    for beliefs, first, stop in parts:
        if beliefs is not None:
            a, b = np.searchsorted(beliefs.steps, [first, stop])
            wide[torch.as_tensor(beliefs.steps[a:b] - first + row)] = beliefs.past[a:b]
        row += stop - first
    return wide


def _gaps(x: np.ndarray, p: int) -> list[tuple[int, int]]:
    """``[first, stop)``: from a frame with a missing value until p complete frames have passed."""
    missing = np.isnan(np.asarray(x)).any(axis=1)
    if not missing.any():
        return []
    # After frame t the past is uncertain if one of its last p frames misses a value.
    uncertain = np.convolve(missing, np.ones(p))[: len(x)] > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], uncertain, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _windows(x: np.ndarray, p: int) -> np.ndarray:
    """``(T, p, D)``: the frames before each, NaN before the first."""
    padded = np.concatenate([np.full((p, x.shape[1]), np.nan), x])
    return np.stack([padded[i : i + len(x)] for i in range(p)], axis=1)


def _window(x: np.ndarray, t: int, p: int) -> np.ndarray:
    """``(p, D)`` float64: the frames before frame t, NaN before the first."""
    early = np.full((max(0, p - t), x.shape[1]), np.nan)
    return np.concatenate([early, np.asarray(x[max(0, t - p) : t], dtype=np.float64)])

"""What is known of past frames with missing values: a Kalman filter of one autoregression that all states share.

The density of a frame in a state needs the p frames before it. Where values of those are missing, they are Gaussian
given all that was observed before, ``N(m, P)``, under an autoregression fitted to the data as if they had one state.
m and P are functions of the observed past alone, so that the densities of all frames multiply to one probability of
what was observed; with one state it is that of a vector autoregression, exactly (Durbin and Koopman 2012, *Time series
analysis by state space methods*, section 4.10). With several, the states differ in what they predict from the past but
not in what they know of it: exact would be a mixture with a component for every path of states through a gap.
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

    ``past`` is as ``AutoregressiveGaussian`` takes it, float64 on the CPU. Steps are in order, the last perhaps the one
    after the sequence.
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
        size = x.shape[-1]
        history, spread = self.observation.split_past(past.double())
        if spread is None:
            spread = torch.zeros(*history.shape, history.shape[-1], dtype=torch.float64, device=past.device)
        mean, covariance = self.observation.joint(self.row.to(past.device), history, spread)
        mean, covariance = gaussian.given_last(mean, covariance, x.double())
        return self.observation.join_past(mean[:, size:], covariance[:, size:, size:])

    @torch.no_grad()
    def beliefs(self, sequences: Sequence[np.ndarray]) -> list[Beliefs | None]:
        """Of each encoded sequence ``(T, D)``; None of one without missing values.

        Only gaps, which begin with a missing value and end with p complete frames, are filtered, side by side.
        """
        p = self.observation.order
        gaps = [(i, *bounds) for i, x in enumerate(sequences) for bounds in _gaps(x, p)]
        gaps.sort(key=lambda s: s[1] - s[2])  # the longest first
        if not gaps:
            return [None] * len(sequences)
        past = torch.stack([torch.as_tensor(_window(sequences[i], first, p)) for i, first, _ in gaps])
        lengths = np.array([stop - first for _, first, stop in gaps])
        after: list[list[Tensor]] = [[] for _ in gaps]
        for k in range(int(lengths.max())):
            n = int((lengths > k).sum())
            x = np.stack([sequences[i][first + k] for i, first, _ in gaps[:n]])
            past = self.advance(past[:n], torch.as_tensor(x))
            for parts, one in zip(after, past, strict=False):
                parts.append(one)
        by_sequence: list[list[tuple[np.ndarray, Tensor]]] = [[] for _ in sequences]
        for (i, first, stop), parts in sorted(zip(gaps, after, strict=True), key=lambda item: item[0]):
            by_sequence[i].append((np.arange(first + 1, stop + 1), torch.stack(parts)))
        return [
            Beliefs(np.concatenate([s for s, _ in each]), torch.cat([b for _, b in each])) if each else None
            for each in by_sequence
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
    """``past (N, p, D)`` of some steps, with what is known of missing values: ``(N, p + p²D, D)`` float64.

    ``parts``: of each run of steps in turn the beliefs of its sequence, its first step and the one after its last.
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

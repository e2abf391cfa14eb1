"""Filter and smoother of sequences that each miss other values, run side by side.

The noise of observations must be diagonal. Without numba, use ``kalman``, one pattern of missing values at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.inference.gaussian.kalman import System

if TYPE_CHECKING:
    from seqmodels.inference.gaussian.compiled_missing import Arrays, FilteredBlock

SIDE_BY_SIDE = 64  # sequences, whose matrices stay in the processor's caches
MOST_STEPS = 100_000  # of all sequences of a block, whose covariances are kept


@dataclass(frozen=True)
class MissingBlock:
    """A block of m sequences of similar lengths, each with missing values of its own, to be filtered side by side.

    T is the length of the longest sequence, and D the number of features. A block has at most ``SIDE_BY_SIDE``
    sequences.

    Attributes:
        numbers: number of each sequence among all sequences, ``(m,)``.
        x: values less ``centre``, ``(T, D, m)``; 0 where missing.
        seen: 1 where a value is observed, else 0, ``(T, D, m)``.
        reaches: 1 where the sequence has this step, else 0, ``(T, m)``.
        rows: weights for sums over steps, ``(T, D + 2, m)``: the sequence's weight where each of the D features is
            observed, then at each of its steps, then at each of its steps but the last; else 0.
        centre: vector that is subtracted from values, ``(D,)``, so that sums of squares keep their digits.
    """

    numbers: np.ndarray
    x: np.ndarray
    seen: np.ndarray
    reaches: np.ndarray
    rows: np.ndarray
    centre: np.ndarray

    @property
    def observed(self) -> Arrays:
        """The arrays that compiled loops read: ``x``, ``seen``, ``reaches`` and ``rows``."""
        return self.x, self.seen, self.reaches, self.rows

    @classmethod
    def of(
        cls, values: Sequence[np.ndarray], numbers: np.ndarray, weights: np.ndarray, centre: np.ndarray
    ) -> MissingBlock:
        """Return the block of the sequences whose numbers are given.

        Args:
            values: values of all sequences, ``(T_i, D)``, NaN where missing.
            numbers: numbers of the sequences of this block, ``(m,)``.
            weights: weights of all sequences, ``(n,)``.
            centre: vector to subtract from values, ``(D,)``.
        """
        lengths = np.array([len(values[i]) for i in numbers])
        x = np.full((lengths.max(), len(centre), len(numbers)), np.nan)
        for m, i in enumerate(numbers):
            x[: lengths[m], :, m] = values[i] - centre
        steps, w = np.arange(len(x))[:, None], weights[numbers]
        seen, reaches = (~np.isnan(x)).astype(np.float64), (steps < lengths).astype(np.float64)
        rows = np.concatenate([w * seen, (w * reaches)[:, None], (w * (steps < lengths - 1))[:, None]], 1)
        return cls(numbers, np.nan_to_num(x), seen, reaches, rows, centre)


def missing_blocks(values: Sequence[np.ndarray], numbers: np.ndarray, weights: np.ndarray) -> list[MissingBlock]:
    """Divide sequences into blocks of similar lengths, in which the Kalman filter runs side by side.

    Args:
        values: values of all sequences, ``(T_i, D)``, NaN where missing.
        numbers: numbers of the sequences to divide, ``(m,)``.
        weights: weights of all sequences, ``(n,)``.
    """
    order = numbers[np.argsort([-len(values[i]) for i in numbers], kind="stable")]
    every = np.concatenate([values[i] for i in order])
    n_seen = (~np.isnan(every)).sum(0)
    centre, blocks, start = np.nansum(every, 0) / np.maximum(n_seen, 1), [], 0
    while start < len(order):
        size = min(SIDE_BY_SIDE, max(1, MOST_STEPS // len(values[order[start]])))
        blocks.append(MissingBlock.of(values, order[start : start + size], weights, centre))
        start += size
    return blocks


@dataclass(frozen=True)
class SmoothedSums:
    """Weighted sums of expectations of the K hidden states given all values, over the m sequences of a block.

    Attributes:
        log_prob: log p(x_t | x_<t) in nats, ``(T, m)``; 0 after the last step.
        first: sum of E[z_1], ``(K,)``.
        first_square: sum of E[z_1 z_1ᵀ], ``(K, K)``.
        state_state: sums of E[z zᵀ] over the steps where each feature is observed, ``(D, K, K)``.
        state_sum: sums of E[z] over the steps where each feature is observed, ``(D, K)``.
        now_now: sum of E[z_t z_tᵀ] over t from 2 on, ``(K, K)``.
        now_before: sum of E[z_t z_t-1ᵀ] over t from 2 on, ``(K, K)``.
        before_before: sum of E[z_t-1 z_t-1ᵀ] over t from 2 on, ``(K, K)``.
        seen_state: sum of ``(x - centre) E[z]ᵀ``, ``(D, K)``.
    """

    log_prob: np.ndarray
    first: np.ndarray
    first_square: np.ndarray
    state_state: np.ndarray
    state_sum: np.ndarray
    now_now: np.ndarray
    now_before: np.ndarray
    before_before: np.ndarray
    seen_state: np.ndarray


def log_probs_of_block(system: System, intercept: np.ndarray, block: MissingBlock) -> np.ndarray:
    """Return the log-probability of each step of m sequences given those before, in nats, ``(T, m)``.

    Beyond the last step of a sequence it is 0.

    Args:
        system: matrices of the system, whose observation noise must be diagonal.
        intercept: vector that is added to every observation, ``(D,)``.
        block: the sequences.
    """
    return _filtered(system, intercept, block, keeps=False)[1].log_prob


def innovations_of_block(system: System, intercept: np.ndarray, block: MissingBlock) -> tuple[np.ndarray, np.ndarray]:
    """Return the squares of the standardised innovations and the log-determinants of their factors, both ``(T, m)``.

    Squares are summed over the observed features of a step. The factor of a step is s, where ``sᵀs`` is the covariance
    of the innovation of the observed features. Beyond the last step of a sequence both are 0.

    Args:
        system: matrices of the system, whose observation noise must be diagonal.
        intercept: vector that is added to every observation, ``(D,)``.
        block: the sequences.
    """
    by_error, precision = _filtered(system, intercept, block, keeps=False)[1].errors.transpose(2, 0, 1, 3)
    precision = np.where(precision > 0, precision, 1.0)
    return (by_error**2 / precision).sum(1), -0.5 * np.log(precision).sum(1)


def sums_of_block(system: System, intercept: np.ndarray, block: MissingBlock) -> SmoothedSums:
    """Return the E-step of a block of sequences: sums of expectations of their states given all values.

    Args:
        system: matrices of the system, whose observation noise must be diagonal.
        intercept: vector that is added to every observation, ``(D,)``.
        block: the sequences.
    """
    from seqmodels.inference.gaussian.compiled_missing import SumsOfBlock, smooth_apart

    D, K = system.observation.shape
    diagonal, filtered = _filtered(system, intercept, block, keeps=True)
    first = np.empty((K + K * K, len(block.numbers)))
    sums = SumsOfBlock(first, np.zeros((D + 2, K * K)), np.zeros((D + 2, K)), np.zeros((D, K)), np.zeros((K, K)))
    smooth_apart(diagonal, block.observed, tuple(filtered), tuple(sums))
    at_start = first @ block.rows[0, D]
    first_square, every = at_start[K:].reshape(K, K), sums.state_state.reshape(-1, K, K)
    before, noise = every[D + 1], system.state_factor.T @ (system.state_factor @ sums.noise_state)
    return SmoothedSums(
        *(filtered.log_prob, at_start[:K], first_square, every[:D], sums.state_sum[:D]),
        *(every[D] - first_square, system.transition @ before + noise, before, sums.seen_state),
    )


def _filtered(
    system: System, intercept: np.ndarray, block: MissingBlock, *, keeps: bool
) -> tuple[Arrays, FilteredBlock]:
    """Run the Kalman filter over a block; return the system as ``compiled_missing`` takes it, and the results.

    Args:
        system: matrices of the system, whose observation noise must be diagonal.
        intercept: vector that is added to every observation, ``(D,)``.
        block: the sequences.
        keeps: True if the results are to include the means and covariances of the states.
    """
    from seqmodels.inference.gaussian.compiled_missing import FilteredBlock, filter_apart

    (n_steps, D, n), K = block.x.shape, len(system.transition)
    n_kept = n_steps if keeps else 0
    diagonal = (
        *(np.ascontiguousarray(system.transition), np.ascontiguousarray(system.state_factor)),
        *(np.ascontiguousarray(system.observation), intercept - block.centre),
        np.square(np.diagonal(system.noise_factor)),
        *(system.initial_mean, np.ascontiguousarray(system.initial_factor)),
    )
    filtered = FilteredBlock(
        *(np.empty((n_steps, n)), np.empty((n_steps, D, 2, n)), np.empty((n_steps, D, K, n))),
        *(np.empty((n_kept, K, n)), np.empty((n_kept, K, K, n))),
    )
    filter_apart(diagonal, block.observed, tuple(filtered))
    return diagonal, filtered

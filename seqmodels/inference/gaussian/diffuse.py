"""A first state about which nothing is known: exact diffuse likelihood and moments.

``z_1 = m + Δ δ`` with ``δ ~ N(0, κ I)``, where κ goes to infinity. The filter is linear in the first state, so that it
runs once with δ = 0 and once for each element of δ without data, and δ is found by least squares on the innovations
(Rosenberg 1973; de Jong 1991, *The diffuse Kalman filter*). ``lim log p(x) + r/2 log κ``, where the data determine r
elements of δ, is the diffuse log-likelihood of Durbin and Koopman (2012, section 7.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmodels.inference.gaussian.kalman import (
    CovarianceSums,
    Gains,
    SequenceGroup,
    System,
    covariances_by_adjoints,
    filter_group,
    smooth_group_by_adjoints,
)
from seqmodels.inference.gaussian.packing import StepPacking

UNDETERMINED = 1e-11  # directions of δ whose singular values are a smaller share of the largest are undetermined


@dataclass(frozen=True)
class DiffuseMoments:
    """The diffuse log-likelihood and the smoothed moments of n sequences of one length T.

    Attributes:
        log_prob: diffuse log-likelihood in nats, ``(n,)``.
        rank: number of unknown (diffuse) elements of the first state that the data determine.
        means: means of the K states given the whole sequence, ``(N, K)`` packed.
        covariances: smoothed covariances of one sequence, the same for all; without the undetermined part if ``rank``
            is too small.
    """

    log_prob: np.ndarray
    rank: int
    means: np.ndarray
    covariances: CovarianceSums


def split_by_length(group: SequenceGroup) -> list[SequenceGroup]:
    """Return groups of sequences of equal length, into which a group of packed sequences is split."""
    if group.packing.counts[-1] == len(group.numbers):
        return [group]
    lengths = np.bincount(group.packing.ranks)  # lengths of the sequences in order, the longest first
    parts = []
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        rows = (group.packing.offsets[:length, None] + chosen).reshape(-1)
        drive = None if group.drive is None else group.drive[rows]
        packing = StepPacking.of([int(length)] * len(chosen))
        numbers = group.numbers[group.packing.order[chosen]]
        parts.append(
            SequenceGroup(numbers, packing, np.ascontiguousarray(group.x[rows]), group.observed, drive, group.gaps)
        )
    return parts


def diffuse_moments(
    system: System, group: SequenceGroup, directions: np.ndarray, *, smooths: bool = True
) -> DiffuseMoments:
    """Return the diffuse log-likelihood, and the smoothed moments, of packed sequences of one length.

    Args:
        system: matrices of the system; its initial mean and covariance are those of the first state where the unknown
            part is 0.
        group: packed sequences of one length.
        directions: what a unit of each of q unknown (diffuse) elements adds to the first state, ``(q, K)``; q may be 0.
        smooths: if False, only the likelihood is computed, and means and covariances have no rows.
    """
    n, length, q = len(group.numbers), group.packing.n_steps, len(directions)
    gains = Gains.of(system, length, group.observed)
    known = filter_group(system, gains, group)
    if not q:
        log_prob = known.log_prob.reshape(length, n).sum(0)
        if not smooths:
            return _without_moments(log_prob, 0)
        smoothed = smooth_group_by_adjoints(system, gains, group, known)
        return DiffuseMoments(log_prob, 0, smoothed, covariances_by_adjoints(system, gains, group))
    response_group = SequenceGroup(
        np.arange(q), StepPacking.of([length] * q), np.zeros((q * length, group.x.shape[1])), group.observed
    )
    response = filter_group(system, gains, response_group, directions)
    design = response.innovations.reshape(length, q, -1).transpose(0, 2, 1).reshape(-1, q)  # (T D, q)
    target = known.innovations.reshape(length, n, -1).transpose(0, 2, 1).reshape(-1, n)
    left, singular, right = np.linalg.svd(design, full_matrices=False)
    is_determined = singular > UNDETERMINED * singular.max(initial=0.0)
    inverse = np.where(is_determined, 1 / np.where(is_determined, singular, 1.0), 0.0)
    delta = -((left.T @ target).T * inverse) @ right  # (n, q)
    squares = np.square(target + design @ delta.T).sum(0)
    constant = known.log_prob.reshape(length, n).sum(0) + 0.5 * np.square(target).sum(0)
    log_prob = constant - 0.5 * squares - np.log(singular[is_determined]).sum()
    rank = int(is_determined.sum())
    if not smooths:
        return _without_moments(log_prob, rank)
    smoothed = smooth_group_by_adjoints(system, gains, group, known).reshape(length, n, -1)
    moved = smooth_group_by_adjoints(system, gains, response_group, response).reshape(length, q, -1)
    means = smoothed + np.einsum("nq,tqk->tnk", delta, moved)
    root = np.einsum("rq,tqk->trk", inverse[:, None] * right, moved)  # root of the covariance that δ adds
    sums = covariances_by_adjoints(system, gains, group)
    added = np.einsum("trk,trl->tkl", root, root)
    across = sums.across.copy()
    across[:-1] += np.einsum("trk,trl->tkl", root[1:], root[:-1])
    covariances = CovarianceSums(sums.now + added, across, sums.before + added[:-1].sum(0))
    return DiffuseMoments(log_prob, rank, means.reshape(n * length, -1), covariances)


def _without_moments(log_prob: np.ndarray, rank: int) -> DiffuseMoments:
    nothing = np.empty((0, 0))
    return DiffuseMoments(log_prob, rank, nothing, CovarianceSums(nothing, nothing, nothing))

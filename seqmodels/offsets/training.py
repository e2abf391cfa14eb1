"""The offsets of training sequences, and their prior: a Gaussian over clusters, by EM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seqmodels.preparation import Example

Read = Callable[[list[Example], np.ndarray], tuple[np.ndarray, np.ndarray]]  # precisions and gradients, by example

RIDGE = 1e-3  # pseudo-frames of unit variance, of the linear prediction
ROUNDS_OF_LINEAR = 20  # of EM around the linear prediction
CHANGE = 1e-4  # of an offset, below which rounds end; encoded units
MAX_FRAMES = 2_000  # of a cluster: more would say nothing new of D numbers


@dataclass(frozen=True)
class Prior:
    """``N(0, covariance)`` of a cluster's offset, by EM with pseudo-clusters.

    Args:
        is_diagonal: whether the offsets of two features are independent.
        count: clusters that are seen besides those of training,
        variance: each with offsets of this variance: the mode of an inverse Wishart prior.
    """

    is_diagonal: bool
    count: float
    variance: float

    def start(self, size: int) -> np.ndarray:
        """``(D, D)``, before any cluster was seen."""
        return self.variance * np.eye(size)

    def maximised(self, means: np.ndarray, covariances: np.ndarray) -> np.ndarray:
        """``(D, D)`` from the posteriors of all clusters, ``(n, D)`` and ``(n, D, D)``."""
        seen = (covariances + means[:, :, None] * means[:, None, :]).sum(0)
        if self.is_diagonal:
            seen = np.diag(np.diag(seen))
        total: np.ndarray = (seen + self.count * self.start(len(seen))) / (len(means) + self.count)
        return total


def cluster_ids(examples: list[Example]) -> np.ndarray:
    """``(n,)`` numbers of the examples' clusters, from 0; one that names none is a cluster of its own."""
    numbers: dict[object, int] = {}
    keys = [("cluster", e.cluster) if e.cluster is not None else ("sequence", i) for i, e in enumerate(examples)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def thinned_out(examples: list[Example], clusters: np.ndarray) -> np.ndarray:
    """``(m,)`` numbers of some examples of each cluster, evenly spaced, of ``MAX_FRAMES`` together or one."""
    chosen = []
    for cluster in range(int(clusters.max()) + 1 if len(clusters) else 0):
        members = np.flatnonzero(clusters == cluster)
        n_frames = sum(len(examples[i].values) for i in members)
        n = max(1, min(len(members), int(len(members) * MAX_FRAMES / n_frames)))
        chosen.append(members[np.linspace(0, len(members) - 1, n).round().astype(np.int64)])
    return np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int64)


def posteriors(
    examples: list[Example],
    clusters: np.ndarray,
    read: Read,
    start: np.ndarray,
    prior_mean: np.ndarray,
    prior_covariance: np.ndarray,
    n_rounds: int,
    on_round: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda means, covariances: np.zeros(0),
) -> tuple[np.ndarray, np.ndarray]:
    """Means ``(n, D)`` and covariances ``(n, D, D)`` of the clusters' offsets given all of their examples.

    Newton's steps: the examples are read with the offsets as they stand, and what is read is linear around them. For a
    linear Gaussian model the first step is exact.

    Args:
        read: what examples say of their offsets, around those that it is given.
        start: ``(n, D)`` offsets to begin with.
        prior_mean, prior_covariance: ``(D,)`` and ``(D, D)`` of all clusters.
        n_rounds: at most.
        on_round: called with means and covariances; what it returns, if that is not empty, is the prior's covariance
            from then on.
    """
    means, weights = start, np.array([e.weight for e in examples])
    covariances = np.broadcast_to(prior_covariance, (len(means), *prior_covariance.shape))
    for _ in range(n_rounds):
        precision, gradient = read(examples, means[clusters])
        inverse = np.linalg.inv(prior_covariance)
        total = np.broadcast_to(inverse, covariances.shape).copy()
        np.add.at(total, clusters, weights[:, None, None] * precision)
        slope = (prior_mean - means) @ inverse
        np.add.at(slope, clusters, weights[:, None] * gradient)
        covariances = np.linalg.inv(total)
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        moved = np.einsum("cij,cj->ci", covariances, slope)
        means = means + moved
        updated = on_round(means, covariances)
        prior_covariance = updated if updated.size else prior_covariance
        if np.abs(moved).max() < CHANGE:
            break
    return means, covariances


def linear_offsets(examples: list[Example], clusters: np.ndarray, prior: Prior) -> np.ndarray:
    """``(n, D)`` offsets of the clusters under ``x_t - b = A (x_{t-1} - b) + c + e_t``, by EM: where fitting begins.

    Frames with missing values, and those after one, are left out. What is regressed are the frames less the offsets'
    means.
    """
    size = examples[0].values.shape[1]
    before = np.concatenate([e.values[:-1] for e in examples]).astype(np.float64)
    after = np.concatenate([e.values[1:] for e in examples]).astype(np.float64)
    cluster = np.repeat(clusters, [len(e.values) - 1 for e in examples])
    weight = np.repeat([e.weight for e in examples], [len(e.values) - 1 for e in examples])
    known = ~(np.isnan(before).any(1) | np.isnan(after).any(1))
    before, after, cluster, weight = before[known], after[known], cluster[known], weight[known]
    n_clusters = int(clusters.max()) + 1
    means, covariance = np.zeros((n_clusters, size)), prior.start(size)
    if weight.sum() < 4 * (size + 1):  # too few to tell
        return means
    counts = np.bincount(cluster, weight, n_clusters)
    for _ in range(ROUNDS_OF_LINEAR):
        inputs = np.concatenate([before - means[cluster], np.ones((len(before), 1))], 1)
        targets = after - means[cluster]
        gram = inputs.T @ (weight[:, None] * inputs) + RIDGE * np.eye(size + 1)
        solution = np.linalg.solve(gram, inputs.T @ (weight[:, None] * targets))
        residual = targets - inputs @ solution
        noise = (residual.T @ (weight[:, None] * residual) + RIDGE * np.eye(size)) / weight.sum()
        slope = np.eye(size) - solution[:size].T  # H: x_t = A x_{t-1} + c + H b + e_t
        gain = slope.T @ np.linalg.inv(noise)
        total = np.zeros((n_clusters, size))
        np.add.at(total, cluster, weight[:, None] * residual)
        inverse = np.linalg.inv(covariance)
        covariances = np.linalg.inv(inverse + counts[:, None, None] * (gain @ slope))
        moved = np.einsum("cij,cj->ci", covariances, total @ gain.T - means @ inverse)
        means = means + moved
        covariance = prior.maximised(means, covariances)
        if np.abs(moved).max() < CHANGE:
            break
    return means

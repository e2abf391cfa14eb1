"""The offsets of training sequences, and their prior: a Gaussian over clusters, by EM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from seqmodels.encodings.examples import Example
from seqmodels.wrappers.offsets.cursor import Evidence

# What examples say of their offsets, around those that it is given, under the prior's scales.
Read = Callable[[list[Example], np.ndarray, "OffsetPrior"], Evidence]

RIDGE = 1e-3  # pseudo-frames of unit variance, of the linear prediction
ROUNDS_OF_LINEAR = 20  # of EM around the linear prediction
CHANGE = 1e-4  # of an offset, below which rounds end; encoded units
START_RATE = 0.3  # of drawing scales, before any sequence was seen
DRAWS = 20.0  # of scales, that what is known before counts as
MAX_FRAMES = 2_000  # of a cluster: more would say nothing new of D numbers


@dataclass(frozen=True)
class OffsetPrior:
    """The offset of a sequence is ``b_i = b + d_i``: ``b ~ N(mean, between)`` of its cluster, ``d_i ~ N(0, within)``.

    ``mean (D,)``, ``between`` and ``within (D, D)``, encoded units. ``scales (R,)`` are the probabilities of the scales
    that are drawn, ``rate`` that of drawing at a step.
    """

    mean: np.ndarray
    between: np.ndarray
    within: np.ndarray
    scales: np.ndarray = field(default_factory=lambda: np.ones(1))
    rate: float = 0.0

    @property
    def covariance(self) -> np.ndarray:
        """``(D, D)`` of the offset of one sequence."""
        total: np.ndarray = self.between + self.within
        return total


@dataclass(frozen=True)
class PriorOptions:
    """How the prior is learned, with pseudo-clusters and as many pseudo-sequences.

    Args:
        is_diagonal: whether ``between`` has no covariances.
        count: clusters that are seen besides those of training,
        variance: each with offsets of this variance: the mode of an inverse Wishart prior.
        n_scales: R. Before any sequence was seen all are equally frequent.
    """

    is_diagonal: bool
    count: float
    variance: float
    n_scales: int = 1

    def start(self, size: int, *, has_within: bool) -> OffsetPrior:
        """Before any cluster was seen; without ``has_within`` all sequences of a cluster have one offset."""
        one = self.variance * np.eye(size)
        scales = np.full(self.n_scales, 1 / self.n_scales)
        within = 0.1 * one if has_within else 0 * one
        return OffsetPrior(np.zeros(size), one, within, scales, START_RATE if self.n_scales > 1 else 0.0)

    def maximised(self, result: Posteriors, prior: OffsetPrior) -> OffsetPrior:
        """From the posteriors under ``prior``."""
        one = self.variance * np.eye(len(prior.mean))
        between = self._covariance(result.means, result.covariances.sum(0), one)
        if self.is_diagonal:
            between = np.diag(np.diag(between))
        within = prior.within
        if within.any():
            within = self._covariance(result.deviations, result.deviation_covariance, 0.1 * one)
        return replace(prior, between=between, within=within)

    def scales_maximised(self, draws: np.ndarray, n_steps: float, prior: OffsetPrior) -> OffsetPrior:
        """From the draws ``(n, R)`` that are expected of n sequences, of ``n_steps`` together; first steps are."""
        if self.n_scales == 1:
            return prior
        n_first = len(draws)
        rate = (draws.sum() - n_first + START_RATE * DRAWS) / (n_steps - n_first + DRAWS)
        uniform = np.full(self.n_scales, 1 / self.n_scales)
        return replace(prior, scales=with_draws(uniform, draws), rate=float(np.clip(rate, 0.0, 1.0)))

    def _covariance(self, means: np.ndarray, covariance: np.ndarray, mode: np.ndarray) -> np.ndarray:
        total: np.ndarray = (means.T @ means + covariance + self.count * mode) / (len(means) + self.count)
        return total


@dataclass(frozen=True)
class Posteriors:
    """Of C clusters and n sequences given all of them.

    Attributes:
        means: ``(C, D)`` of the clusters' offsets.
        covariances: ``(C, D, D)`` of the same.
        deviations: ``(n, D)``, what is expected of each sequence's offset less its cluster's.
        deviation_covariance: ``(D, D)``, the sum of their covariances.
    """

    means: np.ndarray
    covariances: np.ndarray
    deviations: np.ndarray
    deviation_covariance: np.ndarray


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


def posteriors(precision: np.ndarray, linear: np.ndarray, clusters: np.ndarray, prior: OffsetPrior) -> Posteriors:
    """Of linear Gaussian evidence: the log-likelihood of ``b_i`` is ``bᵀ linear_i - bᵀ precision_i b / 2``.

    Args:
        precision, linear: ``(n, D, D)`` and ``(n, D)``.
        clusters: ``(n,)`` numbers.
        prior: of all clusters.
    """
    n_clusters, size = int(clusters.max()) + 1, linear.shape[1]
    # What a sequence says of its cluster's offset, its deviation integrated out: (P⁻¹ + W)⁻¹ without the inverses.
    damped = np.linalg.inv(np.eye(size) + precision @ prior.within)
    inverse = np.linalg.inv(prior.between)
    total, total_linear = np.tile(inverse, (n_clusters, 1, 1)), np.tile(inverse @ prior.mean, (n_clusters, 1))
    np.add.at(total, clusters, damped @ precision)
    np.add.at(total_linear, clusters, np.einsum("nij,nj->ni", damped, linear))
    covariances = np.linalg.inv(total)
    covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
    means = np.einsum("cij,cj->ci", covariances, total_linear)
    of_sequence = prior.within @ damped  # (n, D, D): of d_i given its cluster's offset
    left = linear - np.einsum("nij,nj->ni", precision, means[clusters])
    gain = of_sequence @ precision
    spread = of_sequence + gain @ covariances[clusters] @ gain.transpose(0, 2, 1)
    return Posteriors(means, covariances, np.einsum("nij,nj->ni", of_sequence, left), spread.sum(0))


def offsets_of(
    examples: list[Example],
    clusters: np.ndarray,
    read: Read,
    prior: OffsetPrior,
    start: np.ndarray,
    n_rounds: int,
    options: PriorOptions | None = None,
) -> tuple[Posteriors, np.ndarray, OffsetPrior]:
    """Posteriors of clusters and sequences, draws of scales ``(n, R)``, and with ``options`` the prior that is learned.

    Newton's steps: the examples are read with their offsets as they are expected, and what is read is linear around
    them. For a linear Gaussian model of one scale the first step is exact.

    Args:
        read: what examples say of their offsets, around those that it is given.
        start: ``(n, D)`` offsets of the examples to begin with.
        n_rounds: at most.
    """
    offsets, weights = start, np.array([e.weight for e in examples])
    for _ in range(n_rounds):
        evidence = read(examples, offsets, prior)
        precision = weights[:, None, None] * evidence.precision
        linear = weights[:, None] * evidence.gradient + np.einsum("nij,nj->ni", precision, offsets)
        result = posteriors(precision, linear, clusters, prior)
        if options is not None:
            prior = options.maximised(result, prior)
            prior = options.scales_maximised(evidence.draws, sum(len(e.values) for e in examples), prior)
        before, offsets = offsets, result.means[clusters] + result.deviations
        if np.abs(offsets - before).max() < CHANGE:
            break
    return result, evidence.draws, prior


def with_draws(scales: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """``(R,)`` probabilities, from ``scales (R,)`` before and ``draws (n, R)`` of n sequences (a Dirichlet prior)."""
    total = DRAWS * scales + draws.sum(0)
    return np.asarray(total / total.sum())


def linear_offsets(examples: list[Example], clusters: np.ndarray, options: PriorOptions) -> np.ndarray:
    """``(C, D)`` offsets of the clusters under ``x_t - b = A (x_{t-1} - b) + c + e_t``, by EM: where fitting begins.

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
    means, prior = np.zeros((n_clusters, size)), options.start(size, has_within=False)
    if weight.sum() < 4 * (size + 1):  # too few to tell
        return means
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
        precision = np.bincount(cluster, weight, n_clusters)[:, None, None] * (gain @ slope)
        linear = total @ gain.T + np.einsum("cij,cj->ci", precision, means)
        result = posteriors(precision, linear, np.arange(n_clusters), prior)
        prior, change = options.maximised(result, prior), np.abs(result.means - means).max()
        means = result.means
        if change < CHANGE:
            break
    return means

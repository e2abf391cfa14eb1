"""``BroadProposal``: a normalised distribution that covers the values of a next step, for importance sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.evaluation.auditing.unconstrained import WHOLE, from_reals, log_derivative, to_reals
from seqmodels.sequences.measure import Values

DEGREES = 5.0  # degrees of freedom of Student's t, because its tails are above those of any mixture of Gaussians
INFLATION = 1.5  # factor of the covariance of a cluster
N_CLUSTERS, N_ROUNDS = 8, 8  # most clusters, and rounds, of k-means
BROAD_WEIGHT = 0.1  # weight of the component that covers all points, three times as wide as they are


@dataclass(frozen=True)
class BroadProposal:
    """A mixture that gives every value of a next step some probability, the proposal of importance sampling.

    ``q(x) = Σ_k w_k t(x_real; m_k, C_k) Π_bits Bernoulli Π_counts (Poisson + geometric) / 2``, with a multivariate t
    density over the features that have one; those whose values are not all reals (positive ones, proportions, angles)
    are first mapped to all reals.

    Attributes:
        values: kind of the values of each of D features, ``(D,)``.
        weights: weights of the K components, ``(K,)``.
        means: means of the components, ``(K, D)``; for bits, probabilities.
        factors: Cholesky factors of the scale matrices of the R features that have a density, ``(K, R, R)``.
    """

    values: tuple[Values, ...]
    weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray

    @classmethod
    def around(cls, points: np.ndarray, values: tuple[Values, ...], rng: np.random.Generator) -> Self:
        """Fit a mixture to points: a component for each cluster of k-means, and one for all points.

        Args:
            points: n points of D features, ``(n, D)``.
            values: kind of the values of each feature.
            rng: generator of random numbers.
        """
        points = to_reals(points, values)
        deviation = np.maximum(points.std(0), 1e-12 + 1e-9 * np.abs(points).max(0))
        groups = _k_means(points / deviation, min(N_CLUSTERS, max(1, len(points) // 20)), rng)
        real = [d for d, each in enumerate(values) if each not in WHOLE]
        weights: list[float] = []
        means, factors = [], []
        for group in [*groups, np.arange(len(points))]:
            is_last = len(weights) == len(groups)
            weights.append(BROAD_WEIGHT if is_last else (1 - BROAD_WEIGHT) * len(group) / len(points))
            means.append(_means(points[group], values))
            factors.append(_factor(points[group][:, real], deviation[real], 9.0 if is_last else INFLATION))
        return cls(values, np.array(weights), np.array(means), np.array(factors))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw n points of D features from the mixture, shape ``(n, D)``."""
        k = rng.choice(len(self.weights), n, p=self.weights)
        x = self.means[k].copy()
        real = [d for d, each in enumerate(self.values) if each not in WHOLE]
        if real:
            z = rng.standard_normal((n, len(real))) / np.sqrt(rng.chisquare(DEGREES, (n, 1)) / DEGREES)
            x[:, real] += np.einsum("nij,nj->ni", self.factors[k], z)
        for d, each in enumerate(self.values):
            mean = self.means[k, d]
            if each == "bits":
                x[:, d] = rng.random(n) < mean
            elif each == "counts":
                x[:, d] = np.where(rng.random(n) < 0.5, rng.poisson(mean), rng.geometric(1 / (1 + mean)) - 1)
        return from_reals(x, self.values)

    def log_prob(self, x: np.ndarray) -> np.ndarray:
        """Return the log-density, or log-probability, of n points of D features in nats, shape ``(n,)``.

        Args:
            x: the points, ``(n, D)``.
        """
        from scipy.special import gammaln, logsumexp

        x = to_reals(x, self.values)
        of_map = log_derivative(x, self.values)
        real = [d for d, each in enumerate(self.values) if each not in WHOLE]
        each = np.log(self.weights) + np.zeros((len(x), 1))  # (n, K)
        if real:
            z = np.stack(
                [np.linalg.solve(f, (x[:, real] - m[real]).T).T for f, m in zip(self.factors, self.means, strict=True)],
                axis=1,
            )
            half = (DEGREES + len(real)) / 2
            each = each + gammaln(half) - gammaln(DEGREES / 2) - len(real) / 2 * np.log(DEGREES * np.pi)
            each = each - np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(-1)
            each = each - half * np.log1p((z**2).sum(-1) / DEGREES)
        for d, kind in enumerate(self.values):
            m, v = self.means[:, d], x[:, d, None]
            if kind == "bits":
                each = each + np.where(v > 0, np.log(m), np.log1p(-m))
            elif kind == "counts":
                poisson = v * np.log(m) - m - gammaln(v + 1)
                geometric = v * (np.log(m) - np.log1p(m)) - np.log1p(m)
                each = each + np.logaddexp(poisson, geometric) - np.log(2)
        return np.asarray(logsumexp(each, axis=1) - of_map)


def _means(points: np.ndarray, values: tuple[Values, ...]) -> np.ndarray:
    """Return the mean of each of D features over n points, shape ``(D,)``.

    Means of bits are moved a little towards 1/2 and those of counts a little up, so that no value has probability zero.

    Args:
        points: the points, ``(n, D)``.
        values: kind of the values of each feature.
    """
    means = points.mean(0)
    for d, each in enumerate(values):
        if each == "bits":
            means[d] = (points[:, d].sum() + 1) / (len(points) + 2)
        elif each == "counts":
            means[d] += 0.5
    return np.asarray(means)


def _factor(points: np.ndarray, deviation: np.ndarray, inflation: float) -> np.ndarray:
    """Return the Cholesky factor of an inflated covariance of points, ``(R, R)``, with R features.

    Each feature's standard deviation is at least a thousandth of its ``deviation``.

    Args:
        points: n points, ``(n, R)``.
        deviation: standard deviation of each feature over all points, ``(R,)``.
        inflation: factor of the covariance.
    """
    n, d = points.shape
    if not d:
        return np.zeros((0, 0))
    z = (points - points.mean(0)) / deviation
    covariance = inflation * (z.T @ z / n) + 1e-6 * np.eye(d)
    return np.asarray(deviation[:, None] * np.linalg.cholesky(covariance))


def _k_means(points: np.ndarray, k: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Cluster points by k-means; return the row indices of each non-empty cluster.

    Args:
        points: n points of R features, ``(n, R)``.
        k: number of centers.
        rng: generator of random numbers.
    """
    centres = points[rng.choice(len(points), k, replace=False)]
    nearest = np.zeros(len(points), dtype=int)
    for _ in range(N_ROUNDS):
        nearest = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        centres = np.array([points[nearest == i].mean(0) if (nearest == i).any() else centres[i] for i in range(k)])
    return [np.flatnonzero(nearest == i) for i in range(k) if (nearest == i).any()]

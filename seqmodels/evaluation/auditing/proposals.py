"""``BroadProposal``: a normalised density, or probability, that covers what a next step may be: importance sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.evaluation.auditing.unconstrained import WHOLE, from_reals, log_derivative, to_reals
from seqmodels.sequences.measure import Values

DEGREES = 5.0  # of freedom of Student's t: its tails are above those of any mixture of Gaussians
INFLATION = 1.5  # of the covariance of a cluster
N_CLUSTERS, N_ROUNDS = 8, 8  # of k-means
BROAD_WEIGHT = 0.1  # of the component that covers all there is, three times as wide


@dataclass(frozen=True)
class BroadProposal:
    """``q(x) = Σ_k w_k t(x_real; m_k, C_k) Π_bits Bernoulli Π_counts (Poisson + geometric) / 2``.

    Features that have not all reals as their values are real ones as ``unconstrained`` has them.

    Attributes:
        values: ``(D,)`` what each feature may be.
        weights: ``(K,)`` of the components.
        means: ``(K, D)``; of bits probabilities.
        factors: ``(K, R, R)`` Cholesky factors of the scale matrices of the R features that have a density.
    """

    values: tuple[Values, ...]
    weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray

    @classmethod
    def around(cls, points: np.ndarray, values: tuple[Values, ...], rng: np.random.Generator) -> Self:
        """Fitted to ``points (n, D)`` by k-means."""
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
        """``(n, D)`` points from the mixture."""
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
        """``(n,)`` nats of points ``(n, D)``."""
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
    """Of a group: means; bits a little towards a half, counts a little above 0."""
    means = points.mean(0)
    for d, each in enumerate(values):
        if each == "bits":
            means[d] = (points[:, d].sum() + 1) / (len(points) + 2)
        elif each == "counts":
            means[d] += 0.5
    return np.asarray(means)


def _factor(points: np.ndarray, deviation: np.ndarray, inflation: float) -> np.ndarray:
    """The Cholesky factor of a group's inflated covariance, at least a thousandth of the deviation in each feature."""
    n, d = points.shape
    if not d:
        return np.zeros((0, 0))
    z = (points - points.mean(0)) / deviation
    covariance = inflation * (z.T @ z / n) + 1e-6 * np.eye(d)
    return np.asarray(deviation[:, None] * np.linalg.cholesky(covariance))


def _k_means(points: np.ndarray, k: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The rows of each cluster that is not empty, after a few rounds."""
    centres = points[rng.choice(len(points), k, replace=False)]
    nearest = np.zeros(len(points), dtype=int)
    for _ in range(N_ROUNDS):
        nearest = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        centres = np.array([points[nearest == i].mean(0) if (nearest == i).any() else centres[i] for i in range(k)])
    return [np.flatnonzero(nearest == i) for i in range(k) if (nearest == i).any()]

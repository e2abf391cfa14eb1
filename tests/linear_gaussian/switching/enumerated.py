"""The oracle: a switching system's p(x) and posteriors as sums over all paths of regimes, each a joint Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from seqmodels.linear_gaussian.switching.parameters import SwitchingParameters


@dataclass(frozen=True)
class Enumerated:
    """``log_prob``; ``regimes (T, S)`` p(s_t | x); ``best``: the most probable path."""

    log_prob: float
    regimes: np.ndarray
    best: np.ndarray


def random_parameters(seed: int, S: int, K: int, D: int, *, full: bool = True) -> SwitchingParameters:
    rng = np.random.default_rng(seed)

    def covariances(*shape: int) -> np.ndarray:
        factor = rng.normal(size=shape)
        return factor @ factor.swapaxes(-1, -2) + 0.3 * np.eye(shape[-1])

    R = covariances(S, D, D)
    return SwitchingParameters(
        *(rng.dirichlet(np.ones(S)), rng.dirichlet(np.ones(S), size=S)),
        *(0.5 * rng.normal(size=(S, K, K)), rng.normal(size=(S, K)), covariances(S, K, K)),
        *(rng.normal(size=(S, D, K)), rng.normal(size=(S, D)), R if full else R * np.eye(D)),
        *(rng.normal(size=K), covariances(K, K)),
    )


def given_path(p: SwitchingParameters, path: tuple[int, ...], x: np.ndarray) -> float:
    """log p(x | path): the density of the joint Gaussian of what is observed, by propagation of all moments."""
    _, K, D = p.sizes
    T = len(path)
    means, covariance = np.zeros((T, K)), np.zeros((T, K, T, K))
    means[0], covariance[0, :, 0] = p.initial_mean, p.initial_covariance
    for t in range(1, T):
        A = p.transition[path[t]]
        means[t] = A @ means[t - 1] + p.drift[path[t]]
        for u in range(t):
            covariance[t, :, u] = A @ covariance[t - 1, :, u]
            covariance[u, :, t] = covariance[t, :, u].T
        covariance[t, :, t] = A @ covariance[t - 1, :, t - 1] @ A.T + p.state_covariance[path[t]]
    mean = np.concatenate([p.observation[s] @ m + p.intercept[s] for s, m in zip(path, means, strict=True)])
    joint = np.zeros((T, D, T, D))
    for t, u in product(range(T), repeat=2):
        joint[t, :, u] = p.observation[path[t]] @ covariance[t, :, u] @ p.observation[path[u]].T
        joint[t, :, u] += p.observation_covariance[path[t]] * (t == u)
    seen = ~np.isnan(x.reshape(-1))
    if not seen.any():
        return 0.0
    part = joint.reshape(T * D, T * D)[np.ix_(seen, seen)]
    return float(multivariate_normal.logpdf(x.reshape(-1)[seen], mean[seen], part))


def enumerated(p: SwitchingParameters, x: np.ndarray) -> Enumerated:
    S, T = len(p.initial), len(x)
    paths = list(product(range(S), repeat=T))
    chain = np.array(
        [np.log(p.initial[s[0]]) + np.log(p.regime_transition[s[:-1], s[1:]]).sum() for s in map(np.array, paths)]
    )
    joint = chain + [given_path(p, path, x) for path in paths]
    log_prob = float(logsumexp(joint))
    posterior = np.exp(joint - log_prob)
    regimes = np.einsum("p,pts->ts", posterior, np.eye(S)[np.array(paths)])
    return Enumerated(log_prob, regimes, np.array(paths[int(joint.argmax())]))

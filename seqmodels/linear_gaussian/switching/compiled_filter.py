"""The loops of ``particle_filter``, compiled by numba where it is installed; without it the same lines run in Python.

A particle is a path of regimes with a weight and a Gaussian of the hidden state. A child is a particle continued by one
more regime.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.common.constants import LOG_2PI


@compiled
def first_children(
    log_initial: np.ndarray,
    initial_mean: np.ndarray,
    initial_covariance: np.ndarray,
    log_weights: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
) -> int:
    """Start a particle (a weighted path of regimes) in each of S first regimes, and return S.

    Args:
        log_initial: log-probabilities of the first regimes, ``(S,)``.
        initial_mean, initial_covariance: mean ``(K,)`` and covariance ``(K, K)`` of the first hidden state.
        log_weights, means, covariances: results: log-weight of each particle ``(S,)``, and mean ``(S, K)`` and
            covariance ``(S, K, K)`` of its hidden state.
    """
    S = len(log_initial)
    for s in range(S):
        log_weights[s] = log_initial[s]
        means[s] = initial_mean
        covariances[s] = initial_covariance
    return S


@compiled
def next_children(
    log_transition: np.ndarray,
    transition: np.ndarray,
    drift: np.ndarray,
    state_covariance: np.ndarray,
    particle_log_weights: np.ndarray,
    particle_regimes: np.ndarray,
    particle_means: np.ndarray,
    particle_covariances: np.ndarray,
    log_weights: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
) -> int:
    """Continue each particle (a weighted path of regimes) by each of S regimes, and predict its hidden state.

    Child ``i S + s`` is particle i continued by regime s. The return value is the number of children.

    Args:
        log_transition: log-probabilities of the next regime (column) after each, ``(S, S)``.
        transition, drift, state_covariance: dynamics of each regime, ``(S, K, K)``, ``(S, K)`` and ``(S, K, K)``.
        particle_log_weights, particle_regimes: log-weight and last regime of each of L particles, ``(L,)``.
        particle_means, particle_covariances: moments of the particles' hidden states, ``(L, K)`` and ``(L, K, K)``.
        log_weights, means, covariances: results: log-weight of each child, and mean and covariance of its hidden state.
    """
    S = len(log_transition)
    for i in range(len(particle_log_weights)):
        regime = particle_regimes[i]
        for s in range(S):
            j = i * S + s
            log_weights[j] = particle_log_weights[i] + log_transition[regime, s]
            if log_weights[j] == -np.inf:
                means[j] = 0.0
                covariances[j] = 0.0
                continue
            means[j] = transition[s] @ particle_means[i] + drift[s]
            covariances[j] = (transition[s] @ particle_covariances[i]) @ transition[s].T + state_covariance[s]
    return len(particle_log_weights) * S


@compiled
def update_children(
    observation: np.ndarray,
    log_dets: np.ndarray,
    x: np.ndarray,
    observed: np.ndarray,
    n: int,
    log_weights: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
) -> float:
    """Update the first n particles by an observation (Kalman filter), and return its log-probability in nats.

    Log-weights become those given the observation, normalised. The regime of particle j is j modulo S.

    Args:
        observation: whitened observation matrix C of each regime, ``(S, D, K)``.
        log_dets: logarithms of the diagonal of the noise factor of each regime, ``(S, D)``.
        x: the observation, whitened under each regime so that its noise has variance 1, ``(S, D)``.
        observed: True where a feature is observed, ``(D,)``.
        n: number of particles.
        log_weights, means, covariances: log-weights of the particles, and means and covariances of their hidden states,
            which are updated in place.
    """
    S, D = observation.shape[0], observation.shape[1]
    K = observation.shape[2]
    spread = np.empty(K)
    for j in range(n):
        if log_weights[j] == -np.inf:
            continue
        s = j % S
        P, m, total = covariances[j], means[j], 0.0
        for d in range(D):
            if not observed[d]:
                continue
            variance, error = 1.0, x[s, d]
            for a in range(K):
                product = 0.0
                for b in range(K):
                    product += P[a, b] * observation[s, d, b]
                spread[a] = product
                variance += product * observation[s, d, a]
                error -= observation[s, d, a] * m[a]
            total -= 0.5 * (LOG_2PI + np.log(variance) + error * error / variance) + log_dets[s, d]
            for a in range(K):
                gain = spread[a] / variance
                m[a] += gain * error
                for b in range(K):
                    P[a, b] -= gain * spread[b]
        log_weights[j] += total
    largest: float = log_weights[:n].max()
    if not largest > -np.inf:
        return largest
    log_prob: float = largest + np.log(np.exp(log_weights[:n] - largest).sum())
    log_weights[:n] -= log_prob
    return log_prob


@compiled
def chosen_children(
    log_weights: np.ndarray, n_particles: int, u: float, children: np.ndarray, new_log_weights: np.ndarray
) -> int:
    """Choose at most ``n_particles`` particles, none twice and without bias, and return how many are kept.

    The method is that of Fearnhead and Clifford (2003): large weights stay as they are, others are drawn.

    Args:
        log_weights: normalised log-weights of the particles, ``(C,)``.
        n_particles: largest number to keep.
        u: random number in [0, 1) that decides which particles are kept.
        children: result: indices of the chosen particles.
        new_log_weights: result: their log-weights.
    """
    n = len(log_weights)
    if n <= n_particles:
        for j in range(n):
            children[j], new_log_weights[j] = j, log_weights[j]
        return n
    weights = np.exp(log_weights)
    order = np.argsort(-weights)
    tail = np.empty(n + 1)
    tail[n] = 0.0
    for j in range(n - 1, -1, -1):
        tail[j] = tail[j + 1] + weights[order[j]]
    n_large = 0
    while n_large < n_particles - 1 and weights[order[n_large]] * (n_particles - n_large) > tail[n_large]:
        n_large += 1
    threshold = tail[n_large] / (n_particles - n_large)
    is_large = np.zeros(n, dtype=np.bool_)
    for j in range(n_large):
        is_large[order[j]] = True
    kept, passed, next_mark = 0, 0.0, u * threshold
    for j in range(n):
        if is_large[j]:
            children[kept], new_log_weights[kept] = j, log_weights[j]
            kept += 1
        else:
            passed += weights[j]
            if passed > next_mark and kept < n_particles:
                children[kept], new_log_weights[kept] = j, np.log(threshold)
                kept += 1
                next_mark += threshold
    for j in range(n):  # where rounding, or weights of 0, left a place
        if kept == n_particles:
            break
        if not is_large[j] and not (children[:kept] == j).any():
            children[kept], new_log_weights[kept] = j, -np.inf
            kept += 1
    return kept


@compiled
def filter_steps(
    log_initial: np.ndarray,
    log_transition: np.ndarray,
    transition: np.ndarray,
    drift: np.ndarray,
    state_covariance: np.ndarray,
    initial_mean: np.ndarray,
    initial_covariance: np.ndarray,
    observation: np.ndarray,
    log_dets: np.ndarray,
    x: np.ndarray,
    observed: np.ndarray,
    u: np.ndarray,
    n_particles: int,
    log_prob: np.ndarray,
    regimes: np.ndarray,
    parents: np.ndarray,
    chosen: np.ndarray,
    last_log_weights: np.ndarray,
) -> int:
    """Run the particle filter over a sequence of T steps, and return how many particles are left at its end.

    Args:
        log_initial, log_transition: log-probabilities of the first regime ``(S,)`` and of transitions ``(S, S)``.
        transition, drift, state_covariance: dynamics of each regime, ``(S, K, K)``, ``(S, K)`` and ``(S, K, K)``.
        initial_mean, initial_covariance: mean ``(K,)`` and covariance ``(K, K)`` of the first hidden state.
        observation, log_dets: whitened observation matrices ``(S, D, K)``, and logarithms of the diagonals of the noise
            factors ``(S, D)``.
        x: observations whitened under each regime, ``(T, S, D)``.
        observed: True where a value is observed, ``(T, D)``.
        u: random numbers in [0, 1) that decide which particles are kept, ``(T,)``.
        n_particles: n, the largest number of particles to keep.
        log_prob: result: log-probability of each step in nats, ``(T,)``.
        regimes: result: probability of each regime given the steps so far, ``(T, S)``.
        parents, chosen: results: parent and regime of each particle at each step, ``(T, n)``.
        last_log_weights: result: log-weights of the last particles, ``(n,)``.
    """
    S, K, T = len(log_initial), transition.shape[1], len(x)
    most = max(n_particles, 1) * S
    log_weights, means, covariances = np.empty(most), np.empty((most, K)), np.empty((most, K, K))
    kept_regimes = np.zeros(n_particles, dtype=np.int64)
    kept_means, kept_covariances = np.empty((n_particles, K)), np.empty((n_particles, K, K))
    children = np.zeros(n_particles, dtype=np.int64)
    n_live = 0
    for t in range(T):
        if t == 0:
            n = first_children(log_initial, initial_mean, initial_covariance, log_weights, means, covariances)
        else:
            n = next_children(
                log_transition,
                transition,
                drift,
                state_covariance,
                last_log_weights[:n_live],
                kept_regimes[:n_live],
                kept_means[:n_live],
                kept_covariances[:n_live],
                log_weights,
                means,
                covariances,
            )
        log_prob[t] = update_children(observation, log_dets, x[t], observed[t], n, log_weights, means, covariances)
        regimes[t] = 0.0
        for j in range(n):
            regimes[t, j % S] += np.exp(log_weights[j])
        n_live = chosen_children(log_weights[:n], n_particles, u[t], children, last_log_weights)
        for i in range(n_live):
            j = children[i]
            parents[t, i] = j // S if t > 0 else 0
            chosen[t, i] = kept_regimes[i] = j % S
            kept_means[i] = means[j]
            kept_covariances[i] = covariances[j]
    return n_live

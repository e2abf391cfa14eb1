"""A classifier's temperature, ``p(c | x) ∝ exp(joint_c / temperature)``, learned from held-out sequences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MIN_TEMPERATURE = 1e-6  # below it probabilities are 0 and 1
MAX_TEMPERATURE = 1e6  # above it they are all equal


def log_posterior(log_joint: np.ndarray, temperature: float, log_priors: np.ndarray) -> np.ndarray:
    """``(n, K)`` normalised, of ``log_joint (n, K)``; a sequence that no label makes possible keeps the priors."""
    from scipy.special import log_softmax

    impossible = np.isneginf(log_joint).all(axis=1, keepdims=True)
    return np.asarray(log_softmax(np.where(impossible, log_priors, log_joint / temperature), axis=1))


def learned_temperature(log_joint: np.ndarray, labels: np.ndarray) -> float:
    """The temperature of least log-loss on held-out sequences.

    Guo et al. 2017, *On calibration of modern neural networks*.

    Where every held-out sequence is classified correctly that would be 0. So one error more than was seen is counted,
    as in Platt (1999, *Probabilistic outputs for support vector machines*): of n sequences each counts ``1 / (n + 2)``
    for its strongest rival. The loss is convex in ``1 / temperature``, and where its slope is zero is found by
    bisection.

    Args:
        log_joint: ``(n, K)`` nats, ``log p(x | c) + log p(c)``. A sequence to which its own label, or every other
            label, gives no probability says nothing of the temperature.
        labels: ``(n,)`` column of the true label.
    """
    log_true = log_joint[np.arange(len(log_joint)), labels]
    others = np.where(np.arange(log_joint.shape[1]) == labels[:, None], -np.inf, log_joint)
    log_rival = others.max(axis=1)
    counts = np.isfinite(log_true) & np.isfinite(log_rival)
    if not counts.any() or (log_true[counts] == log_rival[counts]).all():
        return 1.0
    smoothing = 1 / (counts.sum() + 2)
    target = (1 - smoothing) * log_true[counts] + smoothing * log_rival[counts]
    relative = np.where(np.isneginf(log_joint[counts]), -np.inf, log_joint[counts] - log_true[counts, None])
    return 1 / _best_inverse_temperature(relative, target - log_true[counts])


def _best_inverse_temperature(log_joint: np.ndarray, target: np.ndarray) -> float:
    """The inverse temperature at which the loss has no slope; an end of its range where the loss falls up to there.

    Args:
        log_joint: ``(N, K)`` nats.
        target: ``(N,)`` nats that the labels have in the mean of the smoothed targets.
    """
    from scipy.optimize import brentq
    from scipy.special import softmax

    values = np.where(np.isneginf(log_joint), 0.0, log_joint)  # these have no weight

    def slope(inverse: float) -> float:
        return float(((softmax(inverse * log_joint, axis=1) * values).sum(axis=1) - target).mean())

    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    if slope(low) >= 0:
        return low
    return high if slope(high) <= 0 else float(brentq(slope, low, high, xtol=1e-12, rtol=1e-10))


def folds(labels: np.ndarray, clusters: np.ndarray | None, n: int, random_state: int) -> list[np.ndarray]:
    """At most ``n`` parts to hold out, ``(N,)`` bool each; in none is what would leave a label nothing to be fitted to.

    Whole clusters, as what is asked about later is of others (speakers, say); where there are none, or every label lies
    within one, single sequences, with about the same share of each label in every part.
    """
    if clusters is not None:
        _, codes = np.unique(clusters, return_inverse=True)
        order = np.random.default_rng(random_state).permutation(codes.max() + 1)
        parts = list(_parts(labels, order[codes] % n))
        if parts:
            return parts
    return list(_parts(labels, _stratified(labels, n, np.random.default_rng(random_state))))


def _stratified(labels: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``(N,)`` number of the part of each sequence."""
    fold = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        fold[members] = (np.arange(len(members)) + rng.integers(n)) % n
    return fold


def _parts(labels: np.ndarray, fold: np.ndarray) -> Iterator[np.ndarray]:
    for k in np.unique(fold):
        part = (fold == k) & np.isin(labels, labels[fold != k])
        if part.any():
            yield part

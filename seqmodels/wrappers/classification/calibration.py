"""A classifier's temperature, ``p(c | x) ∝ exp(joint_c / temperature)``, learned from held-out sequences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MIN_TEMPERATURE = 1e-6  # below it probabilities are 0 and 1
MAX_TEMPERATURE = 1e6  # above it they are all equal


def log_posterior(log_joint: np.ndarray, temperature: float, log_priors: np.ndarray) -> np.ndarray:
    """Return the calibrated log-posterior of each of K labels, ``(n, K)`` in nats.

    Args:
        log_joint: ``log p(x | c) + log p(c)`` of n sequences and each label c, in nats, ``(n, K)``.
        temperature: number by which ``log_joint`` is divided before it is normalised.
        log_priors: log-probability of each label, ``(K,)``, which a sequence gets that is impossible under every label.
    """
    from scipy.special import log_softmax

    impossible = np.isneginf(log_joint).all(axis=1, keepdims=True)
    return np.asarray(log_softmax(np.where(impossible, log_priors, log_joint / temperature), axis=1))


def learned_temperature(log_joint: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature with the least log-loss on n held-out sequences with K labels.

    The temperature is the divisor of the log-joint before it is normalised to probabilities of labels. Reference: Guo
    et al. (2017), *On calibration of modern neural networks*. If every held-out sequence is classified correctly, the
    best temperature would be 0. So one error more than was seen is counted, as in Platt (1999, *Probabilistic outputs
    for support vector machines*): each sequence counts ``1 / (n + 2)`` for its strongest rival label. The loss is
    convex in ``1 / temperature``, and its minimum is found by a root search of its slope.

    Args:
        log_joint: ``log p(x | c) + log p(c)`` in nats, ``(n, K)``. A sequence that is impossible under its own label,
            or under every other label, is left out.
        labels: column of the true label, ``(n,)``.
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
    """Return the inverse temperature of the least loss, where its slope is zero, or an end of the searched range.

    Args:
        log_joint: log-joint of n sequences and K labels, minus that of the true label, ``(n, K)`` in nats.
        target: expectation of ``log_joint`` under the smoothed targets, ``(n,)`` in nats.
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
    """Split N labelled sequences into at most ``n`` parts to be held out in turn; return a mask ``(N,)`` of each.

    Parts are whole clusters (speakers, for example), because later data come from others. If there are no clusters, or
    every label lies within one, they are single sequences, with about the same share of each label in every part.
    Sequences are in no part if holding them out would leave nothing to fit their label to.

    Args:
        labels: number of the label of each sequence, ``(N,)``.
        clusters: cluster of each sequence, ``(N,)``; None means that there are none.
        n: number of parts.
        random_state: seed of the assignment.
    """
    if clusters is not None:
        _, codes = np.unique(clusters, return_inverse=True)
        order = np.random.default_rng(random_state).permutation(codes.max() + 1)
        parts = list(_parts(labels, order[codes] % n))
        if parts:
            return parts
    return list(_parts(labels, _stratified(labels, n, np.random.default_rng(random_state))))


def _stratified(labels: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Assign N sequences to n parts with about the same share of each label; return the part of each, ``(N,)``."""
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

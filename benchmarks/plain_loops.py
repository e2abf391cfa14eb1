"""Log-probabilities of one series by plain loops of NumPy, as one writes them from the equations.

Each takes a fitted model's parameters, in raw units, and one series ``(T, D)``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import expm
from scipy.special import logsumexp


def of_durations(model: Any, x: np.ndarray) -> float:
    """A hidden semi-Markov model whose last segment may go on after the series (Yu 2010, section 3)."""
    log_b = _gaussians(x, model.means_, model.covariances_)
    with np.errstate(divide="ignore"):
        log_pmf, log_transition = np.log(model.durations_), np.log(model.transition_)
        log_survival = np.log(model.durations_[:, ::-1].cumsum(1)[:, ::-1])
        begins = [np.log(model.initial_)]  # a segment of each state, at each step
    sums = np.concatenate([np.zeros((1, log_b.shape[1])), log_b.cumsum(0)])
    ends = np.zeros(log_b.shape[1])
    for t in range(1, len(x) + 1):
        n = min(t, log_pmf.shape[1])
        before = np.array(begins[t - n : t])[::-1] + sums[t] - sums[t - n : t][::-1]  # (n, K) by duration
        of_last = log_pmf if t < len(x) else log_survival
        ends = logsumexp(before + of_last[:, :n].T, axis=0)
        begins.append(logsumexp(ends[:, None] + log_transition, axis=0))
    return float(logsumexp(ends))


def of_lags(model: Any, x: np.ndarray) -> float:
    """Markov-switching autoregression of order 1: Hamilton's (1989) filter over the states of two steps."""
    y = x[:, 0]
    phi, means, variance = model.autoregression_[0, 0], model.means_[:, 0], model.variances_[0]
    first = (y[0] - model.first_means_[0]) ** 2 / model.first_variances_[0]
    total = -0.5 * (first + math.log(2 * math.pi * model.first_variances_[0]))
    belief = model.initial_.copy()
    for t in range(1, len(y)):
        expected = means[None] + phi * (y[t - 1] - means[:, None])  # by the states before and now
        density = np.exp(-0.5 * (y[t] - expected) ** 2 / variance) / math.sqrt(2 * math.pi * variance)
        joint = belief[:, None] * model.transition_ * density
        total += math.log(joint.sum())
        belief = joint.sum(0) / joint.sum()
    return float(total)


def of_unequal_steps(model: Any, x: np.ndarray, times: np.ndarray) -> float:
    """A hidden Markov chain in continuous time: the exponential of its generator over each gap."""
    b, belief, total = np.exp(_gaussians(x, model.means_, model.covariances_)), model.initial_, 0.0
    for t in range(len(x)):
        if t:
            belief = belief @ expm(model.generator_ * (times[t] - times[t - 1]))
        joint = belief * b[t]
        total += math.log(joint.sum())
        belief = joint / joint.sum()
    return total


def of_local_level(model: Any, x: np.ndarray) -> float:
    """The Kalman filter of a random walk in noise (Durbin and Koopman 2012, section 2.2)."""
    q, r = model.components_["level_variance"], float(model.observation_covariance_[0, 0])
    mean, variance, total = (
        float(model.initial_mean_[0] + model.intercept_[0]),
        float(model.initial_covariance_[0, 0]),
        0.0,
    )
    for value in x[:, 0].tolist():
        error, spread = value - mean, variance + r
        total -= 0.5 * (math.log(2 * math.pi * spread) + error * error / spread)
        mean, variance = mean + variance / spread * error, variance * r / spread + q
    return total


def _gaussians(x: np.ndarray, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """``(T, K)`` log-densities of one diagonal component a state, whose arrays are ``(K, ..., D)``."""
    k, size = len(means), x.shape[1]
    mean, variance = means.reshape(k, size), variances.reshape(k, size)
    return np.asarray(-0.5 * ((x[:, None] - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum(-1))

"""Statistical tests whose rate of false alarms is bounded for every sample size, without an approximation.

A function ``log_evidence_...`` returns the logarithm of an e-value: E[e] <= 1 if the hypothesis is true, so that P(e >=
1 / alpha) <= alpha (Ville 1939; Vovk & Wang 2021, *E-values: calibration, combination and applications*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

POWERS = (0.25, 0.5, 0.7, 0.85, 0.93, 1.08, 1.2, 1.5, 2.0, 4.0)  # exponents (temperatures) that are tested
LEAST = 1e-290  # smallest probability for which the logarithm of the gamma function is finite
CONCENTRATIONS = (1.0, 10.0, 100.0)  # concentrations a of the Dirichlet distributions of frequencies


def log_evidence_of_counts(counts: np.ndarray, log_p: np.ndarray) -> float:
    """Return the log e-value against the hypothesis that ``counts`` come from independent draws from ``exp(log_p)``.

    An e-value is a statistic whose mean is at most one if the hypothesis is true. Alternative frequencies are drawn
    from ``Dirichlet(a p)``, for several a; e is the mean of their likelihood ratios to p. It is infinite if a value of
    probability zero was counted.

    Args:
        counts: number of draws of each of V values, ``(V,)``.
        log_p: log-probability of each value, ``(V,)``.
    """
    from scipy.special import gammaln

    seen = counts > 0
    if not np.isfinite(log_p[seen]).all():
        return np.inf
    c, n, log_p = counts[seen].astype(float), float(counts.sum()), log_p[seen]
    p = np.maximum(np.exp(log_p), LEAST)
    each = [
        gammaln(a) - gammaln(a + n) + np.sum(gammaln(a * p + c) - gammaln(a * p) - c * log_p) for a in CONCENTRATIONS
    ]
    return log_mean_evidence(each)


def log_evidence_of_powers(counts: np.ndarray, log_p: np.ndarray) -> np.ndarray:
    """Return the log-likelihood ratio of ``q ∝ p^power`` to p for counts of draws, for each of P exponents, ``(P,)``.

    The exponents are ``POWERS``. Each ratio is a log e-value (an e-value has mean at most one if the hypothesis is
    true) against the hypothesis that the counts come from p.

    Args:
        counts: number of draws of each of V values, ``(V,)``.
        log_p: log-probability of each value under p, ``(V,)``.
    """
    above_zero = np.isfinite(log_p)
    if not above_zero.any():
        return np.zeros(len(POWERS))
    c, log_p = counts[above_zero], log_p[above_zero]
    powers = np.array(POWERS)
    log_z = np.logaddexp.reduce(powers[:, None] * log_p, axis=1)
    return np.asarray((powers - 1) * np.sum(c * log_p) - c.sum() * log_z)


def log_mean_evidence(each: Sequence[float] | np.ndarray) -> float:
    """Return the logarithm of the mean of several e-values, statistics whose mean is at most one under the hypothesis.

    The mean is an e-value too, however they depend on each other.

    Args:
        each: logarithms of the e-values.
    """
    return float(np.logaddexp.reduce(np.asarray(each, dtype=float)) - math.log(len(each)))


def p_value_of_symmetry(groups: Sequence[np.ndarray]) -> float:
    """Return an upper bound of the p-value of the hypothesis that independent differences are symmetric about 0.

    Magnitudes of differences are ranked within their group, from 0 to 1. Given the ranks r_i the signs s_i are fair
    coins, so that Hoeffding's inequality bounds the signed-rank sum w of all groups:
    ``P(|Σ r_i s_i| >= w) <= 2 exp(-w^2 / (2 Σ r_i^2))``.

    Args:
        groups: arrays of differences, ``(n,)`` each.
    """
    from scipy.stats import rankdata

    total, squares = 0.0, 0.0
    for differences in groups:
        moved = differences[differences != 0]
        if len(moved):
            ranks = rankdata(np.abs(moved)) / len(moved)
            total += float(np.sum(ranks * np.sign(moved)))
            squares += float(np.sum(ranks**2))
    return min(1.0, 2 * math.exp(-(total**2) / (2 * squares))) if squares else 1.0


def half_width(values: np.ndarray, largest: float, delta: float) -> float:
    """Return half the width of a confidence interval of the mean of bounded independent values.

    The interval misses the mean with probability ``delta`` at most, by the empirical Bernstein bound (Maurer & Pontil
    2009, theorem 4, on both sides).

    Args:
        values: n values from 0 to ``largest``, ``(n,)``.
        largest: their upper bound.
        delta: probability of missing the mean.
    """
    n, log_term = len(values), math.log(4 / delta)
    variance = float(np.var(values, ddof=1))
    return math.sqrt(2 * variance * log_term / n) + 7 * largest * log_term / (3 * (n - 1))


def share_between(n_true: int, n: int, delta: float) -> tuple[float, float]:
    """Return a confidence interval ``(low, high)`` of a probability, from successes in independent trials.

    It misses the probability with probability ``delta`` at most (Clopper & Pearson 1934).

    Args:
        n_true: number of successes.
        n: number of trials.
        delta: probability of missing the true value.
    """
    from scipy.stats import beta

    low = 0.0 if n_true == 0 else float(beta.ppf(delta / 2, n_true, n - n_true + 1))
    high = 1.0 if n_true == n else float(beta.ppf(1 - delta / 2, n_true + 1, n - n_true))
    return low, high

"""The model confidence set: the models that may be the best, by tests of equal scores (Hansen, Lunde & Nason 2011)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqmodels.evaluation.statistics.long_sequence import LongSteps, all_finite, is_long
from seqmodels.evaluation.statistics.paired import (
    MIN_BLOCKS,
    MIN_CLUSTERS,
    MIN_STEPS,
    USUAL_BLOCKS,
    cluster_codes,
    politis_white_block,
    politis_white_block_of,
    politis_white_lags,
)

N_BOOTSTRAP = 2000
SEED = 0


def confidence_set_p_values(
    log_probs: Sequence[np.ndarray],
    units: np.ndarray,
    clusters: Sequence[Any] | None = None,
    *,
    n_bootstrap: int = N_BOOTSTRAP,
    random_state: int = SEED,
) -> np.ndarray:
    """Return the p-value of each of M models in the model confidence set (MCS), shape ``(M,)``.

    The set of level ``1 - alpha`` consists of the models whose p-value is at least ``alpha``.

    Hansen, Lunde & Nason (2011), *The model confidence set*, Econometrica 79: among the models that are left, test that
    all scores are equal by ``T = max_ij |t_ij|``, where ``t_ij`` is the difference of two scores over its standard
    error; leave out the model that is the farthest behind another, ``argmin_i min_j t_ij``; go on until one is left.
    The p-value of a model is the largest p-value of all tests up to the one that left it out, so that the best model
    has 1. With probability ``1 - alpha`` the set contains every model that is as good as the best, in the limit of many
    clusters.

    The distribution of T is estimated by a bootstrap of clusters, or of circular blocks of one long sequence, and of
    seeds if there are several. The seeds of each model are drawn separately, one fewer than there are, so that the
    variance equals that of the mean over seeds. Because a bootstrap of few clusters has tails that are too short, each
    ``t_ij`` is replaced by the normal deviate of the same probability under Student's t with ``n - 1`` degrees of
    freedom.

    Args:
        log_probs: log-probability of each test sequence under each of S seeds in nats, an array ``(S, n)`` for each
            model; for a single sequence, of its steps, ``(S, T)``.
        units: number of units of each sequence, shape ``(n,)``.
        clusters: cluster of each sequence; None means that every sequence is its own.
        n_bootstrap: number of bootstrap draws.
        random_state: seed of the draws.

    All p-values are NaN if there are fewer than 5 clusters, or fewer than 20 steps of a single sequence. The p-value is
    0 for a model that gives a test sequence probability zero while another model does not.

    >>> scores = np.random.default_rng(0).normal(size=(2, 1, 50))
    >>> (confidence_set_p_values([scores[0], scores[0] - 1.0, scores[1]], np.ones(50)) >= 0.05).tolist()
    [True, False, True]
    """
    finite = np.array([all_finite(each) for each in log_probs])
    p_values = np.where(finite, 1.0, 0.0)
    if not finite.any():
        return np.full(len(log_probs), np.nan)
    kept = [each for each, is_finite in zip(log_probs, finite, strict=True) if is_finite]
    resampled = _resampled_scores(kept, np.asarray(units, dtype=float), clusters, n_bootstrap, random_state)
    if resampled is None:
        return np.full(len(log_probs), np.nan)
    p_values[finite] = _eliminated(*resampled)
    return p_values


def _eliminated(scores: np.ndarray, draws: np.ndarray, freedom: float) -> np.ndarray:
    """Eliminate models one by one and return the p-value of each of M models in the confidence set, shape ``(M,)``.

    Args:
        scores: scores of the models in nats per unit, ``(M,)``.
        draws: B bootstrap draws of the scores, ``(B, M)``.
        freedom: degrees of freedom of the scores' standard errors.
    """
    n_models = len(scores)
    centred = draws - draws.mean(axis=0)  # (B, M)
    covariance = centred.T @ centred / len(draws)
    variance = np.diag(covariance)[:, None] + np.diag(covariance) - 2 * covariance  # (M, M) of differences
    error = np.sqrt(np.maximum(variance, 0))
    apart = scores[:, None] - scores
    no_spread = error <= 1e-12 * max(float(np.abs(scores).max()), 1e-300)
    t = np.where(no_spread, np.sign(apart) * np.where(apart == 0, 0, np.inf), apart / np.where(no_spread, 1, error))
    t = _normal_deviate(t * np.sqrt(freedom / (freedom + 1)), freedom)
    inverse = np.where(no_spread, 0.0, 1 / np.where(no_spread, 1, error))
    p_values, largest = np.ones(n_models), 0.0
    left = list(range(n_models))
    while len(left) > 1:
        part = np.ix_(left, left)
        drawn = _largest_t(centred[:, left], inverse[part])
        largest = max(largest, float((drawn >= t[part].max()).mean()))
        worst = left[int(t[part].min(axis=1).argmin())]
        p_values[worst] = largest
        left.remove(worst)
    return p_values


def _normal_deviate(t: np.ndarray, freedom: float) -> np.ndarray:
    """Map values of a Student's t distribution to normal values of equal tail probability.

    Args:
        t: the values, of any shape.
        freedom: degrees of freedom.
    """
    from scipy.special import ndtri, stdtr

    return np.asarray(-np.sign(t) * ndtri(stdtr(freedom, -np.abs(t))))


def _largest_t(centred: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Return ``max_ij |c_i - c_j| / error_ij`` over pairs of M models, for each of B bootstrap draws c, ``(B,)``.

    Args:
        centred: draws of the scores minus their means, ``(B, M)``.
        inverse: reciprocals of the standard errors of the differences, ``(M, M)``.
    """
    result = np.zeros(len(centred))
    for i in range(1, centred.shape[1]):
        np.maximum(result, (np.abs(centred[:, i : i + 1] - centred[:, :i]) * inverse[i, :i]).max(axis=1), out=result)
    return result


def _resampled_scores(
    log_probs: Sequence[np.ndarray],
    units: np.ndarray,
    clusters: Sequence[Any] | None,
    n_bootstrap: int,
    random_state: int,
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return the scores of M models, ``(M,)``, bootstrap draws of them, ``(B, M)``, and their degrees of freedom.

    Scores are in nats per unit. Return None if there are too few clusters or steps.

    Args:
        log_probs: log-probability of each test sequence under each of S seeds in nats, an array ``(S, n)`` for each
            model; for a single sequence, of its steps, ``(S, T)``.
        units: number of units of each sequence, ``(n,)``.
        clusters: cluster of each sequence; None means that every sequence is its own.
        n_bootstrap: number B of draws.
        random_state: seed of the draws.
    """
    rng = np.random.default_rng(random_state)
    if is_long(log_probs):
        return _resampled_scores_of_long(list(map(LongSteps.of, log_probs)), float(units[0]), n_bootstrap, rng)
    means = np.stack([each.mean(axis=0) for each in log_probs])  # (M, n)
    scores = means.sum(axis=1) / units.sum()
    if len(units) > 1:
        codes = cluster_codes(clusters, len(units))
        n_clusters = int(codes.max()) + 1
        if n_clusters < MIN_CLUSTERS:
            return None
        freedom = n_clusters - 1.0
        u = np.bincount(codes, weights=units)
        totals = [np.stack([np.bincount(codes, weights=row) for row in each]) for each in log_probs]  # M of (S, C)
        counts = rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=n_bootstrap)  # (B, C)
        sums, drawn_units = [counts @ each.T for each in totals], counts @ u  # M of (B, S), and (B,)
    else:
        n = means.shape[1]
        if n < MIN_STEPS:
            return None
        longest = max(politis_white_block(each - means[0]) for each in means[1:]) if len(means) > 1 else 1.0
        block, starts = _block_and_starts(longest, n, n_bootstrap, rng)
        freedom = 1.5 * (n / block - 1)
        sums = [_block_sums(each, starts, block) for each in log_probs]
        drawn_units = np.full(n_bootstrap, units[0] * starts.shape[1] * block / n)
    return scores, _draws(sums, drawn_units, rng), freedom


def _resampled_scores_of_long(
    steps: list[LongSteps], units: float, n_bootstrap: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return scores, bootstrap draws and degrees of freedom of M models for one sequence whose steps are on disk.

    Args:
        steps: log-probability of the steps under each of M models.
        units: number of units of the sequence.
        n_bootstrap: number B of draws.
        rng: generator of the draws.

    Returns:
        Scores in nats per unit, ``(M,)``, draws of them, ``(B, M)``, and degrees of freedom.
    """
    n, lags = steps[0].n, politis_white_lags(steps[0].n)
    apart = [each.averaged().minus(steps[0].averaged()) for each in steps[1:]]
    longest = max((politis_white_block_of(each.autocovariance(lags), n) for each in apart), default=1.0)
    block, starts = _block_and_starts(longest, n, n_bootstrap, rng)
    sums = [each.block_sums(starts, block) for each in steps]
    drawn_units = np.full(n_bootstrap, units * starts.shape[1] * block / n)
    scores = np.array([each.mean * n for each in steps]) / units
    return scores, _draws(sums, drawn_units, rng), 1.5 * (n / block - 1)


def _block_and_starts(longest: float, n: int, n_bootstrap: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Return the length of bootstrap blocks, and the first steps of the blocks of each of B draws, ``(B, blocks)``.

    Blocks are runs of consecutive steps, and the first step of the sequence follows the last again.

    Args:
        longest: the largest block length that is optimal for the difference of two models.
        n: number of steps of the sequence.
        n_bootstrap: number B of draws.
        rng: generator of the draws.
    """
    # The rule of ``moving_block_difference``, whose docstring gives the reasons.
    block = min(max(int(np.ceil(3 * longest)), -(-n // USUAL_BLOCKS)), n // (MIN_BLOCKS + 1))
    return block, rng.integers(n, size=(n_bootstrap, -(-n // block)))


def _draws(sums: list[np.ndarray], drawn_units: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return B bootstrap draws of the scores of M models in nats per unit, ``(B, M)``.

    Args:
        sums: for each model, the nats of each draw under each of S seeds, ``(B, S)``.
        drawn_units: number of units of each draw, ``(B,)``.
        rng: generator that draws the seeds.
    """
    draws = np.empty((len(drawn_units), len(sums)))
    for i, each in enumerate(sums):
        draws[:, i] = (each * _seed_weights(rng, len(drawn_units), each.shape[1])).sum(axis=1) / drawn_units
    return draws


def _seed_weights(rng: np.random.Generator, n_bootstrap: int, n_seeds: int) -> np.ndarray:
    """Draw bootstrap weights of S seeds for each of B draws, ``(B, S)``; each row sums to 1.

    Args:
        rng: generator of random numbers.
        n_bootstrap: number B of draws.
        n_seeds: number S of seeds.
    """
    if n_seeds == 1:
        return np.ones((n_bootstrap, 1))
    return rng.multinomial(n_seeds - 1, np.full(n_seeds, 1 / n_seeds), size=n_bootstrap) / (n_seeds - 1)


def _block_sums(steps: np.ndarray, starts: np.ndarray, block: int) -> np.ndarray:
    """Sum log-probabilities of steps over all blocks of each of B bootstrap draws; return ``(B, S)`` for S seeds.

    Args:
        steps: log-probability of each of T steps, ``(S, T)``.
        starts: first step of each block, ``(B, blocks)``.
        block: number of steps of a block, which goes on with the first step of the sequence after the last.
    """
    around = np.concatenate([steps, steps[:, :block]], axis=1)
    cumulative = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(around, axis=1)], axis=1)
    return np.asarray((cumulative[:, starts + block] - cumulative[:, starts]).sum(axis=2).T)

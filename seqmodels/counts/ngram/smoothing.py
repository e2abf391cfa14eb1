"""Smoothing of counts: ``p(w | h) = share(h w) + backoff(h) p(w | h without its oldest symbol)``."""

from __future__ import annotations

from typing import Literal

import numpy as np

from seqmodels.counts.ngram.counts import Counts, n_of_counts

Smoothing = Literal["kneser-ney", "witten-bell"]
DEFAULT_DISCOUNTS = np.array([0.5, 1.0, 1.5])  # used if too few n-grams are rare to estimate discounts


def smooth(counts: Counts, base: int, smoothing: Smoothing) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``share (G,)`` of each of G n-grams and the ``backoff (C,)`` of each of C contexts of one length.

    A share is the probability of the event after its context without what shorter contexts add, and the backoff is the
    weight of shorter contexts. The shares of a context and its backoff sum to one. The backoff is above zero, so that
    nothing is impossible; it includes the shares of n-grams that are left out of the tables.

    Args:
        counts: counts of the n-grams.
        base: number of symbols plus one, V + 1.
        smoothing: method of smoothing.
    """
    context, used, totals = counts.context_ids(base), used_counts(counts, smoothing), counts.totals
    if totals is None:
        smoothed = witten_bell if smoothing == "witten-bell" else kneser_ney
        return smoothed(used, context, len(counts.contexts))
    if smoothing == "witten-bell":
        share = used / (totals.sums + totals.n_types)[context]
    else:
        share = (used - discount_of(used, totals.n_of_counts)) / totals.sums[context]
    return share, 1 - np.bincount(context, share, len(counts.contexts))


def used_counts(counts: Counts, smoothing: Smoothing) -> np.ndarray:
    """Return the counts ``(G,)`` of G n-grams that a smoothing uses: plain, or continuation counts for Kneser-Ney.

    A continuation count is the number of different symbols that precede an n-gram.
    """
    return counts.counts if smoothing == "witten-bell" else counts.continuation_counts


def witten_bell(counts: np.ndarray, context: np.ndarray, n_contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return shares ``(G,)`` and backoffs ``(C,)`` of Witten-Bell smoothing, ``share = c(h w) / (c(h) + n(h))``.

    A share is the probability of an n-gram's last symbol without what shorter contexts add; a backoff is the weight of
    shorter contexts. Here n(h) is the number of different symbols seen after h, at least 1, and backoffs are
    ``n(h) / (c(h) + n(h))``. Witten and Bell (1991); Bell's method C.

    Args:
        counts: counts of n-grams, ``(G,)``.
        context: id of the context of each n-gram, ``(G,)``.
        n_contexts: number of contexts C.
    """
    n_types = np.bincount(context, minlength=n_contexts)
    denominator = np.bincount(context, counts, n_contexts) + n_types
    return counts / denominator[context], n_types / denominator


def kneser_ney(counts: np.ndarray, context: np.ndarray, n_contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return shares ``(G,)`` and backoffs ``(C,)`` of modified Kneser-Ney smoothing.

    They are ``share = (c(h w) - D(c)) / c(h)`` and, for the backoff of h, the sum of its discounts divided by c(h). A
    share is the probability of an n-gram's last symbol without what shorter contexts add; a backoff is the weight of
    shorter contexts. The discount D differs for counts of 1, 2 and more (Chen and Goodman 1999, interpolated).

    Args:
        counts: counts of n-grams, ``(G,)``.
        context: id of the context of each n-gram, ``(G,)``.
        n_contexts: number of contexts C.
    """
    discount = discount_of(counts, n_of_counts(counts))
    context_counts = np.bincount(context, counts, n_contexts)
    return (counts - discount) / context_counts[context], np.bincount(context, discount, n_contexts) / context_counts


def discount_of(counts: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the discount of modified Kneser-Ney smoothing for the count of each of G n-grams, ``(G,)``.

    Args:
        counts: the counts, at least 1, ``(G,)``.
        n: numbers of n-grams with counts of 1, 2, 3 and 4, from which the discounts are estimated, ``(4,)``.
    """
    return np.asarray(discounts(n)[np.minimum(counts, 3).astype(np.int64) - 1])


def discounts(n: np.ndarray) -> np.ndarray:
    """Return the discounts of modified Kneser-Ney smoothing for counts of 1, 2, and 3 or more, as an array ``(3,)``.

    They are ``D_k = k - (k + 1) Y n_{k+1} / n_k`` with ``Y = n_1 / (n_1 + 2 n_2)``. If this gives a discount outside of
    0 to k, because few n-grams are rare (small alphabets, little data), it is ``k / 2``, so that some probability is
    always left for unseen symbols, but never all of it.

    Args:
        n: numbers of n-grams with count 1, 2, 3, 4, ``(4,)``.
    """
    k = np.arange(1, 4)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = k - (k + 1) * (n[0] / (n[0] + 2 * n[1])) * n[1:] / n[:3]
    return np.where((estimate > 0) & (estimate < k), estimate, DEFAULT_DISCOUNTS)

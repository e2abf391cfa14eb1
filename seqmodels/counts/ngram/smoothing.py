"""From counts to probabilities: ``p(w | h) = share(h w) + backoff(h) p(w | h without its oldest symbol)``."""

from __future__ import annotations

from typing import Literal

import numpy as np

from seqmodels.counts.ngram.counts import Counts, n_of_counts

Smoothing = Literal["kneser-ney", "witten-bell"]
DEFAULT_DISCOUNTS = np.array([0.5, 1.0, 1.5])  # where too few grams are rare to estimate them


def smooth(counts: Counts, base: int, smoothing: Smoothing) -> tuple[np.ndarray, np.ndarray]:
    """``share (G,)`` of each gram and ``backoff (C,)`` of each context; the two of one context sum to one.

    ``backoff`` is above zero, so that nothing is impossible. What grams that are left out would have been given is in
    it.
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
    """``(G,)`` the counts that a smoothing goes by."""
    return counts.counts if smoothing == "witten-bell" else counts.continuation_counts


def witten_bell(counts: np.ndarray, context: np.ndarray, n_contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """``share = c(h w) / (c(h) + n(h))``, n(h) the number of different symbols seen after h.

    Witten & Bell 1991; Bell's method C.
    """
    n_types = np.bincount(context, minlength=n_contexts)
    denominator = np.bincount(context, counts, n_contexts) + n_types
    return counts / denominator[context], n_types / denominator


def kneser_ney(counts: np.ndarray, context: np.ndarray, n_contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """``share = (c(h w) - D(c)) / c(h)``, a discount for counts 1, 2 and more (Chen & Goodman 1999, interpolated)."""
    discount = discount_of(counts, n_of_counts(counts))
    context_counts = np.bincount(context, counts, n_contexts)
    return (counts - discount) / context_counts[context], np.bincount(context, discount, n_contexts) / context_counts


def discount_of(counts: np.ndarray, n: np.ndarray) -> np.ndarray:
    """``(G,)`` the discount of each count, of which ``n (4,)`` are 1, 2, 3, 4."""
    return np.asarray(discounts(n)[np.minimum(counts, 3).astype(np.int64) - 1])


def discounts(n: np.ndarray) -> np.ndarray:
    """For counts of 1, 2, 3 and more ``D_k = k - (k + 1) Y n_{k+1} / n_k``, with ``Y = n_1 / (n_1 + 2 n_2)``.

    Where the counts of counts ``n (4,)`` give none between 0 and k (few grams are rare: small alphabets, little data)
    it is ``k / 2``: something is always left for what was not seen, and never all.
    """
    k = np.arange(1, 4)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = k - (k + 1) * (n[0] / (n[0] + 2 * n[1])) * n[1:] / n[:3]
    return np.where((estimate > 0) & (estimate < k), estimate, DEFAULT_DISCOUNTS)

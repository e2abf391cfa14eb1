"""The difference of any two models on the same test sequences: intervals, p-values, and all pairs as one frame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.evaluation.statistics.long_sequence import all_finite
from seqmodels.evaluation.statistics.paired import Difference, holm, moving_block_difference, paired_difference

if TYPE_CHECKING:
    import pandas as pd


def model_difference(
    a: np.ndarray, b: np.ndarray, units: np.ndarray, clusters: Sequence[Any] | None, names: tuple[str, str]
) -> Difference:
    """Return the score of model a minus the score of model b in nats per unit, with interval and p-value.

    The interval is over clusters of sequences, or over moving blocks if there is one long sequence. If one of the two
    models gives a test sequence probability zero, it is infinitely worse and there is no interval; if both do, the
    difference is NaN.

    Args:
        a, b: log-probability of each test sequence under each of S seeds in nats, ``(S, n)``; for a single sequence, of
            its steps, ``(S, T)``. A model with one seed, such as the reference ``iid``, is compared with each seed of
            the other, so that the difference is between the two means over seeds.
        units: number of frames, bytes or symbols of each sequence, ``(n,)``.
        clusters: cluster of each sequence; None means that every sequence is its own.
        names: names of the two models, for the ``method`` of the result.
    """
    zero_of_a, zero_of_b = (not all_finite(each) for each in (a, b))
    if zero_of_a or zero_of_b:
        value = math.nan if zero_of_a and zero_of_b else -math.inf if zero_of_a else math.inf
        impossible = [name for name, zero in zip(names, (zero_of_a, zero_of_b), strict=True) if zero]
        return untested(value, f"log p of a sequence is -inf under {' and '.join(map(repr, impossible))}")
    if len(units) == 1:
        return moving_block_difference(a, b, n_units=float(units[0]))
    return paired_difference(a, b, units, clusters)


def untested(difference: float, why: str) -> Difference:
    """Return a difference of two models without an interval and a p-value.

    Args:
        difference: the difference, in nats per unit.
        why: why there is no interval, in words.
    """
    return Difference(difference, math.nan, math.nan, math.nan, 0, f"none: {why}")


def pairwise_frame(
    log_probs: Mapping[str, np.ndarray], units: np.ndarray, clusters: Sequence[Any] | None
) -> pd.DataFrame:
    """Compare all pairs of models; return a frame with a row for each pair.

    Its columns are ``model``, ``other``, ``difference`` (score of the first minus the second in nats per unit),
    ``ci_low`` and ``ci_high`` (95 % interval), ``p_value``, ``p_holm`` (corrected for the number of pairs), ``method``
    and ``n_clusters``.

    Args:
        log_probs: for each model, log-probability of each test sequence under each of S seeds in nats, ``(S, n)``; for
            a single sequence, of its steps, ``(S, T)``.
        units: number of frames, bytes or symbols of each sequence, ``(n,)``.
        clusters: cluster of each sequence; None means that every sequence is its own.
    """
    import pandas as pd

    rows = []
    for first, second in combinations(log_probs, 2):
        difference = model_difference(log_probs[first], log_probs[second], units, clusters, (first, second))
        rows.append(
            {
                "model": first,
                "other": second,
                "difference": difference.difference,
                "ci_low": difference.low,
                "ci_high": difference.high,
                "p_value": difference.p_value,
                "method": difference.method,
                "n_clusters": difference.n_clusters,
            }
        )
    columns = ["model", "other", "difference", "ci_low", "ci_high", "p_value", "method", "n_clusters"]
    frame = pd.DataFrame(rows, columns=columns)
    frame.insert(6, "p_holm", holm(frame["p_value"].to_numpy(dtype=float)))
    return frame

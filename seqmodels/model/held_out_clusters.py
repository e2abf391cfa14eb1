"""What a model predicts of clusters (speakers, sensors) that it was not fitted to: what defaults are chosen by."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from seqmodels.encodings.raw_data import Data, cluster_numbers
from seqmodels.model.fitting import fit_model
from seqmodels.model.model import SequenceModel
from seqmodels.sequences.mapped import MappedArray

FEWEST_CLUSTERS = 3  # so that what is fitted to two or more is asked about another
FEWEST_SEQUENCES = 2  # of a cluster, on average: one alone does not tell what a cluster is from what a sequence is
MOST_PARTS = 4  # that clusters are held out in
MOST_FRAMES = 8_000  # of all parts together: more would hardly change a choice

Parts = list[tuple[Data, Data]]  # training part, held-out part


def cluster_parts(data: Data) -> Parts:
    """Each cluster (with many, each fourth) held out once; long data are thinned out evenly within clusters.

    None of data that are no complete real vectors in memory, that have targets or known states, or whose clusters do
    not tell: fewer than three, or fewer than two sequences in each on average.
    """
    clusters = cluster_numbers(data)
    if clusters is None or data.y is not None or data.states is not None or data.X.kind != "vectors":
        return []
    n_clusters = int(clusters.max()) + 1
    if n_clusters < FEWEST_CLUSTERS or len(clusters) < FEWEST_SEQUENCES * n_clusters:
        return []
    if any(isinstance(item, MappedArray) or np.isnan(np.asarray(item)).any() for item in data.X):
        return []
    is_kept = _thinned_out(clusters, data.X.n_units)
    data, part = data.take(is_kept), clusters[is_kept] % min(n_clusters, MOST_PARTS)
    return [(data.take(part != k), data.take(part == k)) for k in np.unique(part)]


def _thinned_out(clusters: np.ndarray, n_units: np.ndarray) -> np.ndarray:
    """``(n,)`` mask: evenly spaced sequences of each cluster, of ``MOST_FRAMES`` in all; at least two of each."""
    share = MOST_FRAMES / n_units.sum()
    if share >= 1:
        return np.ones(len(clusters), dtype=bool)
    mask = np.zeros(len(clusters), dtype=bool)
    for cluster in range(int(clusters.max()) + 1):
        members = np.flatnonzero(clusters == cluster)
        n = min(len(members), max(FEWEST_SEQUENCES, round(share * len(members))))
        mask[members[np.linspace(0, len(members) - 1, n).round().astype(np.int64)]] = True
    return mask


def held_out_score(make: Callable[[], SequenceModel], parts: Parts) -> float:
    """Nats per unit of all held-out parts, each under a new model fitted to its training part; -inf where that fails.

    Warnings of these fits are not passed on: they are not of the model that is fitted in the end.
    """
    total, n_units = 0.0, 0
    for train, held_out in parts:
        model = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fit_model(model, train, None)
                total += float(model.log_prob(held_out.X).sum())
            except ValueError:  # what these data cannot be described by
                return -np.inf
        if model.interrupted_:
            raise KeyboardInterrupt
        n_units += int(held_out.X.n_units.sum())
    return total / n_units

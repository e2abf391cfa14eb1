"""Scores of models on clusters (speakers, sensors) that they were not fitted to, by which defaults are chosen."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from seqmodels.encodings.raw_data import Data, cluster_numbers
from seqmodels.model.fitting import fit_model
from seqmodels.model.model import SequenceModel
from seqmodels.sequences.mapped import MappedArray

FEWEST_CLUSTERS = 3  # so that a model is fitted to at least two clusters and scored on another
FEWEST_SEQUENCES = 2  # per cluster on average; a single one does not separate cluster effects from sequence effects
MOST_PARTS = 4  # the number of fits for one score
MOST_FRAMES = 8_000  # of all parts together, because more would hardly change a choice

Parts = list[tuple[Data, Data]]  # training part, held-out part


def cluster_parts(data: Data) -> Parts:
    """Return pairs of training and held-out data in which every cluster is held out once.

    With more than ``MOST_PARTS`` clusters, several are held out together. Long data are thinned out evenly within each
    cluster to ``MOST_FRAMES`` frames.

    The list is empty if the clusters cannot be used: fewer than three clusters, fewer than two sequences in a cluster
    on average, targets or known states, or data other than complete vectors in memory.
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
    """Return a mask of the sequences to keep, shape ``(n,)``: evenly spaced within each cluster.

    ``clusters (n,)`` is the number of each sequence's cluster and ``n_units (n,)`` its number of frames. About
    ``MOST_FRAMES`` frames are kept in all, and at least two sequences of each cluster.
    """
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
    """Return the mean log-probability of the held-out parts in nats per unit, or -inf if a fit fails.

    ``make`` returns a new model; one is fitted to each training part and scores its held-out part. Warnings of these
    fits are suppressed, because they do not concern the model that is fitted in the end.

    Raises:
        KeyboardInterrupt: if a fit is interrupted.
    """
    total, n_units = 0.0, 0
    for train, held_out in parts:
        model = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fit_model(model, train, None)
                total += float(model.log_prob(held_out.X).sum())
            except ValueError:  # a model that cannot be fitted to these data is never chosen
                return -np.inf
        if model.interrupted_:
            raise KeyboardInterrupt
        n_units += int(held_out.X.n_units.sum())
    return total / n_units

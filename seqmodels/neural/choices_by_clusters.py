"""How a network of vectors begins, and whether training sequences are perturbed, where clusters (speakers) are known.

Short runs of a narrow network are fitted to a part of the clusters and asked about the others: as it is, from a linear
prediction, and from that on perturbed sequences. The best of them is how the network itself is then trained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmodels.encodings.examples import Example
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.training import Perturbation

FEWEST_CLUSTERS = 3  # of training and held-out part together: two that are fitted, and one that is asked about
FEWEST_SEQUENCES = 2  # of a cluster, on average
PART_HELD_OUT = 3  # each third cluster
MOST_STEPS = 250  # of a run, and
WIDTH = 64  # its width at most
MOST_FRAMES = 6_000  # that a run is asked about


class Beginning(NamedTuple):
    """How training begins, and on what."""

    linear_start: bool
    perturbation: Perturbation | None


def beginnings(linear: list[bool], perturbations: list[Perturbation | None]) -> list[Beginning]:
    """Those that are compared, of what may be chosen; without a linear start none is perturbed if there may be one."""
    return [Beginning(a, b) for a in linear for b in perturbations if a == max(linear) or b == perturbations[0]]


def cluster_split(train: list[Example], validation: list[Example]) -> tuple[list[Example], list[Example]] | None:
    """What short runs are fitted to and asked about; None: clusters do not tell.

    Each third cluster of the training part is held out; of two, those that validation holds out. None where sequences
    name no cluster, are one to a cluster, have missing values or are on disk.
    """
    if any(_is_unknown(e) for e in train):
        return None
    clusters = np.array([e.cluster for e in train], dtype=np.int64)
    numbers = np.unique(clusters)
    if len(train) < FEWEST_SEQUENCES * len(numbers):
        return None
    if len(numbers) >= FEWEST_CLUSTERS:
        is_out = np.isin(clusters, numbers[PART_HELD_OUT - 1 :: PART_HELD_OUT])
        kept = [e for e, out in zip(train, is_out, strict=True) if not out]
        return kept, _thinned_out([e for e, out in zip(train, is_out, strict=True) if out])
    if len(numbers) == FEWEST_CLUSTERS - 1 and validation and not any(_is_unknown(e) for e in validation):
        return train, _thinned_out(validation)
    return None


def _is_unknown(example: Example) -> bool:
    if example.cluster is None or isinstance(example.values, OnDisk):
        return True
    return bool(np.isnan(example.values).any())


def _thinned_out(examples: list[Example]) -> list[Example]:
    """Evenly spaced ones, of about ``MOST_FRAMES`` together."""
    every = max(1, sum(len(e.values) for e in examples) // MOST_FRAMES)
    return examples[::every]

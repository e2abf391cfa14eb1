"""What ``features="auto"`` comes to: frames, their slopes, and what of the level of a recording, by clusters held out.

Small left-to-right HMMs of each label, whatever the classifier's model is, are fitted to the recordings of some
clusters (speakers) and label those of the others.
"""

from __future__ import annotations

import warnings

import numpy as np

from seqmodels.data import FrameFeatures
from seqmodels.hmm import HMM
from seqmodels.observations import GaussianMixture
from seqmodels.sequences import Sequences
from seqmodels.sequences.mapped import MappedArray

FEWEST_CLUSTERS = 3
MOST_PARTS = 3  # that clusters are held out in
MOST_SEQUENCES = 10  # of a label and cluster: more would hardly change the choice
CLEAR = 2.0  # by how many deviations of chance more sequences must be labelled right than without features


def candidate_features() -> list[FrameFeatures]:
    """Slopes; each recording less its mean; both; and over its deviation."""
    return [
        FrameFeatures(2, mean=False, variance=False),
        FrameFeatures(0, variance=False),
        FrameFeatures(2, variance=False),
        FrameFeatures(2, constant="keep"),
    ]


def chosen_features(sequences: Sequences, index: np.ndarray) -> tuple[FrameFeatures | None, str | None]:
    """The features under which clusters held out are labelled right most often, and why, in one line.

    None where clusters do not tell (fewer than three, or a label within one), and where none is clearly better than
    the frames as they are (McNemar 1947).

    Args:
        sequences: of training.
        index: ``(n,)`` number of the label of each.
    """
    if sequences.clusters is None or sequences.kind != "vectors" or sequences.past is not None:
        return None, None
    if any(isinstance(item, MappedArray) or np.isnan(np.asarray(item)).any() for item in sequences):
        return None, None
    _, clusters = np.unique(np.asarray(sequences.clusters).astype(str), return_inverse=True)
    is_kept = _thinned_out(index, clusters)
    sequences, index, clusters = sequences.take(is_kept), index[is_kept], clusters[is_kept]
    part = clusters % MOST_PARTS
    is_known = all(set(index[part == k]) <= set(index[part != k]) for k in range(MOST_PARTS))
    if clusters.max() + 1 < FEWEST_CLUSTERS or not is_known:
        return None, None
    plain = _labelled_right(sequences, index, part, None)
    if plain is None:
        return None, None
    scored = [(each, _labelled_right(sequences, index, part, each)) for each in candidate_features()]
    best, right = max(
        ((each, right) for each, right in scored if right is not None),
        key=lambda pair: pair[1].sum(),
        default=(None, plain),
    )
    won, lost = int((right & ~plain).sum()), int((plain & ~right).sum())
    said = (
        f"of clusters held out {100 * right.mean():.0f} % are labelled right with {best!r}, {100 * plain.mean():.0f} %"
    )
    if won - lost > CLEAR * np.sqrt(won + lost):
        return best, f"{said} without"
    return None, f"no features: {said} without, which may be chance"


def _thinned_out(index: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """``(m,)`` numbers of at most ``MOST_SEQUENCES`` of each label and cluster, evenly spaced, in their order."""
    kept = []
    for label, cluster in sorted(set(zip(index.tolist(), clusters.tolist(), strict=True))):
        members = np.flatnonzero((index == label) & (clusters == cluster))
        n = min(len(members), MOST_SEQUENCES)
        kept.append(members[np.linspace(0, len(members) - 1, n).round().astype(np.int64)])
    return np.sort(np.concatenate(kept))


def _labelled_right(
    sequences: Sequences, index: np.ndarray, part: np.ndarray, features: FrameFeatures | None
) -> np.ndarray | None:
    """``(n,)`` whether each sequence gets its label from models of the other parts; None where none can be fitted."""
    right = np.zeros(len(index), dtype=bool)
    try:
        if features is not None:
            sequences = Sequences([features(np.asarray(item)) for item in sequences])
        like = HMM(5, 5, topology="left-to-right", observation=GaussianMixture(1), n_init=1)
        encoding = like.clone().learned_encoding(sequences)
        with warnings.catch_warnings():  # not of the models that are fitted in the end
            warnings.simplefilter("ignore")
            for k in range(MOST_PARTS):
                held_out, labels = sequences.take(part == k), np.unique(index[part != k])
                log_prob = [
                    like.clone()
                    .fit_encoded(encoding, sequences.take((part != k) & (index == label)))
                    .log_prob(held_out)
                    for label in labels
                ]
                right[part == k] = labels[np.argmax(log_prob, axis=0)] == index[part == k]
    except ValueError:  # constant columns, recordings too short for slopes
        return None
    return right

"""What ``features="auto"`` comes to, and whether labels share variances: what labels clusters right that were held out.

Small left-to-right chains of each label (``segmental``), whatever the classifier's model is, are fitted to the
sequences of some clusters (speakers) and label those of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from seqmodels.data import FrameFeatures
from seqmodels.sequences import Sequences
from seqmodels.sequences.mapped import MappedArray
from seqmodels.wrappers.classification.pooled_variances import MEAN_COUNT
from seqmodels.wrappers.classification.segmental import PaddedFrames, fitted_chains

FEWEST_CLUSTERS = 2  # one that is fitted, and one that is asked about
MOST_PARTS = 4  # that clusters are held out in
MOST_SEQUENCES = 10  # of a label and cluster: more would hardly change the choice
CLEAR = 2.0  # by how many deviations of chance more sequences must be labelled right than as they are
OWN_COUNT = 10.0  # frames at the mean of all that a segment with variances of its own has seen besides, as in HMMs


class FeaturesChoice(NamedTuple):
    """``features`` that all labels read, and whether the variances of their states are pooled; why, in one line."""

    features: Callable[[Any], Any] | None = None
    pools_variances: bool = False
    reason: str | None = None


def candidate_features(level_columns: tuple[int, ...]) -> list[FrameFeatures]:
    """Slopes; with some columns less their mean; each recording less its mean; both; and over its deviation."""
    levels = [FrameFeatures(2, mean=level_columns, variance=False)] if level_columns else []
    return [
        FrameFeatures(2, mean=False, variance=False),
        *levels,
        FrameFeatures(0, variance=False),
        FrameFeatures(2, variance=False),
        FrameFeatures(2, constant="keep"),
    ]


def chosen_features(sequences: Sequences, index: np.ndarray, *, may_pool: bool) -> FeaturesChoice:
    """The choice under which clusters held out are labelled right most often.

    None where clusters do not tell (one alone, or a label within one), and where none is clearly better than
    the frames as they are.

    Args:
        sequences: of training.
        index: ``(n,)`` number of the label of each.
        may_pool: whether pooled variances may be chosen.
    """
    if sequences.clusters is None or sequences.kind != "vectors" or sequences.past is not None:
        return FeaturesChoice()
    if any(isinstance(item, MappedArray) or np.isnan(np.asarray(item)).any() for item in sequences):
        return FeaturesChoice()
    _, clusters = np.unique(np.asarray(sequences.clusters).astype(str), return_inverse=True)
    is_kept = _thinned_out(index, clusters)
    sequences, index, clusters = sequences.take(is_kept), index[is_kept], clusters[is_kept]
    part = clusters % MOST_PARTS
    is_known = all(set(index[part == k]) <= set(index[part != k]) for k in np.unique(part))
    if clusters.max() + 1 < FEWEST_CLUSTERS or not is_known:
        return FeaturesChoice()
    items = [np.asarray(item, dtype=np.float64) for item in sequences]
    scored: dict[FeaturesChoice, np.ndarray] = {}
    for features in (None, *candidate_features(level_columns(items, index, clusters))):
        for pools_variances in (False, True)[: 1 + may_pool]:
            right = _labelled_right(items, index, part, features, pools_variances=pools_variances)
            if right is not None:
                scored[FeaturesChoice(features, pools_variances)] = right
    plain = scored.get(FeaturesChoice())
    if plain is None:
        return FeaturesChoice()
    best = _best(scored)
    said = f"of clusters held out {100 * scored[best].mean():.0f} % are labelled right with "
    said += f"{'no features' if best.features is None else repr(best.features)}"
    said += f"{' and pooled variances' if best.pools_variances else ''}, {100 * plain.mean():.0f} % without"
    if _is_clearly_better(scored[best], plain):
        return best._replace(reason=said)
    return FeaturesChoice(reason=f"no features: {said}, which may be chance")


def _best(scored: dict[FeaturesChoice, np.ndarray]) -> FeaturesChoice:
    """That of most sequences labelled right; variances are pooled unless those of each segment are clearly better."""
    separate, pooled = (
        max((c for c in scored if c.pools_variances == pools), key=lambda c: scored[c].sum(), default=None)
        for pools in (False, True)
    )
    assert separate is not None
    return separate if pooled is None or _is_clearly_better(scored[separate], scored[pooled]) else pooled


def _is_clearly_better(right: np.ndarray, other: np.ndarray) -> bool:
    """Whether it is right more often than the other by more than chance makes likely (McNemar 1947)."""
    won, lost = int((right & ~other).sum()), int((other & ~right).sum())
    return bool(won - lost > CLEAR * np.sqrt(won + lost))


def level_columns(items: list[np.ndarray], index: np.ndarray, clusters: np.ndarray) -> tuple[int, ...]:
    """Columns whose mean over a sequence is told by its cluster more than by its label (shares of the variance)."""
    means = np.stack([item.mean(axis=0) for item in items])  # (n, D)
    return tuple(np.flatnonzero(_between(means, clusters) > _between(means, index)).tolist())


def _between(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """``(D,)`` variance of the means of groups, each counted as often as it has members."""
    means = np.stack([values[group == k].mean(axis=0) for k in np.unique(group)])
    return np.asarray(means[np.unique(group, return_inverse=True)[1]].var(axis=0))


def _thinned_out(index: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """``(m,)`` numbers of at most ``MOST_SEQUENCES`` of each label and cluster, evenly spaced, in their order."""
    kept = []
    for label, cluster in sorted(set(zip(index.tolist(), clusters.tolist(), strict=True))):
        members = np.flatnonzero((index == label) & (clusters == cluster))
        n = min(len(members), MOST_SEQUENCES)
        kept.append(members[np.linspace(0, len(members) - 1, n).round().astype(np.int64)])
    return np.sort(np.concatenate(kept))


def _labelled_right(
    items: list[np.ndarray],
    index: np.ndarray,
    part: np.ndarray,
    features: FrameFeatures | None,
    *,
    pools_variances: bool,
) -> np.ndarray | None:
    """``(n,)`` whether each sequence gets its label from chains of the other parts; None where none can be fitted."""
    right = np.zeros(len(index), dtype=bool)
    try:
        frames = PaddedFrames.of(items if features is None else [features(item) for item in items])
    except ValueError:  # constant columns, recordings too short for slopes
        return None
    for k in np.unique(part):
        chains = fitted_chains(
            frames.take(part != k),
            index[part != k],
            int(index.max()) + 1,
            pools_variances=pools_variances,
            mean_count=MEAN_COUNT if pools_variances else OWN_COUNT,
        )
        right[part == k] = chains.log_prob(frames.take(part == k)).argmax(axis=1) == index[part == k]
    return right

"""``Data``: raw sequences, their targets and weights, checked to belong together; and a part of them held out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqmodels.sequences import Sequences, as_sequences


@dataclass(frozen=True)
class Data:
    """Sequences ``X``, targets ``y`` if there are any, a weight for each sequence, and known hidden states."""

    X: Sequences
    y: Sequences | None
    weights: np.ndarray
    states: list[np.ndarray | None] | None = None

    @classmethod
    def of(cls, X: Any, y: Any = None, weights: Any = None, states: Any = None) -> Data:
        """Check that sequences, targets and weights belong together."""
        x, target = as_sequences(X), None if y is None else as_sequences(y)
        if target is not None and len(target) != len(x):
            raise ValueError(f"there are {len(x)} sequences in X but {len(target)} in y; pass one target for each")
        try:
            w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
        except (ValueError, TypeError):
            w = np.empty(0)
        if w.shape != (len(x),) or not (np.isfinite(w).all() and (w >= 0).all() and 0 < _sum(w) < np.inf):
            raise ValueError(f"sample_weight must be {len(x)} finite numbers, none negative and not all zero")
        if not (states is None or isinstance(states, Iterable)):
            raise ValueError(f"states is {states!r}; pass an array of integers for each sequence, or None")
        known = None if states is None else [None if s is None else np.asarray(s) for s in states]
        if known is not None and len(known) != len(x):
            raise ValueError(f"there are {len(x)} sequences but {len(known)} arrays of states; pass one each, or None")
        return cls(x, target, w, known)

    @property
    def scored(self) -> Sequences:
        """The sequences whose probability is computed: the targets, if there are any."""
        return self.X if self.y is None else self.y

    def take(self, mask: np.ndarray) -> Data:
        """The part where ``mask`` is true."""
        states = None if self.states is None else [s for s, taken in zip(self.states, mask, strict=True) if taken]
        return Data(self.X.take(mask), None if self.y is None else self.y.take(mask), self.weights[mask], states)

    @property
    def has_past(self) -> bool:
        """Whether of a sequence or its source it is known what came before it."""
        return self.X.past is not None or self.scored.past is not None

    def refuse_past(self, what: str) -> None:
        """Raise ``ValueError`` for sequences that have a past, of which ``what`` knows nothing."""
        if self.has_past:
            raise ValueError(
                f"{what} reads whole sequences, but some of these have a past; pass X.without_past(), which takes each "
                "for one that begins where it does"
            )

    def without_past(self) -> Data:
        """Each sequence as one that begins where it does."""
        if not self.has_past:
            return self
        return replace(self, X=self.X.without_past(), y=None if self.y is None else self.y.without_past())


def _sum(weights: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        return float(weights.sum())


# Units: more would be taken from training, and scored at each evaluation, than early stopping needs.
MAX_HELD_OUT = 10_000

# With fewer, what is left to train on would be half of the clusters or less.
MIN_CLUSTERS_TO_HOLD_OUT = 3


def hold_out(
    data: Data, validation: Any, automatic: bool, random_state: int, n_initial: int = 0
) -> tuple[Data, Data | None]:
    """The training and the validation part. Only held-out sequences keep their past: none is read to fit.

    ``"auto"`` holds out a tenth of the sequences, or of a single one its head; ``MAX_HELD_OUT`` units at most. Where
    the sequences have three clusters or more, it is whole clusters: one at least, about a tenth of the units together.
    Of a single series whose first ``n_initial`` frames are no steps of a model's, the head is so much longer; nothing
    is held out where that would be a third of it or more.
    """
    if validation is None or (isinstance(validation, str) and validation == "auto" and not automatic):
        return data, None
    if isinstance(validation, str):
        if validation != "auto":
            raise ValueError(f"validation is {validation!r}; pass 'auto', None, or sequences to hold out")
        return _hold_out_tenth(data, random_state, n_initial)
    if data.y is None:
        return data, Data.of(validation)
    if not (isinstance(validation, tuple) and len(validation) == 2):
        raise ValueError("the model is fitted with y, so validation is a pair (X, y)")
    return data, Data.of(*validation)


def _hold_out_tenth(data: Data, random_state: int, n_initial: int = 0) -> tuple[Data, Data | None]:
    n = len(data.X)
    clusters = cluster_numbers(data)
    if clusters is not None and clusters.max() + 1 >= MIN_CLUSTERS_TO_HOLD_OUT:
        mask = _clusters_to_hold_out(clusters, data.scored.n_units, random_state)
        return data.take(~mask), data.take(mask)
    if n > 1:
        order = np.random.default_rng(random_state).permutation(n)[: max(1, n // 10)]
        n_units_before = np.cumsum(data.scored.n_units[order]) - data.scored.n_units[order]
        mask = np.zeros(n, dtype=bool)
        mask[order[n_units_before < MAX_HELD_OUT]] = True
        return data.take(~mask), data.take(mask)
    length = len(data.X.items[0])
    at = min(MAX_HELD_OUT, max(1, length // 10)) + n_initial
    if data.y is not None or length < 20 or (n_initial and 3 * at >= length):
        return data, None
    # The head: of a text or a recording the end is nearest to what comes after, and would be missed most.
    # It is scored as a sequence that begins there, as training sequences are; what came before the series it keeps.
    head, rest = data.X.segments([(0, 0, at)], past=None), data.X.segments([(0, at, length)])
    return Data(rest, None, data.weights), Data.of(head)


def cluster_numbers(data: Data) -> np.ndarray | None:
    """``(n,)`` the number of each sequence's cluster (of the targets, else of the sources), from 0; None: no clusters.

    A sequence that names none is a cluster of its own.
    """
    import pandas as pd

    clusters = data.scored.clusters or data.X.clusters
    if clusters is None:
        return None
    numbers = np.asarray(pd.factorize(np.asarray(pd.Series(clusters)))[0])
    unnamed = numbers < 0
    return np.where(unnamed, numbers.max() + np.cumsum(unnamed), numbers)


def _clusters_to_hold_out(clusters: np.ndarray, n_units: np.ndarray, random_state: int) -> np.ndarray:
    """``(n,)`` mask of whole clusters, drawn by seed.

    Each that is drawn is held out if that brings the held-out units nearer to a tenth of all, or to ``MAX_HELD_OUT``;
    the smallest cluster if none does.
    """
    sizes = np.bincount(clusters, n_units)
    target = min(MAX_HELD_OUT, sizes.sum() / 10)
    order = np.random.default_rng(random_state).permutation(len(sizes))
    held_out, total = [], 0.0
    for cluster in order:
        if abs(total + sizes[cluster] - target) < abs(total - target):
            held_out.append(cluster)
            total += sizes[cluster]
    return np.isin(clusters, held_out or [order[np.argmin(sizes[order])]])

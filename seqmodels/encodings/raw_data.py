"""Raw sequences with targets and weights, checked to belong together (``Data``), and the choice of held-out
sequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqmodels.sequences import Sequences, as_sequences


@dataclass(frozen=True)
class Data:
    """The data of a fit or a score: sequences with the targets, weights and known hidden states that belong to them.

    Attributes:
        X: the sequences, or the sources if there are targets.
        y: target of each source; None if there are none.
        weights: weight of each sequence in a fit or a score, ``(n,)``.
        states: known hidden states of each sequence, None for a sequence without; None if none are known.
    """

    X: Sequences
    y: Sequences | None
    weights: np.ndarray
    states: list[np.ndarray | None] | None = None

    @classmethod
    def of(cls, X: Any, y: Any = None, weights: Any = None, states: Any = None) -> Data:
        """Return the data of a fit or a score after checking that all parts have the same number of items.

        Args:
            X: sequences in any form that ``Sequences`` reads.
            y: targets in such a form; None if there are none.
            weights: weight of each sequence, ``(n,)``; None means 1.
            states: known hidden states of each sequence; None if none are known.

        Raises:
            ValueError: if the numbers of items differ, or the weights are not finite and non-negative with a positive
                sum.
        """
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
        """The sequences whose probability is computed: the targets, or ``X`` if there are none."""
        return self.X if self.y is None else self.y

    def take(self, mask: np.ndarray) -> Data:
        """Return some of the sequences, with their targets, weights and states.

        Args:
            mask: True for each sequence to take, ``(n,)``.
        """
        states = None if self.states is None else [s for s, taken in zip(self.states, mask, strict=True) if taken]
        return Data(self.X.take(mask), None if self.y is None else self.y.take(mask), self.weights[mask], states)

    @property
    def has_past(self) -> bool:
        """True if a sequence or its source has a past: steps that came before it."""
        return self.X.past is not None or self.scored.past is not None

    def refuse_past(self, what: str) -> None:
        """Raise ValueError if a sequence has a past, steps before it, which a method cannot use.

        Args:
            what: name of the method for the message.
        """
        if self.has_past:
            raise ValueError(
                f"{what} reads whole sequences, but some of these have a past; pass X.without_past(), which takes each "
                "to begin at its first step"
            )

    def without_past(self) -> Data:
        """Return the data without the steps before each sequence, so that each begins at its own first step."""
        if not self.has_past:
            return self
        return replace(self, X=self.X.without_past(), y=None if self.y is None else self.y.without_past())


def _sum(weights: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        return float(weights.sum())


# In units. Early stopping needs no more, and more would be missing in training and slow down each evaluation.
MAX_HELD_OUT = 10_000

# With fewer clusters, at most half of them would be left to train on.
MIN_CLUSTERS_TO_HOLD_OUT = 3


def hold_out(
    data: Data, validation: Any, automatic: bool, random_state: int, n_initial: int = 0
) -> tuple[Data, Data | None]:
    """Split data into a training part and a validation part; the latter is None if nothing is held out.

    ``"auto"`` holds out a tenth of the sequences, or the first part of a single one, and at most ``MAX_HELD_OUT``
    units: frames, symbols or bytes. Clusters are groups of sequences that belong together, such as those of one
    speaker. If there are at least three, whole clusters are held out: at least one, about a tenth of the units in all.
    Only held-out sequences keep their past, because a fit does not read pasts.

    Args:
        data: all data of the fit.
        validation: ``"auto"``, None to hold out nothing, or sequences to validate on, as a pair (X, y) if there are
            targets.
        automatic: True if ``"auto"`` holds out sequences for this model; if False it holds out nothing.
        random_state: seed of the choice.
        n_initial: number of first frames of a single series that are not steps of the model. The held-out part is
            longer by so many frames; if it would then be a third of the series or more, nothing is held out.

    Raises:
        ValueError: if ``validation`` is something else, or not a pair if there are targets.
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
    # The first part is held out, because the end of a text or a recording is closest to what comes after it.
    # It is scored as a sequence that begins there, like training sequences, and keeps the past of the series.
    head, rest = data.X.segments([(0, 0, at)], past=None), data.X.segments([(0, at, length)])
    return Data(rest, None, data.weights), Data.of(head)


def cluster_numbers(data: Data) -> np.ndarray | None:
    """Return the number of each sequence's cluster, from 0, ``(n,)``; None if the data have no clusters.

    A cluster is a group of sequences that belong together, such as those of one speaker. The clusters of the targets
    are taken or, if they have none, those of the sources. A sequence without a cluster is one of its own.
    """
    import pandas as pd

    clusters = data.scored.clusters or data.X.clusters
    if clusters is None:
        return None
    numbers = np.asarray(pd.factorize(np.asarray(pd.Series(clusters)))[0])
    unnamed = numbers < 0
    return np.where(unnamed, numbers.max() + np.cumsum(unnamed), numbers)


def _clusters_to_hold_out(clusters: np.ndarray, n_units: np.ndarray, random_state: int) -> np.ndarray:
    """Choose clusters to hold out at random, and return a mask of the sequences that are in them, ``(n,)``.

    Clusters are groups of sequences that belong together; they are visited in random order. Each is held out if this
    brings the number of held-out units nearer to a tenth of all units, or to ``MAX_HELD_OUT`` if that is smaller; the
    smallest cluster is held out if none does.

    Args:
        clusters: number of each sequence's cluster, ``(n,)``.
        n_units: number of frames, symbols or bytes of each sequence, ``(n,)``.
        random_state: seed of the order.
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

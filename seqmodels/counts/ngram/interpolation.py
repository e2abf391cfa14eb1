"""Interpolation of trained counts with counts of the sequence so far, by weights learned on held-out sequences.

For the context ``h`` of k symbols, let ``h'`` be ``h`` without its oldest symbol, ``c`` the counts of the sequence so
far, and ``f`` the trained shares, normalised without what they leave to shorter contexts::

    p_k(w | h) = a c(h w) / c(h) + b f(w | h) + (1 - a - b) p_{k-1}(w | h')

The weights ``a`` and ``b`` depend on k, on how much the trained context leaves to shorter ones, on how often ``h`` was
read, and on how many different events followed it. Jelinek and Mercer (1980), *Interpolated estimation of Markov source
parameters from sparse data*; Kuhn and De Mori (1990), *A cache-based natural language model*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqmodels.common.array_checks import ROUNDING, array_of, check_between, check_sums
from seqmodels.counts.ngram.events import NONE
from seqmodels.counts.ngram.read_counts import ReadCounts
from seqmodels.counts.ngram.tables import Tables

BACKOFF_EDGES = np.array([0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.45, 0.6])  # class edges of the backoff
N_TRAINED = len(BACKOFF_EDGES) + 2  # classes of trained contexts; class 0 was never seen
SIZE_EDGES = np.array([2, 3, 5, 9, 17, 65])  # class edges of how often a context was read
N_SPREADS = 3  # a single event followed; different events up to half as often as it was read; more
N_READ = 1 + (len(SIZE_EDGES) + 1) * N_SPREADS  # classes of contexts that were read; class 0 was never read
N_ITERATIONS = 12
PRIOR_STEPS = 5.0  # number of held-out steps that the initial weights count as, in each class


@dataclass(frozen=True)
class Components:
    """The trained distribution and that of the sequence so far, after contexts of one length, which are interpolated.

    They are given at N events, each a symbol or the end of its sequence. V is the number of symbols. The weights of the
    interpolation depend on two classes of the context.

    Attributes:
        trained_class: class of the trained context by its backoff (the weight it leaves to shorter contexts), ``(N,)``.
        read_class: class of the context by its counts in the sequence, ``(N,)``.
        trained: trained probability of the event without what shorter contexts add, ``(N,)``; or of all events, ``(N, V
            + 1)``.
        read: relative frequency in the sequence so far of the event, or of all events, in the same shape.
    """

    trained_class: np.ndarray
    read_class: np.ndarray
    trained: np.ndarray
    read: np.ndarray

    def take(self, index: np.ndarray) -> Components:
        return Components(self.trained_class[index], self.read_class[index], self.trained[index], self.read[index])


def read_class(counts: ReadCounts) -> np.ndarray:
    """Return the class of each of N contexts by its counts in the sequence, ``(N,)`` integers from 0 to ``N_READ - 1``.

    It depends on how often the context was read and on how many different events followed; 0 means that it was never
    read. The class selects the weights of an ``Interpolation``.
    """
    size = np.searchsorted(SIZE_EDGES, counts.total, side="right")
    spread = np.where(counts.types <= 1, 0, np.where(2 * counts.types <= counts.total, 1, 2))
    return np.where(counts.total > 0, 1 + size * N_SPREADS + spread, 0)


def components(
    tables: Tables, context_ids: list[np.ndarray], event: np.ndarray, counts: Iterable[ReadCounts]
) -> list[Components]:
    """Return the distributions to interpolate at N events, for each length of context, the shortest first.

    An event is a symbol or, with the code V (the number of symbols), the end of a sequence.

    Args:
        tables: fitted tables.
        context_ids: for each length, the rows of the contexts in the tables, ``(N,)``; -1 if never seen.
        event: the events ``(N,)``, or all events, ``(1, V + 1)``.
        counts: for each length, the counts within the sequence.
    """
    levels = []
    for level, ids, read in zip(tables.levels, context_ids, counts, strict=False):
        backoff = np.where(ids == NONE, 1.0, level.backoff[ids])
        is_seen = backoff < 1
        shape = (-1, *[1] * (event.ndim - 1))
        kept = np.where(is_seen, 1 - backoff, 1.0).reshape(shape)
        share = tables.share(level, np.where(is_seen, ids, NONE).reshape(shape), event) / kept
        classes = np.where(is_seen, 1 + np.searchsorted(BACKOFF_EDGES, backoff), 0)
        ratio = read.of_event / np.maximum(read.total, 1).reshape(shape)
        levels.append(Components(classes, read_class(read), share, ratio))
    return levels


@dataclass(frozen=True)
class Interpolation:
    """The weights of counts of the sequence so far, of trained counts and of shorter contexts, for each length k.

    The probability of an event is ``p_k = a read_k + b trained_k + c p_{k-1}``.

    Attributes:
        weights: a, b and c for each length of context, the shortest first, and each class of trained and of read
            contexts, ``(order, N_TRAINED, N_READ, 3)``.
    """

    weights: np.ndarray

    @classmethod
    def before_learning(cls, order: int) -> Self:
        """Return initial weights: mostly on trained probabilities; counts of the sequence get more the larger they are.

        Args:
            order: number of lengths of context.
        """
        left = np.append(BACKOFF_EDGES, 0.8)
        left = np.concatenate([[1.0], left])  # left by the trained context, for each class
        size = np.concatenate([[0.0], np.repeat(np.append(SIZE_EDGES, 100) - 1.0, N_SPREADS)])
        read = 0.2 * size / (size + 5.0)
        weights = np.empty((order, N_TRAINED, N_READ, 3))
        weights[..., 0] = read
        weights[..., 1] = (1 - read) * (1 - left[:, None])
        weights[..., 2] = (1 - read) * left[:, None]
        return cls(weights)

    def learn(self, levels: list[Components], uniform: float, event_weights: np.ndarray) -> Interpolation:
        """Return weights learned by EM on N held-out events (symbols and ends of sequences).

        The present weights count as ``PRIOR_STEPS`` events in each class, so that a class that never occurs keeps them.

        Args:
            levels: distributions to interpolate at the held-out events, for each length of context, the shortest first.
            uniform: probability of an event under the uniform distribution.
            event_weights: weight of each event, ``(N,)``.
        """
        learned = self
        for _ in range(N_ITERATIONS):
            learned = learned._em_step(levels, uniform, event_weights, prior=self.weights)
        return learned

    def _em_step(
        self, levels: list[Components], uniform: float, event_weights: np.ndarray, prior: np.ndarray
    ) -> Interpolation:
        shorter, parts = np.full(len(event_weights), uniform), []
        for k, level in enumerate(levels):
            w = self.weights[k, level.trained_class, level.read_class]  # (N, 3)
            part = w * np.stack([level.read, level.trained, shorter], axis=-1)
            shorter = part.sum(-1)
            parts.append(part / shorter[:, None])
        weights, reached = self.weights.copy(), event_weights
        for k in range(len(levels) - 1, -1, -1):
            index = levels[k].trained_class * N_READ + levels[k].read_class
            expected = np.stack(
                [np.bincount(index, reached * parts[k][:, i], N_TRAINED * N_READ) for i in range(3)], axis=-1
            ).reshape(N_TRAINED, N_READ, 3)
            expected += PRIOR_STEPS * prior[k]
            weights[k] = expected / expected.sum(-1, keepdims=True)
            reached = reached * parts[k][:, 2]
        return Interpolation(weights)

    def probability(self, levels: list[Components], uniform: float) -> np.ndarray:
        """Return the interpolated probability of one event, ``(N,)``, or of all events, ``(N, V + 1)``, at N steps.

        The shape is that of ``trained`` in ``levels``. V is the number of symbols.

        Args:
            levels: distributions to interpolate, for each length of context, the shortest first.
            uniform: probability of an event before any context is used.
        """
        p = np.full(levels[0].read.shape, uniform)
        for k, level in enumerate(levels):
            w = self.weights[k, level.trained_class, level.read_class]
            a, b, rest = (w[:, i].reshape(-1, *[1] * (p.ndim - 1)) for i in range(3))
            p = a * level.read + b * level.trained + rest * p
        return p

    @classmethod
    def from_state(cls, state: dict[str, Any], order: int) -> Self:
        """Return the interpolation whose weights a file holds.

        Args:
            state: the array ``weights`` by its name.
            order: number of lengths of context.

        Raises:
            ValueError: if the numbers are not valid weights.
        """
        weights = check_between(
            "weights", array_of(state, "weights", np.float64, (order, N_TRAINED, N_READ, 3)), 0, 1 + ROUNDING
        )
        check_sums("weights", weights.sum(-1).ravel())
        if weights[:, 0, :, 1].any() or weights[:, :, 0, 0].any():
            raise ValueError("'weights' should give nothing to contexts that were never seen")
        return cls(weights)

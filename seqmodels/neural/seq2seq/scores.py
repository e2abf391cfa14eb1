"""How well a key answers a query, up to what a softmax over the keys takes out; and the way back, for a loop of our own.

Each score is defined once, as a function of many queries, and its ``Scoring`` is the same for one query after another
with the gradients written out, which needs only what ``grow`` kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor


def additive_score(query: Tensor, key: Tensor, energy: Tensor) -> Tensor:
    """``eᵀ tanh(q + k)``, less the sum of ``e``, which is the same for all keys.

    ``tanh(z) = 2 σ(2 z) - 1``, and on a CPU σ is faster than tanh.

    Args:
        query: twice the projected query, broadcast against the keys (..., d).
        key: twice the projected key (..., d).
        energy: ``e`` (d,).
    """
    return torch.sigmoid(query + key) @ (2.0 * energy)


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """``qᵀ k / √d``: (..., T, d) and (..., S, d) -> (..., T, S)."""
    return query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])


class Scoring(ABC):
    """One score in a loop over steps: T queries of G groups (a sequence, or a head of one), each against S keys.

    To add one, define ``score``, ``pull`` and ``gradients``.
    """

    @abstractmethod
    def score(self, query: Tensor, t: int) -> Tensor:
        """Queries (G, d) of step t -> scores (G, S)."""

    @abstractmethod
    def begin_backward(self) -> None:
        """What can be done for all steps at once before the way back."""

    @abstractmethod
    def pull(self, slope: Tensor, t: int) -> Tensor:
        """Gradients of the scores of step t (G, S) -> those of its queries (G, d)."""

    @abstractmethod
    def gradients(self, slopes: Tensor, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        """All steps' (T, G, S) and queries (T, G, d) -> the gradients of the keys (G, S, d), and of the energy (d,) if there is one."""


class DotScoring(Scoring):
    """``dot_score``.

    Args:
        key: (G, S, d).
    """

    def __init__(self, key: Tensor) -> None:
        self.key, self.scale = key, 1 / math.sqrt(key.shape[-1])

    def score(self, query: Tensor, t: int) -> Tensor:
        """See ``Scoring``."""
        return dot_score(query[:, None], self.key)[:, 0]

    def begin_backward(self) -> None:
        """Nothing."""

    def pull(self, slope: Tensor, t: int) -> Tensor:
        """See ``Scoring``."""
        return torch.bmm(slope[:, None], self.key)[:, 0] * self.scale

    def gradients(self, slopes: Tensor, queries: Tensor) -> tuple[Tensor, None]:
        """See ``Scoring``."""
        return torch.bmm(slopes.permute(1, 2, 0), queries.transpose(0, 1)) * self.scale, None


class AdditiveScoring(Scoring):
    """``additive_score``; keeps (T, G, S, d) numbers for the way back.

    Args:
        key: twice the projected keys (G, S, d).
        energy: (d,).
        n_steps: T, to be kept; 0: none, there is no way back.
    """

    def __init__(self, key: Tensor, energy: Tensor, n_steps: int) -> None:
        self.key, self.energy, self.n_steps = key, energy, n_steps
        self.kept = key.new_empty(max(1, n_steps), *key.shape)

    def score(self, query: Tensor, t: int) -> Tensor:
        """See ``Scoring``."""
        hidden = torch.add(query[:, None], self.key, out=self.kept[t if self.n_steps else 0]).sigmoid_()
        return (hidden.flatten(0, 1) @ (2.0 * self.energy)[:, None]).view(hidden.shape[:2])

    def begin_backward(self) -> None:
        """The slopes of every σ."""
        one = self.kept.new_ones(()).expand_as(self.kept)
        self.slopes = torch.ops.aten.sigmoid_backward(one, self.kept)

    def pull(self, slope: Tensor, t: int) -> Tensor:
        """See ``Scoring``."""
        return torch.bmm(slope[:, None], self.slopes[t])[:, 0] * (2.0 * self.energy)

    def gradients(self, slopes: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Scoring``."""
        energy = 2.0 * (slopes.flatten()[None] @ self.kept.flatten(0, 2))[0]
        key = self.slopes.mul_(slopes[..., None]).sum(0)
        return key * (2.0 * self.energy), energy

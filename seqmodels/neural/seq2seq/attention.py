"""Attention: ``context_t = Σ_s softmax_s(score(query_t, key_s)) value_s``, the sum over real positions only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Attention(nn.Module, ABC):
    """Attention by one set of weights. Stateless: the source is projected once by ``prepare`` and handed to every call.

    To add one, define ``prepare`` and ``score``.

    >>> attention = AdditiveAttention(8)
    >>> source, mask = torch.zeros(2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
    >>> context, weights = attention(torch.zeros(2, 3, 8), *attention.prepare(source, mask), mask)
    >>> context.shape, weights.shape
    (torch.Size([2, 3, 8]), torch.Size([2, 3, 5]))
    """

    @abstractmethod
    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is attended to (B, S, d) and its mask (B, S) -> keys and values (B, S, d), finite where masked."""

    @abstractmethod
    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Raw queries (B, T, d) and prepared keys (B, S, d) -> scores (B, T, S)."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Context (B, T, d) and weights (B, T, S).

        Args:
            query: raw queries (B, T, d).
            key: (B, S, d) as ``prepare`` made them.
            value: (B, S, d) as ``prepare`` made them.
            mask: (B, S), True where real, at least once in every row; masked positions weigh exactly zero.
        """
        weights = _normalise(self.score(query, key), None if mask is None else mask[:, None, :])
        return weights @ value, weights


class AdditiveAttention(Attention):
    """``score(q, k) = vᵀ tanh(W q + U k + b)`` (Bahdanau, Cho and Bengio, 2015).

    Holds (B, T, S, d) numbers at once: made for one query a step, not for all pairs of long sequences.

    Args:
        d_model: width of queries, keys and values.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.energy = nn.Linear(d_model, 1, bias=False)

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys ``U k`` and the source itself as values."""
        source = _zero_masked(source, mask)
        return self.key(source), source

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """``vᵀ tanh(W q + U k + b)``."""
        hidden = torch.tanh(self.query(query)[:, :, None, :] + key[:, None, :, :])  # (B, T, S, d)
        return self.energy(hidden).squeeze(-1)


class MultiplicativeAttention(Attention):
    """``score(q, k) = qᵀ k / √d`` (Luong, Pham and Manning, 2015; scaled as by Vaswani et al., 2017).

    Args:
        d_model: width of queries, keys and values.
        projections: project queries, keys and values linearly first; without, there is nothing to learn.
    """

    def __init__(self, d_model: int, *, projections: bool = True) -> None:
        super().__init__()
        self.query: nn.Module = nn.Linear(d_model, d_model) if projections else nn.Identity()
        # A bias of the keys would add the same to every score of a query, which the softmax takes out again.
        self.key: nn.Module = nn.Linear(d_model, d_model, bias=False) if projections else nn.Identity()
        self.value: nn.Module = nn.Linear(d_model, d_model) if projections else nn.Identity()

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Projected keys and values."""
        source = _zero_masked(source, mask)
        return self.key(source), self.value(source)

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """``qᵀ k / √d``."""
        return self.query(query) @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])


def _normalise(scores: Tensor, mask: Tensor | None) -> Tensor:
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)


def _zero_masked(source: Tensor, mask: Tensor | None) -> Tensor:
    # A weight of zero times NaN is NaN, so what is masked must be finite before it is weighed.
    return source if mask is None else source.masked_fill(~mask[..., None], 0.0)

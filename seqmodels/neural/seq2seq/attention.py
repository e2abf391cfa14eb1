"""Attention: ``context_t = Σ_s softmax_s(score(query_t, key_s)) value_s``, the sum over real positions only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from seqmodels.neural.seq2seq.loop import Memories, Query

Past = Literal["last", "sum"] | None  # which weights of earlier steps a score depends on: those of the last, of all


class Attention(nn.Module, ABC):
    """Attention to a source. Stateless: the source is projected once by ``prepare`` and handed to every call.

    To add one, define ``prepare`` and ``score``; with them ``for_loop`` if the hand-written loop knows the score, ``n_heads`` and
    ``past`` where they are other than one and None.

    >>> from seqmodels.neural.seq2seq.additive import AdditiveAttention
    >>> attention = AdditiveAttention(8)
    >>> source, mask = torch.zeros(2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
    >>> context, weights = attention(torch.zeros(2, 3, 8), *attention.prepare(source, mask), mask)
    >>> context.shape, weights.shape
    (torch.Size([2, 3, 8]), torch.Size([2, 3, 5]))
    """

    n_heads: int = 1
    past: Past = None

    @abstractmethod
    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is attended to (B, S, d) and its mask (B, S) -> keys and values (B, S, d), finite where masked."""

    @abstractmethod
    def score(self, query: Tensor, key: Tensor, past: Tensor | None = None) -> Tensor:
        """Raw queries (B, T, d), prepared keys (B, S, d), earlier weights (B, S) -> scores (B, n_heads, T, S).

        Up to what is the same for all keys, which the softmax takes out.
        """

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Query, Memories] | None:
        """How queries are made and what is attended to, for ``attentive_lstm``; None: it does not know the score."""
        return None

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Context (B, T, d), and weights (B, T, S), of several heads the mean.

        Args:
            query: raw queries (B, T, d); T is 1 if the score depends on earlier weights.
            key: (B, S, d) as ``prepare`` made them.
            value: (B, S, d) as ``prepare`` made them.
            mask: (B, S), True where real, at least once in every row; masked positions weigh exactly zero.
            past: (B, S) as ``begin`` and ``after`` made it.
        """
        weights = _normalise(self.score(query, key, past), mask)  # (B, H, T, S)
        context = weights.to(value.dtype) @ split_heads(value, self.n_heads)
        return context.transpose(1, 2).flatten(2), weights.mean(1)

    def begin(self, key: Tensor) -> Tensor | None:
        """What stands for earlier weights before the first step: zeros (B, S), or None if they don't matter."""
        return None if self.past is None else torch.zeros_like(key[..., 0], dtype=wide(key))

    def after(self, past: Tensor | None, weights: Tensor) -> Tensor | None:
        """The same after a step of these weights (B, S)."""
        if past is None:
            return None
        return weights if self.past == "last" else past + weights


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, S, H d) -> (B, H, S, d)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def zero_masked(source: Tensor, mask: Tensor | None) -> Tensor:
    """A weight of zero times NaN is NaN, so what is masked must be finite before it is weighed."""
    return source if mask is None else source.masked_fill(~mask[..., None], 0.0)


def wide(x: Tensor) -> torch.dtype:
    """Float32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def barred(mask: Tensor, key: Tensor, n_heads: int = 1) -> Tensor:
    """(B, S) -> (B n_heads, S): 0 where real and -inf where padded."""
    zeros = torch.zeros(mask.shape, dtype=wide(key), device=mask.device)
    return zeros.masked_fill_(~mask, -torch.inf).repeat_interleave(n_heads, 0)


def _normalise(scores: Tensor, mask: Tensor | None) -> Tensor:
    return (scores if mask is None else scores.masked_fill(~mask[:, None, None, :], -torch.inf)).softmax(-1)

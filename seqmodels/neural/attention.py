"""Attention: ``context_t = Σ_s softmax_s(score(query_t, key_s)) value_s``, the sum over real positions only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
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


class MultiHeadAttention(nn.Module):
    """``n_heads`` scaled dot products side by side, in slices of width ``d_model / n_heads`` (Vaswani et al., 2017).

    The keys and values of earlier steps are the cache of self-attention; those of a source are computed once.

    Args:
        d_model: width of queries, keys, values and contexts.
        n_heads: must divide ``d_model``.

    Raises:
        ValueError: if ``n_heads`` does not divide ``d_model``.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads={n_heads} does not divide d_model={d_model}; pass a divisor of d_model")
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model, bias=False)  # see MultiplicativeAttention
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is attended to (B, S, d) and its mask (B, S) -> keys and values (B, H, S, d_head), finite where masked."""
        source = _zero_masked(source, mask)
        return self._split(self.key(source)), self._split(self.value(source))

    def empty_cache(self, n: int) -> tuple[Tensor, Tensor]:
        """Keys and values of no positions (n, H, 0, d_head), to which those of the first steps are joined."""
        nothing = self.query.weight.new_zeros(n, 0, self.query.out_features)
        return self._split(nothing), self._split(nothing)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Context (B, T, d) and, on request, weights (B, H, T, S).

        Args:
            query: raw queries (B, T, d).
            key: (B, H, S, d_head) as ``prepare`` made them.
            value: (B, H, S, d_head) as ``prepare`` made them.
            mask: (B, S), True where real, at least once in every row; masked positions weigh exactly zero.
            causal: the queries are the last T of the S positions and see none after their own.
            need_weights: return the weights too; slower, without the fused kernels.
        """
        split = self._split(self.query(query))  # (B, H, T, d_head)
        n_queries, n_keys = split.shape[2], key.shape[2]
        # The kernels' is_causal lines the first query up with the first key, which is right for a square only.
        explicit = need_weights or _fused_is_slow(split)
        square = causal and mask is None and n_queries == n_keys and not explicit
        allowed = None if square else _allowed(mask, n_queries, n_keys, causal, query.device)
        weights: Tensor | None = None
        if explicit:
            weights = _normalise(split @ key.transpose(-2, -1) / math.sqrt(key.shape[-1]), allowed)
            context = weights.to(value.dtype) @ value
        else:
            context = F.scaled_dot_product_attention(split, key, value, attn_mask=allowed, is_causal=square)
        return self.output(context.transpose(1, 2).flatten(2)), weights if need_weights else None

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B, T, d) -> (B, H, T, d_head)


def _fused_is_slow(query: Tensor) -> bool:
    """On CPU the fused kernel's backward pass in bfloat16 is several times slower than two matrix products."""
    return query.device.type == "cpu" and query.dtype == torch.bfloat16 and torch.is_grad_enabled()


def _allowed(mask: Tensor | None, n_queries: int, n_keys: int, causal: bool, device: torch.device) -> Tensor | None:
    """Which query may see which key, broadcastable to (B, H, T, S); None if every one may see all."""
    allowed = None if mask is None else mask[:, None, None, :]
    if not causal or n_queries == 1:
        return allowed
    past = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)
    return past if allowed is None else allowed & past


def _normalise(scores: Tensor, mask: Tensor | None) -> Tensor:
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)


def _zero_masked(source: Tensor, mask: Tensor | None) -> Tensor:
    # A weight of zero times NaN is NaN, so what is masked must be finite before it is weighed.
    return source if mask is None else source.masked_fill(~mask[..., None], 0.0)

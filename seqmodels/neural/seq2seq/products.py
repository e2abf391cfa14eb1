"""Attention by products of queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqmodels.neural.seq2seq.attention import Attention, barred, split_heads, zero_masked
from seqmodels.neural.seq2seq.loop import Memories, Query
from seqmodels.neural.seq2seq.scores import dot_score


class MultiplicativeAttention(Attention):
    """``score(q, k) = qᵀ k / √d`` (Luong, Pham and Manning, 2015; scaled, and in several heads, as by Vaswani et al., 2017).

    With ``coverage`` a learned multiple of the sum of the weights of earlier steps is added (after Tu et al., 2016), of heads the mean.

    Args:
        d_model: width of queries, keys and values.
        n_heads: must divide ``d_model``; each has its own weights for its part of the values.
        projections: project queries, keys and values linearly first; without, there is nothing to learn.
        coverage: depend on the weights of earlier steps.
    """

    def __init__(self, d_model: int, *, n_heads: int = 1, projections: bool = True, coverage: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads is {n_heads}, which does not divide d_model={d_model}; pass a divisor")
        self.n_heads = n_heads
        self.query: nn.Module = nn.Linear(d_model, d_model) if projections else nn.Identity()
        # A bias of the keys would add the same to every score of a query, which the softmax takes out again.
        self.key: nn.Module = nn.Linear(d_model, d_model, bias=False) if projections else nn.Identity()
        self.value: nn.Module = nn.Linear(d_model, d_model) if projections else nn.Identity()
        self.past = "sum" if coverage else None
        self.cover = nn.Parameter(torch.zeros(1)) if coverage else None

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Projected keys and values."""
        source = zero_masked(source, mask)
        return self.key(source), self.value(source)

    def score(self, query: Tensor, key: Tensor, past: Tensor | None = None) -> Tensor:
        """``qᵀ k / √d``, d the width of a head."""
        scores = dot_score(split_heads(self.query(query), self.n_heads), split_heads(key, self.n_heads))
        return _covered(scores, self.cover, past)

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Query, Memories] | None:
        """See ``Attention``."""
        if self.past is not None:
            return None
        query = Query(self.query.weight, self.query.bias) if isinstance(self.query, nn.Linear) else Query(None, None)
        keys, values = (split_heads(x, self.n_heads).flatten(0, 1) for x in (key, value))
        return query, Memories(keys, values, barred(mask, key, self.n_heads), None)


class GeneralAttention(Attention):
    """``score(q, k) = qᵀ W k`` (Luong, Pham and Manning, 2015, *general*); the source itself are the values.

    Args:
        d_model: width of queries, keys and values.
        coverage: as in ``MultiplicativeAttention``.
    """

    def __init__(self, d_model: int, *, coverage: bool = False) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.past = "sum" if coverage else None
        self.cover = nn.Parameter(torch.zeros(1)) if coverage else None

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys ``√d W k``, of which ``dot_score`` divides the root out again, and the source."""
        source = zero_masked(source, mask)
        return math.sqrt(source.shape[-1]) * self.key(source), source

    def score(self, query: Tensor, key: Tensor, past: Tensor | None = None) -> Tensor:
        """``qᵀ W k``."""
        return _covered(dot_score(query, key)[:, None], self.cover, past)

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Query, Memories] | None:
        """See ``Attention``."""
        return None if self.past is not None else (Query(None, None), Memories(key, value, barred(mask, key), None))


def _covered(scores: Tensor, cover: Tensor | None, past: Tensor | None) -> Tensor:
    """Scores (B, H, T, S) and a multiple of earlier weights (B, S)."""
    return scores if past is None or cover is None else scores + cover * past[:, None, None, :]

"""Attention to a source: ``context_t = Σ_s softmax_s(score(query_t, key_s)) value_s``, over real positions only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from seqmodels.neural.ops.precision import without_tf32
from seqmodels.neural.seq2seq.decoder_loop import AttendedSource, QueryMap, additive_score, dot_score

# The weights of earlier steps that a score depends on: the last step's, their sum over all steps, or none.
EarlierWeights = Literal["last", "sum"] | None


class Attention(nn.Module, ABC):
    """Attention to a source: contexts and weights for queries, given keys and values that ``prepare`` computes once.

    To add one, define ``prepare`` and ``score``; also ``for_loop`` if the hand-written decoder loop knows the score,
    and ``n_heads`` and ``earlier_weights`` if they are other than one and None.

    Attributes:
        n_heads: number of heads H.
        earlier_weights: which attention weights of earlier steps the scores depend on: those of the ``"last"`` step, or
            their ``"sum"`` over all steps; None if on none.

    >>> attention = AdditiveAttention(8)
    >>> source, mask = torch.zeros(2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
    >>> context, weights = attention(torch.zeros(2, 3, 8), *attention.prepare(source, mask), mask)
    >>> context.shape, weights.shape
    (torch.Size([2, 3, 8]), torch.Size([2, 3, 5]))
    """

    n_heads: int = 1
    earlier_weights: EarlierWeights = None

    @abstractmethod
    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a source, ``(B, S, d)`` each, finite also at padding.

        Args:
            source: S encoded steps of B sources, ``(B, S, d)``.
            mask: False at padding, ``(B, S)``; None means that there is none.
        """

    @abstractmethod
    def score(self, query: Tensor, key: Tensor, earlier: Tensor | None = None) -> Tensor:
        """Return the attention scores of S keys for T queries in H heads, ``(B, H, T, S)``.

        They may lack a term that is the same for all keys of a query, because the softmax cancels it.

        Args:
            query: decoder states before any projection, ``(B, T, d)``.
            key: keys that ``prepare`` returned, ``(B, S, d)``.
            earlier: attention weights of earlier steps, ``(B, S)``, or None if scores do not depend on them.
        """

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[QueryMap, AttendedSource] | None:
        """Return the map to queries and the source in the form that the hand-written loop ``attentive_lstm`` takes.

        Return None if that loop does not know the score.

        Args:
            key, value: keys and values that ``prepare`` returned, ``(B, S, d)`` each.
            mask: False at padding, ``(B, S)``.
        """
        return None

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, earlier: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return contexts of T queries, ``(B, T, d)``, and weights on S steps, ``(B, T, S)``, the mean over heads.

        Args:
            query: decoder states before any projection, ``(B, T, d)``; T must be 1 if scores depend on earlier weights.
            key: keys that ``prepare`` returned, ``(B, S, d)``.
            value: values that ``prepare`` returned, ``(B, S, d)``.
            mask: False at padding, whose weight is zero, ``(B, S)``; every row has a step that is not padding. None
                means no padding.
            earlier: attention weights of earlier steps, ``(B, S)``, as ``no_weights`` and ``add_weights`` return them.
        """
        scores = self.score(query, key, earlier)  # (B, H, T, S)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
        weights = scores.softmax(-1)
        context = weights.to(value.dtype) @ split_heads(value, self.n_heads)
        return context.transpose(1, 2).flatten(2), weights.mean(1)

    def no_weights(self, key: Tensor) -> Tensor | None:
        """Return the attention weights "of earlier steps" at the first step: zeros ``(B, S)``.

        Return None if scores do not depend on earlier weights.

        Args:
            key: keys of S steps of B sources, ``(B, S, ...)``.
        """
        return None if self.earlier_weights is None else torch.zeros_like(key[..., 0], dtype=at_least_float32(key))

    def add_weights(self, earlier: Tensor | None, weights: Tensor) -> Tensor | None:
        """Return the weights of earlier steps, ``(B, S)``, updated by those of one more step.

        It is their sum, or the weights of the last step alone, as the scores need it; None if they need none.

        Args:
            earlier: weights of earlier steps, ``(B, S)``, or None.
            weights: attention weights of the step, ``(B, S)``.
        """
        if earlier is None:
            return None
        return weights if self.earlier_weights == "last" else earlier + weights


class AdditiveAttention(Attention):
    """Additive attention, ``score(q, k_s) = vᵀ tanh(W q + U k_s + b)`` (Bahdanau, Cho and Bengio, 2015).

    With features ``f_s`` of the attention weights of earlier steps it is ``vᵀ tanh(W q + U k_s + P f_s + b)``:

    - ``"coverage"``: ``f_s`` is the sum of all earlier weights at s (Tu et al., 2016; See, Liu and Manning, 2017);
    - ``"location"``: ``f_s`` is a learned convolution, around s, of the weights of the step before (Chorowski et al.,
      2015);
    - ``"location-coverage"``: ``f_s`` is a convolution of the sum of all earlier weights (Shen et al., 2018).

    It holds (B, T, S, d) numbers at once for T queries and S keys, and so is meant for one query at a time, not for all
    pairs of long sequences.

    Args:
        d_model: width of queries, keys and values.
        features: name of the features of earlier weights; None for none.
        n_filters: number of filters of the convolution.
        width: width of the convolution in steps of the source, an odd number.

    Raises:
        ValueError: if ``width`` is even.
    """

    def __init__(
        self,
        d_model: int,
        *,
        features: Literal["coverage", "location", "location-coverage"] | None = None,
        n_filters: int = 10,
        width: int = 15,
    ) -> None:
        super().__init__()
        if width % 2 == 0:
            raise ValueError(f"width is {width}; pass an odd number, so that a step of the source has a middle")
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.energy = nn.Linear(d_model, 1, bias=False)
        if features is not None:
            self.earlier_weights = "last" if features == "location" else "sum"
            n_features = 1 if features == "coverage" else n_filters
            self.features: nn.Module = nn.Identity()
            if features != "coverage":
                self.features = nn.Conv1d(1, n_filters, width, padding=width // 2, bias=False)
            self.recall = nn.Linear(n_features, d_model, bias=False)  # P

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the keys ``2 U k`` of a source, doubled for ``additive_score``, and the source itself as values.

        Args:
            source: S encoded steps k of B sources, ``(B, S, d)``.
            mask: False at padding, ``(B, S)``; None means that there is none.
        """
        source = zero_masked(source, mask)
        return 2.0 * self.key(source), source

    def score(self, query: Tensor, key: Tensor, earlier: Tensor | None = None) -> Tensor:
        if earlier is not None:
            with without_tf32(earlier):
                features = self.features(earlier[:, None, :]).transpose(1, 2)  # (B, S, F)
            key = key + 2.0 * self.recall(features)
        doubled = 2.0 * self.query(query)[:, :, None, :]
        key = key.to(doubled.dtype)  # the dtype before a checkpoint, which stores it in float32
        return additive_score(doubled, key[:, None, :, :], self.energy.weight[0])[:, None]

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[QueryMap, AttendedSource] | None:
        if self.earlier_weights is not None:
            return None
        query = QueryMap(2.0 * self.query.weight, 2.0 * self.query.bias)
        return query, AttendedSource(key, value, mask_bias(mask, key), self.energy.weight[0])


class MultiplicativeAttention(Attention):
    """Scaled dot-product attention in heads, ``score(q, k) = qᵀ k / √d`` (Luong, Pham and Manning, 2015).

    Scale and heads follow Vaswani et al. (2017). With ``coverage``, a learned multiple of the sum of the attention
    weights of earlier steps (their mean over heads) is added to the scores (after Tu et al., 2016).

    Args:
        d_model: width of queries, keys and values.
        n_heads: number of heads, which must divide ``d_model``; each attends by itself and has a part of the values.
        projections: True to project queries, keys and values linearly first; without them nothing is learned.
        coverage: True if scores depend on the weights of earlier steps.

    Raises:
        ValueError: if ``n_heads`` does not divide ``d_model``.
    """

    def __init__(self, d_model: int, *, n_heads: int = 1, projections: bool = True, coverage: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads is {n_heads}, which does not divide d_model={d_model}; pass a divisor")
        self.n_heads = n_heads
        self.query: nn.Module = nn.Linear(d_model, d_model) if projections else nn.Identity()
        # Keys need no bias, because it would add the same to every score of a query, which the softmax cancels.
        self.key: nn.Module = nn.Linear(d_model, d_model, bias=False) if projections else nn.Identity()
        self.value: nn.Module = nn.Linear(d_model, d_model) if projections else nn.Identity()
        self.earlier_weights = "sum" if coverage else None
        self.cover = nn.Parameter(torch.zeros(1)) if coverage else None

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        source = zero_masked(source, mask)
        return self.key(source), self.value(source)

    def score(self, query: Tensor, key: Tensor, earlier: Tensor | None = None) -> Tensor:
        scores = dot_score(split_heads(self.query(query), self.n_heads), split_heads(key, self.n_heads))
        return _with_coverage(scores, self.cover, earlier)

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[QueryMap, AttendedSource] | None:
        if self.earlier_weights is not None:
            return None
        query = QueryMap(None, None)
        if isinstance(self.query, nn.Linear):
            query = QueryMap(self.query.weight, self.query.bias)
        keys, values = (split_heads(x, self.n_heads).flatten(0, 1) for x in (key, value))
        return query, AttendedSource(keys, values, mask_bias(mask, key, self.n_heads), None)


class GeneralAttention(Attention):
    """Bilinear attention, ``score(q, k) = qᵀ W k`` (Luong, Pham and Manning, 2015, *general*).

    The values are the source itself.

    Args:
        d_model: width of queries, keys and values.
        coverage: True to add a learned multiple of the sum of the attention weights of earlier steps to the scores.
    """

    def __init__(self, d_model: int, *, coverage: bool = False) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.earlier_weights = "sum" if coverage else None
        self.cover = nn.Parameter(torch.zeros(1)) if coverage else None

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the keys ``√d W k`` of a source, which cancels the scale of ``dot_score``, and the source as values.

        Args:
            source: S encoded steps k of B sources, ``(B, S, d)``.
            mask: False at padding, ``(B, S)``; None means that there is none.
        """
        source = zero_masked(source, mask)
        return math.sqrt(source.shape[-1]) * self.key(source), source

    def score(self, query: Tensor, key: Tensor, earlier: Tensor | None = None) -> Tensor:
        return _with_coverage(dot_score(query, key)[:, None], self.cover, earlier)

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[QueryMap, AttendedSource] | None:
        if self.earlier_weights is not None:
            return None
        return QueryMap(None, None), AttendedSource(key, value, mask_bias(mask, key), None)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split the features of S steps, ``(B, S, H d)``, into H heads of width d: ``(B, H, S, d)``."""
    heads: Tensor = x.unflatten(-1, (n_heads, -1))
    return heads.transpose(1, 2)


def zero_masked(source: Tensor, mask: Tensor | None) -> Tensor:
    """Return ``source (B, S, d)`` with zeros at padding, because an attention weight of zero times NaN is NaN."""
    return source if mask is None else source.masked_fill(~mask[..., None], 0.0)


def at_least_float32(x: Tensor) -> torch.dtype:
    """Return the dtype of ``x``, but float32 if that is narrower."""
    return torch.promote_types(x.dtype, torch.float32)


def mask_bias(mask: Tensor, key: Tensor, n_heads: int = 1) -> Tensor:
    """Return a bias that masks attention scores at padding, ``(B n_heads, S)``: 0, or -inf at padding.

    Args:
        mask: False at padding of S steps, ``(B, S)``.
        key: keys, which give the dtype (at least float32).
        n_heads: number of heads, for each of which a row is repeated.
    """
    zeros = torch.zeros(mask.shape, dtype=at_least_float32(key), device=mask.device)
    return zeros.masked_fill_(~mask, -torch.inf).repeat_interleave(n_heads, 0)


def _with_coverage(scores: Tensor, cover: Tensor | None, earlier: Tensor | None) -> Tensor:
    """Return attention scores plus a factor times the attention weights of earlier steps, ``(B, H, T, S)``.

    Args:
        scores: the scores of S steps for T queries in H heads, ``(B, H, T, S)``.
        cover: the factor, ``(1,)``; None changes nothing.
        earlier: weights of earlier steps, ``(B, S)``; None changes nothing.
    """
    return scores if earlier is None or cover is None else scores + cover * earlier[:, None, None, :]

"""Attention in several heads: to the past of the same sequence, and to a source."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.ops.attention import ExplicitAttention
from seqmodels.neural.ops.dropout import dropout
from seqmodels.neural.transformer.cache import Extension, KeyValue
from seqmodels.neural.transformer.norms import RMSNorm
from seqmodels.neural.transformer.options import TransformerOptions
from seqmodels.neural.transformer.relative import Rotation, rotate
from seqmodels.neural.transformer.sight import Sight


class SelfAttention(nn.Module):
    """``n_heads`` scaled dot products side by side (Vaswani et al., 2017), queries, keys and values from one projection.

    The keys' part of its bias adds the same to all scores of a query and is idle, unless keys are rotated or normalised.

    Args:
        options: ``n_heads``, ``n_kv_heads``, ``qk_norm``, ``bias`` and ``attention_dropout`` of them.
    """

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.d_head, self.n_heads, self.n_kv_heads = options.d_head, options.n_heads, options.key_heads
        width = (self.n_heads + 2 * self.n_kv_heads) * self.d_head
        self.project = nn.Linear(options.d_model, width, bias=options.bias)
        self.norm = _head_norm(options, self.n_heads + self.n_kv_heads)
        self.p = options.attention_dropout
        self.output = nn.Linear(options.d_model, options.d_model, bias=options.bias)

    def forward(self, x: Tensor, past: KeyValue | None, extension: Extension, sight: Sight) -> tuple[Tensor, KeyValue]:
        """Context (B, T, d) of ``x`` (B, T, d), and buffers of keys and values with those of ``x`` in them."""
        heads = _heads(self.project(x), self.d_head)  # (B, H + 2 G, T, d_head)
        query, key, value = heads.split((self.n_heads, self.n_kv_heads, self.n_kv_heads), 1)
        if self.norm is not None or sight.rotation is not None:
            turned = self._turn(heads[:, : -self.n_kv_heads], sight.rotation)
            query, key = turned.split((self.n_heads, self.n_kv_heads), 1)
        buffers = extension.place(past, (key, value))
        p = self.p if self.training else 0.0
        context, _ = attend(query, *extension.seen(buffers, sight.first), sight, p)
        return self.output(context.transpose(1, 2).flatten(2)), buffers

    def _turn(self, x: Tensor, turn: Rotation | None) -> Tensor:
        """Queries and keys (B, H + G, T, d_head), normalised first, then rotated, if at all."""
        if self.norm is not None:
            x = self.norm(x)
        return x if turn is None else rotate(x, turn)


class CrossAttention(nn.Module):
    """Attention to a source, whose keys and values are computed once by ``prepare``. Knows of no positions.

    Args:
        options: those of ``SelfAttention``.
    """

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.d_head, width = options.d_head, options.key_heads * options.d_head
        self.query = nn.Linear(options.d_model, options.d_model, bias=options.bias)
        # A bias of the keys would be idle, see SelfAttention.
        self.key = nn.Linear(options.d_model, width, bias=False)
        self.value = nn.Linear(options.d_model, width, bias=options.bias)
        self.query_norm = _head_norm(options, options.n_heads)
        self.key_norm = _head_norm(options, options.key_heads)
        self.p = options.attention_dropout
        self.output = nn.Linear(options.d_model, options.d_model, bias=options.bias)

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> KeyValue:
        """What is attended to (B, S, d) and its mask (B, S) -> keys and values (B, G, S, d_head), finite where masked."""
        if mask is not None:  # a weight of zero times NaN is NaN
            source = source.masked_fill(~mask[..., None], 0.0)
        return self._split(self.key(source), self.key_norm), self._split(self.value(source), None)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, sight: Sight, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Context (B, T, d) of raw queries (B, T, d), and on request the weights (B, H, T, S), which is slower."""
        split = self._split(self.query(query), self.query_norm)
        context, weights = attend(split, key, value, sight, self.p if self.training else 0.0, need_weights=need_weights)
        return self.output(context.transpose(1, 2).flatten(2)), weights

    def _split(self, x: Tensor, norm: RMSNorm | None) -> Tensor:
        heads = _heads(x, self.d_head)
        return heads if norm is None else norm(heads)


def attend(
    query: Tensor, key: Tensor, value: Tensor, sight: Sight, p: float, *, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Context (B, H, T, d_head) of queries (B, H, T, d_head), and the weights if asked for.

    Args:
        query: (B, H, T, d_head).
        key: (B, G, S, d_head); H / G neighbouring heads of queries share one.
        value: (B, G, S, d_head).
        sight: what is seen.
        p: fraction of the weights to drop, zero outside of training.
        need_weights: return (B, H, T, S) before dropout; needs a sight that is not ``causal``.
    """
    if query.shape[1] > key.shape[1]:
        if query.shape[2] == 1 and not need_weights:
            return _attend_to_shared(query, key, value, sight, p), None
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    if not (sight.explicit or need_weights):
        return F.scaled_dot_product_attention(query, key, value, sight.bias, p, sight.causal), None
    assert not sight.causal, "the mask must be a bias where products are written out"
    if p == 0 and not need_weights and not torch.compiler.is_compiling():  # which would fuse what is written below
        written: Tensor = ExplicitAttention.apply(query, key, value, sight.bias)
        return written, None
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)  # (B, H, T, S)
    weights = (scores if sight.bias is None else scores + sight.bias).softmax(-1).to(value.dtype)
    return dropout(weights, p, p > 0) @ value, weights if need_weights else None


def _heads(x: Tensor, d_head: int) -> Tensor:
    return x.view(*x.shape[:2], -1, d_head).transpose(1, 2)  # (B, T, H d_head) -> (B, H, T, d_head)


def _attend_to_shared(query: Tensor, key: Tensor, value: Tensor, sight: Sight, p: float) -> Tensor:
    """One query a head (B, H, 1, d_head): those that share keys stand side by side as queries, so no key is copied."""
    shape = query.shape[0], key.shape[1], -1, query.shape[3]  # (B, G, H / G, d_head)
    if sight.bias is not None and sight.bias.shape[1] > 1:
        sight = replace(sight, bias=sight.bias.unflatten(1, (key.shape[1], -1)).squeeze(3))  # (., H, 1, S)
    context, _ = attend(query.reshape(shape), key, value, sight, p)
    return context.reshape(query.shape)


def _head_norm(options: TransformerOptions, n_heads: int) -> RMSNorm | None:
    if not options.qk_norm:
        return None
    return RMSNorm(n_heads, 1, options.d_head, affine=options.norm_affine, epsilon=options.norm_epsilon)

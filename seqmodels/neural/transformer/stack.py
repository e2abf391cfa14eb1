"""A stack of Transformer blocks ``x + attention(x)``, ``x + feedforward(x)``: an encoder, or a decoder with a cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from seqmodels.neural.ops.dropout import dropout
from seqmodels.neural.transformer.attention import (
    AttentionMask,
    CrossAttention,
    ForwardPass,
    MaskBuilder,
    SelfAttention,
    explicit_is_faster,
    padding_mask,
)
from seqmodels.neural.transformer.cache import CacheUpdate, FillLevel, KeyValue, KVCache, plan_update
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.layers import FeedForward, Residual, make_norm
from seqmodels.neural.transformer.positions import RotaryEmbedding, T5Bias, make_score_bias
from seqmodels.neural.transformer.training_sublayers import (
    feedforward_sublayer,
    has_training_sublayers,
    self_attention_sublayer,
)

CROSS_BIAS_UNIT = 8.0  # of the table of ``cross_bias``, of which AdamW moves all entries by about lr a step: too little


class TransformerStack(nn.Module):
    """Transformer blocks on top of each other: an encoder, or a decoder (``causal``), which may attend to a source.

    Weights start normal with standard deviation 1 / √(inputs). Maps that add to the residual stream are divided further
    by the root of the number of such additions, as in GPT-2. GPT-2's own deviation, 0.02, is made for its width: narrow
    networks learn slowly from it.

    Args:
        config: the configuration of the blocks. Positions of the kinds that act in attention (``"rotary"``,
            ``"alibi"``, ``"t5"``) are applied here; other kinds must be added to the inputs before.
        max_length: the longest sequence, if known. It limits the cache's buffers and the rotary embedding's table.
        causal: True if no step sees a later one.
        cross: True if every block attends to a source too.

    Raises:
        ValueError: if ``TransformerConfig.check_architecture`` refuses ``config``.
    """

    def __init__(
        self, config: TransformerConfig, *, max_length: int | None = None, causal: bool = False, cross: bool = False
    ) -> None:
        super().__init__()
        config.check_architecture(max_length)
        self.config = config
        self.max_length = max_length
        self.mask_builder = MaskBuilder(causal, config.window)
        self.rotary = RotaryEmbedding(config.d_head, max_length) if config.positions == "rotary" else None
        self.score_bias = make_score_bias(config.positions, config.n_query_heads, causal=causal)
        has_cross_bias = cross and config.cross_bias
        self.cross_bias = T5Bias(config.n_query_heads, causal=False) if has_cross_bias else None
        self.blocks = nn.ModuleList(TransformerBlock(config, cross=cross) for _ in range(config.n_layers))
        self.final_norm = nn.Identity() if config.norm == "post" else norm_of(config)
        self._initialise(n_additions=(3 if cross else 2) * config.n_layers)

    def _initialise(self, n_additions: int) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                adds = name.endswith(("attention.output", "contract"))
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features * (n_additions if adds else 1)))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if self.config.zero_init:
            for block in self:
                block.start_at_zero()

    def __iter__(self) -> Iterator[TransformerBlock]:
        return iter(cast("list[TransformerBlock]", self.blocks))

    def empty_cache(self, n: int) -> KVCache:
        empty = next(self.parameters()).new_zeros(n, self.config.n_key_heads, 0, self.config.d_head)
        return tuple((empty, empty) for _ in self), 0, FillLevel(0)

    def prepare(self, source: Tensor, mask: Tensor) -> tuple[KeyValue, ...]:
        """Return, for each layer, the keys and values of an encoded source for cross-attention.

        Args:
            source: S encoded steps of B sources, (B, S, d).
            mask: False at padding, (B, S).
        """
        return tuple(block.cross_attention.prepare(source, mask) for block in self)

    def forward(
        self,
        x: Tensor,
        cache: KVCache | None = None,
        *,
        mask: Tensor | None = None,
        prepared: tuple[KeyValue, ...] | None = None,
        source_mask: Tensor | None = None,
        n_blocks: int | None = None,
        cross_queries: list[Tensor] | None = None,
    ) -> tuple[Tensor, KVCache]:
        """Return the hidden states (B, T, d), and the key-value cache with the T steps of ``x`` added.

        Args:
            x: inputs with their positions, (B, T, d).
            cache: keys and values of earlier steps; None: there are none.
            mask: False at padding of ``x``, (B, T). Only an encoder needs it, since a causal stack never sees padding
                on the right.
            prepared: for each layer keys and values of the source; None without cross-attention.
            source_mask: False at padding of the source, (B, S).
            n_blocks: run only so many blocks, the first ones, without the final norm; None runs all.
            cross_queries: a list to which each block appends the inputs of its cross-attention, (B, T, d).
        """
        if mask is not None:  # a weight of zero times NaN is NaN
            x = x.masked_fill(~mask[..., None], 0.0)
        attention_dropout = self.config.attention_dropout if self.training else 0.0
        explicit = explicit_is_faster(x, self.config.n_query_heads, attention_dropout)
        update, fill = plan_update(cache, x.shape[1], self.max_length)
        shared = self._shared(x, update, mask, source_mask, cross_queries, explicit=explicit)
        # With a source too, the sublayers of modules were faster.
        shared.trains = source_mask is None and update.length == 0 and self._has_training_sublayers(shared.mask)
        x = dropout(x, self.config.dropout, self.training)
        buffers: list[KeyValue] = []
        for i, block in enumerate(self):
            if i == n_blocks:
                break
            past = None if cache is None else cache[0][i]
            x, key_value = block(x, past, None if prepared is None else prepared[i], shared)
            buffers.append(key_value)
        return x if n_blocks is not None else self.final_norm(x), (tuple(buffers), update.new_length, fill)

    def self_attention_weights(self, x: Tensor, layer: int, mask: Tensor | None = None) -> Tensor:
        """Return the weights (B, H, T, T) of step t on step s in each of H heads of a layer, for whole sequences.

        The stack must not have cross-attention.

        Args:
            x: inputs with their positions, (B, T, d).
            layer: the number of the layer, from 0.
            mask: False at padding of ``x``, (B, T), for an encoder.
        """
        if layer:
            x = self(x, mask=mask, n_blocks=layer)[0]
        elif mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        shared = self._shared(x, plan_update(None, x.shape[1], self.max_length)[0], mask, explicit=True)
        block = list(self)[layer]
        return block.attention.weights(block.attention_residual.sublayer_input(x), shared)

    def _shared(
        self,
        x: Tensor,
        update: CacheUpdate,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        cross_queries: list[Tensor] | None = None,
        *,
        explicit: bool,
    ) -> ForwardPass:
        """Return the masks, positions and cache update that all layers share in one forward pass.

        Args:
            x: inputs with their positions, (B, T, d).
            update: plan of how new keys and values are written to the cache.
            mask: False at padding of ``x``, (B, T), or None.
            source_mask: False at padding of the source, (B, S), or None.
            cross_queries: a list to which each block appends the inputs of its cross-attention, or None.
            explicit: True to compute attention by single products instead of torch's fused kernel.
        """
        return ForwardPass(
            update,
            self.mask_builder.build(x, update.length, mask, self.score_bias, explicit=explicit),
            None if self.rotary is None else self.rotary(x, update.length),
            None if source_mask is None else self.source_mask(source_mask, x, update.length, explicit=explicit),
            cross_queries,
        )

    def source_mask(self, mask: Tensor, x: Tensor, n_past: int, *, explicit: bool) -> AttentionMask:
        """Return the mask of cross-attention to B sources of S steps, with ``cross_bias`` added to the scores.

        Args:
            mask: False at padding of the sources, (B, S).
            x: inputs of T new steps, (B, T, d).
            n_past: number of steps before them.
            explicit: True to compute attention by single products instead of torch's fused kernel.
        """
        padding = padding_mask(mask, x, explicit=explicit)
        if self.cross_bias is None:
            return padding
        assert padding.bias is not None
        query = torch.arange(n_past, n_past + x.shape[1], device=x.device)
        distance = query[:, None] - torch.arange(mask.shape[1], device=x.device)  # (T, S)
        bias = (CROSS_BIAS_UNIT * self.cross_bias(distance)).to(padding.bias.dtype)  # (H, T, S)
        return replace(padding, bias=padding.bias + bias)

    def _has_training_sublayers(self, mask: AttentionMask) -> bool:
        """Return True if ``training_sublayers`` can compute the blocks of a pass with this mask, in training."""
        if not (mask.explicit and torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return False
        return has_training_sublayers(self.config) and not (mask.bias is not None and mask.bias.requires_grad)


class TransformerBlock(nn.Module):
    """A Transformer block: self-attention, cross-attention and feed-forward, each with a residual connection.

    Args:
        config: the configuration of the block.
        cross: True for cross-attention to a source.
    """

    def __init__(self, config: TransformerConfig, *, cross: bool) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_residual = _residual(config)
        if cross:
            self.cross_attention = CrossAttention(config)
            self.cross_residual = _residual(config)
        self.feedforward = FeedForward(config.d_model, config.feedforward_width, config.activation, bias=config.bias)
        self.feedforward_residual = _residual(config)

    def forward(
        self, x: Tensor, past: KeyValue | None, prepared: KeyValue | None, shared: ForwardPass
    ) -> tuple[Tensor, KeyValue]:
        """Return the hidden states (B, T, d) after the block, and the buffers of its keys and values.

        Args:
            x: the inputs of T steps, (B, T, d).
            past: this layer's keys and values of earlier steps, or None.
            prepared: this layer's keys and values of the source, or None without cross-attention.
            shared: masks, positions and cache update that all layers share.
        """
        if shared.trains:
            residual = self.attention_residual
            x, buffers = self_attention_sublayer(x, self.attention, residual, shared.mask, shared.rotation)
            return feedforward_sublayer(x, self.feedforward, self.feedforward_residual), buffers
        context, buffers = self.attention(self.attention_residual.sublayer_input(x), past, shared)
        x = self.attention_residual.add(x, context)
        if prepared is not None:
            query = self.cross_residual.sublayer_input(x)
            if shared.cross_queries is not None:
                shared.cross_queries.append(query)
            x = self.cross_residual.add(x, self.cross_attention(query, *prepared, shared.source_mask)[0])
        inputs = self.feedforward_residual.sublayer_input(x)
        return self.feedforward_residual.add(x, self.feedforward(inputs)), buffers

    def start_at_zero(self) -> None:
        """Make every sublayer add nothing at first, by zeros in its output map or in the gain of the norm after it."""
        for module in self.children():
            if isinstance(module, Residual) and module.placement == "residual":
                nn.init.zeros_(cast(Tensor, module.norm.weight))
            elif not isinstance(module, Residual) and self.feedforward_residual.placement != "residual":
                last = module.contract if isinstance(module, FeedForward) else module.output
                nn.init.zeros_(cast(nn.Linear, last).weight)


def norm_of(config: TransformerConfig) -> nn.Module:
    """Return a new norm of width ``d_model``: a layer norm or an RMS norm, as ``config`` describes it."""
    affine = config.norm_affine
    epsilon = config.norm_epsilon
    return make_norm(config.norm_type, config.d_model, affine=affine, bias=config.bias, epsilon=epsilon)


def _residual(config: TransformerConfig) -> Residual:
    return Residual(config.norm, norm_of(config), config.dropout)

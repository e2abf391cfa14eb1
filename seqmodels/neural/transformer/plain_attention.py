"""Self-attention without projections, ``y_t = Σ_s w_ts x_s`` with ``w_ts = softmax_s(x_t · x_s)`` over s ≤ t."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from seqmodels.neural.network import Network, Source
from seqmodels.neural.ops.dropout import dropout
from seqmodels.neural.ops.precision import compute_dtype
from seqmodels.neural.transformer.attention import AttentionMask, MaskBuilder, attend, explicit_is_faster
from seqmodels.neural.transformer.cache import FillLevel, KeyValue, cached_length, plan_update
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.incremental import TransformerState
from seqmodels.neural.transformer.positions import (
    RotaryEmbedding,
    Rotation,
    make_positions,
    make_score_bias,
    rotate,
)
from seqmodels.neural.transformer.short_convolution import ShortConvolution


class PlainAttentionNetwork(Network[TransformerState]):
    """Layers of causal self-attention and nothing else: queries, keys and values are the inputs of a layer.

    The attention weights are ``w_ts = softmax_s(x_t · x_s / √d)`` over s ≤ t, and the outputs ``y_t = Σ_s w_ts x_s``.
    With several heads, each part of ``d = d_head`` entries does this by itself. There are no projections, norms,
    feed-forward layers or residual connections, so a layer has no parameters except a learned bias of scores
    (``positions="t5"``). Rotary embedding rotates only the vectors that are multiplied, not the vectors that are
    summed. The state is the key-value cache, and the last ``convolution_lags`` inputs.

    Args:
        config: the configuration, of which the width, layers, heads of queries, positions, window and dropout are used.
        scale_scores: True to divide scores by the root of a head's width.
        max_length: the longest sequence, if known; learned positions need it.
        convolution_lags: how many earlier inputs a causal convolution adds to each, see ``ShortConvolution``.

    >>> import torch
    >>> config = TransformerConfig(d_model=2, n_layers=1, n_heads=1, positions=None, dropout=0.0)
    >>> network = PlainAttentionNetwork(config, scale_scores=False)
    >>> x = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])  # scores of the second step: 0 and 4
    >>> network(x, network.start(1))[0][0, 1] / torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]).softmax(0)
    (tensor([0.0180, 0.9820]), tensor([0.0180, 0.9820]))
    """

    reads_at_once = True

    def __init__(
        self,
        config: TransformerConfig,
        *,
        scale_scores: bool = True,
        max_length: int | None = None,
        convolution_lags: int = 0,
    ) -> None:
        super().__init__()
        config.check_architecture(max_length)
        self.d_model = config.d_model
        self.config = config
        self.max_length = max_length
        # ``attend`` divides by √d_head
        self.query_factor = 1.0 if scale_scores else config.d_head**0.5
        self.previous = ShortConvolution(config.d_model, convolution_lags)
        self.positions = make_positions(config.positions, config.d_model, max_length)
        self.mask_builder = MaskBuilder(causal=True, window=config.window)
        self.rotary = RotaryEmbedding(config.d_head, max_length) if config.positions == "rotary" else None
        self.score_bias = make_score_bias(config.positions, config.n_query_heads, causal=True)

    def start(self, n: int, source: Source | None = None) -> TransformerState:
        """Return the state of n sequences before the first step: an empty cache, and zeros for earlier inputs.

        The cache holds keys and values. ``source`` is ignored.
        """
        recent = self.previous.start(n)
        empty = recent.new_zeros(n, self.config.n_query_heads, 0, self.config.d_head)
        return (tuple((empty, empty) for _ in range(self.config.n_layers)), 0, FillLevel(0)), recent

    def forward(self, inputs: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        cache, recent = state
        x, recent = self.previous(inputs, recent)
        x = dropout(self.positions(x, cached_length(cache)), self.config.dropout, self.training)
        p = self.config.attention_dropout if self.training else 0.0
        update, fill = plan_update(cache, x.shape[1], self.max_length)
        explicit = explicit_is_faster(x, self.config.n_query_heads, p)
        mask, rotation = self._mask(x, update.length, explicit=explicit)
        buffers: list[KeyValue] = []
        for past in cache[0]:
            query, key, value = self._heads(x, rotation)
            buffers.append(update.write(past, (key, value)))
            context, _ = attend(query, *update.steps_from(mask.first_key, buffers[-1]), mask, p)
            x = context.transpose(1, 2).flatten(2)
        return x.to(inputs.dtype), ((tuple(buffers), update.new_length, fill), recent)

    def self_attention_weights(self, inputs: Tensor, layer: int) -> Tensor:
        """Return the weights (B, H, T, T) of input t on input s in each of H heads of a layer.

        Args:
            inputs: T embedded inputs that begin B sequences, (B, T, d).
            layer: number of the layer, from 0.
        """
        x = self.positions(self.previous(inputs, self.previous.start(len(inputs)))[0], 0)
        mask, rotation = self._mask(x, 0, explicit=True)
        for _ in range(layer):
            x = attend(*self._heads(x, rotation), mask, 0.0)[0].transpose(1, 2).flatten(2)
        weights = attend(*self._heads(x, rotation), mask, 0.0, need_weights=True)[1]
        return cast(Tensor, weights)

    def _mask(self, x: Tensor, n_past: int, *, explicit: bool) -> tuple[AttentionMask, Rotation | None]:
        """Return the attention mask of all layers, and the rotation of rotary embedding or None, for T new steps.

        Args:
            x: inputs of the steps, (B, T, d).
            n_past: number of steps in the key-value cache before them.
            explicit: True to compute attention by single products instead of torch's fused kernel.
        """
        mask = self.mask_builder.build(x, n_past, None, self.score_bias, explicit=explicit)
        return mask, None if self.rotary is None else self.rotary(x, n_past)

    def _heads(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (B, H, T, d_head): the heads of ``x`` (B, T, d), the first two rotated."""
        value = x.to(compute_dtype(x)).unflatten(2, (-1, self.config.d_head)).transpose(1, 2)
        key = value if rotation is None else rotate(value, rotation).to(value.dtype)
        return key * self.query_factor, key, value

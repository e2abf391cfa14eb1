"""Transformers: ``x + attention(x)``, ``x + feedforward(x)``, layer upon layer; the memory is the keys and values of the past."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from seqmodels.neural.attention import MultiHeadAttention
from seqmodels.neural.network import Memory, Network, Source
from seqmodels.neural.positions import PositionKind, make_positions

Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu"]
KeyValue = tuple[Tensor, Tensor]  # (B, H, S, d_head) each


class TransformerNetwork(Network):
    """A causal Transformer without an encoder (Vaswani et al., 2017; Radford et al., 2019). Sees the whole past.

    Inputs should have entries of order one, as have the sinusoids they are added to.

    Args:
        d_model: width of inputs and of hidden states.
        n_layers: blocks of attention and feed-forward.
        n_heads: must divide ``d_model``.
        d_feedforward: width inside the feed-forward; ``None``: 4 d_model.
        dropout: on the inputs and on what every sublayer adds, as in Vaswani et al.
        norm: ``"pre"``: ``x + f(LayerNorm(x))`` and a last LayerNorm; ``"post"``: ``LayerNorm(x + f(x))``.
        activation: of the feed-forward.
        positions: ``"sinusoidal"``, ``"learned"`` or ``None``.
        max_length: the longest sequence, for learned positions.

    Raises:
        ValueError: if the heads do not divide ``d_model``, for an unknown choice, or past ``max_length``.
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int = 2,
        n_heads: int = 4,
        *,
        d_feedforward: int | None = None,
        dropout: float = 0.0,
        norm: Norm = "pre",
        activation: Activation = "gelu",
        positions: PositionKind = "sinusoidal",
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.positions = make_positions(positions, d_model, max_length)
        self.decoder = TransformerStack(
            d_model, n_layers, n_heads, d_feedforward, dropout=dropout, norm=norm, activation=activation, causal=True
        )

    def start(self, n: int, source: Source | None = None) -> Memory:
        """For each layer the keys and values of no steps, (n, H, 0, d_head) each."""
        return self.decoder.empty_cache(n)

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        return self.decoder(self.positions(inputs, cached_length(memory)), memory)


class TransformerSeq2SeqNetwork(Network):
    """A Transformer with an encoder, which sees its source both ways, and a causal decoder (Vaswani et al., 2017).

    Arguments and errors are those of ``TransformerNetwork``, for encoder and decoder alike; each has ``n_layers``.
    """

    reads_source = True

    def __init__(
        self,
        d_model: int,
        n_layers: int = 2,
        n_heads: int = 4,
        *,
        d_feedforward: int | None = None,
        dropout: float = 0.0,
        norm: Norm = "pre",
        activation: Activation = "gelu",
        positions: PositionKind = "sinusoidal",
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.source_positions = make_positions(positions, d_model, max_length)
        self.positions = make_positions(positions, d_model, max_length)
        stack = partial(
            TransformerStack,
            *(d_model, n_layers, n_heads, d_feedforward),
            dropout=dropout,
            norm=norm,
            activation=activation,
        )
        self.encoder = stack(causal=False)
        self.decoder = stack(causal=True, cross=True)

    def start(self, n: int, source: Source | None = None) -> Memory:
        """The decoder's empty cache, the source's keys and values for each of its layers, and the source's mask."""
        assert source is not None, "an encoder needs a source"
        values = source.values.masked_fill(~source.mask[..., None], 0.0)
        encoded, _ = self.encoder(self.source_positions(values), mask=source.mask)
        return self.decoder.empty_cache(n), self.decoder.prepare(encoded, source.mask), source.mask

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        cache, prepared, source_mask = memory
        x = self.positions(inputs, cached_length(cache))
        hidden, cache = self.decoder(x, cache, prepared=prepared, source_mask=source_mask)
        return hidden, (cache, prepared, source_mask)


class TransformerStack(nn.Module):
    """Blocks one upon the other: an encoder, or with ``causal`` a decoder, which with ``cross`` reads an encoder too.

    Weights start normal with deviation 1 / √(inputs), divided where they add to the residual stream by the root of the
    number of such additions, as in GPT-2, whose 0.02 is made for its width: narrow networks learn slowly from it.
    Arguments and errors are those of ``TransformerNetwork``.
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        n_heads: int,
        d_feedforward: int | None = None,
        *,
        dropout: float = 0.0,
        norm: Norm = "pre",
        activation: Activation = "gelu",
        causal: bool = False,
        cross: bool = False,
    ) -> None:
        super().__init__()
        block = partial(TransformerBlock, d_model, n_heads, d_feedforward or 4 * d_model)
        self.blocks = nn.ModuleList(
            block(dropout=dropout, norm=norm, activation=activation, causal=causal, cross=cross)
            for _ in range(n_layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.final_norm: nn.Module = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self._initialise(n_additions=(3 if cross else 2) * n_layers)

    def _initialise(self, n_additions: int) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                adds = name.endswith(("attention.output", "contract"))
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features * (n_additions if adds else 1)))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def __iter__(self) -> Iterator[TransformerBlock]:
        return iter(cast("list[TransformerBlock]", self.blocks))

    def empty_cache(self, n: int) -> tuple[KeyValue, ...]:
        """For each layer keys and values of no steps (n, H, 0, d_head)."""
        return tuple(block.attention.empty_cache(n) for block in self)

    def prepare(self, source: Tensor, mask: Tensor) -> tuple[KeyValue, ...]:
        """For each layer keys and values of an encoded source (B, S, d) for cross-attention."""
        return tuple(block.cross_attention.prepare(source, mask) for block in self)

    def forward(
        self,
        x: Tensor,
        cache: tuple[KeyValue, ...] | None = None,
        *,
        mask: Tensor | None = None,
        prepared: tuple[KeyValue, ...] | None = None,
        source_mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KeyValue, ...]]:
        """Hidden states (B, T, d) and the cache with these steps in it.

        Args:
            x: inputs with their positions (B, T, d).
            cache: keys and values of earlier steps, for each layer.
            mask: (B, T), True where ``x`` is real; for an encoder (a causal stack never sees padding on the right).
            prepared: for each layer keys and values of the source.
            source_mask: (B, S), True where the source is real.
        """
        x, grown = self.dropout(x), []
        for i, block in enumerate(self):
            past = None if cache is None else cache[i]
            x, past = block(x, past, mask, None if prepared is None else prepared[i], source_mask)
            grown.append(past)
        return self.final_norm(x), tuple(grown)


class TransformerBlock(nn.Module):
    """Self-attention, attention to a source (``cross``) and a feed-forward, each in a residual of its own."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_feedforward: int,
        *,
        dropout: float,
        norm: Norm,
        activation: Activation,
        causal: bool,
        cross: bool,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.attention_residual = Residual(d_model, norm, dropout)
        if cross:
            self.cross_attention = MultiHeadAttention(d_model, n_heads)
            self.cross_residual = Residual(d_model, norm, dropout)
        self.feedforward = FeedForward(d_model, d_feedforward, activation)
        self.feedforward_residual = Residual(d_model, norm, dropout)

    def forward(
        self,
        x: Tensor,
        past: KeyValue | None,
        mask: Tensor | None,
        prepared: KeyValue | None,
        source_mask: Tensor | None,
    ) -> tuple[Tensor, KeyValue]:
        """See ``TransformerStack.forward``; the arguments are those of one layer."""
        inner = self.attention_residual.enter(x)
        key, value = extend(past, self.attention.prepare(inner, mask))
        x = self.attention_residual.leave(x, self.attention(inner, key, value, mask, causal=self.causal)[0])
        if prepared is not None:
            inner = self.cross_residual.enter(x)
            x = self.cross_residual.leave(x, self.cross_attention(inner, *prepared, source_mask)[0])
        inner = self.feedforward_residual.enter(x)
        return self.feedforward_residual.leave(x, self.feedforward(inner)), (key, value)


class FeedForward(nn.Module):
    """``W' σ(W x + b) + b'``."""

    def __init__(self, d_model: int, d_feedforward: int, activation: Activation) -> None:
        super().__init__()
        if activation not in get_args(Activation):
            raise ValueError(f'activation is {activation!r}; pass "relu" or "gelu"')
        self.expand = nn.Linear(d_model, d_feedforward)
        self.activation = nn.ReLU() if activation == "relu" else nn.GELU()
        self.contract = nn.Linear(d_feedforward, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d) -> (B, T, d), step by step."""
        return self.contract(self.activation(self.expand(x)))


class Residual(nn.Module):
    """``x + f(LayerNorm(x))`` (pre) or ``LayerNorm(x + f(x))`` (post): ``leave(x, f(enter(x)))``."""

    def __init__(self, d_model: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        if norm not in get_args(Norm):
            raise ValueError(f'norm is {norm!r}; pass "pre" or "post"')
        self.first = norm == "pre"
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What ``f`` reads."""
        return self.norm(x) if self.first else x

    def leave(self, x: Tensor, added: Tensor) -> Tensor:
        """The sum, normalised if that comes last."""
        total = x + self.dropout(added)
        return total if self.first else self.norm(total)


def extend(past: KeyValue | None, new: KeyValue) -> KeyValue:
    """Keys and values of earlier steps followed by new ones; without earlier steps, nothing is copied."""
    if past is None or past[0].shape[2] == 0:
        return new
    return torch.cat([past[0], new[0]], 2), torch.cat([past[1], new[1]], 2)


def cached_length(cache: tuple[KeyValue, ...]) -> int:
    """How many steps a cache holds."""
    return cache[0][0].shape[2]

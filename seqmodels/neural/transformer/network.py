"""Transformers: ``x + attention(x)``, ``x + feedforward(x)``, layer upon layer; the memory is the keys and values of the past."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn

from seqmodels.neural.network import Memory, Network, Source, Stepper
from seqmodels.neural.ops.dropout import dropout
from seqmodels.neural.transformer.cache import Cache, Extension, Fill, KeyValue, extend
from seqmodels.neural.transformer.feedforward import FeedForward
from seqmodels.neural.transformer.gathered import Heads, Layer, norm_of_rows
from seqmodels.neural.transformer.multihead import CrossAttention, SelfAttention
from seqmodels.neural.transformer.norms import Residual, make_norm
from seqmodels.neural.transformer.options import TransformerOptions
from seqmodels.neural.transformer.positions import make_positions
from seqmodels.neural.transformer.previous import PreviousInputs
from seqmodels.neural.transformer.reading import Reading
from seqmodels.neural.transformer.relative import Rotary, make_score_bias
from seqmodels.neural.transformer.sight import Outlook, Sight, explicit_pays, padding_sight
from seqmodels.neural.transformer.stepper import TransformerStepper, can_step, heads_of


class TransformerNetwork(Network):
    """A causal Transformer without an encoder (Vaswani et al., 2017; Radford et al., 2019).

    Inputs should have entries of order one, as have the sinusoids they are added to.

    Args:
        options: what it is made of.
        previous: how many inputs before a step are mixed into its own, see ``PreviousInputs``.

    Its memory is the decoder's cache, and the last ``previous`` inputs.

    >>> import torch
    >>> network = TransformerNetwork(TransformerOptions(d_model=8, n_heads=2, positions="rotary"))
    >>> hidden, (cache, _) = network(torch.zeros(3, 5, 8), network.start(3))
    >>> hidden.shape, cached_length(cache)
    (torch.Size([3, 5, 8]), 5)
    """

    def __init__(self, options: TransformerOptions, *, previous: int = 0) -> None:
        super().__init__()
        self.d_model = options.d_model
        self.previous = PreviousInputs(options.d_model, previous)
        self.positions = make_positions(options.positions, options.d_model, options.max_length)
        self.decoder = TransformerStack(options, causal=True)

    def start(self, n: int, source: Source | None = None) -> Memory:
        """A cache of no steps, and nothing before them."""
        return self.decoder.empty_cache(n), self.previous.start(n)

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        cache, recent = memory
        x, recent = self.previous(inputs, recent)
        hidden, cache = self.decoder(self.positions(x, cached_length(cache)), cache)
        return hidden, (cache, recent)

    def stepper(self, inputs: Tensor) -> Stepper | None:
        """See ``Network``."""
        options, decoder = self.decoder.options, self.decoder
        if not can_step(options):
            return None
        layers = tuple(block.gathered(heads_of(options)) for block in decoder)
        final_norm, reading = norm_of_rows(decoder.final_norm, inputs), Reading(inputs, self.previous)
        return TransformerStepper(options, layers, final_norm, self.positions, decoder.rotary, reading)


class TransformerSeq2SeqNetwork(Network):
    """A Transformer with an encoder, which sees its source both ways, and a causal decoder (Vaswani et al., 2017).

    Args:
        options: of encoder and decoder alike; each has ``n_layers``.
        previous: how many inputs before a step are mixed into its own, in source and target, see ``PreviousInputs``.
    """

    reads_source = True

    def __init__(self, options: TransformerOptions, *, previous: int = 0) -> None:
        super().__init__()
        self.d_model = options.d_model
        self.source_previous = PreviousInputs(options.d_model, previous)
        self.previous = PreviousInputs(options.d_model, previous)
        self.source_positions = make_positions(options.positions, options.d_model, options.max_length)
        self.positions = make_positions(options.positions, options.d_model, options.max_length)
        self.encoder = TransformerStack(options, causal=False)
        self.decoder = TransformerStack(options, causal=True, cross=True)

    def start(self, n: int, source: Source | None = None) -> Memory:
        """The decoder's empty cache, no last inputs, the source's keys and values for each layer, and the source's mask."""
        assert source is not None, "an encoder needs a source"
        values = source.values.masked_fill(~source.mask[..., None], 0.0)
        values, _ = self.source_previous(values, self.source_previous.start(n))
        encoded, _ = self.encoder(self.source_positions(values), mask=source.mask)
        prepared = self.decoder.prepare(encoded, source.mask)
        return self.decoder.empty_cache(n), self.previous.start(n), prepared, source.mask

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        cache, recent, prepared, source_mask = memory
        x, recent = self.previous(inputs, recent)
        x = self.positions(x, cached_length(cache))
        hidden, cache = self.decoder(x, cache, prepared=prepared, source_mask=source_mask)
        return hidden, (cache, recent, prepared, source_mask)

    def attention_weights(self, inputs: Tensor, memory: Memory, layer: int = -1) -> Tensor:
        """How much step t looks at step s of the source (B, H, T, S), in each head of a layer of the decoder."""
        cache, recent, prepared, source_mask = memory
        x = self.positions(self.previous(inputs, recent)[0], cached_length(cache))
        asked: list[tuple[Tensor, Sight | None]] = []
        self.decoder(x, cache, prepared=prepared, source_mask=source_mask, asked=asked)
        query, sight = asked[layer]
        attention = list(self.decoder)[layer].cross_attention
        weights: Tensor = attention(query, *prepared[layer], sight, need_weights=True)[
            1
        ]  # once more: fused ones hold none
        return weights


class TransformerStack(nn.Module):
    """Blocks one upon the other: an encoder, or with ``causal`` a decoder, which with ``cross`` reads an encoder too.

    Weights start normal with deviation 1 / √(inputs), divided where they add to the residual stream by the root of the
    number of such additions, as in GPT-2, whose 0.02 is made for its width: narrow networks learn slowly from it.

    Args:
        options: what it is made of; positions only as far as they act in attention.
        causal: no step sees a later one.
        cross: every block attends to a source too.
    """

    def __init__(self, options: TransformerOptions, *, causal: bool = False, cross: bool = False) -> None:
        super().__init__()
        self.options = options
        self.outlook = Outlook(causal, options.window)
        self.rotary = Rotary(options.d_head, options.max_length) if options.positions == "rotary" else None
        self.score_bias = make_score_bias(options.positions, options.n_heads, causal=causal)
        self.blocks = nn.ModuleList(TransformerBlock(options, cross=cross) for _ in range(options.n_layers))
        self.final_norm = nn.Identity() if options.norm == "post" else norm_of(options)
        self._initialise(n_additions=(3 if cross else 2) * options.n_layers)

    def _initialise(self, n_additions: int) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                adds = name.endswith(("attention.output", "contract"))
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features * (n_additions if adds else 1)))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if self.options.zero_init:
            for block in self:
                block.start_at_zero()

    def __iter__(self) -> Iterator[TransformerBlock]:
        return iter(cast("list[TransformerBlock]", self.blocks))

    def empty_cache(self, n: int) -> Cache:
        """Of no steps, for a batch of ``n``."""
        nothing = next(self.parameters()).new_zeros(n, self.options.key_heads, 0, self.options.d_head)
        return tuple((nothing, nothing) for _ in self), 0, Fill(0)

    def prepare(self, source: Tensor, mask: Tensor) -> tuple[KeyValue, ...]:
        """For each layer keys and values of an encoded source (B, S, d) for cross-attention."""
        return tuple(block.cross_attention.prepare(source, mask) for block in self)

    def forward(
        self,
        x: Tensor,
        cache: Cache | None = None,
        *,
        mask: Tensor | None = None,
        prepared: tuple[KeyValue, ...] | None = None,
        source_mask: Tensor | None = None,
        n_blocks: int | None = None,
        asked: list[tuple[Tensor, Sight | None]] | None = None,
    ) -> tuple[Tensor, Cache]:
        """Hidden states (B, T, d) and the cache with these steps in it.

        Args:
            x: inputs with their positions (B, T, d).
            cache: keys and values of earlier steps.
            mask: (B, T), True where ``x`` is real; for an encoder (a causal stack never sees padding on the right).
            prepared: for each layer keys and values of the source.
            source_mask: (B, S), True where the source is real.
            n_blocks: pass through the first of them only, and no final norm.
            asked: to which each block adds what it asks the source (B, T, d), and what that may see.
        """
        explicit = explicit_pays(x, self.options.attention_dropout if self.training else 0.0)
        if mask is not None:  # a weight of zero times NaN is NaN
            x = x.masked_fill(~mask[..., None], 0.0)
        extension, fill = extend(cache, x.shape[1], self.options.max_length)
        turn = None if self.rotary is None else self.rotary(x, extension.length)
        sight = self.outlook.sight(x, extension.length, mask, self.score_bias, turn, explicit=explicit)
        source_sight = None if source_mask is None else padding_sight(source_mask, x, explicit=explicit)
        x, buffers = dropout(x, self.options.dropout, self.training), []
        for i, block in enumerate(self):
            if i == n_blocks:
                break
            past = None if cache is None else cache[0][i]
            x, grown = block(x, past, extension, sight, None if prepared is None else prepared[i], source_sight, asked)
            buffers.append(grown)
        return x if n_blocks is not None else self.final_norm(x), (tuple(buffers), extension.total, fill)


class TransformerBlock(nn.Module):
    """Self-attention, attention to a source (``cross``) and a feed-forward, each in a residual of its own."""

    def __init__(self, options: TransformerOptions, *, cross: bool) -> None:
        super().__init__()
        self.attention = SelfAttention(options)
        self.attention_residual = _residual(options)
        if cross:
            self.cross_attention = CrossAttention(options)
            self.cross_residual = _residual(options)
        self.feedforward = FeedForward(options.d_model, options.width, options.activation, bias=options.bias)
        self.feedforward_residual = _residual(options)

    def forward(
        self,
        x: Tensor,
        past: KeyValue | None,
        extension: Extension,
        sight: Sight,
        prepared: KeyValue | None,
        source_sight: Sight | None,
        asked: list[tuple[Tensor, Sight | None]] | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """See ``TransformerStack.forward``; the arguments are those of one layer."""
        added, buffers = self.attention(self.attention_residual.enter(x), past, extension, sight)
        x = self.attention_residual.leave(x, added)
        if prepared is not None:
            inner = self.cross_residual.enter(x)
            if asked is not None:
                asked.append((inner, source_sight))
            x = self.cross_residual.leave(x, self.cross_attention(inner, *prepared, source_sight)[0])
        inner = self.feedforward_residual.enter(x)
        return self.feedforward_residual.leave(x, self.feedforward(inner)), buffers

    def gathered(self, heads: Heads) -> Layer:
        """Its weights for single steps, of a block without cross-attention."""
        norms = self.attention_residual.norm, self.feedforward_residual.norm
        return Layer.of(norms[0], self.attention, norms[1], self.feedforward, heads)

    def start_at_zero(self) -> None:
        """Let every sublayer add nothing at first: by its output map, or by the gain of the norm on what it adds."""
        for module in self.children():
            if isinstance(module, Residual) and module.where == "residual":
                nn.init.zeros_(cast(Tensor, module.norm.weight))
            elif not isinstance(module, Residual) and self.feedforward_residual.where != "residual":
                last = module.contract if isinstance(module, FeedForward) else module.output
                nn.init.zeros_(cast(nn.Linear, last).weight)


def cached_length(cache: Cache) -> int:
    """How many steps a cache holds."""
    return cache[1]


def norm_of(options: TransformerOptions) -> nn.Module:
    """A norm of width ``d_model``."""
    affine, epsilon = options.norm_affine, options.norm_epsilon
    return make_norm(options.norm_type, options.d_model, affine=affine, bias=options.bias, epsilon=epsilon)


def _residual(options: TransformerOptions) -> Residual:
    return Residual(options.norm, norm_of(options), options.dropout)

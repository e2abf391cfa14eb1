"""The networks of Transformers, with and without an encoder, from embedded inputs (and source) to hidden states."""

from __future__ import annotations

from torch import Tensor, nn

from seqmodels.neural.network import Network, Source, Stepper
from seqmodels.neural.transformer.array_step import ARRAYS_UP_TO, TransformerArrayStep
from seqmodels.neural.transformer.cache import KeyValue, KVCache, cached_length
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.incremental import StepState, TransformerState, TransformerStepper, can_step
from seqmodels.neural.transformer.positions import make_positions
from seqmodels.neural.transformer.short_convolution import IncrementalConvolution, ShortConvolution
from seqmodels.neural.transformer.stack import TransformerStack
from seqmodels.neural.transformer.static_step import GraphedStepper

# The decoder's cache, the last inputs, each layer's keys and values of the source, and the source's mask.
Seq2SeqState = tuple[KVCache, Tensor, tuple[KeyValue, ...], Tensor]


class TransformerNetwork(Network[TransformerState]):
    """A causal Transformer without an encoder (Vaswani et al., 2017; Radford et al., 2019).

    Its inputs should have entries of order one, like the sinusoids that are added to them. Its state is the key-value
    cache, and the last ``convolution_lags`` inputs.

    Args:
        config: the configuration of the stack of blocks.
        max_length: the longest sequence, if known; learned positions need it.
        convolution_lags: how many earlier inputs a causal convolution adds to each, see ``ShortConvolution``.

    >>> import torch
    >>> network = TransformerNetwork(TransformerConfig(d_model=8, n_heads=2, positions="rotary"))
    >>> hidden, (cache, _) = network(torch.zeros(3, 5, 8), network.start(3))
    >>> hidden.shape, cached_length(cache)
    (torch.Size([3, 5, 8]), 5)
    """

    reads_at_once = True

    def __init__(self, config: TransformerConfig, *, max_length: int | None = None, convolution_lags: int = 0) -> None:
        super().__init__()
        config.check_architecture(max_length)
        self.d_model = config.d_model
        # Random matrices of the inputs before would hide an input itself, above all if most symbols are rare.
        self.previous = ShortConvolution(config.d_model, convolution_lags, zero_init=config.zero_init)
        self.positions = make_positions(config.positions, config.d_model, max_length)
        self.decoder = TransformerStack(config, max_length=max_length, causal=True)

    @property
    def units(self) -> list[nn.Module]:
        return list(self.decoder)

    def start(self, n: int, source: Source | None = None) -> TransformerState:
        """Return the state of n sequences before the first step: an empty cache, and zeros for earlier inputs.

        The cache holds keys and values. ``source`` is ignored.
        """
        return self.decoder.empty_cache(n), self.previous.start(n)

    def forward(self, inputs: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        cache, recent = state
        x, recent = self.previous(inputs, recent)
        hidden, cache = self.decoder(self.positions(x, cached_length(cache)), cache)
        return hidden, (cache, recent)

    def self_attention_weights(self, inputs: Tensor, layer: int) -> Tensor:
        """Return the weights (B, H, T, T) of input t on input s in each of H heads of a layer.

        Args:
            inputs: T embedded inputs that begin B sequences, (B, T, d).
            layer: number of the layer, from 0.
        """
        x = self.previous(inputs, self.previous.start(len(inputs)))[0]
        return self.decoder.self_attention_weights(self.positions(x, 0), layer)

    def stepper(self) -> Stepper[TransformerState, StepState] | None:
        plain = self._plain_stepper()
        if plain is None:
            return None
        if plain.like.device.type == "cuda":
            return GraphedStepper(plain)
        n_weights = sum(weight.numel() for weight in self.decoder.parameters())
        if plain.like.device.type != "cpu" or n_weights > ARRAYS_UP_TO:
            return plain
        plain.array_step = TransformerArrayStep(plain, self.decoder)
        return plain

    def compiled_stepper(self) -> Stepper[TransformerState, StepState] | None:
        plain = self._plain_stepper()
        if plain is None or plain.like.device.type != "cpu":
            return self.stepper()
        from seqmodels.neural.transformer.compiled_step import CompiledStepper  # numba takes a while to load

        return CompiledStepper.from_plain(plain, self.decoder)

    def _plain_stepper(self) -> TransformerStepper | None:
        if not can_step(self.decoder.config):
            return None
        like = next(self.decoder.parameters()).detach()
        return TransformerStepper(self.decoder, self.positions, IncrementalConvolution(self.previous, like))


class TransformerSeq2SeqNetwork(Network[Seq2SeqState]):
    """A Transformer with a bidirectional encoder of the source and a causal decoder (Vaswani et al., 2017).

    Args:
        config: the configuration of the encoder and of the decoder; each has ``n_layers``.
        max_length: the longest sequence, if known; learned positions need it.
        convolution_lags: how many earlier inputs a causal convolution adds to each, in source and target, see
            ``ShortConvolution``.
    """

    reads_source = True
    reads_at_once = True

    def __init__(self, config: TransformerConfig, *, max_length: int | None = None, convolution_lags: int = 0) -> None:
        super().__init__()
        config.check_architecture(max_length)
        self.d_model = config.d_model
        # Random matrices of neighbours hide a step itself, which is what a target is translated from.
        self.source_previous = ShortConvolution(config.d_model, convolution_lags, zero_init=config.zero_init)
        self.previous = ShortConvolution(config.d_model, convolution_lags, zero_init=config.zero_init)
        self.source_positions = make_positions(config.positions, config.d_model, max_length)
        self.positions = make_positions(config.positions, config.d_model, max_length)
        self.encoder = TransformerStack(config, max_length=max_length)
        self.decoder = TransformerStack(config, max_length=max_length, causal=True, cross=True)

    @property
    def units(self) -> list[nn.Module]:
        """The encoder's blocks, whose weights several processes may gather one block at a time.

        The decoder's blocks are not among them, since they read the source before they compute.
        """
        return list(self.encoder)

    def start(self, n: int, source: Source | None = None) -> Seq2SeqState:
        """Return the state of n sequences before the first step, after the encoder has read the source.

        It is an empty key-value cache, zeros for the inputs before the first, each layer's keys and values of the
        source, and the source's mask. ``source`` must not be None.
        """
        assert source is not None, "an encoder needs a source"
        values = source.values.masked_fill(~source.mask[..., None], 0.0)
        values, _ = self.source_previous(values, self.source_previous.start(n))
        encoded, _ = self.encoder(self.source_positions(values), mask=source.mask)
        prepared = self.decoder.prepare(encoded, source.mask)
        return self.decoder.empty_cache(n), self.previous.start(n), prepared, source.mask

    def forward(self, inputs: Tensor, state: Seq2SeqState) -> tuple[Tensor, Seq2SeqState]:
        cache, recent, prepared, source_mask = state
        x, recent = self.previous(inputs, recent)
        x = self.positions(x, cached_length(cache))
        hidden, cache = self.decoder(x, cache, prepared=prepared, source_mask=source_mask)
        return hidden, (cache, recent, prepared, source_mask)

    def attention_weights(self, inputs: Tensor, state: Seq2SeqState, layer: int = -1) -> Tensor:
        """Return the cross-attention weights (B, H, T, S) of T steps on S source steps, in H heads of a layer.

        Args:
            inputs: embedded inputs of the steps of B sequences, (B, T, d).
            state: state before the first of them.
            layer: number of the decoder's layer; a negative one counts from the last.
        """
        cache, recent, prepared, source_mask = state
        x = self.positions(self.previous(inputs, recent)[0], cached_length(cache))
        queries: list[Tensor] = []
        self.decoder(x, cache, prepared=prepared, source_mask=source_mask, cross_queries=queries)
        attention = list(self.decoder)[layer].cross_attention
        mask = self.decoder.source_mask(source_mask, x, cached_length(cache), explicit=True)
        weights: Tensor = attention(queries[layer], *prepared[layer], mask, need_weights=True)[1]
        return weights

"""The Transformer models for users: decoder-only, and encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from seqmodels.common.compiled import is_compiling
from seqmodels.encodings import Encoding
from seqmodels.neural.batches import Windowing
from seqmodels.neural.inspection import self_attention, source_attention
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.transformer.architecture import TransformerArchitecture, TransformerSeq2SeqArchitecture
from seqmodels.neural.transformer.config import TransformerArguments, check_layer_and_head, config_of
from seqmodels.neural.transformer.layers import Activation
from seqmodels.neural.transformer.network import Seq2SeqState, TransformerNetwork, TransformerSeq2SeqNetwork
from seqmodels.neural.transformer.plain_attention import PlainAttentionNetwork
from seqmodels.neural.transformer.positions import PositionKind
from seqmodels.training import AdamW, Muon


@dataclass(kw_only=True, eq=False, repr=False)
class Transformer(TransformerArguments, NeuralModel):
    """A causal (decoder-only) Transformer (Vaswani et al. 2017; Radford et al. 2018).

    Args:
        d_model: width of inputs and of hidden states.
        n_layers: number of blocks of attention and feed-forward.
        n_heads: number of heads of attention, which must divide ``d_model``. ``"auto"``: the largest divisor whose
            heads have a width of at least 32.
        d_feedforward: width of the feed-forward's hidden layer; None: ``4 d_model`` (``8/3 d_model`` under
            ``"swiglu"``).
        norm: place of the norms, ``"pre"``, ``"post"`` or ``"residual"``, as ``TransformerArguments`` explains.
        activation: activation of the feed-forward: ``"gelu"``, ``"gelu-tanh"``, ``"relu"``, ``"relu2"`` (its square) or
            ``"swiglu"``.
        positions: how positions are represented: ``"sinusoidal"``, ``"learned"``, ``"binary"``, ``"rotary"``,
            ``"alibi"``, ``"t5"`` or None, as ``TransformerArguments`` explains.
        window: number of steps that each layer looks back, the step itself among them; None: all steps.
        context: number of steps that it sees at once; longer sequences are read in windows.
        stride: number of steps from a window to the next in scoring and generation; None: half the context. The cost of
            a long sequence is proportional to context / stride. With ``stride=context`` windows do not overlap, and the
            first steps of a window have seen little.
        dropout: fraction that is dropped in training from the inputs and from what every sublayer adds; ``"auto"``:
            from 0 to 0.3, by the number of passes over the data (see ``LSTM``).
        convolution_lags: number of earlier steps that a causal convolution adds to each step's embedding (after So et
            al. 2021 and Peng et al. 2023); within the context only.
        architecture: a ``TransformerArchitecture``: the rarer options, such as tied embeddings or the kind of norms.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``. The defaults learned characters fastest on one core
    (``experiments/tuning.py``): convolution of the inputs, rotary embedding instead of sinusoids, a squared ReLU, no
    biases, and layers that add nothing at first.
    """

    dropout: Any = "auto"  # or a float
    lr: float = 3e-3
    activation: Activation = "relu2"
    positions: PositionKind = "rotary"
    convolution_lags: int = 4
    context: int = 128
    stride: int | None = None
    architecture: TransformerArchitecture = field(default_factory=TransformerArchitecture)

    _weight_decay: ClassVar[float] = 0.1
    _carries_state: ClassVar[bool] = False
    _dropout_follows_data: ClassVar[bool] = True
    _renamed: ClassVar[Mapping[str, str]] = {"previous": "convolution_lags"}

    def attention(self, X: Any, *, layer: int = -1, head: int | None = None) -> list[np.ndarray]:
        """Return, for each sequence, the self-attention weights ``(T, T)`` of its T steps on the inputs before them.

        Row t belongs to the prediction of step t. Column s belongs to the input that was read for step s, which is step
        s - 1, or the start for s = 0. Each row sums to one. Weights of later steps are zero, and so are, in a sequence
        longer than the context, weights of steps that the window had not seen. The end of the sequence has no row or
        column.

        Args:
            X: sequences as for ``fit``, without targets.
            layer: the number of the layer; a negative one counts from the last, which is the default.
            head: the number of the head, or None for the mean of all heads.

        Raises:
            ValueError: if there is no such layer or head, or if the model was fitted with ``y``.
        """
        check_layer_and_head(self, layer, head)

        def weigh(network: Network[Any], inputs: Tensor) -> Tensor:
            assert isinstance(network, TransformerNetwork | PlainAttentionNetwork)
            weights = network.self_attention_weights(inputs, layer % self.n_layers)  # (B, H, T, T)
            return weights.mean(1) if head is None else weights[:, head]

        return self_attention(self, X, weigh)

    @property
    def _further_widths(self) -> tuple[int, ...]:
        return (self.d_feedforward or 0, self.context if self.positions == "learned" else 0)

    def _windowing(self) -> Windowing:
        return Windowing(self.context, self.stride)

    def _network(self) -> Network[Any]:
        config = config_of(self, dropout=self.dropout_)
        lengths = {"max_length": self.context, "convolution_lags": self.convolution_lags}
        if not self.architecture.projections:
            return PlainAttentionNetwork(config, scale_scores=self.architecture.scale_scores, **lengths)
        return TransformerNetwork(config, **lengths)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        chosen = self.architecture
        if chosen.projections and not chosen.scale_scores:
            raise ValueError(
                "scale_scores=False needs attention without projections, which learn the scale; pass projections=False "
                "too, or leave scale_scores at True"
            )
        if not chosen.projections and chosen.n_kv_heads is not None:
            raise ValueError(
                f"n_kv_heads is {chosen.n_kv_heads}, but without projections keys are the queries themselves; pass "
                "n_kv_heads=None"
            )

    def _bptt_steps(self) -> int:
        return self.context

    def _compiles_steps(self) -> bool:
        if self.architecture.compile_steps and not is_compiling():
            raise ValueError(
                "compile_steps=True needs numba; install it (pip install numba), or pass compile_steps=False"
            )
        return self.architecture.compile_steps


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerSeq2Seq(TransformerArguments, NeuralModel):
    """A model p(y | x): a Transformer encoder of x, and a decoder of y with cross-attention (Vaswani et al. 2017).

    Fitted without ``y`` it is its decoder alone, with nothing to condition on.

    Args:
        d_model: width of inputs and of hidden states.
        n_layers: number of blocks of the encoder, and as many of the decoder.
        n_heads: number of heads of attention, which must divide ``d_model``. ``"auto"``: the largest divisor whose
            heads have a width of at least 32.
        d_feedforward: width of the feed-forward's hidden layer; None: ``4 d_model`` (``8/3 d_model`` under
            ``"swiglu"``).
        norm: place of the norms, ``"pre"``, ``"post"`` or ``"residual"``, as ``TransformerArguments`` explains.
        activation: activation of the feed-forward: ``"gelu"``, ``"gelu-tanh"``, ``"relu"``, ``"relu2"`` (its square) or
            ``"swiglu"``.
        positions: how positions are represented: ``"sinusoidal"``, ``"learned"``, ``"binary"``, ``"rotary"``,
            ``"alibi"``, ``"t5"`` or None, as ``TransformerArguments`` explains.
        window: number of steps that each layer looks back, the step itself among them, and in the encoder to both
            sides;
            None: all steps.
        dropout: fraction that is dropped in training from the inputs and from what every sublayer adds. ``"auto"`` is 0
            if training makes less than four passes over the pairs, in which little is learned by heart, and 0.1
            otherwise; if ``max_seconds`` is the only limit, passes are estimated from the time of a few batches.
            ``dropout_`` is the fraction that was chosen.
        max_length: length of the longest sequence that learned and binary positions can represent, in encoded steps.
        convolution_lags: number of earlier steps that a causal convolution adds to each step's embedding, in source and
            target. In pairs one step is better than none or many (``experiments/spelling_tuning.py``).
        source_encoding: how sources are read; ``"auto"``: as the targets if both are of one kind, and otherwise as
            ``encoding="auto"`` would.
        architecture: a ``TransformerSeq2SeqArchitecture``: the rarer options, such as tied embeddings.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``. Other than networks of one sequence, it is trained by ``Muon`` by
    default (``experiments/spelling_tuning.py``).
    """

    n_layers: int = 2
    dropout: Any = "auto"  # or a float
    lr: float = 4e-3
    activation: Activation = "relu2"
    positions: PositionKind = "rotary"
    convolution_lags: int = 1
    max_length: int = 1024
    source_encoding: Encoding | Literal["auto"] = "auto"
    architecture: TransformerSeq2SeqArchitecture = field(default_factory=TransformerSeq2SeqArchitecture)

    _optimizer: ClassVar[AdamW | Muon] = Muon(newton_schulz_steps=3)
    _weight_decay: ClassVar[float] = 0.1
    _renamed: ClassVar[Mapping[str, str]] = {"previous": "convolution_lags"}
    _lacked: ClassVar[Mapping[str, Any]] = {"cross_bias": False}  # files of versions that had no ``architecture``
    _has_encoder: ClassVar[bool] = True
    _dropout_follows_data: ClassVar[bool] = True
    _pads_sources: ClassVar[bool] = True

    @property
    def _further_widths(self) -> tuple[int, ...]:
        return (self.d_feedforward or 0, self.max_length if self.positions == "learned" else 0)

    def _windowing(self) -> Windowing:
        return Windowing()

    def _network(self) -> Network[Any]:
        config = config_of(self, dropout=self.dropout_, cross_bias=self.architecture.cross_bias)
        return TransformerSeq2SeqNetwork(config, max_length=self.max_length, convolution_lags=self.convolution_lags)

    def _bptt_steps(self) -> int:
        return self.max_length

    def align(self, X: Any, y: Any, *, layer: int = -1, head: int | None = None) -> list[np.ndarray]:
        """Return, for each pair, the cross-attention weights ``(S_y, S_x)`` of the steps of y on those of x.

        S_y and S_x count steps as the model reads them (bytes for text, for example).

        Args:
            X: sources.
            y: targets.
            layer: the number of the decoder's layer; a negative one counts from the last, which is the default.
            head: the number of the head, or None for the mean of all heads.

        Raises:
            ValueError: if there is no such layer or head, or if the model was fitted without ``y``.
        """
        network = self._evaluation_module().network
        assert isinstance(network, TransformerSeq2SeqNetwork)
        check_layer_and_head(self, layer, head)

        def weigh(inputs: Tensor, state: Seq2SeqState) -> Tensor:
            weights = network.attention_weights(inputs, state, layer)  # (B, H, T, S)
            return weights.mean(1) if head is None else weights[:, head]

        return source_attention(self, X, y, weigh)

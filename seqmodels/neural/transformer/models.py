"""The Transformer models for users: decoder-only, and encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from seqmodels.common.compiled import is_compiling
from seqmodels.neural.batches import Windowing
from seqmodels.neural.inspection import self_attention, source_attention
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.transformer.config import TransformerConfig, check_layer_and_head, config_of
from seqmodels.neural.transformer.layers import Activation
from seqmodels.neural.transformer.network import Seq2SeqState, TransformerNetwork, TransformerSeq2SeqNetwork
from seqmodels.neural.transformer.plain_attention import PlainAttentionNetwork
from seqmodels.neural.transformer.positions import PositionKind


@dataclass(kw_only=True, eq=False, repr=False)
class Transformer(TransformerConfig, NeuralModel):
    """A causal (decoder-only) Transformer (Vaswani et al. 2017; Radford et al. 2018).

    Args:
        context: how many steps it sees at once; longer sequences are read in windows.
        stride: steps from a window to the next in scoring and generation; None: half the context. The cost of a long
            sequence is proportional to context / stride; with ``stride=context`` windows do not overlap, and the first
            steps of a window have seen little.
        dropout: fraction dropped in training, of the inputs and of what every sublayer adds; ``"auto"`` as of ``LSTM``.
        convolution_lags: how many steps before each are mixed into its embedding, by a causal convolution (after So et
            al. 2021 and Peng et al. 2023); within the context only.
        compile_steps: single steps of symbols (``sample``, ``generate``, a stream; up to four sequences, on a CPU) are
            one call of code that numba compiles, of one thread, which makes those of small networks faster and
            changes no figure but for rounding. The first use compiles for some seconds, once on a machine; each
            process loads it for half of one. Norms, positions and windows that the steps do not know are computed as
            without. Scoring is not changed.
        projections: False: a layer is causal self-attention of its inputs x and nothing else, ``y_t = Σ_{s≤t} w_ts
            x_s`` with ``w_ts = softmax_s(x_t · x_s / √d_head)``, as textbooks introduce it: without the maps to
            queries, keys and values, and without norms, feed-forward and sums with the input, whose arguments then mean
            nothing. ``presets.plain_attention`` is one layer of one head of it, without positions.
        scale_scores: False: ``x_t · x_s`` without the division by ``√d_head``, where there are no projections, whose
            weights could undo it.

    The other arguments are those of ``TransformerConfig`` and ``NeuralModel``. The defaults of those listed here again
    learned characters fastest by the second on one core (``experiments/tuning.py``): the previous inputs,
    rotary embedding in place of sinusoids, a squared ReLU, no biases, and layers that add nothing at first.
    """

    dropout: Any = "auto"  # or a float
    convolution_lags: int = 4
    lr: float = 3e-3
    weight_decay: float = 0.1
    activation: Activation = "relu2"
    positions: PositionKind = "rotary"
    bias: bool = False
    zero_init: bool = True
    context: int = 128
    stride: int | None = None
    compile_steps: bool = False
    projections: bool = True
    scale_scores: bool = True

    _carries_state: ClassVar[bool] = False
    _dropout_follows_data: ClassVar[bool] = True
    _renamed: ClassVar[Mapping[str, str]] = {"previous": "convolution_lags"}

    def attention(self, X: Any, *, layer: int = -1, head: int | None = None) -> list[np.ndarray]:
        """Return, for each sequence, the self-attention weights ``(T, T)`` of each encoded step to the steps it read.

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
        config = replace(config_of(self), dropout=self.dropout_)
        lengths = {"max_length": self.context, "convolution_lags": self.convolution_lags}
        if not self.projections:
            return PlainAttentionNetwork(config, scale_scores=self.scale_scores, **lengths)
        return TransformerNetwork(config, **lengths)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if self.projections and not self.scale_scores:
            raise ValueError(
                "scale_scores=False needs attention without projections, which learn the scale; pass projections=False "
                "too, or leave scale_scores at True"
            )
        if not self.projections and self.n_kv_heads is not None:
            raise ValueError(
                f"n_kv_heads is {self.n_kv_heads}, but without projections keys are the queries themselves; pass "
                "n_kv_heads=None"
            )

    def _bptt_steps(self) -> int:
        return self.context

    def _compiles_steps(self) -> bool:
        if self.compile_steps and not is_compiling():
            raise ValueError(
                "compile_steps=True needs numba; install it (pip install numba), or pass compile_steps=False"
            )
        return self.compile_steps


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerSeq2Seq(TransformerConfig, NeuralModel):
    """A Transformer encoder, and a decoder with cross-attention (Vaswani et al. 2017): p(y | x).

    Args:
        max_length: the longest sequence that learned and binary positions can represent.
        convolution_lags: how many steps before each are mixed into its embedding, in source and target, as in
            ``Transformer``.

    Fitted without ``y`` it is its decoder alone, with nothing to condition on. The other arguments are those of
    ``TransformerConfig`` and ``NeuralModel``. The defaults are those of ``Transformer``; of them the previous inputs
    matter most by far in pairs (``experiments/spelling_tuning.py``).
    """

    convolution_lags: int = 4
    n_layers: int = 2
    lr: float = 3e-3
    weight_decay: float = 0.1
    activation: Activation = "relu2"
    positions: PositionKind = "rotary"
    bias: bool = False
    zero_init: bool = True
    max_length: int = 1024

    _renamed: ClassVar[Mapping[str, str]] = {"previous": "convolution_lags"}
    _has_encoder: ClassVar[bool] = True
    _pads_sources: ClassVar[bool] = True

    @property
    def _further_widths(self) -> tuple[int, ...]:
        return (self.d_feedforward or 0, self.max_length if self.positions == "learned" else 0)

    def _windowing(self) -> Windowing:
        return Windowing()

    def _network(self) -> Network[Any]:
        return TransformerSeq2SeqNetwork(
            config_of(self), max_length=self.max_length, convolution_lags=self.convolution_lags
        )

    def _bptt_steps(self) -> int:
        return self.max_length

    def align(self, X: Any, y: Any, *, layer: int = -1, head: int | None = None) -> list[np.ndarray]:
        """Return, for each pair, the cross-attention weights ``(S_y, S_x)`` of each encoded step of y to those in x.

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

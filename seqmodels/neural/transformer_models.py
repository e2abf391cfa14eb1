"""The users' Transformers: decoder only, and encoder-decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seqmodels.neural.feedforward import Activation
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.positions import PositionKind
from seqmodels.neural.transformer import TransformerNetwork, TransformerSeq2SeqNetwork
from seqmodels.neural.transformer_shape import TransformerShape


@dataclass(kw_only=True, eq=False, repr=False)
class Transformer(TransformerShape, NeuralModel):
    """A causal (decoder-only) Transformer (Vaswani et al. 2017; Radford et al. 2018).

    Args:
        context: how many steps it sees at once; longer sequences are read in windows that overlap by half.
        previous: how many steps before each are mixed into its embedding, by a causal convolution (after So et al. 2021 and
            Peng et al. 2023); within the context only.

    The arguments of both Transformers are those of ``TransformerSeq2Seq``, the other ones of ``NeuralModel``. The defaults are
    what learned characters fastest by the second on one core (``experiments/transformer_tuning.py``): the previous inputs,
    turns in place of sinusoids, a squared ReLU, no biases, and layers that add nothing at first.
    """

    context: int = 128
    previous: int = 4
    lr: float = 3e-3
    weight_decay: float = 0.1
    activation: Activation = "relu2"
    positions: PositionKind = "rotary"
    bias: bool = False
    zero_init: bool = True
    _carries: ClassVar[bool] = False

    @property
    def context_(self) -> int | None:
        return self.context

    def _network(self) -> Network:
        return TransformerNetwork(self._options(self.context), previous=self.previous)

    def _chunk(self) -> int:
        return self.context


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerSeq2Seq(TransformerShape, NeuralModel):
    """A Transformer encoder, and a decoder with cross-attention (Vaswani et al. 2017): p(y | x).

    Args:
        n_heads: must divide ``d_model``; ``"auto"``: the largest divisor with heads of at least 32.
        n_kv_heads: heads of keys and values, shared by groups of heads (Ainslie et al. 2023); None: as many as heads.
        d_feedforward: width of the position-wise network; None: 4 d_model (8/3 d_model under ``"swiglu"``).
        norm: ``"pre"`` (x + f(Norm(x))), ``"post"`` (Norm(x + f(x)), Vaswani et al. 2017) or ``"residual"``
            (x + Norm(f(x)), Liu et al. 2022).
        norm_type: ``"layer"`` or ``"rms"`` (Zhang and Sennrich 2019).
        norm_affine: whether norms learn a gain.
        activation: of the position-wise network: ``"gelu"``, ``"gelu-tanh"``, ``"relu"``, ``"relu2"`` (its square, So et al.
            2021) or ``"swiglu"`` (Shazeer 2020).
        positions: ``"sinusoidal"``, ``"learned"`` or ``"binary"`` (digits), added to the inputs; ``"rotary"`` (Su et al. 2021),
            ``"alibi"`` (Press et al. 2022) or ``"t5"`` (Raffel et al. 2020), which see differences only; or None.
        qk_norm: normalise each head's queries and keys (Henry et al. 2020).
        window: how many steps each layer looks back, itself among them (in an encoder: to both sides); None: all.
        bias: whether linear maps and layer norms have one.
        attention_dropout: of attention weights.
        zero_init: start from layers that add nothing.
        max_length: the longest sequence that learned and binary positions can place.

    Fitted without ``y`` it is its decoder alone, given nothing. The other arguments are those of ``NeuralModel``.
    """

    n_layers: int = 2
    max_length: int = 1024
    lr: float = 3e-3

    @property
    def context_(self) -> int | None:
        return None

    def _network(self) -> Network:
        return TransformerSeq2SeqNetwork(self._options(self.max_length))

    def _chunk(self) -> int:
        return self.max_length

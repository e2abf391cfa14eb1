"""The users' Transformers: decoder only, and encoder-decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.transformer import TransformerNetwork, TransformerSeq2SeqNetwork


@dataclass(kw_only=True, eq=False, repr=False)
class _Attending(NeuralModel):
    """The arguments that both Transformers share.

    Args:
        n_heads: must divide ``d_model``; ``"auto"``: the largest divisor with heads of at least 32.
        d_feedforward: width of the position-wise network; None: 4 d_model.
        norm: ``"pre"`` (x + f(LayerNorm(x))) or ``"post"`` (LayerNorm(x + f(x)), Vaswani et al. 2017).
        activation: of the position-wise network, ``"gelu"`` or ``"relu"``.
        positions: ``"sinusoidal"``, ``"learned"`` or None.
    """

    d_model: int = 128
    n_layers: int = 4
    n_heads: int | Literal["auto"] = "auto"
    d_feedforward: int | None = None
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["gelu", "relu"] = "gelu"
    positions: Literal["sinusoidal", "learned"] | None = "sinusoidal"
    lr: float = 3e-3

    def _heads(self) -> int:
        if self.n_heads == "auto":
            return max(h for h in range(1, max(1, self.d_model // 32) + 1) if self.d_model % h == 0)
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads={self.n_heads} does not divide d_model={self.d_model}; change one of them")
        return self.n_heads


@dataclass(kw_only=True, eq=False, repr=False)
class Transformer(_Attending):
    """A causal (decoder-only) Transformer (Vaswani et al. 2017; Radford et al. 2018).

    Args:
        context: how many steps it sees at once; longer sequences are read in windows that overlap by half.
        n_heads, d_feedforward, norm, activation, positions: see ``TransformerSeq2Seq``.

    The other arguments are those of ``NeuralModel``.
    """

    context: int = 128
    _carries: ClassVar[bool] = False

    @property
    def context_(self) -> int | None:
        return self.context

    def _network(self) -> Network:
        return TransformerNetwork(
            self.d_model,
            self.n_layers,
            self._heads(),
            d_feedforward=self.d_feedforward,
            dropout=self.dropout,
            norm=self.norm,
            activation=self.activation,
            positions=self.positions,
            max_length=self.context,
        )

    def _chunk(self) -> int:
        return self.context


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerSeq2Seq(_Attending):
    """A Transformer encoder, and a decoder with cross-attention (Vaswani et al. 2017): p(y | x).

    Args:
        n_heads: must divide ``d_model``; ``"auto"``: the largest number of heads of at least 32.
        d_feedforward: width of the position-wise network; None: 4 d_model.
        norm: ``"pre"`` (x + f(LayerNorm(x))) or ``"post"`` (LayerNorm(x + f(x))).
        activation: of the position-wise network, ``"gelu"`` or ``"relu"``.
        positions: ``"sinusoidal"``, ``"learned"`` or None.
        max_length: the longest sequence that learned positions can place.

    Fitted without ``y`` it is its decoder alone, given nothing. The other arguments are those of ``NeuralModel``.
    """

    n_layers: int = 2
    max_length: int = 1024

    @property
    def context_(self) -> int | None:
        return None

    def _network(self) -> Network:
        return TransformerSeq2SeqNetwork(
            self.d_model,
            self.n_layers,
            self._heads(),
            d_feedforward=self.d_feedforward,
            dropout=self.dropout,
            norm=self.norm,
            activation=self.activation,
            positions=self.positions,
            max_length=self.max_length,
        )

    def _chunk(self) -> int:
        return self.max_length

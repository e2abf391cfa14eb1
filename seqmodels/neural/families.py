"""The users' networks: LSTM encoder-decoder, Transformer, Transformer encoder-decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from seqmodels.neural.batches import Span, assemble
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.recurrent_models import Recurrent
from seqmodels.neural.seq2seq import LSTMSeq2SeqNetwork
from seqmodels.neural.transformer import TransformerNetwork, TransformerSeq2SeqNetwork


@dataclass(kw_only=True, eq=False, repr=False)
class LSTMSeq2Seq(Recurrent):
    """An LSTM encoder and an LSTM decoder that attends to it: p(y | x).

    Args:
        attention: ``"additive"`` (Bahdanau et al. 2015: a feed-forward network over the decoder's previous state and each
            encoder output), ``"multiplicative"`` (dot product over √d; Luong et al. 2015, Vaswani et al. 2017) or
            ``None`` (one fixed context vector; Sutskever et al. 2014, Cho et al. 2014).
        bidirectional: whether the encoder reads both ways.
        summary: what the decoder starts from, and the fixed context vector: ``"last"`` state or ``"mean"`` of the outputs.
        projections: learned linear query, key and value under ``"multiplicative"``.
        bptt: steps back-propagated through at once.

    Fitted without ``y`` it is its decoder alone, given nothing. The other arguments are those of ``NeuralModel``.
    """

    attention: Literal["additive", "multiplicative"] | None = "additive"
    bidirectional: bool = True
    summary: Literal["last", "mean"] = "last"
    projections: bool = True
    bptt: int = 256
    lr: float = 6e-3

    def _network(self) -> Network:
        return LSTMSeq2SeqNetwork(
            self.d_model,
            self.n_layers,
            attention=self.attention,
            bidirectional=self.bidirectional,
            summary=self.summary,
            projections=self.projections,
            dropout=self.dropout,
        )

    def attention_weights(self, X: Any, y: Any) -> list[np.ndarray]:
        """For each pair the ``(S_y, S_x)`` weights, over encoded steps: how much each step of y looked at each of x."""
        if self.attention is None:
            raise ValueError(
                "attention is None, so there are no weights; fit with attention='additive' or 'multiplicative'"
            )
        data = self._scorable(X, y)
        examples = self._setting().examples(data)
        rows, module = self._rows(examples), self._ready()
        network = module.network
        assert isinstance(network, LSTMSeq2SeqNetwork)
        parameter, result = next(module.parameters()), []
        for i, (row, example) in enumerate(zip(rows, examples, strict=True)):
            chunk = assemble(rows, [Span(i, 0, row.n_steps)], 0, parameter.device, parameter.dtype)
            with torch.no_grad():
                memory = module.start(1, chunk.source, chunk.source_mask)
                inputs = module.inputs(chunk.shown, chunk.is_start, chunk.is_target)
                weights = network.attention_weights(inputs, memory)
            result.append(weights[0, : len(example.values)].double().cpu().numpy())
        return result


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

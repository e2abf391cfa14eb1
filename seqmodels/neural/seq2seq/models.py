"""The users' recurrent encoder-decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from seqmodels.neural.batches import Windowing
from seqmodels.neural.inspection import source_attention
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import AttentiveNetwork, Network
from seqmodels.neural.seq2seq.attention import (
    AdditiveAttention,
    Attention,
    GeneralAttention,
    MultiplicativeAttention,
)
from seqmodels.neural.seq2seq.encoder import Summary
from seqmodels.neural.seq2seq.network import LSTMSeq2SeqNetwork, QueryState
from seqmodels.neural.seq2seq.textbook import BahdanauNetwork

AttentionKind = Literal["additive", "multiplicative", "general", "location", None]


@dataclass(kw_only=True, eq=False, repr=False)
class LSTMSeq2Seq(NeuralModel):
    """An LSTM encoder and an LSTM decoder that attends to it: p(y | x).

    Args:
        attention: what scores the steps of the source.

            - ``"additive"``: a feed-forward network over query and encoder output (Bahdanau et al. 2015);
            - ``"multiplicative"``: their dot product over √d (Luong et al. 2015, Vaswani et al. 2017);
            - ``"general"``: a bilinear form ``qᵀ W k`` (Luong et al. 2015);
            - ``"location"``: additive, of a convolution of the previous step's weights too (Chorowski et al. 2015, the
              hybrid form);
            - ``None``: no attention but one fixed context vector (Sutskever et al. 2014, Cho et al. 2014).
        query: the decoder's state that is the query: the ``"previous"``, whose context the decoder reads with its input
            (Bahdanau et al. 2015), or the ``"current"``, whose context goes to the output alone (Luong et al. 2015):
            faster, as no step of attention waits for another.
        n_heads: of ``"multiplicative"``; must divide ``d_model``.
        coverage: scores depend on the sum of the weights of earlier steps (Tu et al. 2016, See et al. 2017); under
            ``"location"`` the convolution is of that sum (Shen et al. 2018).
        bidirectional: whether the encoder reads both ways.
        summary: what the decoder starts from, and the fixed context vector: ``"last"`` state or ``"mean"`` of the
            outputs.
        projections: learned linear query, key and value under ``"multiplicative"``.
        bptt: steps back-propagated through at once.

    On a CPU one layer under ``query="previous"`` without ``"location"`` and coverage trains by a hand-written loop,
    which is faster.

    Fitted without ``y`` it is its decoder alone, with a learned constant for its source. The other arguments are those
    of ``NeuralModel``.
    """

    d_model: int = 256
    attention: AttentionKind = "additive"
    query: QueryState = "previous"
    n_heads: int = 1
    coverage: bool = False
    bidirectional: bool = True
    summary: Summary = "last"
    projections: bool = True
    bptt: int = 256
    lr: float = 6e-3

    _has_encoder: ClassVar[bool] = True
    _pads_sources: ClassVar[bool] = True

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if self.n_heads != 1 and self.attention != "multiplicative":
            raise ValueError(f"n_heads is {self.n_heads}, but attention={self.attention!r} has one; pass n_heads=1")
        if self.coverage and self.attention is None:
            raise ValueError(
                "coverage=True adds up attention weights, but attention is None; pass attention='additive' or another"
            )

    def _windowing(self) -> Windowing:
        return Windowing()

    def _bptt_steps(self) -> int:
        return self.bptt

    def _network(self) -> Network[Any]:
        return LSTMSeq2SeqNetwork(
            self.d_model_,
            self.n_layers,
            attention=self._attention(),
            bidirectional=self.bidirectional,
            summary=self.summary,
            query=self.query,
            dropout=self.dropout,
        )

    def _attention(self) -> Attention | None:
        match self.attention:
            case None:
                return None
            case "additive":
                return AdditiveAttention(self.d_model_, features="coverage" if self.coverage else None)
            case "location":
                return AdditiveAttention(self.d_model_, features="location-coverage" if self.coverage else "location")
            case "multiplicative":
                return MultiplicativeAttention(
                    self.d_model_, n_heads=self.n_heads, projections=self.projections, coverage=self.coverage
                )
            case "general":
                return GeneralAttention(self.d_model_, coverage=self.coverage)
        raise ValueError(
            f"attention is {self.attention!r}; pass one of {', '.join(map(repr, get_args(AttentionKind)))}"
        )

    def align(self, X: Any, y: Any) -> list[np.ndarray]:
        """Return the attention weights of each step of y on the steps of x, ``(S_y, S_x)`` for each pair.

        Steps are encoded ones. With several heads, weights are the mean over heads.

        Raises:
            ValueError: If the model has no attention.
        """
        if self.attention is None:
            raise ValueError("attention is None, so there are no weights; fit with attention='additive' or another")
        network = self._evaluation_module().network
        assert isinstance(network, AttentiveNetwork)
        return source_attention(self, X, y, network.attention_weights)


@dataclass(kw_only=True, eq=False, repr=False)
class EncoderDecoder(NeuralModel):
    """Any network that reads a source, such as ``BahdanauNetwork`` and ``LuongNetwork``: p(y | x).

    Args:
        network: a subclass of ``Network`` with ``reads_source``, or a function, that makes one of ``(d_model, n_layers,
            dropout)``.
        bptt: steps back-propagated through at once.

    Fitted without ``y`` it is its decoder alone, with a learned constant for its source. The other arguments are those
    of ``NeuralModel``. A saved model names its network; ``load`` is told what the name stands for, unless it is one of
    the two.
    """

    d_model: int = 256
    network: Callable[[int, int, float], Network[Any]] = BahdanauNetwork
    bptt: int = 256
    dropout: float = 0.0
    lr: float = 3e-3

    _has_encoder: ClassVar[bool] = True
    _pads_sources: ClassVar[bool] = True

    def _windowing(self) -> Windowing:
        return Windowing()

    def _bptt_steps(self) -> int:
        return self.bptt

    def _network(self) -> Network[Any]:
        network = self.network(self.d_model_, self.n_layers, self.dropout)
        if not network.reads_source:
            raise ValueError(f"{type(network).__name__} reads no source; pass a network with reads_source = True")
        return network

    def align(self, X: Any, y: Any) -> list[np.ndarray]:
        """Return the attention weights of each step of y on the steps of x, ``(S_y, S_x)`` for each pair.

        Steps are encoded ones.

        Raises:
            ValueError: If the network is no ``AttentiveNetwork``.
        """
        network = self._evaluation_module().network
        if not isinstance(network, AttentiveNetwork):
            raise ValueError(f"{type(network).__name__} has no attention to show; subclass AttentiveNetwork")
        return source_attention(self, X, y, network.attention_weights)

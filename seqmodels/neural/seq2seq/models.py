"""The users' recurrent encoder-decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.neural.architecture import Architecture
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
class LSTMSeq2SeqArchitecture(Architecture):
    """The rarer options of an ``LSTMSeq2Seq``: its argument ``architecture``.

    Args:
        coverage: True if attention scores depend on the sum of the attention weights of earlier steps (Tu et al. 2016,
            See et al. 2017); under ``attention="location"`` the convolution is over that sum (Shen et al. 2018).
        summary: what the decoder starts from, and the fixed context vector without attention: the ``"last"`` state of
            the encoder, or the ``"mean"`` of its outputs.
        projections: True if query, key and value have learned linear maps under ``attention="multiplicative"``.
        tie_embeddings, scale_embeddings: True if input embedding and output layer share one matrix, and True to
            multiply tied embeddings by √d_model; for symbols only.
    """

    coverage: bool = False
    summary: Summary = "last"
    projections: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class LSTMSeq2Seq(NeuralModel):
    """A model p(y | x): an LSTM encoder of the source x, and an LSTM decoder of the target y that attends to it.

    Fitted without ``y`` it is its decoder alone, with a learned constant for its source. On a CPU one layer under
    ``query="previous"``, without ``"location"`` and coverage, trains by a hand-written loop, which is faster.

    Args:
        d_model: width of embeddings and of hidden states.
        n_layers: number of layers of the encoder, and as many of the decoder.
        attention: how the steps of the source are scored.

            - ``"additive"``: by a feed-forward network of query and encoder output (Bahdanau et al. 2015);
            - ``"multiplicative"``: by their dot product over √d (Luong et al. 2015, Vaswani et al. 2017);
            - ``"general"``: by a bilinear form ``qᵀ W k`` (Luong et al. 2015);
            - ``"location"``: as ``"additive"``, with a convolution of the previous step's attention weights (Chorowski
              et al. 2015, the hybrid form);
            - ``None``: no attention but one fixed context vector (Sutskever et al. 2014, Cho et al. 2014).
        query: the decoder's state that is the query: the ``"previous"``, whose context the decoder reads with its input
            (Bahdanau et al. 2015), or the ``"current"``, whose context goes to the output alone (Luong et al. 2015).
            The latter is faster, because no step of attention waits for another.
        n_heads: number of heads of ``attention="multiplicative"``, which must divide ``d_model``; 1 for all others.
        bidirectional: True if the encoder reads in both directions.
        dropout: fraction of the features of each layer's output that is dropped in training.
        bptt: number of steps that are back-propagated through at once.
        source_encoding: how sources are read; ``"auto"``: as the targets if both are of one kind, and otherwise as
            ``encoding="auto"`` would.
        architecture: an ``LSTMSeq2SeqArchitecture``: the rarer options, such as coverage.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.
    """

    d_model: int = 256
    attention: AttentionKind = "additive"
    query: QueryState = "previous"
    n_heads: int = 1
    bidirectional: bool = True
    bptt: int = 256
    lr: float = 6e-3
    source_encoding: Encoding | Literal["auto"] = "auto"
    architecture: LSTMSeq2SeqArchitecture = field(default_factory=LSTMSeq2SeqArchitecture)

    _has_encoder: ClassVar[bool] = True
    _pads_sources: ClassVar[bool] = True

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if self.n_heads != 1 and self.attention != "multiplicative":
            raise ValueError(f"n_heads is {self.n_heads}, but attention={self.attention!r} has one; pass n_heads=1")
        if self.architecture.coverage and self.attention is None:
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
            summary=self.architecture.summary,
            query=self.query,
            dropout=self.dropout,
        )

    def _attention(self) -> Attention | None:
        coverage, projections = self.architecture.coverage, self.architecture.projections
        match self.attention:
            case None:
                return None
            case "additive":
                return AdditiveAttention(self.d_model_, features="coverage" if coverage else None)
            case "location":
                return AdditiveAttention(self.d_model_, features="location-coverage" if coverage else "location")
            case "multiplicative":
                return MultiplicativeAttention(
                    self.d_model_, n_heads=self.n_heads, projections=projections, coverage=coverage
                )
            case "general":
                return GeneralAttention(self.d_model_, coverage=coverage)
        raise ValueError(
            f"attention is {self.attention!r}; pass one of {', '.join(map(repr, get_args(AttentionKind)))}"
        )

    def align(self, X: Any, y: Any) -> list[np.ndarray]:
        """Return the attention weights of each step of y on the steps of x, ``(S_y, S_x)`` for each pair.

        S_y and S_x count steps as the model reads them (bytes for text, for example). With several heads, weights are
        the mean over heads.

        Args:
            X: sources.
            y: targets.

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
    """A model p(y | x) of any network that reads a source, such as ``BahdanauNetwork`` and ``LuongNetwork``.

    Fitted without ``y`` it is its decoder alone, with a learned constant for its source. A saved model refers to its
    network by name, so pass any other than these two to ``load``: ``load(path, classes=[MyNetwork])``.

    Args:
        network: a subclass of ``Network`` with ``reads_source = True``, or a function, that makes the network from
            ``(d_model, n_layers, dropout)``.
        d_model: width of embeddings and of hidden states.
        n_layers: number of layers, which is passed to ``network``.
        dropout: fraction that is dropped in training, which is passed to ``network``.
        bptt: number of steps that are back-propagated through at once.
        source_encoding: how sources are read; ``"auto"``: as the targets if both are of one kind, and otherwise as
            ``encoding="auto"`` would.
        architecture: an ``Architecture``: whether embeddings are tied and scaled.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.
    """

    d_model: int = 256
    network: Callable[[int, int, float], Network[Any]] = BahdanauNetwork
    bptt: int = 256
    dropout: float = 0.0
    lr: float = 3e-3
    source_encoding: Encoding | Literal["auto"] = "auto"

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

        S_y and S_x count steps as the model reads them (bytes for text, for example).

        Args:
            X: sources.
            y: targets.

        Raises:
            ValueError: If the network is no ``AttentiveNetwork``, which can return its weights.
        """
        network = self._evaluation_module().network
        if not isinstance(network, AttentiveNetwork):
            raise ValueError(f"{type(network).__name__} has no attention to show; subclass AttentiveNetwork")
        return source_attention(self, X, y, network.attention_weights)

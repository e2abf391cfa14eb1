"""The users' neural taggers, models of ``p(y_1 .. y_T | x_1 .. x_T)`` with one step of y for each step of x.

Targets are symbols (labels), vectors (regression of each frame, as a density), or text with as many encoded steps as
the source. Targets are as long as their source, so no ends are predicted, and ``predict``, ``sample`` and ``n_best``
need no ``length``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.neural.batches import StepRange, Windowing, assemble
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.recurrent.elman import ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.tagging.network import (
    BidirectionalEncoder,
    CausalEncoder,
    SourceEncoder,
    TaggerNetwork,
    TransformerEncoder,
)
from seqmodels.neural.transformer.architecture import TransformerTaggerArchitecture
from seqmodels.neural.transformer.config import TransformerArguments, config_of
from seqmodels.neural.transformer.network import TransformerNetwork

SOURCES_AT_ONCE = 64  # number of sources of similar lengths that are labelled in one batch
CellName = Literal["lstm", "gru", "elman"]
NETWORKS: dict[CellName, type[LSTMNetwork] | type[GRUNetwork] | type[ElmanNetwork]] = {
    "lstm": LSTMNetwork,
    "gru": GRUNetwork,
    "elman": ElmanNetwork,
}


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralTagger(NeuralModel, ABC):
    """A model p(y | x) with one target step for each source step: a network reads the source.

    With ``autoregressive`` a second network also reads the targets before each step. To add one, define ``_encoder``
    and ``_decoder``.

    Args:
        autoregressive: True if ``y_t`` depends on ``y_1 .. y_{t-1}``; if not, targets are independent given the source.
        piece: number of steps that are read at once in training: longer pairs are cut, source and target alike, at
            places that differ from epoch to epoch. Scoring reads whole sources.
        source_encoding: how sources are read; ``"auto"``: as ``encoding="auto"`` would read them.

    Width, layers and dropout are described at ``NeuralModel``; learning rate, batch size and limits of training at
    ``TrainingOptions``; encoding, observation, seed, device and precision at ``SequenceModel``.
    """

    autoregressive: bool = True
    piece: int = 512
    source_encoding: Encoding | Literal["auto"] = "auto"

    _is_tagger: ClassVar[bool] = True
    _has_encoder: ClassVar[bool] = True
    _pads_sources: ClassVar[bool] = True
    _carries_state: ClassVar[bool] = False

    @abstractmethod
    def _encoder(self) -> SourceEncoder:
        """Return the network that reads the source and has a hidden state for each of its steps."""

    @abstractmethod
    def _decoder(self) -> Network[Any]:
        """Return the one-layer network that reads the targets before each step, if the tagger is autoregressive."""

    def _windowing(self) -> Windowing:
        return Windowing()

    def _bptt_steps(self) -> int:
        return self.piece

    def _network(self) -> Network[Any]:
        encoder = self._encoder()  # drawn before the decoder, because figures depend on the order
        decoder = self._decoder() if self.autoregressive else None
        if self.architecture.tie_embeddings and decoder is None:
            raise ValueError(
                "autoregressive=False reads no targets, so there is no table of embeddings to tie; pass "
                "tie_embeddings=False"
            )
        return TaggerNetwork(encoder, decoder)

    def _most_probable_targets(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """Return the most probable target of each source, symbols ``(T,)``, or None if the tagger is autoregressive.

        It is found step by step, because steps are independent given the source.

        Args:
            sources: encoded sources.
        """
        if self.autoregressive:
            return None
        present = [source for source in sources if source is not None]
        order = sorted(range(len(present)), key=lambda i: len(present[i]))
        batches = [order[k : k + SOURCES_AT_ONCE] for k in range(0, len(order), SOURCES_AT_ONCE)]
        targets = [target for batch in batches for target in self._most_probable_of([present[i] for i in batch])]
        return [targets[i] for i in np.argsort(order)]

    @torch.no_grad()
    def _most_probable_of(self, sources: list[np.ndarray]) -> list[np.ndarray]:
        module, lengths = self._evaluation_module(), [len(source) for source in sources]
        rows = self._rows([Example(np.zeros(n, dtype=np.int64), x) for n, x in zip(lengths, sources, strict=True)])
        parameter, ranges = next(module.parameters()), [StepRange(i, 0, n) for i, n in enumerate(lengths)]
        batch = assemble(rows, ranges, 0, parameter.device, parameter.dtype)
        state = module.start(len(rows), batch.source, batch.source_mask)
        outputs, _ = module(batch.inputs, batch.is_start, batch.is_after_source, state)
        targets = self.observation_.log_probs(outputs).argmax(-1).cpu().numpy()  # (B, T)
        return [row[:n] for row, n in zip(targets, lengths, strict=True)]


@dataclass(kw_only=True, eq=False, repr=False)
class LSTMTagger(NeuralTagger):
    """A tagger p(y | x) whose source is read by a recurrent network (Graves and Schmidhuber 2005).

    A tagger predicts one step of y for each step of x. With ``autoregressive`` a second network of one layer reads the
    target before each step, together with the source's state.

    Args:
        bidirectional: True if ``y_t`` depends on all of x; if not, on ``x_1 .. x_t`` only.
        cell: ``"lstm"``, ``"gru"`` or ``"elman"``.
        d_model: width of embeddings and of hidden states.
        n_layers: number of layers of the network that reads the source.
        dropout: fraction of the features of each layer's output that is dropped in training.
        autoregressive: True if ``y_t`` depends on ``y_1 .. y_{t-1}`` too; if not, targets are independent given x.
        piece: number of steps that are read at once in training; longer pairs are cut. Scoring reads whole sources.
        source_encoding: how sources are read; ``"auto"``: as ``encoding="auto"`` would read them.
        architecture: an ``Architecture``: whether embeddings are tied and scaled.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.

    >>> import numpy as np
    >>> x = [np.array([0, 1, 1, 0]), np.array([1, 0])] * 20
    >>> model = LSTMTagger(d_model=8, max_steps=60, lr=3e-2).fit(x, [1 - each for each in x])
    >>> [labels.tolist() for labels in model.predict(x[:2])]
    [[1, 0, 0, 1], [0, 1]]
    """

    bidirectional: bool = True
    cell: CellName = "lstm"
    d_model: int = 128
    lr: float = 6e-3

    def _encoder(self) -> SourceEncoder:
        if self.bidirectional:
            return BidirectionalEncoder(self._decoder, self.n_layers)
        return CausalEncoder(self._layers(self.n_layers))

    def _decoder(self) -> Network[Any]:
        return self._layers(1)

    def _layers(self, n_layers: int) -> Network[Any]:
        if self.cell not in NETWORKS:
            raise ValueError(f"cell is {self.cell!r}; pass one of {', '.join(map(repr, NETWORKS))}")
        return NETWORKS[self.cell](self.d_model_, n_layers, dropout=self.dropout)


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerTagger(TransformerArguments, NeuralTagger):
    """A tagger p(y | x) whose source is read by a Transformer, all of it or its past alone (Vaswani et al. 2017).

    A tagger predicts one step of y for each step of x. With ``autoregressive`` one more causal layer reads the target
    before each step, together with the source's state.

    Args:
        causal: True if ``y_t`` depends on ``x_1 .. x_t`` only; if not, on all of x.
        max_length: length of the longest sequence that learned and binary positions can represent.
        d_model: width of embeddings and of hidden states.
        n_layers: number of blocks of the Transformer that reads the source.
        n_heads: number of heads of attention, which must divide ``d_model``. ``"auto"``: the largest divisor whose
            heads have a width of at least 32.
        dropout: fraction that is dropped in training from the inputs and from what every sublayer adds.
        autoregressive: True if ``y_t`` depends on ``y_1 .. y_{t-1}`` too; if not, targets are independent given x.
        piece: number of steps that are read at once in training; longer pairs are cut. Scoring reads whole sources.
        source_encoding: how sources are read; ``"auto"``: as ``encoding="auto"`` would read them.
        architecture: a ``TransformerTaggerArchitecture``: the rarer options, such as biases or the kind of norms.

    Feed-forward, norms, activation, positions and attention window are described at ``TransformerArguments``; learning
    rate, batch size and limits of training at ``TrainingOptions``; encoding, observation, seed, device and precision at
    ``SequenceModel``.
    """

    causal: bool = False
    n_layers: int = 2
    max_length: int = 1024
    lr: float = 3e-3
    architecture: TransformerTaggerArchitecture = field(default_factory=TransformerTaggerArchitecture)

    def _encoder(self) -> SourceEncoder:
        return TransformerEncoder(config_of(self), max_length=self.max_length, causal=self.causal)

    def _decoder(self) -> Network[Any]:
        return TransformerNetwork(config_of(self, n_layers=1), max_length=self.max_length)

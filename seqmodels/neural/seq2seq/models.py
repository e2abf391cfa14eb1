"""The users' recurrent encoder-decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from seqmodels.neural.batches import Span, assemble
from seqmodels.neural.network import Network
from seqmodels.neural.recurrent.models import Recurrent
from seqmodels.neural.seq2seq.network import LSTMSeq2SeqNetwork


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

    _has_encoder: ClassVar[bool] = True

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

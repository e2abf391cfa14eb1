"""The network of an encoder-decoder: ``h_t = LSTM([x_t, c_t], h_{t-1})``, with a context ``c_t`` of the source."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.network import AttentiveNetwork, Source
from seqmodels.neural.ops.dropout import dropout as apply_dropout
from seqmodels.neural.recurrent.lstm import lstm, open_forget_gates
from seqmodels.neural.recurrent.stack import dropout_between, layers_first
from seqmodels.neural.seq2seq.attention import Attention
from seqmodels.neural.seq2seq.decoder_loop import AttendedSource, LoopWeights, QueryMap, attentive_lstm
from seqmodels.neural.seq2seq.encoder import LSTMEncoder, Summary

QueryState = Literal["previous", "current"]
# The decoder's h and c (B, n_layers, d), earlier attention weights (None if scores do not depend on them), and
# the source as keys, values and mask.
AttendingState = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor]
# The state without attention: h and c, and the summary of the source (B, d).
SummaryState = tuple[Tensor, Tensor, Tensor]
# States (B, T, d), contexts (B, T, d), weights (B, T, S), and the state after the last step.
Decoded = tuple[Tensor, Tensor, Tensor, AttendingState]


class LSTMSeq2SeqNetwork(AttentiveNetwork[AttendingState | SummaryState]):
    """An LSTM encoder and an LSTM decoder, with attention (Bahdanau et al., 2015) or without (Sutskever et al., 2014).

    The query is the decoder's previous state, ``c_t = attention(h_{t-1}, source)``, ``h_t = LSTM([x_t, c_t],
    h_{t-1})``; or its current state, ``h_t = LSTM(x_t, h_{t-1})``, ``c_t = attention(h_t, source)``, whose context is
    not fed back (Luong et al., 2015). The output is ``h_t + W [h_t, c_t] + b``. Without attention, ``c_t`` is the
    summary of the source, the same at every step (Cho et al., 2014). The decoder starts from a learned linear map of
    the summary.

    Args:
        d_model: width of inputs, states and outputs; the encoder has the same width in either direction.
        n_layers: number of layers of the encoder, and of the decoder.
        attention: attention of width ``d_model``, or None.
        bidirectional: True if the encoder reads in both directions.
        summary: summary of the source: the ``"last"`` state in each direction, or the ``"mean"`` over its steps.
        query: decoder state that is the query, the ``"previous"`` or the ``"current"``.
        dropout: fraction of the outputs of every layer, and of the network, that is dropped in training. States that
            are passed from step to step are not dropped.

    Raises:
        ValueError: If ``query`` or ``summary`` is unknown.
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int = 1,
        *,
        attention: Attention | None,
        bidirectional: bool = True,
        summary: Summary = "last",
        query: QueryState = "previous",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if query not in get_args(QueryState):
            raise ValueError(f'query is {query!r}; pass "previous" or "current"')
        self.d_model = d_model
        self.n_layers = n_layers
        self.feeds_context = attention is None or query == "previous"  # True if the decoder reads the context
        self.encoder = LSTMEncoder(d_model, n_layers, bidirectional=bidirectional, summary=summary, dropout=dropout)
        self.bridge = nn.Linear(d_model, 2 * n_layers * d_model)
        self.attention = attention
        width = 2 * d_model if self.feeds_context else d_model
        self.decoder = nn.LSTM(width, d_model, n_layers, batch_first=True, dropout=dropout_between(dropout, n_layers))
        self.readout = nn.Linear(2 * d_model, d_model)
        self.dropout = dropout
        open_forget_gates(self.decoder)

    def start(self, n: int, source: Source | None = None) -> AttendingState | SummaryState:
        """Return the decoder's state before the first step, after the encoder has read the source.

        Args:
            n: number of sequences.
            source: the embedded source, which must not be None.

        Returns:
            The state ``(h, c, earlier, key, value, mask)``, where ``earlier`` are the attention weights of earlier
            steps, and ``key``, ``value`` and ``mask`` belong to the source; without attention ``(h, c, summary)``.
        """
        assert source is not None, "an encoder needs a source"
        states, summary = self.encoder(source.values, source.mask)
        bridged = self.bridge(summary).to(source.values.dtype)
        h, c = bridged.unflatten(-1, (2, self.n_layers, self.d_model)).unbind(1)
        if self.attention is None:
            return torch.tanh(h), c, summary
        key, value = self.attention.prepare(states, source.mask)
        return torch.tanh(h), c, self.attention.no_weights(key), key, value, source.mask

    def forward(
        self, inputs: Tensor, state: AttendingState | SummaryState
    ) -> tuple[Tensor, AttendingState | SummaryState]:
        if self.attention is None:
            states, contexts, state = self._decode_from_summary(inputs, state)
        else:
            states, contexts, _, state = self._decode_with_attention(inputs, state, self.attention)
        # States bypass the readout, because with a squashed readout text stayed at unigram frequencies for long.
        hidden = states + self.readout(torch.cat([states, contexts], -1))
        return apply_dropout(hidden, self.dropout, self.training), state

    def attention_weights(self, inputs: Tensor, state: AttendingState | SummaryState) -> Tensor:
        """Return the attention weight of step t on step s of the source, ``(B, T, S)``, the mean over heads.

        Args:
            inputs: embedded inputs of T steps of B sequences, ``(B, T, d_model)``.
            state: state before the first of them.

        Raises:
            ValueError: If there is no attention.
        """
        if self.attention is None:
            raise ValueError('attention=None has no weights; pass attention="additive" or another')
        return self._decode_with_attention(inputs, state, self.attention)[2]

    def _decode_from_summary(
        self, inputs: Tensor, state: AttendingState | SummaryState
    ) -> tuple[Tensor, Tensor, SummaryState]:
        assert len(state) == 3, "without attention a state has a summary"
        h, c, summary = state
        context = summary[:, None, :].expand(-1, inputs.shape[1], -1)  # (B, T, d)
        states, (h, c) = lstm(self.decoder, torch.cat([inputs, context], -1), (layers_first(h), layers_first(c)))
        return states, context, (layers_first(h), layers_first(c), summary)

    def _decode_with_attention(
        self, inputs: Tensor, state: AttendingState | SummaryState, attention: Attention
    ) -> Decoded:
        assert len(state) == 6, "with attention a state has the source's keys and values"
        if not self.feeds_context:
            return self._decode_then_attend(inputs, state, attention)
        loop = attention.for_loop(*state[3:]) if self.n_layers == 1 else None
        if loop is None:
            return self._decode_step_by_step(inputs, state, attention)
        return self._decode_in_loop(inputs, state, *loop)

    def _decode_then_attend(self, inputs: Tensor, state: AttendingState, attention: Attention) -> Decoded:
        h, c, earlier, key, value, mask = state
        states, (h, c) = lstm(self.decoder, inputs, (layers_first(h), layers_first(c)))
        contexts, weights = [], []
        for query in states.split(states.shape[1] if earlier is None else 1, 1):
            context, weight = attention(query, key, value, mask, earlier)
            earlier = attention.add_weights(earlier, weight[:, -1])
            contexts.append(context)
            weights.append(weight)
        new_state = layers_first(h), layers_first(c), earlier, key, value, mask
        return states, torch.cat(contexts, 1), torch.cat(weights, 1), new_state

    def _decode_step_by_step(self, inputs: Tensor, state: AttendingState, attention: Attention) -> Decoded:
        h, c, earlier, key, value, mask = state
        h, c = layers_first(h), layers_first(c)
        states, contexts, weights = [], [], []
        for step in inputs.split(1, 1):  # (B, 1, d)
            context, weight = attention(h[-1][:, None, :], key, value, mask, earlier)
            earlier = attention.add_weights(earlier, weight[:, 0])
            hidden, (h, c) = lstm(self.decoder, torch.cat([step, context], -1), (h, c))
            states.append(hidden)
            contexts.append(context)
            weights.append(weight)
        new_state = layers_first(h), layers_first(c), earlier, key, value, mask
        return torch.cat(states, 1), torch.cat(contexts, 1), torch.cat(weights, 1), new_state

    def _decode_in_loop(
        self, inputs: Tensor, state: AttendingState, query: QueryMap, source: AttendedSource
    ) -> Decoded:
        """Run a decoder of one layer whose previous state is the query, by the hand-written loop ``attentive_lstm``.

        The results are those of ``_decode_step_by_step``: states and contexts, ``(B, T, d)``, attention weights,
        ``(B, T, S)``, and the state after the last step.

        Args:
            inputs: embedded inputs, ``(B, T, d)``.
            state: state before the first step.
            query: map from decoder states to queries.
            source: keys and values that are attended to.
        """
        h, c, earlier, key, value, mask = state
        u, v, b, b_recurrent = self.decoder.all_weights[0]
        of_inputs, of_context = u.split(self.d_model, 1)
        projected = F.linear(inputs.transpose(0, 1), of_inputs, b + b_recurrent)  # (T, B, 4d)
        weights = LoopWeights.with_query(v, of_context, query)
        states, contexts, attention, cell = attentive_lstm(projected, h[:, 0], c[:, 0], weights, source)
        attention = attention.unflatten(1, (len(inputs), -1)).mean(2)  # (T, B, S)
        states, contexts, attention = (x.transpose(0, 1).contiguous() for x in (states, contexts, attention))
        new_state = states[:, -1:].to(h.dtype), cell[:, None].to(c.dtype), earlier, key, value, mask
        return states, contexts, attention, new_state

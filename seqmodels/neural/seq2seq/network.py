"""Encoder and decoder: ``h_t = LSTM([x_t, c_t], h_{t-1})``, the context ``c_t`` a weighted mean of what the source became."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqmodels.neural.network import Memory, Network, Source
from seqmodels.neural.recurrent.layers import between, layers_first
from seqmodels.neural.recurrent.network import open_forget_gates
from seqmodels.neural.seq2seq.attention import AdditiveAttention, Attention, MultiplicativeAttention

AttentionKind = Literal["additive", "multiplicative"] | None
Summary = Literal["last", "mean"]


class LSTMSeq2SeqNetwork(Network):
    """An LSTM reads the source, another writes (Sutskever et al., 2014; with attention Bahdanau et al., 2015).

    The decoder's previous state asks: ``c_t = attention(h_{t-1}, source)``, ``h_t = LSTM([x_t, c_t], h_{t-1})``, and
    ``h_t + W [h_t, c_t] + b`` is the hidden state. Without attention ``c_t`` is the summary of the source, the same at every step
    (Cho et al., 2014). The decoder starts from the summary, through a learned bridge.

    Args:
        d_model: width of inputs, states and hidden states; the encoder has as much in either direction.
        n_layers: of the encoder and of the decoder.
        attention: ``"additive"``, ``"multiplicative"`` or ``None``.
        bidirectional: the encoder reads both ways.
        summary: of the source: the ``"last"`` state in each direction, or the ``"mean"`` over its steps.
        projections: multiplicative attention projects queries, keys and values first.
        dropout: on the states of every layer, upwards only, and on the hidden state.

    Raises:
        ValueError: for an unknown choice.
    """

    reads_source = True

    def __init__(
        self,
        d_model: int,
        n_layers: int = 1,
        *,
        attention: AttentionKind = "additive",
        bidirectional: bool = True,
        summary: Summary = "last",
        projections: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.n_layers = n_layers
        self.encoder = LSTMEncoder(d_model, n_layers, bidirectional=bidirectional, summary=summary, dropout=dropout)
        self.bridge = nn.Linear(d_model, 2 * n_layers * d_model)
        self.attention = make_attention(attention, d_model, projections=projections)
        self.decoder = nn.LSTM(2 * d_model, d_model, n_layers, batch_first=True, dropout=between(dropout, n_layers))
        self.readout = nn.Linear(2 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        open_forget_gates(self.decoder)

    def start(self, n: int, source: Source | None = None) -> Memory:
        """``(h, c, key, value, mask)``: decoder states (n, n_layers, d) and the source prepared for attention.

        Without attention ``(h, c, summary)``.
        """
        assert source is not None, "an encoder needs a source"
        states, summary = self.encoder(source.values, source.mask)
        h, c = self.bridge(summary).unflatten(-1, (2, self.n_layers, self.d_model)).unbind(1)
        if self.attention is None:
            return torch.tanh(h), c, summary
        return torch.tanh(h), c, *self.attention.prepare(states, source.mask), source.mask

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        if self.attention is None:
            hidden, memory = self._decode_at_once(inputs, memory)
        else:
            hidden, _, memory = self._decode_in_turn(inputs, memory, self.attention)
        return hidden, memory

    def attention_weights(self, inputs: Tensor, memory: Memory) -> Tensor:
        """How much step t looks at step s of the source (B, T, S); ``ValueError`` if there is no attention."""
        if self.attention is None:
            raise ValueError('attention=None has no weights; pass attention="additive" or "multiplicative"')
        return self._decode_in_turn(inputs, memory, self.attention)[1]

    def _decode_at_once(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        h, c, summary = memory
        context = summary[:, None, :].expand(-1, inputs.shape[1], -1)  # (B, T, d)
        states, (h, c) = self.decoder(torch.cat([inputs, context], -1), (layers_first(h), layers_first(c)))
        return self._read_out(states, context), (layers_first(h), layers_first(c), summary)

    def _decode_in_turn(self, inputs: Tensor, memory: Memory, attention: Attention) -> tuple[Tensor, Tensor, Memory]:
        h, c, key, value, mask = memory
        h, c = layers_first(h), layers_first(c)
        states, contexts, weights = [], [], []
        for step in inputs.split(1, 1):  # (B, 1, d)
            context, weight = attention(h[-1][:, None, :], key, value, mask)
            state, (h, c) = self.decoder(torch.cat([step, context], -1), (h, c))
            states.append(state)
            contexts.append(context)
            weights.append(weight)
        hidden = self._read_out(torch.cat(states, 1), torch.cat(contexts, 1))
        return hidden, torch.cat(weights, 1), (layers_first(h), layers_first(c), key, value, mask)

    def _read_out(self, states: Tensor, context: Tensor) -> Tensor:
        # Around the readout, not through it: a squashed readout left text at its unigram frequencies for long.
        return self.dropout(states + self.readout(torch.cat([states, context], -1)))


class LSTMEncoder(nn.Module):
    """Source -> states and a summary. Padding has no influence: either direction begins and ends where the source does.

    Arguments are those of ``LSTMSeq2SeqNetwork``.
    """

    def __init__(self, d_model: int, n_layers: int, *, bidirectional: bool, summary: Summary, dropout: float) -> None:
        super().__init__()
        if summary not in get_args(Summary):
            raise ValueError(f'summary is {summary!r}; pass "last" or "mean"')
        self.summary = summary
        self.n_directions = 2 if bidirectional else 1
        self.lstm = nn.LSTM(
            d_model,
            d_model,
            n_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=between(dropout, n_layers),
        )
        self.combine: nn.Module = nn.Linear(2 * d_model, d_model) if bidirectional else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        open_forget_gates(self.lstm)

    def forward(self, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Source (B, S, d) and mask (B, S), real on the left -> states (B, S, d) and their summary (B, d)."""
        packed = pack_padded_sequence(values, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        packed_states, (last, _) = self.lstm(packed)
        both, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=values.shape[1])
        states = self.dropout(self.combine(both))
        if self.summary == "last":
            ends = last[-self.n_directions :].transpose(0, 1).flatten(1)  # (B, directions * d)
            return states, self.dropout(self.combine(ends))
        real = mask[..., None]
        return states, states.masked_fill(~real, 0.0).sum(1) / real.sum(1)


def make_attention(kind: AttentionKind, d_model: int, *, projections: bool = True) -> Attention | None:
    """Attention by name; ``projections`` is for ``"multiplicative"``. Raises ``ValueError`` for an unknown kind."""
    match kind:
        case None:
            return None
        case "additive":
            return AdditiveAttention(d_model)
        case "multiplicative":
            return MultiplicativeAttention(d_model, projections=projections)
    raise ValueError(f'attention is {kind!r}; pass "additive", "multiplicative" or None')

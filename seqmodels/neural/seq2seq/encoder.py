"""The LSTM encoder of a recurrent encoder-decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from seqmodels.neural.ops.dropout import dropout as apply_dropout
from seqmodels.neural.ops.padding import reverse_padded
from seqmodels.neural.ops.precision import lstm_layer
from seqmodels.neural.recurrent.lstm import lstm, open_forget_gates
from seqmodels.neural.recurrent.stack import dropout_between
from seqmodels.neural.seq2seq.attention import zero_masked

Summary = Literal["last", "mean"]


class LSTMEncoder(nn.Module):
    """An LSTM encoder from a source to its hidden states and a summary of them; padding has no influence.

    Sources are not packed, because on a CPU packing takes longer than computing the padding. The backward direction
    reads each source reversed within its own length, so that padding comes after it in either direction.

    Args:
        d_model: width of inputs, of states in each direction, and of outputs.
        n_layers: number of layers, each of which reads both directions of the one below.
        bidirectional: True to read both from the beginning and from the end.
        summary: ``"last"`` for the last state in each direction, or ``"mean"`` for the mean over the steps.
        dropout: fraction dropped between layers and of the outputs.

    Raises:
        ValueError: If ``summary`` is unknown.
    """

    def __init__(self, d_model: int, n_layers: int, *, bidirectional: bool, summary: Summary, dropout: float) -> None:
        super().__init__()
        if summary not in get_args(Summary):
            raise ValueError(f'summary is {summary!r}; pass "last" or "mean"')
        self.summary = summary
        self.dropout = dropout
        self.lstm = nn.LSTM(
            d_model,
            d_model,
            n_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout_between(dropout, n_layers),
        )
        self.combine: nn.Module = nn.Linear(2 * d_model, d_model) if bidirectional else nn.Identity()
        open_forget_gates(self.lstm)

    def forward(self, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hidden states of B sources, ``(B, S, d)``, and their summary, ``(B, d)``.

        Args:
            values: S embedded steps of each source, ``(B, S, d)``.
            mask: False at padding, which is on the right, ``(B, S)``.
        """
        outputs = self._run(zero_masked(values, mask), mask)
        states = apply_dropout(self.combine(outputs), self.dropout, self.training)
        if self.summary == "last":
            return states, apply_dropout(self.combine(self._last_states(outputs, mask)), self.dropout, self.training)
        return states, zero_masked(states, mask).sum(1) / mask.sum(1, keepdim=True)

    def _run(self, values: Tensor, mask: Tensor) -> Tensor:
        if not self.lstm.bidirectional or bool(mask.all()):
            return lstm(self.lstm, values)[0]
        reverse, outputs = reverse_padded(mask), values
        for layer in range(self.lstm.num_layers):
            if layer:
                outputs = apply_dropout(outputs, self.lstm.dropout, self.training)
            forward, backward = self.lstm.all_weights[2 * layer : 2 * layer + 2]
            outputs = torch.cat(
                [self._one_direction(outputs, forward), self._one_direction(outputs[reverse], backward)[reverse]], -1
            )
        return outputs

    def _one_direction(self, values: Tensor, weights: Sequence[Tensor]) -> Tensor:
        zero = values.new_zeros(1, len(values), self.lstm.hidden_size)
        return lstm_layer(values, (zero, zero), weights, training=self.training)[0]

    def _last_states(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """Return the state at the last step that each direction reads, side by side, ``(B, directions * d)``.

        Args:
            outputs: states at all S steps, ``(B, S, directions * d)``.
            mask: False at padding, ``(B, S)``.
        """
        forward = outputs[torch.arange(len(outputs), device=mask.device), mask.sum(1) - 1, : self.lstm.hidden_size]
        return torch.cat([forward, outputs[:, 0, self.lstm.hidden_size :]], -1)

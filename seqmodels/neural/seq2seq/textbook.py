"""Two encoder-decoders with attention as they were published, equation by equation, for ``EncoderDecoder``.

``LSTMSeq2Seq`` is faster and has the same attention, but other gates, and another map from state and context to the
output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from seqmodels.neural.network import AttentiveNetwork, Source, State
from seqmodels.neural.ops.dropout import dropout as apply_dropout
from seqmodels.neural.ops.padding import reverse_padded
from seqmodels.neural.recurrent.cell import Cell
from seqmodels.neural.recurrent.lstm import HiddenAndCell, LSTMCell
from seqmodels.neural.seq2seq.attention import zero_masked

BahdanauState = tuple[Tensor, Tensor, Tensor, Tensor]  # s, h, U h and the mask
LSTMStates = tuple[HiddenAndCell, ...]  # one for each layer
LuongState = tuple[LSTMStates, Tensor, Tensor, Tensor, Tensor]  # states, a, g, W g and the mask


class GatedUnit(Cell[Tensor]):
    """The original gated unit: ``s_t = (1 - z) s_{t-1} + z tanh(W x + U (r s_{t-1}))`` (Cho et al. 2014).

    The gates are ``z = σ(W_z x + U_z s_{t-1})`` (update) and ``r = σ(W_r x + U_r s_{t-1})`` (reset); each ``W x`` has a
    bias. The reset gate is applied before the product with U, other than in ``GRUCell``.

    Args:
        d_in: width of ``x``.
        d_hidden: width of ``s``.
    """

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.drive = nn.Linear(d_in, 3 * d_hidden)
        self.gates = nn.Linear(d_hidden, 2 * d_hidden, bias=False)
        self.candidate = nn.Linear(d_hidden, d_hidden, bias=False)
        for weight in (*self.gates.weight.chunk(2), self.candidate.weight):
            nn.init.orthogonal_(weight.data)

    def initial_state(self, n: int) -> Tensor:
        return self.candidate.weight.new_zeros(n, self.candidate.in_features)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        z, r, candidate = self.drive(inputs).chunk(3, -1)
        z_state, r_state = self.gates(state).chunk(2, -1)
        z, r = torch.sigmoid(z + z_state), torch.sigmoid(r + r_state)
        state = (1 - z) * state + z * torch.tanh(candidate + self.candidate(r * state))
        return state, state


class StepwiseDecoder(AttentiveNetwork[State], ABC):
    """An encoder-decoder whose decoder attends to the source and computes one step after the other.

    To add one, define ``start`` and ``decode``.
    """

    @abstractmethod
    def decode(self, inputs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Return hidden states, ``(B, T, d)``, attention weights, ``(B, T, S)``, and the state after the last step.

        There are B sequences of T steps, and S steps of the source.

        Args:
            inputs: embedded targets before each step, ``(B, T, d)``.
            state: state before the first step.
        """

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        outputs, _, state = self.decode(inputs, state)
        return outputs, state

    def attention_weights(self, inputs: Tensor, state: State) -> Tensor:
        return self.decode(inputs, state)[1]


class BahdanauNetwork(StepwiseDecoder[BahdanauState]):
    """RNNsearch, an encoder-decoder with attention (Bahdanau, Cho and Bengio 2015, appendix A).

    A bidirectional ``GatedUnit`` reads the source into annotations ``h_j = [forward_j; backward_j]``. The decoder's
    state starts as ``s_0 = tanh(W_s backward_1)``. With ``y_{i-1}`` the embedding of the target before step i,

    - ``e_ij = vᵀ tanh(W s_{i-1} + U h_j)``, ``c_i = Σ_j softmax_j(e_ij) h_j``;
    - ``t_i = maxout(U_o s_{i-1} + V_o y_{i-1} + C_o c_i)``, the larger of each two neighbours, from which the head
      predicts;
    - ``s_i = GatedUnit([y_{i-1}; c_i], s_{i-1})``.

    Args:
        d_model: width of embeddings, of states in each direction, and of ``t``.
        n_layers: must be 1.
        dropout: must be 0.

    Raises:
        ValueError: for another ``n_layers`` or ``dropout``.
    """

    def __init__(self, d_model: int, n_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if n_layers != 1 or dropout:
            raise ValueError(
                f"RNNsearch has one layer and no dropout; pass n_layers=1, dropout=0.0, not {n_layers}, {dropout}"
            )
        self.d_model = d = d_model
        self.encoder_forwards = GatedUnit(d, d)
        self.encoder_backwards = GatedUnit(d, d)
        self.first_state = nn.Linear(d, d)  # W_s
        self.attention_query = nn.Linear(d, d, bias=False)  # W
        self.attention_key = nn.Linear(2 * d, d, bias=False)  # U
        self.attention_energy = nn.Linear(d, 1, bias=False)  # v
        self.decoder = GatedUnit(3 * d, d)
        self.readout = nn.Linear(4 * d, 2 * d)  # U_o, V_o and C_o, of [s; y; c]

    def start(self, n: int, source: Source | None = None) -> BahdanauState:
        """Return the state ``(s, h, U h, mask)`` of n sequences before the first step, after reading the source.

        The shapes are ``(n, d)``, ``(n, S, 2d)``, ``(n, S, d)`` and ``(n, S)`` for S steps of the source: decoder's
        state, annotations, keys, and a mask that is False at padding. ``source`` must not be None.
        """
        assert source is not None, "an encoder needs a source"
        values, reverse = zero_masked(source.values, source.mask), reverse_padded(source.mask)
        forward, _ = self.encoder_forwards.unroll(values, self.encoder_forwards.initial_state(n))
        backward, _ = self.encoder_backwards.unroll(values[reverse], self.encoder_backwards.initial_state(n))
        backward = backward[reverse]
        annotations = zero_masked(torch.cat([forward, backward], -1), source.mask)
        return torch.tanh(self.first_state(backward[:, 0])), annotations, self.attention_key(annotations), source.mask

    def decode(self, inputs: Tensor, state: BahdanauState) -> tuple[Tensor, Tensor, BahdanauState]:
        s, annotations, keys, mask = state
        outputs, attention = [], []
        for y in inputs.unbind(1):
            energies = self.attention_energy(torch.tanh(self.attention_query(s)[:, None] + keys))[..., 0]  # (B, S)
            weights = energies.masked_fill(~mask, -torch.inf).softmax(-1)
            context = (weights[:, None].to(annotations.dtype) @ annotations)[:, 0]  # (B, 2d)
            pairs = self.readout(torch.cat([s, y, context], -1)).unflatten(-1, (-1, 2))
            s, _ = self.decoder(torch.cat([y, context], -1), s)
            outputs.append(pairs.amax(-1))
            attention.append(weights)
        return torch.stack(outputs, 1), torch.stack(attention, 1), (s, annotations, keys, mask)


class LuongNetwork(StepwiseDecoder[LuongState]):
    """An encoder-decoder with global attention and input feeding (Luong, Pham and Manning 2015).

    Layers of LSTMs read the source into states ``g_s``. The decoder has as many layers, which start from the encoder's
    last states. With ``y_{t-1}`` the embedding of the target before step t,

    - ``h_t = LSTM([y_{t-1}; a_{t-1}], h_{t-1})``, ``a_0 = 0``;
    - ``c_t = Σ_s softmax_s(h_tᵀ W g_s) g_s`` (the score *general*);
    - ``a_t = tanh(W_c [c_t; h_t])``, the attentional vector, from which the head predicts.

    Args:
        d_model: width of embeddings, states and attentional vectors.
        n_layers: number of layers of the encoder, and of the decoder.
        dropout: fraction of the inputs of every layer that is dropped in training, drawn afresh at every step; states
            that are passed from step to step are not dropped (Zaremba et al. 2014).
    """

    def __init__(self, d_model: int, n_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model = d = d_model
        self.dropout = dropout
        self.encoder = nn.ModuleList(LSTMCell(d, d) for _ in range(n_layers))
        self.decoder = nn.ModuleList(LSTMCell(2 * d if i == 0 else d, d) for i in range(n_layers))
        self.attention_key = nn.Linear(d, d, bias=False)  # W
        self.combine = nn.Linear(2 * d, d, bias=False)  # W_c

    def start(self, n: int, source: Source | None = None) -> LuongState:
        """Return the state ``(states, a, g, W g, mask)`` of n sequences before the first step; the source is read here.

        ``states`` are (h, c) of each layer; ``a``, the attentional vector, is ``(n, d)``; ``g``, the encoder's states
        at S steps, and the keys ``W g`` are ``(n, S, d)``; ``mask`` is ``(n, S)``, False at padding. ``source`` must
        not be None.
        """
        assert source is not None, "an encoder needs a source"
        values, mask = zero_masked(source.values, source.mask), source.mask
        zero = values.new_zeros(n, self.d_model)
        states: LSTMStates = ((zero, zero),) * len(self.encoder)
        outputs = []
        for x, is_step in zip(values.unbind(1), mask.unbind(1), strict=True):
            output, new_states = self._step(self.encoder, x, states)
            is_real = is_step[:, None]  # states stay after a source has ended
            states = tuple(
                (torch.where(is_real, h, h_before), torch.where(is_real, c, c_before))
                for (h, c), (h_before, c_before) in zip(new_states, states, strict=True)
            )
            outputs.append(output)
        encoded = zero_masked(torch.stack(outputs, 1), mask)
        return states, zero, encoded, self.attention_key(encoded), mask

    def decode(self, inputs: Tensor, state: LuongState) -> tuple[Tensor, Tensor, LuongState]:
        states, a, encoded, keys, mask = state
        outputs, attention = [], []
        for y in inputs.unbind(1):
            h, states = self._step(self.decoder, torch.cat([y, a], -1), states)
            scores = (keys @ h[:, :, None].to(keys.dtype))[..., 0]  # (B, S)
            weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
            context = (weights[:, None].to(encoded.dtype) @ encoded)[:, 0]  # (B, d)
            a = torch.tanh(self.combine(torch.cat([context, h], -1)))
            outputs.append(a)
            attention.append(weights)
        return torch.stack(outputs, 1), torch.stack(attention, 1), (states, a, encoded, keys, mask)

    def _step(self, cells: nn.ModuleList, x: Tensor, states: LSTMStates) -> tuple[Tensor, LSTMStates]:
        """Run one step through all layers, and return the last layer's output, ``(n, d)``, and each layer's state.

        Args:
            cells: the layers' cells, from the lowest.
            x: input of the lowest, ``(n, m)``.
            states: each layer's state before the step.
        """
        new_states = []
        for cell, state in zip(cells, states, strict=True):
            x, state = cell(apply_dropout(x, self.dropout, self.training), state)
            new_states.append(state)
        return x, tuple(new_states)

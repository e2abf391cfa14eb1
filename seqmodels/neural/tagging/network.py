"""The network of a tagger: ``hidden_t = s_t``, or with past targets ``s_t + f(y_1 .. y_{t-1}; s_1 .. s_t)``.

The states s, one for each step of the source, come from an encoder, which reads the whole source or only its past.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

import torch
from torch import Tensor, nn

from seqmodels.neural.network import Network, Source, State
from seqmodels.neural.ops.padding import reverse_padded
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.positions import make_positions
from seqmodels.neural.transformer.stack import TransformerStack


class TaggerNetwork(Network[tuple[Tensor, int, State | None]], Generic[State]):
    """A tagger's network: a hidden state for each step of the source, to which one of earlier targets may be added.

    Its own state is ``(states of the source (B, S, d), t, the decoder's state)`` after t steps.

    Args:
        encoder: network that reads the source.
        decoder: causal network without an encoder, whose input is the target before plus the projected state of the
            source; None if targets are independent given the source.

    >>> import torch
    >>> from seqmodels.neural.recurrent.lstm import LSTMNetwork
    >>> network = TaggerNetwork(CausalEncoder(LSTMNetwork(8)), LSTMNetwork(8))
    >>> source = Source(torch.zeros(3, 5, 8), torch.ones(3, 5, dtype=torch.bool))
    >>> hidden, (_, t, _) = network(torch.zeros(3, 2, 8), network.start(3, source))
    >>> hidden.shape, t
    (torch.Size([3, 2, 8]), 2)
    """

    reads_source = True
    aligned = True

    def __init__(self, encoder: SourceEncoder, decoder: Network[State] | None = None) -> None:
        super().__init__()
        self.d_model, self.reads_past = encoder.d_model, decoder is not None
        self.encoder, self.decoder = encoder, decoder
        self.project = None if decoder is None else nn.Linear(encoder.d_model, decoder.d_model)

    def start(self, n: int, source: Source | None = None) -> tuple[Tensor, int, State | None]:
        assert source is not None, "a tagger needs a source"
        return self.encoder(source.values, source.mask), 0, None if self.decoder is None else self.decoder.start(n)

    def forward(
        self, inputs: Tensor, state: tuple[Tensor, int, State | None]
    ) -> tuple[Tensor, tuple[Tensor, int, State | None]]:
        """Return the hidden states of the next T steps of B sequences, ``(B, T, d)``, and the state after them.

        Args:
            inputs: embedded targets before each step, ``(B, T, d)``.
            state: state before the first of them; the source must have these T steps.
        """
        states, t, decoder_state = state
        end = t + inputs.shape[1]
        assert end <= states.shape[1], "no step is past the end of the source"
        hidden = states[:, t:end]  # (B, T, d)
        if self.decoder is not None and self.project is not None and decoder_state is not None:
            past, decoder_state = self.decoder(inputs + self.project(hidden), decoder_state)
            hidden = hidden + past
        return hidden, (states, end, decoder_state)


# -- encoders of the source ------------------------------------------------------------------------------------


class SourceEncoder(nn.Module, ABC):
    """A network of a tagger that returns a hidden state for each step of the source.

    To add one, define ``forward``. Padding must have no influence on other steps.

    Attributes:
        d_model: width of steps and of states.
    """

    d_model: int

    @abstractmethod
    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return a hidden state for each of S steps of B sources, ``(B, S, d)``.

        Args:
            values: the embedded steps, ``(B, S, d)``.
            mask: False at padding, which is on the right, ``(B, S)``.
        """


class CausalEncoder(SourceEncoder):
    """An encoder by a causal network: the state of step t depends on the source's steps up to t.

    Args:
        network: causal network without an encoder.
    """

    def __init__(self, network: Network[Any]) -> None:
        super().__init__()
        self.d_model, self.network = network.d_model, network

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.network(values, self.network.start(len(values)))[0]
        return states


class BidirectionalEncoder(SourceEncoder):
    """An encoder by layers of two recurrent networks, one in each direction: ``h = W [forwards, backwards] + b``.

    It follows Schuster and Paliwal (1997). Padding stays on the right for both, because each sequence is reversed
    within its own length.

    Args:
        make: function that makes a recurrent network of one layer.
        n_layers: number of layers, each of which reads both directions of the one below (Graves and Schmidhuber 2005).
    """

    def __init__(self, make: Callable[[], Network[Any]], n_layers: int) -> None:
        super().__init__()
        networks = [(make(), make()) for _ in range(n_layers)]
        d = self.d_model = networks[0][0].d_model
        self.forwards = nn.ModuleList(forward for forward, _ in networks)
        self.backwards = nn.ModuleList(backward for _, backward in networks)
        self.combine = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(n_layers))

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        reverse = reverse_padded(mask)
        for forward, backward, combine in zip(self.forwards, self.backwards, self.combine, strict=True):
            left_to_right = _run(forward, values)
            right_to_left = _run(backward, values[reverse])
            values = combine(torch.cat([left_to_right, right_to_left[reverse]], -1))
        return values


class TransformerEncoder(SourceEncoder):
    """An encoder by self-attention over the source (Vaswani et al., 2017), with a causal mask if ``causal``.

    Args:
        config: configuration of the stack.
        max_length: length of the longest sequence; None for any length.
        causal: True if the state of step t depends only on the source's steps up to t.
    """

    def __init__(self, config: TransformerConfig, *, max_length: int | None = None, causal: bool) -> None:
        super().__init__()
        config.check_architecture(max_length)
        self.d_model, self.causal = config.d_model, causal
        self.positions = make_positions(config.positions, config.d_model, max_length)
        self.stack = TransformerStack(config, max_length=max_length, causal=causal)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        values = values.masked_fill(~mask[..., None], 0.0)
        inputs = self.positions(values)
        states: Tensor = self.stack(inputs, mask=None if self.causal else mask)[0]  # causal: padding is later
        return states


def _run(network: nn.Module, values: Tensor) -> Tensor:
    assert isinstance(network, Network)
    states: Tensor = network(values, network.start(len(values)))[0]
    return states

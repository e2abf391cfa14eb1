"""The network of a tagger: ``hidden_t = s_t``, or with the past ``s_t + f(y_1 .. y_{t-1}; s_1 .. s_t)``.

s are the states of the source.
"""

from __future__ import annotations

from torch import Tensor, nn

from seqmodels.neural.network import CarriedState, Network, Source
from seqmodels.neural.tagging.encoders import SourceEncoder


class TaggerNetwork(Network):
    """A state for each step of the source, to which one of the targets before it is added.

    Args:
        encoder: reads the source.
        decoder: a causal network without an encoder, whose input is the target before plus the projected state of the
            source; or None: targets are independent, given the source.

    Its memory is ``(states (B, S, d), t, the decoder's memory)``.

    >>> import torch
    >>> from seqmodels.neural.recurrent.lstm import LSTMNetwork
    >>> from seqmodels.neural.tagging.encoders import CausalEncoder
    >>> network = TaggerNetwork(CausalEncoder(LSTMNetwork(8)), LSTMNetwork(8))
    >>> source = Source(torch.zeros(3, 5, 8), torch.ones(3, 5, dtype=torch.bool))
    >>> hidden, (_, t, _) = network(torch.zeros(3, 2, 8), network.start(3, source))
    >>> hidden.shape, t
    (torch.Size([3, 2, 8]), 2)
    """

    reads_source = True
    aligned = True

    def __init__(self, encoder: SourceEncoder, decoder: Network | None = None) -> None:
        super().__init__()
        self.d_model, self.reads_past = encoder.d_model, decoder is not None
        self.encoder, self.decoder = encoder, decoder
        self.project = None if decoder is None else nn.Linear(encoder.d_model, decoder.d_model)

    def start(self, n: int, source: Source | None = None) -> CarriedState:
        """See ``Network``."""
        assert source is not None, "a tagger needs a source"
        return self.encoder(source.values, source.mask), 0, None if self.decoder is None else self.decoder.start(n)

    def forward(self, inputs: Tensor, memory: CarriedState) -> tuple[Tensor, CarriedState]:
        """See ``Network``; there are no more steps than the source has."""
        states, t, inner = memory
        after = t + inputs.shape[1]
        assert after <= states.shape[1], "no step is past the end of the source"
        hidden = states[:, t:after]  # (B, T, d)
        if self.decoder is not None and self.project is not None:
            past, inner = self.decoder(inputs + self.project(hidden), inner)
            hidden = hidden + past
        return hidden, (states, after, inner)

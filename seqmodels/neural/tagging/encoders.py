"""Encoders of a tagger's source.

``(B, S, d)`` -> a state for each of its steps, from both sides or from the past alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqmodels.neural.network import Network
from seqmodels.neural.ops.padding import reverse_padded
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.positions import make_positions
from seqmodels.neural.transformer.stack import TransformerStack


class SourceEncoder(nn.Module, ABC):
    """To add one, define ``forward``. What is padded must have no influence on what is real.

    Attributes:
        d_model: width of steps and of states.
    """

    d_model: int

    @abstractmethod
    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Steps (B, S, d) and their mask (B, S), real on the left, -> states (B, S, d)."""


class CausalEncoder(SourceEncoder):
    """A causal network over the source: the state of step t has seen the steps up to t.

    Args:
        network: without an encoder.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.d_model, self.network = network.d_model, network

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """See ``SourceEncoder``."""
        states: Tensor = self.network(values, self.network.start(len(values)))[0]
        return states


class BidirectionalEncoder(SourceEncoder):
    """Layers of two recurrent networks, one of which reads from the end: ``h = W [forwards, backwards] + b``.

    After Schuster and Paliwal (1997). Padding stays on the right for both: each sequence is turned around within its
    own length.

    Args:
        make: makes a recurrent network of one layer.
        n_layers: each reads both directions of the one below (Graves and Schmidhuber 2005).
    """

    def __init__(self, make: Callable[[], Network], n_layers: int) -> None:
        super().__init__()
        networks = [(make(), make()) for _ in range(n_layers)]
        d = self.d_model = networks[0][0].d_model
        self.forwards = nn.ModuleList(ahead for ahead, _ in networks)
        self.backwards = nn.ModuleList(back for _, back in networks)
        self.combine = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(n_layers))

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """See ``SourceEncoder``."""
        back_to_front = reverse_padded(mask)
        for ahead, back, combine in zip(self.forwards, self.backwards, self.combine, strict=True):
            left_to_right = _run(ahead, values)
            right_to_left = _run(back, values[back_to_front])
            values = combine(torch.cat([left_to_right, right_to_left[back_to_front]], -1))
        return values


class TransformerEncoder(SourceEncoder):
    """Self-attention over the source (Vaswani et al., 2017), masked if ``causal``.

    Args:
        config: of the stack.
        max_length: the longest sequence.
        causal: the state of step t has seen the steps up to t.
    """

    def __init__(self, config: TransformerConfig, *, max_length: int | None = None, causal: bool) -> None:
        super().__init__()
        config.check_architecture(max_length)
        self.d_model, self.causal = config.d_model, causal
        self.positions = make_positions(config.positions, config.d_model, max_length)
        self.stack = TransformerStack(config, max_length=max_length, causal=causal)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """See ``SourceEncoder``."""
        values = values.masked_fill(~mask[..., None], 0.0)
        inputs = self.positions(values)
        states: Tensor = self.stack(inputs, mask=None if self.causal else mask)[0]  # causal: padding is later
        return states


def _run(network: nn.Module, values: Tensor) -> Tensor:
    assert isinstance(network, Network)
    states: Tensor = network(values, network.start(len(values)))[0]
    return states

"""A Transformer encoder over symbols that predicts each one from past and future alike: ``log p(x_t | inputs)``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.neural.ops.tied_linear import TiedLinear
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.layers import activate
from seqmodels.neural.transformer.positions import Positions
from seqmodels.neural.transformer.stack import TransformerStack, norm_of

MASK, BEGIN, END, N_SPECIAL = 0, 1, 2, 3  # special symbols that a model reads besides its V, numbered from V on


@dataclass(frozen=True)
class EmbeddingAndHead:
    """Options of the embedding and the head (output layer) of a bidirectional Transformer; BERT has all of them.

    Attributes:
        tied: True if head and embedding share one matrix.
        embedding_norm: True to normalise the sum of embedding and position.
        head_transform: True for the layer ``Norm(σ(W h + b))`` before the head.
    """

    tied: bool = False
    embedding_norm: bool = False
    head_transform: bool = False


class HeadTransform(nn.Module):
    """The layer ``Norm(σ(W h + b))`` between the last hidden states and the head (Devlin et al., 2019, in their code).

    Args:
        config: the network's configuration, of which the width, the activation σ and the norm are used.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = config.activation
        width = config.d_model * (2 if config.activation == "swiglu" else 1)
        self.linear = nn.Linear(config.d_model, width, bias=config.bias)
        self.norm = norm_of(config)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.norm(activate(self.linear(hidden), self.activation))
        return out


class BidirectionalNetwork(nn.Module):
    """A masked language model: embeddings of symbols with positions, an encoder, and an output layer over the symbols.

    Args:
        n_symbols: number of symbols V; the embedding table has further rows for the special symbols.
        positions: the positions added to the embeddings.
        encoder: a stack that is not causal.
        options: the options of the embedding and the head.
    """

    def __init__(
        self, n_symbols: int, positions: Positions, encoder: TransformerStack, options: EmbeddingAndHead
    ) -> None:
        super().__init__()
        d_model = encoder.config.d_model
        self.n_symbols = n_symbols
        self.embedding = nn.Embedding(n_symbols + N_SPECIAL, d_model)
        self.positions = positions
        self.encoder = encoder
        self.embedding_norm = norm_of(encoder.config) if options.embedding_norm else nn.Identity()
        self.transform = HeadTransform(encoder.config) if options.head_transform else nn.Identity()
        self.head = TiedLinear(self.embedding, n_symbols) if options.tied else nn.Linear(d_model, n_symbols)
        # A masked symbol is known only from its neighbours, which attention finds by position: positions must stay
        # visible.
        nn.init.normal_(self.embedding.weight, std=min(0.3, d_model**-0.5) if options.tied else 0.3)
        if not options.tied:
            nn.init.normal_(self.head.weight, std=d_model**-0.5)
        nn.init.zeros_(self.head.bias)

    @property
    def n_layers(self) -> int:
        return len(list(self.encoder))

    @property
    def units(self) -> list[nn.Module]:
        return list(self.encoder)

    def embedded(self, inputs: Tensor) -> Tensor:
        """Return the embeddings of symbols with their positions, (B, T, d); ``inputs`` are the symbols, (B, T)."""
        out: Tensor = self.embedding_norm(self.positions(self.embedding(inputs)))
        return out

    def hidden(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states (B, T, d) after the last block.

        Args:
            inputs: symbols of T steps of B sequences, (B, T).
            mask: False at padding, (B, T).
        """
        hidden: Tensor = self.encoder(self.embedded(inputs), mask=mask)[0]
        return hidden

    def forward(self, inputs: Tensor, mask: Tensor, masked: Tensor) -> Tensor:
        """Return the logits (N, V) at the N masked steps, row by row.

        Args:
            inputs: symbols after masking, (B, T).
            mask: False at padding, (B, T).
            masked: True at the N steps to be predicted, at which alone the head is computed, (B, T).
        """
        return self.logits(self.hidden(inputs, mask)[masked])

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of all V symbols, (..., V), from hidden states after the last block, (..., d)."""
        logits: Tensor = self.head(self.transform(hidden))
        return logits

    def layer_states(self, inputs: Tensor, mask: Tensor, layer: int) -> Tensor:
        """Return the hidden states (B, T, d) after the first ``layer`` blocks.

        Args:
            inputs: symbols of T steps of B sequences, (B, T).
            mask: False at padding, (B, T).
            layer: number of blocks. 0 gives the embedded inputs; only the states after the last block have passed the
                final norm.
        """
        if layer == 0:
            return self.embedded(inputs)
        if layer == self.n_layers:
            return self.hidden(inputs, mask)
        states: Tensor = self.encoder(self.embedded(inputs), mask=mask, n_blocks=layer)[0]
        return states

    def self_attention_weights(self, inputs: Tensor, layer: int) -> Tensor:
        """Return the weights (B, H, T, T) of step t on step s in each of H heads of a layer.

        Args:
            inputs: symbols of T steps of B sequences, without padding, (B, T).
            layer: number of the layer, from 0.
        """
        return self.encoder.self_attention_weights(self.embedded(inputs), layer)


def log_prob_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probabilities of N target symbols in nats, (N,), in at least float32.

    Args:
        logits: logits of V symbols, (N, V).
        targets: the symbols, (N,).
    """
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return precise.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def with_boundaries(values: np.ndarray, n_symbols: int) -> np.ndarray:
    """Return T symbols between the special symbols of beginning and end, ``(T + 2,)``.

    Args:
        values: the symbols, ``(T,)``.
        n_symbols: number of symbols V; special symbols are numbered from here on.
    """
    return np.concatenate([[n_symbols + BEGIN], values, [n_symbols + END]])

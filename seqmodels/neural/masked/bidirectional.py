"""A Transformer encoder over symbols and marks: ``log p(x_t | what is shown)``, past and future alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from seqmodels.neural.masked.masking import N_MARKS
from seqmodels.neural.ops.tied_linear import TiedLinear
from seqmodels.neural.transformer.feedforward import activate
from seqmodels.neural.transformer.network import TransformerStack, norm_of
from seqmodels.neural.transformer.options import TransformerOptions
from seqmodels.neural.transformer.positions import Positions


@dataclass(frozen=True)
class MaskedEnds:
    """What may stand at the two ends of a bidirectional Transformer, in BERT all of it.

    Attributes:
        tied: the head has the rows of the symbols in the table.
        embedding_norm: a norm on the sum of embedding and position.
        head_transform: ``Norm(σ(W h + b))`` before the head.
    """

    tied: bool = False
    embedding_norm: bool = False
    head_transform: bool = False


class HeadTransform(nn.Module):
    """``Norm(σ(W h + b))`` (Devlin et al., 2019, in their code): what the last layer says, made ready for the table.

    Args:
        options: the width, the activation σ and the norm of them.
    """

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.activation = options.activation
        width = options.d_model * (2 if options.activation == "swiglu" else 1)
        self.linear = nn.Linear(options.d_model, width, bias=options.bias)
        self.norm = norm_of(options)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        out: Tensor = self.norm(activate(self.linear(hidden), self.activation))
        return out


class BidirectionalModule(nn.Module):
    """Table of symbols and marks, positions, encoder, and a head over the symbols.

    Args:
        n_symbols: V; the table has rows for the marks besides.
        d_model: width of the table.
        positions: added to the table's rows.
        encoder: a stack of width ``d_model`` that sees both ways.
        ends: what else there is before it and after it.
    """

    def __init__(
        self, n_symbols: int, d_model: int, positions: Positions, encoder: TransformerStack, ends: MaskedEnds
    ) -> None:
        super().__init__()
        self.n_symbols = n_symbols
        self.embedding = nn.Embedding(n_symbols + N_MARKS, d_model)
        self.positions, self.encoder = positions, encoder
        self.embedding_norm = norm_of(encoder.options) if ends.embedding_norm else nn.Identity()
        self.transform = HeadTransform(encoder.options) if ends.head_transform else nn.Identity()
        self.head = TiedLinear(self.embedding, n_symbols) if ends.tied else nn.Linear(d_model, n_symbols)
        # A hidden symbol is told by its neighbours only, which attention finds by position: the symbols must not drown it.
        nn.init.normal_(self.embedding.weight, std=min(0.3, d_model**-0.5) if ends.tied else 0.3)
        if not ends.tied:
            nn.init.normal_(self.head.weight, std=d_model**-0.5)
        nn.init.zeros_(self.head.bias)

    @property
    def n_layers(self) -> int:
        """Blocks of the encoder."""
        return len(list(self.encoder))

    def inputs(self, steps: Tensor) -> Tensor:
        """Symbols and marks (B, T) -> (B, T, d), with positions."""
        inputs: Tensor = self.embedding_norm(self.positions(self.embedding(steps)))
        return inputs

    def states(self, steps: Tensor, real: Tensor) -> Tensor:
        """Hidden states (B, T, d); ``real (B, T)`` is True where there is no padding."""
        return self.encoder(self.inputs(steps), mask=real)[0]

    def forward(self, steps: Tensor, real: Tensor, asked: Tensor) -> Tensor:
        """Logits (N, V) of the N places where ``asked (B, T)``, row by row: the head runs nowhere else."""
        return self.logits(self.states(steps, real)[asked])

    def logits(self, states: Tensor) -> Tensor:
        """States (..., d) after the last block -> logits (..., V)."""
        logits: Tensor = self.head(self.transform(states))
        return logits

    def layer_states(self, steps: Tensor, real: Tensor, layer: int) -> Tensor:
        """States (B, T, d) after ``layer`` blocks: 0 the inputs; the last have passed the final norm, if there is one."""
        if layer == 0:
            return self.inputs(steps)
        if layer == self.n_layers:
            return self.states(steps, real)
        return self.encoder(self.inputs(steps), mask=real, n_blocks=layer)[0]


def log_prob_of(logits: Tensor, symbols: Tensor) -> Tensor:
    """``log p`` (N,) of ``symbols (N,)`` under ``logits (N, V)``, in at least float32."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return precise.log_softmax(-1).gather(-1, symbols.unsqueeze(-1)).squeeze(-1)


def pad(pieces: list[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Pieces side by side (B, T), padded on the right with a symbol, and where they are real (B, T)."""
    padded = pad_sequence([torch.as_tensor(piece) for piece in pieces], batch_first=True).to(device)
    lengths = torch.tensor([len(piece) for piece in pieces], device=device)
    return padded, torch.arange(padded.shape[1], device=device) < lengths.unsqueeze(1)


def batches(lengths: list[int], at_once: int) -> Iterator[list[int]]:
    """Indices of pieces of like length together, padded no more than ``at_once`` steps a batch, or one piece.

    >>> list(batches([3, 1, 4, 2], at_once=6))
    [[1, 3], [0], [2]]
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > at_once:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch

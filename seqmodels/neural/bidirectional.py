"""A Transformer encoder over symbols and marks: ``log p(x_t | what is shown)``, past and future alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from seqmodels.neural.masking import N_MARKS
from seqmodels.neural.positions import Positions
from seqmodels.neural.transformer import TransformerStack


class BidirectionalModule(nn.Module):
    """Table of symbols and marks, positions, encoder, and a linear head over the symbols.

    Args:
        n_symbols: V; the table has rows for the marks besides.
        d_model: width of the table.
        positions: added to the table's rows.
        encoder: a stack of width ``d_model`` that sees both ways.
    """

    def __init__(self, n_symbols: int, d_model: int, positions: Positions, encoder: TransformerStack) -> None:
        super().__init__()
        self.n_symbols = n_symbols
        self.embedding = nn.Embedding(n_symbols + N_MARKS, d_model)
        self.positions, self.encoder = positions, encoder
        self.head = nn.Linear(d_model, n_symbols)
        # A hidden symbol is told by its neighbours only, which attention finds by position: the symbols must not drown it.
        nn.init.normal_(self.embedding.weight, std=0.3)
        nn.init.normal_(self.head.weight, std=d_model**-0.5)
        nn.init.zeros_(self.head.bias)

    @property
    def n_layers(self) -> int:
        """Blocks of the encoder."""
        return len(list(self.encoder))

    def inputs(self, steps: Tensor) -> Tensor:
        """Symbols and marks (B, T) -> (B, T, d), with positions."""
        return self.positions(self.embedding(steps))

    def states(self, steps: Tensor, real: Tensor) -> Tensor:
        """Hidden states (B, T, d); ``real (B, T)`` is True where there is no padding."""
        return self.encoder(self.inputs(steps), mask=real)[0]

    def forward(self, steps: Tensor, real: Tensor, asked: Tensor) -> Tensor:
        """Logits (N, V) of the N places where ``asked (B, T)``, row by row: the head runs nowhere else."""
        return self.head(self.states(steps, real)[asked])

    def layer_states(self, steps: Tensor, real: Tensor, layer: int) -> Tensor:
        """States (B, T, d) after ``layer`` blocks: 0 the inputs; the last have passed the final norm, if there is one."""
        if layer == 0:
            return self.inputs(steps)
        if layer == self.n_layers:
            return self.states(steps, real)
        found: list[Tensor] = []
        handle = list(self.encoder)[layer - 1].register_forward_hook(
            lambda module, inputs, outputs: found.append(outputs[0])
        )
        try:
            self.states(steps, real)
        finally:
            handle.remove()
        return found[0]


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

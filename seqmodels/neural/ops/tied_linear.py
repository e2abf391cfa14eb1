"""An output layer that shares rows with the embedding of the inputs, ``logits = E h + b`` (Press and Wolf, 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TiedLinear(nn.Module):
    """An output layer ``W h + b`` that shares the first rows of W with an embedding.

    The other rows of W, and b, are its own parameters. The shared matrix remains a parameter of the embedding only: it
    is counted and saved once, and receives both gradients.

    Args:
        embedding: embedding whose first ``n_tied`` rows are shared.
        n_tied: number of shared rows, one for each symbol.
        n_extra: number of rows of its own, for outputs that are no inputs, such as the end of a sequence.
    """

    def __init__(self, embedding: nn.Embedding, n_tied: int, n_extra: int = 0) -> None:
        super().__init__()
        self.n_tied = n_tied
        # In a tuple, so that the table is not registered and saved a second time.
        self._embedding = (embedding,)
        self.own = nn.Parameter(torch.empty(n_extra, embedding.embedding_dim)) if n_extra else None
        self.bias = nn.Parameter(torch.zeros(n_tied + n_extra))
        if self.own is not None:
            nn.init.normal_(self.own, std=embedding.embedding_dim**-0.5)

    @property
    def shared(self) -> Tensor:
        """The rows of W that are the embedding's, ``(n_tied, d)``."""
        return self._embedding[0].weight[: self.n_tied]

    @property
    def extra(self) -> Tensor | None:
        """The rows of W that are not shared, ``(n_extra, d)``; None if there are none."""
        return self.own

    @property
    def weight(self) -> Tensor:
        """W, ``(n_tied + n_extra, d)``; it is a copy if there are extra rows."""
        return self.shared if self.own is None else torch.cat([self.shared, self.own])

    def forward(self, hidden: Tensor) -> Tensor:
        if self.own is None:
            return F.linear(hidden, self.weight, self.bias)
        shared, own = self.bias.split((self.n_tied, len(self.own)))
        parts = F.linear(hidden, self.shared, shared), F.linear(hidden, self.own, own)
        return torch.cat(parts, -1)  # joins outputs, because joining the tables would copy them at every step

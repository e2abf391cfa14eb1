"""What single steps of a Transformer read: inputs by name, each with the inputs before it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.neural.transformer.previous import PreviousInputs

LARGEST_TABLE = 2_048  # inputs, up to which what each adds to later steps is computed before


class Reading:
    """``y_t = x_t + Σ_k W_k x_{t-k}``, k = 1 .. p: what inputs add to the p after them is kept as ``pending``.

    Args:
        inputs: ``(R, d)``, of which each step names one.
        previous: the matrices.
    """

    def __init__(self, inputs: Tensor, previous: PreviousInputs) -> None:
        self.table, self.d, self.previous = inputs, inputs.shape[1], previous
        self.later: Tensor | None = None
        if previous.map is None:
            return
        later = previous.map.weight.detach().unflatten(1, (-1, self.d)).transpose(0, 1).flatten(0, 1)  # (p d, d)
        self.later, self.all = later, torch.cat([torch.eye(self.d).to(later), later]).t()
        self.from_table = len(inputs) <= LARGEST_TABLE
        if self.from_table:
            self.table = inputs @ self.all  # (R, d + p d)

    def at_once(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What is read of ``inputs (n, T, d)`` that come first, and what is pending after them."""
        x, recent = self.previous(inputs, self.previous.start(len(inputs)))
        return x, self.pending(recent)

    def pending(self, recent: Tensor) -> Tensor:
        """What the last p inputs, ``recent (n, p, d)``, oldest first, will add to the next p: ``(n, p d)``."""
        pending = torch.zeros_like(recent).flatten(1)
        if self.later is None:
            return pending
        for x in recent.unbind(1):
            pending = F.pad(pending[:, self.d :], (0, self.d)) + F.linear(x, self.later)
        return pending

    def __call__(self, rows: Tensor, pending: Tensor) -> tuple[Tensor, Tensor]:
        """``rows (n,)`` -> what is read ``(n, d)``, which is the caller's own, and what is pending then."""
        x = self.table.index_select(0, rows)
        if self.later is None:
            return x, pending
        spread = x if self.from_table else x @ self.all  # (n, d + p d)
        spread.narrow(1, 0, pending.shape[1]).add_(pending)
        # Rows that follow each other: norms would copy others at every turn.
        return spread.narrow(1, 0, self.d).contiguous(), spread.narrow(1, self.d, pending.shape[1])

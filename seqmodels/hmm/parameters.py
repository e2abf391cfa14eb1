"""``Parameters``: all that EM learns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Parameters:
    """``initial (K,)``, ``transition (K, K)``, ``final (K,)`` or None, and the emission ``table (K, P)``; all float64."""

    initial: Tensor
    transition: Tensor
    final: Tensor | None
    table: Tensor

    def to(self, device: torch.device) -> Parameters:
        """On another device."""
        final = None if self.final is None else self.final.to(device)
        return Parameters(self.initial.to(device), self.transition.to(device), final, self.table.to(device))

    def take(self, order: Tensor) -> Parameters:
        """State i as it was at ``order[i]``."""
        final = None if self.final is None else self.final[order]
        return Parameters(self.initial[order], self.transition[order][:, order], final, self.table[order])

"""Dirichlet priors of the chain: initial states, transitions and ends.

``log p = Σ pseudocount log probability`` adds counts to the expected ones: the M-step then gives the maximum a
posteriori, in proportion to both (Gauvain and Lee 1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import Configurable
from seqmodels.hmm.parameters import Parameters


@dataclass(eq=False, repr=False)
class Pseudocounts(Configurable):
    """Counts added to the expected ones: Dirichlet distributions with parameters ``1 + count``.

    Transitions that are exactly zero get none: they are impossible.

    Args:
        initial: a number, or ``(K,)``: of starts.
        transition: a number, or ``(K, K)``: of transitions.
        sticky: a number, or ``(K,)``: more for each state's transition to itself (Fox et al. 2008).
        final: a number, or ``(K,)``: of ends.
    """

    initial: Any = 0.0
    transition: Any = 0.0
    sticky: Any = 0.0
    final: Any = 0.0

    @classmethod
    def even(cls, count: float) -> Pseudocounts:
        """The same count of every start, transition and end."""
        return cls(count, count, 0.0, count)

    def check(self, n_states: int) -> None:
        """Raise ``ValueError`` for counts below zero and shapes that do not fit K states."""
        k = n_states
        for name, shape in {"initial": (k,), "transition": (k, k), "sticky": (k,), "final": (k,)}.items():
            values = numbers_of(f"{name} of the pseudocounts", getattr(self, name))
            if values.shape not in ((), shape):
                raise ValueError(f"{name} of the pseudocounts has shape {values.shape}; pass a number or {shape}")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} of the pseudocounts must be finite and 0 or more")

    def counts(self, parameters: Parameters) -> tuple[Tensor, Tensor, Tensor | None]:
        """Counts of starts, transitions and ends, zero where the parameters are."""
        if self._are_zero:
            final = None if parameters.final is None else torch.zeros_like(parameters.final)
            return torch.zeros_like(parameters.initial), torch.zeros_like(parameters.transition), final
        n_rows, k = parameters.transition.shape
        sticky = torch.diag(_spread(self.sticky, parameters.initial)).repeat(n_rows // k, 1)
        final = None if parameters.final is None else _allowed(self.final, parameters.final)
        transition = _spread(self.transition, parameters.transition) + sticky
        return _allowed(self.initial, parameters.initial), transition * (parameters.transition > 0), final

    def arrays(self, n_states: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts of starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)``, whatever the parameters are."""

        def spread(count: Any, *shape: int) -> np.ndarray:
            counts = np.empty(shape)
            counts[...] = count
            return counts

        between = spread(self.transition, n_states, n_states) + np.diag(spread(self.sticky, n_states))
        return spread(self.initial, n_states), between, spread(self.final, n_states)

    @property
    def _are_zero(self) -> bool:
        """Whether no count is added anywhere, as by default."""
        counts = (self.initial, self.transition, self.sticky, self.final)
        return all(isinstance(count, int | float) and count == 0 for count in counts)

    def log_prior(self, parameters: Parameters) -> Tensor:
        """Nats, up to a constant."""
        if self._are_zero:
            return parameters.initial.new_zeros(())
        tables = (parameters.initial, parameters.transition, parameters.final)
        terms = [
            torch.xlogy(counts, torch.where(counts > 0, table, 1.0)).sum()
            for counts, table in zip(self.counts(parameters), tables, strict=True)
            if counts is not None and table is not None
        ]
        return torch.stack(terms).sum()


def as_pseudocounts(choice: float | Pseudocounts) -> Pseudocounts:
    """A number is that count everywhere."""
    return choice if isinstance(choice, Pseudocounts) else Pseudocounts.even(choice)


def _spread(count: Any, like: Tensor) -> Tensor:
    if isinstance(count, int | float):
        return like.new_full((), count, dtype=torch.float64).expand(like.shape)  # which a GPU need not wait for
    return torch.as_tensor(count, dtype=torch.float64, device=like.device).expand(like.shape)


def _allowed(count: Any, table: Tensor) -> Tensor:
    return _spread(count, table) * (table > 0)

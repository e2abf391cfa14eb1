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
    """Counts that the M-step adds to the expected counts; they are Dirichlet priors with parameters ``1 + count``.

    Transitions whose probability is exactly zero are impossible and get no count.

    Args:
        initial: count added to starts in each state: a number or an array ``(K,)``.
        transition: count added to each transition: a number or an array ``(K, K)``.
        sticky: additional count of each state's transition to itself, a number or an array ``(K,)`` (Fox et al. 2008).
        final: count added to ends in each state: a number or an array ``(K,)``.
    """

    initial: Any = 0.0
    transition: Any = 0.0
    sticky: Any = 0.0
    final: Any = 0.0

    @classmethod
    def even(cls, count: float) -> Pseudocounts:
        """Return pseudocounts with the same ``count`` for every start, transition and end."""
        return cls(count, count, 0.0, count)

    def check(self, n_states: int) -> None:
        """Raise ``ValueError`` if a count is negative or not finite, or if a shape does not fit K states."""
        k = n_states
        for name, shape in {"initial": (k,), "transition": (k, k), "sticky": (k,), "final": (k,)}.items():
            values = numbers_of(f"{name} of the pseudocounts", getattr(self, name))
            if values.shape not in ((), shape):
                raise ValueError(f"{name} of the pseudocounts has shape {values.shape}; pass a number or {shape}")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} of the pseudocounts must be finite and 0 or more")

    def counts(self, parameters: Parameters) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the counts of starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)`` to add in an M-step.

        Counts are zero where the probability is zero. The counts of ends are None if ends are not events.

        Args:
            parameters: current probabilities of a chain of K states.
        """
        if self._are_zero:
            final = None if parameters.final is None else torch.zeros_like(parameters.final)
            return torch.zeros_like(parameters.initial), torch.zeros_like(parameters.transition), final
        n_rows, k = parameters.transition.shape
        sticky = torch.diag(_spread(self.sticky, parameters.initial)).repeat(n_rows // k, 1)
        final = None if parameters.final is None else _allowed(self.final, parameters.final)
        transition = _spread(self.transition, parameters.transition) + sticky
        return _allowed(self.initial, parameters.initial), transition * (parameters.transition > 0), final

    def arrays(self, n_states: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the counts of starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)`` as arrays for K = ``n_states``
        states.

        Unlike in ``counts``, they are also given for transitions whose probability is zero. The diagonal of the counts
        of transitions includes ``sticky``.
        """

        def spread(count: Any, *shape: int) -> np.ndarray:
            counts = np.empty(shape)
            counts[...] = count
            return counts

        between = spread(self.transition, n_states, n_states) + np.diag(spread(self.sticky, n_states))
        return spread(self.initial, n_states), between, spread(self.final, n_states)

    @property
    def _are_zero(self) -> bool:
        counts = (self.initial, self.transition, self.sticky, self.final)
        return all(isinstance(count, int | float) and count == 0 for count in counts)

    def log_prior(self, parameters: Parameters) -> Tensor:
        """Return the log-density of the Dirichlet prior at ``parameters`` in nats, up to a constant, as a scalar
        tensor.
        """
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
    """Return ``choice`` as ``Pseudocounts``; a number is the count of every start, transition and end."""
    return choice if isinstance(choice, Pseudocounts) else Pseudocounts.even(choice)


def _spread(count: Any, like: Tensor) -> Tensor:
    if isinstance(count, int | float):
        return like.new_full((), count, dtype=torch.float64).expand(like.shape)  # needs no copy from host to GPU
    return torch.as_tensor(count, dtype=torch.float64, device=like.device).expand(like.shape)


def _allowed(count: Any, table: Tensor) -> Tensor:
    return _spread(count, table) * (table > 0)

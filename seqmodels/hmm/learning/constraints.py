"""What bounds an M-step: parameters that are frozen, states that share an emission, Dirichlet priors of the chain.

A Dirichlet prior, ``log p = Σ pseudocount log probability``, adds counts to the expected ones: the M-step then gives
the maximum a posteriori, in proportion to both (Gauvain and Lee 1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions import Statistics
from seqmodels.hmm.parameters import Parameters
from seqmodels.parameters import Configurable

TABLES = ("initial", "transition", "emission")


@dataclass(eq=False, repr=False)
class Frozen(Configurable):
    """Parameters that EM leaves as they are.

    Args:
        initial: whether the distribution of the first state is frozen.
        transition: whether what follows a state, ends too, is frozen: of all states, or of those listed.
        emission: whether emissions are frozen: of all states, or of those listed.
    """

    initial: bool = False
    transition: bool | Sequence[int] = False
    emission: bool | Sequence[int] = False

    @classmethod
    def of(cls, choice: Any, n_states: int) -> Frozen:
        """What ``HMM(frozen=...)`` means: names of tables, a ``Frozen``, or None; else raises ``ValueError``."""
        if choice is None:
            return cls()
        if isinstance(choice, Frozen):
            choice.rows(choice.transition, n_states)
            choice.rows(choice.emission, n_states)
            return choice
        unknown = [choice] if isinstance(choice, str) else [name for name in choice if name not in TABLES]
        if unknown:
            raise ValueError(
                f"frozen is {choice!r}; pass a tuple of names among {', '.join(TABLES)}, or Frozen(emission=[0, 3]) "
                "for "
                "some states"
            )
        return cls(**{name: True for name in choice})

    def rows(self, which: bool | Sequence[int], n_states: int) -> Tensor:
        """``(K,)`` whether each state is frozen."""
        rows = torch.full((n_states,), which is True)
        if not isinstance(which, bool):
            wrong = [state for state in which if not 0 <= state < n_states]
            if wrong:
                raise ValueError(f"frozen names state {wrong[0]}, but states are numbered 0 to {n_states - 1}")
            rows[list(which)] = True
        return rows

    def keep(self, before: Parameters, after: Parameters) -> Parameters:
        """``after``, with what is frozen as ``before``."""
        k, device = len(before.initial), before.initial.device
        transition = self.rows(self.transition, k).to(device)
        emission = self.rows(self.emission, k).to(device)
        final = None
        if before.final is not None and after.final is not None:
            final = torch.where(transition, before.final, after.final)
        return Parameters(
            before.initial if self.initial else after.initial,
            torch.where(transition[:, None], before.transition, after.transition),
            final,
            torch.where(emission[:, None], before.table, after.table),
        )


@dataclass(frozen=True)
class Tying:
    """Which states share an emission: state k has the distinct one ``group[k]``; ``group (K,)`` is on the CPU."""

    group: Tensor

    @classmethod
    def of(cls, choice: Any, n_states: int) -> Tying:
        """What ``HMM(tied=...)`` means; None: no two states share.

        Raises ``ValueError`` for anything but K group numbers.
        """
        if choice is None:
            return cls(torch.arange(n_states))
        group = torch.as_tensor(choice)
        if group.shape != (n_states,) or group.dtype.is_floating_point:
            raise ValueError(
                f"tied is {choice!r}; pass a group number for each of the {n_states} states, as [0, 0, 1, ...]"
            )
        return cls(torch.unique(group, return_inverse=True)[1])

    @property
    def n_groups(self) -> int:
        """The number of distinct emissions."""
        return int(self.group.max()) + 1

    @property
    def is_free(self) -> bool:
        """Whether no two states share an emission."""
        return self.n_groups == len(self.group)

    def pool(self, statistics: Statistics) -> Statistics:
        """Statistics whose first axis is the state -> their sums over each group of states."""
        return tuple(
            s.new_zeros(self.n_groups, *s.shape[1:]).index_add_(0, self.group.to(s.device), s) for s in statistics
        )

    def one_each(self, table: Tensor) -> Tensor:
        """``(K, P)`` -> ``(G, P)``: each distinct row once."""
        states = torch.arange(len(self.group))
        first = torch.full((self.n_groups,), len(self.group)).scatter_reduce(0, self.group, states, "amin")
        return table[first.to(table.device)]

    def spread(self, rows: Tensor) -> Tensor:
        """``(G, P)`` -> ``(K, P)``: every state has the row of its group."""
        return rows[self.group.to(rows.device)]


@dataclass(frozen=True)
class Constraints:
    """What EM leaves as it is (``frozen``), and which states share an emission (``tying``)."""

    frozen: Frozen
    tying: Tying

    @classmethod
    def none(cls, n_states: int) -> Constraints:
        """Every parameter is free, every state has an emission of its own."""
        return cls(Frozen(), Tying.of(None, n_states))


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
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.shape not in ((), shape):
                raise ValueError(f"{name} of the pseudocounts has shape {values.shape}; pass a number or {shape}")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} of the pseudocounts must be finite and 0 or more")

    def counts(self, parameters: Parameters) -> tuple[Tensor, Tensor, Tensor | None]:
        """Counts of starts, transitions and ends, zero where the parameters are."""
        sticky = torch.diag(_spread(self.sticky, parameters.initial))
        final = None if parameters.final is None else _allowed(self.final, parameters.final)
        transition = _spread(self.transition, parameters.transition) + sticky
        return _allowed(self.initial, parameters.initial), transition * (parameters.transition > 0), final

    def log_prior(self, parameters: Parameters) -> Tensor:
        """Nats, up to a constant."""
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
    return torch.as_tensor(count, dtype=torch.float64, device=like.device).expand(like.shape)


def _allowed(count: Any, table: Tensor) -> Tensor:
    return _spread(count, table) * (table > 0)

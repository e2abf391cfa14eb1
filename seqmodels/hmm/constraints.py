"""What an M-step must leave as it is: parameters that are frozen, states that share an emission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
        """What ``HMM(frozen=...)`` means: names of tables, a ``Frozen``, or None; raises ``ValueError`` for anything else."""
        if choice is None:
            return cls()
        if isinstance(choice, Frozen):
            choice.rows(choice.transition, n_states), choice.rows(choice.emission, n_states)
            return choice
        unknown = [choice] if isinstance(choice, str) else [name for name in choice if name not in TABLES]
        if unknown:
            raise ValueError(
                f"frozen is {choice!r}; pass a tuple of names among {', '.join(TABLES)}, or Frozen(emission=[0, 3]) for "
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
        still = self.rows(self.transition, k).to(device)
        final = None
        if before.final is not None and after.final is not None:
            final = torch.where(still, before.final, after.final)
        return Parameters(
            before.initial if self.initial else after.initial,
            torch.where(still[:, None], before.transition, after.transition),
            final,
            torch.where(self.rows(self.emission, k).to(device)[:, None], before.table, after.table),
        )


@dataclass(frozen=True)
class Tying:
    """Which states share an emission: state k has the g-th distinct one, ``group[k] = g``; ``group (K,)`` on the CPU."""

    group: Tensor

    @classmethod
    def of(cls, choice: Any, n_states: int) -> Tying:
        """What ``HMM(tied=...)`` means; None: no two states share. Raises ``ValueError`` for anything but K group numbers."""
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
        """Distinct emissions."""
        return int(self.group.max()) + 1

    @property
    def is_free(self) -> bool:
        """Whether no two states share."""
        return self.n_groups == len(self.group)

    def pool(self, statistics: Statistics) -> Statistics:
        """Sums whose first axis is the state -> the group."""
        return tuple(
            s.new_zeros(self.n_groups, *s.shape[1:]).index_add_(0, self.group.to(s.device), s) for s in statistics
        )

    def one_each(self, table: Tensor) -> Tensor:
        """``(K, P)`` -> ``(G, P)``: each distinct row once."""
        states = torch.arange(len(self.group))
        first = torch.full((self.n_groups,), len(self.group)).scatter_reduce(0, self.group, states, "amin")
        return table[first.to(table.device)]

    def spread(self, rows: Tensor) -> Tensor:
        """``(G, P)`` -> ``(K, P)``."""
        return rows[self.group.to(rows.device)]


@dataclass(frozen=True)
class Constraints:
    """Both."""

    frozen: Frozen
    tying: Tying

    @classmethod
    def none(cls, n_states: int) -> Constraints:
        """Free."""
        return cls(Frozen(), Tying.of(None, n_states))

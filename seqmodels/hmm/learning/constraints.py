"""What an M-step leaves as it is: parameters that are frozen, and the emissions that states share (tying)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqmodels.common.parameters import Configurable
from seqmodels.hmm.emissions import Statistics
from seqmodels.hmm.parameters import Parameters

TABLES = ("initial", "transition", "emission")


@dataclass(eq=False, repr=False)
class Frozen(Configurable):
    """Parameters that EM leaves as they are.

    Args:
        initial: whether the distribution of the first state is frozen.
        transition: whether what follows a state, ends too, is frozen: of all states, or of those listed.
        emission: whether emissions are frozen: of all states, or of those listed.
        durations: whether the distributions of durations of an ``HSMM`` are frozen: of all states, or of those listed.
    """

    initial: bool = False
    transition: bool | Sequence[int] = False
    emission: bool | Sequence[int] = False
    durations: bool | Sequence[int] = False

    @classmethod
    def of(cls, choice: Any, n_states: int, names: Sequence[str] = TABLES) -> Frozen:
        """Return what ``ChainTraining(frozen=...)`` means: ``names`` of tables, a ``Frozen``, or None for nothing.

        Raises:
            ValueError: any other choice.
        """
        if choice is None:
            return cls()
        if isinstance(choice, Frozen):
            for which in (choice.transition, choice.emission, choice.durations):
                choice.rows(which, n_states)
            if "durations" not in names and choice.rows(choice.durations, n_states).any():
                raise ValueError("frozen names durations, which are those of an HSMM; of an HMM freeze transition")
            return choice
        unknown = [choice] if isinstance(choice, str) else [name for name in choice if name not in names]
        if unknown:
            raise ValueError(
                f"frozen is {choice!r}; pass a tuple of names among {', '.join(names)}, or "
                "hmm.Frozen(emission=[0, 3]) for some states"
            )
        return cls(**{name: True for name in choice})

    def rows(self, which: bool | Sequence[int], n_states: int) -> Tensor:
        """``(K,)`` whether each state is frozen."""
        is_frozen = torch.full((n_states,), which is True)
        if not isinstance(which, bool):
            wrong = [state for state in which if not 0 <= state < n_states]
            if wrong:
                raise ValueError(f"frozen names state {wrong[0]}, but states are numbered 0 to {n_states - 1}")
            is_frozen[list(which)] = True
        return is_frozen

    def keep(self, previous: Parameters, updated: Parameters) -> Parameters:
        """``updated``, with what is frozen as ``previous``."""
        k, device = len(previous.initial), previous.initial.device
        transition = self.rows(self.transition, k).to(device)
        emission = self.rows(self.emission, k).to(device)
        final = None
        if previous.final is not None and updated.final is not None:
            final = torch.where(transition, previous.final, updated.final)
        return Parameters(
            previous.initial if self.initial else updated.initial,
            torch.where(transition[:, None], previous.transition, updated.transition),
            final,
            torch.where(emission[:, None], previous.table, updated.table),
            _kept(transition, previous.transition_slopes, updated.transition_slopes),
            _kept(emission, previous.table_slopes, updated.table_slopes),
            previous.initial_slopes if self.initial else updated.initial_slopes,
        )


def _kept(is_frozen: Tensor, previous: Tensor | None, updated: Tensor | None) -> Tensor | None:
    """``updated`` slopes, ``(K, ., U)``, but of the states that are frozen the previous ones."""
    if previous is None or updated is None:
        return updated
    return torch.where(is_frozen[:, None, None], previous, updated)


@dataclass(frozen=True)
class Tying:
    """Which states share an emission: state k has the distinct one ``group[k]``; ``group (K,)`` is on the CPU."""

    group: Tensor

    @classmethod
    def from_argument(cls, choice: Any, n_states: int) -> Tying:
        """What ``ChainTraining(tied=...)`` means; None: no two states share.

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

    def spread(self, table_of_groups: Tensor) -> Tensor:
        """``(G, P)`` -> ``(K, P)``: every state has the row of its group."""
        return table_of_groups[self.group.to(table_of_groups.device)]


@dataclass(frozen=True)
class Constraints:
    """What EM leaves as it is (``frozen``), and which states share an emission (``tying``)."""

    frozen: Frozen
    tying: Tying

    @classmethod
    def none(cls, n_states: int) -> Constraints:
        """Every parameter is free, every state has an emission of its own."""
        return cls(Frozen(), Tying.from_argument(None, n_states))

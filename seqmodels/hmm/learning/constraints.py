"""Constraints on an M-step: frozen parameters, and emissions that several states share (tying)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.common.parameters import Configurable
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import transition_probabilities

TABLES = ("initial", "transition", "emission")


@dataclass(eq=False, repr=False)
class Frozen(Configurable):
    """A choice of parameters of a hidden Markov model that its fit leaves unchanged (frozen).

    For every argument but ``initial``, True freezes the parameters for all states, a list of state numbers freezes them
    for those states, and False freezes none.

    Args:
        initial: True to freeze the distribution of the first state.
        transition: states whose transition probabilities, and probability of ending, are frozen.
        emission: states whose emissions are frozen; states that are tied to one of them are frozen with it.
        durations: states whose duration distributions are frozen; only an ``HSMM`` has these.
    """

    initial: bool = False
    transition: bool | Sequence[int] = False
    emission: bool | Sequence[int] = False
    durations: bool | Sequence[int] = False

    @classmethod
    def of(cls, choice: Any, n_states: int, names: Sequence[str] = TABLES) -> Frozen:
        """Return the ``Frozen`` object that the argument ``frozen`` of ``ChainTraining`` stands for.

        Args:
            choice: None for nothing, a ``Frozen``, or a tuple of names (such as ``"transition"``) of parameters that
                are frozen for all states.
            n_states: number of states, K.
            names: names of the groups of parameters that the model has.

        Raises:
            ValueError: if a name is not in ``names``, a state does not exist, or durations are frozen where ``names``
                has none.
        """
        if choice is None:
            return cls()
        if isinstance(choice, Frozen):
            for which in (choice.transition, choice.emission, choice.durations):
                choice.rows(which, n_states)
            if "durations" not in names and choice.rows(choice.durations, n_states).any():
                raise ValueError("frozen names durations, which only an HSMM has; for an HMM, freeze transition")
            return choice
        unknown = [choice] if isinstance(choice, str) else [name for name in choice if name not in names]
        if unknown:
            raise ValueError(
                f"frozen is {choice!r}; pass a tuple of names among {', '.join(names)}, or "
                "hmm.Frozen(emission=[0, 3]) for some states"
            )
        return cls(**{name: True for name in choice})

    def rows(self, which: bool | Sequence[int], n_states: int) -> Tensor:
        """Return a mask ``(K,)`` that is True for each state that ``which``, such as the attribute ``transition``,
        freezes.

        Args:
            which: True for all states, False for none, or a list of state numbers.
            n_states: number of states, K.

        Raises:
            ValueError: if a state number is outside of 0 to K - 1.
        """
        is_frozen = torch.full((n_states,), which is True)
        if not isinstance(which, bool):
            wrong = [state for state in which if not 0 <= state < n_states]
            if wrong:
                raise ValueError(f"frozen names state {wrong[0]}, but states are numbered 0 to {n_states - 1}")
            is_frozen[list(which)] = True
        return is_frozen

    def keep(self, previous: Parameters, updated: Parameters) -> Parameters:
        """Return the parameters ``updated`` with every frozen one set back to its value in ``previous``."""
        k, device = len(previous.initial), previous.initial.device
        transition = self.rows(self.transition, k).repeat(len(previous.transition) // k).to(device)
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
            updated.duration_slopes,
        )


def _kept(is_frozen: Tensor, previous: Tensor | None, updated: Tensor | None) -> Tensor | None:
    """Return the ``updated`` slopes ``(K, ..., U)``, with the ``previous`` ones in place for each frozen state."""
    if previous is None or updated is None:
        return updated
    return torch.where(is_frozen[:, None, None], previous, updated)


@dataclass(frozen=True)
class Tying:
    """An assignment of K states to G emission distributions, for models in which several states share one (are tied).

    Attributes:
        group: number of the emission of each state, ``(K,)`` integers from 0 to G - 1, on the CPU.
    """

    group: Tensor

    @classmethod
    def from_argument(cls, choice: Any, n_states: int) -> Tying:
        """Return the assignment of states to emissions that the argument ``tied`` of ``ChainTraining`` stands for.

        Args:
            choice: a group number for each state, whose states share one emission; None means that no two states share
                one.
            n_states: number of states, K.

        Raises:
            ValueError: if ``choice`` is neither None nor one integer for each state.
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
        """The number G of distinct emission distributions, one for each group of states."""
        return int(self.group.max()) + 1

    @property
    def is_free(self) -> bool:
        """True if no two states share an emission distribution."""
        return self.n_groups == len(self.group)

    def whole_groups(self, is_chosen: Tensor) -> Tensor:
        """Return a mask ``(K,)`` of all states that share their emission with a chosen one.

        Args:
            is_chosen: mask of the chosen states, ``(K,)``.
        """
        return torch.isin(self.group, self.group[is_chosen])

    def pool(self, statistics: Statistics, n_earlier: int = 0) -> Statistics:
        """Return sufficient statistics summed over the states that share an emission.

        The first axis of each array goes from K states to G groups. If densities depend on ``n_earlier`` states before
        as well, it goes from tuples of states to tuples of groups, which are numbered with the newest state first.

        Args:
            statistics: sufficient statistics of the emissions, arrays whose first axis is the state (or tuple of
                states).
            n_earlier: number of earlier states that the density of a frame depends on.
        """
        group, n = self.group, self.n_groups
        for _ in range(n_earlier):
            group = (group[:, None] * self.n_groups + self.group).flatten()
            n *= self.n_groups
        return tuple(s.new_zeros(n, *s.shape[1:]).index_add_(0, group.to(s.device), s) for s in statistics)

    @property
    def is_first(self) -> Tensor:
        """A mask ``(K,)`` that is True for the first state of each group of states that share an emission."""
        states = torch.arange(len(self.group))
        return torch.isin(states, self.one_each(states))

    def one_each(self, table: Tensor) -> Tensor:
        """Return the row of the first state of each group of states that share an emission, ``(G, P)``.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        states = torch.arange(len(self.group))
        first = torch.full((self.n_groups,), len(self.group)).scatter_reduce(0, self.group, states, "amin")
        return table[first.to(table.device)]

    def once(self, each: Tensor, is_left_out: Tensor) -> Tensor:
        """Return a number for each state, which is zero for all but the first of states that share an emission.

        Args:
            each: a number for each state, ``(K,)``.
            is_left_out: mask of states whose number becomes zero too, ``(K,)``.
        """
        return torch.where((self.is_first & ~is_left_out).to(each.device), each, 0.0)

    def shared(self, table: Tensor) -> Tensor:
        """Return output parameters ``(K, P)`` in which each state has those of the first state of its group.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        return table if self.is_free else self.spread(self.one_each(table))

    def spread(self, table_of_groups: Tensor) -> Tensor:
        """Return output parameters ``(K, P)`` in which each of K states has the row of its group.

        Args:
            table_of_groups: P output parameters of each of G groups of states, ``(G, P)``.
        """
        return table_of_groups[self.group.to(table_of_groups.device)]


@dataclass(frozen=True)
class Constraints:
    """Restrictions on the M-step of a hidden Markov model: frozen parameters, and states that share an emission (are
    tied).

    Attributes:
        frozen: parameters that EM leaves unchanged.
        tying: which states share an emission.
    """

    frozen: Frozen
    tying: Tying

    @classmethod
    def of(cls, frozen: Frozen, tying: Tying) -> Constraints:
        """Return the constraints in which all states that share an emission are frozen if one of them is.

        Otherwise an M-step would move the other states away from it, and they would no longer share it.

        Args:
            frozen: parameters that the user froze.
            tying: which states share an emission.
        """
        is_frozen = frozen.rows(frozen.emission, len(tying.group))
        of_groups = tying.whole_groups(is_frozen)
        if torch.equal(of_groups, is_frozen):
            return cls(frozen, tying)
        states = of_groups.nonzero()[:, 0].tolist()
        return cls(Frozen(frozen.initial, frozen.transition, states, frozen.durations), tying)

    @property
    def frozen_groups(self) -> Tensor:
        """A mask ``(G,)`` of the groups of states that share an emission, True if the emission of one of its states is
        frozen.
        """
        is_frozen = torch.zeros(self.tying.n_groups, dtype=torch.bool)
        is_frozen[self.tying.group[self.frozen.rows(self.frozen.emission, len(self.tying.group))]] = True
        return is_frozen

    def kept_rows(self, parameters: Parameters) -> Tensor:
        """Return a mask of the rows of ``parameters.transition`` that a fit leaves unchanged (frozen transitions)."""
        k = len(parameters.initial)
        return self.frozen.rows(self.frozen.transition, k).repeat(len(parameters.transition) // k)

    def kept_numbers(self, table: Tensor, emission: Emission) -> Tensor:
        """Return a mask ``(K, P)`` of the output parameters that a fit leaves unchanged.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            emission: the emission distribution, which may keep some of its parameters by itself.
        """
        of_emission = emission.is_kept(self.tying.one_each(table))
        return self.tying.spread(of_emission | self.frozen_groups[:, None].to(table.device))

    def freezes(self, parameters: Parameters, emission: Emission) -> bool:
        """Return True if some of ``parameters`` are frozen, or kept unchanged by ``emission`` itself."""
        kept = (self.kept_rows(parameters), self.kept_numbers(parameters.table, emission))
        return self.frozen.initial or any(bool(each.any()) for each in kept)

    def keep(self, previous: Parameters, updated: Parameters, emission: Emission) -> Parameters:
        """Return ``updated`` with each frozen parameter set back to its value in ``previous``; for models without
        inputs.

        Args:
            previous: parameters before an update.
            updated: parameters after it.
            emission: the emission distribution, which may keep some of its parameters by itself.
        """
        kept = self.kept_numbers(previous.table, emission)
        return replace(self.keep_rows(previous, updated), table=torch.where(kept, previous.table, updated.table))

    def hold(self, previous: Parameters, updated: Parameters, emission: Emission) -> bool:
        """Return True if ``updated`` has the frozen parameters of ``previous``, and equal emissions for states that
        share one.
        """
        kept = self.keep(previous, updated, emission)
        tied = replace(kept, table=emission.tie(self.tying.shared(kept.table)))
        pairs = zip(vars(tied).values(), vars(updated).values(), strict=True)
        return all(torch.allclose(a, b) for a, b in pairs if a is not None)

    def keep_rows(self, previous: Parameters, updated: Parameters) -> Parameters:
        """Return ``updated`` with frozen probabilities and rates of the chain set back to those of ``previous``.

        Emissions are not changed. The generator (rates in continuous time) of ``updated`` may have more states than
        ``previous``, to which frozen rows do not lead.
        """
        initial = previous.initial if self.frozen.initial else updated.initial
        kept = self.kept_rows(previous).to(initial.device)
        transition, final, generator = updated.transition, updated.final, updated.generator
        if generator is not None and previous.generator is not None:
            n_more = len(generator) - len(kept)
            before = torch.nn.functional.pad(previous.generator, (0, n_more, 0, n_more))
            generator = torch.where(torch.nn.functional.pad(kept, (0, n_more))[:, None], before, generator)
            transition = transition_probabilities(generator, generator.new_ones(1))[0][: len(kept), : len(kept)]
        else:
            transition = torch.where(kept[:, None], previous.transition, transition)
        if final is not None and previous.final is not None:
            final = torch.where(kept, previous.final, final)
        return replace(updated, initial=initial, transition=transition, final=final, generator=generator)

    def without_rows(self, prior: Parameters) -> Parameters:
        """Return the hyperparameters ``prior`` with zeros for probabilities and rates that are frozen.

        Parameters with a hyperparameter of zero have no prior density, like transitions that the topology forbids.
        """
        free = ~self.kept_rows(prior)
        return replace(
            prior,
            initial=prior.initial * (not self.frozen.initial),
            transition=prior.transition * free[:, None],
            final=None if prior.final is None else prior.final * free,
            generator=None if prior.generator is None else prior.generator * free[:, None],
        )

    def tying_of(self, emission: Emission) -> Tying:
        """Return which states share an emission: as ``emission`` says itself if it models durations, else as the user
        chose.
        """
        return self.tying if emission.tied_states is None else Tying(emission.tied_states)

    @classmethod
    def none(cls, n_states: int) -> Constraints:
        """Return constraints under which every parameter is free and every state has its own emission."""
        return cls(Frozen(), Tying.from_argument(None, n_states))

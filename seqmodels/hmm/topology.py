"""Topologies: which transitions a chain has. Transitions that start at zero stay zero under EM (Rabiner 1989, IV.B)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.parameters import Configurable
from seqmodels.hmm.parameters import Parameters


class Topology(Configurable, ABC):
    """Base class of topologies, which say which transitions, first states and last states a chain of K states allows.

    What a topology forbids has a probability of exactly zero. To add one, define the methods below, which return
    boolean tensors on the CPU.
    """

    @property
    @abstractmethod
    def is_ordered(self) -> bool:
        """True if states follow one another in time, so that EM starts from sequences cut into K equal parts."""

    @abstractmethod
    def transition_mask(self, n_states: int) -> Tensor:
        """Return a mask ``(K, K)`` for K = ``n_states``, True where state j may follow state i."""

    @abstractmethod
    def initial_mask(self, n_states: int) -> Tensor:
        """Return a mask ``(K,)`` for K = ``n_states``, True for states in which a sequence may start."""

    @abstractmethod
    def final_mask(self, n_states: int) -> Tensor:
        """Return a mask ``(K,)`` for K = ``n_states``, True for states in which a sequence may end.

        It is only read under ``length="stop"``.
        """


@dataclass(eq=False, repr=False)
class Banded(Topology):
    """Topology in which state j may follow state i if ``|i - j| <= width``; sequences start and end in any state.

    Args:
        width: largest distance between the numbers of two states that follow each other; None allows all transitions.

    >>> Banded(1).transition_mask(4).int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """

    width: int | None = None

    @property
    def is_ordered(self) -> bool:
        return False

    def transition_mask(self, n_states: int) -> Tensor:
        width = n_states if self.width is None else _at_least("width", self.width, 0)
        states = torch.arange(n_states)
        return (states[:, None] - states).abs() <= width

    def initial_mask(self, n_states: int) -> Tensor:
        return torch.ones(n_states, dtype=torch.bool)

    def final_mask(self, n_states: int) -> Tensor:
        return torch.ones(n_states, dtype=torch.bool)


@dataclass(eq=False, repr=False)
class LeftToRight(Topology):
    """Left-to-right topology (Bakis's): a step stays in its state, goes to the next, or skips up to ``skips`` states.

    Sequences start in the first state, and no step goes back.

    Args:
        skips: largest number of states that one step may skip.
        end: ``"any"`` lets sequences end in any state under ``length="stop"``; ``"last"`` lets them end in the last
            state alone, so that sequences too short to reach it are impossible.

    >>> LeftToRight(skips=1).transition_mask(4).int().tolist()
    [[1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    """

    skips: int = 0
    end: Literal["any", "last"] = "any"

    @property
    def is_ordered(self) -> bool:
        return True

    def transition_mask(self, n_states: int) -> Tensor:
        states = torch.arange(n_states)
        ahead = states - states[:, None]
        return (ahead >= 0) & (ahead <= 1 + _at_least("skips", self.skips, 0))

    def initial_mask(self, n_states: int) -> Tensor:
        return torch.arange(n_states) == 0

    def final_mask(self, n_states: int) -> Tensor:
        if self.end not in ("any", "last"):
            raise ValueError(f"end is {self.end!r}; pass 'any' or 'last'")
        return torch.arange(n_states) >= (n_states - 1 if self.end == "last" else 0)


@dataclass(eq=False, repr=False)
class Arcs(Topology):
    """Topology given by boolean masks of the possible transitions, first states and last states.

    Args:
        transition: booleans ``(K, K)``, True where state j may follow state i.
        initial: booleans ``(K,)``, True for states in which a sequence may start; None means all.
        final: booleans ``(K,)``, True for states in which a sequence may end; None means all.
        ordered: True if states follow one another in time, so that EM starts from sequences cut into K equal parts.

    Raises:
        ValueError: when a model uses it, if a shape does not fit its number of states, or there is no state to start
            in.
    """

    transition: Any
    initial: Any = None
    final: Any = None
    ordered: bool = False

    @property
    def is_ordered(self) -> bool:
        return self.ordered

    def transition_mask(self, n_states: int) -> Tensor:
        return _mask("transition", self.transition, (n_states, n_states))

    def initial_mask(self, n_states: int) -> Tensor:
        return _mask("initial", self.initial, (n_states,))

    def final_mask(self, n_states: int) -> Tensor:
        return _mask("final", self.final, (n_states,))


@dataclass(eq=False, repr=False)
class Series(Topology):
    """Topology in which each state is a series of stages, so that the duration of a visit to it is not geometric.

    The stages are states of the chain, ``n_states`` of them, and form ``n_states / stages`` states for the user. A step
    stays in its stage, goes to the next, or from the last stage to the first of another state. A visit lasts the sum of
    ``stages`` geometric times. If every stage stays with probability q, its duration d is negative binomial,
    ``p(d) = C(d - 1, stages - 1) (1 - q)^stages q^(d - stages)``; EM learns a q for each stage (Russell and Cook 1987,
    *Experimental evaluation of duration modelling techniques*).

    Pass ``training=ChainTraining(tied=series.tied(n_states))`` as well, because otherwise the stages of a state have
    different emissions. Stage s of state i has the number ``i * stages + s``, so that ``path // stages`` are the states
    of a decoded path. Sequences start in a first stage and may end in any stage.

    Args:
        stages: number of stages of each state; a visit lasts at least so many steps.

    Raises:
        ValueError: when a model uses it, if its ``n_states`` is not a multiple of ``stages``.

    >>> Series(2).transition_mask(4).int().tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    >>> Series(2).tied(4)
    [0, 0, 1, 1]
    """

    stages: int

    @property
    def is_ordered(self) -> bool:
        return False

    def tied(self, n_states: int) -> list[int]:
        """Return the number of the state that each of ``n_states`` stages belongs to, for ``ChainTraining(tied=...)``.

        States of the chain that have one number then share one emission.

        Raises:
            ValueError: ``n_states`` is not a multiple of the number of stages of a state.
        """
        if self.stages < 1 or n_states % self.stages:
            raise ValueError(
                f"n_states is {n_states}, no multiple of the {self.stages} stages of each state; pass the number of "
                "states times stages"
            )
        return [stage // self.stages for stage in range(n_states)]

    def transition_mask(self, n_states: int) -> Tensor:
        state, stage = torch.tensor(self.tied(n_states)), torch.arange(n_states)
        next_stage = (stage == stage[:, None] + 1) & (state == state[:, None])
        next_state = self._last(n_states)[:, None] & self.initial_mask(n_states) & (state != state[:, None])
        return torch.eye(n_states, dtype=torch.bool) | next_stage | next_state

    def initial_mask(self, n_states: int) -> Tensor:
        self.tied(n_states)
        return torch.arange(n_states) % self.stages == 0

    def final_mask(self, n_states: int) -> Tensor:
        return torch.ones(n_states, dtype=torch.bool)

    def _last(self, n_states: int) -> Tensor:
        return torch.arange(n_states) % self.stages == self.stages - 1


def as_topology(choice: Any, n_states: int) -> Topology:
    """Return the topology that a model's argument ``topology`` stands for, checked for a number of states.

    Args:
        choice: ``"ergodic"``, ``"left-to-right"``, a mask ``(K, K)`` or a ``Topology``.
        n_states: number of states, K.

    Raises:
        ValueError: ``choice`` is not a topology of ``n_states`` states, or leaves no state to start in, or a state
            without transitions.
    """
    if isinstance(choice, str):
        if choice not in ("ergodic", "left-to-right"):
            raise ValueError(
                f"topology is {choice!r}; pass 'ergodic', 'left-to-right', a (K, K) mask, or an hmm.Topology"
            )
        return Banded() if choice == "ergodic" else LeftToRight()
    topology = choice if isinstance(choice, Topology) else Arcs(choice)
    transition_mask = topology.transition_mask(n_states)
    topology.final_mask(n_states)
    if not topology.initial_mask(n_states).any():
        raise ValueError(f"the topology {topology!r} has no state to start in; allow one")
    without = (~transition_mask.any(1)).nonzero()[:, 0].tolist()
    if without:
        raise ValueError(f"state {without[0]} of the topology has no transition, not even to itself; allow one")
    return topology


def restrict(parameters: Parameters, topology: Topology) -> Parameters:
    """Return ``parameters`` with impossible starts, transitions and ends set to zero, and distributions renormalised.

    ``topology`` says which are possible.
    """
    k, device = len(parameters.initial), parameters.initial.device
    initial = parameters.initial * topology.initial_mask(k).to(device)
    transition = parameters.transition * topology.transition_mask(k).to(device)
    total = transition.sum(1)
    final = None
    if parameters.final is not None:
        final = parameters.final * topology.final_mask(k).to(device)
        total = total + final
        final = final / total
    return replace(parameters, initial=initial / initial.sum(), transition=transition / total[:, None], final=final)


def breaks(parameters: Parameters, topology: Topology) -> bool:
    """Return True if ``parameters`` give probability to a start, transition or end that ``topology`` does not allow."""
    return next(_forbidden(parameters, topology), None) is not None


def check_allowed(parameters: Parameters, topology: Topology, choice: Any, *, rows: str = "transition") -> None:
    """Raise ``ValueError`` for a start, transition or end of given parameters that the topology does not allow.

    Args:
        parameters: the given parameters.
        topology: what is allowed.
        choice: the user's argument ``topology``, for the message.
        rows: name of the user's argument for the transitions, for the message.
    """
    for name, place, value in _forbidden(parameters, topology):
        raise ValueError(
            f"{rows if name == 'transition' else name}{place} is {value:g}, but topology={choice!r} does not allow it; "
            "pass 0 there, or leave topology out"
        )


def _forbidden(parameters: Parameters, topology: Topology) -> Iterator[tuple[str, list[int], float]]:
    """Yield each probability above zero in ``parameters`` that ``topology`` does not allow.

    Returns:
        The name of its array, its index in it, and its value.
    """
    k = len(parameters.initial)
    masks = {
        "initial": topology.initial_mask(k),
        "transition": topology.transition_mask(k),
        "final": topology.final_mask(k),
    }
    for name, mask in masks.items():
        values: Tensor | None = getattr(parameters, name)
        if values is not None:
            for place in ((values > 0) & ~mask).nonzero().tolist():
                yield name, place, float(values[tuple(place)])


def _mask(name: str, values: Any, shape: tuple[int, ...]) -> Tensor:
    if values is None:
        return torch.ones(shape, dtype=torch.bool)
    mask = np.asarray(values)
    if mask.shape != shape or not np.isin(mask, (0, 1)).all():
        raise ValueError(f"{name} of the topology has shape {mask.shape} and type {mask.dtype}; pass {shape} booleans")
    return torch.as_tensor(mask.astype(bool))


def _at_least(name: str, value: int, minimum: int) -> int:
    if value < minimum:
        raise ValueError(f"{name} of the topology is {value}; pass {minimum} or more")
    return value

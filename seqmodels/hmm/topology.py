"""Which transitions exist: those that do not start at zero, and EM keeps zeros (Rabiner 1989, section IV.B)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.parameters import Configurable
from seqmodels.hmm.parameters import Parameters


class Topology(Configurable, ABC):
    """What a chain of K states may do, as boolean tensors on the CPU. To add one, define the methods below."""

    @property
    @abstractmethod
    def is_ordered(self) -> bool:
        """Whether states follow one another in time, so that EM starts from sequences cut into K equal parts."""

    @abstractmethod
    def transition_mask(self, n_states: int) -> Tensor:
        """``(K, K)``: True where state j may follow state i."""

    @abstractmethod
    def initial_mask(self, n_states: int) -> Tensor:
        """``(K,)``: True where a sequence may start."""

    @abstractmethod
    def final_mask(self, n_states: int) -> Tensor:
        """``(K,)``: True where a sequence may end; read under ``length="stop"`` alone."""


@dataclass(eq=False, repr=False)
class Banded(Topology):
    """State j may follow state i if ``|i - j| <= width``; with None any may. Sequences start and end anywhere.

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
    """Bakis's model: stay, go on, or skip up to ``skips`` states. Sequences start in the first state.

    Args:
        skips: states that one step may leave out.
        end: under ``length="stop"`` sequences end in any state, or in the last alone: those with fewer steps than it
            takes to get there are then impossible.

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
    """Any topology, as masks.

    Args:
        transition: ``(K, K)`` booleans.
        initial, final: ``(K,)`` booleans; None: every state.
        ordered: states follow one another in time: EM starts from sequences cut into K equal parts.

    Raises:
        ValueError: shapes that do not fit, no state to start in.
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
    """States that last: each is several stages in a row with one emission, and its duration is not geometric.

    There are ``n_states / stages`` states: stay in a stage, go on to the next, from the last to another state. A visit
    takes ``stages`` geometric times, one after the other. If all stay with probability q, its duration is negative
    binomial, ``p(d) = C(d - 1, stages - 1) (1 - q)^stages q^(d - stages)``; EM lets each stage have its own q (Russell
    and Cook 1987, *Experimental evaluation of duration modelling techniques*).

    Pass ``training=ChainTraining(tied=series.tied(n_states))`` too, or stages of one state emit differently. Stage s of
    state i is number ``i * stages + s``, so ``path // stages`` are the states of a decoded path. Sequences start in a
    first stage and may end in any.

    Args:
        stages: of each state; a visit lasts at least as many steps.

    Raises:
        ValueError: ``n_states`` is no multiple of ``stages``.

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
        """The number of the state that each stage belongs to: ``ChainTraining(tied=...)``."""
        if self.stages < 1 or n_states % self.stages:
            raise ValueError(
                f"n_states is {n_states}, no multiple of the {self.stages} stages of each state; pass states times "
                "stages"
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
    """What ``HMM(topology=...)`` means; raises ``ValueError`` for what is no topology of ``n_states``."""
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
    """Parameters with zeros where the topology says so; what is left of each distribution is scaled up to one."""
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
    """Whether the parameters allow what the topology does not."""
    k = len(parameters.initial)
    if ((parameters.initial > 0) & ~topology.initial_mask(k)).any():
        return True
    if ((parameters.transition > 0) & ~topology.transition_mask(k)).any():
        return True
    return parameters.final is not None and bool(((parameters.final > 0) & ~topology.final_mask(k)).any())


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

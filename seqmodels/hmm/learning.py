"""How an HMM's chain is to be learned: the hyperparameters behind ``HMM``, checked and read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from seqmodels.hmm.constraints import Constraints, Frozen, Tying
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.priors import Pseudocounts, as_pseudocounts
from seqmodels.hmm.topology import Topology, as_topology, breaks
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.resources import refuse_beyond_memory

Algorithm = Literal["em", "stepwise", "gradient"]


@dataclass(frozen=True)
class Learning:
    """What EM is told of a chain of K states."""

    topology: Topology
    constraints: Constraints
    pseudocount: Pseudocounts

    @classmethod
    def of(cls, n_states: int, topology: Any, tied: Any, frozen: Any, pseudocount: Any, length: str) -> Learning:
        """Raises ``ValueError`` for what cannot be."""
        return cls(
            as_topology(topology, n_states),
            Constraints(Frozen.of(frozen, n_states), Tying.of(tied, n_states)),
            _pseudocounts(pseudocount, n_states, length),
        )

    def n_parameters(self, length: str, emission: Emission) -> int:
        """Free parameters of the chain and its emissions: neither what is frozen, nor twice what is tied, nor what cannot be."""
        k, frozen, tying = len(self.constraints.tying.group), self.constraints.frozen, self.constraints.tying
        free = ~frozen.rows(frozen.transition, k)
        after = self.topology.arcs(k).sum(1) - 1  # a row sums to one
        if length == "stop":
            after = after + self.topology.ends(k)
        starts = 0 if frozen.initial else int(self.topology.starts(k).sum()) - 1
        n_emissions = len(torch.unique(tying.group[~frozen.rows(frozen.emission, k)]))
        emissions = emission.n_parameters(n_emissions) if n_emissions else 0
        return starts + int(after[free].sum()) + emissions

    def check_together(self, algorithm: Algorithm, observation: Observation) -> None:
        """Raise ``ValueError`` for choices that do not go together."""
        frozen, tied = self.constraints.frozen, not self.constraints.tying.is_free
        if algorithm == "gradient" and (tied or frozen.initial or frozen.transition or frozen.emission):
            raise ValueError("algorithm='gradient' trains all parameters of all states; leave tied and frozen to 'em'")
        shared = isinstance(observation, GaussianMixture) and observation.covariance_type == "tied"
        if shared and (tied or not isinstance(frozen.emission, bool)):
            raise ValueError(
                "covariance_type='tied' is one covariance for all states, so that some states cannot be frozen or tied "
                "apart from the others; pass another covariance_type, or leave tied and frozen states out"
            )

    def check_start(self, parameters: Parameters, length: str) -> None:
        """Raise ``ValueError`` if EM cannot go on from these."""
        k, stops = len(parameters.initial), parameters.final is not None
        if k != len(self.constraints.tying.group):
            raise _differs("n_states", len(self.constraints.tying.group))
        if length not in ("auto", "stop" if stops else "given"):
            raise _differs("length", length)
        if breaks(parameters, self.topology):
            raise ValueError(
                f"the parameters allow transitions that topology={self.topology!r} does not, so warm_start cannot continue "
                "from them; pass the topology they have, or warm_start=False"
            )
        tying = self.constraints.tying
        if not torch.equal(tying.spread(tying.one_each(parameters.table)), parameters.table):
            raise ValueError(
                "states that are tied have different emissions, so warm_start cannot continue; leave tied out, or "
                "warm_start=False"
            )


def check_observation(wanted: Observation, fitted: Observation, size: int) -> None:
    """Raise ``ValueError`` if one has no place for the other's parameters."""
    if type(wanted) is not type(fitted) or wanted.n_output_parameters(size) != fitted.n_output_parameters(size):
        raise _differs("observation", wanted)


def _differs(name: str, value: Any) -> ValueError:
    return ValueError(
        f"{name}={value!r} differs from what was fitted, so warm_start cannot continue; set it back, or warm_start=False"
    )


def check_numbers(n_states: int, n_init: int, max_iter: int, tol: float) -> None:
    """Raise ``ValueError`` for numbers that cannot be."""
    for name, value in {"n_states": n_states, "n_init": n_init}.items():
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise ValueError(f"{name} is {value}; pass at least 1")
    # Before anything is made of them: a transition matrix, its counts and the mask of the topology.
    refuse_beyond_memory(f"the transitions of {n_states} states", 17.0 * n_states**2, "pass a smaller n_states")
    if max_iter < 0 or tol < 0:
        raise ValueError(f"max_iter={max_iter} and tol={tol} must not be negative")


def check_algorithm(algorithm: str, batches: int, step_decay: float, max_iter: int, lr: float) -> None:
    """Raise ``ValueError`` for what cannot be."""
    if algorithm not in ("em", "stepwise", "gradient"):
        raise ValueError(f"algorithm is {algorithm!r}; pass 'em', 'stepwise' or 'gradient'")
    if not lr > 0:
        raise ValueError(f"lr is {lr}; pass a number above zero")
    if algorithm == "stepwise" and max_iter < 1:
        raise ValueError("max_iter=0 makes no step in stepwise EM; pass at least 1, or algorithm='em'")
    if batches < 1:
        raise ValueError(f"batches is {batches}; pass at least 1")
    if not 0.5 <= step_decay <= 1:
        raise ValueError(f"step_decay is {step_decay}; pass a number from 0.5 to 1")


def _pseudocounts(choice: Any, n_states: int, length: str) -> Pseudocounts:
    if isinstance(choice, str):
        if choice != "auto":
            raise ValueError(f"pseudocount is {choice!r}; pass a number, 0 or more, a Pseudocounts, or 'auto'")
        return as_pseudocounts(0.01 if length == "stop" else 0.0)
    if not isinstance(choice, Pseudocounts) and not choice >= 0:
        raise ValueError(f"pseudocount is {choice!r}; pass a number, 0 or more, a Pseudocounts, or 'auto'")
    found = as_pseudocounts(choice)
    found.check(n_states)
    return found

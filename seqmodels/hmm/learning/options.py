"""The hyperparameters of ``HMM`` that say how its chain is learned, checked and read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.constraints import Constraints, Frozen, Tying
from seqmodels.hmm.learning.first_state import STARTS, Start, is_irreducible
from seqmodels.hmm.learning.priors import Pseudocounts, as_pseudocounts
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology, as_topology, breaks
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture, Observation

Algorithm = Literal["em", "stepwise", "gradient", "variational"]
StartChoice = Literal["auto", "free", "stationary", "uniform"]
FEW_SEQUENCES = 5  # from which their first states say where sequences start


@dataclass(frozen=True)
class StartData:
    """What of training data ``start="auto"`` depends on."""

    n_sequences: int
    length: str
    knows_states: bool = False
    is_conditional: bool = False


@dataclass(frozen=True)
class ChainOptions:
    """What EM is told of a chain of K states: which transitions exist, what it leaves as it is, and the prior."""

    topology: Topology
    constraints: Constraints
    pseudocount: Pseudocounts

    @classmethod
    def from_arguments(
        cls, n_states: int, topology: Any, tied: Any, frozen: Any, pseudocount: Any, length: str
    ) -> ChainOptions:
        """From the arguments of ``HMM``; raises ``ValueError`` for values that cannot be."""
        return cls(
            as_topology(topology, n_states),
            Constraints(Frozen.of(frozen, n_states), Tying.from_argument(tied, n_states)),
            chosen_pseudocounts(pseudocount, n_states, length),
        )

    def resolved_start(self, choice: StartChoice, algorithm: Algorithm, data: StartData) -> Start:
        """What ``HMM(start=...)`` comes to; raises ``ValueError`` for what cannot be."""
        k, frozen = len(self.constraints.tying.group), self.constraints.frozen
        irreducible = is_irreducible(self.topology, k)
        if choice == "auto":
            is_part_of_a_process = data.n_sequences < FEW_SEQUENCES and not (data.knows_states or data.is_conditional)
            is_plain = algorithm == "em" and data.length == "given" and not frozen.initial
            return "stationary" if is_part_of_a_process and is_plain and irreducible else "free"
        self.check_first_state(choice, algorithm, data.length)
        return choice

    def check_first_state(self, choice: StartChoice, algorithm: Algorithm, length: str) -> None:
        """Raise ``ValueError`` for a ``start`` that there is not, or that does not go with the other choices."""
        if choice not in ("auto", *STARTS):
            raise ValueError(f"start is {choice!r}; pass 'auto', 'free', 'stationary' or 'uniform'")
        if choice in ("stationary", "uniform") and self.constraints.frozen.initial:
            raise ValueError(
                f"start={choice!r} says what initial is, so it cannot be frozen too; leave one of them out"
            )
        if choice != "stationary":
            return
        if not is_irreducible(self.topology, len(self.constraints.tying.group)):
            raise ValueError(
                f"start='stationary' needs a chain in which every state leads to every other and may be the first, "
                f"which topology={self.topology!r} is not; pass start='free'"
            )
        if algorithm == "gradient" and length == "stop":
            raise ValueError(
                "start='stationary' under length='stop' is fitted by algorithm='em' or 'stepwise'; pass one of them, "
                "or start='free'"
            )

    def n_parameters(self, length: str, emission: Emission, start: Start) -> int:
        """Free parameters of chain and emissions, without what is frozen; what is tied counts once."""
        frozen, tying = self.constraints.frozen, self.constraints.tying
        k = len(tying.group)
        free = ~frozen.rows(frozen.transition, k)
        in_row = self.topology.transition_mask(k).sum(1) - 1  # a row sums to one
        if length == "stop":
            in_row = in_row + self.topology.final_mask(k)
        n_initial = 0 if frozen.initial or start != "free" else int(self.topology.initial_mask(k).sum()) - 1
        n_tables = len(torch.unique(tying.group[~frozen.rows(frozen.emission, k)]))
        n_emission = emission.n_parameters(n_tables) if n_tables else 0
        return n_initial + int(in_row[free].sum()) + n_emission

    @property
    def n_first_states(self) -> int:
        """Of how many states the first one may be, unless its distribution is frozen."""
        k = len(self.constraints.tying.group)
        return 0 if self.constraints.frozen.initial else int(self.topology.initial_mask(k).sum())

    def free_rows(self, n_states: int) -> tuple[Tensor, Tensor, Tensor]:
        """``(K, K)`` which transitions there are; ``(K,)`` which states have free transitions, and a free emission."""
        frozen = self.constraints.frozen
        leaves, emits = (~frozen.rows(which, n_states) for which in (frozen.transition, frozen.emission))
        return self.topology.transition_mask(n_states), leaves, emits

    def check_together(self, algorithm: Algorithm, observation: Observation) -> None:
        """Raise ``ValueError`` for choices that do not go together."""
        frozen, tied = self.constraints.frozen, not self.constraints.tying.is_free
        if algorithm == "gradient" and (tied or frozen.initial or frozen.transition or frozen.emission):
            raise ValueError("algorithm='gradient' trains all parameters of all states; leave tied and frozen to 'em'")
        of_mixtures = isinstance(observation, GaussianMixture) and observation.covariance_type == "tied"
        of_regressions = isinstance(observation, AutoregressiveGaussian) and observation.covariance_type == "tied"
        is_partly_frozen = not isinstance(frozen.emission, bool)
        if (of_mixtures and (tied or is_partly_frozen)) or (of_regressions and is_partly_frozen):
            raise ValueError(
                "covariance_type='tied' is one covariance for all states, so that some states cannot be frozen or tied "
                "apart from the others; pass another covariance_type, or leave tied and frozen states out"
            )

    def check_start(self, parameters: Parameters, length: str) -> None:
        """Raise ``ValueError`` if EM cannot go on from these."""
        tying, fitted_length = self.constraints.tying, "given" if parameters.final is None else "stop"
        if len(parameters.initial) != len(tying.group):
            raise _differs("n_states", len(tying.group))
        if length not in ("auto", fitted_length):
            raise _differs("length", length)
        if breaks(parameters, self.topology):
            raise ValueError(
                f"the parameters allow transitions that topology={self.topology!r} does not, so warm_start cannot "
                "continue from them; pass the topology they have, or warm_start=False"
            )
        if not torch.equal(tying.spread(tying.one_each(parameters.table)), parameters.table):
            raise ValueError(
                "states that are tied have different emissions, so warm_start cannot continue; leave tied out, or "
                "warm_start=False"
            )


def check_with_inputs(
    algorithm: Algorithm, start: StartChoice, tied: Any, *, of_transitions: bool, of_start: bool = False
) -> None:
    """Raise ``ValueError`` for choices that do not go with regressions on inputs; ``of_transitions``, ``of_start``: of
    these and of the first state too.
    """
    if algorithm in ("stepwise", "variational"):
        raise ValueError(f"algorithm={algorithm!r} fits no regressions on inputs; pass algorithm='em' or 'gradient'")
    if tied is not None:
        raise ValueError("states that are tied are fitted without inputs; leave tied out, or the inputs")
    if of_start and start not in ("auto", "free"):
        raise ValueError(
            f"start={start!r} says what the first state is, which then depends on no inputs; pass start='free', or "
            "leave first_state of input_effects out"
        )
    if of_transitions and start == "stationary":
        raise ValueError(
            "transitions that depend on inputs leave no distribution as it is; pass start='free' or start='uniform'"
        )


def check_variational(start: StartChoice, tied: Any, frozen: Any, pseudocount: Any) -> None:
    """Raise ``ValueError`` for choices that have no conjugate prior, or a prior beside it."""
    if start == "stationary":
        raise ValueError(
            "start='stationary' has no conjugate prior; pass start='free' or start='uniform', or algorithm='em'"
        )
    if tied is not None or frozen is not None:
        raise ValueError("algorithm='variational' learns all parameters of all states; leave tied and frozen to 'em'")
    if not isinstance(pseudocount, str) and pseudocount != 0:
        raise ValueError(
            f"pseudocount={pseudocount!r} has no part in algorithm='variational'; pass "
            "training=ChainTraining(prior=ConjugatePrior(transition=...)), whose concentrations are one more than "
            "pseudocounts"
        )


def check_same_start(choice: StartChoice, fitted: Start) -> None:
    """Raise ``ValueError`` if EM cannot go on with this ``start`` from a model fitted with the other."""
    if choice not in ("auto", fitted):
        raise _differs("start", choice)


def check_same_inputs(
    choices: Mapping[str, Any], slopes: Mapping[str, Tensor | None], named: tuple[str, ...], fitted: tuple[str, ...]
) -> None:
    """Raise ``ValueError`` if EM cannot go on with these inputs from a model fitted with others.

    Args:
        choices: by argument of ``HMM``.
        slopes: those that the model was fitted with, by argument too.
        named: the inputs that all of ``choices`` name.
        fitted: those that the model reads.
    """
    for name, choice in choices.items():
        if bool(choice) != (slopes[name] is not None):
            raise _differs(name, choice)
    if named != fitted:
        raise ValueError(
            f"the model was fitted with the inputs {', '.join(fitted)}, and {', '.join(choices)} now name "
            f"{', '.join(named)}, so warm_start cannot continue; set them back, or warm_start=False"
        )


def check_observation(observation: Observation, fitted: Observation, size: int) -> None:
    """Raise ``ValueError`` if the parameters of the one that was fitted are not those of the other."""
    if type(observation) is not type(fitted) or observation.n_output_parameters(size) != fitted.n_output_parameters(
        size
    ):
        raise _differs("observation", observation)


def _differs(name: str, value: Any) -> ValueError:
    return ValueError(
        f"{name}={value!r} differs from what was fitted, so warm_start cannot continue; set it back, or "
        "warm_start=False"
    )


def check_numbers(n_states: int, n_init: int | Literal["auto"], max_iter: int, tol: float) -> None:
    """Raise ``ValueError`` for numbers that cannot be."""
    for name, value in {"n_states": n_states, "n_init": n_init}.items():
        if name == "n_init" and isinstance(value, str) and value == "auto":
            continue
        if not (isinstance(value, int | np.integer) and value >= 1):
            way_out = {"n_states": "; choose(HMM(), X, n_states=range(1, 13)) tells how many", "n_init": ", or 'auto'"}
            raise ValueError(f"{name} is {value!r}; pass at least 1{way_out[name]}")
    # Before anything is made of them: a transition matrix, its counts and the mask of the topology.
    refuse_beyond_memory(f"the transitions of {n_states} states", 17.0 * n_states**2, "pass a smaller n_states")
    if max_iter < 0 or not 0 <= tol < math.inf:
        raise ValueError(f"max_iter={max_iter} and tol={tol} must be finite and not negative")


def check_table_size(n_states: int, n_numbers: int) -> None:
    """Raise ``ValueError`` for emission tables that are more than memory holds, before any are made."""
    refuse_beyond_memory(
        f"the emissions of {n_states} states, {n_numbers} numbers each,",
        24.0 * n_states * n_numbers,  # a table, its statistics and the table after
        "pass a smaller n_states, or data of fewer symbols or features",
    )


def check_algorithm(algorithm: str, batches: int, step_decay: float, max_iter: int, lr: float) -> None:
    """Raise ``ValueError`` for an algorithm that there is not, or options of one that cannot be."""
    if algorithm not in get_args(Algorithm):
        raise ValueError(f"algorithm is {algorithm!r}; pass 'em', 'stepwise', 'gradient' or 'variational'")
    if not 0 < lr < math.inf:
        raise ValueError(f"lr is {lr}; pass a finite number above zero")
    if algorithm == "stepwise" and max_iter < 1:
        raise ValueError("max_iter=0 makes no step in stepwise EM; pass at least 1, or algorithm='em'")
    if batches < 1:
        raise ValueError(f"batches is {batches}; pass at least 1")
    if not 0.5 <= step_decay <= 1:
        raise ValueError(f"step_decay is {step_decay}; pass a number from 0.5 to 1")


def chosen_pseudocounts(choice: Any, n_states: int, length: str) -> Pseudocounts:
    """What ``HMM(pseudocount=...)`` means; raises ``ValueError`` for what cannot be."""
    if isinstance(choice, str):
        if choice != "auto":
            raise ValueError(f"pseudocount is {choice!r}; pass a number, 0 or more, an hmm.Pseudocounts, or 'auto'")
        return as_pseudocounts(0.01 if length == "stop" else 0.0)
    if not isinstance(choice, Pseudocounts) and not choice >= 0:
        raise ValueError(f"pseudocount is {choice!r}; pass a number, 0 or more, an hmm.Pseudocounts, or 'auto'")
    pseudocounts = as_pseudocounts(choice)
    pseudocounts.check(n_states)
    return pseudocounts

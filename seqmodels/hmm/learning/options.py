"""The hyperparameters of ``HMM`` that determine how its chain is learned, with the checks of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
FEW_SEQUENCES = 5  # fewest sequences from which ``start="auto"`` learns where sequences start


@dataclass(frozen=True)
class StartData:
    """The properties of training data on which ``start="auto"`` depends.

    Attributes:
        n_sequences: number of sequences.
        length: ``"stop"`` if the end of a sequence is an event, else ``"given"``.
        knows_states: True if states were given with the data.
        is_conditional: True if the model is fitted with targets ``y``.
    """

    n_sequences: int
    length: str
    knows_states: bool = False
    is_conditional: bool = False


@dataclass(frozen=True)
class ChainArguments:
    """A model's constructor arguments that describe its chain, as the user passed them.

    They are checked when they are needed and not before, because checking them takes as long as scoring a short series.

    Attributes:
        n_states: number of states, K.
        length: ``"stop"`` if the end of a sequence is an event, else ``"given"``.
        topology: transitions that are possible.
        tied: a group number for each state, whose states share one emission distribution; None if no states share one.
        frozen: parameters that EM leaves unchanged.
        pseudocount: counts that are added to every expected count.
    """

    n_states: int
    length: str = "given"
    topology: Any = "ergodic"
    tied: Any = None
    frozen: Any = None
    pseudocount: Any = 0.0

    def options(self) -> ChainOptions:
        """Return the arguments after checking them and resolving ``"auto"``.

        Raises:
            ValueError: if a value is not allowed.
        """
        k = self.n_states
        return ChainOptions.from_arguments(k, self.topology, self.tied, self.frozen, self.pseudocount, self.length)


@dataclass(frozen=True)
class ChainOptions:
    """The structure of a Markov chain of K states, and the constraints and prior under which EM fits it.

    Attributes:
        topology: transitions that are possible.
        constraints: parameters that EM leaves unchanged, and states that share one emission distribution.
        pseudocount: Dirichlet prior of the chain's probabilities, as counts added to the expected ones.
    """

    topology: Topology
    constraints: Constraints
    pseudocount: Pseudocounts

    @classmethod
    def from_arguments(
        cls, n_states: int, topology: Any, tied: Any, frozen: Any, pseudocount: Any, length: str
    ) -> ChainOptions:
        """Return the options that the constructor arguments of a model such as ``HMM`` stand for.

        Args:
            n_states: number of states, K.
            topology: transitions that are possible.
            tied: a group number for each state, whose states share one emission distribution; None if no states share
                one.
            frozen: parameters that EM leaves unchanged.
            pseudocount: counts that are added to every expected count.
            length: ``"stop"`` if the end of a sequence is an event, else ``"given"``.

        Raises:
            ValueError: if a value is not allowed.
        """
        return cls(
            as_topology(topology, n_states),
            Constraints.of(Frozen.of(frozen, n_states), Tying.from_argument(tied, n_states)),
            chosen_pseudocounts(pseudocount, n_states, length),
        )

    def resolved_start(self, choice: StartChoice, algorithm: Algorithm, data: StartData) -> Start:
        """Return how the first state's distribution is determined, resolving ``"auto"`` from the data.

        ``"auto"`` is ``"stationary"`` for fewer than ``FEW_SEQUENCES`` sequences without known states, targets or ends,
        if the algorithm is EM, ``initial`` is not frozen and the topology is irreducible (every state leads to every
        other). Otherwise it is ``"free"``, learned.

        Args:
            choice: the argument ``start`` of the model.
            algorithm: algorithm of the fit.
            data: properties of the training data.

        Raises:
            ValueError: if ``choice`` does not go with the other options.
        """
        k, frozen = len(self.constraints.tying.group), self.constraints.frozen
        irreducible = is_irreducible(self.topology, k)
        if choice == "auto":
            is_part_of_a_process = data.n_sequences < FEW_SEQUENCES and not (data.knows_states or data.is_conditional)
            is_plain = algorithm == "em" and data.length == "given" and not frozen.initial
            return "stationary" if is_part_of_a_process and is_plain and irreducible else "free"
        self.check_first_state(choice, algorithm, data.length)
        return choice

    def check_first_state(self, choice: StartChoice, algorithm: Algorithm, length: str) -> None:
        """Raise ``ValueError`` if ``choice``, the argument ``start`` of a model, is unknown or impossible with the
        other options.

        ``"stationary"`` and ``"uniform"`` do not allow that ``initial`` is frozen. ``"stationary"`` also needs an
        irreducible topology, and cannot be trained by gradient under ``length="stop"``.
        """
        if choice not in ("auto", *STARTS):
            raise ValueError(f"start is {choice!r}; pass 'auto', 'free', 'stationary' or 'uniform'")
        if choice in ("stationary", "uniform") and self.constraints.frozen.initial:
            raise ValueError(
                f"start={choice!r} determines initial, so initial cannot be frozen too; leave one of them out"
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
        """Return the number of free parameters of chain and emissions.

        An emission that several states share counts once, and frozen parameters do not count.

        Args:
            length: ``"stop"`` if the end of a sequence is an event, else ``"given"``.
            emission: the emission distribution, which knows its number of parameters.
            start: how the first state's distribution is determined; only a ``"free"`` one has parameters.
        """
        frozen, tying = self.constraints.frozen, self.constraints.tying
        k = len(tying.group)
        free = ~frozen.rows(frozen.transition, k)
        in_row = self.topology.transition_mask(k).sum(1) - 1  # one less, because a row sums to one
        if length == "stop":
            in_row = in_row + self.topology.final_mask(k)
        n_initial = 0 if frozen.initial or start != "free" else int(self.topology.initial_mask(k).sum()) - 1
        n_tables = len(torch.unique(tying.group[~frozen.rows(frozen.emission, k)]))
        n_emission = emission.n_parameters(n_tables) if n_tables else 0
        return n_initial + int(in_row[free].sum()) + n_emission

    @property
    def n_first_states(self) -> int:
        """The number of states that may be the first; 0 if their distribution is frozen."""
        k = len(self.constraints.tying.group)
        return 0 if self.constraints.frozen.initial else int(self.topology.initial_mask(k).sum())

    def free_rows(self, n_states: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return three masks that say which transitions are possible and which states have parameters that are not
        frozen.

        Returns:
            Possible transitions, ``(K, K)``; states whose transitions are not frozen, ``(K,)``; and states whose
            emissions are not frozen, ``(K,)``, of which only one for each group of states that share an emission.
        """
        frozen, tying = self.constraints.frozen, self.constraints.tying
        emits = tying.is_first & ~tying.spread(self.constraints.frozen_groups)
        return self.topology.transition_mask(n_states), ~frozen.rows(frozen.transition, n_states), emits

    def check_together(self, observation: Observation) -> None:
        """Raise ``ValueError`` for tied states (which share an emission) or frozen states if the observation does not
        allow them.

        ``covariance_type="tied"`` does not, because its covariance belongs to all states: a mixture allows no tied and
        no single frozen states, an autoregression no single frozen states.
        """
        frozen, tied = self.constraints.frozen, not self.constraints.tying.is_free
        of_mixtures = isinstance(observation, GaussianMixture) and observation.covariance_type == "tied"
        of_regressions = isinstance(observation, AutoregressiveGaussian) and observation.covariance_type == "tied"
        is_partly_frozen = not isinstance(frozen.emission, bool)
        if (of_mixtures and (tied or is_partly_frozen)) or (of_regressions and is_partly_frozen):
            raise ValueError(
                "covariance_type='tied' is one covariance for all states, so that some states cannot be frozen or tied "
                "apart from the others; pass another covariance_type, or leave tied and frozen states out"
            )

    def check_start(self, parameters: Parameters, length: str) -> None:
        """Raise ``ValueError`` if EM cannot continue from these parameters under these options.

        It cannot if the number of states or the kind of ``length`` differs, if the topology forbids a transition that
        the parameters allow, or if tied states, which must share one emission, have different ones.
        """
        tying, fitted_length = self.constraints.tying, "given" if parameters.final is None else "stop"
        if len(parameters.initial) != len(tying.group):
            raise _differs("n_states", len(tying.group))
        if length not in ("auto", fitted_length):
            raise _differs("length", length)
        if breaks(parameters, self.topology):
            raise ValueError(
                f"the parameters allow transitions that topology={self.topology!r} does not, so EM cannot continue "
                "from them; pass the topology they have, or fit with warm_start=False"
            )
        if not torch.equal(tying.spread(tying.one_each(parameters.table)), parameters.table):
            raise ValueError(
                "states that are tied have different emissions, so EM cannot continue from them; leave tied out, or "
                "fit with warm_start=False"
            )


def check_with_inputs(start: StartChoice, *, of_transitions: bool, of_start: bool = False) -> None:
    """Raise ``ValueError`` for options that a model with regressions on inputs cannot have.

    These are a stationary first state if transitions depend on inputs, and any ``start`` but ``"free"`` if the first
    state does.

    Args:
        start: how the first state's distribution is determined.
        of_transitions: True if transitions are regressed on inputs.
        of_start: True if the first state is regressed on inputs.
    """
    if of_start and start not in ("auto", "free"):
        raise ValueError(
            f"start={start!r} determines the first state, which then depends on no inputs; pass start='free', or "
            "leave first_state of input_effects out"
        )
    if of_transitions and start == "stationary":
        raise ValueError(
            "transitions that depend on inputs have no stationary distribution; pass start='free' or start='uniform'"
        )


def check_variational(start: StartChoice, pseudocount: Any) -> None:
    """Raise ``ValueError`` for options that variational Bayes does not allow.

    These are a stationary first state, which has no conjugate prior, and a ``pseudocount``, which would be a second
    prior.

    Args:
        start: the model's argument ``start``.
        pseudocount: the model's argument ``pseudocount``, which must be 0 or a string such as ``"auto"``.
    """
    if start == "stationary":
        raise ValueError(
            "start='stationary' has no conjugate prior; pass start='free' or start='uniform', or algorithm='em'"
        )
    if not isinstance(pseudocount, str) and pseudocount != 0:
        raise ValueError(
            f"pseudocount={pseudocount!r} has no part in algorithm='variational'; pass "
            "training=ChainTraining(prior=ConjugatePrior(transition=...)), whose concentrations are one more than "
            "pseudocounts"
        )


def check_same_start(choice: StartChoice, fitted: Start) -> None:
    """Raise ``ValueError`` if EM cannot continue with ``start=choice`` from a model that was fitted with
    ``start=fitted``.
    """
    if choice not in ("auto", fitted):
        raise _differs("start", choice)


def check_same_inputs(
    choices: Mapping[str, Any], slopes: Mapping[str, Tensor | None], named: tuple[str, ...], fitted: tuple[str, ...]
) -> None:
    """Raise ``ValueError`` if a warm start cannot continue because the model was fitted with other inputs.

    Args:
        choices: the current arguments of ``ChainInputEffects`` that name inputs, by name.
        slopes: the slopes that the model was fitted with, by the same names; None if there are none.
        named: all inputs that ``choices`` name.
        fitted: the inputs that the fitted model reads.
    """
    for name, choice in choices.items():
        if bool(choice) != (slopes[name] is not None):
            raise _differs(name, choice)
    if named != fitted:
        raise ValueError(
            f"the model was fitted with the inputs {', '.join(fitted)}, and {', '.join(choices)} now name "
            f"{', '.join(named)}, so warm_start cannot continue; set them back, or warm_start=False"
        )


def check_same_structure(now: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a warm start cannot continue because an argument in ``now`` differs from the one in
    ``fitted``.

    Args:
        now: current arguments of the model by name.
        fitted: the arguments with which it was fitted, by the same names.
    """
    for name, value in now.items():
        if value != fitted[name]:
            raise ValueError(
                f"{name}={value!r} differs from what was fitted, {fitted[name]!r}, so warm_start cannot continue; set "
                "it back, or warm_start=False"
            )


def check_observation(observation: Observation, fitted: Observation, size: int) -> None:
    """Raise ``ValueError`` if EM cannot continue because the observation differs from the one that was fitted.

    Its class and its number of parameters must be the same.

    Args:
        observation: the current emission distribution.
        fitted: the emission distribution of the fitted model.
        size: number of features or symbols of the data.
    """
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
    """Raise ``ValueError`` for numbers out of range, or if a transition matrix of ``n_states`` states does not fit into
    memory.

    ``n_states`` and ``n_init`` must be integers of at least 1 (or ``n_init="auto"``), ``max_iter`` and ``tol`` at least
    0.
    """
    for name, value in {"n_states": n_states, "n_init": n_init}.items():
        if name == "n_init" and isinstance(value, str) and value == "auto":
            continue
        if not (isinstance(value, int | np.integer) and value >= 1):
            way_out = {"n_states": "; choose(HMM(), X, n_states=range(1, 13)) tells how many", "n_init": ", or 'auto'"}
            raise ValueError(f"{name} is {value!r}; pass at least 1{way_out[name]}")
    # Checked before they are made: a transition matrix, its counts and the mask of the topology.
    refuse_beyond_memory(f"the transitions of {n_states} states", 17.0 * n_states**2, "pass a smaller n_states")
    if max_iter < 0 or not 0 <= tol < math.inf:
        raise ValueError(f"max_iter={max_iter} and tol={tol} must be finite and not negative")


def check_table_size(n_states: int, n_numbers: int) -> None:
    """Raise ``ValueError`` if the output parameters of ``n_states`` states, ``n_numbers`` each, would not fit into
    memory.
    """
    refuse_beyond_memory(
        f"the emissions of {n_states} states, {n_numbers} numbers each,",
        24.0 * n_states * n_numbers,  # a table, its statistics and the table after
        "pass a smaller n_states, or data of fewer symbols or features",
    )


def check_algorithm(
    algorithm: str, algorithms: Sequence[Algorithm], batches: int, step_decay: float, max_iter: int, lr: float
) -> None:
    """Raise ``ValueError`` if the algorithm is not among ``algorithms``, or if one of its options is out of range.

    Args:
        algorithm: name of the algorithm.
        algorithms: names that the model allows.
        batches: number of mini-batches in an epoch, at least 1.
        step_decay: exponent of the step sizes of stepwise EM, from 0.5 to 1.
        max_iter: largest number of iterations, at least 1 for stepwise EM.
        lr: learning rate, finite and above 0.
    """
    if algorithm not in algorithms:
        names = [repr(name) for name in algorithms]
        raise ValueError(f"algorithm is {algorithm!r}; pass {' or '.join([', '.join(names[:-1]), names[-1]])}")
    if not 0 < lr < math.inf:
        raise ValueError(f"lr is {lr}; pass a finite number above zero")
    if algorithm == "stepwise" and max_iter < 1:
        raise ValueError("max_iter=0 makes no step in stepwise EM; pass at least 1, or algorithm='em'")
    if batches < 1:
        raise ValueError(f"batches is {batches}; pass at least 1")
    if not 0.5 <= step_decay <= 1:
        raise ValueError(f"step_decay is {step_decay}; pass a number from 0.5 to 1")


def chosen_pseudocounts(choice: Any, n_states: int, length: str) -> Pseudocounts:
    """Return the pseudocounts that the argument ``pseudocount`` of an ``HMM`` stands for.

    Args:
        choice: a number of at least 0, a ``Pseudocounts`` that fits ``n_states``, or ``"auto"``, which is 0.01 under
            ``length="stop"`` and 0 under ``length="given"``.
        n_states: number of states, K.
        length: ``"stop"`` if the end of a sequence is an event, else ``"given"``.

    Raises:
        ValueError: if ``choice`` is not one of these.
    """
    if isinstance(choice, str):
        if choice != "auto":
            raise ValueError(f"pseudocount is {choice!r}; pass a number, 0 or more, an hmm.Pseudocounts, or 'auto'")
        return as_pseudocounts(0.01 if length == "stop" else 0.0)
    if not isinstance(choice, Pseudocounts) and not choice >= 0:
        raise ValueError(f"pseudocount is {choice!r}; pass a number, 0 or more, an hmm.Pseudocounts, or 'auto'")
    pseudocounts = as_pseudocounts(choice)
    pseudocounts.check(n_states)
    return pseudocounts

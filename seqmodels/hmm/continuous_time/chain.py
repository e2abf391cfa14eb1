"""``JumpProcess``: the chain of a continuous-time HMM, a Markov jump process that is observed at given times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.generation import CursorState
from seqmodels.hmm.chains.first_order import FirstOrderChain
from seqmodels.hmm.conjugate import GammaRates
from seqmodels.hmm.continuous_time.cursor import ContinuousTimeCursor, TimedState, gaps_between
from seqmodels.hmm.continuous_time.expectations import expected_counts
from seqmodels.hmm.continuous_time.rates import RateObjective, checked_generator, with_generator
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import EMObjective, Expectations, MAPObjective
from seqmodels.hmm.learning.options import ChainOptions
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.state_queries import stationary
from seqmodels.hmm.topology import Arcs, Topology, as_topology
from seqmodels.inference.chains.continuous_time import (
    generator_of,
    generators_at,
    log_transitions_over,
    transition_probabilities,
)
from seqmodels.observations import Observation
from seqmodels.training import StopRule


@dataclass(frozen=True)
class JumpProcess(FirstOrderChain):
    """The hidden chain of a continuous-time HMM, a Markov jump process with transitions ``exp(Q t)`` over a time t.

    Q is the generator, the matrix of the rates of jumps between states, whose rows sum to zero.
    """

    @cached_property
    def options(self) -> ChainOptions:
        topology = _staying(self.arguments.topology, self.n_states)
        return replace(self.arguments, topology=topology).options()

    def n_parameters(self, emission: Emission) -> int:
        free = self.options.free_rows(self.n_states)
        slopes = self.inputs.n_parameters(self.options.n_first_states, *free, emission)
        return self.options.n_parameters("given", emission, self.start) + slopes

    def rows_family(self, examples: Sequence[Example] = ()) -> GammaRates:
        gaps = np.concatenate([_gaps(e)[1:] for e in examples] or [np.empty(0)])
        return GammaRates(float(gaps.mean()) or 1.0) if len(gaps) else GammaRates()

    # -- inference -----------------------------------------------------------------------------------------

    @property
    def has_one_matrix(self) -> bool:
        return False

    def corpus(
        self,
        examples: Sequence[Example],
        emission: Emission,
        device: torch.device,
        dtype: torch.dtype,
        past_filter: PastFilter | None = None,
    ) -> Corpus:
        """Return encoded sequences as a ``Corpus``, in which the time since the step before is apart from other inputs.

        Args:
            examples: encoded sequences, with the times of the steps as their first input.
            emission: the emission of the states.
            device: device of the computation.
            dtype: precision of the densities.
            past_filter: Kalman filter for missing values among past steps; None if none are missing.
        """
        gaps = [_gaps(e) for e in examples]
        if self.inputs.n_inputs:
            others = [replace(e, inputs=None if e.inputs is None else e.inputs[:, 1:]) for e in examples]
        else:
            others = [replace(e, inputs=None) for e in examples]
        return replace(super().corpus(others, emission, device, dtype, past_filter), gaps=gaps)

    def cursor(
        self,
        parameters: Parameters,
        observation: Observation,
        size: int,
        dtype: torch.dtype,
        make_past_filter: Callable[[], PastFilter] | None,
    ) -> ContinuousTimeCursor:
        return ContinuousTimeCursor(parameters, observation, size, dtype)

    def log_transitions_ahead(self, parameters: Parameters, inputs: Tensor | None) -> Tensor | None:
        """Return the log-probabilities of the transitions into each of the k steps after a sequence, ``(k, K, K)``.

        Return None if all of them are over one unit of time.

        Args:
            parameters: parameters of the process, with a generator.
            inputs: times and standardised inputs of the last step and of the k steps after it, ``(1 + k, 1 + U)``; a
                time that is NaN is one unit after the one before. None means that no times are known.
        """
        if inputs is None:
            return None
        assert parameters.generator is not None, "of this chain"
        gaps = gaps_between(inputs[:1, 0], inputs[None, 1:, 0], len(inputs) - 1)[0]
        return log_transitions_over(parameters.generator, gaps, parameters.transition_slopes, inputs[1:, 1:])

    def belief_of(self, state: CursorState) -> Tensor | None:
        assert isinstance(state, TimedState), "of this chain's cursor"
        return state.log_alpha

    # -- EM ------------------------------------------------------------------------------------------------

    def em_objective(self, objective: MAPObjective) -> EMObjective:
        return RateObjective(objective)

    def guesses(
        self,
        objective: MAPObjective,
        corpus: Corpus,
        batches: list[PackedBatch],
        generators: Sequence[torch.Generator],
        stop: StopRule,
    ) -> Iterator[Parameters]:
        """Yield the parameters from which each start of EM begins: those of an HMM, its transitions turned into rates.

        A rate is the transition probability divided by the mean time between steps.

        Args:
            objective: the objective of EM.
            corpus: the training data.
            batches: batches of the corpus from which the parameters are guessed.
            generators: one random generator for each start.
            stop: not read.
        """
        guesses = self.first_order_guesses(objective.emission, batches, generators)
        gaps = np.concatenate([each[1:] for each in corpus.gaps or []] or [np.empty(0)])
        total = float(gaps.sum())
        n_gaps = int((gaps > 0).sum())
        mean_gap = total / n_gaps if n_gaps else 1.0
        mask = self.options.topology.initial_mask(corpus.n_states)
        for guess in guesses:
            if self.start == "uniform":
                even = mask.to(guess.initial)
                guess = replace(guess, initial=even / even.sum())
            yield with_generator(guess, generator_of(guess.transition / mean_gap), self.start)

    def expectations_of_batch(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Expectations:
        return expected_counts(parameters, emission, batch, dtype, self.refuse, self.inputs.transition)

    def transitions_at(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return the transition probabilities over one unit of time at N rows of inputs, ``(N, K, K)``.

        Args:
            parameters: parameters of the process, with slopes of its rates.
            inputs: standardised inputs, ``(N, U)``.
        """
        assert parameters.generator is not None, "of this chain"
        assert parameters.transition_slopes is not None, "it depends on inputs"
        generators = generators_at(parameters.generator, parameters.transition_slopes, inputs)
        return transition_probabilities(generators, generators.new_ones(len(generators)))

    # -- checks --------------------------------------------------------------------------------------------

    def check_start(self, parameters: Parameters, emission: Emission, length: str) -> None:
        assert parameters.generator is not None, "of this chain"
        self.options.check_start(replace(parameters, transition=parameters.generator.clamp(min=0.0)), length)

    @property
    def arrays_of_file(self) -> tuple[str, ...]:
        return ("generator",)

    def check_parameters(self, parameters: Parameters, emission: Emission) -> None:
        assert parameters.generator is not None, "of this chain"
        generator = checked_generator(parameters.generator.numpy())
        if not torch.allclose(parameters.transition, with_generator(parameters, generator, "free").transition):
            raise ValueError("the transitions in the file do not follow from its generator")
        emission.observation.check_table(parameters.table, emission.size)

    # -- in the long run -----------------------------------------------------------------------------------

    def stationary(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        assert parameters.generator is not None, "of this chain"
        generator = parameters.generator.numpy()
        leaving = -generator.diagonal()
        uniformised = np.eye(len(leaving)) + generator / (2 * leaving.max() or 1.0)
        return stationary(parameters.initial.numpy(), uniformised, None)

    def mean_durations(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the mean duration of a visit to each state in units of time, ``(K,)``.

        It is infinite for a state that is never left.

        Args:
            parameters: parameters of the process, with a generator.
            emission: not read.
        """
        assert parameters.generator is not None, "of this chain"
        with np.errstate(divide="ignore"):
            return np.asarray(1 / -(parameters.generator.numpy().diagonal() - 0.0))


def _staying(choice: Any, n_states: int) -> Topology:
    """Return the topology of ``n_states`` states with all self-transitions allowed, as in continuous time.

    ``choice`` is the user's argument ``topology``, of which the other transitions are kept.
    """
    if not isinstance(choice, str | Topology) and np.shape(choice) == (n_states, n_states):
        choice = np.where(np.eye(n_states, dtype=bool), True, choice)  # a state that is never left needs it
    topology = as_topology(choice, n_states)
    mask = topology.transition_mask(n_states)
    if bool(mask.diagonal().all()):
        return topology
    stays = (mask | torch.eye(n_states, dtype=torch.bool)).tolist()
    return Arcs(stays, topology.initial_mask(n_states).tolist(), ordered=topology.is_ordered)


def _gaps(example: Example) -> np.ndarray:
    """Return the time of each step of ``example`` since the step before, ``(T,)``; 0 for the first step.

    Times are the first column of its inputs. If it has no inputs, every later step has 1.
    """
    if example.inputs is None:
        return np.minimum(np.arange(len(example.values), dtype=np.float64), 1.0)
    times = example.inputs[:, 0]
    gaps: np.ndarray = np.diff(times, prepend=times[:1])
    return gaps

"""``HiddenChain``: how hidden states follow each other, as a value that fitting, scoring, decoding and files read.

``HiddenChainModel`` has one implementation of everything that users call; what differs from chain to chain is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.encodings.inputs import InputScaling
from seqmodels.generation import Cursor, CursorState
from seqmodels.hmm.conjugate import DirichletRows, EmissionPrior, RowsFamily, prior_of
from seqmodels.hmm.coordinates import Coordinates, GivenInputs
from seqmodels.hmm.corpus import WAY_OUT, Corpus, PackedBatch, corpus_of, refuse
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.estimates import Emitted, emitted_of
from seqmodels.hmm.few_frames import FewFrames
from seqmodels.hmm.learning.em import EMObjective, Expectations, MAPObjective, RunningStatistics
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.options import Algorithm, ChainArguments, ChainOptions
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters, check_arrays
from seqmodels.hmm.standard_errors import FitObjective
from seqmodels.hmm.state_forecast import StatesAhead
from seqmodels.hmm.state_queries import stationary
from seqmodels.hmm.topology import Topology
from seqmodels.inference.chains.time_varying import log_transitions
from seqmodels.observations import Observation
from seqmodels.training import StopRule

TrellisT = TypeVar("TrellisT")
Groups = list[list[int]]  # for each label of a sequence the states that it may be


class FilteredSteps(NamedTuple):
    """The forward pass over one batch of sequences, in the order of the batch.

    Attributes:
        steps: for each sequence ``(T,)`` float64 log p(x_t | x_<t) in nats.
        ends: ``(n,)`` log-probability that the sequence ends after its last step, 0 where ends are no events.
        log_continues: returns the log-probability that a sequence has a step after step t, given its steps up to t.
    """

    steps: Sequence[Tensor]
    ends: Tensor
    log_continues: Callable[[int, int], float]


@dataclass(frozen=True)
class HiddenChain(ABC, Generic[TrellisT]):
    """The hidden chain of a model with K states: its prior and constraints, its inference and its part of EM.

    To add one, define the abstract methods here, and a ``HiddenChainModel`` whose ``_chain`` returns it. ``TrellisT``
    is the type of its inference problem: parameters and densities of one batch of sequences.

    Attributes:
        arguments: which transitions exist, what EM leaves as it is, and the prior of the chain's probabilities.
        start: how the distribution of the first state is determined.
        inputs: which probabilities and emissions are regressed on inputs.
    """

    arguments: ChainArguments
    start: Start = "free"
    inputs: InputOptions = field(default_factory=InputOptions)

    @property
    def n_states(self) -> int:
        """The number of states, K."""
        return self.arguments.n_states

    @property
    def has_final(self) -> bool:
        """True if the end of a sequence is an event with a probability."""
        return self.arguments.length == "stop"

    @cached_property
    def options(self) -> ChainOptions:
        """The arguments, checked and resolved; raises ``ValueError`` for arguments that are not allowed."""
        return self.arguments.options()

    # -- what its states emit ------------------------------------------------------------------------------

    def emission(self, observation: Observation, size: int) -> Emission:
        """Return the emission of frames with ``size`` features or symbols, whose tables EM estimates for each state."""
        return emission_of(observation, size)

    def emission_prior(self, observation: Observation, size: int) -> EmissionPrior:
        """Return the family of priors of the emissions; raises ``ValueError`` for an observation that has none."""
        return prior_of(observation, size)

    def rows_family(self, examples: Sequence[Example] = ()) -> RowsFamily:
        """Return the family of priors of the chain's rows, whose defaults may depend on training data."""
        return DirichletRows()

    @abstractmethod
    def n_parameters(self, emission: Emission) -> int:
        """Return how many free parameters chain and emissions have."""

    def observed_table(self, emission: Emission, table: Tensor) -> Tensor:
        """Return the columns ``(K, P)`` of a table that are output parameters of the observation."""
        return emission.observed(table)

    # -- inference -----------------------------------------------------------------------------------------

    def corpus(
        self,
        examples: Sequence[Example],
        emission: Emission,
        device: torch.device,
        dtype: torch.dtype,
        past_filter: PastFilter | None = None,
    ) -> Corpus:
        """Return encoded sequences as inference and EM read them, in batches."""
        one_matrix = self.has_one_matrix
        corpus = corpus_of(examples, emission, self.n_states, device, dtype, past_filter, has_one_matrix=one_matrix)
        return corpus if self.n_places == self.n_states else replace(corpus, n_states=self.n_places)

    @property
    def n_places(self) -> int:
        """The number of states of the Markov chain that the recursions run over."""
        return self.n_states

    @property
    @abstractmethod
    def has_one_matrix(self) -> bool:
        """True if all steps have the same transitions, so that long sequences may be cut into segments."""

    @abstractmethod
    def trellis(self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype) -> TrellisT:
        """Return the inference problem of one batch, with densities computed in ``dtype``."""

    def each_trellis(
        self, parameters: Parameters, emission: Emission, corpus: Corpus
    ) -> Iterator[tuple[PackedBatch, TrellisT]]:
        """Yield each batch of a corpus with its inference problem."""
        for batch in corpus.each_batch():
            yield batch, self.trellis(parameters, emission, batch, corpus.dtype)

    @abstractmethod
    def filtered(self, parameters: Parameters, trellis: TrellisT) -> FilteredSteps:
        """Return the log-probability of each step given the steps before it."""

    @abstractmethod
    def beliefs(self, trellis: TrellisT) -> list[Tensor]:
        """Return p(z_t | x_1 .. x_t) of each sequence, ``(T, K)``; rows are zero once the steps are impossible."""

    @abstractmethod
    def posteriors(self, trellis: TrellisT) -> tuple[list[Tensor], Tensor]:
        """Return p(z_t | x_1 .. x_T) of each sequence, ``(T, K)``, and log p(x) of each, ``(n,)``."""

    @abstractmethod
    def best_paths(self, trellis: TrellisT) -> tuple[list[Tensor], Tensor]:
        """Return the most probable path of states of each sequence, ``(T,)``, and its log p(path, x), ``(n,)``."""

    @abstractmethod
    def k_best_paths(self, trellis: TrellisT, k: int) -> list[tuple[Tensor, Tensor]]:
        """Return for each sequence its k most probable paths, ``(m, T)``, and their log p(path, x), ``(m,)``."""

    @abstractmethod
    def alignments(self, trellis: TrellisT, groups: Sequence[Groups]) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return the most probable paths through given labels in their order.

        Args:
            trellis: inference problem of n sequences.
            groups: for each sequence, the states that each of its labels may be.

        Returns:
            The label of each step, ``(T,)`` for each sequence; the state of each step, ``(T,)``; and log p(path, x) of
            each sequence, ``(n,)``.
        """

    @abstractmethod
    def log_prob_of_paths(self, trellis: TrellisT, paths: Sequence[Tensor]) -> Tensor:
        """Return log p(path, x) of each sequence with its path, ``(n,)`` float64; ``paths`` are ``(T,)`` states."""

    @abstractmethod
    def draws(self, trellis: TrellisT, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        """Return n paths of each sequence drawn from p(z | x), ``(T, n)``, and log p(x), ``(n_sequences,)``."""

    def device_of_draws(self, device: torch.device) -> torch.device:
        """Return the device of the generator that ``draws`` takes, for a model on ``device``."""
        return device

    @abstractmethod
    def last_beliefs(self, trellis: TrellisT) -> list[Tensor]:
        """Return the log-belief of the last step of each sequence, in the form that ``states_ahead`` takes."""

    @abstractmethod
    def states_ahead(
        self, parameters: Parameters, emission: Emission, log_belief: Tensor, k: int, inputs: Tensor | None = None
    ) -> StatesAhead:
        """Return the states of the next k steps after a log-belief of ``last_beliefs``.

        ``inputs (1 + k, U)`` are what the model reads of the last step and of the k steps; None if it reads nothing.
        """

    def log_transitions_ahead(self, parameters: Parameters, inputs: Tensor | None) -> Tensor | None:
        """Return the log-transitions into each of the k steps ahead, ``(k, K, K)``; None if one matrix is of all.

        ``inputs`` are those of ``states_ahead``.
        """
        if parameters.transition_slopes is None or inputs is None:
            return None
        return log_transitions(parameters.transition, parameters.transition_slopes, inputs[1:])

    def few_frames(self, parameters: Parameters, emission: Emission, examples: Sequence[Example]) -> FewFrames | None:
        """Return the examples for compiled loops that read few frames fast, or None where the chain has none."""
        return None

    @abstractmethod
    def cursor(
        self,
        parameters: Parameters,
        observation: Observation,
        size: int,
        dtype: torch.dtype,
        make_past_filter: Callable[[], PastFilter] | None,
    ) -> Cursor:
        """Return the chain as one-step predictions.

        Args:
            parameters: of the fitted model.
            observation: what a state emits.
            size: number of features or symbols.
            dtype: precision of densities.
            make_past_filter: makes what is known of missing past values, or None where the observation looks at none.
        """

    def together(self, draws: Sequence[Parameters]) -> Parameters | None:
        """Return one chain over the states of all draws, which never lead from one draw to another, or None."""
        return None

    @abstractmethod
    def belief_of(self, state: CursorState) -> Tensor | None:
        """Return log p(z_t | x_1 .. x_t) of a cursor's state, ``(n, K)``, or None before the first step."""

    # -- scores ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scored(
        self, parameters: Parameters, emission: Emission, corpus: Corpus, sources: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        """Return float64 log p(x_t | x_<t) of each sequence without its source, and its end where that is an event."""
        results: list[np.ndarray] = [np.empty(0)] * len(sources)
        for batch, trellis in self.each_trellis(parameters, emission, corpus):
            steps, ends, log_continues = self.filtered(parameters, trellis)
            for j, i in enumerate(batch.indices):
                source = sources[i]
                first = 0 if source is None else len(source)
                scored = steps[j][first:].cpu().numpy().copy()
                if first and self.has_final and scored[0] > -np.inf:
                    # After a source the sequence cannot end at once, so its first step is given that it goes on.
                    scored[0] -= log_continues(j, first - 1)
                results[i] = np.append(scored, float(ends[j])) if self.has_final else scored
        return results

    def score_sums(
        self,
        parameters: Parameters,
        emission: Emission,
        corpus: Corpus,
        sources: Sequence[np.ndarray | None],
        n_past: Sequence[int],
    ) -> np.ndarray:
        """Return ``(n,)`` the log-probability of each sequence without its first ``n_past`` steps."""
        scored = self.scored(parameters, emission, corpus, sources)
        return np.array([steps[n:].sum() for steps, n in zip(scored, n_past, strict=True)])

    # -- EM ------------------------------------------------------------------------------------------------

    def objective(self, emission: Emission, n_units: float, log_det: float) -> MAPObjective:
        """Return what the M-steps maximise, with the raw units in which its figures are reported."""
        options = self.options
        return MAPObjective(
            emission, options.pseudocount, options.constraints, n_units, log_det, self.start, self.inputs
        )

    def em_objective(self, objective: MAPObjective) -> EMObjective:
        """Return the objective with the M-step of this chain."""
        return objective

    @property
    def topology_of_start(self) -> Topology:
        """The topology of the steps from which EM starts."""
        return self.options.topology

    @property
    def runs_side_by_side(self) -> bool:
        """True if one E-step serves several starts at once, as it does for a Markov chain."""
        return False

    def first_order_guesses(
        self, emission: Emission, batches: list[PackedBatch], generators: Sequence[torch.Generator]
    ) -> Iterator[Parameters]:
        """Yield the parameters of a first-order chain of K states, guessed from ``batches``, for each generator."""
        options, has_final = self.options, self.has_final
        return starts(
            emission,
            batches,
            self.n_states,
            has_final=has_final,
            generators=generators,
            topology=options.topology,
            tying=options.constraints.tying,
        )

    @abstractmethod
    def guesses(
        self,
        objective: MAPObjective,
        corpus: Corpus,
        batches: list[PackedBatch],
        generators: Sequence[torch.Generator],
        stop: StopRule,
    ) -> Iterator[Parameters]:
        """Yield where EM starts, one for each generator, guessed from ``batches`` of the corpus."""

    @torch.no_grad()
    def expectations(
        self, parameters: Parameters, emission: Emission, batches: Sequence[PackedBatch], dtype: torch.dtype
    ) -> Expectations:
        """Return log p(x) and expected counts, summed over all batches (the E-step).

        Raises:
            ValueError: a sequence has probability zero; the message names it.
        """
        total = self.expectations_of_batch(parameters, emission, batches[0], dtype)
        for batch in batches[1:]:
            total = total + self.expectations_of_batch(parameters, emission, batch, dtype)
        return total

    @abstractmethod
    def expectations_of_batch(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Expectations:
        """Return log p(x) and expected counts of one batch, times its weight; raises as ``expectations`` does."""

    def statistics_of_frames(self, statistics: RunningStatistics | None, corpus: Corpus) -> RunningStatistics | None:
        """Return running statistics as means over frames, from means over as many steps as the E-step counted."""
        n_frames = sum(w * len(x) for w, x in zip(corpus.weights, corpus.sequences, strict=True))
        if statistics is None or statistics.n_frames == n_frames:
            return statistics
        return RunningStatistics(statistics.mean.scaled(statistics.n_frames / n_frames), statistics.n_batches, n_frames)

    @torch.no_grad()
    def forward_log_prob(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Tensor:
        """Return log p(x) of each sequence of a batch, ``(n,)``, by the forward pass that scores take."""
        steps, ends, _ = self.filtered(parameters, self.trellis(parameters, emission, batch, dtype))
        return torch.stack([each.sum() for each in steps]) + ends

    @abstractmethod
    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        """Return log p(x) of each sequence of a batch, ``(n,)`` float64; the sum is differentiable."""

    def emitted(self, emission: Emission, names: list[Any], least: float) -> Emitted:
        """Return which parameters of the emissions are estimated.

        Args:
            emission: the emission of the observation.
            names: names of features or symbols.
            least: the smallest probability that is not on the boundary.
        """
        return emitted_of(emission.observation, emission.size, names, least)

    def fit_objective(
        self,
        parameters: Parameters,
        emission: Emission,
        names: list[Any],
        corpus: Corpus,
        scaling: InputScaling | None,
    ) -> FitObjective:
        """Return what ``fit`` maximises as a function of unconstrained numbers, which are zero at ``parameters``.

        Args:
            parameters: the estimates.
            emission: the emission of the observation.
            names: names of features or symbols.
            corpus: training data, in float64 on the CPU.
            scaling: scaling of inputs, or None where nothing is regressed on inputs.
        """
        least, given = 1 / sum(map(len, corpus.sequences)), None
        emitted = self.emitted(emission, names, least)
        if scaling is not None and corpus.inputs is not None:
            given = GivenInputs.of(self.inputs, scaling, parameters, emitted, corpus.inputs)
        least_rate = 0.0
        if corpus.gaps is not None:
            least_rate = 1 / max(sum(float(gaps.sum()) for gaps in corpus.gaps), 1e-300)
        of_chain = (self.options, self.start, least, given, least_rate)
        coordinates = Coordinates(parameters, emission, emitted, *of_chain)

        def log_prob(parameters: Parameters, batch: PackedBatch) -> Tensor:
            return self.log_prob_of_batch(parameters, emission, batch)

        return FitObjective(coordinates, self.objective(emission, 1.0, 0.0), corpus.batches, log_prob, self.refuse)

    # -- checks --------------------------------------------------------------------------------------------

    def check_together(self, algorithm: Algorithm, observation: Observation) -> None:
        """Raise ``ValueError`` for an algorithm or observation that does not go with what is tied or frozen."""
        self.options.check_together(algorithm, observation)

    def check_start(self, parameters: Parameters, emission: Emission, length: str) -> None:
        """Raise ``ValueError`` if EM cannot go on from these parameters under the chain's options."""
        self.options.check_start(parameters, length)

    @property
    def n_rows(self) -> int:
        """The number of rows of ``Parameters.transition``; row r leads from state r mod K."""
        return self.n_states

    def reordered(self, parameters: Parameters, order: Tensor) -> Parameters:
        """Return the parameters whose state i is state ``order[i]`` of ``parameters``."""
        return parameters.take(order)

    @property
    def arrays_of_file(self) -> tuple[str, ...]:
        """Names of arrays that a file of this chain has beside initial, transition, final and table."""
        return ()

    def parameters_of_file(self, arrays: Mapping[str, np.ndarray], emission: Emission) -> Parameters:
        """Return the parameters that ``arrays`` of a file stored; raises ``ValueError`` for those that cannot be."""
        chosen = (self.inputs.transition, self.inputs.emission, self.inputs.start)
        names = ("transition_slopes", "table_slopes", "initial_slopes")
        slopes = [*(name for name, columns in zip(names, chosen, strict=True) if columns), *self.arrays_of_file]
        of_inputs: dict[str, Any] = {"slopes": slopes, "n_inputs": self.inputs.n_inputs}
        check_arrays(arrays, self.n_states, has_end=self.has_final, n_rows=self.n_rows, **of_inputs)
        parameters = Parameters.from_arrays(arrays)
        self.check_parameters(parameters, emission)
        return parameters

    def check_parameters(self, parameters: Parameters, emission: Emission) -> None:
        """Raise ``ValueError`` for parameters of a file that no fit could have learned."""
        emission.observation.check_table(parameters.table, emission.size)

    def on_floor(self, emission: Emission, table: Tensor, factor: float) -> Tensor:
        """Return the table with variances on the floor moved to ``factor`` times it."""
        return emission.observation.on_floor(table, emission.size, factor)

    @property
    def way_out(self) -> str:
        """The end of the error for a sequence of probability zero: advice on what to change."""
        return WAY_OUT

    @property
    def needs_of_path(self) -> str:
        """The things without which no path goes through given labels, for an error."""
        return "a transition or an emission that it would need"

    @property
    def checks_of_path(self) -> str:
        """The attributes to look at if no path goes through given labels, for an error."""
        return "transition_"

    def refuse(self, impossible: Sequence[int]) -> None:
        """Raise ``ValueError``, naming the first, if there are sequences of probability zero."""
        refuse(impossible, self.way_out)

    # -- in the long run -----------------------------------------------------------------------------------

    def stationary(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the share of its steps that a long sequence spends in each state, ``(K,)``."""
        p = parameters
        return stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())

    def transitions_at(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return the transitions into steps with inputs ``(N, U)``, on which they depend, ``(N, K, K)``."""
        assert parameters.transition_slopes is not None, "it depends on inputs"
        return log_transitions(parameters.transition, parameters.transition_slopes, inputs).exp()

    def mean_durations(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the mean number of steps of a visit to each state, ``(K,)``; infinite where it is never left."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / (1 - np.diag(parameters.transition.numpy())))


def is_impossible(log_belief: Tensor) -> bool:
    """Return True if a log-belief is -inf everywhere."""
    return float(log_belief.max()) == -math.inf

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
from seqmodels.hmm.learning.tied_family import tied_family
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters, check_arrays
from seqmodels.hmm.standard_errors import FitObjective
from seqmodels.hmm.state_forecast import StatesAhead
from seqmodels.hmm.state_queries import stationary
from seqmodels.hmm.topology import Topology
from seqmodels.inference.chains.given_inputs import log_transitions
from seqmodels.observations import Observation
from seqmodels.training import StopRule

TrellisT = TypeVar("TrellisT")
Groups = list[list[int]]  # for each label of a sequence the states that it may be


class FilteredSteps(NamedTuple):
    """The results of the forward pass over a batch of n sequences, in the order of the batch.

    Attributes:
        steps: log p(x_t | x_<t) of each step in nats, one float64 array ``(T,)`` for each sequence.
        ends: log-probability that each sequence ends after its last step, ``(n,)``; 0 if the end is not an event.
        log_continues: function of a sequence's position in the batch and a step t that returns the log-probability that
            the sequence has another step after step t, given its steps up to t.
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
        return tied_family(prior_of(observation, size), self.options.constraints)

    def rows_family(self, examples: Sequence[Example] = ()) -> RowsFamily:
        """Return the family of priors of the initial, transition and end probabilities.

        Defaults of these priors may depend on the training data ``examples``.
        """
        return DirichletRows()

    @abstractmethod
    def n_parameters(self, emission: Emission) -> int:
        """Return how many free parameters chain and emissions have."""

    def observed_table(self, emission: Emission, table: Tensor) -> Tensor:
        """Return the columns ``(K, P)`` of a state table that are parameters of the observation, not of the chain."""
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
        """Return encoded sequences in the form that inference and EM read in batches."""
        one_matrix = self.has_one_matrix
        corpus = corpus_of(examples, emission, self.n_states, device, dtype, past_filter, has_one_matrix=one_matrix)
        return corpus if self.n_places == self.n_states else replace(corpus, n_states=self.n_places)

    @property
    def n_places(self) -> int:
        """The number of states of the first-order Markov chain over which forward and backward passes run."""
        return self.n_states

    @property
    @abstractmethod
    def has_one_matrix(self) -> bool:
        """True if all steps have the same transitions, so that long sequences may be cut into segments."""

    @abstractmethod
    def trellis(self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype) -> TrellisT:
        """Return the parameters and densities of a batch, from which forward, backward and Viterbi passes run.

        ``dtype`` is the precision of the densities.
        """

    def each_trellis(
        self, parameters: Parameters, emission: Emission, corpus: Corpus
    ) -> Iterator[tuple[PackedBatch, TrellisT]]:
        """Yield each batch of a corpus with its ``trellis``, the input of inference."""
        for batch in corpus.each_batch():
            yield batch, self.trellis(parameters, emission, batch, corpus.dtype)

    @abstractmethod
    def filtered(self, parameters: Parameters, trellis: TrellisT) -> FilteredSteps:
        """Return the log-probability of each step given the steps before it, by the forward pass."""

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
        """Return n paths of each sequence drawn from p(z | x), ``(T, n)``, and log p(x) of each sequence.

        The second result has one entry for each sequence. ``generator`` lives on the device ``device_of_draws``.
        """

    def device_of_draws(self, device: torch.device) -> torch.device:
        """Return the device of the generator that ``draws`` takes, for a model on ``device``."""
        return device

    @abstractmethod
    def last_beliefs(self, trellis: TrellisT) -> list[Tensor]:
        """Return the log-probabilities of the hidden states at the last step of each sequence, given the sequence.

        Their form depends on the chain; ``states_ahead`` takes it.
        """

    @abstractmethod
    def states_ahead(
        self, parameters: Parameters, emission: Emission, log_belief: Tensor, k: int, inputs: Tensor | None = None
    ) -> StatesAhead:
        """Return the distribution of the hidden states in the k steps after a sequence.

        Args:
            parameters: parameters of the chain.
            emission: the emission of the states.
            log_belief: the sequence's result of ``last_beliefs``.
            k: number of steps.
            inputs: standardised inputs of the last step and of the k steps after it, ``(1 + k, U)``; None if the model
                reads none.
        """

    def log_transitions_ahead(self, parameters: Parameters, inputs: Tensor | None) -> Tensor | None:
        """Return the log-transitions into each of the k steps after a sequence, ``(k, K, K)``; None if all are equal.

        ``inputs``: standardised inputs of the last step and of the k steps, ``(1 + k, U)``; None if the model reads
        none.
        """
        if parameters.transition_slopes is None or inputs is None:
            return None
        return log_transitions(parameters.transition, parameters.transition_slopes, inputs[1:])

    def few_frames(self, parameters: Parameters, emission: Emission, examples: Sequence[Example]) -> FewFrames | None:
        """Return the examples in a form for compiled loops, which are fast on few frames; None if loops cannot run."""
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
        """Return the fitted chain as a cursor, which predicts one step at a time.

        Args:
            parameters: of the fitted model.
            observation: what a state emits.
            size: number of features or symbols.
            dtype: precision of densities.
            make_past_filter: function that makes a filter for missing values among past steps; None if the observation
                does not depend on past steps.
        """

    def together(self, draws: Sequence[Parameters]) -> Parameters | None:
        """Return one chain whose states are those of all ``draws`` of the parameters, or None if that cannot be formed.

        Each draw is a block of states; no transition leads from one block to another.
        """
        return None

    @abstractmethod
    def belief_of(self, state: CursorState) -> Tensor | None:
        """Return the filtered log p(z_t | x_1 .. x_t) in a cursor's state, ``(n, K)``; None before the first step."""

    # -- scores ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scored(
        self, parameters: Parameters, emission: Emission, corpus: Corpus, sources: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        """Return float64 log p(x_t | x_<t) of each step of each sequence, in nats, without the steps of its source.

        The log-probability of the end comes last where the end is an event. ``sources`` has the source that precedes
        each sequence, or None.
        """
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
        """Return the log-probability of each sequence in nats, ``(n,)``, without its source.

        The first ``n_past[i]`` steps of sequence i are read but not counted; ``sources`` is as in ``scored``.
        """
        scored = self.scored(parameters, emission, corpus, sources)
        return np.array([steps[n:].sum() for steps, n in zip(scored, n_past, strict=True)])

    # -- EM ------------------------------------------------------------------------------------------------

    def objective(self, emission: Emission, n_units: float, log_det: float) -> MAPObjective:
        """Return the objective of maximum a posteriori EM, whose figures are reported in nats per raw unit.

        ``n_units`` is the number of units of the training data; ``log_det`` is added to their log-density in nats to
        convert it from encoded to raw units.
        """
        options = self.options
        return MAPObjective(
            emission, options.pseudocount, options.constraints, n_units, log_det, self.start, self.inputs
        )

    def em_objective(self, objective: MAPObjective) -> EMObjective:
        """Return an objective with this chain's M-step in place of the M-step of an ordinary HMM."""
        return objective

    @property
    def topology_of_start(self) -> Topology:
        """The topology of the first-order chain whose guessed parameters EM starts from."""
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
        """Yield the parameters from which each start of EM begins, one for each random generator.

        Args:
            objective: the objective of EM.
            corpus: the training data.
            batches: batches of the corpus from which the parameters are guessed.
            generators: one random generator for each start.
            stop: rule by which EM stops, for chains whose guess is fitted by EM itself.
        """

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
        """Return log p(x) and the expected counts of one batch, multiplied by the batch's weight.

        Raises:
            ValueError: a sequence has probability zero; the message names it.
        """

    def statistics_of_frames(self, statistics: RunningStatistics | None, corpus: Corpus) -> RunningStatistics | None:
        """Return the running statistics after plain EM as means over frames.

        ``statistics`` are means over the steps that the E-step counts, of which there may be more or fewer; None stays
        None.
        """
        n_frames = sum(w * len(x) for w, x in zip(corpus.weights, corpus.sequences, strict=True))
        if statistics is None or statistics.n_frames == n_frames:
            return statistics
        return statistics.rescaled(n_frames)

    @torch.no_grad()
    def forward_log_prob(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Tensor:
        """Return log p(x) of each sequence of a batch in nats, ``(n,)``, by the same forward pass as ``filtered``."""
        steps, ends, _ = self.filtered(parameters, self.trellis(parameters, emission, batch, dtype))
        return torch.stack([each.sum() for each in steps]) + ends

    @abstractmethod
    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        """Return log p(x) of each sequence of a batch, ``(n,)`` float64; the sum is differentiable."""

    def emitted(self, emission: Emission, names: list[Any], least: float) -> Emitted:
        """Return which parameters of the emissions are estimated, for standard errors.

        Args:
            emission: the emission of the observation.
            names: names of features or symbols.
            least: probabilities below this, or above one minus this, count as on the boundary, and are not estimated.
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
        """Return what ``fit`` maximises as a function of unconstrained numbers ``u``; ``u = 0`` gives ``parameters``.

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
        """Raise ``ValueError`` if tied or frozen parameters do not go with the algorithm or the observation."""
        self.options.check_together(observation)

    def check_start(self, parameters: Parameters, emission: Emission, length: str) -> None:
        """Raise ``ValueError`` if EM cannot continue from these parameters under the options of the chain.

        ``length`` is ``"given"`` or ``"stop"``, the model's argument.
        """
        self.options.check_start(parameters, length)

    @property
    def n_rows(self) -> int:
        """The number of rows of ``Parameters.transition``; row r leads from state r mod K."""
        return self.n_states

    def reordered(self, parameters: Parameters, order: Tensor) -> Parameters:
        """Return the parameters with states renumbered: the new state i is the old state ``order[i]``."""
        return parameters.take(order)

    @property
    def arrays_of_file(self) -> tuple[str, ...]:
        """Names of arrays that a file of this chain has beside initial, transition, final and table."""
        return ()

    def parameters_of_file(self, arrays: Mapping[str, np.ndarray], emission: Emission) -> Parameters:
        """Return the parameters stored in a file as ``arrays``; raises ``ValueError`` if they are not valid."""
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
        """Return the table with each variance that is at its lower bound moved to ``factor`` times that bound."""
        return emission.observation.on_floor(table, emission.size, factor)

    @property
    def way_out(self) -> str:
        """The end of the error message for a sequence of probability zero: advice on what to change."""
        return WAY_OUT

    @property
    def needs_of_path(self) -> str:
        """A phrase for an error message: what must hold so that some path goes through the given labels."""
        return "a transition or an emission that it would need"

    @property
    def checks_of_path(self) -> str:
        """A phrase for an error message: the attributes to look at if no path goes through the given labels."""
        return "transition_"

    def refuse(self, impossible: Sequence[int]) -> None:
        """Raise ``ValueError`` if there are sequences of probability zero, whose numbers are in ``impossible``."""
        refuse(impossible, self.way_out)

    # -- in the long run -----------------------------------------------------------------------------------

    def stationary(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the fraction of steps that a long sequence spends in each state, ``(K,)``."""
        p = parameters
        return stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())

    def transitions_at(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return the transition probabilities into N steps with the standardised inputs ``(N, U)``, ``(N, K, K)``."""
        assert parameters.transition_slopes is not None, "it depends on inputs"
        return log_transitions(parameters.transition, parameters.transition_slopes, inputs).exp()

    def mean_durations(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the mean number of steps of a visit to each state, ``(K,)``; infinite where it is never left."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / (1 - np.diag(parameters.transition.numpy())))


def is_impossible(log_belief: Tensor) -> bool:
    """Return True if the log-probabilities of all states are -inf."""
    return float(log_belief.max()) == -math.inf

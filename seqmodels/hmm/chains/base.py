"""``HiddenChain``: how hidden states follow each other, as a value that fitting, scoring, decoding and files read.

``HiddenChainModel`` has one implementation of everything that users call; what differs from chain to chain is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

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
from seqmodels.hmm.learning.first_state import Start, differentiable_stationary
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.options import Algorithm, ChainArguments, ChainOptions
from seqmodels.hmm.learning.tied_family import tied_family
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.observed_information import ExactObjective
from seqmodels.hmm.parameters import SLOPES, Parameters, check_arrays
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
        log_continues: function of a sequence's position in the batch and of the number t of a step, which returns the
            log-probability that the sequence has another step after step t, given its steps up to t.
    """

    steps: Sequence[Tensor]
    ends: Tensor
    log_continues: Callable[[int, int], float]


@dataclass(frozen=True)
class HiddenChain(ABC, Generic[TrellisT]):
    """Base class of hidden chains of K states: how states follow each other, inference over them, and their part of EM.

    A hidden chain is a value without fitted parameters: its methods take ``Parameters``, and a *trellis*, the
    parameters and densities of one batch of sequences, from which forward, backward and Viterbi passes run.
    ``TrellisT`` is its type. To add a chain, define the abstract methods here, and a ``HiddenChainModel`` whose
    ``_chain`` returns it.

    Attributes:
        arguments: number of states, possible transitions, what EM leaves unchanged, and pseudocounts, as the user
            passed them.
        start: how the distribution of the first state is determined.
        inputs: columns of the inputs that transitions, emissions and the first state are regressed on.
    """

    arguments: ChainArguments
    start: Start = "free"
    inputs: InputOptions = field(default_factory=InputOptions)

    exact: ClassVar[type[ExactObjective]] = ExactObjective  # the objective of ``fit`` with exact second derivatives

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
        """The chain's arguments, checked and resolved; ``ValueError`` is raised for arguments that are not allowed."""
        return self.arguments.options()

    # -- what its states emit ------------------------------------------------------------------------------

    def emission(self, observation: Observation, size: int) -> Emission:
        """Return the emission: the densities of frames in each state, and the M-step of the observation's parameters.

        Args:
            observation: family of the distributions that the states emit from.
            size: number of features or symbols.
        """
        return emission_of(observation, size)

    def emission_prior(
        self, observation: Observation, size: int, make: Callable[[Observation, int], EmissionPrior] = prior_of
    ) -> EmissionPrior:
        """Return the family of priors of the emissions' parameters, for variational Bayes and posterior draws.

        Args:
            observation: family of the distributions that the states emit from.
            size: number of features or symbols.
            make: function that returns the prior of one state's emission; by default for posterior draws.

        Raises:
            ValueError: the observation has no prior.
        """
        return tied_family(make(observation, size), self.options.constraints)

    def rows_family(self, examples: Sequence[Example] = ()) -> RowsFamily:
        """Return the family of priors of the initial, transition and end probabilities.

        ``examples`` are the training data, on which defaults of the priors may depend.
        """
        return DirichletRows()

    @abstractmethod
    def n_parameters(self, emission: Emission) -> int:
        """Return the number of free parameters of the chain and of the ``emission`` of its states together."""

    def observed_table(self, emission: Emission, table: Tensor) -> Tensor:
        """Return the output parameters of what each state emits, ``(K, P)``, from a table of all its parameters.

        Output parameters are the P numbers that the observation takes. A table may have further columns, such as
        parameters of durations, which are left out.

        Args:
            emission: the emission of the states.
            table: parameters of the states, a row for each.
        """
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
        """Return encoded sequences as a ``Corpus``, from which inference and EM read them in batches.

        Args:
            examples: encoded sequences.
            emission: the emission of the states.
            device: device of the computation.
            dtype: precision of the densities.
            past_filter: Kalman filter for missing values among past steps; None if none are missing.
        """
        one_matrix = self.has_one_matrix
        corpus = corpus_of(examples, emission, self.n_states, device, dtype, past_filter, has_one_matrix=one_matrix)
        return corpus if self.n_places == self.n_states else replace(corpus, n_states=self.n_places)

    @property
    def n_places(self) -> int:
        """Number of states of the first-order Markov chain over which forward and backward passes run.

        It is K, or more for a chain in which a state is one of several states of that Markov chain.
        """
        return self.n_states

    @property
    @abstractmethod
    def has_one_matrix(self) -> bool:
        """True if all steps have the same transitions, so that long sequences may be cut into segments."""

    @abstractmethod
    def trellis(self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype) -> TrellisT:
        """Return the trellis of a batch: parameters and densities, from which forward, backward and Viterbi passes run.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            batch: some sequences.
            dtype: precision of the densities.
        """

    def each_trellis(
        self, parameters: Parameters, emission: Emission, corpus: Corpus
    ) -> Iterator[tuple[PackedBatch, TrellisT]]:
        """Yield each batch of a corpus with its trellis, the parameters and densities that inference reads.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            corpus: encoded sequences.
        """
        for batch in corpus.each_batch():
            yield batch, self.trellis(parameters, emission, batch, corpus.dtype)

    @abstractmethod
    def filtered(self, parameters: Parameters, trellis: TrellisT) -> FilteredSteps:
        """Return the log-probability of each step given the steps before it, by the forward pass.

        Args:
            parameters: parameters of the chain.
            trellis: parameters and densities of a batch of sequences.
        """

    @abstractmethod
    def beliefs(self, trellis: TrellisT) -> list[Tensor]:
        """Return p(z_t | x_1 .. x_t) of the K states at each step of each sequence, ``(T, K)``.

        Rows are zero once the steps are impossible. ``trellis`` has the parameters and densities of a batch of
        sequences.
        """

    @abstractmethod
    def log_predicted(self, trellis: TrellisT) -> list[Tensor]:
        """Return log p(hidden state of step t | x_<t) of each sequence up to a constant of each step, ``(T, S)``.

        The S hidden states are the rows of ``observed_table``. Rows are -inf once the steps are impossible.
        ``trellis`` has the parameters and densities of a batch of sequences.
        """

    def log_given_others(self, trellis: TrellisT) -> list[Tensor]:
        """Return log p(hidden state of step t | all steps but t) of each sequence up to a constant, ``(T, S)``.

        The S hidden states are the rows of ``observed_table``. ``trellis`` has the parameters and densities of a batch
        of sequences.

        Raises:
            ValueError: it is not known for this chain.
        """
        raise ValueError(
            f"the states of a {type(self).__name__} given all steps but one are not known; pass given='past'"
        )

    @abstractmethod
    def posteriors(self, trellis: TrellisT) -> tuple[list[Tensor], Tensor]:
        """Return p(z_t | x_1 .. x_T) of the states of each sequence, ``(T, K)``, and log p(x) of each, ``(n,)``.

        ``trellis`` has the parameters and densities of a batch of n sequences.
        """

    @abstractmethod
    def best_paths(self, trellis: TrellisT) -> tuple[list[Tensor], Tensor]:
        """Return the most probable path of states of each sequence, ``(T,)``, and its log p(path, x), ``(n,)``.

        ``trellis`` has the parameters and densities of a batch of n sequences.
        """

    @abstractmethod
    def k_best_paths(self, trellis: TrellisT, k: int) -> list[tuple[Tensor, Tensor]]:
        """Return each sequence's k most probable paths, ``(m, T)``, best first, and their log p(path, x), ``(m,)``.

        Args:
            trellis: parameters and densities of a batch of sequences.
            k: number of paths; m is smaller where fewer are possible.
        """

    @abstractmethod
    def alignments(self, trellis: TrellisT, groups: Sequence[Groups]) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return for each sequence the most probable path of states that goes through given labels in their order.

        Args:
            trellis: parameters and densities of a batch of n sequences.
            groups: for each sequence, and each of its labels in order, the list of states that the label stands for.

        Returns:
            For each sequence the position of each step's label among its labels, ``(T,)``; for each the state of each
            step, ``(T,)``; and log p(path, x) of each sequence, ``(n,)``.
        """

    @abstractmethod
    def log_prob_of_paths(self, trellis: TrellisT, paths: Sequence[Tensor]) -> Tensor:
        """Return log p(path, x) of each sequence x with a given path of its states, ``(n,)`` float64.

        Args:
            trellis: parameters and densities of a batch of n sequences.
            paths: states of each sequence, ``(T,)`` integers.
        """

    @abstractmethod
    def draws(self, trellis: TrellisT, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        """Return paths of states of each sequence drawn from p(z | x), ``(T, n)``, and log p(x) of each sequence.

        Args:
            trellis: parameters and densities of a batch of sequences.
            n: number of paths of each sequence.
            generator: random generator on the device that ``device_of_draws`` returns.
        """

    def device_of_draws(self, device: torch.device) -> torch.device:
        """Return the device of the random generator that ``draws`` takes, for a model that computes on ``device``."""
        return device

    @abstractmethod
    def last_beliefs(self, trellis: TrellisT) -> list[Tensor]:
        """Return the log-probabilities of what is hidden at the last step of each sequence, given the whole sequence.

        By default they are those of the K states, ``(K,)``; other chains have the states of several steps, or the steps
        left of a segment. ``states_ahead`` takes them. ``trellis`` has the parameters and densities of a batch of
        sequences.
        """

    @abstractmethod
    def states_ahead(
        self, parameters: Parameters, emission: Emission, log_belief: Tensor, k: int, inputs: Tensor | None = None
    ) -> StatesAhead:
        """Return the distribution of the hidden states in the k steps after a sequence.

        Args:
            parameters: parameters of the chain.
            emission: the emission of the states.
            log_belief: log-probabilities of what is hidden at the last step, as ``last_beliefs`` returns them for the
                sequence.
            k: number of steps.
            inputs: standardised inputs of the last step and of the k steps after it, ``(1 + k, U)``; None if the model
                reads none.
        """

    def log_transitions_ahead(self, parameters: Parameters, inputs: Tensor | None) -> Tensor | None:
        """Return the log-probabilities of the transitions into each of the k steps after a sequence, ``(k, K, K)``.

        Return None if they are the same at all steps.

        Args:
            parameters: parameters of the chain.
            inputs: standardised inputs of the last step and of the k steps, ``(1 + k, U)``; None if the model reads
                none.
        """
        if parameters.transition_slopes is None or inputs is None:
            return None
        return log_transitions(parameters.transition, parameters.transition_slopes, inputs[1:])

    def few_frames(self, parameters: Parameters, emission: Emission, examples: Sequence[Example]) -> FewFrames | None:
        """Return the examples in a form for compiled loops, which are fast on few frames; None if they cannot run.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            examples: encoded sequences.
        """
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
        """Return the fitted chain as a cursor, which reads sequences step by step and predicts each next step.

        Args:
            parameters: parameters of the fitted model.
            observation: family of the distributions that the states emit from.
            size: number of features or symbols.
            dtype: precision of densities.
            make_past_filter: function that makes a filter for missing values among past steps; None if the observation
                does not depend on past steps.
        """

    def together(self, draws: Sequence[Parameters]) -> Parameters | None:
        """Return one chain whose states are those of all ``draws`` of the parameters; None if there is no such chain.

        Each draw is a block of K states; no transition leads from one block to another. Its predictions are the average
        over the draws.
        """
        return None

    @abstractmethod
    def belief_of(self, state: CursorState) -> Tensor | None:
        """Return log p(z_t | x_1 .. x_t) of the states at the last step, ``(n, K)``; None before the first step.

        ``state`` is the state of the chain's cursor after some steps of n sequences.
        """

    # -- scores ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scored(
        self, parameters: Parameters, emission: Emission, corpus: Corpus, sources: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        """Return log p(x_t | x_<t) of each step of each sequence in nats, float64, without the steps of its source.

        Where ends are events, the log-probability of the end comes last.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            corpus: encoded sequences, each with its source (earlier steps that it is conditioned on) before it.
            sources: the source of each sequence, or None where it has none.
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

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            corpus: n encoded sequences, each with its source (earlier steps that it is conditioned on) before it.
            sources: the source of each sequence, or None where it has none.
            n_past: number of first steps of each sequence after its source that are read but not counted.
        """
        scored = self.scored(parameters, emission, corpus, sources)
        return np.array([steps[n:].sum() for steps, n in zip(scored, n_past, strict=True)])

    # -- EM ------------------------------------------------------------------------------------------------

    def objective(self, emission: Emission, n_units: float, log_det: float) -> MAPObjective:
        """Return the objective of maximum a posteriori EM, whose figures are reported in nats per raw unit.

        Args:
            emission: the emission of the states.
            n_units: number of raw units of the training data: steps, or bytes of text.
            log_det: nats to add to the log-density of encoded data for that of raw data.
        """
        options = self.options
        return MAPObjective(
            emission, options.pseudocount, options.constraints, n_units, log_det, self.start, self.inputs
        )

    def em_objective(self, objective: MAPObjective) -> EMObjective:
        """Return an objective of EM that has this chain's M-step, given the ``objective`` with the M-step of an HMM."""
        return objective

    @property
    def topology_of_start(self) -> Topology:
        """Topology of the first-order chain whose guessed parameters EM starts from."""
        return self.options.topology

    @property
    def runs_side_by_side(self) -> bool:
        """True if one E-step serves several starts at once, as it does for a Markov chain."""
        return False

    def first_order_guesses(
        self, emission: Emission, batches: list[PackedBatch], generators: Sequence[torch.Generator]
    ) -> Iterator[Parameters]:
        """Yield guessed parameters of a first-order chain of K states, once for each random generator.

        Args:
            emission: the emission of the states.
            batches: data from which the parameters are guessed.
            generators: one random generator for each start of EM.
        """
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
        """Return log p(x) and expected counts of the chain and its emissions, summed over batches (the E-step).

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            batches: the data.
            dtype: precision of the densities.

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

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            batch: some sequences of equal weight.
            dtype: precision of the densities.

        Raises:
            ValueError: a sequence has probability zero; the message names it.
        """

    def statistics_of_frames(self, statistics: RunningStatistics | None, corpus: Corpus) -> RunningStatistics | None:
        """Return the running statistics that EM leaves, for ``partial_fit``, as means over the frames of the data.

        Args:
            statistics: means over the steps that the E-step counts, of which there may be more or fewer than frames;
                None stays None.
            corpus: the training data.
        """
        n_frames = sum(w * len(x) for w, x in zip(corpus.weights, corpus.sequences, strict=True))
        if statistics is None or statistics.n_frames == n_frames:
            return statistics
        return statistics.rescaled(n_frames)

    @torch.no_grad()
    def forward_log_prob(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Tensor:
        """Return log p(x) of each sequence of a batch in nats, ``(n,)``, by a forward pass alone.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            batch: n sequences.
            dtype: precision of the densities.
        """
        steps, ends, _ = self.filtered(parameters, self.trellis(parameters, emission, batch, dtype))
        return torch.stack([each.sum() for each in steps]) + ends

    @abstractmethod
    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        """Return log p(x) of each sequence of a batch in nats, ``(n,)`` float64, of which the sum is differentiable.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            batch: n sequences.
        """

    def emitted(self, emission: Emission, names: list[Any], least: float) -> Emitted:
        """Return a description of the emissions' parameters, which says which of them have standard errors.

        Args:
            emission: the emission of the states.
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
            emission: the emission of the states.
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
        """Raise ``ValueError`` if tied or frozen parameters do not go with the algorithm or the observation.

        Args:
            algorithm: name of the algorithm that learns the parameters.
            observation: family of the distributions that the states emit from.
        """
        self.options.check_together(observation)

    def check_start(self, parameters: Parameters, emission: Emission, length: str) -> None:
        """Raise ``ValueError`` if EM cannot continue from given parameters under the options of the chain.

        Args:
            parameters: the parameters, which may break the topology or tied states.
            emission: the emission of the states.
            length: ``"given"`` or ``"stop"``, the model's argument.
        """
        self.options.check_start(parameters, length)

    @property
    def n_rows(self) -> int:
        """Number of rows of ``Parameters.transition``; row r leads from state r mod K."""
        return self.n_states

    def reordered(self, parameters: Parameters, order: Tensor) -> Parameters:
        """Return ``parameters`` with states renumbered: the new state i is the old state ``order[i]``.

        ``order`` is a permutation of the K states, ``(K,)`` integers.
        """
        return parameters.take(order)

    @property
    def arrays_of_file(self) -> tuple[str, ...]:
        """Names of arrays that a file of this chain has beside ``initial``, ``transition``, ``final`` and ``table``."""
        return ()

    def parameters_of_file(self, arrays: Mapping[str, np.ndarray], emission: Emission) -> Parameters:
        """Return the parameters that a file stores as arrays by name.

        Args:
            arrays: the arrays of the file.
            emission: the emission of the states.

        Raises:
            ValueError: arrays are missing, or are no valid parameters of this chain.
        """
        chosen = (self.inputs.transition, self.inputs.emission, self.inputs.start, self.inputs.duration)
        slopes = [*(name for name, columns in zip(SLOPES, chosen, strict=True) if columns), *self.arrays_of_file]
        of_inputs: dict[str, Any] = {"slopes": slopes, "n_inputs": self.inputs.n_inputs}
        check_arrays(arrays, self.n_states, has_end=self.has_final, n_rows=self.n_rows, **of_inputs)
        parameters = Parameters.from_arrays(arrays)
        self.check_parameters(parameters, emission)
        return parameters

    def check_parameters(self, parameters: Parameters, emission: Emission) -> None:
        """Raise ``ValueError`` for parameters, read from a file, that no fit could have learned.

        ``emission`` is the emission of the states.
        """
        emission.observation.check_table(parameters.table, emission.size)

    def on_floor(self, emission: Emission, table: Tensor, factor: float) -> Tensor:
        """Return the parameters of the emissions with each variance that is at its lower bound moved.

        Args:
            emission: the emission of the states.
            table: parameters of the states, a row for each, ``(K, P)``.
            factor: the moved variances are this times their lower bound.
        """
        return emission.observation.on_floor(table, emission.size, factor)

    @property
    def way_out(self) -> str:
        """End of the error message for a sequence of probability zero: advice on what to change."""
        return WAY_OUT

    @property
    def needs_of_path(self) -> str:
        """Phrase for an error message, which says what must be possible so that some path goes through given labels."""
        return "a transition or an emission that it would need"

    @property
    def checks_of_path(self) -> str:
        """Phrase for an error message, which names the attributes to look at if no path goes through given labels."""
        return "transition_"

    def refuse(self, impossible: Sequence[int]) -> None:
        """Raise ``ValueError`` if there are sequences of probability zero, whose numbers are in ``impossible``."""
        refuse(impossible, self.way_out)

    # -- in the long run -----------------------------------------------------------------------------------

    def stationary(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the fraction of steps that a long sequence spends in each state, ``(K,)``.

        Args:
            parameters: parameters of the chain.
            emission: the emission of the states, read by chains whose durations it holds.
        """
        p = parameters
        return stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())

    def transitions_at(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return the transition probabilities into N steps with given inputs, ``(N, K, K)``.

        Args:
            parameters: parameters of the chain.
            inputs: standardised inputs of the steps, ``(N, U)``.
        """
        if parameters.transition_slopes is None:  # and durations depend on inputs
            return parameters.transition.expand(len(inputs), -1, -1)
        return log_transitions(parameters.transition, parameters.transition_slopes, inputs).exp()

    def stationary_at(self, parameters: Parameters, emission: Emission, inputs: Tensor) -> Tensor:
        """Return the fraction of steps that a long sequence spends in each state while inputs stay as they are.

        Args:
            parameters: parameters of the chain, with slopes on inputs, and one stationary distribution.
            emission: the emission of the states, read by chains whose durations it holds.
            inputs: standardised inputs of N steps, ``(N, U)``.

        Returns:
            The stationary distribution at each of these inputs, ``(N, K)``, differentiable in the parameters.
        """
        return differentiable_stationary(self.transitions_at(parameters, inputs))

    def mean_durations_at(self, parameters: Parameters, emission: Emission, inputs: Tensor) -> Tensor:
        """Return the mean number of steps of visits that begin at N steps with given inputs, ``(N, K)``.

        Only chains with distributions of durations have it.

        Args:
            parameters: parameters of the chain.
            emission: the emission of the states, which holds their durations.
            inputs: standardised inputs of the steps, ``(N, U)``.
        """
        raise AssertionError(f"{type(self).__name__} has no durations that depend on inputs")

    def mean_durations(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the mean number of steps of a visit to each state, ``(K,)``; infinite where it is never left.

        Args:
            parameters: parameters of the chain.
            emission: the emission of the states, read by chains whose durations it holds.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(1 / (1 - np.diag(parameters.transition.numpy())))


def is_impossible(log_belief: Tensor) -> bool:
    """Return True if the log-probabilities of all states, ``log_belief (K,)``, are -inf."""
    return float(log_belief.max()) == -math.inf

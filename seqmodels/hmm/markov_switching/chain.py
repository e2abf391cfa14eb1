"""``LaggedChain``: the chain of a Markov-switching autoregression, whose densities depend on the last p + 1 states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.generation import CursorState
from seqmodels.hmm.chains.base import FilteredSteps, Groups, HiddenChain
from seqmodels.hmm.conjugate import EmissionPrior
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import EMObjective, Expectations, MAPObjective
from seqmodels.hmm.learning.first_state import Start, with_start
from seqmodels.hmm.learning.tied_family import tied_family
from seqmodels.hmm.markov_switching.cursor import LastStates, MarkovSwitchingCursor
from seqmodels.hmm.markov_switching.deviations import DeviationEmission, DeviationEmitted
from seqmodels.hmm.markov_switching.expectations import expected_counts, inputs_of_last_steps, trellis_of_batch
from seqmodels.hmm.markov_switching.priors import DeviationPrior
from seqmodels.hmm.markov_switching.sloped_objective import SlopedObjective, joined
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.state_forecast import StatesAhead, StepsAhead
from seqmodels.inference.chains.autograd import log_prob_of_segments
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forced_alignment import best_alignments
from seqmodels.inference.chains.lagged_states import (
    LaggedStatesTrellis,
    best_paths,
    first_tuples,
    forward_backward_pass,
    forward_pass,
    next_tuples,
    sample_paths,
)
from seqmodels.inference.chains.list_viterbi import k_best_paths
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.inference.chains.viterbi import log_prob_of_paths
from seqmodels.observations import AutoregressiveGaussian, Observation
from seqmodels.training import StopRule


@dataclass(frozen=True)
class LaggedChain(HiddenChain[LaggedStatesTrellis]):
    """The hidden chain of a Markov-switching autoregression: densities depend on the states of the last p + 1 steps.

    They are ``b(x_t | z_t, .., z_t-p)`` (Hamilton 1989); there is one for each of the ``K^(p+1)`` tuples of states.

    Attributes:
        switching_ar: True if each state has its own autoregressive coefficients.
        switching_variance: True if each state has its own variances of innovations.
    """

    switching_ar: bool = False
    switching_variance: bool = False

    def emission(self, observation: Observation, size: int) -> DeviationEmission:
        assert isinstance(observation, AutoregressiveGaussian), "of this chain"
        is_frozen = None if self.arguments.frozen is None else self.options.constraints.frozen_groups
        switching = {"switching_ar": self.switching_ar, "switching_variance": self.switching_variance}
        return DeviationEmission(observation, size, **switching, is_frozen=is_frozen)

    def emission_prior(
        self, observation: Observation, size: int, make: Callable[[Observation, int], EmissionPrior] | None = None
    ) -> EmissionPrior:
        return tied_family(DeviationPrior(self.emission(observation, size)), self.options.constraints)

    def n_parameters(self, emission: Emission) -> int:
        free = self.options.free_rows(self.n_states)
        slopes = self.inputs.n_parameters(self.options.n_first_states, *free, emission)
        return self.options.n_parameters(self.arguments.length, emission, self.start) + slopes

    # -- inference -----------------------------------------------------------------------------------------

    @property
    def has_one_matrix(self) -> bool:
        return False  # the recursion reads whole sequences

    def trellis(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> LaggedStatesTrellis:
        assert isinstance(emission, DeviationEmission), "of this chain"
        return trellis_of_batch(*self._read(parameters, emission, batch, dtype))

    def _read(
        self, parameters: Parameters, emission: DeviationEmission, batch: PackedBatch, dtype: torch.dtype
    ) -> tuple[Parameters, DeviationEmission, PackedBatch, torch.dtype, Start, Tensor | None]:
        """Return the arguments of ``trellis_of_batch`` for a batch.

        They are the four arguments, ``start``, and the inputs of the last p + 1 steps of each frame, ``(N, p + 1, U)``,
        or None if means depend on no inputs. If they do, the parameters' table gets their slopes as further columns.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission of the states.
            batch: some sequences.
            dtype: precision of the densities.
        """
        if parameters.table_slopes is None:
            return parameters, emission, batch, dtype, self.start, None
        assert batch.inputs is not None, "of a model that reads inputs"
        columns = list(self.inputs.emission)
        inputs = inputs_of_last_steps(batch.inputs[:, columns], emission.order, batch.segments.packing)
        return joined(parameters, emission, columns), emission, batch, dtype, self.start, inputs

    def filtered(self, parameters: Parameters, trellis: LaggedStatesTrellis) -> FilteredSteps:
        filtered, packing = forward_pass(trellis), trellis.packing

        def log_continues(sequence: int, t: int) -> float:
            row = int(packing.offsets[t] + packing.rank[sequence])
            log_belief = torch.logsumexp(filtered.log_alpha[row], 1)
            return float(torch.logsumexp(log_belief + parameters.transition.sum(1).log(), 0))

        return FilteredSteps(packing.split(filtered.steps), filtered.ends, log_continues)

    def beliefs(self, trellis: LaggedStatesTrellis) -> list[Tensor]:
        return trellis.packing.split(forward_pass(trellis).log_beliefs.exp())

    def log_predicted(self, trellis: LaggedStatesTrellis) -> list[Tensor]:
        """Return log p(states of the last p + 1 steps | x_<t) of each sequence, ``(T, K^(p+1))``, the newest first.

        ``trellis`` has the parameters and densities of a batch of sequences.
        """
        log_alpha, packing, log_a = forward_pass(trellis).log_alpha, trellis.packing, trellis.log_a
        n = packing.n_sequences
        into = log_a if len(log_a) == 1 else log_a[n:]
        first = first_tuples(trellis.log_initial, log_alpha.shape[2])
        predicted = torch.cat([first, next_tuples(log_alpha[packing.previous], into)])
        return packing.split(predicted.flatten(1))

    def posteriors(self, trellis: LaggedStatesTrellis) -> tuple[list[Tensor], Tensor]:
        posterior = forward_backward_pass(trellis)
        return trellis.packing.split(posterior.gamma.sum(2)), posterior.log_prob

    def best_paths(self, trellis: LaggedStatesTrellis) -> tuple[list[Tensor], Tensor]:
        return best_paths(trellis)

    def k_best_paths(self, trellis: LaggedStatesTrellis, k: int) -> list[tuple[Tensor, Tensor]]:
        n_earlier = trellis.log_b.shape[2]
        return [(paths // n_earlier, log_prob) for paths, log_prob in k_best_paths(over_tuples(trellis), k)]

    def alignments(
        self, trellis: LaggedStatesTrellis, groups: Sequence[Groups]
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        n_earlier, lengths = trellis.log_b.shape[2], trellis.packing.lengths.tolist()
        of_tuples = [
            [[z * n_earlier + e for z in label for e in range(n_earlier)] for label in each] for each in groups
        ]
        positions, path, log_prob = best_alignments(over_tuples(trellis), of_tuples)
        return list(positions.split(lengths)), list((path // n_earlier).split(lengths)), log_prob

    def log_prob_of_paths(self, trellis: LaggedStatesTrellis, paths: Sequence[Tensor]) -> Tensor:
        k, n_earlier = trellis.n_states, trellis.log_b.shape[2]
        of_tuples = torch.cat([tuples_of_path(path, k, n_earlier) for path in paths])
        return log_prob_of_paths(over_tuples(trellis), of_tuples.to(trellis.log_b.device))

    def draws(self, trellis: LaggedStatesTrellis, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        return sample_paths(trellis, n, generator)

    def last_beliefs(self, trellis: LaggedStatesTrellis) -> list[Tensor]:
        """Return log p(states of the last p + 1 steps | x) of each sequence, ``(K, M)``.

        The newest of the K states is the first axis; the M = K^p tuples of earlier states are the second. ``trellis``
        has the parameters and densities of a batch of sequences.
        """
        return list(forward_pass(trellis).log_alpha[trellis.packing.last])

    def states_ahead(
        self, parameters: Parameters, emission: Emission, log_belief: Tensor, k: int, inputs: Tensor | None = None
    ) -> StatesAhead:
        log_a, joint, rows = self.log_transitions_ahead(parameters, inputs), log_belief[None], []
        each = parameters.transition.expand(k, -1, -1) if log_a is None else log_a.exp()
        log_a = each.log() if log_a is None else log_a
        for h in range(k):
            joint = next_tuples(joint, log_a[h : h + 1])
            rows.append(joint.flatten(1))
        n_states, n_earlier = log_belief.shape
        state = torch.arange(log_belief.numel()) // n_earlier
        newest = torch.arange(n_earlier) // max(1, n_earlier // n_states)  # newest state of a tuple without the oldest

        def advance(values: Tensor, h: int) -> Tensor:
            merged = values.reshape(n_earlier, n_states, -1).sum(1)  # (M, n), over the oldest state
            return (each[h][newest].T.unsqueeze(-1) * merged).reshape(values.shape)

        first = (rows[0][0] - torch.logsumexp(rows[0][0], 0)).exp()
        return StatesAhead(torch.cat(rows), StepsAhead(first, torch.arange(len(state)), advance), state)

    def observed_table(self, emission: Emission, table: Tensor) -> Tensor:
        """Return the output parameters of every tuple of the last p + 1 states, ``(K^(p+1), P)``.

        Output parameters are the P numbers that the observation takes.

        Args:
            emission: the emission of the states.
            table: parameters of the states, a row for each of K.
        """
        assert isinstance(emission, DeviationEmission), "of this chain"
        return emission.of_tuples(table)

    def cursor(
        self,
        parameters: Parameters,
        observation: Observation,
        size: int,
        dtype: torch.dtype,
        make_past_filter: Callable[[], PastFilter] | None,
    ) -> MarkovSwitchingCursor:
        emission = self.emission(observation, size)
        if parameters.table_slopes is not None:
            parameters = joined(parameters, emission, list(range(self.inputs.n_inputs)))
        return MarkovSwitchingCursor(parameters, emission, dtype, self.start)

    def belief_of(self, state: CursorState) -> Tensor | None:
        assert isinstance(state, LastStates), "of this chain's cursor"
        return None if state.log_alpha is None else torch.logsumexp(state.log_alpha, 2)

    # -- EM ------------------------------------------------------------------------------------------------

    def em_objective(self, objective: MAPObjective) -> EMObjective:
        return SlopedObjective(objective) if self.inputs.emission else objective

    def guesses(
        self,
        objective: MAPObjective,
        corpus: Corpus,
        batches: list[PackedBatch],
        generators: Sequence[torch.Generator],
        stop: StopRule,
    ) -> Iterator[Parameters]:
        guesses = self.first_order_guesses(objective.emission, batches, generators)
        return (with_start(guess, self.start, self.options.topology) for guess in guesses)

    def expectations_of_batch(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Expectations:
        assert isinstance(emission, DeviationEmission), "of this chain"
        return expected_counts(*self._read(parameters, emission, batch, dtype), self.refuse)

    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        assert isinstance(emission, DeviationEmission), "of this chain"
        trellis = trellis_of_batch(*self._read(parameters, emission, batch, torch.float64))
        chain, log_a = first_order(trellis)
        log_b, segments, final = trellis.log_b.flatten(1), batch.segments, chain.final
        return log_prob_of_segments(chain.initial, chain.transition, log_b, segments, final, log_a)

    def emitted(self, emission: Emission, names: list[Any], least: float) -> DeviationEmitted:
        assert isinstance(emission, DeviationEmission), "of this chain"
        return DeviationEmitted(emission, names, least)

    def check_parameters(self, parameters: Parameters, emission: Emission) -> None:
        assert isinstance(emission, DeviationEmission), "of this chain"
        emission.check_table(parameters.table)

    def on_floor(self, emission: Emission, table: Tensor, factor: float) -> Tensor:
        assert isinstance(emission, DeviationEmission), "of this chain"
        return emission.on_floor(table, factor)


class FirstOrder(NamedTuple):
    """A first-order Markov chain over the ``S = K^(p+1)`` tuples of the last p + 1 states.

    Attributes:
        initial: probabilities of the first tuple of each sequence, ``(n, S)``.
        transition: transition probabilities, ``(S, S)``; zeros where every step has its own matrix.
        final: probabilities of ending after each tuple, ``(S,)``, or None if ends are no events.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor | None


def first_order(trellis: LaggedStatesTrellis) -> tuple[FirstOrder, Tensor | None]:
    """Return a first-order chain over the S tuples of the last p + 1 states, differentiable in the parameters.

    The second result has the log-probabilities of the transitions into each of N steps, ``(N, S, S)``, or None if all
    steps have the same matrix. ``trellis`` has the parameters and densities of a batch of sequences.

    Raises:
        ValueError: the matrices do not fit into memory.
    """
    n_rows, k, n_earlier = trellis.log_b.shape
    size, one = k * n_earlier, trellis.log_transition.dim() == 2
    n_matrices = 1 if one else n_rows
    refuse_beyond_memory(f"transitions between {size} tuples of states", 8.0 * n_matrices * size**2, "pass less order")
    index = torch.arange(size, device=trellis.log_b.device)
    follows = (torch.arange(k, device=index.device) * n_earlier)[None, :] + (index // k)[:, None]  # (S, K)
    log_a = trellis.log_transition
    rows = log_a.new_full((*log_a.shape[:-2], size, size), -torch.inf)
    expanded = rows.scatter(-1, follows.expand(*log_a.shape[:-2], -1, -1), log_a[..., index // n_earlier, :])
    by_sequence = trellis.log_initial[trellis.packing.rank]
    initial = first_tuples(by_sequence, n_earlier).flatten(1).exp()
    final = None if trellis.log_final is None else trellis.log_final.exp()[index // n_earlier]
    if one:
        return FirstOrder(initial, expanded.exp(), final), None
    return FirstOrder(initial, expanded.new_zeros(size, size), final), expanded


def over_tuples(trellis: LaggedStatesTrellis) -> Trellis:
    """Return a ``Trellis`` of the first-order chain over the S tuples of the last p + 1 states.

    Its transition matrices are ``(S, S)``, so that it takes much more memory than the recursion of ``lagged_states``,
    but it serves algorithms that this recursion does not have. ``trellis`` has the parameters and densities of a batch
    of sequences.
    """
    (initial, transition, final), log_a = first_order(trellis)
    segments = Segments.whole(trellis.packing.lengths, trellis.log_b.device)
    problem = Trellis.of(initial, transition, LogDensities(trellis.log_b.flatten(1)), segments, final)
    return problem if log_a is None else replace(problem, log_transitions=log_a)


def tuples_of_path(path: Tensor, n_states: int, n_earlier: int) -> Tensor:
    """Return the number of the tuple of the last p + 1 states at each step of a path of states, ``(T,)``.

    States before the first step count as 0.

    Args:
        path: states, ``(T,)`` integers.
        n_states: number of states, K.
        n_earlier: number of tuples of p earlier states, K^p.
    """
    tuples, before = [], 0
    for state in path.tolist():
        before = state * n_earlier + before // n_states
        tuples.append(before)
    return torch.tensor(tuples, dtype=torch.int64)

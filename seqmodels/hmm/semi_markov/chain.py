"""``SemiMarkovChain``: the chain of an HSMM, whose states last a random number of steps (Yu 2010)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.generation import CursorState
from seqmodels.hmm.chains.base import FilteredSteps, Groups, HiddenChain
from seqmodels.hmm.conjugate import EmissionPrior, prior_of
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.estimates import emitted_of
from seqmodels.hmm.learning.constraints import Constraints, Frozen, Tying
from seqmodels.hmm.learning.em import EMObjective, Expectations, MAPObjective, m_step
from seqmodels.hmm.learning.em import e_step as e_step_of_hmm
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.options import Algorithm, ChainOptions
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.observed_information import ExactObjective
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.semi_markov.cursor import HSMMCursor, SegmentState
from seqmodels.hmm.semi_markov.durations import DurationFamily
from seqmodels.hmm.semi_markov.estimates import SegmentEmitted, expected_log_prob
from seqmodels.hmm.semi_markov.expectations import (
    SegmentEmission,
    SegmentObjective,
    expected_counts,
    trellis_of_batch,
)
from seqmodels.hmm.semi_markov.information import ExactSegmentObjective
from seqmodels.hmm.semi_markov.options import SegmentOptions
from seqmodels.hmm.semi_markov.priors import SegmentFamily
from seqmodels.hmm.state_forecast import StatesAhead, StepsAhead
from seqmodels.hmm.topology import Topology
from seqmodels.inference.chains.log_space import LogProduct
from seqmodels.inference.chains.semi_markov import (
    TABLES_OF_STEP,
    SemiMarkovTrellis,
    best_segments,
    forward_backward_pass,
    forward_pass,
    sample_paths,
)
from seqmodels.inference.chains.semi_markov_paths import (
    best_segment_alignments,
    k_best_segments,
    log_prob_of_segment_paths,
    log_steps_left,
    of_runs,
)
from seqmodels.observations import Observation
from seqmodels.training import Row, StopRule

STEPS_OF_START = 100  # most EM steps of the HMM whose parameters are the start of an HSMM


@dataclass(frozen=True, kw_only=True)
class SemiMarkovChain(HiddenChain[SemiMarkovTrellis]):
    """The hidden chain of an HSMM, in which a visit to a state lasts a random number of steps and is called a segment.

    The state j_n of segment n has the probability ``p(j_n | j_n-1)``, and its duration d_n ``p(d_n | j_n)``. A row of
    the table of emissions holds a state's output parameters, then the parameters of its durations.

    Attributes:
        family: family of the distributions of durations.
        tied_durations: a group number for each state, or None; states of a group share their durations.
        left_censored: True if the first segment of a sequence may have begun before the sequence.
    """

    family: DurationFamily
    tied_durations: Any = None
    left_censored: bool = False

    exact: ClassVar[type[ExactObjective]] = ExactSegmentObjective

    @cached_property
    def segments(self) -> SegmentOptions:
        """The chain's arguments, checked and resolved, with the states that share or keep emissions and durations."""
        return SegmentOptions.of(self.arguments, self.tied_durations, follows_itself=self.family.follows_itself)

    @cached_property
    def options(self) -> ChainOptions:
        return self.segments.chain

    def emission(self, observation: Observation, size: int) -> SegmentEmission:
        given = (self.arguments.tied, self.arguments.frozen, self.tied_durations)
        # Resolving the options takes a fifth of the time of scoring 300 steps, so it waits until they say something.
        is_free = all(each is None for each in given) or self.segments.constraints.is_free
        constraints = None if is_free else self.segments.constraints
        inner = emission_of(observation, size)
        return SegmentEmission(
            inner,
            self.family,
            left_censored=self.left_censored,
            constraints=constraints,
            reads_inputs=bool(self.inputs.duration),
        )

    def emission_prior(
        self, observation: Observation, size: int, make: Callable[[Observation, int], EmissionPrior] = prior_of
    ) -> SegmentFamily:
        return SegmentFamily(make(observation, size), self.emission(observation, size), self.segments.constraints)

    def n_parameters(self, emission: Emission) -> int:
        allowed, leaves, _ = self.options.free_rows(self.n_states)
        emits = self.segments.constraints.emission.is_first & ~self.segments.constraints.keeps_emission
        slopes = self.inputs.n_parameters(self.options.n_first_states, allowed, leaves, emits, emission)
        slopes += len(self.inputs.duration) * self.segments.constraints.n_free[1]
        return self.options.n_parameters(self.arguments.length, emission, "free") + slopes

    # -- inference -----------------------------------------------------------------------------------------

    @property
    def has_one_matrix(self) -> bool:
        return not (self.inputs.transition or self.inputs.duration)

    def trellis(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> SemiMarkovTrellis:
        assert isinstance(emission, SegmentEmission), "of this chain"
        return trellis_of_batch(parameters, emission, batch, batch.densities(emission, parameters, dtype))

    def filtered(self, parameters: Parameters, trellis: SemiMarkovTrellis) -> FilteredSteps:
        filtered, packing = forward_pass(trellis), trellis.packing

        def log_continues(sequence: int, t: int) -> float:
            """Return log p(the sequence has another step after step t): its segment continues, or another one follows.

            Args:
                sequence: the sequence's position in the batch.
                t: number of the step.
            """
            row = int(packing.offsets[t] + packing.rank[sequence])
            follows = filtered.log_ended[row] + parameters.transition.sum(1).log()
            return float(torch.logsumexp(torch.cat([filtered.log_continues[row], follows]), 0))

        return FilteredSteps(packing.split(filtered.steps), filtered.ends, log_continues)

    def beliefs(self, trellis: SemiMarkovTrellis) -> list[Tensor]:
        return trellis.packing.split(forward_pass(trellis).log_beliefs.exp())

    def log_predicted(self, trellis: SemiMarkovTrellis) -> list[Tensor]:
        filtered, packing = forward_pass(trellis), trellis.packing
        predicted = filtered.log_start.clone()
        later = predicted[packing.n_sequences :]
        predicted[packing.n_sequences :] = torch.logaddexp(later, filtered.log_continues[packing.previous])
        return packing.split(predicted)

    def posteriors(self, trellis: SemiMarkovTrellis) -> tuple[list[Tensor], Tensor]:
        posterior = forward_backward_pass(trellis)
        return trellis.packing.split(posterior.gamma), posterior.log_prob

    def best_paths(self, trellis: SemiMarkovTrellis) -> tuple[list[Tensor], Tensor]:
        _check_runs(trellis)
        paths, log_prob = best_segments(of_runs(trellis))
        return [torch.from_numpy(path) for path in paths], log_prob

    def k_best_paths(self, trellis: SemiMarkovTrellis, k: int) -> list[tuple[Tensor, Tensor]]:
        _check_runs(trellis)
        return k_best_segments(trellis, k)

    def alignments(
        self, trellis: SemiMarkovTrellis, groups: Sequence[Groups]
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        _check_runs(trellis)
        positions, states, log_prob = best_segment_alignments(trellis, groups)
        return list(positions), list(states), log_prob

    def log_prob_of_paths(self, trellis: SemiMarkovTrellis, paths: Sequence[Tensor]) -> Tensor:
        return log_prob_of_segment_paths(trellis, paths)

    def device_of_draws(self, device: torch.device) -> torch.device:
        return torch.device("cpu")

    def draws(self, trellis: SemiMarkovTrellis, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        paths, log_prob = sample_paths(trellis, n, generator)
        return [torch.from_numpy(each.T) for each in paths], log_prob

    def last_beliefs(self, trellis: SemiMarkovTrellis) -> list[Tensor]:
        """Return log p(state of the last step, steps left of its segment | x) of each sequence, ``(K, D)``.

        K states; D is the longest duration. The last step counts as the first of the steps left, so that 1 left means
        that the segment ends with it. ``trellis`` has the parameters and densities of a batch of sequences.
        """
        return log_steps_left(trellis, forward_pass(trellis))

    def states_ahead(
        self, parameters: Parameters, emission: Emission, log_belief: Tensor, k: int, inputs: Tensor | None = None
    ) -> StatesAhead:
        assert isinstance(emission, SegmentEmission), "of this chain"
        log_pmf = emission.durations_given_inputs(parameters, None if inputs is None else inputs[1:], 1).log_pmf_of_rows
        log_pmf = log_pmf.expand(k, *log_pmf.shape[-2:])
        log_a = self.log_transitions_ahead(parameters, inputs)
        log_joint, first = log_states_ahead(log_belief, parameters.transition, log_pmf, k, log_a)
        each = parameters.transition.expand(k, -1, -1) if log_a is None else log_a.exp()
        return StatesAhead(log_joint, segments_ahead(first, each, log_pmf))

    def cursor(
        self,
        parameters: Parameters,
        observation: Observation,
        size: int,
        dtype: torch.dtype,
        make_past_filter: Callable[[], PastFilter] | None,
    ) -> HSMMCursor:
        emission, slopes = self.emission(observation, size), parameters.table_slopes
        durations = emission.durations(parameters.table)
        of_steps = replace(
            parameters,
            table=emission.observed(parameters.table),
            table_slopes=None if slopes is None else emission.observed(slopes),
        )
        return HSMMCursor(of_steps, observation, size, dtype, durations)

    def belief_of(self, state: CursorState) -> Tensor | None:
        assert isinstance(state, SegmentState), "of this chain's cursor"
        return state.log_belief

    # -- EM ------------------------------------------------------------------------------------------------

    def guesses(
        self,
        objective: MAPObjective,
        corpus: Corpus,
        batches: list[PackedBatch],
        generators: Sequence[torch.Generator],
        stop: StopRule,
    ) -> Iterator[Parameters]:
        """Yield the parameters from which each start of EM begins, one for each random generator.

        They are those of an HMM after some EM steps, with distributions of durations that have the means of the HMM's.

        Args:
            objective: the objective of EM.
            corpus: the training data.
            batches: batches of the corpus from which the parameters are guessed.
            generators: one random generator for each start.
            stop: rule by which EM stops, whose tolerance EM of the HMM takes.
        """
        emission, constraints = objective.emission, self.segments.constraints
        assert isinstance(emission, SegmentEmission), "of this chain"
        guesses = starts(
            emission.inner,
            batches,
            corpus.n_states,
            has_final=self.has_final,
            generators=generators,
            topology=self.segments.steps,
            tying=constraints.emission,
        )
        of_hmm = replace(objective, emission=emission.inner, constraints=Constraints(Frozen(), constraints.emission))
        for guess in guesses:
            fitted = _as_hmm(guess, of_hmm, batches, corpus.dtype, StopRule(STEPS_OF_START, stop.tol))
            yield _with_durations(fitted, emission, self.options.topology, constraints.durations)

    def em_objective(self, objective: MAPObjective) -> EMObjective:
        return SegmentObjective(objective) if self.inputs.duration else objective

    def expectations_of_batch(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Expectations:
        assert isinstance(emission, SegmentEmission), "of this chain"
        return expected_counts(parameters, emission, batch, dtype, self.refuse)

    @property
    def topology_of_start(self) -> Topology:
        return self.segments.steps

    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        assert isinstance(emission, SegmentEmission), "of this chain"
        log_prob, expected = expected_log_prob(parameters, emission, batch)
        return log_prob + (expected - expected.detach()) / len(log_prob)  # the sum has the gradient of ``expected``

    def emitted(self, emission: Emission, names: list[Any], least: float) -> SegmentEmitted:
        assert isinstance(emission, SegmentEmission), "of this chain"
        inner = emitted_of(emission.observation, emission.size, names, least)
        return SegmentEmitted(inner, emission, self.segments.constraints)

    # -- checks --------------------------------------------------------------------------------------------

    def check_start(self, parameters: Parameters, emission: Emission, length: str) -> None:
        assert isinstance(emission, SegmentEmission), "of this chain"
        self.segments.check_start(parameters, length, emission.split(parameters.table))

    def check_together(self, algorithm: Algorithm, observation: Observation) -> None:
        self.segments.check_together(observation)
        if algorithm == "variational" and not self.family.is_conjugate:
            raise ValueError(
                "the parameters of Poisson, negative binomial and logarithmic durations that are truncated have no "
                "conjugate prior; pass durations='categorical' or 'geometric', or algorithm='em'"
            )
        if algorithm == "variational" and self.left_censored and not self.family.follows_itself:
            raise ValueError(
                "left_censored=True divides by mean durations, which have no conjugate prior; leave it out, or pass "
                "algorithm='em'"
            )

    def check_parameters(self, parameters: Parameters, emission: Emission) -> None:
        assert isinstance(emission, SegmentEmission), "of this chain"
        n_columns = emission.observation.n_output_parameters(emission.size) + self.family.n_columns
        if parameters.table.shape[1] != n_columns:
            raise ValueError(f"a state has {parameters.table.shape[1]} numbers in the file; it should have {n_columns}")
        of_emission, durations = emission.split(parameters.table)
        emission.observation.check_table(of_emission, emission.size)
        self.family.check(durations)

    def on_floor(self, emission: Emission, table: Tensor, factor: float) -> Tensor:
        assert isinstance(emission, SegmentEmission), "of this chain"
        of_emission, durations = emission.split(table)
        return torch.cat([emission.observation.on_floor(of_emission, emission.size, factor), durations], 1)

    @property
    def needs_of_path(self) -> str:
        return "a transition, a duration or an emission that it would need"

    @property
    def checks_of_path(self) -> str:
        return "transition_ and durations_ (a label takes at least one segment, which lasts up to max_duration steps)"

    @property
    def way_out(self) -> str:
        return (
            "raise max_duration, or keep emissions, transitions and durations from being exactly zero (pseudocount, "
            "duration_pseudocount)"
        )

    # -- in the long run -----------------------------------------------------------------------------------

    def mean_durations(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        if self.family.follows_itself:  # durations are geometric
            with np.errstate(divide="ignore"):
                return np.asarray(1 / (1 - np.diag(parameters.transition.numpy())))
        assert isinstance(emission, SegmentEmission), "of this chain"
        durations = emission.durations(parameters.table).log_pmf.exp().numpy()
        return np.asarray(durations @ np.arange(1.0, durations.shape[1] + 1))

    def stationary_at(self, parameters: Parameters, emission: Emission, inputs: Tensor) -> Tensor:
        segments = super().stationary_at(parameters, emission, inputs)
        if self.family.follows_itself:
            return segments
        steps = segments * self.mean_durations_at(parameters, emission, inputs)
        return steps / steps.sum(-1, keepdim=True)

    def mean_durations_at(self, parameters: Parameters, emission: Emission, inputs: Tensor) -> Tensor:
        """Return the mean number of steps of segments that begin at N steps, ``(N, K)``, differentiable in parameters.

        Args:
            parameters: parameters of the chain.
            emission: the emission of the states, with durations.
            inputs: standardised inputs of the steps, ``(N, U)``.
        """
        assert isinstance(emission, SegmentEmission), "of this chain"
        durations = emission.durations_given_inputs(parameters, inputs, 0)
        pmf, of_row = durations.log_pmf.exp(), durations.table_of_row
        means = pmf @ torch.arange(1.0, pmf.shape[-1] + 1, dtype=pmf.dtype)
        return means.expand(len(inputs), -1) if of_row is None else means[of_row]

    def stationary(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        segments = super().stationary(parameters, emission)
        steps = segments if self.family.follows_itself else segments * self.mean_durations(parameters, emission)
        return np.asarray(steps / steps.sum())


def _check_runs(trellis: SemiMarkovTrellis) -> None:
    """Raise ``ValueError`` if the tables of runs, of states that follow themselves, do not fit into memory.

    They have a number for each step, state and length of a run, if durations differ from step to step.
    """
    if trellis.durations.differ and bool(trellis.transition.diagonal().any()):
        n_times, (n_steps, n_states) = len(trellis.packing.blocks), trellis.log_b.shape
        refuse_beyond_memory(
            f"runs of states that follow themselves, of {n_steps:,} steps with different durations,",
            8.0 * 2 * TABLES_OF_STEP * n_steps * n_states * n_times,
            "pass shorter sequences",
        )


def log_states_ahead(
    log_left: Tensor, transition: Tensor, log_pmf: Tensor, k: int, log_a: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return log p(the sequence has h more steps, the last of them in state j | x) of an HSMM, for h = 1 .. k.

    Args:
        log_left: log-probabilities of the last observed step's state and of the steps left of its segment, counting the
            last step as the first, ``(K, D)``.
        transition: transition probabilities between segments, ``(K, K)``.
        log_pmf: log-probabilities of durations 1 to D of segments that begin at each step ahead, ``(k, K, D)``.
        k: number of steps ahead.
        log_a: log-transitions to the segments that begin at each step ahead, ``(k, K, K)``; None if all steps have
            ``transition``.

    Returns:
        The log-probabilities ``(k, K)``, and those of state and steps left of its segment one step ahead, ``(K, D)``.
    """
    follow, joint, rows = LogProduct(transition), log_left, []
    first = joint
    for h in range(k):
        going_on = torch.cat([joint[:, 1:], torch.full_like(joint[:, :1], -torch.inf)], 1)
        ended = joint[None, :, 0]
        first_step = follow(ended) if log_a is None else torch.logsumexp(ended.T + log_a[h], 0, keepdim=True)
        joint = torch.logaddexp(going_on, first_step.T + log_pmf[h])
        first = joint if h == 0 else first
        rows.append(torch.logsumexp(joint, 1))
    return torch.stack(rows), first


def segments_ahead(log_first: Tensor, transitions: Tensor, log_pmf: Tensor) -> StepsAhead:
    """Return the Markov chain of an HSMM's steps ahead, over pairs of a state and the steps left of its segment.

    Args:
        log_first: log-probabilities of state and steps left one step ahead, ``(K, D)``, up to a constant.
        transitions: transition probabilities to the segments that begin at each step ahead, ``(k, K, K)``.
        log_pmf: log-probabilities of durations 1 to D of segments that begin at each step ahead, ``(k, K, D)``.
    """
    (_, k, longest), pmf = log_pmf.shape, log_pmf.exp()

    def advance(values: Tensor, h: int) -> Tensor:
        at = values.reshape(k, longest, -1)
        later = pmf[h].unsqueeze(-1) * (transitions[h].T @ at[:, 0]).unsqueeze(1)
        later[:, :-1] += at[:, 1:]
        return later.reshape(values.shape)

    first = (log_first - torch.logsumexp(log_first.flatten(), 0)).exp()
    return StepsAhead(first.flatten(), torch.arange(k).repeat_interleave(longest), advance)


def _as_hmm(
    parameters: Parameters, objective: MAPObjective, batches: list[PackedBatch], dtype: torch.dtype, stop: StopRule
) -> Parameters:
    """Return the parameters after some EM steps of an ordinary HMM, from ``parameters``, for the start of an HSMM.

    Every process of distributed training takes the same steps on the same data.

    Args:
        parameters: parameters of the HMM before EM.
        objective: the objective of EM of the HMM.
        batches: the data.
        dtype: precision of the densities.
        stop: rule by which EM stops.
    """
    rows: list[Row] = []
    for step in range(stop.max_iter):
        e_steps = e_step_of_hmm([parameters], objective.emission, batches, dtype)
        assert e_steps is not None, "nothing interrupts it"
        prior = objective.log_prior(parameters)
        rows.append(objective.row(step, 0.0, e_steps[0].log_prob, prior, parameters.table))
        if stop.converged(rows):
            break
        parameters = m_step(parameters, e_steps[0], objective)
    return parameters


def _with_durations(parameters: Parameters, emission: SegmentEmission, segments: Topology, tying: Tying) -> Parameters:
    """Return the parameters of an HSMM whose durations have the same means as those of an HMM.

    Args:
        parameters: parameters of the HMM, whose self-transitions imply its mean durations.
        emission: the emission with the family of durations.
        segments: topology of the chain from segment to segment.
        tying: states that share their durations.
    """
    k, family = len(parameters.initial), emission.family
    mean = 1 / (1 - parameters.transition.diag())
    # A state that is never left has an infinite mean, so it starts with the longest duration.
    mean = torch.where(torch.isfinite(mean), mean, float(family.longest))
    mean = tying.spread(torch.stack([mean[tying.group == g].mean() for g in range(tying.n_groups)]))
    table = torch.cat([parameters.table, family.with_mean(mean)], 1)
    if family.follows_itself:
        return replace(parameters, table=table)
    successors = segments.transition_mask(k).to(parameters.transition)
    rows = parameters.transition * successors
    final = parameters.final
    total = rows.sum(1) + (0.0 if final is None else final)
    # A state that is never left has no transitions to rescale, so all its successors start equally probable.
    rows = torch.where(
        (total > 0)[:, None], rows / total[:, None], successors / successors.sum(1).clamp(min=1)[:, None]
    )
    final = None if final is None else torch.where(total > 0, final / total, 1.0 * (successors.sum(1) == 0))
    return Parameters(parameters.initial, rows, final, table)

"""``ExpandedChain``: chains that are functions of a larger first-order chain, such as one of second order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import CursorState
from seqmodels.hmm.chains.base import FilteredSteps, Groups, HiddenChain
from seqmodels.hmm.chains.markov import MarkovChain
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.cursor import HMMCursor, HMMState
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import Expectations, MAPObjective
from seqmodels.hmm.learning.gradient import log_prob_of_batch
from seqmodels.hmm.learning.options import ChainArguments
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.state_forecast import StatesAhead, StepsAhead
from seqmodels.hmm.state_queries import stationary
from seqmodels.inference.chains.densities import possible_states
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.observations import Observation
from seqmodels.training import StopRule

MARKOV = MarkovChain(ChainArguments(1))  # whose inference is that of any first-order chain


class ExpandedChain(HiddenChain[Trellis]):
    """Base class of chains of K states that are computed as a first-order Markov chain over S *places*.

    Each place belongs to one state and emits as that state does; for a second-order chain, a place is a pair of states.
    To add a chain, define the abstract methods here. Different paths of places must have different paths of states,
    given that they start in the same place of their first state.
    """

    # -- what a chain defines ----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def state_of_place(self) -> Tensor:
        """Number of the state that each of the S places belongs to, ``(S,)`` integers."""

    @abstractmethod
    def places(self, parameters: Parameters) -> Parameters:
        """Return the parameters of the first-order chain over S places that these parameters of the chain stand for.

        They are ``initial (S,)``, ``transition (S, S)`` and ``final (S,)`` or None, differentiable in ``parameters``.
        The table stays that of the K states, ``parameters.table``.
        """

    @abstractmethod
    def places_of_path(self, path: Tensor) -> Tensor:
        """Return the places, ``(T,)`` integers, that a path of states ``path (T,)`` goes through."""

    @abstractmethod
    def counts(self, of_places: Expectations) -> Expectations:
        """Return the expected counts of this chain, given those of the chain over places, ``of_places``."""

    @abstractmethod
    def from_first_order(self, guess: Parameters) -> Parameters:
        """Return parameters from which EM can start, given those of a first-order chain of K states, ``guess``."""

    # -- inference -----------------------------------------------------------------------------------------

    @cached_property
    def _has_state(self) -> Tensor:
        return torch.nn.functional.one_hot(self.state_of_place, self.n_states).double()

    def _expanded(self, parameters: Parameters) -> Parameters:
        return replace(self.places(parameters), table=parameters.table[self.state_of_place])

    def _of_states(self, rows: Tensor) -> Tensor:
        """Return probabilities of states, ``(..., K)``, as sums of the probabilities of places, ``rows (..., S)``."""
        return rows.double() @ self._has_state

    def observed_table(self, emission: Emission, table: Tensor) -> Tensor:
        return table[self.state_of_place]

    @property
    def has_one_matrix(self) -> bool:
        return True

    def trellis(self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype) -> Trellis:
        return MARKOV.trellis(self._expanded(parameters), emission, self._with_places(batch), dtype)

    @property
    def n_places(self) -> int:
        return len(self.state_of_place)

    def _with_places(self, batch: PackedBatch) -> PackedBatch:
        """Return ``batch`` with its known states, if any, as masks of the places that belong to them."""
        if batch.states is None:
            return batch
        return replace(batch, states=possible_states(batch.states, self.n_states)[:, self.state_of_place])

    def filtered(self, parameters: Parameters, trellis: Trellis) -> FilteredSteps:
        return MARKOV.filtered(self.places(parameters), trellis)

    def beliefs(self, trellis: Trellis) -> list[Tensor]:
        return [self._of_states(rows) for rows in MARKOV.beliefs(trellis)]

    def log_predicted(self, trellis: Trellis) -> list[Tensor]:
        return MARKOV.log_predicted(trellis)

    def log_given_others(self, trellis: Trellis) -> list[Tensor]:
        return MARKOV.log_given_others(trellis)

    def posteriors(self, trellis: Trellis) -> tuple[list[Tensor], Tensor]:
        posteriors, log_prob = MARKOV.posteriors(trellis)
        return [self._of_states(rows) for rows in posteriors], log_prob

    def best_paths(self, trellis: Trellis) -> tuple[list[Tensor], Tensor]:
        paths, log_prob = MARKOV.best_paths(trellis)
        return [self.state_of_place[path] for path in paths], log_prob

    def k_best_paths(self, trellis: Trellis, k: int) -> list[tuple[Tensor, Tensor]]:
        return [(self.state_of_place[paths], log_prob) for paths, log_prob in MARKOV.k_best_paths(trellis, k)]

    def alignments(self, trellis: Trellis, groups: Sequence[Groups]) -> tuple[list[Tensor], list[Tensor], Tensor]:
        of_places = [
            [torch.isin(self.state_of_place, torch.tensor(label)).nonzero()[:, 0].tolist() for label in each]
            for each in groups
        ]
        positions, paths, log_prob = MARKOV.alignments(trellis, of_places)
        return positions, [self.state_of_place[path] for path in paths], log_prob

    def log_prob_of_paths(self, trellis: Trellis, paths: Sequence[Tensor]) -> Tensor:
        return MARKOV.log_prob_of_paths(trellis, [self.places_of_path(path) for path in paths])

    def draws(self, trellis: Trellis, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        paths, log_prob = MARKOV.draws(trellis, n, generator)
        return [self.state_of_place[path] for path in paths], log_prob

    def last_beliefs(self, trellis: Trellis) -> list[Tensor]:
        """Return log p(place of the last step | x) of each sequence, ``(S,)``; each of S places belongs to one state.

        ``trellis`` has the parameters and densities of a batch of sequences.
        """
        return MARKOV.last_beliefs(trellis)

    def states_ahead(
        self, parameters: Parameters, emission: Emission, log_belief: Tensor, k: int, inputs: Tensor | None = None
    ) -> StatesAhead:
        places = self.places(parameters)
        log_joint = MARKOV.states_ahead(places, emission, log_belief, k).log_joint
        first, index = log_joint[0].softmax(0), torch.arange(len(log_belief))
        steps = StepsAhead(first, index, lambda values, h: places.transition.T @ values)
        return StatesAhead(log_joint, steps, self.state_of_place)

    def cursor(
        self,
        parameters: Parameters,
        observation: Observation,
        size: int,
        dtype: torch.dtype,
        make_past_filter: Callable[[], PastFilter] | None,
    ) -> HMMCursor:
        return HMMCursor(self._expanded(parameters), observation, size, dtype, make_past_filter)

    def belief_of(self, state: CursorState) -> Tensor | None:
        assert isinstance(state, HMMState), "of this chain's cursor"
        return None if state.log_alpha is None else self._of_states(state.log_alpha.exp()).log()

    # -- EM ------------------------------------------------------------------------------------------------

    def guesses(
        self,
        objective: MAPObjective,
        corpus: Corpus,
        batches: list[PackedBatch],
        generators: Sequence[torch.Generator],
        stop: StopRule,
    ) -> Iterator[Parameters]:
        guesses = self.first_order_guesses(objective.emission, batches, generators)
        return map(self.from_first_order, guesses)

    def expectations_of_batch(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Expectations:
        of_places = MARKOV.expectations_of_batch(self._expanded(parameters), emission, self._with_places(batch), dtype)
        by_state = tuple(
            each.new_zeros(self.n_states, *each.shape[1:]).index_add_(0, self.state_of_place, each)
            for each in of_places.emission
        )
        return self.counts(replace(of_places, emission=by_state))

    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        return log_prob_of_batch(emission, self._expanded(parameters), batch)

    # -- in the long run -----------------------------------------------------------------------------------

    def stationary(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        shares = stationary(*self._arrays_of_places(parameters))
        return np.asarray(shares @ self._has_state.numpy())

    def mean_durations(self, parameters: Parameters, emission: Emission) -> np.ndarray:
        """Return the mean number of steps of a visit to each state, ``(K,)``.

        It is the long-run share of the steps spent in the state, divided by the share of first steps of visits to it.

        Args:
            parameters: parameters of the chain.
            emission: not read.
        """
        initial, transition, final = self._arrays_of_places(parameters)
        shares, state = stationary(initial, transition, final), self.state_of_place.numpy()
        stays = shares[:, None] * transition * (state[:, None] == state)
        of_states = np.asarray(shares @ self._has_state.numpy())
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(of_states / (of_states - stays.sum(0) @ self._has_state.numpy()))

    def _arrays_of_places(self, parameters: Parameters) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        p = self.places(parameters)
        return p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy()

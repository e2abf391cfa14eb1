"""``ChainCursor``: what the cursors of chains of hidden states share, which is all about what states emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, select_rows, stacked_sources
from seqmodels.generation.given_inputs import refuse_without_inputs
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.log_weights import finite
from seqmodels.observations import Observation

if TYPE_CHECKING:
    from seqmodels.hmm.chain_in_loops import FrameDensities


StateT = TypeVar("StateT", bound=Any)


@dataclass(frozen=True)
class ChainCursor(ABC, Generic[StateT]):
    """Base class of cursors over hidden states, which read n sequences step by step and predict the next step of each.

    A cursor does not change: its methods take the *state* of the cursor, which holds the probabilities of the hidden
    states given the steps so far, and return a new one. To add a cursor, define the abstract methods, and a frozen
    dataclass for its state with these attributes, for K hidden states, D features and U inputs:

    - ``log_predicted``: log-probabilities of the next step's hidden state, and of what else is hidden, ``(n, K, ...)``;
    - ``past``: the last p steps, for an observation that depends on them, ``(n, p, D)``;
    - ``n_scored``: number of steps after the source, read only where ends are events;
    - ``inputs``: standardised inputs of the next step, ``(n, U)``, or None until they are given.

    Attributes:
        parameters: parameters of the chain and its emissions.
        observation: family of the distributions that the states emit from.
        size: number of features or symbols.
        dtype: precision of densities; beliefs are float64.
    """

    parameters: Parameters
    observation: Observation
    size: int
    dtype: torch.dtype

    @abstractmethod
    def _first(self, n: int, past: Tensor) -> StateT:
        """Return the state of ``n`` sequences before their first step.

        ``past`` holds the p steps before it, ``(n, p, D)``, all NaN because there are none.
        """

    @abstractmethod
    def advance_and_score(self, state: StateT, x: Tensor) -> tuple[StateT, Tensor]:
        """Return the state of the cursor after the next step, and the log-probability of that step given earlier ones.

        The log-probabilities are the same as those of ``distribution(state)``.

        Args:
            state: state of the cursor before the step.
            x: the step of each of n sequences, ``(n, D)`` vectors or ``(n,)`` symbols.

        Returns:
            The new state, and log p(x_t | x_<t) of each sequence in nats, ``(n,)`` float64.
        """

    @abstractmethod
    def _runs_compiled(self, n: int) -> bool:
        """Return True if a step of ``n`` sequences is faster as a compiled loop than by tensor operations."""

    @abstractmethod
    def _log_weights(self, state: StateT) -> Tensor:
        """Return log p(there is a next step and its hidden state is k | all steps so far), ``(n, K)``.

        ``state`` is the state of the cursor after the steps so far of n sequences; K hidden states.
        """

    @abstractmethod
    def _log_last(self, state: StateT) -> Tensor | None:
        """Return log p(hidden state of the last step, and the sequence may end there | all steps so far), ``(n, K)``.

        Return None before the first step. ``state`` is the state of the cursor after the steps so far of n sequences.
        """

    @cached_property
    def _reads_inputs(self) -> bool:
        return any(slopes is not None for slopes in self.parameters.slopes)

    def start(self, source: Source = None, n: int = 1) -> StateT:
        """Return the state of ``n`` sequences before the first scored step.

        The steps of ``source``, which the sequences are conditioned on, are read first and not scored; None means that
        there are none.
        """
        state = self._first(n, self._no_past(n))
        rows = stacked_sources(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        of_source: StateT = replace(state, n_scored=0)
        return of_source

    def _no_past(self, n: int) -> Tensor:
        """Return an array in place of the p steps before the first step of ``n`` sequences, ``(n, p, D)``, all NaN."""
        width = self.size if self.observation.emits == "vectors" else 1
        shape = (n, self.observation.n_past, width)
        return torch.full(shape, torch.nan, dtype=self.dtype, device=self.parameters.initial.device)

    def advance(self, state: StateT, x: Tensor) -> StateT:
        """Return the state of the cursor after the next step.

        Args:
            state: state of the cursor before the step.
            x: the step of each of n sequences, vectors ``(n, D)`` or symbols ``(n,)``.
        """
        return self.advance_and_score(state, x)[0]

    def select(self, state: StateT, index: Tensor) -> StateT:
        """Return the state of some of the sequences.

        Args:
            state: state of the cursor.
            index: numbers of the sequences in the new order, ``(m,)``.
        """
        selected: StateT = select_rows(state, index)
        return selected

    def distribution(self, state: StateT) -> Prediction:
        """Return the distribution of the next step: a mixture over the hidden states, and the probability of an end.

        The end has probability zero before the first scored step. ``state`` is the state of the cursor after the steps
        so far.
        """
        past = state.past if self.observation.n_past else None
        table, log_weights = self._table(state), self._log_weights(state)
        if self.parameters.final is None:  # there is always a next step, so the weights sum to one
            return Prediction(self.observation, table, log_weights, past, None)
        total = torch.logsumexp(log_weights, -1)  # (n,)
        # Each is summed from its own terms, because one minus the other would lose a small one.
        log_end, log_continue = self._log_end(state), total
        if log_end is None:
            log_end, log_continue = torch.full_like(total, -torch.inf), torch.zeros_like(total)
        log_weights = log_weights - finite(total).unsqueeze(-1)
        return Prediction(self.observation, table, log_weights, past, log_end, log_continue)

    def _log_end(self, state: StateT) -> Tensor | None:
        """Return log p(the sequence has ended after its last step | all steps so far), ``(n,)``.

        Return None if the end is not an event, or if no step was scored yet. ``state`` is the state of the cursor after
        the steps so far of n sequences.
        """
        log_last = self._log_last(state)
        if self.parameters.final is None or log_last is None or not state.n_scored:
            return None
        return torch.logsumexp(log_last + self._log_final, -1)

    def _log_first(self, state: StateT) -> Tensor:
        """Return the log-probability that there is a first scored step after the source, ``(n,)``.

        A sequence cannot end before that step, so log-probabilities are conditional on it. ``state`` is the state of
        the cursor after the source of n sequences.
        """
        return finite(torch.logsumexp(state.log_predicted.flatten(1), -1))

    def _on_device(self, x: Tensor) -> Tensor:
        x = x.to(self.parameters.initial.device)
        return x.to(self.dtype) if self.observation.emits == "vectors" else x

    def _log_b_of_step(self, state: StateT, x: Tensor) -> Tensor:
        """Return the log-density of a step in each hidden state in nats, ``(n, K)`` float64.

        Args:
            state: state of the cursor before the step.
            x: the step of each of n sequences, ``(n, D)`` vectors or ``(n,)`` symbols.
        """
        if self._reads_inputs:
            refuse_without_inputs(state.inputs)
        if self._densities is not None:
            return torch.from_numpy(self._densities(x.numpy()))
        past = state.past.unsqueeze(1) if self.observation.n_past else None
        return self.observation.log_prob(self._table(state), x.unsqueeze(1), past).double()

    @cached_property
    def _densities(self) -> FrameDensities | None:
        """A compiled function that returns a step's log-densities, or None if there is none or it is not faster.

        There is none where densities depend on past steps or on inputs.
        """
        if not self._runs_compiled(1) or self.observation.n_past or self.parameters.table_slopes is not None:
            return None
        from seqmodels.hmm.chain_in_loops import log_densities_of

        return log_densities_of(self.observation, self._table_of_all, self.size)

    @cached_property
    def _table_of_all(self) -> Tensor:
        return self.parameters.table.to(self.dtype)

    @cached_property
    def _log_final(self) -> Tensor:
        assert self.parameters.final is not None, "ends are events"
        return self.parameters.final.log()

    def _table(self, state: StateT) -> Tensor:
        """Return the output parameters of all hidden states at the next step of n sequences, ``(n, K, P)``.

        Output parameters are the P numbers that the observation takes for a hidden state; ``state`` is the state of the
        cursor. If they do not depend on inputs, they are a view without copies.
        """
        if self._reads_inputs:
            refuse_without_inputs(state.inputs)
        if self.parameters.table_slopes is None or state.inputs is None:
            return self._table_of_all.expand(len(state.past), -1, -1)
        return (self.parameters.table + torch.einsum("nu,kpu->nkp", state.inputs, self.parameters.table_slopes)).to(
            self.dtype
        )

"""A model of vectors given their offset: its one-step predictions as Gaussians whose means are linear in the offset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from seqmodels.generation import Cursor, CursorState, Prediction, Source, source_of_each, stacked_sources
from seqmodels.hmm.cursor import HMMCursor, HMMState
from seqmodels.inference.chains.log_space import LogProduct, finite
from seqmodels.wrappers.offsets.filtering import LinearMixture

DIFFERENCE = 1e-3  # of offsets, from which slopes are taken; encoded units, in which features have variance one

State = TypeVar("State")


class NextStep(NamedTuple):
    """What comes next given the offset.

    Attributes:
        mixture: the next frame, given that the sequence goes on.
        prediction: the inner model's, for the probability of the end.
    """

    mixture: LinearMixture
    prediction: Prediction


class GivenOffset(ABC, Generic[State]):
    """``p(x_t | x_<t, b)`` of n sequences, linear in b around a mean that moves as they are read.

    To add one, define how it starts, predicts, advances and selects.
    """

    @abstractmethod
    def start(self, source: Source, n: int, mean: Tensor) -> tuple[State, Tensor | None]:
        """The state before the first step, and steps of sources ``(n, S, D)`` that are still to be read."""

    @abstractmethod
    def begin(self, state: State) -> State:
        """The state before the first scored step, once the source is read."""

    @abstractmethod
    def next_step(self, state: State, mean: Tensor) -> NextStep:
        """The next step around the offsets ``mean (n, D)``."""

    @abstractmethod
    def advance(self, state: State, x: Tensor, log_joint: Tensor, mean: Tensor) -> State:
        """The state after ``x (n, D)``.

        Args:
            log_joint: ``(n, J)``, of x together with each component of ``next_step``.
            mean: ``(n, D)``, what is known of the offset after x.
        """

    @abstractmethod
    def select(self, state: State, index: Tensor) -> State:
        """The state of the sequences ``index (m,)``."""

    @property
    @abstractmethod
    def n_components(self) -> int:
        """J, for the size of batches."""


@dataclass(frozen=True)
class HMMGivenOffset(GivenOffset[HMMState]):
    """An HMM: its states' Gaussians move with the offset, and its belief weighs them with what is known of it.

    The state of the cursor has the raw past, since the regression on it is linear in the offset.
    """

    cursor: HMMCursor

    def start(self, source: Source, n: int, mean: Tensor) -> tuple[HMMState, Tensor | None]:
        unread = stacked_sources(source, n)
        return self.cursor.start(None, n), None if unread is None else unread.to(mean)

    def begin(self, state: HMMState) -> HMMState:
        return replace(state, n_scored=0)

    def next_step(self, state: HMMState, mean: Tensor) -> NextStep:
        prediction, observation = self.cursor.distribution(state), self.cursor.observation
        assert prediction.log_weights is not None, "an HMM has states"
        is_first = bool(observation.n_past) and bool(state.past[0].isnan().any())
        log_weights, factors, slopes = self._first if is_first else self._later
        past = state.past.unsqueeze(1) if observation.n_past else None
        means = observation.shifted_means(self._table, mean.unsqueeze(1), past)  # (n, K, M, D)
        joint = prediction.log_weights.unsqueeze(-1) + log_weights  # (n, K, M)
        mixture = LinearMixture(joint.flatten(1), means.flatten(1, 2), slopes, factors)
        return NextStep(mixture, prediction)

    def advance(self, state: HMMState, x: Tensor, log_joint: Tensor, mean: Tensor) -> HMMState:
        joint = torch.logsumexp(log_joint.unflatten(1, (len(self.cursor.parameters.initial), -1)), -1)
        log_alpha = joint - finite(torch.logsumexp(joint, -1, keepdim=True))
        past = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1) if self.cursor.observation.n_past else state.past
        return HMMState(log_alpha, self._predict(log_alpha), past, state.n_scored + 1)

    def select(self, state: HMMState, index: Tensor) -> HMMState:
        return self.cursor.select(state, index)

    @property
    def n_components(self) -> int:
        return self._later[1].shape[1]

    @cached_property
    def _predict(self) -> LogProduct:
        return LogProduct(self.cursor.parameters.transition)

    @cached_property
    def _table(self) -> Tensor:
        return self.cursor.parameters.table.double()

    @cached_property
    def _first(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._of_past(torch.nan)

    @cached_property
    def _later(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._of_past(0.0)

    def _of_past(self, value: float) -> tuple[Tensor, Tensor, Tensor]:
        """Log-weights ``(K, M)``, factors of precisions and slopes ``(1, J, D, D)``, the same after every past."""
        size, observation, table = self.cursor.size, self.cursor.observation, self._table
        past = table.new_full((1, observation.n_past, size), value) if observation.n_past else None
        log_weights, factors = observation.mixture_precisions(table, size, past)
        zero, units = table.new_zeros(size), torch.eye(size, dtype=table.dtype, device=table.device)
        base = observation.shifted_means(table, zero, past)  # (K, M, D)
        slopes = torch.stack([observation.shifted_means(table, unit, past) - base for unit in units], -1)
        return log_weights, factors.expand(*slopes.shape).flatten(0, 1)[None], slopes.flatten(0, 1)[None]


@dataclass(frozen=True)
class CursorGivenOffset(GivenOffset[CursorState]):
    """Any model: it reads each frame less what the offset was last known to be, and D more times a little aside.

    The frames read for feature d are by ``DIFFERENCE`` less there, all along, so that the differences of the means it
    predicts are their slopes in the offset, past and present. Weights and covariances are taken as they are.
    """

    cursor: Cursor
    size: int
    device: torch.device

    def start(self, source: Source, n: int, mean: Tensor) -> tuple[CursorState, Tensor | None]:
        copies = self.size + 1
        if source is None:
            return self.cursor.start(None, n * copies), None
        aside = self._aside.cpu().numpy()
        sources = [
            values - shift - each
            for values, shift in zip(source_of_each(source, n), mean.cpu().numpy(), strict=True)
            if values is not None
            for each in aside
        ]
        return self.cursor.start(sources, n * copies), None

    def begin(self, state: CursorState) -> CursorState:
        return state

    def next_step(self, state: CursorState, mean: Tensor) -> NextStep:
        both = self.cursor.distribution(state)
        copies, n = self.size + 1, len(mean)
        index = torch.arange(n, device=self.device) * copies
        first = Prediction(
            both.observation,
            both.output_parameters[index],
            None if both.log_weights is None else both.log_weights[index],
            None if both.past is None else both.past[index],
            None if both.log_end is None else both.log_end[index],
            None if both.exact_log_continue is None else both.exact_log_continue[index],
        )
        offsets = (mean.unsqueeze(1) + self._aside).flatten(0, 1).unsqueeze(1)  # (n (D + 1), 1, D)
        past = None if both.past is None else both.past.unsqueeze(1) + offsets.unsqueeze(-2)
        means = both.observation.shifted_means(both.output_parameters, offsets, past).flatten(1, 2)
        means = means.unflatten(0, (n, copies))  # (n, D + 1, J, D)
        slopes = ((means[:, 1:] - means[:, :1]) / DIFFERENCE).permute(0, 2, 3, 1)
        past = None if first.past is None else first.past.unsqueeze(1)
        log_weights, factors = both.observation.mixture_precisions(first.output_parameters, self.size, past)
        if first.log_weights is not None:
            log_weights = first.log_weights.unsqueeze(-1) + log_weights
        lead = factors.shape[:-2]
        log_weights = log_weights.expand(lead).flatten(1)
        return NextStep(LinearMixture(log_weights, means[:, 0], slopes, factors.flatten(1, 2)), first)

    def advance(self, state: CursorState, x: Tensor, log_joint: Tensor, mean: Tensor) -> CursorState:
        read = (x - mean).unsqueeze(1) - self._aside  # (n, D + 1, D)
        return self.cursor.advance(state, read.flatten(0, 1))

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        copies = self.size + 1
        rows = index.unsqueeze(-1) * copies + torch.arange(copies, device=index.device)
        return self.cursor.select(state, rows.flatten())

    @property
    def n_components(self) -> int:
        return 4 * (self.size + 1)  # about: what the network holds of each copy besides

    @property
    def _aside(self) -> Tensor:
        """``(D + 1, D)``: of each copy, how much further its offset is."""
        units = torch.eye(self.size, dtype=torch.float64, device=self.device)
        return DIFFERENCE * torch.cat([units.new_zeros(1, self.size), units])

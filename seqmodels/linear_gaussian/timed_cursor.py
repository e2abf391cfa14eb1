"""The predictions of a linear-Gaussian system whose steps have times, one step at a time."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source
from seqmodels.linear_gaussian.cursor import SystemCursor, SystemState, UnseenSteps


@dataclass(frozen=True)
class TimedSystemState:
    """The state of a ``TimedSystemCursor``: the filtered hidden states of n sequences whose steps have times.

    Attributes:
        state: predicted hidden state at the time of the next step.
        after_last: hidden state after the last step, from which the cursor moves to any time; None before the first
            step.
        time: time of the last step in steps of the system, float64 ``(n,)``; None before the first step.
        next_time: time of the next step, float64 ``(n,)``.
    """

    state: SystemState
    after_last: SystemState | None
    time: Tensor | None
    next_time: Tensor


@dataclass(frozen=True)
class TimedSystemCursor(UnseenSteps[TimedSystemState]):
    """A base class of step-by-step Kalman filters over steps at given times, which are counted in steps of the system.

    ``given`` sets the time of the next step. Without it the first step is at 0, and each other one step of the system
    later than the last. To add one, define ``at_time`` and ``one_later``.

    Attributes:
        cursor: cursor of the system over steps without times.
    """

    cursor: SystemCursor

    @property
    def is_gaussian(self) -> bool:
        return self.cursor.is_gaussian

    @abstractmethod
    def at_time(self, after_last: SystemState, last: Tensor, time: Tensor) -> SystemState:
        """Return the predicted hidden state of each of n sequences at a given time, from the state after its last step.

        Args:
            after_last: state after the last step.
            last: time of the last step, ``(n,)``.
            time: time to predict, ``(n,)``.

        Raises:
            ValueError: a time at which no step can follow the last.
        """

    @abstractmethod
    def one_later(self, after_last: SystemState) -> SystemState:
        """Return the predicted hidden state one step of the system after the last step.

        ``after_last`` is the state after the last step.
        """

    def start(self, source: Source = None, n: int = 1) -> TimedSystemState:
        state = self.cursor.start(source, n)
        return TimedSystemState(state, None, None, state.mean.new_zeros(n))

    def given(self, state: TimedSystemState, inputs: Tensor) -> TimedSystemState:
        """Return the state with the times of the next step of n sequences, ``inputs (n, 1)``, NaN for no change.

        Raises:
            ValueError: a time at which no step can follow the last.
        """
        time = inputs[:, 0].to(state.state.mean)
        time = torch.where(time.isnan(), state.next_time, time)
        if state.time is None or state.after_last is None:
            return replace(state, next_time=time)
        return replace(state, state=self.at_time(state.after_last, state.time, time), next_time=time)

    def advance(self, state: TimedSystemState, x: Tensor) -> TimedSystemState:
        """Return the state after each of n sequences has read its next step, ``x (n, D)`` for D features."""
        return self._after(state, self.cursor.advance(state.state, x))

    def unseen(self, state: TimedSystemState) -> TimedSystemState:
        return self._after(state, self.cursor.unseen(state.state))

    def _after(self, state: TimedSystemState, after_last: SystemState) -> TimedSystemState:
        return TimedSystemState(self.one_later(after_last), after_last, state.next_time, state.next_time + 1)

    def distribution(self, state: TimedSystemState) -> Prediction:
        return self.cursor.distribution(state.state)

    def select(self, state: TimedSystemState, index: Tensor) -> TimedSystemState:
        after_last = None if state.after_last is None else self.cursor.select(state.after_last, index)
        time = None if state.time is None else state.time[index]
        return TimedSystemState(self.cursor.select(state.state, index), after_last, time, state.next_time[index])

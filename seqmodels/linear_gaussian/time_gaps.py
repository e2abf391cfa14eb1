"""Steps at any times, for a system whose states are a process in continuous time.

Over a gap δ the state moves by ``A(δ)`` and gathers noise of covariance ``Q(δ)``, both in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.generation import Prediction, Source
from seqmodels.inference.gaussian.kalman import factors_of
from seqmodels.linear_gaussian.cursor import SystemCursor, SystemState, UnseenSteps
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.linear_gaussian.structures import ContinuousProcess

ROUNDING = 4 * np.finfo(np.float64).eps  # of a time: whole numbers of steps that are as near are meant


def gaps_of(examples: Sequence[Example]) -> list[np.ndarray] | None:
    """Return for each example the time from each step to the next, ``(T,)``, in steps of the system, 0 after the last.

    The one input of an example is its times, in steps, which do not fall; without it steps follow one another. Returns
    None if all gaps are 1.
    """
    gaps = []
    for e in examples:
        times = np.arange(len(e.values), dtype=np.float64) if e.inputs is None else e.inputs[:, 0].astype(np.float64)
        between = np.diff(times)
        whole = np.rint(between)
        between = np.where(np.abs(between - whole) <= ROUNDING * np.abs(times).max(initial=0.0), whole, between)
        gaps.append(np.append(between, 0.0)[: len(times)])
    return None if all((each[:-1] == 1).all() for each in gaps) else gaps


# -- one step at a time ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SystemStateOverGaps:
    """The state of a system in continuous time, for n sequences.

    Attributes:
        state: state at the time of the next step.
        at_last: state at the time of the last step, after that step; None before the first.
        time: time of the last step in steps of the system, float64 ``(n,)``; None before the first.
        next_time: time of the next step, float64 ``(n,)``.
    """

    state: SystemState
    at_last: SystemState | None
    time: Tensor | None
    next_time: Tensor


@dataclass(frozen=True)
class SystemCursorOverGaps(UnseenSteps[SystemStateOverGaps]):
    """The cursor of a system over steps at any times that do not fall, in steps of the system.

    ``given`` tells the time of the next step. Without it the first step is at 0, and each other 1 later than the last.

    Attributes:
        cursor: cursor of a system whose state stays where it is.
        process: process that moves the state.
    """

    cursor: SystemCursor
    process: ContinuousProcess

    @classmethod
    def of(cls, parameters: SystemParameters, form: Form, device: torch.device) -> SystemCursorOverGaps:
        """Return the cursor of parameters that have a process, with its matrices on ``device``."""
        assert parameters.process is not None, "else steps are on a grid"
        K = len(parameters.transition)
        still = replace(parameters, transition=np.eye(K), state_covariance=np.zeros((K, K)))
        return cls(SystemCursor.of(still, form, device), parameters.process)

    def start(self, source: Source = None, n: int = 1) -> SystemStateOverGaps:
        """Return the state before the first step of ``n`` sequences."""
        state = self.cursor.start(source, n)
        return SystemStateOverGaps(state, None, None, state.mean.new_zeros(n))

    def given(self, state: SystemStateOverGaps, inputs: Tensor) -> SystemStateOverGaps:
        """Return the same state with the times ``(n, 1)`` of the next step; NaN leaves a time as it is.

        Raises:
            ValueError: a time before that of the last step.
        """
        time = inputs[:, 0].to(state.state.mean)
        time = torch.where(time.isnan(), state.next_time, time)
        if state.time is None or state.at_last is None:
            return replace(state, next_time=time)
        gaps = time - state.time
        if bool((gaps < 0).any()):
            raise ValueError(
                f"a step is {float(gaps.min()):.6g} times time_step after the one before; pass times that do not fall"
            )
        return replace(state, state=self._moved(state.at_last, gaps), next_time=time)

    def advance(self, state: SystemStateOverGaps, x: Tensor) -> SystemStateOverGaps:
        """Return the state after each sequence's next step, ``x (n, D)``."""
        return self._after(state, self.cursor.advance(state.state, x))

    def unseen(self, state: SystemStateOverGaps) -> SystemStateOverGaps:
        """Return the state after a next step that is not seen."""
        return self._after(state, self.cursor.unseen(state.state))

    def _after(self, state: SystemStateOverGaps, at_last: SystemState) -> SystemStateOverGaps:
        moved = self._moved(at_last, torch.ones_like(state.next_time))
        return SystemStateOverGaps(moved, at_last, state.next_time, state.next_time + 1)

    def _moved(self, state: SystemState, gaps: Tensor) -> SystemState:
        """Return the state after ``gaps (n,)`` in which nothing is seen."""
        distinct, which = torch.unique(gaps, return_inverse=True)
        matrices = self.process.over(distinct.cpu().numpy())
        transition = torch.as_tensor(matrices[0], device=gaps.device)[which]  # (n, K, K)
        noise = torch.as_tensor(factors_of(matrices[1]), device=gaps.device)[which]
        mean = (transition @ state.mean.unsqueeze(-1)).squeeze(-1)
        if len(distinct) == 1:  # covariances that are shared stay so
            transition, noise = transition[:1], noise[:1].expand(len(state.factor), -1, -1)
            factor, rows = state.factor, state.rows
        else:
            factor, rows = state.each_factor.expand(len(gaps), -1, -1), None
        upper: Tensor = torch.linalg.qr(torch.cat([factor @ transition.mT, noise], 1)).R
        return replace(state, mean=mean, factor=upper, rows=rows)

    def distribution(self, state: SystemStateOverGaps) -> Prediction:
        """Return the Gaussian prediction of the next step."""
        return self.cursor.distribution(state.state)

    def select(self, state: SystemStateOverGaps, index: Tensor) -> SystemStateOverGaps:
        """Return the state of the sequences ``index (m,)``, in this order."""
        at_last = None if state.at_last is None else self.cursor.select(state.at_last, index)
        time = None if state.time is None else state.time[index]
        return SystemStateOverGaps(self.cursor.select(state.state, index), at_last, time, state.next_time[index])

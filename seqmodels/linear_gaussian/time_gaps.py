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
from seqmodels.inference.gaussian.kalman import factors_of
from seqmodels.linear_gaussian.cursor import SystemCursor, SystemState
from seqmodels.linear_gaussian.innovations import StudentTInnovations
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.linear_gaussian.structures import ContinuousProcess
from seqmodels.linear_gaussian.timed_cursor import TimedSystemCursor

ROUNDING = 4 * np.finfo(np.float64).eps  # of a time: whole numbers of steps that are as near are meant


def gaps_of(examples: Sequence[Example]) -> list[np.ndarray] | None:
    """Return the time from each step of an example to the next, in steps of the system, ``(T,)``, 0 after the last.

    Args:
        examples: examples whose one input is the times of their steps, in steps of the system, which do not fall;
            without inputs their steps are one apart.

    Returns:
        An array of gaps for each example; None if all gaps are 1.
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
class SystemCursorOverGaps(TimedSystemCursor):
    """The step-by-step Kalman filter of a system in continuous time, whose steps may be any times apart, in order.

    Attributes:
        cursor: cursor of a system whose state does not move.
        process: process that moves the state over gaps of time.
    """

    process: ContinuousProcess

    @classmethod
    def of(
        cls,
        parameters: SystemParameters,
        form: Form,
        device: torch.device,
        innovations: StudentTInnovations | None = None,
    ) -> SystemCursorOverGaps:
        """Return the cursor of a system in continuous time, with its matrices on ``device``.

        Args:
            parameters: matrices of the system, with a ``process``.
            form: which inputs the system reads.
            device: device of the tensors.
            innovations: density of the innovations; None if it is the Gaussian of the filter.
        """
        assert parameters.process is not None, "else steps are on a grid"
        K = len(parameters.transition)
        still = replace(parameters, transition=np.eye(K), state_covariance=np.zeros((K, K)))
        return cls(SystemCursor.of(still, form, device, innovations), parameters.process)

    def at_time(self, after_last: SystemState, last: Tensor, time: Tensor) -> SystemState:
        gaps = time - last
        if bool((gaps < 0).any()):
            raise ValueError(
                f"a step is {float(gaps.min()):.6g} times time_step after the one before; pass times that do not fall"
            )
        return self._moved(after_last, gaps)

    def one_later(self, after_last: SystemState) -> SystemState:
        return self._moved(after_last, after_last.mean.new_ones(len(after_last.mean)))

    def _moved(self, state: SystemState, gaps: Tensor) -> SystemState:
        """Return the state of n sequences after gaps of time without observations, ``gaps (n,)`` in steps."""
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

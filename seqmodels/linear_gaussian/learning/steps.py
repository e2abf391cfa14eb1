"""Steps of EM from one start, when they end, the best of several starts, and what a checkpoint holds of them.

A checkpoint holds what an E-step begins with and the rows of the steps before. A run that goes on from it, be it under
way or at its end, begins with that E-step, and so takes the steps of a run without a break, but for rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from seqmodels.common.distributed import of_rank_zero
from seqmodels.training import Checkpoints, interruptible

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, float]


@dataclass(frozen=True)
class StopAfter:
    """After ``max_iter`` steps, ``max_seconds`` (None: no limit), or an improvement below ``tol`` nats per unit (0:
    never).
    """

    max_iter: int
    tol: float
    max_seconds: float | None = None

    def out_of_time(self, seconds: float) -> bool:
        """Whether so many seconds are more than there are."""
        return self.max_seconds is not None and seconds > self.max_seconds


@dataclass(kw_only=True)
class FitSteps:
    """The rows of the steps of one start; row i has the figures of the parameters before M-step i."""

    rows: list[Row] = field(default_factory=list)
    converged: bool = False
    interrupted: bool = False

    @property
    def rank(self) -> tuple[bool, float]:
        """By which starts are compared: off the floor first, then the objective."""
        return self.rows[-1]["floor_hits"] == 0, self.rows[-1]["objective"]

    @property
    def seconds(self) -> float:
        """Of the last row; 0 before the first."""
        return self.rows[-1]["seconds"] if self.rows else 0.0

    def frame(self) -> pd.DataFrame:
        """A row a step, the columns those of ``history_``."""
        import pandas as pd

        return pd.DataFrame(self.rows)


class Alternation(Protocol):
    """What EM alternates from one start; it keeps the parameters."""

    def e_step(self, step: int) -> float:
        """Take the expectations; what the parameters that they are of come to, in nats of encoded data."""

    def m_step(self, step: int) -> None:
        """Set the parameters to those that maximise what is expected."""

    def row(self, step: int, seconds: float, log_prob: float) -> Row:
        """Of the history, of an E-step."""

    def state(self) -> dict[str, Any]:
        """Arrays and JSON values that the next E-step begins with; no step changes them in their place."""


def take_steps(
    steps: FitSteps,
    of: Alternation,
    stop: StopAfter,
    callback: Callable[[Row], None],
    checkpoints: Checkpoints,
) -> None:
    """Until ``stop`` says so; a signal ends it with the parameters whose figures are known.

    Every process of several has its share of the data, and all take the same steps.

    Args:
        steps: rows of the steps that are done, to which others are added.
        of: the E-step and the M-step; where ``steps`` has rows it is as after the last M-step.
        stop: when to end.
        callback: is given every new row.
        checkpoints: where to write how far it came.
    """
    began = time.perf_counter() - steps.seconds
    with interruptible() as interruption:
        for step in range(len(steps.rows), stop.max_iter + 1):
            begun = {**of.state(), "rows": list(steps.rows)}
            log_prob = of.e_step(step)
            seconds = of_rank_zero(time.perf_counter() - began)
            steps.rows.append(of.row(step, seconds, log_prob))
            callback(steps.rows[-1])
            interruption.hold()
            before = steps.rows[-2]["objective"] if step else -math.inf
            steps.converged = stop.tol > 0 and steps.rows[-1]["objective"] - before < stop.tol
            steps.interrupted = interruption.requested
            if steps.converged or steps.interrupted or step == stop.max_iter or stop.out_of_time(seconds):
                checkpoints.write(begun)
                break
            of.m_step(step)
            if checkpoints.due:
                checkpoints.write({**of.state(), "rows": list(steps.rows)})


RunT = TypeVar("RunT", bound=FitSteps)


@dataclass(frozen=True)
class Starts(Generic[RunT]):
    """The best of several starts, by ``FitSteps.rank``.

    Attributes:
        n: starts.
        run: from start i, given where to write and what to go on from.
        arrays: what is kept of a run.
        from_arrays: the inverse of ``arrays``.
    """

    n: int
    run: Callable[[int, Checkpoints], RunT]
    arrays: Callable[[RunT], dict[str, Any]]
    from_arrays: Callable[[Mapping[str, Any]], RunT]

    def best(self, checkpoints: Checkpoints) -> tuple[RunT, Checkpoints]:
        """A signal ends it after the start that is under way; and the checkpoints of what follows the starts."""
        state = checkpoints.state
        n, number, best, running = self.n, 0, None, None
        if state is not None:
            n, number, running = state["n"], state["number"], state["running"]
            best = None if state["best"] is None else self.from_arrays(state["best"])
        while number < n:
            run = self.run(number, self._within(checkpoints, n, number, best, running))
            best, number, running = run if best is None or run.rank > best.rank else best, number + 1, None
            if run.interrupted:
                break
        assert best is not None, "there is one start at least"
        return best, self._within(checkpoints, n, number, best, running)

    def _within(
        self, checkpoints: Checkpoints, n: int, number: int, best: RunT | None, running: Mapping[str, Any] | None
    ) -> Checkpoints:
        if checkpoints.path is None and running is None:
            return Checkpoints()
        kept = None if best is None else {**self.arrays(best), "rows": best.rows, "converged": best.converged}
        return checkpoints.within({"n": n, "number": number, "best": kept}, running)


def copied(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Of what was read from a file, in memory of their own: products may depend on the alignment of their memory."""
    return {name: np.array(array) for name, array in arrays.items()}

"""EM: the loop of E-steps and M-steps, when it stops, the best of several starts, checkpoints, several processes.

A model supplies an ``EMProblem``: an E-step, an M-step and a row of figures. ``run_em`` alternates them from one start,
or from several side by side; ``Starts`` runs all starts and keeps the best. A checkpoint holds what an E-step begins
with and the rows of the steps before, so a resumed run takes the steps of a run without a break, but for rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from seqmodels.common.distributed import all_reduce_sum, is_distributed, is_rank_zero
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.training.callbacks import Callback
from seqmodels.training.checkpoint import Checkpoints
from seqmodels.training.interruption import Interruption, interruptible

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, float]
StartT = TypeVar("StartT")  # what an E-step begins with: parameters, or arrays that loops fill
StartT_contra = TypeVar("StartT_contra", contravariant=True)
ExpectationsT = TypeVar("ExpectationsT")
ParametersT = TypeVar("ParametersT")
ParametersT_co = TypeVar("ParametersT_co", covariant=True)


# -- when it stops, and where it ended ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class StopRule:
    """When a run stops: after ``max_iter`` steps, after ``max_seconds`` (None: no limit), or when a step improves the
    objective by less than ``tol`` nats per unit (0: never).
    """

    max_iter: int
    tol: float
    max_seconds: float | None = None

    def converged(self, rows: Sequence[Row]) -> bool:
        """Return whether the last of the rows improved the objective too little."""
        return self.tol > 0 and len(rows) > 1 and rows[-1]["objective"] - rows[-2]["objective"] < self.tol

    def out_of_time(self, seconds: float) -> bool:
        """Return whether so many seconds are more than there are."""
        return self.max_seconds is not None and seconds > self.max_seconds


@dataclass(frozen=True)
class FitResult(Generic[ParametersT]):
    """Where a fit ended.

    Attributes:
        parameters: the fitted parameters.
        rows: figures of each step; the last row has those of ``parameters``, row i those before M-step i.
        converged: whether it stopped because a step improved the objective too little.
        kept: what the model needs beside the parameters, such as the statistics of the last E-step; or None.
        interrupted: whether a signal ended it.
        starts: for the best of several starts, the last row of each start.
        start: the number of the start that this is, counted from 0.
    """

    parameters: ParametersT
    rows: list[Row]
    converged: bool
    kept: Any = None
    interrupted: bool = False
    starts: tuple[Row, ...] = ()
    start: int = 0

    @cached_property
    def history(self) -> pd.DataFrame:
        """The rows as a table."""
        return self.history_with()

    def history_with(self, **of_last: float) -> pd.DataFrame:
        """Return the history with a column for each of these figures, which are known for the last row alone."""
        import pandas as pd

        n_before = len(self.rows) - 1
        columns = {name: np.array([row[name] for row in self.rows]) for name in self.rows[-1]}
        known = {name: np.append(np.full(n_before, np.nan), value) for name, value in of_last.items()}
        return pd.DataFrame({**columns, **known}, copy=False)

    @property
    def last_row(self) -> Row:
        """The objective, the log-probability and the floor hits that it ended with."""
        last = self.rows[-1]
        return {name: float(last[name]) for name in ("objective", "log_prob", "floor_hits")}

    @property
    def rank(self) -> tuple[bool, float]:
        """The key by which starts are compared: one that ends on a floor loses, then the objective decides."""
        last = self.rows[-1]
        return last["floor_hits"] == 0, float(last["objective"])


class EMProblem(Protocol[StartT, ExpectationsT, ParametersT_co]):
    """What EM needs to know of a model. To fit a model by EM, define these four.

    In the simplest case ``StartT`` and ``ParametersT`` are one class of parameters, and expectations are sufficient
    statistics that know their log-probability.
    """

    def e_step(self, parameters: Sequence[StartT], interruption: Interruption) -> Sequence[ExpectationsT] | None:
        """Return the expectations under each of these parameters, summed over all processes.

        Return None if ``interruption.requested`` becomes true before all data were seen.
        """

    def row(self, step: int, seconds: float, parameters: StartT, expectations: ExpectationsT) -> Row:
        """Return the row of the history for these parameters.

        It has ``step`` and ``seconds`` as given, ``log_prob`` and ``objective`` in nats per unit, and ``floor_hits``.
        """

    def m_step(self, parameters: StartT, expectations: ExpectationsT) -> StartT:
        """Return the parameters that maximise the expected objective."""

    def ended(self, parameters: StartT, expectations: ExpectationsT, n_rows: int) -> tuple[ParametersT_co, Any]:
        """Return what is kept of a run that ends here after so many rows: ``FitResult.parameters`` and ``.kept``."""


class Store(Protocol[ParametersT]):
    """How the parameters of a model are written to a checkpoint and read again."""

    def arrays(self, parameters: ParametersT, kept: Any) -> dict[str, Any]:
        """Return arrays and JSON values by name; ``kept`` is None while a run goes on."""

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[ParametersT, Any]:
        """Return the parameters and what was kept; the inverse of ``arrays``."""


# -- from some starts to where each ends -------------------------------------------------------------------------------


@dataclass
class _Run:
    """EM from one start, so far.

    Attributes:
        parameters: what the next E-step begins with, or once it has ended the fitted ones.
        last: what the last row was computed with: parameters and expectations; None before the first E-step.
    """

    parameters: Any
    rows: list[Row] = field(default_factory=list)
    converged: bool = False
    has_ended: bool = False
    kept: Any = None
    interrupted: bool = False
    last: tuple[Any, Any] | None = None

    def end(self, problem: EMProblem[Any, Any, Any]) -> None:
        assert self.last is not None, "it ends with parameters whose figures are known"
        self.parameters, self.kept = problem.ended(*self.last, len(self.rows))
        self.has_ended, self.last = True, None

    def state(self, store: Store[Any]) -> dict[str, Any]:
        arrays = store.arrays(self.parameters, self.kept)
        return {**arrays, "rows": self.rows, "converged": self.converged, "ended": self.has_ended}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], store: Store[Any]) -> _Run:
        parameters, kept = store.from_arrays(state)
        has_ended = state.get("ended", kept is not None)  # earlier checkpoints have no such key
        return cls(parameters, list(state["rows"]), state.get("converged", False), has_ended, kept)


def run_em(
    problem: EMProblem[StartT, Any, ParametersT],
    starts: Iterable[StartT],
    stop: StopRule,
    *,
    callback: Callback = lambda row: None,
    checkpoints: Checkpoints | None = None,
    store: Store[StartT] | None = None,
    rows: Sequence[Row] = (),
) -> list[FitResult[ParametersT]]:
    """Run EM from each start, side by side, until ``stop`` says so.

    All that have not stopped yet share an E-step. Seconds are those of all together, so ``stop.max_seconds`` is allowed
    to each start. Rows, and so the decision to stop, are those of process 0. A signal ends all runs with the parameters
    whose figures are known; starts without a row are then left out.

    Args:
        problem: the E-step, the M-step and the rows.
        starts: what the first E-steps begin with; not read where ``checkpoints`` resume an earlier run.
        stop: when each start stops.
        callback: is called with the best new row of every step.
        checkpoints: where to write how far it came, and what to resume from.
        store: how to write and read parameters; needed for checkpoints alone.
        rows: the history of what came before, which each start continues; ``stop.max_iter`` counts it too.
    """
    checkpoints = checkpoints or Checkpoints()
    if checkpoints.state is None:
        runs = [_Run(start, list(rows)) for start in starts]
    else:
        assert store is not None, "it wrote the state"
        # Each of several has a key, which is that of checkpoints already written; earlier ones of one run have none.
        states = checkpoints.state.get("climbs", {"0": checkpoints.state})
        runs = [_Run.from_state(states[str(i)], store) for i in range(len(states))]
    if stop.max_seconds is not None and len(runs) > 1:
        stop = replace(stop, max_seconds=stop.max_seconds * len(runs))
    began = time.perf_counter() - max((run.rows[-1]["seconds"] for run in runs if run.rows), default=0.0)

    def write() -> None:
        if checkpoints.path is not None:
            assert store is not None, "there are checkpoints"
            checkpoints.write({"climbs": {str(i): run.state(store) for i, run in enumerate(runs)}})

    with interruptible() as interruption:
        active = [run for run in runs if not run.has_ended]
        if rows and checkpoints.due:  # of what came before nothing may have been written for long
            write()
        while active:
            e_steps = problem.e_step([run.parameters for run in active], interruption)
            if e_steps is None:
                write()
                _end_at_last_rows(problem, active)
                break
            seconds = time.perf_counter() - began
            new = [
                problem.row(len(run.rows), seconds, run.parameters, expectations)
                for run, expectations in zip(active, e_steps, strict=True)
            ]
            if is_distributed():
                new = _of_first_process(new)
            callback(new[0] if len(new) == 1 else max(new, key=_objective))
            interruption.hold()
            is_interrupted = interruption.requested
            if is_interrupted:
                write()  # what this E-step began with
            is_over = is_interrupted or stop.out_of_time(new[0]["seconds"])
            for run, row, expectations in zip(active, new, e_steps, strict=True):
                run.rows.append(row)
                run.last = run.parameters, expectations
                run.converged = stop.converged(run.rows)
                run.interrupted = is_interrupted
                if is_over or run.converged or row["step"] >= stop.max_iter:
                    run.end(problem)
                else:
                    run.parameters = problem.m_step(run.parameters, expectations)
            active = [run for run in active if not run.has_ended]
            if active and checkpoints.due:
                write()
    return [
        FitResult(run.parameters, run.rows, run.converged, run.kept, run.interrupted) for run in runs if run.has_ended
    ]


def _end_at_last_rows(problem: EMProblem[Any, Any, Any], runs: Sequence[_Run]) -> None:
    """End runs that a signal stopped within an E-step; one without a known row stays as it is."""
    for run in runs:
        if run.last is not None:
            run.interrupted = True
            run.end(problem)


def _of_first_process(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of process 0, in every process, so that all stop together whatever their clocks and rounding."""
    numbers = iter(all_reduce_sum([], [float(figure) for row in rows for figure in row.values()])[1])
    return [{name: type(figure)(next(numbers)) for name, figure in row.items()} for row in rows]


def _objective(row: Row) -> float:
    return row["objective"]


# -- the best of several starts ----------------------------------------------------------------------------------------


class RunOfStarts(Protocol[StartT_contra, ParametersT]):
    """An algorithm that fits from some starts: ``run_em`` of a problem, or another that returns results of its kind."""

    def __call__(
        self, starts: Iterable[StartT_contra], *, callback: Callback, checkpoints: Checkpoints
    ) -> list[FitResult[ParametersT]]:
        """Return where each start ended, without those that a signal stopped before they had a row.

        ``starts`` need not be read where ``checkpoints`` resume an earlier run of them.
        """


@dataclass(frozen=True)
class Starts(Generic[StartT, ParametersT]):
    """Several starts, of which the best is kept; one that ends on a floor loses to one that does not.

    Attributes:
        n: how many there are.
        start: makes the start of a number.
        run: the algorithm that fits from each.
        store: how to write and read fitted parameters.
        max_iter: most steps of each start, for the progress bar.
        verbose: whether to show a progress bar.
        together: how many starts are run side by side.
    """

    n: int
    start: Callable[[int], StartT]
    run: RunOfStarts[StartT, ParametersT]
    store: Store[ParametersT]
    max_iter: int
    verbose: Verbose
    together: int = 1

    def best(self, checkpoints: Checkpoints) -> tuple[FitResult[ParametersT], Checkpoints]:
        """Return the best result, and the checkpoints of what the fit does after the starts.

        A signal ends it after the starts that are under way.

        Raises:
            KeyboardInterrupt: a signal came before any start had a row of history.
        """
        n, number, best, running = self.n, 0, None, None
        if checkpoints.state is not None:
            n, number, best, running = self._resumed(checkpoints.state)
        with interruptible() as interruption:
            while number < n:
                numbers = range(number, min(number + self.together, n))
                name = f"EM {numbers.stop}" if len(numbers) == 1 else f"EM {number + 1} to {numbers.stop}"
                inner = self._within(checkpoints, n, number, best, running)
                with ProgressBar(self.max_iter, self.verbose if is_rank_zero() else False, name) as bar:
                    starts = (self.start(i) for i in numbers)
                    results = self.run(starts, callback=partial(show_row, bar), checkpoints=inner)
                best = _best_so_far(best, results)
                if len(results) < len(numbers) or any(result.interrupted for result in results):
                    break
                number, running = numbers.stop, None
                if checkpoints.path is not None and (interruption.requested or number == n):
                    checkpoints.write({**self._state(n, number, best), "running": None})
                if interruption.requested:
                    break
        if best is None:
            raise KeyboardInterrupt
        return best, self._within(checkpoints, n, number, best, running)

    def _within(
        self,
        checkpoints: Checkpoints,
        n: int,
        number: int,
        best: FitResult[ParametersT] | None,
        running: Mapping[str, Any] | None,
    ) -> Checkpoints:
        if checkpoints.path is None and running is None:
            return Checkpoints()
        return checkpoints.within(self._state(n, number, best), running)

    def _state(self, n: int, number: int, best: FitResult[ParametersT] | None) -> dict[str, Any]:
        kept = best and {
            **self.store.arrays(best.parameters, best.kept),
            **{"rows": best.rows, "converged": best.converged, "starts": list(best.starts), "start": best.start},
        }
        return {"n": n, "number": number, "best": kept}

    def _resumed(self, state: Mapping[str, Any]) -> tuple[int, int, FitResult[ParametersT] | None, Any]:
        """Return the number of starts, how many have ended, the best of them, and the state of those under way."""
        if "n" in state:
            n, number = state["n"], state["number"]
        else:  # as HMMs wrote it at first
            n, number = state["n_before"] + len(state["starts"]), state["n_before"]
        best, stored = None, state["best"]
        if stored is not None:
            parameters, kept = self.store.from_arrays(stored)
            rows = stored["rows"] if "rows" in stored else _typed_rows(stored)
            starts, start = tuple(stored.get("starts", ())), stored.get("start", 0)
            best = FitResult(parameters, list(rows), bool(stored["converged"]), kept, starts=starts, start=start)
        return n, number, best, state["running"]


def _typed_rows(stored: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a checkpoint of an HMM that holds types apart."""
    types = {name: int if kind.startswith("int") else float for name, kind in stored["types"].items()}
    return [{name: kind(row[name]) for name, kind in types.items()} for row in stored["history"]]


def _best_so_far(
    best: FitResult[ParametersT] | None, results: Sequence[FitResult[ParametersT]]
) -> FitResult[ParametersT] | None:
    """Return the result of highest rank, with the last rows of all starts."""
    rows = () if best is None else best.starts
    numbered = [replace(result, start=len(rows) + i) for i, result in enumerate(results)]
    winner = max([*([] if best is None else [best]), *numbered], key=lambda result: result.rank, default=None)
    return None if winner is None else replace(winner, starts=(*rows, *(result.last_row for result in results)))


def show_row(bar: ProgressBar, row: Row) -> None:
    """Show in a progress bar how far EM has come."""
    bar.move(row["step"], f"{row['log_prob']:.4f} nats per unit")

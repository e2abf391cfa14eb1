"""The EM driver: the loop of E-steps and M-steps, stopping, several starts, checkpoints, and several processes.

A model supplies an ``EMProblem``: an E-step, an M-step and a row of figures. ``run_em`` alternates them from one start,
or from several side by side; ``Starts`` runs all starts and keeps the best. A checkpoint holds the parameters with
which an E-step begins and the rows of the steps before, so a resumed run takes the same steps as a run without a break,
but for rounding.
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
StartT = TypeVar("StartT")  # the parameters in the form that an E-step reads, for example arrays that loops fill
StartT_contra = TypeVar("StartT_contra", contravariant=True)
ExpectationsT = TypeVar("ExpectationsT")
ParametersT = TypeVar("ParametersT")
ParametersT_co = TypeVar("ParametersT_co", covariant=True)


# -- when it stops, and where it ended ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class StopRule:
    """The rule by which a run of EM stops: after a number of iterations, of seconds, or without improvement.

    Attributes:
        max_iter: most EM iterations.
        tol: the run stops when an iteration improves the objective by less than this, in nats per unit; 0 means never.
        max_seconds: most seconds, or None for no limit.
    """

    max_iter: int
    tol: float
    max_seconds: float | None = None

    def converged(self, rows: Sequence[Row]) -> bool:
        """Return True if the last EM iteration improved the objective by less than ``tol``.

        Args:
            rows: the history, one dictionary of figures for each iteration.
        """
        return self.tol > 0 and len(rows) > 1 and rows[-1]["objective"] - rows[-2]["objective"] < self.tol

    def out_of_time(self, seconds: float) -> bool:
        return self.max_seconds is not None and seconds > self.max_seconds


@dataclass(frozen=True)
class FitResult(Generic[ParametersT]):
    """The result of a fit from one start (initial parameters): fitted parameters, history, and how it ended.

    Attributes:
        parameters: the fitted parameters.
        rows: the history: objective, log-probability and time of each EM iteration as a dictionary. The last row
            describes ``parameters``, and row i the parameters before the M-step of iteration i.
        converged: True if the fit stopped because an iteration improved the objective by less than ``StopRule.tol``.
        kept: anything that the model needs beside the parameters, such as the statistics of the last E-step; or None.
        interrupted: True if Ctrl-C or SIGTERM ended the fit.
        starts: for the best of several starts, the last row of each start.
        start: the number of this start, counted from 0.
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
        """The history of the fit as a data frame with one row for each EM iteration and a column for each figure."""
        return self.history_with()

    def history_with(self, **of_last: float) -> pd.DataFrame:
        """Return the history with one more column for each keyword argument: its value in the last row, else NaN."""
        import pandas as pd

        n_before = len(self.rows) - 1
        columns = {name: np.array([row[name] for row in self.rows]) for name in self.rows[-1]}
        known = {name: np.append(np.full(n_before, np.nan), value) for name, value in of_last.items()}
        return pd.DataFrame({**columns, **known}, copy=False)

    @property
    def last_row(self) -> Row:
        """The objective, log-probability and ``floor_hits`` of the last EM iteration.

        ``floor_hits`` is the number of variances at their lower bound.
        """
        last = self.rows[-1]
        return {name: float(last[name]) for name in ("objective", "log_prob", "floor_hits")}

    @property
    def rank(self) -> tuple[bool, float]:
        """The key by which results of several starts are compared: better ones are larger.

        A start that ends with a variance at its lower bound loses to one that does not; otherwise the objective
        decides.
        """
        last = self.rows[-1]
        return last["floor_hits"] == 0, float(last["objective"])


class EMProblem(Protocol[StartT, ExpectationsT, ParametersT_co]):
    """The interface of a model to EM (expectation maximisation). To fit a model by EM, define these four methods.

    In the simplest case ``StartT`` and ``ParametersT`` are one class of parameters, and expectations are sufficient
    statistics that know their log-probability.
    """

    def e_step(self, parameters: Sequence[StartT], interruption: Interruption) -> Sequence[ExpectationsT] | None:
        """Return the expectations under each of these parameters, summed over all processes.

        Return None if ``interruption.requested`` becomes true before all data were read.

        Args:
            parameters: parameters of each run of EM, which all read the data together.
            interruption: record of Ctrl-C and SIGTERM.
        """

    def row(self, step: int, seconds: float, parameters: StartT, expectations: ExpectationsT) -> Row:
        """Return the row of the history for these parameters, one dictionary of figures.

        Args:
            step: number of EM iterations so far.
            seconds: seconds so far.
            parameters: the parameters.
            expectations: result of the E-step with them.

        Returns:
            A dictionary with ``step`` and ``seconds`` as given, ``log_prob`` and ``objective`` in nats per unit, and
            ``floor_hits``, the number of variances at their lower bound.
        """

    def m_step(self, parameters: StartT, expectations: ExpectationsT) -> StartT:
        """Return the parameters that maximise the expected objective.

        Args:
            parameters: the parameters of the E-step.
            expectations: result of the E-step with them.
        """

    def ended(self, parameters: StartT, expectations: ExpectationsT, n_rows: int) -> tuple[ParametersT_co, Any]:
        """Return the fitted parameters, and anything else that ``FitResult.kept`` keeps, when a run of EM has ended.

        Args:
            parameters: the parameters of the last E-step.
            expectations: result of the last E-step.
            n_rows: number of rows of the history.
        """


class Store(Protocol[ParametersT]):
    """The conversion of a model's parameters to the form in which a checkpoint holds them, and back."""

    def arrays(self, parameters: ParametersT, kept: Any) -> dict[str, Any]:
        """Return parameters, and what else a fit keeps, as arrays and JSON values by name.

        Args:
            parameters: the parameters.
            kept: ``FitResult.kept``; None before the run has ended.
        """

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[ParametersT, Any]:
        """Return the parameters, and what else a fit keeps, from what ``Store.arrays`` returned."""


# -- from some starts to where each ends -------------------------------------------------------------------------------


@dataclass
class _Run:
    """A run of EM from one start (initial parameters), in progress or ended.

    Attributes:
        parameters: the parameters of the next E-step, or once it has ended the fitted ones.
        rows: the history so far, one dictionary of figures for each iteration.
        converged: True if an iteration improved the objective by less than the tolerance.
        has_ended: True if no more iterations follow.
        kept: what the model keeps beside the fitted parameters, as in ``FitResult``.
        interrupted: True if Ctrl-C or SIGTERM ended it.
        last: parameters and expectations with which the last row was computed; None before the first E-step.
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
    """Run EM from each start (initial parameters), side by side, until ``stop`` ends each run, and return the results.

    All runs that have not stopped share an E-step. Seconds count for all runs together, so each start is allowed
    ``stop.max_seconds``. With several processes all use the history of process 0, so that they stop together. Ctrl-C or
    SIGTERM ends all runs with the parameters of the last complete E-step; a start without one is left out of the
    results.

    Args:
        problem: the E-step, the M-step and the rows of the history.
        starts: initial parameters of each run; not read if ``checkpoints`` resume an earlier run.
        stop: when each run stops.
        callback: is called with the best new row of every iteration, a dictionary of figures.
        checkpoints: where to write progress, and what to resume from; None writes none.
        store: how to write and read parameters; needed only with checkpoints.
        rows: a history that each start continues; ``stop.max_iter`` counts its iterations too.
    """
    checkpoints = checkpoints or Checkpoints()
    if checkpoints.state is None:
        runs = [_Run(start, list(rows)) for start in starts]
    else:
        assert store is not None, "it wrote the state"
        # This key is fixed by checkpoints that are already written; earlier ones, with one run, have no such key.
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
        if rows and checkpoints.due:  # because the steps before may have taken long without a checkpoint
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
                write()  # the parameters of this E-step, so that a resumed run repeats it
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
    """End runs that were interrupted within an E-step, with the parameters of the last row of their history.

    Runs without rows are skipped.

    Args:
        problem: the E-step and M-step, which returns the fitted parameters.
        runs: the runs.
    """
    for run in runs:
        if run.last is not None:
            run.interrupted = True
            run.end(problem)


def _of_first_process(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of history of process 0 in every process, so that all stop together.

    Their clocks and their rounding may differ.
    """
    numbers = iter(all_reduce_sum([], [float(figure) for row in rows for figure in row.values()])[1])
    return [{name: type(figure)(next(numbers)) for name, figure in row.items()} for row in rows]


def _objective(row: Row) -> float:
    return row["objective"]


# -- the best of several starts ----------------------------------------------------------------------------------------


class RunOfStarts(Protocol[StartT_contra, ParametersT]):
    """An algorithm that fits from several starts (initial parameters), such as ``run_em`` with a problem."""

    def __call__(
        self, starts: Iterable[StartT_contra], *, callback: Callback, checkpoints: Checkpoints
    ) -> list[FitResult[ParametersT]]:
        """Return the result of each start, except starts that were interrupted before their first row of history.

        Args:
            starts: initial parameters of each run; they need not be read if ``checkpoints`` resume an earlier run from
                them.
            callback: is called with rows of the history.
            checkpoints: where to write progress, and what to resume from.
        """


@dataclass(frozen=True)
class Starts(Generic[StartT, ParametersT]):
    """A fit from several starts (random initial parameters), which keeps the best.

    A start that ends with a variance at its lower bound loses to one that does not; otherwise the objective decides.

    Attributes:
        n: number of starts.
        start: returns the initial parameters of the start with a given number, counted from 0.
        run: the algorithm that fits from some starts, such as ``run_em`` with a problem.
        store: how to write and read fitted parameters.
        max_iter: most iterations of each start, for the progress bar.
        verbose: True to show a progress bar.
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
        """Run all starts and return the best result, and the checkpoints for what the fit does after the starts.

        Ctrl-C or SIGTERM ends it after the starts that are running.

        Args:
            checkpoints: where to write progress, and what to resume from.

        Raises:
            KeyboardInterrupt: it was interrupted before any start had a row of history.
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
        """Return how far a fit from several starts had come, from the ``state`` in its checkpoint.

        Returns:
            The number of starts; how many have ended; the best result, or None; and the state of the starts in
            progress.
        """
        if "n" in state:
            n, number = state["n"], state["number"]
        else:  # the form in which early checkpoints of HMMs stored it
            n, number = state["n_before"] + len(state["starts"]), state["n_before"]
        best, stored = None, state["best"]
        if stored is not None:
            parameters, kept = self.store.from_arrays(stored)
            rows = stored["rows"] if "rows" in stored else _typed_rows(stored)
            starts, start = tuple(stored.get("starts", ())), stored.get("start", 0)
            best = FitResult(parameters, list(rows), bool(stored["converged"]), kept, starts=starts, start=start)
        return n, number, best, state["running"]


def _typed_rows(stored: Mapping[str, Any]) -> list[Row]:
    """Return the history from an early checkpoint of an HMM, which stores the figures and their types separately."""
    types = {name: int if kind.startswith("int") else float for name, kind in stored["types"].items()}
    return [{name: kind(row[name]) for name, kind in types.items()} for row in stored["history"]]


def _best_so_far(
    best: FitResult[ParametersT] | None, results: Sequence[FitResult[ParametersT]]
) -> FitResult[ParametersT] | None:
    """Return the best of an earlier result and new ones, with the last row of every start so far; None without any.

    Args:
        best: best result of the starts before, or None.
        results: results of the new starts.
    """
    rows = () if best is None else best.starts
    numbered = [replace(result, start=len(rows) + i) for i, result in enumerate(results)]
    winner = max([*([] if best is None else [best]), *numbered], key=lambda result: result.rank, default=None)
    return None if winner is None else replace(winner, starts=(*rows, *(result.last_row for result in results)))


def show_row(bar: ProgressBar, row: Row) -> None:
    """Show a row of EM's history in a progress bar: its step, and nats per unit."""
    bar.move(row["step"], f"{row['log_prob']:.4f} nats per unit")

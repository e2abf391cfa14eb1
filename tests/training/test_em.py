"""The loop of EM on a problem written out: what it stops at, which start wins, what checkpoints and processes hold."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqmodels.training import Checkpoints, FitResult, Interruption, Row, Starts, StopRule, checkpoint, em, run_em
from tests.killed_runs import Killed, written

ROW = {"log_prob": 0.0, "floor_hits": 0}


@dataclass
class Halving:
    """Each M-step halves the distance x to the maximum; the objective is ``-x``, and a distance below 0 is a floor.

    ``read`` has how many distances shared each E-step; ``stop_in`` is the E-step in which a signal comes.
    """

    stop_in: int | None = None
    read: list[int] = field(default_factory=list)

    def e_step(self, parameters: Sequence[float], interruption: Interruption) -> list[float] | None:
        self.read.append(len(parameters))
        if len(self.read) == self.stop_in:
            signal.raise_signal(signal.SIGINT)
        return None if interruption.requested else [-x for x in parameters]

    def row(self, step: int, seconds: float, parameters: float, expectations: float) -> Row:
        return {"step": step, "seconds": seconds, **ROW, "objective": expectations, "floor_hits": int(parameters < 0)}

    def m_step(self, parameters: float, expectations: float) -> float:
        return parameters / 2

    def ended(self, parameters: float, expectations: float, n_rows: int) -> tuple[float, str]:
        return parameters, f"after {n_rows}"


class Store:
    def arrays(self, parameters: float, kept: str | None) -> dict[str, Any]:
        return {"parameters": np.array(parameters), "kept": kept}

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[float, str | None]:
        return float(arrays["parameters"]), arrays.get("kept")


def objectives(result: FitResult[float]) -> list[float]:
    return [row["objective"] for row in result.rows]


def starts(
    problem: Halving, distances: Sequence[float], stop: StopRule, *, together: int = 1, made: list[int] | None = None
) -> Starts[float, float]:
    def start(number: int) -> float:
        if made is not None:
            made.append(number)
        return distances[number]

    run = partial(run_em, problem, stop=stop, store=Store())
    return Starts(len(distances), start, run, Store(), stop.max_iter, False, together)


# -- one start, and several side by side -----------------------------------------------------------------------


def test_the_last_row_is_of_the_parameters_that_it_ends_with() -> None:
    shown: list[Row] = []
    (result,) = run_em(Halving(), [8.0], StopRule(3, 0.0), callback=shown.append)
    assert (result.parameters, result.converged, result.kept) == (1.0, False, "after 4")
    assert objectives(result) == [-8.0, -4.0, -2.0, -1.0]
    assert shown == result.rows
    assert [row["step"] for row in shown] == [0, 1, 2, 3]


def test_it_stops_at_a_small_improvement_and_not_before_the_second_row() -> None:
    (result,) = run_em(Halving(), [8.0], StopRule(99, 1.5))
    assert (objectives(result), result.converged) == ([-8.0, -4.0, -2.0, -1.0], True)
    (at_once,) = run_em(Halving(), [8.0], StopRule(99, 100.0))
    assert objectives(at_once) == [-8.0, -4.0]


def test_those_that_go_on_share_an_e_step_and_the_best_row_is_shown() -> None:
    problem, shown = Halving(), list[float]()
    results = run_em(problem, [2.0, 64.0, 8.0], StopRule(99, 1.5), callback=lambda row: shown.append(row["objective"]))
    alone = [run_em(Halving(), [x], StopRule(99, 1.5))[0] for x in (2.0, 64.0, 8.0)]
    assert [objectives(result) for result in results] == [objectives(result) for result in alone]
    assert problem.read == [sum(len(result.rows) > i for result in results) for i in range(7)]
    assert shown == [-2.0, -1.0, -2.0, -1.0, -4.0, -2.0, -1.0]


@pytest.mark.parametrize(("n", "seconds"), [(1, 1.0), (3, 3.0)])
def test_time_is_allowed_to_each_of_those_side_by_side(n: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.arange(0, 99, 0.4))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    results = run_em(Halving(), [8.0] * n, StopRule(99, 0.0, max_seconds=1.0), checkpoints=Checkpoints())
    last = [result.rows[-1]["seconds"] for result in results]
    assert all(seconds < each <= seconds + 0.4 + 1e-9 for each in last), last


def test_rows_before_count_as_steps_and_as_time() -> None:
    before = [{"step": 0, "seconds": 5.0, **ROW, "objective": -8.5}]
    (result,) = run_em(Halving(), [8.0], StopRule(2, 1.0), rows=before)
    assert (objectives(result), result.converged) == ([-8.5, -8.0], True)
    assert 5.0 <= result.rows[-1]["seconds"] < 6.0


# -- the best of several ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_best_start_is_kept_with_the_last_rows_of_all(together: int) -> None:
    best, _ = starts(Halving(), [8.0, 4.0, 16.0], StopRule(2, 0.0), together=together).best(Checkpoints())
    assert (best.parameters, best.start) == (1.0, 1)
    assert [row["objective"] for row in best.starts] == [-2.0, -1.0, -4.0]
    assert best.history_with(validation=7.0)["validation"].tolist()[-1] == 7.0


def test_a_start_on_its_floor_loses_and_of_equal_ones_the_first_wins() -> None:
    best, _ = starts(Halving(), [-8.0, 4.0, 4.0], StopRule(0, 0.0)).best(Checkpoints())
    assert (best.parameters, best.start) == (4.0, 1)
    assert [row["floor_hits"] for row in best.starts] == [1, 0, 0]


# -- checkpoints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 2])
def test_a_run_goes_on_from_each_checkpoint(together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distances, stop, path = [2.0, 64.0, 8.0], StopRule(4, 1.5), tmp_path / "run"
    straight, _ = starts(Halving(), distances, stop, together=together).best(Checkpoints())
    with monkeypatch.context() as patch:
        seen = written(patch, most=None)
        starts(Halving(), distances, stop, together=together).best(Checkpoints(path, 0.0))
    for most in range(1, len(seen) + 1):
        killed = starts(Halving(), distances, stop, together=together)
        with monkeypatch.context() as patch:
            written(patch, most=most)
            with pytest.raises(Killed):
                killed.best(Checkpoints(path, 0.0))
        state, made = checkpoint.read(path)["state"], list[int]()
        best, _ = starts(Halving(), distances, stop, together=together, made=made).best(Checkpoints(state=state))
        assert (best.parameters, best.converged, best.start) == (
            straight.parameters,
            straight.converged,
            straight.start,
        )
        assert (objectives(best), best.starts) == (objectives(straight), straight.starts)
        assert len(made) == max(0, 3 - state["number"] - (together if state["running"] else 0))  # others stand there


def rows_of(*of_each: float) -> list[Row]:
    return [{"step": i, "seconds": 0.1 * i, **ROW, "objective": each} for i, each in enumerate(of_each)]


EARLIER: dict[str, Callable[[], dict[str, Any]]] = {
    "one run": lambda: {
        **{"n": 2, "number": 1, "best": {"parameters": 4.0, "rows": rows_of(-4.0), "converged": False}},
        "running": {"parameters": 2.0, "rows": rows_of(-8.0, -4.0)},
    },
    "several runs": lambda: {
        **{"starts": {"0": {}}, "together": 1, "n_before": 1},
        "best": {
            **{"parameters": 4.0, "kept": None, "converged": False, "start": 0, "starts": [rows_of(-4.0)[-1]]},
            "history": [{name: float(value) for name, value in rows_of(-4.0)[0].items()}],
            "types": {name: "int64" if name in ("step", "floor_hits") else "float64" for name in rows_of(-4.0)[0]},
        },
        "running": {
            "climbs": {"0": {"parameters": 2.0, "kept": None, "converged": False, "rows": rows_of(-8.0, -4.0)}},
            "seconds": 0.2,
        },
    },
}


@pytest.mark.parametrize("state", EARLIER.values(), ids=EARLIER)
def test_earlier_checkpoints_are_read(state: Callable[[], dict[str, Any]]) -> None:
    best, _ = starts(Halving(), [4.0, 8.0], StopRule(3, 0.0)).best(Checkpoints(state=state()))
    assert (best.parameters, objectives(best)) == (1.0, [-8.0, -4.0, -2.0, -1.0])
    only, _ = starts(Halving(), [4.0, 8.0], StopRule(1, 0.0)).best(
        Checkpoints(state={**state(), "running": None, "n": 1, "number": 1})
    )
    assert (only.parameters, only.rows) == (4.0, rows_of(-4.0))
    assert type(only.rows[0]["floor_hits"]) is int


# -- signals ---------------------------------------------------------------------------------------------------


def test_a_signal_within_an_e_step_leaves_the_parameters_of_the_last_row(tmp_path: Path) -> None:
    stop, path = StopRule(4, 0.0), tmp_path / "run"
    best, _ = starts(Halving(stop_in=4), [64.0, 8.0], stop, together=2).best(Checkpoints(path))
    assert (best.parameters, best.interrupted, objectives(best)) == (2.0, True, [-8.0, -4.0, -2.0])
    state = checkpoint.read(path)["state"]
    resumed, _ = starts(Halving(), [0.0, 0.0], stop, together=2).best(Checkpoints(state=state))
    assert (resumed.parameters, objectives(resumed)) == (0.5, [-8.0, -4.0, -2.0, -1.0, -0.5])


def test_a_signal_at_a_row_leaves_the_parameters_of_that_row(tmp_path: Path) -> None:
    def sending(row: Row) -> None:
        if row["step"] == 2:
            signal.raise_signal(signal.SIGINT)

    path, stop = tmp_path / "run", StopRule(4, 0.0)
    checkpoints = Checkpoints(path)
    (result,) = run_em(Halving(), [8.0], stop, callback=sending, checkpoints=checkpoints, store=Store())
    assert (result.parameters, result.interrupted, objectives(result)) == (2.0, True, [-8.0, -4.0, -2.0])
    checkpoints = Checkpoints(state=checkpoint.read(path)["state"])
    (resumed,) = run_em(Halving(), [], stop, checkpoints=checkpoints, store=Store())
    assert objectives(resumed) == [-8.0, -4.0, -2.0, -1.0, -0.5]


def test_a_signal_before_any_row_is_an_interrupt() -> None:
    @dataclass
    class Stopped(Halving):
        def e_step(self, parameters: Sequence[float], interruption: Interruption) -> list[float] | None:
            return None

    with pytest.raises(KeyboardInterrupt):
        starts(Stopped(), [8.0], StopRule(4, 0.0)).best(Checkpoints())


# -- several processes -----------------------------------------------------------------------------------------


def test_rows_and_the_end_are_those_of_process_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose clock and rounding differ does as many steps as process 0, and has its history."""

    def from_process_0(tensors: Iterable[Any], numbers: Sequence[float]) -> tuple[list[Any], list[float]]:
        step, _, log_prob, floor_hits, objective = numbers
        return [], [step, 10.0 * (step + 1), log_prob, floor_hits, objective + 1e-9]

    monkeypatch.setattr(em, "is_distributed", lambda: True)
    monkeypatch.setattr(em, "all_reduce_sum", from_process_0)
    (result,) = run_em(Halving(), [8.0], StopRule(99, 0.0, max_seconds=25.0))
    assert [row["seconds"] for row in result.rows] == [10.0, 20.0, 30.0]
    assert result.rows[-1]["objective"] == -2.0 + 1e-9
    assert type(result.rows[-1]["step"]) is int

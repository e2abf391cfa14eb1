"""Fits side by side in processes: the same figures, the same models, and what becomes of a process that is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.evaluation import parallel_fits
from seqmodels.evaluation.comparison.comparison_frame import TIMES

X, _ = sm.data.hmm_draws(24, 12, n_states=2, n_symbols=3, random_state=0)
TRAIN, TEST = X.split(0.4, random_state=1)


class Losing(ThreadPoolExecutor):
    """Fails the tasks of one key, as a cluster does whose worker was killed."""

    def __init__(self, n: int, *, lost: Any) -> None:
        super().__init__(n)
        self.lost = lost

    def submit(self, function: Any, key: Any, *arguments: Any, **options: Any) -> Future[Any]:
        future = super().submit(function, key, *arguments, **options)
        if key != self.lost:
            return future
        lost: Future[Any] = Future()
        lost.set_exception(RuntimeError("worker died"))
        return lost


def models() -> dict[str, sm.SequenceModel]:
    return {
        "hmm": sm.HMM(1, max_iter=3, n_init=1, device="cpu"),
        "bigram": sm.NGram(2),
        "lstm": sm.LSTM(d_model=4, max_steps=2),
    }


@pytest.mark.slow
def test_processes_give_the_figures_of_one() -> None:
    search = sm.Search(
        {"hmm": {"n_states": [2, 3]}, "bigram": {"order": [1, 2]}, "lstm": {"lr": [1e-3, 1e-2]}}, folds=2
    )
    results, lines, fitted = [], [], []
    for n_jobs in (1, 2):
        fitted.append(models())
        lines.append(list[str]())
        results.append(
            sm.compare(fitted[-1], TRAIN, test=TEST, search=search, seeds=2, n_jobs=n_jobs, progress=lines[-1].append)
        )
    one, two = results
    pd.testing.assert_frame_equal(
        one.frame.drop(columns=list(TIMES)), two.frame.drop(columns=list(TIMES)), rtol=1e-5, atol=1e-5
    )
    pd.testing.assert_frame_equal(
        one.search.drop(columns="seconds"), two.search.drop(columns="seconds"), rtol=1e-5, atol=1e-5
    )
    assert sorted(line.partition(":")[0] for line in lines[0]) == sorted(line.partition(":")[0] for line in lines[1])
    for name in fitted[0]:
        assert two.models[name] is fitted[1][name]
        assert_allclose(fitted[0][name].log_prob(TEST), fitted[1][name].log_prob(TEST), rtol=1e-5, atol=1e-5)


def test_the_choice_is_the_same() -> None:
    one, two = [sm.choose(sm.NGram(1), X, folds=2, order=[1, 2, 3], n_jobs=n) for n in (1, 2)]
    pd.testing.assert_frame_equal(
        one.frame.drop(columns="seconds"), two.frame.drop(columns="seconds"), rtol=1e-5, atol=1e-5
    )
    assert_allclose(one.model.log_prob(TEST), two.model.log_prob(TEST), rtol=1e-5, atol=1e-5)


def test_code_lengths_are_those_of_one_process() -> None:
    some = {"hmm": sm.HMM(2, max_iter=3, n_init=1), "bigram": sm.NGram(2)}
    one, two = [sm.evaluation.prequential_code_lengths(some, X, blocks=4, n_jobs=n) for n in (1, 2)]
    pd.testing.assert_frame_equal(
        one.frame.drop(columns="seconds"), two.frame.drop(columns="seconds"), rtol=1e-5, atol=1e-5
    )
    pd.testing.assert_frame_equal(
        one.blocks.drop(columns="seconds"), two.blocks.drop(columns="seconds"), rtol=1e-5, atol=1e-5
    )
    compared = sm.compare(some, TRAIN, test=TEST, prequential=4, n_jobs=2)
    alone = sm.prequential(sm.NGram(2), TRAIN, blocks=4)
    assert compared.frame.set_index("model").loc["bigram", "code_length"] == alone.nats_per_unit


def test_a_lost_block_is_coded_by_the_reference() -> None:
    with Losing(1, lost=("", 1)) as executor:
        code = sm.prequential(sm.NGram(2), X, blocks=4, n_jobs=executor)
    lost = code.frame.iloc[2]
    assert lost["error"] == "RuntimeError: worker died"
    assert lost["nats"] == lost["reference_nats"]
    assert (
        code.frame.drop(columns="seconds")
        .drop(2)
        .equals(sm.prequential(sm.NGram(2), X, blocks=4).frame.drop(columns="seconds").drop(2))
    )


@pytest.mark.slow
def test_a_killed_process_loses_its_model_alone() -> None:
    def kill(row: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    lost = sm.LSTM(d_model=4, max_steps=1, training=sm.training.GradientTraining(callbacks=[kill]))
    with pytest.warns(UserWarning, match="lost failed"):
        result = sm.compare({"bigram": sm.NGram(2), "lost": lost, "unigram": sm.NGram(1)}, TRAIN, test=TEST, n_jobs=2)
    frame = result.frame.set_index("model")
    assert "TerminatedWorkerError" in frame.loc["lost", "error"]
    assert frame.loc["bigram", "score"] == sm.NGram(2).fit(TRAIN).score(TEST)
    assert np.isfinite(frame.loc["unigram", "score"])


def warn_and_fail(what: str) -> None:
    warnings.warn(f"about {what}", UserWarning, stacklevel=1)
    raise ZeroDivisionError(what)


def test_what_a_task_warns_of_and_raises_comes_back() -> None:
    with pytest.warns(UserWarning, match="about it"), pytest.raises(ZeroDivisionError, match="it"):
        list(parallel_fits.run([("a", partial(warn_and_fail, "it"))], 2))


class Two(UserWarning):
    """Of two arguments, which a pickle does not know."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}, {why}")


class Locked(LookupError):
    """What no pickle takes."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.lock = threading.Lock()


def warn_and_fail_otherwise(what: str) -> None:
    warnings.warn(Two("about", what), stacklevel=1)
    raise Locked(what)


def test_what_cannot_be_sent_comes_back_in_words(tmp_path: Path) -> None:
    def once(path: Path) -> None:
        path.write_text("x" * (1 + len(path.read_text()) if path.exists() else 1))
        warn_and_fail_otherwise("it")

    with pytest.warns(UserWarning, match="about, it"), pytest.raises(RuntimeError, match="Locked: it"):
        list(parallel_fits.run([("a", partial(once, tmp_path / "runs"))], 2))
    assert (tmp_path / "runs").read_text() == "x", "it ran once"


def test_threads_that_overlap_leave_warnings_as_they_were() -> None:
    before = warnings.showwarning, warnings.filters[:]
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        entered.wait(10)
        warnings.warn("of the first", UserWarning, stacklevel=1)

    def second() -> None:
        entered.set()
        left.wait(10)

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with ThreadPoolExecutor(2) as executor:
            for key, _ in parallel_fits.run([("first", partial(first)), ("second", partial(second))], executor):
                if key == "first":
                    left.set()
        assert [str(w.message) for w in given] == ["of the first"]
    one, other = parallel_fits.without_warnings(), parallel_fits.without_warnings()
    for step in (one.__enter__, other.__enter__):
        step()
    for leave in (one.__exit__, other.__exit__):
        leave(None, None, None)
    assert (warnings.showwarning, warnings.filters) == before


@pytest.mark.slow
def test_sigterm_ends_the_processes_too() -> None:
    results = parallel_fits.run([("pid", partial(os.getpid)), ("long", partial(time.sleep, 600))], 2)
    key, _ = next(results)
    assert key == "pid"
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "or it would end this process"
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(KeyboardInterrupt):
        next(results)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_tasks_here_are_made_when_their_turn_comes() -> None:
    made: list[int] = []

    def tasks() -> Any:
        for i in range(3):
            made.append(i)
            yield i, partial(len, range(i))

    results = parallel_fits.run(tasks(), 1)
    assert next(results) == (0, 0)
    assert made == [0]
    assert list(results) == [(1, 1), (2, 2)]


def test_the_number_of_jobs_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="n_jobs is 0"):
        sm.compare(models(), TRAIN, test=TEST, n_jobs=0)
    with pytest.warns(UserWarning, match=r"n_jobs=\d+ fits share \d+ cores"):
        assert parallel_fits.checked_jobs(10_000, has_seconds=True) == 10_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parallel_fits.checked_jobs(10_000, has_seconds=False) == 10_000
        assert parallel_fits.checked_jobs(1, has_seconds=True) == 1
    monkeypatch.setattr(parallel_fits.distributed, "is_distributed", lambda: True)
    with pytest.raises(ValueError, match="torchrun"):
        parallel_fits.checked_jobs(2, has_seconds=False)


def test_what_a_broken_pool_lost_is_run_in_processes_of_its_own() -> None:
    class Broken(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(BrokenExecutor("a process was killed"))
            return future

    tasks = [(key, partial(len, key)) for key in ("a", "bb")]
    with Broken(1) as executor:
        assert dict(parallel_fits.run(tasks, executor)) == {"a": 1, "bb": 2}


def test_an_executor_runs_tasks_and_a_lost_one_is_lost_alone() -> None:
    with Losing(1, lost="b") as executor:
        assert parallel_fits.checked_jobs(executor, has_seconds=True) is executor
        tasks = [(key, partial(len, key)) for key in ("a", "b", "cc")]
        results = dict(parallel_fits.run(tasks, executor))
    assert results == {"a": 1, "b": parallel_fits.LostWorker("RuntimeError: worker died"), "cc": 2}

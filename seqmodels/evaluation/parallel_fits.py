"""Run independent fits at the same time: in this process one after the other, in others by joblib, or on a cluster.

``n_jobs`` is a number for joblib, whose backend says where the fits run: in processes of this machine (loky, its
default), or where ``joblib.parallel_config`` says. Or it is an ``Executor`` of the standard library's
``concurrent.futures``, which clusters offer:

    client = dask.distributed.Client("scheduler:8786")
    compare(models, train, test=test, n_jobs=client.get_executor())
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import uuid
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from seqmodels.common import distributed
from seqmodels.common.caller_warnings import warn_caller

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True)
class LostWorker:
    """The result of a task that was lost: its process was killed, or the task or its result could not be pickled.

    Attributes:
        error: what happened, in one line.
    """

    error: str

    @classmethod
    def by(cls, error: Exception) -> LostWorker:
        """Return the ``LostWorker`` that reports ``error``, an exception of joblib's processes or of the cluster."""
        return cls(_in_one_line(error))


Jobs = int | Executor


def checked_jobs(n_jobs: Jobs, *, has_seconds: bool) -> Jobs:
    """Validate ``n_jobs`` and return it in the form that ``run`` takes: an executor, or a number of parallel fits.

    Args:
        n_jobs: the user's argument; -1 means one for each core, or all workers of joblib's backend.
        has_seconds: whether the fits have a time budget in seconds. If so, a warning is given if they share cores,
            because the budget would not be fair.

    Raises:
        ValueError: ``n_jobs`` is neither a number nor an executor, is 0, or is more than one within a process of
            ``torchrun``.
    """
    if isinstance(n_jobs, Executor):
        return n_jobs
    if n_jobs == 1:
        return 1
    from joblib import cpu_count, effective_n_jobs

    if not isinstance(n_jobs, int) or n_jobs == 0:
        raise ValueError(f"n_jobs is {n_jobs!r}; pass a number of fits at a time, -1 for one per core, or an Executor")
    if distributed.is_distributed():
        raise ValueError(f"n_jobs={n_jobs} within torchrun, whose processes fit each model together; pass n_jobs=1")
    n = int(effective_n_jobs(n_jobs))
    if has_seconds and _is_of_this_machine() and n > cpu_count():
        warn_caller(
            f"n_jobs={n} fits share {cpu_count()} cores, so that a second of the budget is less than a second of one "
            f"core; pass n_jobs={cpu_count()} or fewer, or a budget in steps",
        )
    return n


def _is_of_this_machine() -> bool:
    """Return True if joblib's backend starts processes on this machine and can limit their threads."""
    from joblib.parallel import get_active_backend

    return bool(get_active_backend()[0].supports_inner_max_num_threads)


def run(tasks: Iterable[tuple[Key, partial[Result]]], jobs: Jobs) -> Iterator[tuple[Key, Result | LostWorker]]:
    """Run independent tasks at the same time and yield the key and result of each when it is done.

    In joblib's processes each task has its share of the cores as threads. If a process is killed, for example by the
    system for lack of memory, the tasks beside it end too. All tasks without a result are then run again, each by
    itself, and the result is a ``LostWorker`` only for those that are killed again. The same is done if an executor's
    pool breaks. Warnings of tasks are given again in this process.

    Args:
        tasks: pairs of a key, which names the task, and a function without arguments that does it.
        jobs: number of processes, or an ``Executor``, as ``checked_jobs`` returns it. 1 runs the tasks in this process,
            in their order.

    Raises:
        Exception: a task raised it; the other tasks are ended.
        KeyboardInterrupt: Ctrl-C was pressed or SIGTERM was received.
    """
    if jobs == 1:
        for key, task in tasks:
            yield key, task()
        return
    with _sigterm_raises():
        yield from _side_by_side(dict(tasks), jobs)


def _side_by_side(left: dict[Key, partial[Result]], jobs: Jobs) -> Iterator[tuple[Key, Result | LostWorker]]:
    """Run tasks in other processes and yield the key and result of each when it is done.

    If a process is killed, every task without a result is run again, each by itself.

    Args:
        left: function without arguments of each task, by key; finished tasks are deleted from it.
        jobs: number of processes, or an ``Executor``.
    """
    results = _in_executor(left, jobs) if isinstance(jobs, Executor) else _in_processes(left, jobs)
    while left:
        try:
            key, outcome = next(results)
        except Exception:  # an error of joblib's processes, because what a task raises is part of its outcome
            break
        del left[key]
        yield key, outcome if isinstance(outcome, LostWorker) else outcome.here()
    for key, task in left.items():
        try:
            # Two processes, because with one joblib would run the task in this process, which could be killed with it.
            ((_, outcome),) = _in_processes({key: task}, 2)
        except Exception as error:
            yield key, LostWorker.by(error)
        else:
            yield key, outcome.here()


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Return a context manager in which SIGTERM raises ``KeyboardInterrupt``, so that other processes are ended too.

    It has an effect only in the main thread, and only if the program does not handle SIGTERM itself.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@dataclass(frozen=True)
class _Outcome(Generic[Result]):
    """The result or exception of a task, with the warnings that it gave."""

    result: Result | None
    error: BaseException | None
    warnings: list[tuple[Warning | str, type[Warning]]]

    def here(self) -> Result:
        """Give the warnings of the task again, and return its result or raise its exception."""
        for message, category in self.warnings:
            warn_caller(message, category)
        if self.error is not None:
            raise self.error
        return cast(Result, self.result)


def _in_processes(tasks: Mapping[Key, partial[Result]], n: int) -> Iterator[tuple[Key, _Outcome[Result]]]:
    from joblib import Parallel, delayed

    # Arrays are sent as they are, because memory-mapped files, joblib's default, could not be written to.
    options: dict[str, Any] = {"n_jobs": n, "batch_size": 1, "pre_dispatch": "all", "max_nbytes": None}
    try:
        parallel = Parallel(**options, return_as="generator_unordered")
    except ValueError:  # raised by a backend that returns results only at the end
        parallel = Parallel(**options)
    caught = partial(_caught, _process())
    yield from parallel(delayed(caught)(key, task.func, *task.args) for key, task in tasks.items())


def _in_executor(
    tasks: Mapping[Key, partial[Result]], executor: Executor
) -> Iterator[tuple[Key, _Outcome[Result] | LostWorker]]:
    caught = partial(_caught, _process())
    futures = {executor.submit(caught, key, task.func, *task.args): key for key, task in tasks.items()}
    for future in as_completed(futures):
        try:
            yield future.result()
        except BrokenExecutor:  # one process of the pool was killed, and with it the results of the others are lost
            raise
        except Exception as error:  # an error of the cluster, because what a task raises is part of its outcome
            yield futures[future], LostWorker.by(error)


def _caught(caller: str, key: Key, function: Callable[..., Result], *arguments: Any) -> tuple[Key, _Outcome[Result]]:
    """Call a function and return ``key`` with the outcome: result or exception, and recorded warnings.

    Args:
        caller: name of the process that submitted the task. In that same process, where an executor may run threads,
            warnings are not recorded but given at once.
        key: name of the task.
        function: the function that does it.
        arguments: its arguments.
    """
    if caller == _process():
        result, error = _attempted(function, *arguments)
        return key, _Outcome(result, error, [])
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        result, error = _attempted(function, *arguments)
    if error is not None and not _is_sendable(error):
        error = RuntimeError(_in_one_line(error))
    return key, _Outcome(result, error, [_sendable(w.message, w.category) for w in given])


def _sendable(message: Warning | str, category: type[Warning]) -> tuple[Warning | str, type[Warning]]:
    """Return a warning that can be pickled: itself or, if it cannot, its text under the nearest built-in category.

    Args:
        message: the warning or its text.
        category: its class.
    """
    if _is_sendable((message, category)):
        return message, category
    return str(message), next(base for base in category.__mro__ if base.__module__ == "builtins")


def _is_sendable(thing: object) -> bool:
    """Return True if an object can be pickled and unpickled; some exceptions fail only when they are unpickled."""
    from joblib.externals.loky.backend.reduction import dumps  # it handles classes of the user's script too

    try:
        pickle.loads(dumps(thing))
    except Exception:
        return False
    return True


def _in_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _attempted(function: Callable[..., Result], *arguments: Any) -> tuple[Result | None, BaseException | None]:
    try:
        return function(*arguments), None
    except (Exception, KeyboardInterrupt) as error:
        return None, error


_IMPORTED = uuid.uuid4().hex  # unique among all machines, except for processes that were forked from this one


def _process() -> str:
    """Return the name of this process, unique among the processes of all machines."""
    return f"{_IMPORTED}.{os.getpid()}"


_silence = threading.Lock()
_silent: list[warnings.catch_warnings[None]] = []  # one for each thread in the block; the first keeps the old filters


@contextmanager
def without_warnings() -> Iterator[None]:
    """Return a context manager in whose block warnings of all threads are ignored.

    ``warnings.catch_warnings`` alone would not restore the filters if threads overlap, because each would restore what
    the other had set.
    """
    with _silence:
        _silent.append(warnings.catch_warnings())
        if len(_silent) == 1:
            _silent[0].__enter__()
            warnings.simplefilter("ignore")
    try:
        yield
    finally:
        with _silence:
            last = _silent.pop()
            if not _silent:
                last.__exit__(None, None, None)

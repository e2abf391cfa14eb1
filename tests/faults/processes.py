"""Several processes that fit together: one is killed, hangs, or is given bad input, and a job goes on after each kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from seqmodels import HMM, LSTM, SequenceModel
from tests.faults.promise import Promise, main

LIMIT = 4.0  # seconds that the process group waits for a process that hangs
AT_ONCE = 5.0  # seconds within which others notice one that was killed, or failed
FOREVER = 10**6
KINDS = ("em", "stepwise", "gradient", "network")


def sequences() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.cumsum(rng.normal(size=(n, 2)), 0) / 3 for n in rng.integers(5, 60, size=12)]


def model(kind: str, **options: Any) -> SequenceModel:
    """One that trains until it is stopped."""
    if kind == "network":
        return LSTM(d_model=8, **{"max_steps": FOREVER, "patience": FOREVER, **options})
    return HMM(3, dtype="float64", algorithm=kind, **{"max_iter": FOREVER, "tol": 0, **options})  # type: ignore[arg-type]


# -- in the processes --------------------------------------------------------------------------------------


@contextmanager
def joined(rank: int, folder: str, limit: float) -> Iterator[None]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    meeting, time_limit = f"file://{folder}/meeting", timedelta(seconds=limit)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=time_limit)
    yield
    dist.destroy_process_group()


def trains(rank: int, folder: str, kind: str, limit: float) -> None:
    """Until it is stopped; writes how."""
    with joined(rank, folder, limit):
        Path(f"{folder}/begun{rank}").touch()
        write(f"{folder}/{rank}.json", outcome(lambda: model(kind).fit(sequences())))
        os._exit(0)  # the process group cannot be taken down once a process is lost


def fails(rank: int, folder: str, n: int) -> None:
    """``n`` fits of which one process is given an infinite value, or finds no memory half-way; the outcome of each."""
    found = []
    with joined(rank, folder, 60.0):
        for i in range(n):
            data, rng = sequences(), np.random.default_rng(i)
            victim, which = i % 2, int(rng.integers(12))
            fitted = model(KINDS[i % 4], **({"max_steps": 10} if i % 4 == 3 else {"max_iter": 10}))
            if rank == victim and i % 3:
                data[which][rng.integers(len(data[which])), 0] = np.inf
            elif rank == victim:
                fitted._fit = no_memory  # type: ignore[method-assign]
            found.append(outcome(lambda fitted=fitted, data=data: fitted.fit(data)))  # type: ignore[misc]
    write(f"{folder}/{rank}.json", found)


def no_memory(*_: Any) -> None:
    raise MemoryError("no memory left")


def timed(rank: int, folder: str, n: int) -> None:
    """``n`` fits that a clock ends, which in one process runs three times as fast; the steps of each."""
    clock, found = time.perf_counter, []
    with joined(rank, folder, 60.0):
        for i in range(n):
            fitted = model(KINDS[i % 3], max_seconds=0.2)
            if rank == i % 2:
                time.perf_counter = lambda: 3 * clock()
            found.append(int(fitted.fit(sequences()).history_["step"].iloc[-1]))
            time.perf_counter = clock
    write(f"{folder}/{rank}.json", found)


def outcome(fit: Callable[[], Any]) -> tuple[str, float]:
    """The error, and when it came by the clock of the machine."""
    try:
        fit()
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.time()
    return "no error", time.time()


def write(path: str, found: Any) -> None:
    Path(f"{path}.partial").write_text(json.dumps(found))
    os.replace(f"{path}.partial", path)


# -- outside -----------------------------------------------------------------------------------------------


@contextmanager
def two(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[Path, list[BaseProcess]]]:
    """Two processes that ``work(rank, folder, *arguments)``; none is left behind."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["seqmodels", "torch._dynamo", "torch.distributed"])  # seconds each
    with tempfile.TemporaryDirectory() as folder:
        both = [context.Process(target=work, args=(rank, folder, *arguments)) for rank in range(2)]
        for process in both:
            process.start()
        try:
            yield Path(folder), both
        finally:
            for process in both:
                process.kill()
                process.join()


def both_told(folder: Path, both: list[BaseProcess], seconds: float = 120.0) -> list[Any]:
    for process in both:
        process.join(seconds)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def lost(kind: str, victim: int, number: signal.Signals, after: float) -> tuple[str, float]:
    """What the other process says when one is sent a signal in the middle of its work, and after how many seconds."""
    with two(trains, kind, LIMIT) as (folder, both):
        assert until(lambda: all((folder / f"begun{rank}").exists() for rank in range(2)), 60), "they never began"
        time.sleep(after)
        told, pid = folder / f"{1 - victim}.json", both[victim].pid
        assert pid is not None
        assert not told.exists(), told.read_text()
        os.kill(pid, number)
        sent = time.time()
        if not until(told.exists, LIMIT + 2 * AT_ONCE):
            return "still waits", time.time() - sent
        message, at = json.loads(told.read_text())
        return message, at - sent


def losses(number: signal.Signals, n: int, allowed: float) -> tuple[int, float]:
    """Of ``n``, how many were noticed and named in time; the longest that it took."""
    rng, seconds, kept = np.random.default_rng(int(number)), [], 0
    for i in range(n):
        kind, victim = KINDS[i % 4], i // 4 % 2
        message, took = lost(kind, victim, number, after=0.2 + rng.random())
        good = f"LostProcessError: process {victim} of 2 stopped answering" in message and took <= allowed
        kept += good
        seconds.append(took)
        if not good:
            print(f"# {kind}, process {victim}, {number.name}: {took:.1f} s: {message}", flush=True)
    return kept, max(seconds)


def measure(quick: bool) -> list[Promise]:
    n = 2 if quick else 20
    rows = []
    for what, number, allowed in (
        ("killed", signal.SIGKILL, AT_ONCE),
        ("stopped for good (hangs)", signal.SIGSTOP, LIMIT + AT_ONCE),
    ):
        if quick and number == signal.SIGSTOP:
            continue
        kept, longest = losses(number, n, allowed)
        rows.append(
            Promise(
                f"one of two processes is {what} while they fit: the other stops, and names it",
                f"{n} of {n}, within {allowed:.0f} s" + (f" (time limit {LIMIT:.0f} s)" if allowed > LIMIT + 1 else ""),
                f"{kept} of {n}, within {longest:.1f} s",
                kept == n,
            )
        )
    rows += [together_on_one_message(n), one_clock(3 if quick else 12)]
    return rows


def together_on_one_message(n: int) -> Promise:
    with two(fails, n) as (folder, both):
        first, second = both_told(folder, both)
    kept, longest = 0, 0.0
    for i, ((one, at), (other, then)) in enumerate(zip(first, second, strict=True)):
        longest = max(longest, abs(at - then))
        good = one == other and f"process {i % 2} of 2 failed, so all stop" in one and abs(at - then) < AT_ONCE
        kept += good
        if not good:
            print(f"# {i}: {one} | {other}", flush=True)
    return Promise(
        "one of two processes is given bad input, or finds no memory: both stop on one message",
        f"{n} of {n}, within {AT_ONCE:.0f} s of each other",
        f"{kept} of {n}, within {longest:.2f} s",
        kept == n,
    )


def one_clock(n: int) -> Promise:
    with two(timed, n) as (folder, both):
        first, second = both_told(folder, both)
    kept = sum(one == other > 0 for one, other in zip(first, second, strict=True))
    return Promise(
        "max_seconds in two processes whose clocks differ: they stop at the same step",
        f"{n} of {n}",
        f"{kept} of {n}",
        kept == n,
    )


if __name__ == "__main__":
    main(measure)

"""Several processes that fit together: one is killed, hangs or gets bad input, and a job resumes after each kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from seqmodels import HMM, LSTM, SequenceModel
from seqmodels.common import storage
from seqmodels.common.distributed import join
from seqmodels.hmm.learning import em
from tests.faults.promise import Promise, main

LIMIT = 3.0  # seconds that the process group waits for a process that hangs
AT_ONCE = 5.0  # seconds within which others notice one that was killed, or failed
FOREVER = 10**6
PAUSE = 0.02  # seconds that an M-step takes longer, so that a kill falls into a run
KINDS = ("em", "stepwise", "gradient", "network")


def sequences() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.cumsum(rng.normal(size=(n, 2)), 0) / 3 for n in rng.integers(5, 60, size=12)]


def model(kind: str, **options: Any) -> SequenceModel:
    """One that trains until it is stopped."""
    if kind == "network":
        return LSTM(d_model=8, max_steps=FOREVER).set_params(training__patience=FOREVER, **options)
    hmm = HMM(3, dtype="float64", algorithm=kind, max_iter=FOREVER, tol=0, n_init=1)  # type: ignore[arg-type]
    return hmm.set_params(**options)


# -- in the processes --------------------------------------------------------------------------------------


@contextmanager
def joined(rank: int, folder: str, limit: float) -> Iterator[None]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    meeting, time_limit = f"file://{folder}/meeting", timedelta(seconds=limit)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=time_limit)
    yield
    dist.destroy_process_group()


def trains(rank: int, folder: str, kind: str, limit: float, ignores: bool) -> None:
    """Fit until stopped, and write how it ended.

    A process that ``ignores`` SIGINT is as one that a shell started in the background.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignores else signal.default_int_handler)
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
            kind = KINDS[i % 4]
            fitted = model(kind, **({"max_steps": 10} if kind == "network" else {"max_iter": 10}))
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
            fitted = model(KINDS[i % 4], max_seconds=0.2)
            if rank == i % 2:
                time.perf_counter = lambda: 3 * clock()
            found.append(int(fitted.fit(sequences()).history_["step"].iloc[-1]))
            time.perf_counter = clock
    write(f"{folder}/{rank}.json", found)


def goes_on(kind: str, folder: str, steps: int) -> None:
    """Started by torchrun, and again by it after each kill: one fit, from the checkpoint if there is one."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    join(timeout=30.0)
    rank, real = dist.get_rank(), em.m_step

    def slow(*arguments: Any) -> Any:
        with open(f"{folder}/steps{rank}", "a") as file:
            file.write(".")
        time.sleep(PAUSE)
        return real(*arguments)

    em.m_step = slow
    job = model(
        kind,
        max_iter=steps,
        training__checkpoint=f"{folder}/run.ckpt",
        training__checkpoint_seconds=0,
        training__resume_from="auto",
    )
    write(f"{folder}/pid{rank}", os.getpid())
    job.fit(sequences())
    storage.write(f"{folder}/{rank}.fitted", job._state())


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


def _has_done(folder: Path, steps: int, agent: subprocess.Popen[bytes]) -> bool:
    """Whether the job has done so many steps, or has ended."""
    return done(folder) >= steps or agent.poll() is not None


def killed_again_and_again(kind: str, n: int, steps: int) -> tuple[int, int, bool]:
    """A job under torchrun, one process killed ``n`` times: kills, steps done twice, whether it ended as it should."""
    rng = np.random.default_rng(n)
    with tempfile.TemporaryDirectory() as name:
        folder, kills = Path(name), 0
        run = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={n + 5}"]
        job = ["-m", "tests.faults.processes", "--job", kind, name, str(steps)]
        with (
            open(folder / "log", "w") as log,
            subprocess.Popen([sys.executable, "-m", *run, *job], stderr=log) as agent,
        ):
            try:
                pids = {0: 0, 1: 0}
                while kills < n and begins_again(folder, pids, agent):
                    pids = {rank: int((folder / f"pid{rank}").read_text()) for rank in range(2)}
                    enough = done(folder) + int(rng.integers(1, 30))
                    if not until(partial(_has_done, folder, enough, agent), 120):
                        break
                    time.sleep(PAUSE * rng.random())
                    os.kill(pids[kills % 2], signal.SIGKILL)
                    kills += 1
                agent.wait(300)
            finally:
                agent.terminate()
        if agent.returncode:
            print(f"# {(folder / 'log').read_text()[-3000:]}", flush=True)
            return kills, steps, False
        again = done(folder) - taken(kind, steps)
        alone = model(kind, max_iter=steps).fit(sequences())._state()
        ended = [storage.read(folder / f"{rank}.fitted") for rank in range(2)]
        alone, first, second = (dict(arrays_in(state)) for state in (alone, *ended))
        same = all(np.array_equal(first[name], second[name]) for name in alone)
        near = all(is_near(first[name], alone[name]) for name in alone)
        return kills, again, same and near


def arrays_in(state: dict[str, Any], place: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a saved state, some of which stand in dictionaries within it, by their places."""
    for name, value in state.items():
        if isinstance(value, dict):
            yield from arrays_in(value, f"{place}{name}/")
        else:
            yield place + name, np.asarray(value)


def is_near(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether numbers are equal up to rounding, and words to the letter."""
    if expected.dtype.kind in "biufc":
        return np.allclose(found, expected, rtol=1e-8, atol=1e-8)
    return np.array_equal(found, expected)


def done(folder: Path) -> int:
    """M-steps of process 0, in all of its lives."""
    file = folder / "steps0"
    return len(file.read_text()) if file.exists() else 0


def taken(kind: str, steps: int) -> int:
    """M-steps of a run that nothing stops: one a batch, or a line of history but the last."""
    return steps * HMM().training.batches if kind == "stepwise" else steps


def begins_again(folder: Path, before: dict[int, int], agent: subprocess.Popen[bytes]) -> bool:
    """Wait until both processes have been started again; whether they have."""
    files = {folder / f"pid{rank}": pid for rank, pid in before.items()}

    def has() -> bool:
        return all(file.exists() and int(file.read_text()) != pid for file, pid in files.items())

    return until(lambda: has() or agent.poll() is not None, 120) and has()


def until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def lost(kind: str, victim: int, number: signal.Signals, after: float, *, ignores: bool) -> tuple[str, float]:
    """What the other process says when one is sent a signal in the middle of its work, and after how many seconds."""
    with two(trains, kind, LIMIT, ignores) as (folder, both):
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
    rng = np.random.default_rng(int(number))
    trials = [(KINDS[i % 4], i // 4 % 2, 0.2 + rng.random(), i // 8 % 2 == 1) for i in range(n)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda trial: lost(trial[0], trial[1], number, trial[2], ignores=trial[3]), trials))
    kept = 0
    for (kind, victim, *_), (message, took) in zip(trials, found, strict=True):
        good = f"LostProcessError: process {victim} of 2 stopped answering" in message and took <= allowed
        kept += good
        if not good:
            print(f"# {kind}, process {victim}, {number.name}: {took:.1f} s: {message}", flush=True)
    return kept, max(took for _, took in found)


def measure(quick: bool) -> list[Promise]:
    n = 2 if quick else 20
    rows = []
    ways = [("killed", signal.SIGKILL, AT_ONCE), ("stopped for good (hangs)", signal.SIGSTOP, LIMIT + AT_ONCE)]
    for what, number, allowed in ways[:1] if quick else ways:
        kept, longest = losses(number, n, allowed)
        rows.append(
            Promise(
                f"one of two processes is {what} while they fit: the other stops, and names it",
                f"{n} of {n}, within {allowed:.0f} s" + (f" (time limit {LIMIT:.0f} s)" if allowed > LIMIT + 1 else ""),
                f"{kept} of {n}, within {longest:.1f} s",
                kept == n,
            )
        )
    return rows if quick else [*rows, together_on_one_message(n), one_clock(12), goes_on_after_kills()]


def goes_on_after_kills() -> Promise:
    torch.set_num_threads(1)
    found = [killed_again_and_again(kind, 10, steps) for kind, steps in (("em", 500), ("stepwise", 90))]
    kills, again = sum(f[0] for f in found), sum(f[1] for f in found)
    good = all(f[2] for f in found)
    return Promise(
        "torchrun --max-restarts, one of two processes killed: EM goes on from the checkpoint, "
        "to the model of a run that was not",
        "20 of 20, at most one step lost by each",
        f"{kills if good else 0} of 20, {again} steps done again in all",
        good and kills == 20 and again <= kills,
    )


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
    kept = sum(one == other for one, other in zip(first, second, strict=True))
    if kept < n or not any(first):
        print(f"# {first} | {second}", flush=True)
    return Promise(
        "max_seconds in two processes whose clocks differ: they stop at the same step",
        f"{n} of {n}",
        f"{kept} of {n}, after {min(first)} to {max(first)} steps",
        kept == n and max(first) > 1,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        goes_on(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(measure)

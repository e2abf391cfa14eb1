"""kill -9 while models are fitted: ``resume_from`` ends where a run without a break ends, to the last bit.

Every fit runs in a forked process that is killed at a random instant, ``IN_A_ROW`` times, each time going on from the
checkpoint there is; then it may end, and its parameters and history (seconds apart) are compared to those of a run that
was never killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import seqmodels as sm
from seqmodels.training import Checkpoints, checkpoint
from tests.faults.promise import Promise, main

IN_A_ROW = 10  # kills before a run may end
EVERY = 0.01  # seconds from one checkpoint to the next
Make = Callable[..., tuple[Any, tuple[Any, ...]]]


def series() -> list[np.ndarray]:
    """Sequences of three noisy levels that last ten steps each."""
    rng = np.random.default_rng(0)
    levels = [np.repeat(rng.integers(0, 3, 8), 10) for _ in range(30)]
    return [2.0 * level[:, None] + rng.normal(size=(len(level), 2)) for level in levels]


def words() -> tuple[list[str], list[str]]:
    """Spellings, and what is left of them without a letter."""
    rng = np.random.default_rng(0)
    sources = ["".join(rng.choice(list("abcde"), rng.integers(3, 12))) for _ in range(60)]
    return sources, [source.upper().replace("C", "") or "A" for source in sources]


X, TEXT, PAIRS = series(), ["to be or not to be, that is the question"] * 4, words()
TWO = sm.GaussianMixture(2)
CASES: dict[str, Make] = {
    "LSTM": lambda **o: (
        sm.LSTM(d_model=8, bptt=8, max_steps=30, training=sm.training.GradientTraining(averaging=0.2)).set_params(**o),
        (TEXT,),
    ),
    "Transformer": lambda **o: (
        sm.Transformer(
            d_model=8, context=16, max_steps=20, training=sm.training.GradientTraining(accumulate=2)
        ).set_params(**o),
        (TEXT,),
    ),
    "MaskedTransformer": lambda **o: (
        sm.MaskedTransformer(d_model=8, n_layers=1, max_steps=30).set_params(**o),
        (TEXT,),
    ),
    "Baum-Welch": lambda **o: (sm.HMM(4, observation=TWO, tol=0, max_iter=25).set_params(**o), (X,)),
    "restarts side by side": lambda **o: (sm.HMM(4, n_init=3, tol=0, max_iter=15).set_params(**o), (X,)),
    "restarts one by one": lambda **o: (
        sm.HMM(4, observation=sm.GaussianMixture(2, "tied"), n_init=3, tol=0, max_iter=8).set_params(**o),
        (X,),
    ),
    "stepwise EM": lambda **o: (sm.HMM(4, algorithm="stepwise", n_init=2, tol=0, max_iter=5).set_params(**o), (X,)),
    "EM by gradient": lambda **o: (sm.HMM(4, algorithm="gradient", n_init=2, max_iter=8).set_params(**o), (X,)),
    "AlignmentHMM": lambda **o: (sm.AlignmentHMM(window=3, tol=0, max_iter=4).set_params(**o), PAIRS),
}

COSTLY: Make = lambda **o: (sm.HMM(8, observation=TWO, tol=0, max_seconds=2.0, max_iter=10**6).set_params(**o), (X,))  # noqa: E731


def in_a_fork(work: Callable[[], None]) -> int:
    """The id of a process that does this and nothing else, also if a signal comes before it has begun."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return pid
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@contextmanager
def ready_to_fork() -> Iterator[None]:
    """Context with one torch thread, as a fork loses the others.

    Imports beforehand what torch imports at an optimiser's first step.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.zeros(2)
    torch.optim.AdamW([weight], fused=True).step()
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def fit(make: Make, result: Path, **options: Any) -> None:
    """Fit, and write a hash of what came out."""
    model, data = make(**options)
    model.fit(*data)
    digest = hashlib.sha256(model.history_.drop(columns="seconds").to_csv(float_format="%r").encode())
    state = model.content()["state"] if isinstance(model, sm.SequenceModel) else model.module_.state_dict()
    for array in arrays(state):
        digest.update(np.ascontiguousarray(array).tobytes())
    result.write_text(json.dumps({"digest": digest.hexdigest(), "converged": bool(model.converged_)}))


def arrays(state: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """Those of a nested dictionary, in its order."""
    for value in state.values():
        if isinstance(value, Mapping):
            yield from arrays(value)
        else:
            yield np.asarray(value)


def kills(name: str, make: Make, n: int, rng: np.random.Generator) -> tuple[int, int]:
    """How many of ``n`` kills were followed by the same result as without; how many came while a fit ran."""
    good, done = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        straight, resumed, run = (Path(folder) / file for file in ("straight", "resumed", "run.ckpt"))
        began = time.perf_counter()
        _, status = os.waitpid(
            in_a_fork(lambda: fit(make, straight, training__checkpoint=str(run), training__checkpoint_seconds=EVERY)), 0
        )
        seconds = time.perf_counter() - began
        assert status == 0, f"{name} could not be fitted"
        while done < n:
            run.unlink(missing_ok=True)
            resumed.unlink(missing_ok=True)
            here = 0
            while here < min(IN_A_ROW, n - done):
                if not one(make, run, resumed, rng.uniform(0.02, 0.7) * seconds):
                    break  # it ended first
                here += 1
            else:
                one(make, run, resumed, None)
            same = resumed.exists() and resumed.read_text() == straight.read_text()
            good, done = good + here * same, done + here
            print(f"  {name}: {here} kills, {'the same' if same else 'ANOTHER RESULT'}", flush=True)
    return good, done


def one(make: Make, run: Path, result: Path, wait: float | None) -> bool:
    """Fit, resuming from ``run`` if it exists; whether it was killed after ``wait`` seconds.

    With ``wait=None`` it may end.
    """
    options = {"training__checkpoint": str(run), "training__checkpoint_seconds": EVERY}
    if run.exists():
        options["training__resume_from"] = str(run)
    pid = in_a_fork(lambda: fit(make, result, **options))
    if wait is None:
        return os.waitpid(pid, 0)[1] != 0
    time.sleep(wait)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def gaps(make: Make, seconds: float, result: Path) -> None:
    """Fit with a checkpoint every so many seconds; write the longest delay of one and the longest step, in seconds."""
    asked, written, write = [time.perf_counter()], [time.perf_counter()], checkpoint.write

    class Watched(Checkpoints):
        @property
        def due(self) -> bool:
            asked.append(time.perf_counter())
            return super().due

    def watch(path: Any, state: Any) -> None:
        write(path, state)
        written.append(time.perf_counter())

    checkpoint.Checkpoints, checkpoint.write = Watched, watch  # type: ignore[misc, assignment]
    model, data = make(training__checkpoint=str(result.with_name("run.ckpt")), training__checkpoint_seconds=seconds)
    model.fit(*data)
    late, step = max(np.diff(written)) - seconds, max(np.diff(asked))
    result.write_text(json.dumps({"late": float(late), "step": float(step), "n": len(written) - 1}))


def cost(seconds: float) -> Promise:
    """How much longer than ``checkpoint_seconds`` a checkpoint is in coming: at most a step, and what writing takes."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "gaps"
        os.waitpid(in_a_fork(lambda: gaps(COSTLY, seconds, result)), 0)
        found = json.loads(result.read_text())
    says = f"{found['n']} checkpoints, the latest {found['late']:.2f} s late, the longest step {found['step']:.2f} s"
    kept = found["n"] >= 4 and found["late"] <= found["step"] + 0.25
    return Promise("a crash costs `checkpoint_seconds` and a step at most", "late by a step at most", says, kept)


def measure(quick: bool) -> list[Promise]:
    """A row a case, and one for what a crash costs."""
    with ready_to_fork():
        return rows_of(quick)


def rows_of(quick: bool) -> list[Promise]:
    """``measure``, where forks are safe."""
    chosen = ("Baum-Welch", "LSTM") if quick else CASES
    n, rng, rows = 2 if quick else 50, np.random.default_rng(0), [cost(0.1 if quick else 0.5)]
    for name in chosen:
        began = time.perf_counter()
        good, done = kills(name, CASES[name], n, rng)
        print(f"{name}: {good} of {done} in {time.perf_counter() - began:.0f} s", flush=True)
        promise = f"kill -9 at any instant, then `resume_from`: {name} ends bit-identical"
        rows.append(Promise(promise, f"{n} of {n}", f"{good} of {done}", good == done == n))
    return rows


if __name__ == "__main__":
    main(measure)

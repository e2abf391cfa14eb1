"""Threads and forks: one model scored by many threads, copies in two dtypes, concurrent fits, forked workers."""

from __future__ import annotations

import copy
import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Barrier
from typing import Any

import numpy as np
import torch

import seqmodels as sm
from tests.faults.promise import Promise, main

N_THREADS = 16
PATIENCE = 5.0  # seconds that a forked worker has
SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 3, "batch_size": 4}
Job = Callable[[], Any]


@dataclass(frozen=True)
class Subject:
    """A fitted model, and what is asked of it: each call must give what it gave before any thread began."""

    name: str
    model: Any
    jobs: list[Job]

    def answers(self) -> list[list[np.ndarray]]:
        """The results of all jobs, computed one after the other in one thread."""
        return [_arrays(job()) for job in self.jobs]


def _sequences(kind: str, n: int = 6, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = range(3, 3 + n)
    if kind == "symbols":
        return [rng.integers(3, size=length) for length in lengths]
    return [rng.standard_normal((length, 2)) for length in lengths]


def _models() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """By name a model and what it is fitted to."""
    symbols, vectors = _sequences("symbols"), _sequences("vectors")
    pair = symbols, _sequences("symbols", seed=1)
    return {
        "HMM": (sm.HMM(3, observation=sm.GaussianMixture(2), max_iter=3), (vectors,)),
        "AlignmentHMM": (sm.AlignmentHMM(max_iter=2), pair),
        "HMMTagger": (sm.HMMTagger(max_iter=2), pair),
        "NGram": (sm.NGram(3), (symbols,)),
        "ElmanRNN": (sm.ElmanRNN(**SMALL), (vectors,)),
        "LSTM": (sm.LSTM(**SMALL), (symbols,)),
        "GRU": (sm.GRU(**SMALL), (vectors,)),
        "Transformer": (sm.Transformer(**SMALL, n_layers=1, context=8), (symbols,)),
        "LSTMSeq2Seq": (sm.LSTMSeq2Seq(**SMALL), pair),
        "TransformerSeq2Seq": (sm.TransformerSeq2Seq(**SMALL, n_layers=1), pair),
        "LSTMTagger": (sm.LSTMTagger(**SMALL), pair),
        "TransformerTagger": (sm.TransformerTagger(**SMALL, n_layers=1), pair),
        "MaskedTransformer": (sm.MaskedTransformer(**SMALL, n_layers=1), (symbols,)),
    }


def _subject(name: str) -> Subject:
    model, data = _models()[name]
    model.fit(*data, validation=None)
    return Subject(name, model, _jobs(model, data))


def _jobs(model: Any, data: tuple[Any, ...]) -> list[Job]:
    some = [tuple(part[i : i + 1] for part in data) for i in (0, 1, 2)]
    if isinstance(model, sm.MaskedTransformer):
        return [partial(call, *each) for each in some for call in (model.pseudo_log_prob, model.encode)]
    jobs: list[Job] = [partial(model.log_prob_steps, *each) for each in some]
    if len(data) == 1:
        return [*jobs, lambda: _walked(model, data[0][1]), lambda: model.sample(1, length=3, random_state=4)]
    if isinstance(model, sm.LSTMSeq2Seq | sm.TransformerSeq2Seq):
        jobs.append(lambda: model.align(*some[0]))
    return [*jobs, lambda: model.sample(1, source=data[0][0], length=len(data[0][0]), random_state=4)]


def _walked(model: Any, x: np.ndarray) -> list[float]:
    stream = model.stream()
    return [stream.update(step) for step in x]


def _arrays(found: Any) -> list[np.ndarray]:
    return [np.asarray(each) for each in found]


def _same(found: Any, expected: list[np.ndarray]) -> bool:
    arrays = _arrays(found)
    return len(arrays) == len(expected) and all(map(np.array_equal, arrays, expected))


@dataclass
class Tally:
    """Counts of calls, and of those with a wrong result."""

    calls: int = 0
    wrong: int = 0
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        said = f"{self.wrong:,} of {self.calls:,} calls differed, {len(self.errors):,} raised"
        return said + (f" ({self.errors[0]})" if self.errors else "")

    @property
    def kept(self) -> bool:
        """Whether nothing went wrong, of something."""
        return self.calls > 0 and not self.wrong and not self.errors


def _ask(jobs: list[Job], expected: list[list[np.ndarray]], n_calls: int, n_threads: int, tally: Tally) -> None:
    """Each thread makes ``n_calls`` calls, each in another order."""
    together = Barrier(n_threads)

    def run(thread: int) -> None:
        together.wait()
        for k in range(n_calls):
            at = (thread + k * (1 + thread % 3)) % len(jobs)
            try:
                tally.wrong += not _same(jobs[at](), expected[at])
            except Exception as error:
                tally.errors.append(f"{type(error).__name__}: {error}"[:100])

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(run, range(n_threads)))
    tally.calls += n_calls * n_threads


def scoring(names: list[str], n_calls: int) -> Promise:
    """One model after another, many threads."""
    tally = Tally()
    for name in names:
        subject = _subject(name)
        _ask(subject.jobs, subject.answers(), n_calls, N_THREADS, tally)
    title = f"{N_THREADS} threads scoring one model, {n_calls:,} calls each: {', '.join(names)}"
    return Promise(title, "equal to serial to the bit, no errors", str(tally), tally.kept)


def scoring_much(quick: bool) -> Promise:
    """Those that are asked most."""
    return scoring(["LSTM"], 10) if quick else scoring(["LSTM", "HMM"], 1_000)


def scoring_all(quick: bool) -> Promise:
    """Concurrent scoring by a model of every family."""
    return scoring(["Transformer"], 5) if quick else scoring(list(_models()), 50)


def two_dtypes(quick: bool) -> Promise:
    """Copies of one model that share its weights, each in a dtype of its own, in turn and at once."""
    tally = Tally()
    for name in ["LSTM"] if quick else ["LSTM", "GRU", "Transformer", "TransformerSeq2Seq", "MaskedTransformer", "HMM"]:
        model, data = _models()[name]
        model.set_params(dtype="float32").fit(*data, validation=None)
        doubled = copy.copy(model).set_params(dtype="float64")
        alone = copy.deepcopy(model).set_params(dtype="float64")
        jobs = [*_jobs(model, data), *_jobs(doubled, data)]
        expected = [_arrays(job()) for job in [*_jobs(copy.deepcopy(model), data), *_jobs(alone, data)]]
        half = len(jobs) // 2
        if all(_same(expected[i + half], expected[i]) for i in range(half)):
            tally.errors.append(f"{name} in float64 says what it says in float32")
        _ask(jobs, expected, 5 if quick else 50, N_THREADS, tally)
    return Promise(
        "copies of one model in two dtypes, 16 threads", "each its own figures, no errors", str(tally), tally.kept
    )


def beside_a_fit(quick: bool) -> Promise:
    """Scoring while other models are fitted in other threads."""
    tally = Tally()
    subjects = [_subject(name) for name in (["LSTM"] if quick else ["LSTM", "Transformer", "HMM"])]
    for subject in subjects:
        expected = subject.answers()
        model, data = _models()[subject.name]
        with ThreadPoolExecutor(1) as pool:
            long = {"max_iter": 60} if subject.name == "HMM" else {"max_steps": 100 if quick else 1_000}
            fit = pool.submit(model.set_params(**long).fit, *data, validation=None)
            while not fit.done():
                _ask(subject.jobs, expected, 5, 4, tally)
            fit.result()
    return Promise("scoring while another model fits", "equal to serial, no errors", str(tally), tally.kept)


def _fits(n_steps: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """Four that draw at random in all they do."""
    symbols, vectors = _sequences("symbols"), _sequences("vectors")
    pair = symbols, _sequences("symbols", seed=1)
    drops = {"d_model": 8, "n_layers": 2, "dropout": 0.3, "max_steps": n_steps, "batch_size": 4}
    return [
        (
            sm.LSTM(**drops, architecture=sm.neural.RecurrentArchitecture(recurrent_dropout=0.2, weight_drop=0.2)),
            (symbols,),
        ),
        (sm.LSTMSeq2Seq(**drops), pair),
        (
            sm.Transformer(**drops, context=8, architecture=sm.neural.TransformerArchitecture(attention_dropout=0.2)),
            (vectors,),
        ),
        (sm.HMM(3, observation=sm.GaussianMixture(2), n_init=3, max_iter=20), (vectors,)),
    ]


def _global_state() -> tuple[Any, ...]:
    """What belongs to the whole process, of torch, numpy and Python."""
    numpy_state = str(np.random.get_state())  # noqa: NPY002
    draws = torch.get_rng_state().numpy().tobytes(), numpy_state, random.getstate()
    return *draws, torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()


def fits_side_by_side(quick: bool) -> Promise:
    """Four fits in four threads, and what they leave behind."""

    def fitted(i: int) -> np.ndarray:
        model, data = _fits(10 if quick else 100)[i]
        found: np.ndarray = model.fit(*data, validation=None).log_prob(*data)
        return found

    serial = [fitted(i) for i in range(4)]
    rounds = 1 if quick else 10
    equal, before = 0, _global_state()
    for _ in range(rounds):
        with ThreadPoolExecutor(4) as pool:
            side_by_side = list(pool.map(fitted, range(4)))
        equal += sum(map(np.array_equal, side_by_side, serial))
    untouched = _global_state() == before
    measured = f"{equal} of {4 * rounds} equal, global state {'untouched' if untouched else 'CHANGED'}"
    return Promise(
        f"four fits in four threads, {rounds} times",
        "equal to serial to the bit, global state untouched",
        measured,
        equal == 4 * rounds and untouched,
    )


def forked(quick: bool) -> Promise:
    """A forked worker that scores, after torch has computed on two threads in its parent."""
    names = ["HMM", "LSTM"] if quick else list(_models())
    subjects = [_subject(name) for name in names]
    expected = [subject.answers() for subject in subjects]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _compute_in_parallel()
        outcomes = list(map(_in_a_fork, subjects, expected))
    finally:
        torch.set_num_threads(threads)
    good = sum(outcome is not None for outcome in outcomes)
    slowest = max((outcome for outcome in outcomes if outcome is not None), default=float("nan"))
    measured = f"{good} of {len(names)} right, the slowest in {slowest:.1f} s"
    title = f"scoring and fitting in a forked worker after torch ran with 2 threads, {len(names)} models"
    return Promise(title, f"all right within {PATIENCE:.0f} s", measured, good == len(names))


def _compute_in_parallel() -> None:
    """What torch does on all of its threads."""
    large = torch.ones(1_000_000)
    torch.exp(large).sum()
    torch.mm(large.view(1_000, -1), large.view(-1, 1_000))


def _in_a_fork(subject: Subject, expected: list[list[np.ndarray]]) -> float | None:
    """Seconds of a worker to score as its parent does, to compute on a large array and to fit; None if it failed."""
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            right = [_same(job(), answer) for job, answer in zip(subject.jobs, expected, strict=True)]
            _compute_in_parallel()
            model, data = _models()[subject.name]
            model.fit(*data, validation=None)
            code = 0 if all(right) else 2
        finally:
            os._exit(code)
    while time.perf_counter() - began < PATIENCE:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return time.perf_counter() - began if status == 0 else None
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def measure(quick: bool) -> list[Promise]:
    """All of the above."""
    parts = [
        scoring_much,
        scoring_all,
        two_dtypes,
        beside_a_fit,
        fits_side_by_side,
        *([forked] if hasattr(os, "fork") else []),
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # in each of the threads here, which are many
    try:
        return [part(quick) for part in parts]
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    main(measure)

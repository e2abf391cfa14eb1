"""Milliseconds of what most people bring first: one short series, many short ones, one step at a time.

``OMP_NUM_THREADS=1 python benchmarks/small_jobs.py``: HMMs beside hmmlearn, from the same parameters; a step of streams
beside a filter of ten lines of NumPy; other chains and a local level beside plain loops. All interleaved on one core.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hmmlearn.hmm
import numpy as np
import pandas as pd
import plain_loops
import torch
from results import write

import seqmodels as sm

HERE = Path(__file__).resolve().parent
# sequences, frames of each, features, states, EM steps
SIZES = (
    *((1, 300, 2, 3, 20), (1, 1_000, 2, 3, 20), (1, 5_000, 2, 3, 20), (1, 20_000, 2, 3, 20)),
    *((50, 100, 1, 2, 5), (50, 100, 1, 4, 5), (50, 100, 1, 8, 5), (50, 100, 1, 10, 5)),
    *((100, 100, 10, 4, 10), (100, 100, 10, 20, 10)),
)
PROCESSES = (
    "import seqmodels as sm; sm.HMM(3).fit([X]).decode([X])",
    "from hmmlearn.hmm import GaussianHMM; GaussianHMM(3).fit(X).predict(X)",
)
DATA = "import numpy as np; X = np.random.default_rng(0).normal(size=(300, 2)); "


def medians(functions: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Milliseconds of each function, in turns, after one call of each that does not count."""
    for function in functions:
        function()
    seconds = [[_seconds(function) for function in functions] for _ in range(rounds)]
    return [1e3 * float(each) for each in np.median(seconds, 0)]


def _seconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def data(n: int, length: int, n_features: int, n_states: int, apart: float = 2.0) -> list[np.ndarray]:
    """Sequences that stay ten frames in a state."""
    rng = np.random.default_rng(n_states)
    states = [np.repeat(rng.integers(n_states, size=length // 10), 10) for _ in range(n)]
    return [apart * each[:, None] + rng.normal(size=(length, n_features)) for each in states]


def parameters(n_states: int, n_features: int) -> dict[str, np.ndarray]:
    """Where all libraries start."""
    transition = np.full((n_states, n_states), 0.1 / n_states) + 0.9 * np.eye(n_states)
    means = 2.0 * np.arange(n_states)[:, None] + 0.5 * np.random.default_rng(1).normal(size=(n_states, n_features))
    return {
        "initial": np.full(n_states, 1 / n_states),
        "transition": transition / transition.sum(1, keepdims=True),
        "means": means,
        "covariances": np.ones((n_states, n_features)),
    }


def ours(start: dict[str, np.ndarray], n_steps: int) -> sm.HMM:
    """An HMM of these parameters, whose ``fit`` takes as many EM steps from them."""
    return sm.HMM.from_parameters(**start).set_params(warm_start=True, max_iter=n_steps, tol=0)


def theirs(start: dict[str, np.ndarray], n_steps: int) -> hmmlearn.hmm.GaussianHMM:
    """The same of hmmlearn."""
    n_states, n_features = start["means"].shape
    model = hmmlearn.hmm.GaussianHMM(n_states, "diag", n_iter=n_steps, tol=-np.inf, init_params="")
    model.startprob_, model.transmat_, model.means_, model.covars_ = start.values()
    model.n_features = n_features
    return model


def hmm_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """EM from given parameters, the best path, likelihood and posterior, and a fit with all by default."""
    for size in SIZES:
        yield from _rows_of_size(*size, rounds)
    x = data(20, 200, 2, 3, apart=4.0)
    joined, lengths = np.concatenate(x), [200] * 20
    pair = (
        lambda: sm.HMM(3).fit(x),
        lambda: hmmlearn.hmm.GaussianHMM(3, n_iter=100, random_state=0).fit(joined, lengths),
    )
    yield _row("20 x 200, 2 features", "fit, all by default", "hmmlearn", *medians(pair, rounds))


def _rows_of_size(
    n: int, length: int, n_features: int, n_states: int, n_steps: int, rounds: int
) -> Iterator[dict[str, Any]]:
    x, start = data(n, length, n_features, n_states), parameters(n_states, n_features)
    sequences, joined, lengths = sm.Sequences(x), np.concatenate(x), [length] * n
    model, peer = ours(start, n_steps), theirs(start, n_steps)
    jobs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        f"{n_steps} EM steps": (
            lambda: ours(start, n_steps).fit(sequences),
            lambda: theirs(start, n_steps).fit(joined, lengths),
        ),
        "decode": (lambda: model.decode(sequences), lambda: peer.predict(joined, lengths)),
        "score": (lambda: model.score(sequences), lambda: peer.score(joined, lengths)),
        "posterior": (lambda: model.posterior(sequences), lambda: peer.predict_proba(joined, lengths)),
    }
    for job, pair in jobs.items():
        yield _row(f"{n} x {length}, D {n_features}, K {n_states}", job, "hmmlearn", *medians(pair, rounds))


def step_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """A step of each model's stream beside one of a plain filter, and what an HMM predicts and draws."""
    start, (x,) = parameters(3, 2), data(1, 300, 2, 3)
    model, text = ours(start, 1), sm.data.builtin_text()[0][:30_000]
    models: dict[str, tuple[Any, Sequence[Any]]] = {
        "HMM": (model, x),
        "n-gram": (sm.NGram(5).fit([text]), text[:300]),
        "LSTM, width 64": (sm.LSTM(d_model=64, max_steps=20).fit([text]), text[:300]),
        "Transformer, width 64": (sm.Transformer(d_model=64, n_layers=2, max_steps=20).fit([text]), text[:300]),
    }
    for name, (each, values) in models.items():
        pair = (partial(_stream, each, values), lambda: plain_filter(start, x))
        ms, plain = medians(pair, rounds)
        yield _row(name, "a step of a stream", "NumPy filter", ms / len(values), plain / len(x))
    jobs: dict[str, Callable[[], Any]] = {
        "sample of 300": lambda: model.sample(1, length=300),
        "predict_next": lambda: model.predict_next(x[:50]),
        "forecast of 12": lambda: model.forecast([x[:100]], 12),
    }
    for job, run in jobs.items():
        yield _row("HMM", job, "", *medians([run], rounds), np.nan)


def _stream(model: Any, values: Sequence[Any]) -> None:
    stream = model.stream()
    for value in values:
        stream.update(value)


def plain_filter(start: dict[str, np.ndarray], x: np.ndarray) -> float:
    """log p(x) step by step."""
    belief, total = start["initial"], 0.0
    means, variances = start["means"], start["covariances"]
    for t in range(len(x)):
        log_b = -0.5 * ((x[t] - means) ** 2 / variances + np.log(2 * np.pi * variances)).sum(1)
        belief = (belief if t == 0 else belief @ start["transition"]) * np.exp(log_b)
        total += np.log(belief.sum())
        belief = belief / belief.sum()
    return total


def other_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """The log-probability of a series under models that have no peer in Python's packages of HMMs, and local levels."""
    one = sm.GaussianMixture(1)
    for length in (100, 300, 1_000, 5_000):
        (x,) = data(1, length, 2, 3)
        y, times = x[:, :1], np.cumsum(np.random.default_rng(0).exponential(size=length))
        timed, short = sm.Sequences([x], times=[times]), {"n_init": 1, "max_iter": 3}
        durations = sm.hmm.HSMM(3, max_duration=30, observation=one, **short).fit([x])
        unequal = sm.hmm.ContinuousTimeHMM(3, observation=one, **short).fit(timed)
        lags, level = sm.hmm.MarkovSwitchingAR(2, **short).fit([y]), sm.LinearGaussian.local_level().fit([y])
        pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "HSMM": (partial(durations.log_prob, [x]), partial(plain_loops.of_durations, durations, x)),
            "MarkovSwitchingAR": (partial(lags.log_prob, [y]), partial(plain_loops.of_lags, lags, y)),
            "ContinuousTimeHMM": (
                partial(unequal.log_prob, timed),
                partial(plain_loops.of_unequal_steps, unequal, x, times),
            ),
            "local level": (partial(level.log_prob, [y]), partial(plain_loops.of_local_level, level, y)),
        }
        for name, pair in pairs.items():
            np.testing.assert_allclose(*(np.ravel(each())[0] for each in pair), rtol=1e-9)
            yield _row(f"1 x {length:,}", f"score, {name}", "NumPy loop", *medians(pair, rounds))


def process_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """A whole process that fits a small HMM and decodes, imports included, of modules that were imported before."""
    silent = "import warnings; warnings.simplefilter('ignore'); "
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    commands = [[sys.executable, "-c", silent + DATA + code] for code in PROCESSES]
    pair = [partial(subprocess.run, command, check=True, env=kept) for command in commands]
    yield _row("1 x 300, D 2, K 3", "a whole process", "hmmlearn", *medians(pair, rounds))


def _row(case: str, job: str, peer: str, ms: float, peer_ms: float) -> dict[str, Any]:
    row = {
        "case": case,
        "job": job,
        "ms": round(ms, 4),
        "peer": peer,
        "peer_ms": round(peer_ms, 4),
        "ratio": round(peer_ms / ms, 3),
    }
    print(f"{case}, {job}: {ms:.3f} ms, {peer} {peer_ms:.3f} ({peer_ms / ms:.2f})", flush=True)
    return row


PARTS = {"hmm": hmm_rows, "steps": step_rows, "other": other_rows, "process": process_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of each pair, in turns")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the one all run on")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "small_jobs.csv")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    frame = pd.DataFrame([row for part in options.only for row in PARTS[part](options.rounds)])
    command = shlex.join(["python", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv)])
    write(frame, options.out, command)


if __name__ == "__main__":
    main()

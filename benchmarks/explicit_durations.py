"""An iteration of EM of an HSMM by its longest duration: ``OMP_NUM_THREADS=1 python benchmarks/explicit_durations.py``.

Of 500 sequences of 200 steps (one feature, 8 states), in float64, and of one of 10,000 steps. Seconds are of the
processor, in one thread, the median over rounds; ``ms_per_1000_steps`` is of the data. ``hmm`` is ``HMM`` on the same
data.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import seqmodels as sm

RESULTS = Path(__file__).resolve().parent / "results"
N_STATES = 8
LONGEST = (1, 10, 50, 200)
FAMILIES = ("negative-binomial", "poisson", "categorical")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hardware", default="", help="as it shall stand in the table")
    parser.add_argument("--out", default=str(RESULTS / "explicit_durations.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.DataFrame(rows(data(500, 200), data(1, 10_000), options.rounds)).assign(
        hardware=options.hardware,
        date=date.today().isoformat(),
        command=shlex.join(["python", *sys.argv]),
        torch=torch.__version__,
    )
    table.to_csv(options.out, index=False, float_format="%.4g")
    print(table.iloc[:, :5].to_string(index=False))


def data(n: int, length: int) -> list[np.ndarray]:
    """Of states in a row, each of a few tens of steps."""
    rng = np.random.default_rng(0)
    states = (np.arange(length)[None] // 25 + rng.integers(N_STATES, size=(n, 1))) % N_STATES
    return [2.0 * z[:, None] + rng.standard_normal((length, 1)) for z in states]


def rows(sequences: list[np.ndarray], long: list[np.ndarray], rounds: int) -> list[dict[str, Any]]:
    """One of each algorithm and size; ``long`` is one sequence."""
    shared: dict[str, Any] = {"n_init": 1, "tol": 0.0, "observation": sm.GaussianMixture(1), "dtype": "float64"}
    makes: list[tuple[str, int, Callable[..., Any]]] = [
        ("hmm", 0, lambda **o: sm.HMM(N_STATES, **shared, **o)),
        *((f"hsmm, {f}", 50, lambda f=f, **o: _hsmm(f, 50, shared, o)) for f in FAMILIES),
        *(("hsmm, poisson", d, lambda d=d, **o: _hsmm("poisson", d, shared, o)) for d in LONGEST if d != 50),
    ]
    table = [_timed(name, longest, make, sequences, rounds) for name, longest, make in makes]
    table.append(_timed("hsmm, poisson, one sequence", 50, lambda **o: _hsmm("poisson", 50, shared, o), long, rounds))
    model = _hsmm("poisson", 50, shared, {"max_iter": 1}).fit(sequences)
    for name, function in {"log_prob": model.log_prob, "decode": model.decode}.items():
        seconds = [_seconds(lambda function=function: function(sequences)) for _ in range(rounds)]
        table.append(_row(f"hsmm, {name}", 50, seconds, sequences))
    return table


def _hsmm(durations: Any, longest: int, shared: dict[str, Any], options: dict[str, Any]) -> sm.hmm.HSMM:
    return sm.hmm.HSMM(N_STATES, durations=durations, max_duration=longest, **shared, **options)


def _timed(
    name: str, longest: int, make: Callable[..., Any], sequences: list[np.ndarray], rounds: int
) -> dict[str, Any]:
    """An iteration: what a fit of four steps more takes more, over four."""
    model = make(max_iter=1).fit(sequences).set_params(warm_start=True)
    seconds = []
    for _ in range(rounds):
        one, five = (_seconds(lambda n=n: model.set_params(max_iter=n).fit(sequences)) for n in (1, 5))
        seconds.append((five - one) / 4)
    return _row(name, longest, seconds, sequences)


def _row(name: str, longest: int, seconds: list[float], sequences: list[np.ndarray]) -> dict[str, Any]:
    median = float(np.median(seconds))
    per_step = 1e6 * median / sum(map(len, sequences))
    return {
        "what": name,
        "max_duration": longest,
        "seconds": median,
        "ms_per_1000_steps": per_step,
        "slowest": max(seconds),
    }


def _seconds(call: Callable[[], Any]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


if __name__ == "__main__":
    main()

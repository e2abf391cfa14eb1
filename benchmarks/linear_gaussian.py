"""An iteration of EM of a linear-Gaussian system: ``OMP_NUM_THREADS=1 python benchmarks/linear_gaussian.py``.

Of 200 sequences of 300 steps, 13 features and 8 states, in float64: smoothing, sums and the M-step, from the same
parameters; with ``--dynamax PYTHON`` beside dynamax, in an environment of its own (``peers/dynamax.txt``), in turns,
and the figures that both find are compared. Seconds are of the processor, one core and one thread, the median over
rounds of five iterations.
``of each length`` are sequences of 150 to 450 steps, ``missing`` has a value in twenty missing: dynamax has neither.
"""

from __future__ import annotations

import argparse
import ast
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from seqmodels.linear_gaussian.learning.em import m_step
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, SystemParameters

HERE = Path(__file__).resolve().parent
N_STATES, N_FEATURES = 8, 13
IN_A_TURN = 5  # iterations one after the other, as in a fit
FORM = Form("learned", "full", "full", "full", False, 1e-12)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dynamax", help="an interpreter of Python that has dynamax")
    parser.add_argument("--hardware", default="", help="as it shall stand in the table")
    parser.add_argument("--out", default=str(HERE / "results/linear_gaussian.csv"))
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    table = pd.DataFrame(rows(200, 300, options.rounds, options.dynamax)).assign(
        hardware=options.hardware,
        date=date.today().isoformat(),
        command=shlex.join(["python", *sys.argv]),
    )
    table.to_csv(options.out, index=False, float_format="%.4g")
    print(table.iloc[:, :7].to_string(index=False))


def problem(n: int, length: int) -> tuple[SystemParameters, list[np.ndarray]]:
    """Parameters to begin with, and sequences of a system near them."""
    rng = np.random.default_rng(0)
    transition = rng.normal(size=(N_STATES, N_STATES))
    transition *= 0.95 / np.abs(np.linalg.eigvals(transition)).max()
    observation, sequences = rng.normal(size=(N_FEATURES, N_STATES)), []
    for _ in range(n):
        z, x = rng.normal(size=N_STATES), np.empty((length, N_FEATURES))
        for t in range(length):
            x[t] = observation @ z + 0.7 * rng.normal(size=N_FEATURES)
            z = transition @ z + 0.5 * rng.normal(size=N_STATES)
        sequences.append(x)
    start = SystemParameters(
        *(0.9 * transition, 0.5 * np.eye(N_STATES), observation + 0.1 * rng.normal(size=observation.shape)),
        *(np.zeros(N_FEATURES), np.eye(N_FEATURES), np.zeros(N_STATES), np.eye(N_STATES)),
        *(np.zeros((N_STATES, 0)), np.zeros((N_FEATURES, 0))),
    )
    return start, sequences


def rows(n: int, length: int, rounds: int, dynamax: str | None = None) -> list[dict[str, Any]]:
    """One of each library and kind of data."""
    start, sequences = problem(n, length)
    rng = np.random.default_rng(1)
    lengths = rng.integers(length // 2, 3 * length // 2, n).tolist()
    unequal = [np.resize(x, (m, N_FEATURES)) for x, m in zip(sequences, lengths, strict=True)]
    gaps = [np.where(rng.random(x.shape) < 0.05, np.nan, x) for x in sequences]
    diagonal = replace(FORM, observation_noise="diag")
    kinds = [("equal lengths", sequences, FORM), ("of each length", unequal, FORM), ("missing", gaps, diagonal)]
    turns: dict[str, Callable[[], float]] = {
        kind: partial(_seconds, start, form, SystemData(x, np.ones(len(x)))) for kind, x, form in kinds
    }
    with tempfile.TemporaryDirectory() as folder:
        peer = None if dynamax is None else Peer(dynamax, Path(folder), start, sequences)
        times: dict[tuple[str, str], list[float]] = {("seqmodels", kind): [] for kind in turns}
        for turn in turns.values():
            turn()  # compiles
        for _ in range(rounds):
            for kind, turn in turns.items():
                times["seqmodels", kind].append(turn())
            if peer is not None:
                times.setdefault(("dynamax", "equal lengths"), []).append(peer.seconds())
        difference = np.nan if peer is None else peer.close(start, sequences)
    base = np.median(times["seqmodels", "equal lengths"])
    return [
        {
            "library": library,
            "data": kind,
            "seconds": np.median(seconds),
            "fastest": min(seconds),
            "slowest": max(seconds),
            "ratio": np.median(seconds) / base,
            "difference": difference if library == "dynamax" else np.nan,
            "sequences": n,
            "steps": length,
        }
        for (library, kind), seconds in times.items()
    ]


def _seconds(start: SystemParameters, form: Form, data: SystemData) -> float:
    began = time.process_time()
    for _ in range(IN_A_TURN):
        m_step(start, form, e_step(start, form, data))
    return (time.process_time() - began) / IN_A_TURN


class Peer:
    """dynamax in a process of its own, which is asked for one iteration at a time."""

    def __init__(self, python: str, folder: Path, start: SystemParameters, sequences: list[np.ndarray]) -> None:
        path = folder / "problem.npz"  # without -P the worker of HMMs would be imported in dynamax's place
        np.savez(path, x=np.stack(sequences), **start.arrays())
        command = [python, "-P", str(HERE / "peers/linear_gaussian_dynamax.py"), str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.found = self._line()

    def _line(self) -> Any:
        assert self.process.stdout is not None, "it is a pipe"
        return ast.literal_eval(self.process.stdout.readline())

    def seconds(self) -> float:
        """Of an iteration, the mean of a turn."""
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.write(f"{IN_A_TURN}\n")
        self.process.stdin.flush()
        return float(np.mean(self._line()))

    def close(self, start: SystemParameters, sequences: list[np.ndarray]) -> float:
        """The largest relative difference of what both found: log-probability and regressions."""
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.close()
        self.process.wait()
        statistics = e_step(start, FORM, SystemData(sequences, np.ones(len(sequences))))
        ours = m_step(start, FORM, statistics)
        pairs = [
            (np.asarray(statistics.log_prob), self.found["log_prob"]),
            *((getattr(ours, name), self.found[name]) for name in ("transition", "observation")),
        ]
        return max(float(np.abs(a - np.asarray(b)).max() / np.abs(a).max()) for a, b in pairs)


if __name__ == "__main__":
    main()

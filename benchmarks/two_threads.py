"""An iteration of EM on one thread and on several, alternating in one process: ``python benchmarks/two_threads.py``.

Of W1 and W4 (``workloads.py``), and of an autoregressive HMM of 48 states on 2,700 sequences of 28 to 56 frames of 13
features: 113,000 frames, as of so many spoken digits.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from peers.seqmodels import hmm
from scipy.signal import lfilter
from workloads import SIZES, make

import seqmodels as sm

HERE = Path(__file__).resolve().parent


AUTOREGRESSIVE = "autoregressive"


def main() -> None:
    """The command."""
    options = _options()
    rows = [row(w, dtype, options) for w in options.workloads for dtype in ("float32", "float64")]
    about = {
        "hardware": options.hardware,
        "date": date.today().isoformat(),
        "command": shlex.join(["python", *sys.argv]),
        "torch": torch.__version__,
    }
    table = pd.DataFrame(rows).assign(**about)
    table.to_csv(options.out, index=False, float_format="%.6g")
    print(table.drop(columns=list(about)).to_string(index=False))


def row(workload: str, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    """Medians of the milliseconds of an iteration (an M-step and an E-step), and of the ratios of a round."""
    before = torch.get_num_threads()
    model, sequences = autoregressive(dtype) if workload == AUTOREGRESSIVE else prepared(workload, dtype)
    seconds: dict[int, list[float]] = {1: [], options.threads: []}
    for turn in range(options.rounds + 1):
        for threads, of_threads in seconds.items():
            torch.set_num_threads(threads)
            model.set_params(max_iter=options.iterations + 1).fit(sequences)
            if turn:  # the first of each warms up
                of_threads.append(float(np.median(np.diff(model.history_["seconds"]))))
    torch.set_num_threads(before)
    one, several = (np.asarray(values) for values in seconds.values())
    return {
        "workload": workload,
        "dtype": dtype,
        "threads": options.threads,
        "ms_on_one": 1e3 * float(np.median(one)),
        "ms": 1e3 * float(np.median(several)),
        "ratio": float(np.median(one / several)),
        "lowest": float((one / several).min()),
        "highest": float((one / several).max()),
    }


def prepared(workload: str, dtype: str) -> tuple[sm.HMM, list[np.ndarray]]:
    """One of the workloads of ``hmm.py``, and the model that starts from its parameters."""
    data = make(workload)
    return hmm(data, dtype), data.sequences


def autoregressive(dtype: str) -> tuple[sm.HMM, list[np.ndarray]]:
    """About 113,000 frames that stay near the last, at one of two levels, and a model after its first iteration."""
    random = np.random.default_rng(15)
    sequences = []
    for length in random.integers(28, 57, size=2_700):
        level = np.repeat(random.standard_normal((2, 13)), [length // 2, length - length // 2], axis=0)
        sequences.append(level + lfilter([0.6], [1, -0.8], random.standard_normal((length, 13)), axis=0))
    model = sm.HMM(48, observation=sm.AutoregressiveGaussian(), dtype=dtype, max_iter=1, n_init=1, tol=0, device="cpu")
    return model.fit(sequences).set_params(warm_start=True), sequences


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workloads", nargs="+", choices=[*SIZES, AUTOREGRESSIVE], default=["W1", "W4", AUTOREGRESSIVE]
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=3, help="in each turn")
    parser.add_argument("--hardware", default="", help="as it shall stand in the table")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "two_threads.csv")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""An iteration of EM on one thread and on several, alternating in one process: ``python benchmarks/two_threads.py``."""

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
from workloads import SIZES, make

HERE = Path(__file__).resolve().parent


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
    data, before = make(workload), torch.get_num_threads()
    model, sequences = hmm(data, dtype), data.sequences
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="+", choices=list(SIZES), default=["W1", "W4"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=3, help="in each turn")
    parser.add_argument("--hardware", default="", help="as it shall stand in the table")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "two_threads.csv")
    return parser.parse_args()


if __name__ == "__main__":
    main()

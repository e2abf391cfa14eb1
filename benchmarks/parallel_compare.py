"""``compare`` in processes and on a local dask cluster: the figures of one process, and what a killed worker loses.

OMP_NUM_THREADS=1 python benchmarks/parallel_compare.py            # needs dask.distributed for the second row
"""

from __future__ import annotations

import argparse
import os
import signal
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.comparison_frame import TIMES
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path(__file__).parent / "results/parallel_compare.csv"


class Kill:
    """A callback of training that ends its process, as the system does for want of memory."""

    def __call__(self, row: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def models(steps: int) -> dict[str, sm.SequenceModel]:
    return {
        "hmm": sm.HMM(8, max_iter=steps),
        "7-gram": sm.NGram(7),
        "lstm": sm.LSTM(d_model=64, max_steps=steps),
        "gru": sm.GRU(d_model=64, max_steps=steps),
    }


@contextmanager
def dask_executor() -> Iterator[Executor]:
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client.get_executor()


def measured(where: str, n_jobs: Any, steps: int) -> dict[str, Any]:
    """A row: seconds against one process, whether the figures are the same, and the models left after a kill."""
    train, test = sm.data.builtin_text().split(0.1)
    seconds, frames = [], []
    for jobs in (1, n_jobs):
        began = time.perf_counter()
        frames.append(sm.compare(models(steps), train, test=test, seeds=2, n_jobs=jobs).frame.drop(columns=list(TIMES)))
        seconds.append(time.perf_counter() - began)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the model that fails
        killed = {
            **models(1),
            "killed": sm.LSTM(d_model=8, max_steps=1, training=sm.training.GradientTraining(callbacks=[Kill()])),
        }
        frame = sm.compare(killed, train, test=test, n_jobs=n_jobs).frame.set_index("model")
    return {
        "where": where,
        "models": len(models(1)),
        "seconds_one": seconds[0],
        "seconds_two": seconds[1],
        "ratio": seconds[0] / seconds[1],
        "same_figures": frames[0].equals(frames[1]),
        "left_after_a_kill": int((frame.drop(index="iid")["error"] == "").sum()),
        "error": frame.loc["killed", "error"].partition(":")[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    rows = [measured("joblib, 2 processes", 2, given.steps)]
    if find_spec("distributed") is None:
        print("dask.distributed is missing: no row for it")
    else:
        with dask_executor() as executor:
            rows.append(measured("dask, 2 local workers", executor, given.steps))
    table = stamped(pd.DataFrame(rows))
    table.to_csv(given.out, index=False, float_format="%.4g")
    print(table.drop(columns=["command", "hardware"]).T.to_string())


if __name__ == "__main__":
    main()

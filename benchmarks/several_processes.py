"""Training symbols a second of networks by one process and by two that share it, on one core each.

    python benchmarks/several_processes.py --out benchmarks/results/several_processes.csv

Two processes are started; in every round the first trains alone while the other waits, and then both train, each way
of sharing after the other, so that other load on the machine affects all alike. The batch is the same, so two processes
have half of it each. A row is the median over rounds, of the steps after the first fifth; ``sum_ms`` is an all-reduce
of as many bytes as the network has gradients, with nothing else to do. ``ratio`` is of symbols a second to one
process, ``processor_ratio`` of symbols in a processor second of process 0, which says what sharing costs where other
work keeps the cores busy: 2 would be two processes without any cost.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

from seqmodels import LSTM, Transformer, data
from seqmodels.common import distributed
from seqmodels.neural.model import NeuralModel
from seqmodels.training import GradientTraining

BATCH, CONTEXT = 16, 128
MODELS: dict[str, Callable[..., NeuralModel]] = {
    "Transformer 128, 4 layers": lambda **options: Transformer(
        d_model=128, n_layers=4, n_heads=4, context=CONTEXT, **options
    ),
    "Transformer 384, 6 layers": lambda **options: Transformer(
        d_model=384, n_layers=6, n_heads=6, context=CONTEXT, **options
    ),
    "LSTM 256": lambda **options: LSTM(d_model=256, bptt=CONTEXT, **options),
}
WAYS = ("one process", "replicate", "shard")
FIELDS = (
    "model",
    "parameters",
    "processes",
    "symbols_per_s",
    "lowest",
    "highest",
    "ratio",
    "processor_ratio",
    "sum_ms",
    "rounds",
)


class Clock:
    """A callback that notes when steps ended."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float]] = []

    def __call__(self, row: dict[str, float]) -> None:
        self.rows.append((row["step"], time.perf_counter(), time.process_time()))

    def symbols_per_second(self) -> np.ndarray:
        """After the first fifth of the steps: of the clock, and of the processor."""
        if not self.rows:  # process 0 has them
            return np.ones(2)
        later = np.array([row for row in self.rows if row[0] >= 0.2 * self.rows[-1][0]])
        steps, *seconds = later[-1] - later[0]
        return BATCH * CONTEXT * steps / np.array(seconds)


def symbols_per_second(name: str, way: str, steps: int) -> tuple[np.ndarray, int]:
    """Of training, in process 0; and the number of parameters where both fit it."""
    clock = Clock()
    training = GradientTraining(callbacks=[clock], parallel=way if way != "one process" else "auto")
    model = MODELS[name](max_steps=steps, batch_size=BATCH, training=training)
    text = data.builtin_text()

    def fit() -> None:
        model.fit(text, validation=None)

    if way == "one process":
        distributed.run_on_rank_zero(name, fit)
        return clock.symbols_per_second(), 0
    fit()
    return clock.symbols_per_second(), model.n_parameters_


def seconds_of_sum(n: int) -> float:
    """The median time of an all-reduce of n float32 numbers."""
    numbers, taken = torch.zeros(n), []
    for _ in range(7):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(numbers)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def work(rank: int, port: int, arguments: argparse.Namespace) -> None:
    """What each of two processes does; the first writes the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    rows: list[dict[str, Any]] = []
    for name in MODELS:
        speeds: dict[str, list[np.ndarray]] = {way: [] for way in WAYS}
        n_parameters = 0
        for _ in range(arguments.rounds):
            for way in WAYS:
                speed, n = symbols_per_second(name, way, arguments.steps)
                speeds[way].append(speed)
                n_parameters = max(n_parameters, n)
        milliseconds = 1000 * seconds_of_sum(n_parameters)
        for way in WAYS:
            found = np.array(speeds[way])  # (rounds, 2)
            ratio, processor_ratio = np.median(found / np.array(speeds[WAYS[0]]), axis=0)
            rows.append(
                {
                    "model": name,
                    "parameters": n_parameters,
                    "processes": way if way == "one process" else f"2, {way}",
                    "symbols_per_s": round(np.median(found[:, 0])),
                    "lowest": round(found[:, 0].min()),
                    "highest": round(found[:, 0].max()),
                    "ratio": round(ratio, 2),
                    "processor_ratio": round(processor_ratio, 2),
                    "sum_ms": round(milliseconds, 1),
                    "rounds": arguments.rounds,
                }
            )
        if rank == 0:
            write(arguments, rows)
    dist.destroy_process_group()


def write(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """The table so far, with how it was made."""
    command = f"python benchmarks/several_processes.py --rounds {arguments.rounds} --steps {arguments.steps}"
    with open(arguments.out, "w", newline="") as file:
        writer = csv.DictWriter(file, [*FIELDS, "command", "date", "hardware"])
        writer.writeheader()
        for row in rows:
            made = {"command": command, "date": date.today().isoformat(), "hardware": arguments.hardware}
            writer.writerow({**row, **made})
    for row in rows[-len(WAYS) :]:
        print(" ".join(f"{row[name]}" for name in FIELDS), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/several_processes.csv"))
    parser.add_argument("--hardware", default="", help="what the machine is, and whether other work ran on it")
    arguments = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    del store
    torch.multiprocessing.spawn(work, (port, arguments), nprocs=2)


if __name__ == "__main__":
    main()

"""Two checkouts of seqmodels side by side in one run, row by row: ``python benchmarks/before_after.py --before DIR``.

A change that should leave speed as it was is held to this: each row is a process of either checkout, on one core,
taking turns; the ratio is that of a turn before to the turn after beside it (above 1: faster now). How a process lies
in memory makes it some per cent faster or slower as long as it lives, so every row is started anew several times: the
figure is the median over starts of the median over rounds, beside the lowest and the highest start.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from process import Process
from results import write

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """``n`` steps a turn of the task that ``arguments`` name to a module of ``peers``."""

    module: str
    n: int
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """As it is printed."""
        return " ".join([self.module.removesuffix("seqmodels").rstrip("_") or "hmm", *self.arguments])


ROWS = [
    *[Row("seqmodels", n, (w, "own", d)) for w, n in (("W1", 5), ("W2", 40)) for d in ("float32", "float64")],
    *[Row("seqmodels", n, (w, "own", "float32")) for w, n in (("W3", 20), ("W4", 2))],
    *[Row("hmm_seqmodels", n, (task,)) for task, n in (("score", 4), ("stream", 400), ("sample", 400), ("decode", 4))],
    *[Row("networks_seqmodels", 30, (f"train {family}",)) for family in ("transformer", "lstm", "gru", "elman")],
    *[Row("networks_seqmodels", 256, (f"generate {n} {f}",)) for n in (1, 32) for f in ("transformer", "lstm")],
    *[Row("networks_seqmodels", n, (f"score {f}",)) for f, n in (("transformer", 20_000), ("lstm", 10_000))],
    *[Row("seq2seq_seqmodels", 8, (task,)) for task in ("additive", "multiplicative", "current", "transformer")],
]


def seconds(process: Process, n: int) -> float:
    """Of one turn of ``n`` steps; of EM the median iteration, times ``n``."""
    answer = process.ask(n)
    if "iterations" in answer:
        return n * statistics.median(i["seconds"] for i in answer["iterations"])
    return float(answer["seconds"])


def turns(row: Row, before: Path, rounds: int) -> list[tuple[float, float]]:
    """Seconds before and after, of each round of one pair of processes."""
    python = Path(sys.executable)
    processes = [Process(python, row.module, *row.arguments, root=root) for root in (before, HERE.parent)]
    try:
        for process in processes:
            process.ask(max(2, row.n // 4))
        pairs = []
        for number in range(rounds):
            order = (0, 1) if number % 2 == 0 else (1, 0)  # whoever comes second finds other caches
            turn = {i: seconds(processes[i], row.n) for i in order}
            pairs.append((turn[0], turn[1]))
        return pairs
    finally:
        for process in processes:
            process.close()


def compare(row: Row, before: Path, starts: int, rounds: int) -> dict[str, object]:
    """A line of the table."""
    pairs_of_starts = [turns(row, before, rounds) for _ in range(starts)]
    ratios = [statistics.median(b / a for b, a in pairs) for pairs in pairs_of_starts]
    return {
        "row": row.name,
        "before": statistics.median(b for pairs in pairs_of_starts for b, _ in pairs),
        "after": statistics.median(a for pairs in pairs_of_starts for _, a in pairs),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "starts": starts,
        "rounds": rounds,
    }


def main() -> None:
    """Every row, the table so far written after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, metavar="DIR", help="the other checkout")
    parser.add_argument("--only", default="", help="rows whose names begin so")
    parser.add_argument("--starts", type=int, default=5, help="pairs of processes a row")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each process")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the one all run on")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "before_after.csv")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    lines = []
    for row in ROWS:
        if row.name.startswith(options.only):
            lines.append(compare(row, options.before.resolve(), options.starts, options.rounds))
            print(pd.DataFrame(lines[-1:]).to_string(index=False, header=len(lines) == 1), flush=True)
            write(pd.DataFrame(lines), options.out, shlex.join(["python", *words]))


if __name__ == "__main__":
    main()

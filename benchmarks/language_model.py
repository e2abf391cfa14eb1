"""Networks on text, side by side in one run: training, generation, scoring. ``python benchmarks/language_model.py --help``."""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from process import Process
from results import write

HERE = Path(__file__).resolve().parent
OURS, TORCH, GPT2 = "networks_seqmodels", "networks_torch", "networks_transformers"


@dataclass(frozen=True)
class Contest:
    """Entrants ``(module, task)``, the first the reference, each asked for ``n`` steps or symbols a turn; one is ``unit`` symbols."""

    name: str
    n: int
    unit: int
    entrants: list[tuple[str, str]]


TRAINED, STREAMED = 12 * 64, 16 * 64
CONTESTS = [
    Contest("train transformer", 40, TRAINED, [(GPT2, "train transformer"), (OURS, "train transformer")]),
    *[
        Contest(f"train {f}", 30, STREAMED, [(m, f"train {f}") for m in (TORCH, OURS)])
        for f in ("lstm", "gru", "elman")
    ],
    *[
        Contest(
            f"generate, batch {b}",
            256,
            b,
            [
                (GPT2, f"generate {b} transformer uncached"),
                (GPT2, f"generate {b} transformer"),
                (OURS, f"generate {b} transformer"),
                (OURS, f"generate {b} lstm"),
            ],
        )
        for b in (1, 32)
    ],
    Contest("score transformer", 20_000, 1, [(GPT2, "score transformer"), (OURS, "score transformer")]),
    Contest("score lstm", 5_000, 1, [(TORCH, "score lstm"), (OURS, "score lstm")]),
    Contest("loss over 50257 symbols", 2, 2_048, [("vocabulary", "whole"), ("vocabulary", "pieces")]),
]


@dataclass
class Entrant:
    """A running process and what it has done."""

    process: Process
    library: str
    seconds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    extra_mb: float = 0.0

    def turn(self, n: int) -> None:
        answer = self.process.ask(n)
        self.seconds.append(answer["seconds"] / n)
        self.busy.append(answer["busy"])
        self.peak_mb, self.extra_mb = answer["peak_mb"], answer["extra_mb"]


def hold(contest: Contest, pythons: dict[str, Path], rounds: int) -> pd.DataFrame:
    """Everyone's turns, in rounds; a line an entrant."""
    running = [Entrant(Process(pythons[module], module, task), f"{module} {task}") for module, task in contest.entrants]
    try:
        for _ in range(rounds):
            for entrant in running:
                entrant.turn(contest.n)
    finally:
        for entrant in running:
            entrant.process.close()
    return _table(contest, running)


def _table(contest: Contest, running: list[Entrant]) -> pd.DataFrame:
    reference = statistics.median(running[0].seconds)
    lines = [
        {
            "contest": contest.name,
            "entrant": e.library.removeprefix("networks_"),
            "seconds": statistics.median(e.seconds),
            "fastest": min(e.seconds),
            "slowest": max(e.seconds),
            "symbols_per_second": contest.unit / statistics.median(e.seconds),
            "times_reference": reference / statistics.median(e.seconds),
            "peak_mb": round(e.peak_mb),
            "extra_mb": round(e.extra_mb),
            "busy": round(statistics.median(e.busy), 3),
            "versions": e.process.ready["versions"],
        }
        for e in running
    ]
    return pd.DataFrame(lines)


def main() -> None:
    options = _options()
    os.sched_setaffinity(0, {options.core})
    pythons = {module: Path(sys.executable) for module in (OURS, TORCH, "vocabulary")}
    if options.transformers is not None:
        pythons[GPT2] = options.transformers.absolute()
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    done: list[pd.DataFrame] = []
    for contest in CONTESTS:
        if not contest.name.startswith(options.only) or any(module not in pythons for module, _ in contest.entrants):
            continue
        done.append(hold(contest, pythons, options.rounds))
        print(done[-1].drop(columns="versions").to_string(index=False, float_format="{:.4g}".format), "\n", flush=True)
        write(pd.concat(done), options.out / "language_model.csv", shlex.join(["python", *words]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--transformers", type=Path, metavar="PYTHON", help="of an environment with peers/transformers.txt"
    )
    parser.add_argument("--only", default="", help="contests whose names begin so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the one all run on")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()

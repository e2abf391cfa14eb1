"""Steps of training of encoder-decoders, side by side in one run. ``python benchmarks/seq2seq.py --help``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from contest import Contest, hold_all
from peers.pairs import BATCH, LENGTH

HERE = Path(__file__).resolve().parent
OURS, TORCH, JOEY = "seq2seq_seqmodels", "seq2seq_torch", "seq2seq_joeynmt"
WHO = {"additive": (TORCH, JOEY, OURS), "multiplicative": (TORCH, JOEY, OURS), "current": (TORCH, OURS)}
CONTESTS = [
    Contest(f"train {task}", 10, BATCH * LENGTH, [(module, task) for module in modules])
    for task, modules in (WHO | {"transformer": (TORCH, JOEY, OURS)}).items()
]


def main() -> None:
    options = _options()
    os.sched_setaffinity(0, {options.core})
    pythons = {module: Path(sys.executable) for module in (OURS, TORCH)}
    if options.joeynmt is not None:
        pythons[JOEY] = options.joeynmt.absolute()
    contests = [c for c in CONTESTS if c.name.startswith(options.only)]
    hold_all(contests, pythons, options.rounds, options.out / "seq2seq.csv")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--joeynmt", type=Path, metavar="PYTHON", help="of an environment with peers/joeynmt.txt")
    parser.add_argument("--only", default="", help="contests whose names begin so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the one all run on")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()

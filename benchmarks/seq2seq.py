"""Steps of training of encoder-decoders, side by side in one run. ``python benchmarks/seq2seq.py --help``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from contest import Contest, hold_all, options
from peers.pairs import BATCH, LENGTH

OURS, TORCH, JOEY = "seq2seq_seqmodels", "seq2seq_torch", "seq2seq_joeynmt"
WHO = {"additive": (TORCH, JOEY, OURS), "multiplicative": (TORCH, JOEY, OURS), "current": (TORCH, OURS)}
CONTESTS = [
    Contest(f"train {task}", 10, BATCH * LENGTH, [(module, task) for module in modules])
    for task, modules in (WHO | {"transformer": (TORCH, JOEY, OURS)}).items()
]


def main() -> None:
    arguments = options(__doc__, "joeynmt")
    os.sched_setaffinity(0, {arguments.core})
    pythons = {module: Path(sys.executable) for module in (OURS, TORCH)}
    if arguments.peer is not None:
        pythons[JOEY] = arguments.peer.absolute()
    contests = [c for c in CONTESTS if c.name.startswith(arguments.only)]
    hold_all(contests, pythons, arguments.rounds, arguments.out / "seq2seq.csv")


if __name__ == "__main__":
    main()

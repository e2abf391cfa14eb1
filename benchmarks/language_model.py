"""Training, generation and scoring of text by networks, side by side: ``benchmarks/language_model.py --help``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from contest import Contest, hold_all, options

OURS, TORCH, GPT2 = "networks_seqmodels", "networks_torch", "networks_transformers"
NANOGPT = "networks_nanogpt"


TRAINED, STREAMED = 12 * 64, 16 * 64
CONTESTS = [
    Contest("train transformer", 40, TRAINED, [(GPT2, "train transformer"), (OURS, "train transformer")]),
    Contest("train as nanoGPT", 40, TRAINED, [(NANOGPT, "train transformer"), (OURS, "train transformer")]),
    Contest("compiled", 40, TRAINED, [(GPT2, "train transformer"), (OURS, "train compiled transformer")]),
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
                *[(OURS, "generate 1 compiled transformer")] * (b == 1),
                (OURS, f"generate {b} lstm"),
            ],
        )
        for b in (1, 32)
    ],
    Contest("score transformer", 20_000, 1, [(GPT2, "score transformer"), (OURS, "score transformer")]),
    Contest("score lstm", 5_000, 1, [(TORCH, "score lstm"), (OURS, "score lstm")]),
    Contest("loss over 50257 symbols", 2, 2_048, [("vocabulary", "whole"), ("vocabulary", "pieces")]),
]


def main() -> None:
    arguments = options(__doc__, "transformers")
    os.sched_setaffinity(0, {arguments.core})
    pythons = {module: Path(sys.executable) for module in (OURS, TORCH, NANOGPT, "vocabulary")}
    if arguments.peer is not None:
        pythons[GPT2] = arguments.peer.absolute()
    hold_all(
        [c for c in CONTESTS if c.name.startswith(arguments.only)],
        pythons,
        arguments.rounds,
        arguments.out / "language_model.csv",
    )


if __name__ == "__main__":
    main()

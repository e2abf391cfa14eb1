"""Networks on text, side by side in one run: training, generation, scoring. ``python benchmarks/language_model.py --help``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from contest import Contest, hold_all

HERE = Path(__file__).resolve().parent
OURS, TORCH, GPT2 = "networks_seqmodels", "networks_torch", "networks_transformers"


TRAINED, STREAMED = 12 * 64, 16 * 64
CONTESTS = [
    Contest("train transformer", 40, TRAINED, [(GPT2, "train transformer"), (OURS, "train transformer")]),
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
    options = _options()
    os.sched_setaffinity(0, {options.core})
    pythons = {module: Path(sys.executable) for module in (OURS, TORCH, "vocabulary")}
    if options.transformers is not None:
        pythons[GPT2] = options.transformers.absolute()
    hold_all(
        [c for c in CONTESTS if c.name.startswith(options.only)],
        pythons,
        options.rounds,
        options.out / "language_model.csv",
    )


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

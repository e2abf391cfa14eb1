"""A step of training in float32 beside nanoGPT's own, and where it goes: ``benchmarks/float32_step.py --help``.

A causal Transformer of 4 layers, 4 heads, width 128 on batches of 12 windows of 64 symbols, of 65 kinds. A default
Transformer of this library adds to each input the embeddings of the last four symbols, through a map of their own
(``convolution_lags``), and reads text as bytes, so that its head is four times as wide; here is what each of the two
costs. Columns after ``versions`` count operations in millions: multiplications and additions of the products of each
part, forward and backward, in attention those of half the pairs of positions. Everything is measured with all
instructions of the processor, and again with torch, oneDNN and MKL kept from AVX-512 by their environment variables.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import pandas as pd
from contest import Contest, hold
from peers.networks_nanogpt import BATCH, CONTEXT, LAYERS, WIDTH
from peers.turns import N_SYMBOLS
from results import write

OURS, NANOGPT = "networks_seqmodels", "networks_nanogpt"
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
N_BYTES = 257  # with the end
LAGS = 4
ENTRANTS = {  # the task of each, the kinds of symbols that its head tells apart, the symbols that it embeds at a step
    (NANOGPT, "train transformer"): (N_SYMBOLS, 0),
    (OURS, "train transformer, float32, one input"): (N_SYMBOLS + 1, 0),
    (OURS, "train transformer, float32"): (N_SYMBOLS + 1, LAGS),
    (OURS, "train transformer, float32, bytes"): (N_BYTES, LAGS),
}


def millions_of_operations(n_symbols: int, lags: int) -> dict[str, float]:
    """By part, in a step: twice the multiplications of its products, three times, for their gradients."""
    n = BATCH * CONTEXT
    multiplications = {
        "previous inputs": n * lags * WIDTH**2,
        "projections of attention": LAYERS * n * 4 * WIDTH**2,
        "attention": LAYERS * n * CONTEXT * WIDTH,
        "feed-forward": LAYERS * n * 8 * WIDTH**2,
        "head": n * n_symbols * WIDTH,
    }
    return {part: 6 * count / 1e6 for part, count in multiplications.items()}


def step(instructions: str, environment: dict[str, str], rounds: int) -> pd.DataFrame:
    """A line an entrant, in processes with these variables."""
    contest = Contest("float32 step", 40, BATCH * CONTEXT, list(ENTRANTS))
    with patch.dict(os.environ, environment):
        frame = hold(contest, dict.fromkeys((OURS, NANOGPT), Path(sys.executable)), rounds)
    frame["contest"] += f", {instructions}"
    operations = pd.DataFrame([millions_of_operations(*sizes) for sizes in ENTRANTS.values()])
    return frame.join(operations.assign(all_products=operations.sum(axis=1)).round())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the one all run on")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results")
    given = parser.parse_args()
    os.sched_setaffinity(0, {given.core})
    frame = pd.concat([step("all instructions", {}, given.rounds), step("AVX2", AVX2, given.rounds)])
    print(frame.drop(columns="versions").to_string(index=False, float_format="{:.4g}".format))
    write(frame, given.out / "float32_step.csv", shlex.join(["python", "benchmarks/float32_step.py", *sys.argv[1:]]))


if __name__ == "__main__":
    main()

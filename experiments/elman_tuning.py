"""Which settings of an Elman network learn characters fastest? ``experiments/elman_tuning.py FILE STEPS [NAME ...]``.

Trained on the first 81 % of the text, measured on the next 9 %, with the state carried through; the last 10 %, on which
results are reported, is never read. STEPS are those of the first candidate; each other has the number of steps that fit
into the same seconds, by what a step took next to one of the first (``TIMES``), in one process by turns. A step reads
1024 characters. The table has lines of 1500 steps of the first, and of 2139, a quarter of what 122 idle seconds hold;
by then what symbols add was read from a table, which lets 1900 steps of those of 32 by 32 into the same seconds. The
last line is of half the seconds, 3800 steps.

What else was tried, and was no better: an identity for the recurrent matrix at first, as in Le et al. (2015), which
helps at width 256 and fails at 384; the inputs before each mixed in by a convolution, as the Transformer has it, which
made every figure worse.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from inner_split import codes

from seqmodels import ElmanRNN

RESULTS = Path("experiments/results/elman_tuning.csv")
STREAMS: dict[str, Any] = {"batch_size": 16, "bptt": 64, "d_model": 256, "length": "given"}
CLASSIC: dict[str, Any] = {**STREAMS, "nonlinearity": "tanh", "dropout": 0.1, "lr": 3e-3}
SURE: dict[str, Any] = {**CLASSIC, "dropout": 0.0}
RELU: dict[str, Any] = {**SURE, "nonlinearity": "relu"}
RELU6_384: dict[str, Any] = {**RELU, "nonlinearity": "relu6", "d_model": 384, "lr": 2e-3}
SHORT: dict[str, Any] = {**RELU6_384, "batch_size": 32, "bptt": 32}
# Each stage starts from what won in the one before.
CANDIDATES: dict[str, dict[str, Any]] = {
    "classic": CLASSIC,
    "no dropout": SURE,
    "no dropout, lr 5e-3": {**SURE, "lr": 5e-3},
    "no dropout, lr 8e-3": {**SURE, "lr": 8e-3},
    "relu": RELU,
    "relu, lr 2e-3": {**RELU, "lr": 2e-3},
    "relu, layer norm": {**RELU, "layer_norm": True},
    "relu, 2 layers": {**RELU, "n_layers": 2, "residual": True},
    "relu, 384 wide": {**RELU, "d_model": 384, "lr": 2e-3},
    "relu6, 384 wide": RELU6_384,
    "relu6, 384 wide, layer norm": {**RELU6_384, "layer_norm": True},
    "relu6, 512 wide": {**RELU6_384, "d_model": 512, "lr": 1.5e-3},
    "relu6, 384 wide, 32 by 32": SHORT,
    "relu6, 384 wide, 32 by 32, lr 3e-3": {**SHORT, "lr": 3e-3},
    "relu6, 384 wide, 32 by 32, dropout 0.05": {**SHORT, "dropout": 0.05},
}
TIMES = {"2 layers": 1.67, "384 wide": 1.36, "512 wide": 1.9, "32 by 32": 1.2}  # the last that is in a name counts


def steps_of(name: str, steps: int) -> int:
    """Steps in the seconds that the first candidate takes for this many."""
    return round(steps / next((times for part, times in reversed(TIMES.items()) if part in name), 1.0))


def measure(name: str, steps: int, train: np.ndarray, valid: np.ndarray) -> dict[str, Any]:
    """One line of the table; ``train`` is the mean over the last steps, while weights moved."""
    settings, began = CANDIDATES[name], time.process_time()
    model = ElmanRNN(**{**settings, "max_steps": steps}).fit([train], validation=None)
    seconds, stream = time.process_time() - began, -model.score([valid])
    print(f"{name:36} {steps:6} {seconds:8.1f} s {1e3 * seconds / steps:7.1f} ms {stream:8.4f}", flush=True)
    said = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    learnt = -float(model.history_["log_prob"].iloc[-1])
    return {"settings": f"{name}: {said}", "steps": steps, "train": round(learnt, 4), "stream": round(stream, 4)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    train, valid = codes(sys.argv[1])
    for name in sys.argv[3:] or list(CANDIDATES):
        row = pd.DataFrame([measure(name, steps_of(name, int(sys.argv[2])), train, valid)])
        row.to_csv(RESULTS, mode="a", header=not RESULTS.exists(), index=False)

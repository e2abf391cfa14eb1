"""Which settings of a small Transformer learn characters fastest?

``python experiments/transformer_tuning.py input.txt STEPS [NAME ...]``

The shape is nanoGPT's for a CPU: 4 layers of 4 heads, 128 wide, 12 windows of 64 characters a batch. Trained on the
first 81 % of the text, measured on the next 9 %; the last 10 %, on which results are reported, is never read. The
figure is the mean of -log p over disjoint windows of 64 whose first input is the character before. Seconds are of the
process, on one thread.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from inner_split import codes

from seqmodels import Transformer
from seqmodels.neural.batches import Row, StepRange, assemble
from seqmodels.neural.scoring import batch_log_prob
from seqmodels.training import Muon

WINDOW, AT_ONCE = 64, 128
RESULTS = Path("experiments/results/transformer_tuning.csv")
SHAPE: dict[str, Any] = {"context": WINDOW, "batch_size": 12, "length": "given", "training_precision": "bfloat16"}
CLASSIC: dict[str, Any] = {
    **{"activation": "gelu", "norm_type": "layer", "norm_affine": True, "bias": True, "zero_init": False},
    **{"dropout": 0.1, "weight_decay": 0.05, "convolution_lags": 0, "positions": "sinusoidal"},
}
LEAN: dict[str, Any] = {
    **{"activation": "relu2", "norm_type": "rms", "norm_affine": False, "bias": False, "zero_init": True},
    **{"dropout": 0.0, "weight_decay": 0.1, "convolution_lags": 2, "positions": "sinusoidal"},
}
TURNED: dict[str, Any] = {**LEAN, "positions": "rotary"}
FOUR: dict[str, Any] = {**TURNED, "convolution_lags": 4}
FINAL: dict[str, Any] = {**FOUR, "norm_type": "layer", "norm_affine": True}
# Each stage starts from what won in the one before.
CANDIDATES: dict[str, dict[str, Any]] = {
    "classic": CLASSIC,
    "lean": LEAN,
    "lean, Muon": {**LEAN, "optimizer": Muon()},
    "lean, lr 5e-3": {**LEAN, "lr": 5e-3},
    "turned": TURNED,
    "turned, layer norm": {**TURNED, "norm_type": "layer"},
    "turned, layer and qk norm": {**TURNED, "norm_type": "layer", "qk_norm": True},
    "turned, lr 2e-3": {**TURNED, "lr": 2e-3},
    "four": FOUR,
    "four, Muon": {**FOUR, "optimizer": Muon()},
    "eight": {**FOUR, "convolution_lags": 8},
    "final": FINAL,
    "final, batch of 8": {**FINAL, "batch_size": 8},
    "final, 3 layers 160 wide": {**FINAL, "n_layers": 3, "d_model": 160, "n_heads": 5},
}


@torch.no_grad()
def nats(model: Transformer, text: np.ndarray) -> float:
    """Mean of -log p over disjoint windows, each after the character before it."""
    module, total = model.module_.eval(), 0.0
    rows = [Row(text[i : i + WINDOW + 1], 0, None, 1.0, False) for i in range(0, len(text) - WINDOW, WINDOW)]
    for begin in range(0, len(rows), AT_ONCE):
        batch = rows[begin : begin + AT_ONCE]
        ranges = [StepRange(i, 1, WINDOW + 1) for i in range(len(batch))]
        padded = assemble(batch, ranges, 0, torch.device("cpu"), torch.float32)
        log_prob, _, _ = batch_log_prob(module, model.observation_, padded, module.start(len(batch), None, None))
        total -= float(log_prob.double().sum())
    return total / (len(rows) * WINDOW)


def measure(name: str, steps: int, train: np.ndarray, valid: np.ndarray) -> dict[str, Any]:
    """One line of the table."""
    settings = CANDIDATES[name]
    model = Transformer(**{"max_steps": steps, **SHAPE, **settings})
    began = time.process_time()
    model.fit([train], validation=None)  # the whole budget, and no look at the part that is measured on
    seconds = time.process_time() - began
    said = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    figure = nats(model, valid)
    print(f"{name:28} {steps:6} {seconds:8.1f} s {1e3 * seconds / steps:7.1f} ms {figure:8.4f}", flush=True)
    return {"settings": f"{name}: {said}", "steps": steps, "cpu_seconds": round(seconds, 1), "val64": round(figure, 4)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    train, valid = codes(sys.argv[1])
    for name in sys.argv[3:] or list(CANDIDATES):
        row = pd.DataFrame([measure(name, int(sys.argv[2]), train, valid)])
        row.to_csv(RESULTS, mode="a", header=not RESULTS.exists(), index=False)

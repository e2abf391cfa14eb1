"""Which settings of a small network learn characters fastest? ``experiments/tuning.py NETWORK FILE STEPS [NAME ...]``.

NETWORK is ``elman`` or ``transformer``, a NAME one of its candidates. Trained on the first 81 % of the text, measured
on the next 9 %; the last 10 %, on which results are reported, is never read. Seconds are of the process, on one thread.

``elman``: measured with the state carried through. STEPS are those of the first candidate; each other has the number of
steps that fit into the same seconds, by what a step took next to one of the first (``TIMES``), in one process by turns.
A step reads 1024 characters. The table has lines of 1500 steps of the first, and of 2139, a quarter of what 122 idle
seconds hold; by then what symbols add was read from a table, which lets 1900 steps of those of 32 by 32 into the same
seconds. The last line is of half the seconds, 3800 steps. What else was tried, and was no better: an identity for the
recurrent matrix at first, as in Le et al. (2015), which helps at width 256 and fails at 384; the inputs before each
mixed in by a convolution, as the Transformer has it, which made every figure worse.

``transformer``: the shape is nanoGPT's for a CPU: 4 layers of 4 heads, 128 wide, 12 windows of 64 characters a batch.
``val64`` is the mean of -log p over disjoint windows of 64 whose first input is the character before.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from seqmodels import ElmanRNN, Transformer, data
from seqmodels.neural.batches import Row, StepRange, assemble
from seqmodels.neural.scoring import batch_log_prob
from seqmodels.training import Muon

RESULTS = Path("experiments/results/tuning")
Settings = dict[str, Any]


def codes(path: str) -> tuple[np.ndarray, np.ndarray]:
    """The part to train on and the part to measure on, as codes from 0."""
    text = str(data.text(path)[0])
    kept = text[: int(0.9 * len(text))]
    symbols = {symbol: i for i, symbol in enumerate(sorted(set(kept)))}
    found = np.array([symbols[symbol] for symbol in kept])
    return found[: int(0.9 * len(found))], found[int(0.9 * len(found)) :]


# -- Elman's network: each stage starts from what won in the one before ------------------------------------------------

STREAMS: Settings = {"batch_size": 16, "bptt": 64, "d_model": 256, "length": "given"}
TANH: Settings = {**STREAMS, "nonlinearity": "tanh", "dropout": 0.1, "lr": 3e-3}
SURE: Settings = {**TANH, "dropout": 0.0}
RELU: Settings = {**SURE, "nonlinearity": "relu"}
RELU6_384: Settings = {**RELU, "nonlinearity": "relu6", "d_model": 384, "lr": 2e-3}
SHORT: Settings = {**RELU6_384, "batch_size": 32, "bptt": 32}
ELMAN: dict[str, Settings] = {
    "classic": TANH,
    "no dropout": SURE,
    "no dropout, lr 5e-3": {**SURE, "lr": 5e-3},
    "no dropout, lr 8e-3": {**SURE, "lr": 8e-3},
    "relu": RELU,
    "relu, lr 2e-3": {**RELU, "lr": 2e-3},
    "relu, layer norm": {**RELU, "architecture__layer_norm": True},
    "relu, 2 layers": {**RELU, "n_layers": 2, "architecture__residual": True},
    "relu, 384 wide": {**RELU, "d_model": 384, "lr": 2e-3},
    "relu6, 384 wide": RELU6_384,
    "relu6, 384 wide, layer norm": {**RELU6_384, "architecture__layer_norm": True},
    "relu6, 512 wide": {**RELU6_384, "d_model": 512, "lr": 1.5e-3},
    "relu6, 384 wide, 32 by 32": SHORT,
    "relu6, 384 wide, 32 by 32, lr 3e-3": {**SHORT, "lr": 3e-3},
    "relu6, 384 wide, 32 by 32, dropout 0.05": {**SHORT, "dropout": 0.05},
}
TIMES = {"2 layers": 1.67, "384 wide": 1.36, "512 wide": 1.9, "32 by 32": 1.2}  # the last that is in a name counts


def elman(name: str, steps: int, train: np.ndarray, valid: np.ndarray) -> dict[str, Any]:
    """``train`` is the mean over the last steps, while weights moved."""
    own = round(steps / next((times for part, times in reversed(TIMES.items()) if part in name), 1.0))
    model = ElmanRNN().set_params(**{**ELMAN[name], "max_steps": own}).fit([train], validation=None)
    learnt = -float(model.history_["log_prob"].iloc[-1])
    return {"steps": own, "train": round(learnt, 4), "stream": round(-model.score([valid]), 4)}


# -- the Transformer, likewise -----------------------------------------------------------------------------------------

WINDOW, AT_ONCE = 64, 128
SHAPE: Settings = {"context": WINDOW, "batch_size": 12, "length": "given", "training__precision": "bfloat16"}
CLASSIC: Settings = {
    **{
        "activation": "gelu",
        "architecture__norm_type": "layer",
        "architecture__norm_affine": True,
        "architecture__bias": True,
        "architecture__zero_init": False,
    },
    **{"dropout": 0.1, "training__weight_decay": 0.05, "convolution_lags": 0, "positions": "sinusoidal"},
}
LEAN: Settings = {
    **{
        "activation": "relu2",
        "architecture__norm_type": "rms",
        "architecture__norm_affine": False,
        "architecture__bias": False,
        "architecture__zero_init": True,
    },
    **{"dropout": 0.0, "training__weight_decay": 0.1, "convolution_lags": 2, "positions": "sinusoidal"},
}
TURNED: Settings = {**LEAN, "positions": "rotary"}
FOUR: Settings = {**TURNED, "convolution_lags": 4}
FINAL: Settings = {**FOUR, "architecture__norm_type": "layer", "architecture__norm_affine": True}
TRANSFORMER: dict[str, Settings] = {
    "classic": CLASSIC,
    "lean": LEAN,
    "lean, Muon": {**LEAN, "training__optimizer": Muon()},
    "lean, lr 5e-3": {**LEAN, "lr": 5e-3},
    "turned": TURNED,
    "turned, layer norm": {**TURNED, "architecture__norm_type": "layer"},
    "turned, layer and qk norm": {**TURNED, "architecture__norm_type": "layer", "architecture__qk_norm": True},
    "turned, lr 2e-3": {**TURNED, "lr": 2e-3},
    "four": FOUR,
    "four, Muon": {**FOUR, "training__optimizer": Muon()},
    "eight": {**FOUR, "convolution_lags": 8},
    "final": FINAL,
    "final, batch of 8": {**FINAL, "batch_size": 8},
    "final, 3 layers 160 wide": {**FINAL, "n_layers": 3, "d_model": 160, "n_heads": 5},
}


def transformer(name: str, steps: int, train: np.ndarray, valid: np.ndarray) -> dict[str, Any]:
    """The whole budget, and no look at the part that is measured on."""
    began = time.process_time()
    model = Transformer(max_steps=steps).set_params(**{**SHAPE, **TRANSFORMER[name]}).fit([train], validation=None)
    seconds = time.process_time() - began
    return {"steps": steps, "cpu_seconds": round(seconds, 1), "val64": round(nats(model, valid), 4)}


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


if __name__ == "__main__":
    torch.set_num_threads(1)
    network, file, steps, *names = sys.argv[1:]
    candidates, measure = {"elman": (ELMAN, elman), "transformer": (TRANSFORMER, transformer)}[network]
    train, valid = codes(file)
    for name in names or candidates:
        said = ", ".join(f"{key}={value!r}" for key, value in candidates[name].items())
        row = {"settings": f"{name}: {said}", **measure(name, int(steps), train, valid)}
        print(row, flush=True)
        out = RESULTS / f"{network}.csv"
        pd.DataFrame([row]).to_csv(out, mode="a", header=not out.exists(), index=False)

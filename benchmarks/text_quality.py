"""Held-out scores of networks after equal seconds of training on one core: ``benchmarks/text_quality.py FILE --help``.

The last tenth is held out and scored whole, twice: ``val64`` in windows of 64 symbols that do not overlap, each with
the symbol before it for a first input (nanoGPT's figure, of all windows instead of 20 batches), and ``stream``, the
state carried through (of a Transformer: windows that overlap by half). How soon does a model know what the reference
knows in the end? Each is fitted anew in a 15th and in an 8th of the seconds (``--shares``), for its schedule is made
for the time it is given; ``reaches`` says whether its ``val64`` is then down to the reference's (``--target``, or that
of the reference run).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from process import ONE_THREAD
from results import write

from seqmodels import GRU, LSTM, ElmanRNN, Transformer
from seqmodels.model.fitting import checked_data
from seqmodels.neural.batches import Windowing
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.scoring import log_prob_steps

HERE = Path(__file__).resolve().parent
WINDOW = 64
NANOGPT = {"d_model": 128, "n_layers": 4, "n_heads": 4, "context": WINDOW, "batch_size": 12, "dropout": 0.0}
STREAM = {"bptt": 64, "batch_size": 16, "d_model": 256}
MODELS: dict[str, NeuralModel] = {
    "Transformer, nanoGPT's shape": Transformer(**NANOGPT),
    "Transformer": Transformer(),
    "LSTM": LSTM(**STREAM, dropout=0.15),
    "GRU": GRU(**STREAM),
    "Elman": ElmanRNN(bptt=32, batch_size=32, d_model=384),
}


def run(name: str, train: np.ndarray, test: np.ndarray, seconds: float) -> dict[str, object]:
    """Train one, score it twice."""
    model = MODELS[name].set_params(length="given", max_seconds=seconds)
    model.fit([train], validation=None)
    steps = int(model.history_["step"].iloc[-1])
    began = time.perf_counter()
    stream = model.score([test])
    took = time.perf_counter() - began
    line = {"model": name, "seconds": seconds, "val64": -_windows(model, test), "stream": -stream, "steps": steps}
    return {
        **line,
        "parameters": model.n_parameters_,
        "scored_per_second": round(len(test) / took),
        "settings": repr(model),
    }


def _windows(model: NeuralModel, test: np.ndarray) -> float:
    """Nats a symbol in windows side by side."""
    rows = model._rows(model._setting().examples(checked_data(model, [test], None)))
    (steps,) = log_prob_steps(model._evaluation_module(), model.observation_, rows, Windowing(WINDOW, WINDOW))
    return float(steps.mean())


def reference(python: Path, file: Path, seconds: float) -> dict[str, object]:
    """GPT-2 of ``transformers`` by nanoGPT's recipe for a CPU, in a process of its own."""
    command = [str(python), "-m", "peers.gpt2_quality", str(file.absolute()), str(seconds)]
    done = subprocess.run(command, cwd=HERE, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, check=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, **found}


def table(lines: list[dict[str, object]], target: float | None) -> pd.DataFrame:
    """``reaches``: whether ``val64`` is at most ``target``, nats; left out if there is none."""
    frame = pd.DataFrame(lines)
    return frame if target is None else frame.assign(reaches=frame["val64"] <= target)


def main() -> None:
    options = _options()
    os.sched_setaffinity(0, {options.core})
    torch.set_num_threads(1)
    text = options.file.read_text()
    codes = np.unique(list(text), return_inverse=True)[1]
    train, test = np.split(codes, [int(0.9 * len(codes))])
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    lines, target = [], options.target
    if options.transformers is not None:
        lines.append(reference(options.transformers, options.file, options.seconds))
        target = lines[0]["val64"] if target is None else target
    for name, share in product(options.models, [*options.shares, 1.0]):
        lines.append(run(name, train, test, options.seconds / share))
        frame = table(lines, target)
        print(frame.drop(columns="settings").to_string(index=False), "\n", flush=True)
        write(frame, options.out / "text_quality.csv", shlex.join(["python", *words]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=122.0)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument(
        "--transformers", type=Path, metavar="PYTHON", help="of an environment with peers/transformers.txt"
    )
    parser.add_argument(
        "--target", type=float, metavar="NATS", help="val64 to be reached; the reference's if not given"
    )
    parser.add_argument(
        "--shares",
        type=float,
        nargs="*",
        default=[15.0, 8.0],
        help="the seconds over these are tried too, each from the start",
    )
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Held-out scores of networks after equal seconds of training on one core: ``benchmarks/text_quality.py FILE --help``.

Symbols are characters, or with ``--words`` words and signs, of which the 9,999 most frequent of the training part are
kept. The last tenth is held out and scored whole, twice: ``val64`` in windows of 64 symbols that do not overlap, each
with the symbol before it for a first input (nanoGPT's figure, of all windows instead of 20 batches), and ``stream``,
the state carried through (of a Transformer: windows that overlap by half). Each is in nats a symbol.

Seconds are those that the processor worked for a process on one thread, so that other work on the machine counts
little. Peers are processes of their own: networks in torch's operations (``nanogpt``, ``lstm``), GPT-2 of
``transformers`` (``--transformers PYTHON``), and ``5-gram``, interpolated Kneser-Ney of this library, which takes the
seconds that it needs. Rows are added to the table as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from process import ONE_THREAD

from seqmodels import GRU, LSTM, ElmanRNN, NGram, Transformer
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.model.fitting import checked_data
from seqmodels.neural.batches import Windowing
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.scoring import log_prob_steps

HERE = Path(__file__).resolve().parent
WINDOW = 64
N_WORDS = 10_000
NANOGPT = {"d_model": 128, "n_layers": 4, "n_heads": 4, "context": WINDOW, "batch_size": 12, "dropout": 0.0}
MODELS: dict[str, NeuralModel] = {
    "LSTM": LSTM(),
    "GRU": GRU(),
    "Elman": ElmanRNN(),
    "Transformer": Transformer(),
    "Transformer, nanoGPT's shape": Transformer(**NANOGPT),
}
PEERS = {"nanogpt": "nanogpt_quality", "lstm": "lstm_quality", "gpt2": "gpt2_quality"}
Line = dict[str, object]


def symbols(text: str, words: bool) -> tuple[np.ndarray, np.ndarray]:
    """The first nine tenths and the last, as numbers; of words, 0 is any that is not among the most frequent."""
    units = re.findall(r"\w+|[^\w\s]|\n", text) if words else list(text)
    split = int(0.9 * len(units))
    kept = [unit for unit, _ in Counter(units[:split] if words else units).most_common(N_WORDS - 1 if words else None)]
    number = {unit: i + words for i, unit in enumerate(sorted(kept))}
    codes = np.array([number.get(unit, 0) for unit in units])
    return codes[:split], codes[split:]


def run(model: NeuralModel, train: np.ndarray, test: np.ndarray, seconds: float, seed: int) -> Line:
    """Train one, score it twice."""
    model = model.set_params(length="given", max_seconds=seconds, random_state=seed)
    settings, began = repr(model), time.process_time()
    model.fit([train])
    took = time.process_time() - began
    return {
        "seconds": round(took, 1),
        "steps": int(model.history_["step"].iloc[-1]),
        "val64": -_windows(model, test),
        "stream": -model.score([test]),
        "parameters": model.n_parameters_,
        "settings": settings,
    }


def _windows(model: NeuralModel, test: np.ndarray) -> float:
    """Nats a symbol in windows side by side."""
    rows = model._rows(model._setting().examples(checked_data(model, [test], None)))
    (steps,) = log_prob_steps(model._evaluation_module(), model.observation_, rows, Windowing(WINDOW, WINDOW))
    return float(steps.mean())


def five_gram(train: np.ndarray, test: np.ndarray) -> Line:
    """Counts, and the whole past that they read."""
    began = time.process_time()
    model = NGram(5, length="given").fit([train])
    took = time.process_time() - began
    return {"seconds": round(took, 1), "stream": -model.score([test]), "settings": repr(model)}


def peer(python: Path, name: str, train: np.ndarray, test: np.ndarray, seconds: float, seed: int) -> Line:
    """A network of ``peers``, in a process of its own."""
    with TemporaryDirectory() as folder:
        np.savez(Path(folder) / "symbols.npz", train=train, test=test)
        command = [str(python), "-m", f"peers.{PEERS[name]}", f"{folder}/symbols.npz", str(seconds), str(seed)]
        done = subprocess.run(command, cwd=HERE, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, check=True)
    found: Line = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, **found, "settings": f"see peers/{PEERS[name]}.py"}


def main() -> None:
    given = _options()
    os.sched_setaffinity(0, {given.core})
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # where training reads its clock
    train, test = symbols(given.file.read_text(), given.words)
    unit = "word" if given.words else "character"
    out = given.out / "text_quality.csv"
    for seed in given.seeds:
        for name in given.entrants:
            if name == "5-gram":
                found = five_gram(train, test)
            elif name in PEERS:
                python = given.transformers if name == "gpt2" else Path(sys.executable)
                found = peer(python, name, train, test, given.seconds, seed)
            else:
                found = run(MODELS[name], train, test, given.seconds, seed)
            line = {"text": given.file.name, "unit": unit, "n_train": len(train), "budget": given.seconds}
            row = pd.DataFrame([{**line, "model": name, "seed": seed, **found}]).reindex(columns=COLUMNS)
            print(row.drop(columns="settings").to_string(index=False, header=True), flush=True)
            stamped(row).to_csv(out, mode="a", header=not out.exists(), index=False, float_format="%.5g")


COLUMNS = [
    *["text", "unit", "n_train", "budget", "model", "seed", "val64", "stream"],
    *["seconds", "steps", "parameters", "settings"],
]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--words", action="store_true", help="symbols are words and signs")
    parser.add_argument("--seconds", type=float, default=122.0)
    entrants = ["nanogpt", "lstm", *MODELS]
    parser.add_argument("--entrants", nargs="+", choices=[*PEERS, "5-gram", *MODELS], default=entrants)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--transformers", type=Path, metavar="PYTHON", help="for gpt2: of an environment with peers/transformers.txt"
    )
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()
    if "gpt2" in given.entrants and given.transformers is None:
        parser.error("gpt2 is of the package transformers: pass --transformers PYTHON")
    return given


if __name__ == "__main__":
    main()

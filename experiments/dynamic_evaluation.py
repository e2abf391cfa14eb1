"""What does learning while reading gain on one long text, where, and at what cost?

``python experiments/dynamic_evaluation.py input.txt [FOLDER [MODEL:KIND ...]]``

The text is tinyshakespeare in nanoGPT's split: the last 111,540 characters are scored, as one text. An LSTM and a
Transformer of nanoGPT's shape are trained for as many steps as one quiet core takes in 122 seconds
(``benchmarks/results/text_quality.csv``), or loaded from FOLDER, where they are kept. ``fit`` holds the first 10,000
characters out of training; on these rates are chosen, by ``tune``. The counts are those of a 7-gram. Costs are seconds
of the processor's time of this process, with one thread; each adaptive model is scored next to the one inside it. KIND
is ``dynamic``, ``hidden`` or ``counts``; by default there are all.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from seqmodels import LSTM, Cached, Dynamic, NGram, SequenceModel, Transformer, data, load
from seqmodels.evaluation.provenance import stamped
from seqmodels.preparation import MAX_HELD_OUT

TEST = 111_540
PARTS = 10
OUT = Path("experiments/results/dynamic_evaluation")
MODELS: dict[str, Callable[[], SequenceModel]] = {
    "7-gram": lambda: NGram(7),
    "Transformer": lambda: Transformer(batch_size=12, dropout=0.0, n_heads=4, context=64, max_steps=3_136),
    "LSTM": lambda: LSTM(batch_size=16, dropout=0.15, max_steps=4_807),
}
CASES = ("7-gram:counts", *(f"{name}:{kind}" for name in ("Transformer", "LSTM") for kind in ("dynamic", "hidden")))


def fitted(name: str, train: str, folder: Path | None) -> SequenceModel:
    """Trained, or as it was kept in the folder."""
    file = None if folder is None else folder / f"{name}.model"
    if file is not None and file.exists():
        loaded: SequenceModel = load(file)
        return loaded
    model = MODELS[name]()
    model.fit([train[MAX_HELD_OUT:]], validation=[train[:MAX_HELD_OUT]])
    if file is not None:
        model.save(file)
    return model


def seconds_of(model: SequenceModel, text: str) -> tuple[np.ndarray, float]:
    """Log-probabilities of the steps, and the processor's seconds."""
    began = time.process_time()
    (steps,) = model.log_prob_steps([text])
    return steps, time.process_time() - began


def compared(name: str, kind: str, adaptive: SequenceModel, static: SequenceModel, test: str) -> dict[str, object]:
    """Score, gain and cost beside the model inside."""
    plain, static_seconds = seconds_of(static, test)
    steps, adaptive_seconds = seconds_of(adaptive, test)
    gain = steps - plain
    by_part = {f"gain_{i + 1}": part.mean() for i, part in enumerate(np.array_split(gain, PARTS))}
    return {
        "model": name,
        "adaptive": kind,
        "static_score": plain.sum() / len(test),
        "score": steps.sum() / len(test),
        "gain": gain.sum() / len(test),
        "times_the_cost": adaptive_seconds / static_seconds,
        "microseconds_a_step": 1e6 * adaptive_seconds / len(test),
        **by_part,
    }


def wrapped(kind: str, model: SequenceModel, rest: str, held_out: str) -> tuple[SequenceModel, str]:
    """The adaptive model, tuned, and what was chosen."""
    if kind == "dynamic":
        dynamic = Dynamic.from_fitted(model).tune([rest], validation=[held_out])
        return dynamic, f"segment={dynamic.segment_}, lr={dynamic.lr_:.3g}, decay={dynamic.decay_:.3g}"
    cached = Cached.from_fitted(model, cache=kind).tune([held_out])
    return cached, f"weight={cached.weight_:.3g}, theta={cached.theta_:.3g}, order={cached.order_}"


def main() -> None:
    torch.set_num_threads(1)
    text = str(data.text(sys.argv[1])[0])
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    train, test = text[:-TEST], text[-TEST:]
    held_out, rest = train[:MAX_HELD_OUT], train[MAX_HELD_OUT:]
    OUT.mkdir(parents=True, exist_ok=True)
    for case in sys.argv[3:] or CASES:
        name, kind = case.split(":")
        model = fitted(name, train, folder)
        began = time.process_time()
        adaptive, settings = wrapped(kind, model, rest, held_out)
        tuning = {"settings": settings, "tuning_seconds": time.process_time() - began}
        line = {**compared(name, kind, adaptive, model, test), **tuning}
        print(line, flush=True)
        file = OUT / f"{name.lower()}-{kind}.csv"
        stamped(pd.DataFrame([line])).to_csv(file, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()

"""What does dynamic evaluation gain on one long text, where, and at what cost?

``python experiments/dynamic_evaluation.py input.txt [FOLDER [MODEL ...]]``

The text is tinyshakespeare in nanoGPT's split: the last 111,540 characters are scored, as one text. An LSTM and a
Transformer of nanoGPT's shape are trained for as many steps as one quiet core takes in 122 seconds
(``benchmarks/results/text_quality.csv``), or loaded from FOLDER, where they are kept. ``fit`` holds the first 10,000
characters out of training; on these rates are chosen, by ``tune``. Costs are seconds of the processor's time of this
process, with one thread; each adaptive model is scored next to the one inside it. By default there are both.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from seqmodels import LSTM, Dynamic, SequenceModel, Transformer, data, load
from seqmodels.encodings.raw_data import MAX_HELD_OUT
from seqmodels.evaluation.comparison.provenance import stamped

TEST = 111_540
PARTS = 10
OUT = Path("experiments/results/dynamic_evaluation")
MODELS: dict[str, Callable[[], SequenceModel]] = {
    "Transformer": lambda: Transformer(batch_size=12, dropout=0.0, n_heads=4, context=64, max_steps=3_136),
    "LSTM": lambda: LSTM(batch_size=16, dropout=0.15, max_steps=4_807),
}


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


def compared(name: str, adaptive: SequenceModel, static: SequenceModel, test: str) -> dict[str, object]:
    """Score, gain and cost beside the model inside."""
    plain, static_seconds = seconds_of(static, test)
    steps, adaptive_seconds = seconds_of(adaptive, test)
    gain = steps - plain
    by_part = {f"gain_{i + 1}": part.mean() for i, part in enumerate(np.array_split(gain, PARTS))}
    return {
        "model": name,
        "adaptive": "dynamic",
        "static_score": plain.sum() / len(test),
        "score": steps.sum() / len(test),
        "gain": gain.sum() / len(test),
        "times_the_cost": adaptive_seconds / static_seconds,
        "microseconds_a_step": 1e6 * adaptive_seconds / len(test),
        **by_part,
    }


def main() -> None:
    torch.set_num_threads(1)
    text = str(data.text(sys.argv[1])[0])
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    train, test = text[:-TEST], text[-TEST:]
    held_out, rest = train[:MAX_HELD_OUT], train[MAX_HELD_OUT:]
    OUT.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[3:] or MODELS:
        model = fitted(name, train, folder)
        began = time.process_time()
        dynamic = Dynamic.from_fitted(model).tune([rest], validation=[held_out])
        settings = f"segment={dynamic.segment_}, lr={dynamic.lr_:.3g}, decay={dynamic.decay_:.3g}"
        tuning = {"settings": settings, "tuning_seconds": time.process_time() - began}
        line = {**compared(name, dynamic, model, test), **tuning}
        print(line, flush=True)
        file = OUT / f"{name.lower()}-dynamic.csv"
        stamped(pd.DataFrame([line])).to_csv(file, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()

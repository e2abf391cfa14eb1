"""Which settings suit an LSTM on spoken digits? ``python experiments/digit_networks_tuning.py FOLDER [NAME ...]``.

Nothing of the test part is used: of the training recordings, those with index 5 to 9 are held out. ``standard`` for
FOLDER tries settings on the simulated speech of the standard comparison instead, with its short budget. One line a
candidate, as soon as it is known. CPU seconds stretch where the core is shared, so that steps are the better unit.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from seqmodels import LSTM, GaussianMixture, Sequences, data
from seqmodels.evaluation.runs.suites import speech_tasks

OUT = Path("experiments/results/digits/tuning.csv")
FULL = {m: GaussianMixture(m, "full") for m in (1, 2, 4, 8)}

plain = partial(LSTM, max_steps=1000)
mean = partial(plain, averaging=0.2)
long = partial(mean, max_steps=2400, dropout=0.3, observation=FULL[2])
DIGITS: dict[str, Callable[[], LSTM]] = {
    "default": plain,
    "default, 3500 steps": partial(plain, max_steps=3500),
    "averaging": mean,
    "averaging, width 128": partial(mean, d_model=128),
    "averaging, dropout 0.3": partial(mean, dropout=0.3),
    "averaging, 2 components": partial(mean, observation=FULL[2]),
    "averaging, dropout 0.3, 1 component": partial(mean, dropout=0.3, observation=FULL[1]),
    "averaging, dropout 0.3, 2 components, recurrent dropout 0.2": partial(
        mean, dropout=0.3, observation=FULL[2], recurrent_dropout=0.2
    ),
    "2400 steps, averaging, dropout 0.3, 2 components": long,
    "2400 steps, averaging, dropout 0.3, 2 components, seed 1": partial(long, random_state=1),
}
short = partial(LSTM, d_model=128, max_steps=400)
STANDARD: dict[str, Callable[[], LSTM]] = {
    "default": short,
    "default, seed 1": partial(short, random_state=1),
    "float32": partial(short, training_precision="float32"),
    "float32, seed 1": partial(short, training_precision="float32", random_state=1),
    "averaging": partial(short, averaging=0.2),
    "averaging, 2 components": partial(short, averaging=0.2, observation=FULL[2]),
    "averaging, dropout 0.3, 2 components": partial(short, averaging=0.2, dropout=0.3, observation=FULL[2]),
    "8 components": partial(short, observation=FULL[8]),
}


def folds(folder: str) -> tuple[Sequences, Sequences]:
    """To train on, and to choose by."""
    if folder == "standard":
        task = speech_tasks()[0]
        return task.train[0], task.test[0]
    frames = data.audio(folder)
    frames = Sequences(frames.items, metadata=frames.metadata.drop(columns="cluster"))
    index = frames.metadata["index"].astype(int).to_numpy()
    return frames.take(index >= 10), frames.take((index >= 5) & (index < 10))


def tried(model: LSTM, train: Sequences, held_out: Sequences) -> dict[str, float]:
    """Figures in nats a frame."""
    began = time.process_time()
    model.fit(train)
    return {
        "steps": int(model.history_["step"].iloc[-1]),
        "cpu_seconds": round(time.process_time() - began, 1),
        "validation": round(model.score(held_out), 4),
        "train": round(model.score(train.take(np.random.default_rng(0).random(len(train)) < 0.15)), 4),
        "n_parameters": model.n_parameters_,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    train, held_out = folds(sys.argv[1])
    candidates = STANDARD if sys.argv[1] == "standard" else DIGITS
    where = {"data": "standard" if candidates is STANDARD else "digits"}
    for name in sys.argv[2:] or candidates:
        line = {**where, "candidate": name, **tried(candidates[name](), train, held_out)}
        pd.DataFrame([line]).to_csv(OUT, mode="a", header=not OUT.exists(), index=False)
        print(line, flush=True)

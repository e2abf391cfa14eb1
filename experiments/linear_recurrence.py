"""Does a recurrence without products of the state pay? ``python experiments/linear_recurrence.py TEXT CHORALES [...]``.

``MinGRUCell`` in two layers beside the LSTM and the Transformer, each as it is by default but for what is said here, in
equal seconds of processor time on one thread: a few steps tell what one takes, and that how many fit. Without
dropout but on the chorales: other data are read about once.

``text``: tinyshakespeare, the file TEXT, in nanoGPT's split: fitted to the first 90 % and scored on the rest, the last
111,540 characters, as one text. Settings (two layers; one input before each, not none or three) were chosen on the last
tenth of the first part.
``chorales``: the JSON of the JSB chorales in quarter notes, CHORALES, as ``chorales.py`` reads it, with its density,
dropout and shifts to all keys; the weights are those that do best on the validation part. Nats a frame.
``memory``: one of eight symbols, 200 random ones of eight others, a mark, and the first symbol again: nats of that last
symbol alone, in 100 new sequences; log 8 = 2.08 is a guess. All back-propagate through the whole sequence, and the
Transformer sees all of it.
``recall``: 4 pairs of a key and a value, each of 8, and then each key again with its value, in another order: nats of
these values; log 8 is a guess.

The table under ``results/`` has ``text``, ``chorales`` and ``recall`` in 20 seconds and ``memory`` in 8, run
beside other work on two cores; its seconds are those that a fit took.
"""

import argparse
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from experiments.chorales import in_all_keys, piano_rolls
from seqmodels import LSTM, Chords, Sequences, Symbols, Transformer, data
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.neural import MinGRUCell, Recurrent, RecurrentArchitecture
from seqmodels.neural.model import NeuralModel
from seqmodels.training import GradientTraining

RESULTS = Path("experiments/results/linear_recurrence")
PROBES = 3
PROBE_STEPS = 4, 16  # of which the difference is timed
Make = Callable[..., NeuralModel]


def mingru(**options: Any) -> Recurrent:
    architecture = RecurrentArchitecture(residual=True, layer_norm=True)
    return Recurrent(**{"cell": MinGRUCell, "n_layers": 2, "architecture": architecture} | options)


MODELS: dict[str, Make] = {"mingru": mingru, "lstm": LSTM, "transformer": Transformer}


def steps_within(budget: float, makes: dict[str, Make], X: Any) -> dict[str, int]:
    """How many steps of each fit into so many seconds of processor time: by the median of probes that take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in makes}
    for _ in range(PROBES):
        for name, make in makes.items():
            ends = []
            for steps in PROBE_STEPS:
                began = time.process_time()
                make(max_steps=steps).fit(X, validation=None)
                ends.append(time.process_time() - began)
            seconds[name].append((ends[1] - ends[0]) / (PROBE_STEPS[1] - PROBE_STEPS[0]))
    return {name: max(1, round(budget / float(np.median(each)))) for name, each in seconds.items()}


def fitted(model: NeuralModel, X: Any, validation: Any = None) -> tuple[NeuralModel, dict[str, Any]]:
    """The model, trained, and what it took."""
    began = time.process_time()
    model.fit(X, validation=validation)
    took = {"steps": int(model.history_["step"].iloc[-1]), "cpu_seconds": round(time.process_time() - began, 1)}
    return model, took | {"n_parameters": model.n_parameters_}


class Task(ABC):
    """Data, and what is scored. To add one, define ``train``, ``validation``, ``options`` and ``score``."""

    train: Any
    validation: Any = None

    @abstractmethod
    def options(self, name: str) -> dict[str, Any]:
        """Of the model of this name, besides seed and steps."""

    @abstractmethod
    def score(self, model: NeuralModel) -> float:
        """Nats, of what was not trained on."""


class Text(Task):
    """One book, the end of which is scored."""

    def __init__(self, path: str) -> None:
        book = str(data.text(path)[0])
        n_train = int(0.9 * len(book))
        self.train, self.test = [book[:n_train]], [book[n_train:]]

    def options(self, name: str) -> dict[str, Any]:
        return {"dropout": 0.0, "length": "given"}

    def score(self, model: NeuralModel) -> float:
        return model.score(self.test)


class Chorales(Task):
    """Piano rolls in their three parts."""

    def __init__(self, path: str) -> None:
        parts = piano_rolls(path)
        self.train, self.validation, self.test = in_all_keys(parts["train"]), parts["valid"], parts["test"]

    def options(self, name: str) -> dict[str, Any]:
        return {
            "dropout": 0.3,
            "batch_size": 16,
            "training": GradientTraining(patience=20),
            "observation": Chords(n_hidden=256, dropout=0.2),
        }

    def score(self, model: NeuralModel) -> float:
        return model.score(self.test)


class Made(Task):
    """Symbols drawn by a rule, of which ``answers`` are scored."""

    def __init__(self, draw: Callable[[int, int], list[np.ndarray]], answers: slice) -> None:
        self.train, self.test, self.answers = Sequences(draw(6_000, 1)), draw(100, 0), answers

    def options(self, name: str) -> dict[str, Any]:
        span = {"context" if name == "transformer" else "bptt": len(self.train[0])}
        return {"d_model": 128, "dropout": 0.0, "encoding": Symbols(17), "length": "given"} | span

    def score(self, model: NeuralModel) -> float:
        return float(np.stack(model.log_prob_steps(self.test))[:, self.answers].mean())


def memory(n: int, seed: int, n_between: int = 200) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 8, (n, 1))
    return list(np.hstack([first, rng.integers(8, 16, (n, n_between)), np.full((n, 1), 16), first]))


def recall(n: int, seed: int, n_pairs: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    keys = rng.permuted(np.tile(np.arange(8), (n, 1)), axis=1)[:, :n_pairs]
    values = rng.integers(8, 16, (n, n_pairs))
    order = rng.permuted(np.tile(np.arange(n_pairs), (n, 1)), axis=1)
    pairs = np.stack([keys, values], 2)  # (n, n_pairs, 2)
    again = np.take_along_axis(pairs, order[:, :, None], 1)
    return list(np.hstack([pairs.reshape(n, -1), again.reshape(n, -1)]))


TASKS: dict[str, Callable[[str, str], Task]] = {
    "text": lambda text, chorales: Text(text),
    "chorales": lambda text, chorales: Chorales(chorales),
    "memory": lambda text, chorales: Made(memory, slice(-1, None)),
    "recall": lambda text, chorales: Made(recall, slice(-7, None, 2)),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("chorales")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of processor time for each fit")
    parser.add_argument("--output", type=Path, default=RESULTS / "linear_recurrence.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for name_of_task in arguments.tasks:
        task = TASKS[name_of_task](arguments.text, arguments.chorales)
        makes = {name: partial(MODELS[name], **task.options(name)) for name in arguments.models}
        n_steps = steps_within(arguments.seconds, makes, task.train)
        for seed in range(arguments.seeds):
            for name, make in makes.items():
                model, took = fitted(make(max_steps=n_steps[name], random_state=seed), task.train, task.validation)
                row = {"task": name_of_task, "model": name, "seed": seed, "score": round(task.score(model), 4)}
                rows.append(row | took)
                print(rows[-1], flush=True)
                stamped(pd.DataFrame(rows)).to_csv(arguments.output, index=False)  # what is stopped keeps its rows

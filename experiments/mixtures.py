"""What does a mixture of models gain over its members? ``python -m experiments.mixtures PART PATH``.

``speech``: frames of 13 cepstra of the spoken digits in the folder PATH, a fifth of the utterances held out.
``chorales``: the piano rolls of ``chorales.py``.
``encodings``: the last 111,540 characters of the text PATH, after the first ones, by an LSTM of characters and a
Transformer of byte pairs, whose figures, and those of mixtures, are bounds.

Weights are learned on a part of the training data that members are not fitted to. Seconds are those of one thread's
processor, of fitting and of scoring the test part; a mixture's are its members', its weights' and its scoring together.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from experiments.chorales import SHIFTS, in_all_keys, piano_rolls
from experiments.transposed import Transposed
from seqmodels import (
    BPE,
    GRU,
    HMM,
    LSTM,
    AutoregressiveGaussian,
    Bernoulli,
    Characters,
    Chords,
    Mixture,
    SequenceModel,
    Sequences,
    Transformer,
    data,
)
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.training import GradientTraining
from seqmodels.wrappers.mixture.model import WeightsName

RESULTS = Path("experiments/results/mixtures")
WEIGHTS: tuple[WeightsName, ...] = ("static", "posterior", "switching", "gated")
HELD_OUT, FOR_WEIGHTS = 111_540, 50_000  # characters of the text


@dataclass
class Table:
    """Rows of models and mixtures on one test part."""

    test: Sequences
    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def fit(self, name: str, fit: Callable[[], SequenceModel]) -> SequenceModel:
        """Fit and score a member."""
        began = time.process_time()
        model = fit()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return model

    def score(self, name: str, model: SequenceModel, seconds: float, weights: str = "") -> None:
        """One more row."""
        began = time.process_time()
        score = model.score(self.test)
        total = seconds + time.process_time() - began
        row = {"model": name, "score": round(score, 4), "memory": model.memory_, "cpu_seconds": round(total, 1)}
        self.rows.append({**row, "n_parameters": model.n_parameters_, "weights": weights})
        print(self.rows[-1], flush=True)

    def mixtures(
        self, members: dict[str, SequenceModel], held_out: Any, kinds: tuple[WeightsName, ...] = WEIGHTS
    ) -> None:
        """Each kind of weights, learned on ``held_out``."""
        for weights in kinds:
            began = time.process_time()
            mixture = Mixture.from_fitted([*members.values()], held_out, weights=weights)
            prior = getattr(mixture.weights_, "prior", None)
            shares = [*members] if prior is None else [f"{n} {w:.3f}" for n, w in zip(members, prior, strict=True)]
            seconds = sum(self.seconds[name] for name in members) + time.process_time() - began
            self.score(f"{weights} mixture of {len(members)}", mixture, seconds, "; ".join(shares))

    def write(self, name: str) -> None:
        """``NAME.csv``."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        stamped(pd.DataFrame(self.rows)).to_csv(RESULTS / f"{name}.csv", index=False)


def speech(path: Path, steps: int) -> None:
    """Autoregressive HMMs of two orders, and LSTMs of three seeds, of full components, from a linear prediction on.

    Mixtures of one of each family, and of all five. The orders were chosen on the part that weights are learned on.
    """
    recordings = data.audio(path)  # of few speakers, in all parts, so that utterances are the units
    recordings = recordings.with_metadata(recordings.metadata.drop(columns="cluster"))
    train, test = recordings.split(0.2, by=None, random_state=0)
    rest, held_out = train.split(0.1, by=None, random_state=1)
    table = Table(test)
    lstm = LSTM(d_model=128, batch_size=16, training=GradientTraining(linear_start=True), max_steps=steps)
    models: dict[str, SequenceModel] = {
        **{f"ar-hmm, order {p}": HMM(48, observation=AutoregressiveGaussian(p), max_iter=20, n_init=1) for p in (1, 2)},
        **{f"lstm, seed {seed}": lstm.clone().set_params(random_state=seed) for seed in range(3)},
    }
    encoding = models["ar-hmm, order 1"].learned_encoding(rest)  # of one mean and scale for all
    members = {
        name: table.fit(name, lambda model=model: model.fit_encoded(encoding, rest)) for name, model in models.items()
    }
    for name, model in members.items():
        table.score(name, model, table.seconds[name])
    for names in (["ar-hmm, order 1", "lstm, seed 0"], ["ar-hmm, order 2", "lstm, seed 0"], [*members]):
        chosen = {name: members[name] for name in names}
        table.mixtures(chosen, held_out)
    table.write("speech")


def chorales(path: Path, steps: int) -> None:
    """Networks that name the notes of a chord in either order, and an HMM of independent keys; networks in all keys.

    Networks are trained in all keys, and keep the weights that do best on the validation part, on which the mixture's
    are learned too. In the last mixture each network reads every chorale in all twelve keys.
    """
    parts = piano_rolls(str(path))
    shifted = in_all_keys(parts["train"])
    table = Table(parts["test"])
    options: dict[str, Any] = {
        "d_model": 256,
        "dropout": 0.3,
        "batch_size": 16,
        "training": GradientTraining(patience=20),
        "max_steps": steps,
    }
    down, up = Chords(n_hidden=256, dropout=0.2), Chords(256, "ascending", dropout=0.2)
    networks: dict[str, SequenceModel] = {
        "lstm": LSTM(observation=down, **options),
        "lstm, ascending": LSTM(observation=up, **options),
        "gru": GRU(observation=down, **options),
    }
    fits: dict[str, Callable[[], SequenceModel]] = {
        name: lambda model=model: model.fit(shifted, validation=parts["valid"]) for name, model in networks.items()
    }
    hmm = HMM(256, observation=Bernoulli(pseudocount=2.5), pseudocount=0.05, max_iter=40, n_init=1)
    fits["hmm"] = lambda: hmm.fit(parts["train"])
    members = {name: table.fit(name, fit) for name, fit in fits.items()}
    for name, model in members.items():
        table.score(name, model, table.seconds[name])
    table.mixtures(members, parts["valid"])
    readings: dict[str, SequenceModel] = {}
    for name in networks:
        for shift in SHIFTS:
            readings[f"{name} {shift:+d}"] = Transposed.from_fitted(members[name], shift=shift)
            table.seconds[f"{name} {shift:+d}"] = table.seconds[name] / len(SHIFTS)
    table.mixtures(readings, parts["valid"], ("static",))
    table.write("chorales")


def encodings(path: Path, steps: int) -> None:
    """Models that read a text by encodings of their own."""
    characters = str(data.text(path)[0])
    train, test = characters[:-HELD_OUT], characters[-HELD_OUT:]
    held_out, rest = train[:FOR_WEIGHTS], train[FOR_WEIGHTS:]
    table = Table(Sequences([test]))
    models: dict[str, SequenceModel] = {
        "LSTM of characters": LSTM(d_model=128, max_steps=steps, encoding=Characters(), length="given"),
        "Transformer of byte pairs": Transformer(
            d_model=128, n_layers=2, max_steps=steps + 50, encoding=BPE(1024), length="given"
        ),
    }
    members = {name: table.fit(name, lambda model=model: model.fit([rest])) for name, model in models.items()}
    for name, model in members.items():
        table.score(name, model, table.seconds[name])
    table.mixtures(members, [held_out], ("static", "posterior", "switching"))
    table.write("encodings")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("speech", "chorales", "encodings"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--steps", type=int, help="of training the networks")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"speech": (speech, 800), "chorales": (chorales, 3_000), "encodings": (encodings, 250)}
    measure, steps = parts[arguments.part]
    measure(arguments.path, arguments.steps or steps)

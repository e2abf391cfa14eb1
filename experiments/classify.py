"""Which density classifies sequences best? ``python experiments/classify.py FOLDER ... [--steps N]``.

Bayes' rule over one model a label.

A folder is known by what it holds: ``.wav`` files named ``digit_speaker_index`` (index 0 to 4 held out, the official
split), ``*_TRAIN.ts`` and ``*_TEST.ts`` (Japanese vowels, by speaker), ``pendigits-train`` and ``pendigits-test`` (pen
tracks in the UNIPEN format). Of each, accuracy on the held-out part, and the log-loss of the probabilities with and
without the temperature that the training part tells.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from seqmodels import (
    HMM,
    LSTM,
    Bernoulli,
    Columns,
    GaussianMixture,
    GenerativeClassifier,
    SequenceModel,
    Sequences,
    Transformer,
    data,
)
from seqmodels.data import deltas
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/classify")
Parts = tuple[Sequences, Sequences]


def digits(folder: Path) -> Parts:
    """13 MFCC a frame, their slopes and the slopes of those: ``(T, 39)``."""
    cepstra = data.audio(folder)
    frames = [np.concatenate([x, deltas(x), deltas(deltas(x))], axis=1) for x in map(np.asarray, cepstra)]
    held_out = cepstra.metadata["index"].to_numpy() < 5
    spoken = Sequences(frames, labels=cepstra.labels)
    return spoken.take(~held_out), spoken.take(held_out)


def vowels(folder: Path) -> Parts:
    """12 cepstra of linear prediction a frame: ``(T, 12)``; who spoke is the label."""
    train, test = (_utterances(next(folder.glob(f"*_{part}.ts")).read_text()) for part in ("TRAIN", "TEST"))
    return train, test


def _utterances(text: str) -> Sequences:
    lines = [line.split(":") for line in text.partition("@data")[2].split()]
    frames = [np.array([list(map(float, column.split(","))) for column in columns]).T for *columns, _ in lines]
    return Sequences(frames, labels=[line[-1] for line in lines])


def pen(folder: Path) -> Parts:
    """Features of a pen track ``(T, 5)``: position, movement, and whether a new stroke begins.

    Positions are relative to the digit's middle, in units of its longer side.
    """
    train, test = (_tracks((folder / f"pendigits-{part}").read_text()) for part in ("train", "test"))
    return train, test


def _tracks(text: str) -> Sequences:
    segments = [segment.splitlines() for segment in text.split(".SEGMENT DIGIT")[1:]]
    return Sequences([_track(lines) for lines in segments], labels=[lines[0].split('"')[1] for lines in segments])


def _track(lines: list[str]) -> np.ndarray:
    points = np.array(list(_points(lines)))  # (T, 3): place, and the stroke's number
    place = points[:, :2] - (points[:, :2].max(0) + points[:, :2].min(0)) / 2
    place = place / np.ptp(place, axis=0).max()
    lifted = np.diff(points[:, 2:], axis=0, prepend=0) > 0
    return np.concatenate([place, np.diff(place, axis=0, prepend=place[:1]), lifted], axis=1)


def _points(lines: list[str]) -> Iterator[tuple[float, float, float]]:
    stroke = -1
    for line in lines[1:]:  # the first names the digit
        stroke += line.startswith(".PEN_DOWN")
        if line.strip() and line.split()[0].lstrip("-").isdigit():
            x, y = map(float, line.split())
            yield x, y, float(stroke)


def hmm(n_states: int, *, lifts: bool = False) -> HMM:
    """A left-to-right HMM, whose variance floor suits features that hardly vary within a label.

    With ``lifts`` the last feature is a bit: whether the pen was lifted.
    """
    mixture = GaussianMixture(4, min_covariance=0.01)
    observation = Columns([(mixture, 4), (Bernoulli(1.0, 0.02), 1)]) if lifts else mixture
    return HMM(n_states, observation=observation, topology="left-to-right", max_iter=15)


def networks(steps: int) -> dict[str, SequenceModel]:
    """Few sequences a label: one component, of independent features, and much dropout."""
    observation, common = GaussianMixture(1, "diag", min_covariance=0.01), {"d_model": 64, "dropout": 0.3}
    return {
        "lstm": LSTM(observation=observation, max_steps=steps, **common),
        "transformer": Transformer(n_layers=2, observation=observation, max_steps=steps, **common),
    }


READERS: dict[str, tuple[str, Callable[[Path], Parts]]] = {
    "fsdd": ("*.wav", digits),
    "japanese_vowels": ("*_TRAIN.ts", vowels),
    "pendigits": ("pendigits-train", pen),
}


def candidates(name: str, steps: int) -> dict[str, SequenceModel]:
    """Ten states of four components for the digits; three states suit utterances of 15 frames."""
    if name == "fsdd":
        return {"hmm-10x4": hmm(10), **networks(steps)}
    if name == "japanese_vowels":
        return {"hmm-3x4": hmm(3), **networks(steps)}
    return {"hmm-8x4": hmm(8, lifts=True)}


def tried(name: str, model: SequenceModel, train: Sequences, test: Sequences) -> dict[str, object]:
    """One row of the table."""
    classifier = GenerativeClassifier(model).fit(train)
    right = np.searchsorted(classifier.classes_, test.labels)
    calibrated = classifier.predict_log_proba(test)
    sure = classifier.temperature_ * calibrated
    sure = sure - np.logaddexp.reduce(sure, axis=1)[:, None]
    own = np.arange(len(test)), right
    row = {
        "model": name,
        "accuracy": round(float((calibrated.argmax(axis=1) == right).mean()), 4),
        "errors": int((calibrated.argmax(axis=1) != right).sum()),
        "log_loss": round(-float(calibrated[own].mean()), 4),
        "log_loss_untempered": round(-float(sure[own].mean()), 4),
        "temperature": round(classifier.temperature_, 2),
        "n_parameters": sum(each.n_parameters_ for each in classifier.models_),
        "fit_seconds": round(classifier.fit_seconds_, 1),
    }
    print(row, flush=True)
    return row


def run(folder: Path, steps: int) -> None:
    """Read, fit, write ``NAME.csv``."""
    name, read = next((name, read) for name, (pattern, read) in READERS.items() if any(folder.glob(pattern)))
    train, test = read(folder)
    print(f"{name}: {train}, {test}", flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    rows = []
    for key, model in candidates(name, steps).items():
        rows.append(tried(key, model, train, test))
        frame = stamped(pd.DataFrame(rows).assign(train=len(train), test=len(test)))
        frame.to_csv(OUT / f"{name}.csv", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, default=300, help="of training, for each label's network")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for folder in arguments.folders:
        run(folder, arguments.steps)

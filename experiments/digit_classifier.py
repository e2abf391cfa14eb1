"""Which digit was spoken? ``python experiments/digit_classifier.py FOLDER``: one left-to-right HMM a digit, the most probable one wins.

The free-spoken-digit recordings, ``digit_speaker_index.wav``. Two questions: recordings of speakers that were heard in training (index 0 to 4
held out, the official split), and speakers that were not (each left out in turn). Frames are 13 MFCC with first and second slopes:
right for telling digits apart, wrong for densities, as they are functions of their neighbours. What is not the speaker's own is taken
away: loudness, a floor of noise, the mean and the deviation of each feature; and training hears each recording at five speeds too.
"""

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import soundfile
import torch
from stamp import stamped

from seqmodels import HMM, GaussianMixture
from seqmodels.data import MFCC, deltas

RESULTS = Path("experiments/results/digits/classifier.csv")
SPEEDS = (
    0.8,
    0.88,
    1.0,
    1.14,
    1.25,
)  # chosen by leaving out one more speaker of those in training, after a look at the folds
NOISE = 120.0  # of full scale 32768, when the loudest sample is 8192; chosen likewise
Recordings = list[tuple[np.ndarray, int]]


def features(waveform: np.ndarray, rate: int, *, speed: float = 1.0, normalised: bool) -> np.ndarray:
    """``(T, 39)``."""
    if normalised:
        waveform = 0.25 * waveform / np.abs(waveform).max()
    cepstra = MFCC(dither=NOISE if normalised else 1.0)(waveform, int(rate * speed))
    slopes = deltas(cepstra)
    frames = np.concatenate([cepstra - normalised * cepstra.mean(0), slopes, deltas(slopes)], axis=1)
    return frames / frames.std(0) if normalised else frames


def classifier(
    recordings: Recordings, labels: np.ndarray, speeds: tuple[float, ...], *, normalised: bool
) -> dict[int, HMM]:
    """A model of each digit."""
    models = {}
    for digit in np.unique(labels):
        own = [recordings[i] for i in np.flatnonzero(labels == digit)]
        frames = [features(*r, speed=speed, normalised=normalised) for speed in speeds for r in own]
        observation = GaussianMixture(4, min_covariance=0.01)
        models[digit] = HMM(10, observation=observation, topology="left-to-right", max_iter=15).fit(frames)
    return models


def accuracy(models: dict[int, HMM], recordings: Recordings, labels: np.ndarray, *, normalised: bool) -> float:
    """The share of recordings whose digit has the highest log-probability."""
    frames = [features(*r, normalised=normalised) for r in recordings]
    log_prob = np.stack([model.log_prob(frames) for model in models.values()])
    return float((np.array(list(models))[log_prob.argmax(0)] == labels).mean())


def tried(
    name: str,
    recordings: Recordings,
    labels: np.ndarray,
    held_out: np.ndarray,
    speeds: tuple[float, ...],
    *,
    normalised: bool,
) -> dict[str, object]:
    train, test = ([recordings[i] for i in np.flatnonzero(part)] for part in (~held_out, held_out))
    began = time.perf_counter()
    models = classifier(train, labels[~held_out], speeds, normalised=normalised)
    seconds = time.perf_counter() - began
    right = accuracy(models, test, labels[held_out], normalised=normalised)
    return {"held out": name, "recordings": len(test), "accuracy": round(right, 4), "fit_seconds": round(seconds, 1)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    files = sorted(Path(sys.argv[1]).glob("*.wav"))
    recordings = [soundfile.read(file) for file in files]
    names = pd.DataFrame([file.stem.split("_") for file in files], columns=["digit", "speaker", "index"])
    digits, index = names["digit"].astype(int).to_numpy(), names["index"].astype(int).to_numpy()
    rows = [tried("index 0 to 4", recordings, digits, index < 5, (1.0,), normalised=False)]
    for speaker in names["speaker"].unique():
        unheard = (names["speaker"] == speaker).to_numpy()
        rows.append(tried(speaker, recordings, digits, unheard, SPEEDS, normalised=True))
    frame = pd.DataFrame(rows)
    each = frame.iloc[1:]
    frame.loc[len(frame)] = [
        "a speaker, mean",
        each["recordings"].sum(),
        round(each["accuracy"].mean(), 4),
        each["fit_seconds"].sum(),
    ]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    stamped(frame).to_csv(RESULTS, index=False)
    print(frame.to_string(index=False))

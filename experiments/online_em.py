"""HMMs that follow what they read, by online EM: ``python experiments/online_em.py {weather FILE | speech FOLDER}``.

``weather``: hourly log of PM2.5 (with gaps), dew point, temperature and pressure at Beijing, 2010 to 2014, dithered:
the last fifth of the time, as one sequence, after the first four. ``speech``: 13 cepstra of the free-spoken-digit
recordings, each of the four speakers left out in turn, ten recordings of a speaker one after the other as a sequence.

Of each observation the fitted HMM alone, and with ``OnlineEM`` around it, whose ``prior_steps`` and ``decay`` are
chosen within the training part; nothing is chosen by the test part. Seconds are of the processor.
"""

import argparse
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
import torch

from seqmodels import HMM, AutoregressiveGaussian, GaussianMixture, OnlineEM, Sequences, data
from seqmodels.evaluation.comparison.provenance import stamped

RESULTS = Path("experiments/results/online_em")
TOGETHER = 10  # recordings in a sequence
MODELS = {
    "weather": {
        "1 state": HMM(1, observation=GaussianMixture(1, "full"), n_init=1, max_iter=20),
        "hmm, 16 states": HMM(16, observation=GaussianMixture(1, "full"), n_init=1, max_iter=20),
        "autoregressive hmm, 1 state": HMM(1, observation=AutoregressiveGaussian(), n_init=1, max_iter=20),
        "autoregressive hmm, 8 states": HMM(8, observation=AutoregressiveGaussian(), n_init=1, max_iter=20),
    },
    "speech": {
        "hmm, 32 states": HMM(32, observation=GaussianMixture(1, "full"), n_init=1, max_iter=20),
        "autoregressive hmm, 16 states": HMM(16, observation=AutoregressiveGaussian(), n_init=1, max_iter=30),
    },
}
SEGMENT = {"weather": 24, "speech": 50}


def weather(path: Path) -> Iterator[tuple[str, Sequences, Sequences]]:
    """One part: the name of the test part, training and test."""
    table = pd.read_csv(path)
    # A reading of zero is below what the instrument tells; half a unit, so that there is a logarithm.
    table["log_pm"] = np.log(table["pm2.5"].clip(lower=0.5))
    frames = table[["log_pm", "DEWP", "TEMP", "PRES"]].to_numpy(float)
    at = len(frames) * 4 // 5
    train = Sequences([frames[:at]]).dithered()
    yield "last fifth", train, Sequences([frames[at:]]).dithered(like=train)


def speech(folder: Path, few: int) -> Iterator[tuple[str, Sequences, Sequences]]:
    """A part for each speaker."""
    recordings = data.audio(folder)
    speaker, index = (recordings.metadata[name].to_numpy() for name in ("speaker", "index"))
    order = np.random.default_rng(0).permutation(np.flatnonzero(index < few))
    for unheard in sorted(set(speaker)):
        others = [s for s in sorted(set(speaker)) if s != unheard]
        by_speaker = {s: joined(recordings, order[speaker[order] == s]) for s in others}
        items, clusters = zip(*((x, s) for s, each in by_speaker.items() for x in each), strict=True)
        train = Sequences(list(items), clusters=list(clusters))
        yield unheard, train, Sequences(joined(recordings, order[speaker[order] == unheard]))


def joined(recordings: Sequences, order: np.ndarray) -> list[np.ndarray]:
    """``TOGETHER`` recordings at a time, one after the other."""
    parts = [order[i : i + TOGETHER] for i in range(0, len(order), TOGETHER)]
    return [np.concatenate([np.asarray(recordings.items[i]) for i in part]) for part in parts]


def measured(model: HMM, segment: int, train: Sequences, test: Sequences) -> dict[str, float]:
    """Scores of the HMM with and without online EM, and where in the sequences it gains."""
    began = process_time()
    online = OnlineEM(model, segment=segment).fit(train)
    fitted = process_time()
    static, adaptive = online.model_.log_prob_steps(test), online.log_prob_steps(test)
    n = sum(map(len, static))
    gains = [a - s for a, s in zip(adaptive, static, strict=True)]
    tenths = [np.array_split(gain, 10) for gain in gains]
    return {
        "static": float(sum(map(np.sum, static))) / n,
        "online": float(sum(map(np.sum, adaptive))) / n,
        "gain_first_tenth": float(np.concatenate([t[0] for t in tenths]).mean()),
        "gain_last_tenth": float(np.concatenate([t[-1] for t in tenths]).mean()),
        "prior_steps": online.prior_steps_,
        "decay": online.decay_,
        "n_train": online.n_steps_,
        "cpu_seconds_fit": fitted - began,
        "cpu_seconds_score": process_time() - fitted,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=list(MODELS))
    parser.add_argument("path", type=Path)
    parser.add_argument("--few", type=int, default=12, help="recordings of a word and speaker")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*on the floor of the variances")
    parts = weather(arguments.path) if arguments.data == "weather" else speech(arguments.path, arguments.few)
    rows = []
    for part, train, test in parts:
        for name, model in MODELS[arguments.data].items():
            row = {"model": name, "part": part, **measured(model, SEGMENT[arguments.data], train, test)}
            rows.append({k: round(v, 4) if isinstance(v, float) and math.isfinite(v) else v for k, v in row.items()})
            print(rows[-1], flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamped(pd.DataFrame(rows)).to_csv(RESULTS / f"{arguments.data}.csv", index=False)
    print(pd.DataFrame(rows).groupby("model", sort=False)[["static", "online"]].mean().round(3).to_string())

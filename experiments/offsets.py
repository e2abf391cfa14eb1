"""Speakers that no model has heard, with and without an unknown offset: ``python experiments/offsets.py FOLDER``.

The free-spoken-digit recordings, ``digit_speaker_index.wav``, of four speakers, each left out in turn: nats a frame of
13 cepstra, of a model fitted to the other three, and of the same model with ``LatentOffset`` around it, of an unknown
scale too, after 0 and after 5 enrolment utterances of the unheard speaker, which are not scored. ``trained``: a network
was also trained further on the enrolled utterances. ``var`` is the linear prediction, an autoregression of one state.

The script chooses nothing by its score: the priors of offset and scale are learned by leaving out each of the three
speakers in turn (``n_folds=3``). But that such priors are of use was seen on these speakers, and how long to train
further, and at which rate, on one of them (jackson).
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
import torch

from seqmodels import HMM, LSTM, AutoregressiveGaussian, GaussianMixture, LatentOffset, SequenceModel, Sequences, data
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.training import GradientTraining, Perturbation

RESULTS = Path("experiments/results/offsets")
N_ENROLLED = 5
SCALES = (0.7, 1.0, 1.4, 2.0)
STEPS = 20  # of training a network further on what is enrolled


def lstm(perturbation: Perturbation | None = None) -> LSTM:
    """With the settings of ``unheard_speakers.py``."""
    observation = GaussianMixture(4, "full", min_covariance=1e-4)
    training = GradientTraining(linear_start=True, perturbation=perturbation)
    return LSTM(d_model=64, batch_size=16, max_steps=250, observation=observation, training=training)


MODELS: dict[str, Callable[[], SequenceModel]] = {
    "hmm, 16 states": lambda: HMM(16, observation=GaussianMixture(1, "full"), n_init=1, max_iter=20),
    "autoregressive hmm, 16 states": lambda: HMM(16, observation=AutoregressiveGaussian(), n_init=1, max_iter=30),
    "lstm": lstm,
    "lstm, perturbed": lambda: lstm(Perturbation(1.0, 0.3)),
}


def measured(name: str, train: Sequences, enrolment: Sequences, test: Sequences) -> dict[str, float]:
    """Scores of one model on one unheard speaker."""
    began = process_time()
    plain = MODELS[name]().fit(train)
    between = process_time()
    model = LatentOffset(MODELS[name](), n_folds=3, scales=SCALES).fit(train)
    trained = model.enrol(enrolment, steps=STEPS).score(test) if isinstance(plain, LSTM) else np.nan
    return {
        "without": plain.score(test),
        "enrolled_0": model.score(test),
        f"enrolled_{N_ENROLLED}": model.enrol(enrolment).score(test),
        f"trained_on_{N_ENROLLED}": trained,
        "cpu_seconds_without": between - began,
        "cpu_seconds": process_time() - between,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--few", type=int, default=12, help="recordings of a word and speaker")
    parser.add_argument("--only", choices=list(MODELS), help="one model; results are added to those of others")
    parser.add_argument("--unheard", help="one speaker; the rows of others stay as they are")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*on the floor of the variances")
    recordings = data.audio(arguments.folder)
    speaker = recordings.metadata["speaker"].to_numpy()
    is_few = recordings.metadata["index"].to_numpy() < arguments.few
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in [arguments.only] if arguments.only else list(MODELS):
        path = RESULTS / f"{name.replace(', ', '-').replace(' ', '_')}.csv"
        for unheard in [arguments.unheard] if arguments.unheard else sorted(set(speaker)):
            train = recordings.take(is_few & (speaker != unheard))
            test = recordings.take(is_few & (speaker == unheard))
            others = np.flatnonzero(~is_few & (speaker == unheard))
            drawn = np.random.default_rng(0).choice(others, N_ENROLLED, replace=False)
            scores = measured(name, train, recordings.take(np.isin(np.arange(len(speaker)), drawn)), test)
            var = HMM(1, observation=AutoregressiveGaussian(), n_init=1).fit(train).score(test)
            row = stamped(pd.DataFrame([{"model": name, "unheard": unheard, **scores, "var": var}]).round(3))
            print(row.iloc[0, :8].to_dict(), flush=True)
            before = pd.read_csv(path).query("unheard != @unheard") if path.exists() else row.head(0)
            pd.concat([before, row])[[*row]].sort_values("unheard").to_csv(path, index=False)
    tables = [pd.read_csv(path) for path in sorted(RESULTS.glob("*.csv"))]
    columns = ["without", "enrolled_0", f"enrolled_{N_ENROLLED}", f"trained_on_{N_ENROLLED}", "var"]
    print(pd.concat(tables).groupby("model", sort=False)[columns].mean().round(2).to_string())

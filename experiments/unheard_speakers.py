"""Speakers that no model has heard: ``python experiments/unheard_speakers.py FOLDER [--only words|density|defaults]``.

The free-spoken-digit recordings, ``digit_speaker_index.wav``, of four speakers, each left out in turn. What is chosen
is chosen by leaving out each of the other three in turn; the choice alone is then fitted to the three and asked, once,
about the fourth. The candidates themselves were drawn up with the inner scores of all four in view.

``words``: which digit was spoken, by a left-to-right HMM a digit. ``density``: nats a frame of 13 cepstra, of networks
with and without a perturbation, beside a linear prediction (``var``) and one Gaussian. ``defaults``: what models that
are told nothing choose by the speakers that they are fitted to, beside the same models without that choice, of each
speaker and of each pair of speakers; what they choose among was drawn up with the scores of all four in view.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from time import process_time
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from seqmodels import (
    GRU,
    HMM,
    LSTM,
    AutoregressiveGaussian,
    GaussianMixture,
    GenerativeClassifier,
    Sequences,
    Transformer,
    data,
)
from seqmodels.data import MFCC, FrameFeatures, SpeechFeatures
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.observations import PseudoFrames
from seqmodels.training import GradientTraining, Perturbation

RESULTS = Path("experiments/results/unheard_speakers")
SAMPLE_RATE = 8000
FEW_BY_DEFAULT = 12  # recordings of a word and speaker, for the defaults
Model = HMM | LSTM | GenerativeClassifier
Fit = Callable[[Sequences], Callable[[Sequences], float]]  # training sequences -> the score of others


def gaussians(n_components: int, covariance_type: Literal["diag", "full", "tied"], floor: float) -> GaussianMixture:
    """A mixture that is told by its arguments alone, without a prior."""
    return GaussianMixture(n_components, covariance_type, min_covariance=floor, prior=None, background=0.0)


@dataclass(frozen=True)
class Words:
    """A classifier of whole recordings: what it reads, what it reads in training besides, and its density."""

    features: SpeechFeatures
    training_features: tuple[SpeechFeatures, ...]
    mixture: GaussianMixture

    def __call__(self, train: Sequences) -> Callable[[Sequences], float]:
        model = HMM(10, observation=self.mixture, topology="left-to-right", max_iter=10, tol=0, n_init=1)
        classifier = GenerativeClassifier(
            model,
            features=self.features,
            training_features=list(self.training_features),
            priors="uniform",
            calibrate=False,  # the most probable label needs no temperature
        )
        return classifier.fit(train).score


def words() -> dict[str, Fit]:
    """Candidates, each with one idea more than the one before."""
    raw = FrameFeatures(2, mean=False, variance=False)
    plain = SpeechFeatures(SAMPLE_RATE, mfcc=MFCC(), frames=raw, level=None)
    one_level = SpeechFeatures(SAMPLE_RATE, frames=raw)
    mean = SpeechFeatures(SAMPLE_RATE, frames=FrameFeatures(2, variance=False))
    both = SpeechFeatures(SAMPLE_RATE)
    wide = SpeechFeatures(SAMPLE_RATE, mfcc=both.mfcc.clone().set_params(n_filters=23))
    readings = (*wide.perturbed(speeds=(0.8, 1.25)), *wide.perturbed(warps=(0.85, 1.18)))
    mixture = gaussians(4, "diag", 0.01)
    return {
        "cepstra and slopes": Words(plain, (), mixture),
        "one level, noise": Words(one_level, (), mixture),
        "less the mean": Words(mean, (), mixture),
        "over the deviation": Words(both, (), mixture),
        "23 filters": Words(wide, (), mixture),
        "speeds and warps": Words(wide, readings, mixture),
        "one Gaussian, floor 0.1": Words(wide, readings, gaussians(1, "diag", 0.1)),
        "one Gaussian, floor 0.3": Words(wide, readings, gaussians(1, "diag", 0.3)),
        "tied covariance, floor 0.1": Words(wide, readings, gaussians(1, "tied", 0.1)),
        "tied covariance, floor 0.5": Words(wide, readings, gaussians(1, "tied", 0.5)),
    }


@dataclass(frozen=True)
class Density:
    """A density of frames."""

    make: Callable[[], HMM | LSTM | GRU | Transformer]

    def __call__(self, train: Sequences) -> Callable[[Sequences], float]:
        return self.make().fit(train).score


PERTURBATIONS = {
    "as it is": None,
    "offset 0.5, mixing 0.3": Perturbation(0.5, 0.3),
    "offset 1, mixing 0.3": Perturbation(1.0, 0.3),
}


def networks(family: Callable[..., LSTM | GRU | Transformer], d_model: int, max_steps: int) -> dict[str, Fit]:
    """A network with each perturbation."""

    def density(perturbation: Perturbation | None) -> Density:
        observation = gaussians(4, "full", 1e-4)
        options: dict[str, Any] = {
            "d_model": d_model,
            "max_steps": max_steps,
            "batch_size": 16,
            "observation": observation,
            "training": GradientTraining(linear_start=True, perturbation=perturbation),
        }
        return Density(lambda: family(**options))

    return {name: density(perturbation) for name, perturbation in PERTURBATIONS.items()}


def baselines() -> dict[str, Fit]:
    """Densities with nothing to choose."""
    return {
        "gaussian": Density(lambda: HMM(1, observation=gaussians(1, "full", 1e-4), n_init=1)),
        "var": Density(lambda: HMM(1, observation=AutoregressiveGaussian(), n_init=1)),
    }


def defaults(recordings: Sequences, few: int) -> pd.DataFrame:
    """A row for each model and one or two speakers left out: its score, with and without what clusters choose."""
    mixture = GaussianMixture(1, prior=PseudoFrames(10.0), background=0.01)
    chain = HMM(8, topology="left-to-right")
    width = {"d_model": 64, "max_steps": 300}
    models: dict[str, tuple[Model, Model]] = {
        "hmm, 8 states": (HMM(8), HMM(8, observation=mixture)),
        "words, left-to-right": (GenerativeClassifier(chain), GenerativeClassifier(chain, features=None)),
        "lstm, 64 wide": (
            LSTM(**width),
            LSTM(**width, training=GradientTraining(linear_start=False, perturbation=None)),
        ),
    }
    speaker = recordings.metadata["speaker"].to_numpy()
    is_few = recordings.metadata["index"].to_numpy() < few
    tests = [who for n in (1, 2) for who in combinations(sorted(set(speaker)), n)]
    rows = []
    for name, (chosen, plain) in models.items():
        for unheard in tests:
            is_unheard = np.isin(speaker, unheard)
            train, test = recordings.take(is_few & ~is_unheard), recordings.take(is_few & is_unheard)
            row: dict[str, object] = {"model": name, "unheard": " and ".join(unheard)}
            for column, model in (("without", plain), ("default", chosen)):
                began = process_time()
                row[column] = round(model.clone().fit(train).score(test), 4)
                row[f"cpu_seconds_{column}"] = round(process_time() - began, 1)
            print(row, flush=True)
            rows.append(row)
            RESULTS.mkdir(parents=True, exist_ok=True)
            stamped(pd.DataFrame(rows)).to_csv(RESULTS / "defaults.csv", index=False)
    return pd.DataFrame(rows)


def left_out(recordings: Sequences, few: int, model: str, candidates: Mapping[str, Fit]) -> pd.DataFrame:
    """A row for each candidate without each speaker, and with ``chosen`` its score on that speaker.

    ``inner``: the mean score over the three others, each unheard by a model fitted to the other two; of ``few``
    recordings of each word and speaker.
    """
    speaker = recordings.metadata["speaker"].to_numpy()
    is_few = recordings.metadata["index"].to_numpy() < few
    names = sorted(set(speaker))
    inner: dict[tuple[str, frozenset[str], str], float] = {}  # candidate, fitted to, score of
    for name, fit in candidates.items() if len(candidates) > 1 else ():
        for a in names:
            for b in names[names.index(a) + 1 :]:
                score = fit(recordings.take(is_few & np.isin(speaker, [a, b])))
                for c in set(names) - {a, b}:
                    inner[name, frozenset((a, b)), c] = score(recordings.take(is_few & (speaker == c)))
        print(f"{model}, {name}: {np.mean([x for (key, *_), x in inner.items() if key == name]):.4f}", flush=True)
    rows = []
    for unheard in names:
        others = set(names) - {unheard}
        means = {
            name: float(np.mean([inner[name, frozenset(others - {c}), c] for c in others])) if inner else np.nan
            for name in candidates
        }
        chosen = max(means, key=lambda name: means[name]) if inner else next(iter(candidates))
        score = candidates[chosen](recordings.take(speaker != unheard))
        found = score(recordings.take(speaker == unheard))
        print(f"{model} without {unheard}: {chosen}, {found:.4f}", flush=True)
        for name in candidates:
            row = {"model": model, "unheard": unheard, "setting": name, "inner": round(means[name], 4)}
            rows.append({**row, "chosen": name == chosen, "score": round(found, 4) if name == chosen else np.nan})
    return pd.DataFrame(rows)


def write(name: str, tables: list[pd.DataFrame]) -> None:
    """``NAME.csv``, and the means over the unheard speakers on the screen."""
    table = pd.concat(tables, ignore_index=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamped(table).to_csv(RESULTS / f"{name}.csv", index=False)
    print(table[table["chosen"]].groupby("model", sort=False)["score"].agg(["mean", "min", "max"]).round(4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("words", "density", "defaults"))
    parser.add_argument("--few", type=int, default=20, help="recordings of a word and speaker, to choose with")
    parser.add_argument("--d-model", type=int, default=64, help="of the networks")
    parser.add_argument("--steps", type=int, default=400, help="of training")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*on the floor of the variances")
    if arguments.only in (None, "defaults"):
        table = defaults(data.audio(arguments.folder), min(arguments.few, FEW_BY_DEFAULT))
        print(table.groupby("model", sort=False)[["without", "default"]].mean().round(3))
    if arguments.only in (None, "words"):
        write("words", [left_out(data.audio(arguments.folder, features="waveform"), arguments.few, "hmm", words())])
    if arguments.only in (None, "density"):
        cepstra = data.audio(arguments.folder)
        results = [left_out(cepstra, arguments.few, name, {"": fit}) for name, fit in baselines().items()]
        for family in (LSTM, GRU, Transformer):
            candidates = networks(family, arguments.d_model, arguments.steps)
            results.append(left_out(cepstra, arguments.few, family.__name__.lower(), candidates))
            write("density", results)

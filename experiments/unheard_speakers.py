"""Speakers that no model has heard: ``python experiments/unheard_speakers.py FOLDER [--only words|density|recipes]``.

The free-spoken-digit recordings, ``digit_speaker_index.wav``, of four speakers, each left out in turn. What is chosen
is chosen by leaving out each of the other three in turn; the choice alone is then fitted to the three and asked, once,
about the fourth. The candidates themselves were drawn up with the inner scores of all four in view.

``words``: which digit was spoken, by a left-to-right HMM a digit. ``density``: nats a frame of 13 cepstra, of networks
with and without a perturbation, beside a linear prediction (``var``) and one Gaussian. ``recipes``: what
``choose(model, X, recipe="proposed")`` finds on three speakers, and how each recipe does on the fourth; the recipes
were drawn up with the scores of all four in view.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    choose,
    data,
)
from seqmodels.data import MFCC, FrameFeatures, SpeechFeatures
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.training import GradientTraining, Perturbation

RESULTS = Path("experiments/results/unheard_speakers")
SAMPLE_RATE = 8000
FEW_OF_RECIPES = 12  # recordings of a word and speaker, to choose a recipe with
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


def recipes(recordings: Sequences, few: int) -> pd.DataFrame:
    """A row for each model, speaker left out and recipe: figures of the choice, and the score on that speaker."""
    models: dict[str, Any] = {
        "hmm, 8 states": HMM(8),
        "words, left-to-right": GenerativeClassifier(HMM(8, topology="left-to-right"), calibrate=False),
        "lstm, 64 wide": LSTM(d_model=64, max_steps=300),
    }
    speaker = recordings.metadata["speaker"].to_numpy()
    is_few = recordings.metadata["index"].to_numpy() < few
    rows: list[dict[str, object]] = []
    for name, model in models.items():
        for unheard in sorted(set(speaker)):
            train = recordings.take(is_few & (speaker != unheard))
            test = recordings.take(is_few & (speaker == unheard))
            choice = choose(model, train, folds=3, recipe="proposed", verbose=False)
            print(f"{name} without {unheard}: {choice}", flush=True)
            for i, (recipe, fitted) in enumerate(zip(choice.values, choice.models, strict=True)):
                assert fitted is not None
                figures = choice.frame.iloc[i]
                rows.append(
                    {
                        "model": name,
                        "unheard": unheard,
                        "recipe": repr(recipe),
                        "cv": round(figures["cv"], 4),
                        "chosen": i == choice.chosen_row,
                        "score": round(fitted.score(test), 4),
                        "seconds": round(figures["seconds"], 1),
                    }
                )
            RESULTS.mkdir(parents=True, exist_ok=True)
            stamped(pd.DataFrame(rows)).to_csv(RESULTS / "recipes.csv", index=False)
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
    parser.add_argument("--only", choices=("words", "density", "recipes"))
    parser.add_argument("--few", type=int, default=20, help="recordings of a word and speaker, to choose with")
    parser.add_argument("--d-model", type=int, default=64, help="of the networks")
    parser.add_argument("--steps", type=int, default=400, help="of training")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*on the floor of the variances")
    if arguments.only in (None, "recipes"):
        table = recipes(data.audio(arguments.folder), min(arguments.few, FEW_OF_RECIPES))
        as_it_is = table[table["recipe"] == "the arguments as they are"].groupby("model", sort=False)["score"].mean()
        chosen = table[table["chosen"]].groupby("model", sort=False)["score"].mean()
        print(pd.DataFrame({"as it is": as_it_is, "chosen": chosen}).round(3))
    if arguments.only in (None, "words"):
        write("words", [left_out(data.audio(arguments.folder, features="waveform"), arguments.few, "hmm", words())])
    if arguments.only in (None, "density"):
        cepstra = data.audio(arguments.folder)
        results = [left_out(cepstra, arguments.few, name, {"": fit}) for name, fit in baselines().items()]
        for family in (LSTM, GRU, Transformer):
            candidates = networks(family, arguments.d_model, arguments.steps)
            results.append(left_out(cepstra, arguments.few, family.__name__.lower(), candidates))
            write("density", results)

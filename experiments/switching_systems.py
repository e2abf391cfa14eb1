"""Does a system whose dynamics switch explain speech better? ``python experiments/switching_systems.py FOLDER``.

Nats a frame of 13 cepstra of the free-spoken-digit recordings, ``digit_speaker_index.wav``, four speakers. ``unheard``:
each speaker is left out in turn; ``heard``: recordings 0 to 4 of each word and speaker are left out. Beside an
autoregression of one frame (``var``), AR-HMMs and linear-Gaussian systems. Sizes were chosen by the scores of
``jackson`` left out, which are shown with the others. ``bound`` is the variational bound of the same model, and
``error`` the Monte Carlo standard error of the score of 50 recordings.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from seqmodels import HMM, AutoregressiveGaussian, LinearGaussian, SequenceModel, Sequences, data
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.linear_gaussian import SwitchingLinearGaussian

OUT = Path("experiments/results/switching_systems/switching_systems.csv")
FEW = 50  # recordings


def ar_hmm(n_states: int) -> HMM:
    """An autoregression of one frame in each state, from one start."""
    return HMM(n_states, observation=AutoregressiveGaussian(1), n_init=1)


def switching(n_regimes: int, max_iter: int = 20) -> SwitchingLinearGaussian:
    """A system of as many states as features."""
    return SwitchingLinearGaussian(n_regimes, 13, max_iter=max_iter, n_particles=16, particle_steps=0)


MODELS: dict[str, Callable[[], SequenceModel]] = {
    "var": lambda: ar_hmm(1),
    "ar-hmm 4": lambda: ar_hmm(4),
    "ar-hmm 48": lambda: ar_hmm(48),
    "system 2": lambda: LinearGaussian(2),
    "system 13": lambda: LinearGaussian(13),
    "system 26": lambda: LinearGaussian(26),
    "switching 4": lambda: switching(4),
    "switching 48": lambda: switching(48),
}


def row(name: str, split: str, left_out: str, train: Sequences, test: Sequences) -> dict[str, object]:
    """A model, fitted and scored."""
    start = time.process_time()
    model = MODELS[name]().fit(train)
    seconds = time.process_time() - start
    bound, error = np.nan, np.nan
    if isinstance(model, SwitchingLinearGaussian):
        bound, error = float(model.bound(test).sum() / test.n_units.sum()), model.score_error(test[:FEW])
    figures = {"score": model.score(test), "bound": bound, "error": error}
    rounded = {key: round(value, 5) for key, value in figures.items()}
    cost = {"parameters": model.n_parameters_, "cpu_seconds": round(seconds)}
    return {"model": name, "split": split, "left_out": left_out, **rounded, **cost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--split", nargs="+", choices=("unheard", "heard"), default=["unheard", "heard"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*on the floor of the variances")
    recordings = data.audio(arguments.folder)
    speaker, index = (recordings.metadata[column].to_numpy() for column in ("speaker", "index"))
    splits = [("unheard", name, speaker == name) for name in sorted(set(speaker))] + [("heard", "0-4", index < 5)]
    for name in arguments.only:
        for split, left_out, is_test in splits:
            if split not in arguments.split:
                continue
            found = row(name, split, left_out, recordings.take(~is_test), recordings.take(is_test))
            print(found, flush=True)
            table = stamped(pd.DataFrame([found]))
            if OUT.exists():  # rows of others stay
                before = pd.read_csv(OUT)
                is_same = (before[["model", "left_out"]] == [name, left_out]).all(axis=1)
                table = pd.concat([before[~is_same], table])
            OUT.parent.mkdir(parents=True, exist_ok=True)
            table.to_csv(OUT, index=False)


if __name__ == "__main__":
    main()

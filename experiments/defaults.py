"""Are the defaults of ``HMM`` on vectors good on data they were not chosen on? ``experiments/defaults.py [--quick]``.

Twelve data sets are drawn by rule, each with a training and a test part: other subjects or speakers, or what comes
later. ``HMM(K)`` is fitted beside settings made by hand; each is scored on the test part in nats a frame. ``gap`` is
the score minus that of one Gaussian of independent frames (``iid``); ``behind`` is the share of the gap of the best
setting made by hand that the default is behind it. Beside them stands a candidate for the default. Its prior was chosen
by test scores of the sets marked ``tuned``, so only the other sets are evidence of how good it is. Where the states are
known, ``accuracy`` is that of the states decoded on the test part, under the best assignment of states to
labels.

``--data FOLDER`` adds a set: one CSV file with a header a sequence, numbers, empty where missing; the last fifth of
each is the test part.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from seqmodels import HMM, GaussianMixture
from seqmodels.evaluation.provenance import stamped
from seqmodels.observations.gaussian_mixture import PseudoFrames

Frames = list[np.ndarray]


@dataclass(frozen=True)
class DataSet:
    """``train`` and ``test`` are lists of ``(T, D)``; ``states`` are those of ``test``, if known; ``sizes``: K."""

    train: Frames
    test: Frames
    states: list[np.ndarray] | None = None
    sizes: tuple[int, ...] = (4, 32)

    @classmethod
    def later(cls, x: Frames, sizes: tuple[int, ...] = (4, 32)) -> DataSet:
        """The last third of each sequence is the test part."""
        cut = [2 * len(item) // 3 for item in x]
        parts = list(zip(x, cut, strict=True))
        return cls([item[:n] for item, n in parts], [item[n:] for item, n in parts], sizes=sizes)

    @classmethod
    def others(cls, x: Frames, states: Frames | None = None, sizes: tuple[int, ...] = (4, 32)) -> DataSet:
        """Every third sequence, from the third on, is in the test part."""
        test = [i % 3 == 2 for i in range(len(x))]
        known = None if states is None else [s for s, t in zip(states, test, strict=True) if t]
        parts = ([item for item, t in zip(x, test, strict=True) if t is side] for side in (False, True))
        return cls(next(parts), next(parts), states=known, sizes=sizes)


# -- data sets by rule -----------------------------------------------------------------------------------------


def chain(n: int, stay: float, n_states: int, rng: np.random.Generator) -> np.ndarray:
    """``(n,)`` states that stay with probability ``stay``, else go to any other."""
    z = [int(rng.integers(n_states))]
    for _ in range(n - 1):
        z.append(z[-1] if rng.random() < stay else (z[-1] + int(rng.integers(1, n_states))) % n_states)
    return np.array(z)


def activities(rng: np.random.Generator) -> DataSet:
    """Twelve subjects, four sensors of scales 0.1 to 130, three activities that differ in mean and spread, smoothed."""
    mean = np.array([[0.0, 0.0, 0.0, 0.0], [2.0, 1.0, -1.0, 2.0], [-1.5, 2.5, 2.0, -1.0]])
    deviation, scale = np.array([0.3, 0.8, 1.3])[:, None], np.array([0.1, 1.0, 20.0, 130.0])
    x, states = [], []
    for length in rng.integers(280, 420, 12):
        z = chain(length, 0.965, 3, rng)
        item, level = np.empty((length, 4)), mean[z[0]]
        for t, state in enumerate(z):
            level = (level + mean[state]) / 2 + 0.5 * deviation[state] * rng.normal(size=4)
            item[t] = level
        x.append(item * scale)
        states.append(z)
    return DataSet.others(x, states, sizes=(3, 8))


def ecg(rng: np.random.Generator) -> DataSet:
    """Nine patients, two leads: flat, a small wave, a spike, a broad wave; amplitudes and rates differ by patient."""
    x = []
    for _ in range(9):
        amplitude, tempo, baseline = rng.uniform(0.6, 1.6, (3, 2)), rng.uniform(0.8, 1.25), 0.05 * rng.normal(size=2)
        phase = np.cumsum(tempo * rng.uniform(0.9, 1.1, 350) / 40) % 1
        waves = [(0.2, 0.03, 0.15), (0.4, 0.012, 1.5), (0.65, 0.05, 0.35)]
        shape = [height * np.exp(-0.5 * ((phase - at) / width) ** 2) for at, width, height in waves]
        clean = sum(s[:, None] * a for s, a in zip(shape, amplitude, strict=True))
        x.append(baseline + clean + rng.uniform(0.005, 0.03) * rng.normal(size=(350, 2)))
    return DataSet.others(x, sizes=(8, 32))


def sunspots(rng: np.random.Generator) -> DataSet:
    """One series of 330 numbers above zero, in cycles of about eleven of differing height."""
    phase = np.cumsum(2 * np.pi / 11 * rng.uniform(0.7, 1.3, 330))
    height = np.repeat(rng.gamma(4, 25, 40), 11)[:330]
    return DataSet.later([(height * (1 - np.cos(phase)) / 2 + rng.gamma(2, 4, 330))[:, None]])


def random_walk(rng: np.random.Generator) -> DataSet:
    """Twelve walks in the plane, from the origin."""
    return DataSet.others([rng.normal(size=(250, 2)).cumsum(0) for _ in range(12)])


def counts(rng: np.random.Generator) -> DataSet:
    """Counts of three things, most of them small, in four states."""
    rates = rng.gamma(1.0, 5.0, (4, 3)) + 0.3
    return DataSet.others([rng.poisson(rates[chain(200, 0.9, 4, rng)]).astype(float) for _ in range(12)])


def regimes(rng: np.random.Generator) -> DataSet:
    """Daily returns: three volatilities."""
    z = chain(2000, 0.98, 3, rng)
    return DataSet.later([(np.array([0.005, 0.012, 0.035])[z] * rng.normal(size=2000) + 3e-4)[:, None]], sizes=(3, 8))


def vital_sign(rng: np.random.Generator) -> DataSet:
    """A heart rate that drifts, sampled each minute; one frame in 300 is far off (a sensor that slipped)."""
    x = []
    for _ in range(9):
        level = 75 + 10 * rng.normal()
        item = level + np.convolve(rng.normal(size=360), np.exp(-np.arange(60) / 20), "valid")[:, None]
        item += 0.7 * rng.normal(size=item.shape)
        slipped = rng.random(len(item)) < 1 / 300
        x.append(np.where(slipped[:, None], rng.uniform(0, 300, item.shape), item))
    return DataSet.others(x, sizes=(4, 32))


def heavy_tails(rng: np.random.Generator) -> DataSet:
    """Student's t of 2.5 degrees of freedom about three means, in three dimensions."""
    mean = 4 * rng.normal(size=(3, 3))
    z = [chain(250, 0.95, 3, rng) for _ in range(9)]
    return DataSet.others([mean[s] + rng.standard_t(2.5, (250, 3)) for s in z], z, sizes=(3, 16))


def quantised(rng: np.random.Generator) -> DataSet:
    """A temperature and a humidity in whole units, by day and night, with uniform noise of one unit added."""
    x = []
    for _ in range(9):
        wave = np.sin(2 * np.pi * np.arange(240) / 24)[:, None] * [6.0, -15.0] + [15.0, 60.0]
        drift = 0.4 * rng.normal(size=(240, 2)).cumsum(0)
        x.append(np.round(wave + drift + rng.normal(size=(240, 2))) + rng.uniform(-0.5, 0.5, (240, 2)))
    return DataSet.others(x, sizes=(8, 32))


def few_frames(rng: np.random.Generator) -> DataSet:
    """Three hundred frames of twenty features, three states."""
    mean, mix = 1.2 * rng.normal(size=(3, 20)), 0.3 * rng.normal(size=(20, 20)) + np.eye(20)
    z = [chain(50, 0.9, 3, rng) for _ in range(9)]
    return DataSet.others([mean[s] + rng.normal(size=(50, 20)) @ mix for s in z], z, sizes=(3, 16))


def utterances(rng: np.random.Generator) -> DataSet:
    """Short words of six sounds in twelve features, from twelve speakers who differ in mean."""
    sounds, words = 1.5 * rng.normal(size=(6, 12)), rng.permuted(np.tile(np.arange(6), (5, 1)), axis=1)
    x = []
    for _ in range(12):
        speaker = 0.5 * rng.normal(size=12)
        for word in words:
            z = np.repeat(word, rng.integers(2, 6, 6))
            step = np.concatenate([sounds[z[:1]], 0.5 * (sounds[z[1:]] + sounds[z[:-1]])])
            x.append(step + speaker + rng.normal(size=(len(z), 12)) * rng.uniform(0.3, 0.7))
    speaker_of = np.repeat(np.arange(12), 5)
    parts = (
        [item for item, s in zip(x, speaker_of, strict=True) if bool(s % 3 == 2) is side] for side in (False, True)
    )
    return DataSet(next(parts), next(parts), sizes=(6, 32))


def air(rng: np.random.Generator) -> DataSet:
    """Four hourly series over 125 days: log-normal spikes, days and seasons; gaps of hours, one value in 20 missing."""
    n, hour = 3000, np.arange(3000)
    weather = np.convolve(rng.normal(size=n + 71), np.exp(-np.arange(72) / 24) / 3.5, "valid")
    season = 8 * np.sin(2 * np.pi * hour / 8760) + 4 * np.sin(2 * np.pi * hour / 24)
    dust = np.exp(4 + 0.8 * weather + 0.2 * rng.normal(size=n))
    wind = np.exp(1 - weather + 0.4 * rng.normal(size=n))
    x = np.stack([dust, season + 2 * weather + rng.normal(size=n), 1015 - season + rng.normal(size=n), wind], 1)
    x[rng.random(x.shape) < 0.02] = np.nan
    for start in rng.integers(0, n - 12, 8):
        x[start : start + 12, 0] = np.nan
    return DataSet.later([x], sizes=(6, 32))


TUNED: dict[str, Callable[[np.random.Generator], DataSet]] = {
    "activities": activities,
    "ecg": ecg,
    "random walk": random_walk,
    "vital sign": vital_sign,
    "few frames": few_frames,
    "utterances": utterances,
}
LAST: dict[str, Callable[[np.random.Generator], DataSet]] = {
    "sunspots": sunspots,
    "counts": counts,
    "regimes": regimes,
    "heavy tails": heavy_tails,
    "quantised": quantised,
    "air": air,
}


def from_folder(folder: Path) -> DataSet:
    """One sequence a file; the last fifth of each is the test part."""
    x = [pd.read_csv(path).to_numpy(float) for path in sorted(folder.glob("*.csv"))]
    if not x:
        raise SystemExit(f"{folder} has no CSV files; pass a folder with one CSV file for each sequence")
    cut = [4 * len(item) // 5 for item in x]
    return DataSet([i[:n] for i, n in zip(x, cut, strict=True)], [i[n:] for i, n in zip(x, cut, strict=True)])


# -- settings --------------------------------------------------------------------------------------------------

DEFAULT = "default"
CANDIDATE = "1 component, 5 pseudo-frames, background, several starts"
BY_HAND: dict[str, dict[str, Any]] = {
    "1 component, 5 starts": {"observation": GaussianMixture(1), "n_init": 5},
    "2 components, floor 0.01, 5 starts": {"observation": GaussianMixture(2, min_covariance=0.01), "n_init": 5},
    "1 component, 10 pseudo-frames, 5 starts": {"observation": GaussianMixture(1, prior=PseudoFrames(10)), "n_init": 5},
}
SETTINGS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    CANDIDATE: {"observation": GaussianMixture(1, prior=PseudoFrames(5), background=1e-3), "n_init": "auto"},
    **{name: {"tol": 1e-4, **options} for name, options in BY_HAND.items()},
}


def accuracy(model: HMM, data: DataSet) -> float:
    """Share of the test part's states that are decoded, under the best one-to-one assignment; NaN if not known."""
    if data.states is None:
        return np.nan
    decoded, states = np.concatenate(model.decode(data.test)), np.concatenate(data.states)
    table = np.zeros((model.n_states, int(states.max()) + 1))
    np.add.at(table, (decoded, states), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(states))


def fitted_row(data: DataSet, n_states: int, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """One model, fitted to the training part and scored on both."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of floors, of starts that disagree: the table has the figures
        model = HMM(n_states, random_state=seed, **options).fit(data.train)
    return {
        "score": model.score(data.test),
        "train_score": model.score(data.train),
        "accuracy": accuracy(model, data),
        "floor_hits": int(model.history_["floor_hits"].iloc[-1]),
        "steps": len(model.history_) - 1,
        "seconds": time.perf_counter() - began,
    }


def study(sets: dict[str, DataSet], settings: dict[str, dict[str, Any]], seeds: int) -> pd.DataFrame:
    """A row for each set, size, setting and seed."""
    rows = []
    for name, data in sets.items():
        iid = HMM(1, observation=GaussianMixture(1), n_init=1).fit(data.train).score(data.test)
        for n_states in data.sizes:
            for setting, options in settings.items():
                for seed in range(seeds):
                    found = fitted_row(data, n_states, options, seed)
                    about = {"data": name, "tuned": name in TUNED, "n_states": n_states, "setting": setting}
                    gap = float(found["score"]) - iid
                    rows.append({**about, "seed": seed, "iid": iid, "gap": gap, **found})
    return pd.DataFrame(rows)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, and by what share of the best gap by hand the default is behind."""
    figures = ["iid", "score", "gap", "accuracy", "floor_hits", "steps", "seconds"]
    means = frame.groupby(["data", "tuned", "n_states", "setting"], sort=False)[figures].mean().reset_index()
    spread = frame.groupby(["data", "tuned", "n_states", "setting"], sort=False)["score"].std().to_numpy()
    means.insert(5, "spread", spread)
    by_hand = means[means["setting"].isin(BY_HAND)].groupby(["data", "n_states"])["gap"].max().rename("best")
    means = means.join(by_hand, on=["data", "n_states"])
    means["behind"] = (means["best"] - means["gap"]) / means["best"].abs()
    return means.drop(columns="best")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, two sets: whether it runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a folder of CSV files")
    parser.add_argument("--sets", nargs="+", choices=[*TUNED, *LAST], default=[*TUNED, *LAST])
    parser.add_argument("--out", type=Path, default=Path("experiments/results/defaults"))
    given = parser.parse_args()
    names = ["activities", "sunspots"] if given.quick else given.sets
    makers = {**TUNED, **LAST}
    sets = {name: makers[name](np.random.default_rng([1, list(makers).index(name)])) for name in names}
    if given.data is not None:
        sets[given.data.name] = from_folder(given.data)
    frame = study(sets, SETTINGS, 1 if given.quick else given.seeds)
    given.out.mkdir(parents=True, exist_ok=True)
    stamped(frame).to_csv(given.out / "fits.csv", index=False, float_format="%.5g")
    means = summary(frame)
    stamped(means).to_csv(given.out / "defaults.csv", index=False, float_format="%.5g")
    print(means.to_string(index=False, float_format="%.3f"))


if __name__ == "__main__":
    main()

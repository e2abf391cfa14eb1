"""Are the defaults of ``HMM`` on vectors good on data they were not chosen on? ``experiments/defaults.py MODE``.

Twelve kinds of data are drawn by rule, each with a training and a test part: other subjects or speakers, or what comes
later. ``choose`` compares candidates for the default on two draws: on the training parts of the first, which it splits
again in the same way, and on the second as a whole; ``tolerance`` does the former for when EM stops. ``measure`` fits
``HMM(K)`` beside settings made by hand on a third draw, that nothing was chosen on, and scores the test parts.

Scores are nats a frame; ``gap`` is the score minus that of one Gaussian of independent frames (``iid``); ``behind`` is
the share of the gap of the best setting made by hand that a setting is behind it. Where the states are known,
``accuracy`` is that of the states decoded, under the best assignment of states to labels.

``--data FOLDER`` adds a set to ``measure``: one CSV file with a header a sequence, numbers, empty where missing; the
last third of each is the test part.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from seqmodels import HMM, GaussianMixture, Standardize
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.observations.gaussian_mixture import PseudoFrames

Frames = list[np.ndarray]


@dataclass(frozen=True)
class DataSet:
    """Sequences ``(T, D)``, their states ``(T,)`` if known, and the subject of each, or None: they are cut in time.

    ``sizes``: the numbers of states to fit.
    """

    x: Frames
    states: Frames | None = None
    subjects: np.ndarray | None = None
    sizes: tuple[int, ...] = (4, 32)

    @classmethod
    def of_subjects(cls, x: Frames, states: Frames | None = None, sizes: tuple[int, ...] = (4, 32)) -> DataSet:
        """Each sequence is of a subject of its own."""
        return cls(x, states, np.arange(len(x)), sizes)

    def split(self, fold: int = 2) -> tuple[DataSet, DataSet]:
        """Training and test part: every third subject is in the test part, or the last third of each sequence."""
        if self.subjects is None:
            cut = [2 * len(item) // 3 for item in self.x]
            parts = list(zip(self.x, cut, strict=True))
            return replace(self, x=[item[:n] for item, n in parts]), replace(self, x=[item[n:] for item, n in parts])
        _, number = np.unique(self.subjects, return_inverse=True)
        return self._part(number % 3 != fold), self._part(number % 3 == fold)

    def _part(self, chosen: np.ndarray) -> DataSet:
        assert self.subjects is not None
        index = np.flatnonzero(chosen)
        states = None if self.states is None else [self.states[i] for i in index]
        return replace(self, x=[self.x[i] for i in index], states=states, subjects=self.subjects[index])


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
    return DataSet.of_subjects(x, states, sizes=(3, 8))


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
    return DataSet.of_subjects(x, sizes=(8, 32))


def sunspots(rng: np.random.Generator) -> DataSet:
    """One series of 330 numbers above zero, in cycles of about eleven of differing height."""
    phase = np.cumsum(2 * np.pi / 11 * rng.uniform(0.7, 1.3, 330))
    height = np.repeat(rng.gamma(4, 25, 40), 11)[:330]
    return DataSet([(height * (1 - np.cos(phase)) / 2 + rng.gamma(2, 4, 330))[:, None]])


def random_walk(rng: np.random.Generator) -> DataSet:
    """Twelve walks in the plane, from the origin."""
    return DataSet.of_subjects([rng.normal(size=(250, 2)).cumsum(0) for _ in range(12)])


def counts(rng: np.random.Generator) -> DataSet:
    """Counts of three things, most of them small, in four states, with uniform noise of one unit added."""
    rates = rng.gamma(1.0, 5.0, (4, 3)) + 0.3
    x = [rng.poisson(rates[chain(200, 0.9, 4, rng)]) + rng.uniform(-0.5, 0.5, (200, 3)) for _ in range(12)]
    return DataSet.of_subjects(x)


def regimes(rng: np.random.Generator) -> DataSet:
    """Daily returns: three volatilities."""
    z = chain(2000, 0.98, 3, rng)
    return DataSet([(np.array([0.005, 0.012, 0.035])[z] * rng.normal(size=2000) + 3e-4)[:, None]], sizes=(3, 8))


def vital_sign(rng: np.random.Generator) -> DataSet:
    """A heart rate that drifts, sampled each minute; one frame in 300 is far off (a sensor that slipped)."""
    x = []
    for _ in range(9):
        level = 75 + 10 * rng.normal()
        item = level + np.convolve(rng.normal(size=360), np.exp(-np.arange(60) / 20), "valid")[:, None]
        item += 0.7 * rng.normal(size=item.shape)
        slipped = rng.random(len(item)) < 1 / 300
        x.append(np.where(slipped[:, None], rng.uniform(0, 300, item.shape), item))
    return DataSet.of_subjects(x, sizes=(4, 32))


def heavy_tails(rng: np.random.Generator) -> DataSet:
    """Student's t of 2.5 degrees of freedom about three means, in three dimensions."""
    mean = 4 * rng.normal(size=(3, 3))
    z = [chain(250, 0.95, 3, rng) for _ in range(9)]
    return DataSet.of_subjects([mean[s] + rng.standard_t(2.5, (250, 3)) for s in z], z, sizes=(3, 16))


def quantised(rng: np.random.Generator) -> DataSet:
    """A temperature and a humidity in whole units, by day and night, with uniform noise of one unit added."""
    x = []
    for _ in range(9):
        wave = np.sin(2 * np.pi * np.arange(240) / 24)[:, None] * [6.0, -15.0] + [15.0, 60.0]
        drift = 0.4 * rng.normal(size=(240, 2)).cumsum(0)
        x.append(np.round(wave + drift + rng.normal(size=(240, 2))) + rng.uniform(-0.5, 0.5, (240, 2)))
    return DataSet.of_subjects(x, sizes=(8, 32))


def few_frames(rng: np.random.Generator) -> DataSet:
    """Three hundred frames of twenty features, three states."""
    mean, mix = 1.2 * rng.normal(size=(3, 20)), 0.3 * rng.normal(size=(20, 20)) + np.eye(20)
    z = [chain(50, 0.9, 3, rng) for _ in range(9)]
    return DataSet.of_subjects([mean[s] + rng.normal(size=(50, 20)) @ mix for s in z], z, sizes=(3, 16))


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
    return DataSet(x, subjects=np.repeat(np.arange(12), 5), sizes=(6, 32))


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
    return DataSet([x], sizes=(6, 32))


SETS: dict[str, Callable[[np.random.Generator], DataSet]] = {
    "activities": activities,
    "ecg": ecg,
    "random walk": random_walk,
    "vital sign": vital_sign,
    "few frames": few_frames,
    "utterances": utterances,
    "sunspots": sunspots,
    "counts": counts,
    "regimes": regimes,
    "heavy tails": heavy_tails,
    "quantised": quantised,
    "air": air,
}
SMALL, CHOOSE, MEASURE = 1, 2, 3  # draws of every set: two to choose on, one to measure on


def drawn(name: str, draw: int) -> DataSet:
    """A set by name; draws are independent."""
    return SETS[name](np.random.default_rng([draw, list(SETS).index(name)]))


def from_folder(folder: Path) -> DataSet:
    """One sequence a file; the last third of each is the test part."""
    x = [pd.read_csv(path).to_numpy(float) for path in sorted(folder.glob("*.csv"))]
    if not x:
        raise SystemExit(f"{folder} has no CSV files; pass a folder with one CSV file for each sequence")
    return DataSet(x)


# -- settings --------------------------------------------------------------------------------------------------

BY_HAND: dict[str, dict[str, Any]] = {
    "1 component": {"observation": GaussianMixture(1)},
    "2 components, floor 0.01": {"observation": GaussianMixture(2, min_covariance=0.01)},
    "1 component, 10 pseudo-frames": {"observation": GaussianMixture(1, prior=PseudoFrames(10))},
}


def candidate(count: float, background: float, mean_count: float | None = None, **options: Any) -> dict[str, Any]:
    """Settings of ``HMM`` that might be its default."""
    prior = PseudoFrames(count, mean_count=mean_count, **options) if count else None
    return {"observation": GaussianMixture(1, prior=prior, background=background)}


CANDIDATES: dict[str, dict[str, Any]] = {
    **{f"{n} pseudo-frames, background 0.01": candidate(n, 0.01) for n in (0, 1, 2, 5, 10)},
    "2 pseudo-frames, background 0.001": candidate(2, 0.001),
    "2 pseudo-frames": candidate(2, 0.0),
    "5 pseudo-frames (0.01 of the mean), background 0.01": candidate(5, 0.01, 0.01),
    "5 pseudo-frames (0.01 of the mean, by volume), background 0.01": candidate(5, 0.01, 0.01, covariance="auto"),
}
DEFAULT = "default"


def accuracy(model: HMM, data: DataSet) -> float:
    """Share of states that are decoded, under the best one-to-one assignment; NaN if not known."""
    if data.states is None:
        return np.nan
    decoded, states = np.concatenate(model.decode(data.x)), np.concatenate(data.states)
    table = np.zeros((model.n_states, int(states.max()) + 1))
    np.add.at(table, (decoded, states), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(states))


def fitted_row(train: DataSet, test: DataSet, n_states: int, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """One model, fitted to the training part and scored on both."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of floors, of starts that disagree: the table has the figures
        model = HMM(n_states, encoding=Standardize(), random_state=seed, **options).fit(train.x)
    return {
        "score": model.score(test.x),
        "train_score": model.score(train.x),
        "accuracy": accuracy(model, test),
        "floor_hits": int(model.history_["floor_hits"].iloc[-1]),
        "steps": len(model.history_) - 1,
        "seconds": time.perf_counter() - began,
    }


def study(parts: Iterable[tuple[str, int, DataSet, DataSet]], settings: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """A row for each set, seed, size and setting; ``parts``: name, seed, training and test part."""
    rows = []
    for name, seed, train, test in parts:
        iid = HMM(1, observation=GaussianMixture(1), encoding=Standardize(), n_init=1).fit(train.x).score(test.x)
        for n_states in train.sizes:
            for setting, options in settings.items():
                found = fitted_row(train, test, n_states, options, seed)
                about = {"data": name, "n_states": n_states, "setting": setting, "seed": seed}
                rows.append({**about, "iid": iid, "gap": float(found["score"]) - iid, **found})
        print(name, seed, flush=True)
    return pd.DataFrame(rows)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, and by what share of the best gap by hand each setting is behind."""
    figures = ["iid", "score", "gap", "accuracy", "floor_hits", "steps", "seconds"]
    groups = frame.groupby(["data", "n_states", "setting"], sort=False)
    means = groups[figures].mean().reset_index()
    means.insert(4, "spread", groups["score"].std().to_numpy())
    by_hand = (
        means[means["setting"].str.startswith(tuple(BY_HAND))].groupby(["data", "n_states"])["gap"].max().rename("best")
    )
    means = means.join(by_hand, on=["data", "n_states"])
    means["behind"] = (means["best"] - means["gap"]) / means["best"].abs()
    return means


def by_setting(means: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting: mean (what is ahead counts as level) and worst ``behind``, and mean accuracy."""
    groups = means.assign(level=means["behind"].clip(lower=0)).groupby("setting", sort=False)
    found = groups.agg(mean_behind=("level", "mean"), worst_behind=("behind", "max"), accuracy=("accuracy", "mean"))
    worst = means.loc[groups["behind"].idxmax()].set_index("setting")
    found["worst_on"] = worst["data"] + " " + worst["n_states"].astype(str)
    return found.reset_index()


def inner_parts(names: list[str], draw: int) -> Iterator[tuple[str, int, DataSet, DataSet]]:
    """Parts of the training parts alone."""
    for name in names:
        train, _ = drawn(name, draw).split()
        yield f"{name}, small", 0, *train.split(0)


def outer_parts(
    names: list[str], draw: int, seeds: int, folder: Path | None = None
) -> Iterator[tuple[str, int, DataSet, DataSet]]:
    """Training and test parts of a draw, and of a folder."""
    sets = {name: drawn(name, draw) for name in names}
    if folder is not None:
        sets[folder.name] = from_folder(folder)
    for name, data in sets.items():
        for seed in range(seeds):
            yield name, seed, *data.split()


# -- when EM stops ---------------------------------------------------------------------------------------------

TOLERANCES = (1e-4, 3e-4, 1e-3, 3e-3)
LIMIT = 100  # EM steps that are taken to be its end


def mixtures(rng: np.random.Generator) -> DataSet:
    """Of the size of a speech corpus: 60 utterances of 39 features, 48 states of 8 Gaussians."""
    means = rng.normal(size=(48, 1, 39)) * 0.4 + rng.normal(size=(48, 8, 39)) * 0.35
    x = []
    for length in rng.integers(150, 450, 60):
        z, m = chain(length, 0.85, 48, rng), rng.integers(8, size=length)
        x.append(means[z, m] + 0.5 * rng.normal(size=(length, 39)))
    return DataSet.of_subjects(x, sizes=(48,))


def stops(
    train: DataSet, test: DataSet, n_states: int, observation: GaussianMixture | Literal["auto"]
) -> Iterator[dict[str, Any]]:
    """Where each tolerance stops EM from one start, and how far from its end: in training and on the test part."""
    options: dict[str, Any] = {"observation": observation, "n_init": 1, "tol": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        end = HMM(n_states, encoding=Standardize(), max_iter=LIMIT, **options).fit(train.x)
        objective = end.history_["objective"].to_numpy()
        n_features = train.x[0].shape[1]
        best = end.score(test.x)
        for tol in TOLERANCES:
            for unit, factor in (("frame", 1), ("value", n_features)):
                if factor == 1 and unit == "value":
                    continue
                small = np.flatnonzero(np.diff(objective) < tol * factor)
                step = int(small[0]) + 1 if len(small) else LIMIT
                model = HMM(n_states, encoding=Standardize(), max_iter=step, **options).fit(train.x)
                losses = {"training_loss": objective[-1] - objective[step], "test_loss": best - model.score(test.x)}
                yield {"tol": tol, "per": unit, "steps": step, **losses}


def tolerances(names: list[str]) -> pd.DataFrame:
    """A row for each set, size and tolerance, from the training parts alone."""
    rows = []
    large, _ = mixtures(np.random.default_rng(SMALL)).split()
    parts = [*inner_parts(names, SMALL), ("mixtures", 0, *large.split())]
    for name, _, train, test in parts:
        for n_states in train.sizes:
            about = {"data": name, "n_features": train.x[0].shape[1], "n_states": n_states}
            observation: GaussianMixture | Literal["auto"] = GaussianMixture(8) if name == "mixtures" else "auto"
            rows += [{**about, **row} for row in stops(train, test, n_states, observation)]
        print(name, flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["choose", "tolerance", "measure"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--data", type=Path, help="measure: a folder of CSV files, one more set")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/defaults"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    def write(frame: pd.DataFrame, name: str) -> None:
        stamped(frame).to_csv(given.out / f"{name}.csv", index=False, float_format="%.5g")
        print(frame.to_string(index=False, float_format="%.3f"))

    if given.mode == "tolerance":
        write(tolerances(given.sets), "tolerance")
        return
    if given.mode == "choose":
        settings = {name: {**options, "n_init": 2} for name, options in {**BY_HAND, **CANDIDATES}.items()}
        parts = [*inner_parts(given.sets, SMALL), *outer_parts(given.sets, CHOOSE, 1)]
        means = summary(study(parts, settings))
    else:
        by_hand = {f"{name}, 5 starts": {**options, "n_init": 5} for name, options in BY_HAND.items()}
        means = summary(study(outer_parts(given.sets, MEASURE, given.seeds, given.data), {DEFAULT: {}, **by_hand}))
    write(means, given.mode)
    write(by_setting(means), f"{given.mode}_summary")


if __name__ == "__main__":
    main()

"""Are the default sizes of networks good when only the time is given? ``experiments/sizes.py [--seconds 20]``.

Six unlike sets of data, made by rule: 300 yearly values, 200 utterances, a genome of 48 kB, lines of a log, sequences
of events, music. ``LSTM(max_seconds=20)`` and ``Transformer(max_seconds=20)`` are fitted on one core beside the same
with sizes set by hand, and scored on a validation part that none of them has seen, in nats a frame, byte or symbol.
``behind`` is how far the default is behind the best size set by hand, as a share of what that gains over ``iid``,
independent steps. The best is chosen on the same part, which favours it.

Seconds are those that the processor worked for this process, so that other work on the machine does not count. Rows
are added to the table as they come; those of another budget stay.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from network_fits import fitted_figures

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/sizes")
Parts = tuple[sm.Sequences, sm.Sequences]
FAMILIES: dict[str, Callable[..., sm.SequenceModel]] = {"lstm": sm.LSTM, "transformer": sm.Transformer}
BY_HAND: dict[str, list[dict[str, int]]] = {
    "lstm": [{"d_model": 32}, {"d_model": 64}, {"d_model": 256}],
    "transformer": [{"d_model": 32, "n_layers": 1}, {"d_model": 64, "n_layers": 2}],
}


def yearly(rng: np.random.Generator) -> Parts:
    """One series of 300 values, in cycles of about eleven of differing height; the last 100 are for validation."""
    phase = np.cumsum(2 * np.pi / 11 * rng.uniform(0.7, 1.3, 400))
    height = np.repeat(rng.gamma(4, 25, 40), 11)[:400]
    x = (height * (1 - np.cos(phase)) / 2 + rng.gamma(2, 4, 400))[:, None]
    return sm.Sequences([x[:300]]), sm.Sequences([x[300:]])


def utterances(rng: np.random.Generator) -> Parts:
    """200 and 50 words of six sounds in 13 smoothed features, from as many speakers who differ in mean."""
    sounds, mix = 1.5 * rng.normal(size=(6, 13)), np.eye(13) + 0.2 * rng.normal(size=(13, 13))

    def word() -> np.ndarray:
        z = np.repeat(rng.permutation(6), rng.integers(4, 12, 6))
        clean = sounds[z] + 0.5 * rng.normal(size=13)
        steps = np.apply_along_axis(lambda f: np.convolve(np.pad(f, 2, "edge"), np.ones(5) / 5, "valid"), 0, clean)
        return (steps + 0.4 * rng.normal(size=steps.shape)) @ mix

    return sm.Sequences([word() for _ in range(200)]), sm.Sequences([word() for _ in range(50)])


def genome(rng: np.random.Generator) -> Parts:
    """48,000 letters: genes of codons of unequal use between stretches of no order, repeats with copying errors."""
    letters = np.array(list("ACGT"))
    codons = ["".join(c) for c in np.stack(np.meshgrid(*[letters] * 3), -1).reshape(-1, 3)]
    use = rng.dirichlet(np.full(64, 0.3))
    repeat = "".join(rng.choice(letters, 300))

    def part() -> str:
        kind = rng.choice(3, p=[0.6, 0.3, 0.1])
        if kind == 0:
            return "ATG" + "".join(rng.choice(codons, 200, p=use)) + "TAA"
        if kind == 1:
            return "".join(rng.choice(letters, 300, p=[0.3, 0.2, 0.2, 0.3]))
        return "".join(c if rng.random() > 0.1 else rng.choice(letters) for c in repeat)

    text = ""
    while len(text) < 60_000:
        text += part()
    return sm.Sequences([text[:48_000]]), sm.Sequences([text[48_000:60_000]])


def log_lines(rng: np.random.Generator) -> Parts:
    """1,500 and 300 lines: a time of day, a level, a service, a message with numbers."""
    services = {"web": ["GET /item/{} 200", "GET /item/{} 404"], "db": ["query {} took {} ms", "pool size {}"]}
    services["auth"] = ["login user{}", "logout user{}", "bad password for user{}"]
    seconds, lines = 0.0, []
    for _ in range(1_800):
        seconds += rng.exponential(20)
        service = str(rng.choice(list(services), p=[0.6, 0.25, 0.15]))
        message = str(rng.choice(services[service]))
        level = "ERROR" if "404" in message or "bad" in message else "INFO"
        clock = time.strftime("%H:%M:%S", time.gmtime(seconds))
        lines.append(f"{clock} {level} {service}: " + message.format(rng.integers(1, 500), rng.integers(1, 90)))
    return sm.Sequences(lines[:1_500]), sm.Sequences(lines[1_500:])


def events(rng: np.random.Generator) -> Parts:
    """400 and 100 sessions of 12 kinds of event; what follows depends on the last two, and some close what opened."""
    follow = rng.dirichlet(np.full(10, 0.15), size=(12, 12))

    def session() -> np.ndarray:
        steps, opened = [0, 1], False
        for _ in range(int(rng.integers(10, 60))):
            if opened and rng.random() < 0.15:
                steps.append(11)
                opened = False
            elif not opened and rng.random() < 0.1:
                steps.append(10)
                opened = True
            else:
                steps.append(int(rng.choice(10, p=follow[steps[-2], steps[-1]])))
        return np.array(steps)

    return sm.Sequences([session() for _ in range(400)]), sm.Sequences([session() for _ in range(100)])


def music(rng: np.random.Generator) -> Parts:
    """60 and 15 pieces, piano rolls of 88 keys: chords of a key by cadences, four steps each, and a melody on top."""
    follow = {0: [3, 4, 5], 3: [4, 0, 1], 4: [0, 5], 5: [3, 1], 1: [4]}
    scale = np.array([0, 2, 4, 5, 7, 9, 11])

    def piece() -> np.ndarray:
        key, degree, roll = int(rng.integers(12)), 0, np.zeros((96, 88))
        tone = int(rng.integers(7))
        for t in range(96):
            if t % 4 == 0:
                degree = int(rng.choice(follow[degree])) if t else 0
                chord = 27 + key + scale[(degree + np.array([0, 2, 4])) % 7]
            roll[t, chord] = 1
            if t % 2 == 0 or rng.random() < 0.3:
                tone = int(np.clip(tone + rng.integers(-2, 3), 0, 13))
            roll[t, 51 + key + scale[tone % 7] + 12 * (tone // 7)] = 1
        return roll

    return sm.Sequences([piece() for _ in range(60)]), sm.Sequences([piece() for _ in range(15)])


SETS: dict[str, Callable[[np.random.Generator], Parts]] = {
    "yearly": yearly,
    "utterances": utterances,
    "genome": genome,
    "log lines": log_lines,
    "events": events,
    "music": music,
}


def independent(data: str, kind: str) -> sm.observations.Observation:
    """Of steps that know nothing of each other."""
    if data == "music":
        return sm.Bernoulli(pseudocount=1.0)
    return sm.GaussianMixture(1, "full") if kind == "vectors" else sm.Categorical(pseudocount=0.01)


def setting_of(sizes: dict[str, int]) -> str:
    """In words."""
    return " ".join(f"{name}={value}" for name, value in sizes.items()) or "default"


def has(file: Path, data: str, family: str, sizes: dict[str, int], seconds: float) -> bool:
    """Whether the table has the row."""
    if not file.exists():
        return False
    keys = pd.read_csv(file)[["data", "family", "setting", "budget"]].itertuples(index=False)
    return (data, family, setting_of(sizes), seconds) in {tuple(key) for key in keys}


def fitted_row(data: str, family: str, sizes: dict[str, int], parts: Parts, seconds: float) -> dict[str, Any]:
    """One model, fitted and scored."""
    observation: dict[str, Any] = {"observation": sm.Bernoulli()} if data == "music" else {}
    model = FAMILIES[family](max_seconds=seconds, **sizes, **observation)
    figures = fitted_figures(model, *parts)
    return {
        "data": data,
        "family": family,
        "setting": setting_of(sizes),
        "budget": seconds,
        "units": int(parts[0].n_units.sum()),
        "parameters": model.n_parameters_,
        "steps": figures["steps"],
        "seconds": model.history_["seconds"].iloc[-1],
        "train_score": figures["train_score"],
        "score": figures["score"],
    }


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """For each set and family the default beside the best by hand."""
    rows = []
    for (data, family), each in frame.groupby(["data", "family"], sort=False):
        by_hand, default = each[each["setting"] != "default"], each[each["setting"] == "default"].iloc[0]
        if by_hand.empty:
            continue
        best = by_hand.loc[by_hand["score"].idxmax()]
        rows.append(
            {
                "data": data,
                "family": family,
                "units": default["units"],
                "iid": default["iid"],
                "default": default["score"],
                "parameters": default["parameters"],
                "best by hand": best["setting"],
                "score by hand": best["score"],
                "behind": (best["score"] - default["score"]) / (best["score"] - default["iid"]),
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--again", action="store_true", help="fit anew what the table has already")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # training reads its clock there
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "sizes.csv"
    for name in given.sets:
        parts = SETS[name](np.random.default_rng([2, list(SETS).index(name)]))
        floor = sm.HMM(1, observation=independent(name, parts[0].kind)).fit(parts[0]).score(parts[1])
        for family in given.families:
            for sizes in [{}, *BY_HAND[family]]:
                if not given.again and has(file, name, family, sizes, given.seconds):
                    continue
                row = fitted_row(name, family, sizes, parts, given.seconds) | {"iid": floor}
                print(row, flush=True)
                frame = pd.concat([*([pd.read_csv(file)] if file.exists() else []), stamped(pd.DataFrame([row]))])
                keys = ["data", "family", "setting", "budget"]
                frame.drop_duplicates(keys, keep="last").to_csv(file, index=False, float_format="%.5g")
    found = pd.read_csv(file)
    print(summary(found[found["budget"] == given.seconds]).to_string(index=False, float_format="%.4g"))


if __name__ == "__main__":
    main()

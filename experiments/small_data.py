"""What should be dropped and averaged where data are few? ``experiments/small_data.py FOLDER [--sets ...]``.

FOLDER has public sets: ``jsb_chorales`` (chords in quarter notes), ``names``, ``japanese_vowels`` (frames of 12
features), ``log_events`` (lines of a log), ``tinyshakespeare`` (its first 100,000 characters) and ``fsdd`` (frames of
one speaker's digits). Networks are fitted to a part of the training data with the default number of steps, and scored
on another part of them in nats a unit; what is held out for results is never read.

``before`` drops 0.1 and keeps the best weights that were seen; the others average weights over a tenth of the steps
taken, and drop as much as they say. Rows are added to the table as they come. Seconds are of the process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from network_fits import add_row, fitted_figures

import seqmodels as sm

OUT = Path("experiments/results/small_data/small_data.csv")
Parts = tuple[Any, Any]
SETTINGS: dict[str, dict[str, float]] = {
    "before": {"dropout": 0.1, "training__averaging": 0.0},
    "averaged": {"dropout": 0.1, "training__averaging": 0.1},
    "averaged, 0.3": {"dropout": 0.3, "training__averaging": 0.1},
    "averaged, 0.5": {"dropout": 0.5, "training__averaging": 0.1},
}
FAMILIES: dict[str, Callable[..., sm.SequenceModel]] = {"lstm": sm.LSTM, "gru": sm.GRU, "transformer": sm.Transformer}


def shuffled(items: list[Any]) -> list[Any]:
    """In an order that is the same each time."""
    return [items[i] for i in np.random.default_rng(0).permutation(len(items))]


def chords(folder: Path) -> Parts:
    """Piano rolls, by the sets' own parts."""
    from chorales import piano_rolls

    parts = piano_rolls(str(next((folder / "jsb_chorales").glob("*.json"))))
    return parts["train"], parts["valid"]


def names(folder: Path) -> Parts:
    """5000 and 1000 of four fifths of the names."""
    every = shuffled((folder / "names" / "names.txt").read_text().split())
    return every[:5_000], every[5_000:6_000]


def vowels(folder: Path) -> Parts:
    """210 and 60 of the training series."""
    lines = (folder / "japanese_vowels" / "JapaneseVowels_TRAIN.ts").read_text().splitlines()
    series = []
    for line in lines:
        if line.strip() and line[0] not in "@#":
            features = [[float(x) for x in part.split(",")] for part in line.split(":")[:-1]]
            frames = np.array(features).T
            series.append(frames[~np.isnan(frames).any(1)])
    series = shuffled(series)
    return series[:210], series[210:]


def log_lines(folder: Path) -> Parts:
    """The first 1300 lines and the next 300, of 1600 that are not held out."""
    lines = [str(line) for line in pd.read_csv(folder / "log_events" / "hdfs.csv")["Content"]]
    return lines[:1_300], lines[1_300:1_600]


def characters(folder: Path) -> Parts:
    """100,000, and 40,000 far behind them."""
    text = (folder / "tinyshakespeare" / "input.txt").read_text()
    return [text[:100_000]], [text[800_000:840_000]]


def digits(folder: Path) -> Parts:
    """Cepstra of one speaker's, 35 and 10 times each; his first five are held out."""
    cepstra = {file.stem: sm.data.audio(file)[0] for file in sorted((folder / "fsdd").glob("*_jackson_*.wav"))}
    number = {name: int(name.split("_")[-1]) for name in cepstra}
    train = [frames for name, frames in cepstra.items() if number[name] >= 15]
    return train, [frames for name, frames in cepstra.items() if 5 <= number[name] < 15]


SETS: dict[str, Callable[[Path], Parts]] = {
    "chords": chords,
    "names": names,
    "vowels": vowels,
    "characters": characters,
    "digits": digits,
    "log lines": log_lines,
}


def fitted_row(data: str, parts: Parts, family: str, setting: str, seed: int) -> dict[str, Any]:
    """One model, fitted and scored."""
    observation: dict[str, Any] = {"observation": sm.Chords()} if data == "chords" else {}
    model = FAMILIES[family](random_state=seed, **observation).set_params(**SETTINGS[setting])
    row = {"data": data, "family": family, "setting": setting, "seed": seed, **fitted_figures(model, *parts)}
    return row | {name: round(row[name], 4) for name in ("train_score", "score")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["lstm", "transformer"])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    given = parser.parse_args()
    torch.set_num_threads(1)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    for name in given.sets:
        parts = SETS[name](given.folder)
        for seed in given.seeds:
            for family in given.families:
                for setting in given.settings:
                    row = fitted_row(name, parts, family, setting, seed)
                    add_row(row, OUT)
    found = pd.read_csv(OUT).drop_duplicates(["data", "family", "setting", "seed"], keep="last")
    keys = {"index": ["data", "family"], "columns": "setting", "values": "score", "sort": False}
    print(found.pivot_table(**keys).to_string(float_format="%.4f"))


if __name__ == "__main__":
    main()

"""What do networks reach in given seconds? ``experiments/given_seconds.py FOLDER [--sets ...] [--seconds 20]``.

FOLDER has public sets: ``tinyshakespeare`` and ``jsb_chorales``, ``names``, ``multi30k``. ``program text`` is 5 MB of
Python sources, those of the standard library, in an order drawn by seed; its words are names, digits and
signs. Of words the 9,999 most frequent of the training part are kept. Networks are fitted to a part of the training
data and scored on another part of it in nats a unit; what is held out for results is never read.

``before`` drops 0.1, keeps the best weights that were seen, is as wide as the data allow, and starts from equal
probabilities of all symbols; ``default`` measures how often the seconds will go over the data, drops and averages by
that, is narrower where they are few batches, and starts from the frequencies of symbols. The others are the default
with a setting changed. Seconds are those that the processor worked for this process, on one thread. Rows are added to
the table as they come.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from network_fits import add_row, fitted_figures
from small_data import chords, names

import seqmodels as sm
from seqmodels.neural import model as network_model
from seqmodels.observations import Observation

OUT = Path("experiments/results/given_seconds/given_seconds.csv")
LARGEST_FILE = 60_000  # characters
N_SYMBOLS = 10_000  # of words
Parts = tuple[Any, Any]
SETTINGS: dict[str, dict[str, Any]] = {
    "before": {"dropout": 0.1, "training__averaging": 0.0},
    "default": {},
    "nothing dropped": {"dropout": 0.0, "training__averaging": 0.0},
    "128 wide": {"d_model": 128},
}
FAMILIES: dict[str, Callable[..., sm.SequenceModel]] = {"lstm": sm.LSTM, "gru": sm.GRU, "transformer": sm.Transformer}


def shakespeare(folder: Path) -> Parts:
    """880,000 characters and the next 60,000, of 1,003,854 that are not held out."""
    text = (folder / "tinyshakespeare" / "input.txt").read_text()
    return [text[:880_000]], [text[880_000:940_000]]


def program_text(folder: Path) -> Parts:
    """5,000,000 characters and the next 60,000."""
    files = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    random.Random(0).shuffle(files)
    text = ""
    for file in files:
        more = file.read_text(errors="ignore")
        if len(more) <= LARGEST_FILE and more.isascii():
            text += more
        if len(text) > 5_060_000:
            break
    return [text[:5_000_000]], [text[5_000_000:5_060_000]]


def numbered(train: list[list[str]], test: list[list[str]]) -> Parts:
    """Words as numbers, 0 for those that are not among the most frequent of the training part."""
    frequent = Counter(word for words in train for word in words).most_common(N_SYMBOLS - 1)
    number = {word: i + 1 for i, (word, _) in enumerate(frequent)}
    parts = [[np.array([number.get(word, 0) for word in words]) for words in part if words] for part in (train, test)]
    return parts[0], parts[1]


def captions(folder: Path) -> Parts:
    """Words of 27,000 English sentences and of the next 2,000."""
    with gzip.open(folder / "multi30k" / "train.en.gz", "rt") as file:
        sentences = [re.findall(r"\w+|[^\w\s]", line.lower()) for line in file]
    return numbered(sentences[:27_000], sentences[27_000:29_000])


def program_words(folder: Path) -> Parts:
    """800,000 words, and 20,000 far behind them."""
    train, test = ([re.findall(r"[a-zA-Z]+|\d|\n|[^\w\s]", text) for text in part] for part in program_text(folder))
    train, test = numbered(train, test)
    return [train[0][:800_000]], [test[0][:20_000]]


def play_words(folder: Path) -> Parts:
    """Words of the characters of ``shakespeare``."""
    train, test = ([re.findall(r"\w+|[^\w\s]|\n", text.lower()) for text in part] for part in shakespeare(folder))
    return numbered(train, test)


SETS: dict[str, Callable[[Path], Parts]] = {
    "shakespeare": shakespeare,
    "program text": program_text,
    "captions, words": captions,
    "program text, words": program_words,
    "shakespeare, words": play_words,
    "chords": chords,
    "names": names,
}


def fitted_row(data: str, parts: Parts, family: str, setting: str, seed: int, seconds: float) -> dict[str, Any]:
    """One model, fitted and scored."""
    observation: dict[str, Any] = {"observation": sm.Chords()} if data == "chords" else {}
    model: Any = FAMILIES[family](random_state=seed, max_seconds=seconds, **observation)
    model.set_params(**SETTINGS[setting])
    with ExitStack() as stack:
        if setting == "before":
            stack.enter_context(patch.object(sm.Categorical, "starting_near", Observation.starting_near))
            stack.enter_context(patch.object(network_model, "FEWEST_BATCHES", 0))
        figures = fitted_figures(model, *parts, scores_training=False)
    return {
        "data": data,
        "family": family,
        "setting": setting,
        "seed": seed,
        "budget": seconds,
        **figures,
        "score": round(figures["score"], 4),
        "dropout": model.dropout_,
        "d_model": model.d_model_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["lstm"])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["before", "default"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # training reads its clock there
    OUT.parent.mkdir(parents=True, exist_ok=True)
    for name in given.sets:
        parts = SETS[name](given.folder)
        for seed in given.seeds:
            for family in given.families:
                for setting in given.settings:
                    row = fitted_row(name, parts, family, setting, seed, given.seconds)
                    add_row(row, OUT)
    found = pd.read_csv(OUT).drop_duplicates(["data", "family", "setting", "seed", "budget"], keep="last")
    keys = {"index": ["data", "family", "budget"], "columns": "setting", "values": "score", "sort": False}
    print(found.pivot_table(**keys).to_string(float_format="%.4f"))


if __name__ == "__main__":
    main()

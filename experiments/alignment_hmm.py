"""How well does an alignment HMM pronounce words? ``python experiments/alignment_hmm.py FILE [--final]``.

``FILE`` is the CMU pronouncing dictionary, ``cmudict.dict``; stress is left out. Words are split 90 / 5 / 5 by seed 0,
all variants of a word in one part. Without ``--final`` each setting is scored on the validation words, among which the
setting of ``--final`` was chosen; with it that one is scored, once, on the test words. Nats a phoneme, ends among the
nats, of each word's first variant and of the likeliest of its variants; ``words`` is the share of a thousand words of
which the best of 4 beams is one of the variants. One row a setting goes to ``experiments/results/alignment_hmm/``, with
the command, the date and the hardware.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from seqmodels import AlignmentHMM, Symbols
from seqmodels.evaluation.comparison.provenance import stamped

RESULTS = Path("experiments/results/alignment_hmm")
Words = dict[str, list[np.ndarray]]  # variants of each word
SETTINGS: list[dict[str, Any]] = [
    {},
    {"window": 3},
    {"window": 3, "jump_prior": False},
    {"jump_prior": False},
    {"window": 1, "previous": False, "jump_prior": False},
    {"window": 1},
    {"null": True},
    {"window": 7},
    {"jump_prior_pseudocount": 2.0},
]
CHOSEN: dict[str, Any] = {}
PREDICTED, SHOWN = 1000, ("knight", "thought", "example", "debris", "phonemes")


def read(path: str) -> tuple[Words, list[str]]:
    """Pronunciations as numbers, and the phonemes."""
    spoken: dict[str, list[list[str]]] = {}
    for line in Path(path).read_text().splitlines():
        name, *phonemes = line.split("#")[0].split()
        spoken.setdefault(name.split("(")[0], []).append([p.rstrip("012") for p in phonemes])
    known = sorted({p for variants in spoken.values() for one in variants for p in one})
    number = {p: i for i, p in enumerate(known)}
    words = {
        word: [np.array(each) for each in dict.fromkeys(tuple(number[p] for p in one) for one in variants)]
        for word, variants in sorted(spoken.items())
    }
    return words, known


def split(words: Words) -> tuple[Words, Words, Words]:
    """The words of the training, validation and test part, by seed 0."""
    names = list(words)
    order, n = np.random.default_rng(0).permutation(len(names)), len(names) // 20
    parts = order[2 * n :], order[:n], order[n : 2 * n]
    train, validation, test = ({names[i]: words[names[i]] for i in part} for part in parts)
    return train, validation, test


def pairs(words: Words) -> tuple[list[str], list[np.ndarray]]:
    return [w for w, each in words.items() for _ in each], [one for each in words.values() for one in each]


def per_phoneme(model: AlignmentHMM, words: Words) -> tuple[float, float]:
    """Of first variants, and of the likeliest of each word."""
    log_prob = iter(model.log_prob(*pairs(words)).tolist())
    found = [[next(log_prob) for _ in variants] for variants in words.values()]
    first = sum(each[0] for each in found) / sum(len(each[0]) for each in words.values())
    best = [int(np.argmax(each)) for each in found]
    units = sum(len(each[i]) for each, i in zip(words.values(), best, strict=True))
    return -first, -sum(max(each) for each in found) / units


def learn(train: Words, held_out: Words, setting: dict[str, Any]) -> tuple[AlignmentHMM, dict[str, object]]:
    n_phonemes = 1 + max(int(one.max()) for each in train.values() for one in each)
    model = AlignmentHMM(encoding=Symbols(n_phonemes), **setting)
    busy = time.process_time()
    model.fit(*pairs(train))
    busy = time.process_time() - busy
    first, closest = per_phoneme(model, held_out)
    row = {
        "setting": ", ".join(f"{k}={v}" for k, v in setting.items()) or "default",
        "parameters": model.n_parameters_,
        "steps": len(model.history_) - 1,
        "cpu_seconds": round(busy, 1),
        "train": round(-float(model.history_["log_prob"].iloc[-1]), 4),
        "first_variant": round(first, 4),
        "closest_variant": round(closest, 4),
    }
    return model, row


def right(model: AlignmentHMM, words: Words) -> float:
    some = list(words)[:PREDICTED]
    found = model.predict(some, n_beams=4)
    return float(np.mean([any(np.array_equal(y, one) for one in words[w]) for w, y in zip(some, found, strict=True)]))


def show(model: AlignmentHMM, words: Words, phonemes: list[str]) -> None:
    for word in SHOWN:
        (places,) = model.decode_alignment([word], words[word][:1])
        print(word, " ".join(f"{phonemes[p]}<{word[a]}" for p, a in zip(words[word][0], places, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--final", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    words, phonemes = read(arguments.file)
    train, validation, test = split(words)
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows = list[dict[str, object]]()
    for setting in [CHOSEN] if arguments.final else SETTINGS:
        model, row = learn(train, test if arguments.final else validation, setting)
        rows.append(row | ({"words": right(model, test)} if arguments.final else {}))
        print(rows[-1], flush=True)
        stamped(pd.DataFrame(rows)).to_csv(RESULTS / f"{'test' if arguments.final else 'validation'}.csv", index=False)
    if arguments.final:
        show(model, words, phonemes)


if __name__ == "__main__":
    main()

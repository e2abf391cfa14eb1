"""How are English words spoken? p(phonemes | letters).

``python experiments/spelling.py cmudict.dict [--seconds S] [--models NAME ...]``

The CMU pronouncing dictionary without stress; nine tenths of the words to train on, a twentieth to stop by and a
twentieth to test, by seed; all variants of a word are in one part. Nats a phoneme, the end in the numerator, over all
variants and over the most probable one of each word; phoneme and word errors against the closest variant, greedily and
by a beam of 5 over the first 1,000. Goals for five minutes of one core: 0.185 nats, 7.3 % and 30 % with multiplicative
attention; 0.23 nats with a Transformer.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from encoder_decoders import Pairs, budget, decoded, models, parser, table, verdict, written

from seqmodels import SequenceModel, Sequences
from seqmodels.data import Vocabulary
from seqmodels.training import GradientTraining

ENTRY = re.compile(r"(?P<word>\S+?)(\(\d+\))? (?P<phonemes>[^#]+)")
BEAM, FOR_THE_BEAM = 5, 1_000
GOALS = {"nats_closest": 0.185, "symbol_errors_greedy": 0.073, "sequence_errors_greedy": 0.30}
FOR_THE_TRANSFORMER = 0.23


@dataclass(frozen=True)
class Words:
    """``variants`` of each word: the letters of a word, and its pronunciations without stress."""

    variants: dict[str, list[tuple[str, ...]]]

    @classmethod
    def read(cls, file: str) -> "Words":
        """Of the dictionary; pronunciations that differ in stress alone are one."""
        variants: dict[str, list[tuple[str, ...]]] = {}
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            entry = ENTRY.match(line)
            assert entry is not None, line
            spoken = tuple(re.sub(r"\d", "", entry["phonemes"]).split())
            known = variants.setdefault(entry["word"], [])
            known += [spoken] if spoken not in known else []
        return cls(variants)

    def split(self, random_state: int = 0) -> dict[str, "Words"]:
        """90 : 5 : 5, by word."""
        words = sorted(self.variants)
        order = np.random.default_rng(random_state).permutation(len(words))
        cut = round(0.05 * len(words))
        parts = {"test": order[:cut], "valid": order[cut : 2 * cut], "train": order[2 * cut :]}
        return {name: Words({words[i]: self.variants[words[i]] for i in rows}) for name, rows in parts.items()}

    def pairs(self, letters: Vocabulary, phonemes: Vocabulary) -> Pairs:
        """``(X, y)``, a pair a variant, named and clustered by its word."""
        rows = [(word, spoken) for word, every in self.variants.items() for spoken in every]
        names = [word for word, _ in rows]
        X = Sequences([letters.encode(word) for word in names], names=names, clusters=names)
        return X, Sequences([phonemes.encode(spoken) for _, spoken in rows], names=names, clusters=names)

    def take(self, n: int | None) -> "Words":
        """The first ``n`` words, or all."""
        return Words(dict(list(self.variants.items())[:n]))


def closest_nats(model: SequenceModel, X: Sequences, y: Sequences) -> float:
    """A phoneme, of the most probable variant of each word: the fewest nats."""
    frame = pd.DataFrame({"word": X.names, "nats": -model.log_prob(X, y), "n": y.n_units})
    best = frame.loc[frame.groupby("word")["nats"].idxmin()]
    return float(best["nats"].sum() / best["n"].sum())


def decoding(
    model: SequenceModel, words: Words, letters: Vocabulary, phonemes: Vocabulary, n_beams: int
) -> dict[str, float]:
    X = Sequences([letters.encode(word) for word in words.variants])
    references = [[phonemes.encode(spoken).tolist() for spoken in every] for every in words.variants.values()]
    return decoded(model, X, references, n_beams)


def candidates(given: argparse.Namespace) -> dict[str, SequenceModel]:
    same: dict[str, Any] = {**budget(given), "d_model": 128, "training": GradientTraining(patience=20)}
    lstm = {**same, "batch_size": 128, "lr": 4e-3, "dropout": 0.05}
    return models(given.models, lstm, {**same, "batch_size": 128, "n_layers": 3})


def claims(frame: pd.DataFrame) -> dict[str, bool]:
    """Whether the goals are reached, as far as their models were asked for."""
    goals = {("multiplicative", column): goal for column, goal in GOALS.items()}
    goals[("transformer", "nats_closest")] = FOR_THE_TRANSFORMER
    return {
        f"{name} {column} {frame.at[name, column]:.4g} <= {goal}": bool(frame.at[name, column] <= goal)
        for (name, column), goal in goals.items()
        if name in frame.index
    }


def main(given: argparse.Namespace) -> None:
    parts = Words.read(given.file).split()
    letters = Vocabulary.learn(parts["train"].variants, unknown="?")
    phonemes = Vocabulary.learn((s for every in parts["train"].variants.values() for s in every), unknown=None)
    train, valid, test = (parts[name].pairs(letters, phonemes) for name in ("train", "valid", "test"))
    all_of_them = parts["test"].take(given.decoded)

    def measure(model: SequenceModel) -> dict[str, Any]:
        greedy = decoding(model, all_of_them, letters, phonemes, 1)
        beam = decoding(model, all_of_them.take(FOR_THE_BEAM), letters, phonemes, BEAM)
        return {"nats_closest": closest_nats(model, *test), **greedy, **beam}

    frame = table(candidates(given), train, valid, test, measure)
    written(frame, given.out / "spelling.csv")
    print(verdict(claims(frame)))


if __name__ == "__main__":
    arguments = parser(__doc__, seconds=300, out="experiments/results/spelling")
    arguments.add_argument("file", help="cmudict.dict")
    main(arguments.parse_args())

"""How are words inflected? p(form | lemma, features).

``python experiments/inflection.py FOLDER [--seconds S] [--models NAME ...]``

CoNLL-SIGMORPHON 2017, task 1, German and English, 10,000 pairs to train on and 1,000 to test. The source is the lemma's
characters and its features, one symbol each; the target the form's characters; all of one vocabulary. The development
part says when to stop. Exact match, greedily and by a beam of 5, and nats a character with the end in the numerator.
Goals for three minutes of one core, of the best model: 90 % German and 96 % English. Characters that training has not
seen are one unknown symbol: such a form is never matched, since what is compared is text.
"""

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from encoder_decoders import Pairs, budget, decoded, models, parser, table, verdict, written

from seqmodels import SequenceModel, Sequences, Symbols
from seqmodels.data import Vocabulary, pairs
from seqmodels.training import GradientTraining

GOALS = {"german": 0.90, "english": 0.96}
PARTS = {"train": "train-high", "valid": "dev", "test": "uncovered-test"}
BEAM = 5
Texts = tuple[list[list[str]], list[str]]


def texts(file: Path) -> Texts:
    """For each line the tokens of lemma and features, and the form."""
    lemmas, forms = pairs(file)
    features = pairs(file, columns=(0, 2))[1]
    sources = [[*str(lemma), *_tags(str(tags))] for lemma, tags in zip(lemmas, features, strict=True)]
    return sources, [str(form) for form in forms]


def _tags(features: str) -> list[str]:
    """In brackets, lest one of a letter be that letter."""
    return [f"[{tag}]" for tag in features.split(";")]


def encoded(part: Texts, vocabulary: Vocabulary) -> Pairs:
    sources, forms = part
    encoded = [Sequences([vocabulary.encode(tokens) for tokens in side]) for side in (sources, forms)]
    return encoded[0], encoded[1]


def candidates(given: argparse.Namespace, n_symbols: int) -> dict[str, SequenceModel]:
    same: dict[str, Any] = {
        **budget(given),
        "d_model": 128,
        "batch_size": 64,
        "training": GradientTraining(patience=20),
        "encoding": Symbols(n_symbols),
    }
    return models(given.models, {**same, "lr": 4e-3}, {**same, "n_layers": 3})


def language(name: str, given: argparse.Namespace) -> pd.DataFrame:
    """A row a model."""
    parts = {part: texts(given.folder / f"{name}-{end}") for part, end in PARTS.items()}
    vocabulary = Vocabulary.learn([*parts["train"][0], *parts["train"][1]])
    train, valid, test = (encoded(parts[part], vocabulary) for part in PARTS)
    sources, spelled = test[0][: given.decoded], [[form] for form in parts["test"][1][: given.decoded]]

    def spell(item: Any) -> str:
        return "".join(vocabulary.decode(item))

    def measure(model: SequenceModel) -> dict[str, Any]:
        greedy, beam = (decoded(model, sources, spelled, n, spell) for n in (1, BEAM))
        exact = {"exact_greedy": 1 - greedy["sequence_errors_greedy"], "exact_beam5": 1 - beam["sequence_errors_beam5"]}
        return {**exact, **greedy, **beam}

    frame = table(candidates(given, len(vocabulary)), train, valid, test, measure)
    return frame.assign(language=name)


def main(given: argparse.Namespace) -> None:
    frame = pd.concat([language(name, given) for name in GOALS])
    written(frame, given.out / "inflection.csv")
    best = frame.groupby("language")["exact_greedy"].max()
    print(verdict({f"{name} {best[name]:.1%} exact >= {goal:.0%}": best[name] >= goal for name, goal in GOALS.items()}))


if __name__ == "__main__":
    arguments = parser(__doc__, seconds=180, out="experiments/results/inflection")
    arguments.add_argument("folder", type=Path, help="with german-train-high, german-dev and so on")
    main(arguments.parse_args())

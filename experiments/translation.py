"""German to English captions.

``python experiments/translation.py FOLDER [--seconds S] [--models NAME ...] [--data tokens|bytes|bpe ...]``

Multi30k: 29,000 pairs of captions to train on, the 1,014 of the validation part to stop by, test 2016 to test on.

``tokens``: as tutorials have it, lower-cased words and marks, those seen once in training one unknown symbol; ours are
cut by a regular expression (spaCy, which tutorials cut by, is no dependency), so the tokens differ a little from
theirs. The figure is the teacher-forced perplexity a token, each end a token; published: 6.26 (ConvS2S) and 5.32
(Transformer). Goals on a GPU: 5.3 with a Transformer, 6.5 with an LSTM; ten minutes of one core are no such budget, and
the learning curves say how far they reach.

``bytes``, ``bpe``: the text as it is, nothing lost; nats a byte of the English side for every model in one table (of
byte pairs a lower bound), BLEU by a beam of 4, and the likelihood against the length of the source.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from encoder_decoders import Pairs, budget, draw_by_length, models, parser, table, verdict, written

from seqmodels import BPE, Bytes, SequenceModel, Sequences, Symbols
from seqmodels.data import Vocabulary, pairs
from seqmodels.encodings import Encoding
from seqmodels.evaluation import bleu
from seqmodels.plot.curves import learning_curves
from seqmodels.training import GradientTraining

PARTS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
TOKEN = re.compile(r"\w+|[^\w\s]")
GOALS = {"transformer": 5.3, "additive": 6.5, "multiplicative": 6.5}  # perplexity, on a GPU
BEAM, ALPHA = 4, 0.6


def texts(folder: Path) -> dict[str, Pairs]:
    return {part: pairs(folder / f"{name}.de.gz", folder / f"{name}.en.gz") for part, name in PARTS.items()}


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text.lower())


def as_symbols(parts: dict[str, Pairs]) -> tuple[dict[str, Pairs], tuple[Vocabulary, Vocabulary]]:
    """Both sides by words of their own."""
    german, english = (Vocabulary.learn([tokens(str(t)) for t in side], min_count=2) for side in parts["train"])
    return {part: (_symbols(X, german), _symbols(y, english)) for part, (X, y) in parts.items()}, (german, english)


def _symbols(side: Sequences, words: Vocabulary) -> Sequences:
    return Sequences([words.encode(tokens(str(text))) for text in side], metadata=side.metadata)


def candidates(given: argparse.Namespace, source: Encoding, target: Encoding) -> dict[str, SequenceModel]:
    same: dict[str, Any] = {
        **budget(given),
        "training": GradientTraining(patience=20),
        "encoding": target,
        "source_encoding": source,
    }
    lstm = {**same, "d_model": 256, "batch_size": 64, "lr": 5e-3, "dropout": 0.2}
    # In a pass or two over the data a small network learns most.
    transformer = {**same, "d_model": 256, "d_feedforward": 512, "n_layers": 2, "batch_size": 64}
    return models(given.models, lstm, transformer, joint="auto" if isinstance(target, Symbols) else target)


def translated(model: SequenceModel, test: Pairs, n: int | None) -> dict[str, float]:
    """How near to the references, by sacrebleu's own rules of tokens."""
    X, y = test
    found = model.predict(X[:n], n_beams=BEAM, alpha=ALPHA, max_length=400)
    return {f"bleu_beam{BEAM}": bleu(list(y[:n]), found)}


def on_tokens(given: argparse.Namespace) -> dict[str, bool]:
    """Writes the table of perplexities and the learning curves."""
    parts, vocabularies = as_symbols(texts(given.folder))
    unknown = np.mean(np.concatenate([np.asarray(item) == 0 for item in parts["test"][1]]))
    print(
        f"tokens: {len(vocabularies[0])} German and {len(vocabularies[1])} English; "
        f"{unknown:.1%} of the test targets unknown"
    )
    found = candidates(given, *(Symbols(len(words)) for words in vocabularies))
    frame = table(found, parts["train"], parts["valid"], parts["test"], lambda model: perplexity(model, parts["test"]))
    written(frame, given.out / "tokens.csv")
    _draw_learning(found, given.out / "tokens-learning", "symbol", "Multi30k, German to English: tokens")
    return {
        f"{name} {frame.at[name, 'perplexity']:.4g} <= {goal}": bool(frame.at[name, "perplexity"] <= goal)
        for name, goal in GOALS.items()
        if name in frame.index
    }


def perplexity(model: SequenceModel, test: Pairs) -> dict[str, float]:
    """A token, the end of each sentence one of them."""
    return {"perplexity": float(np.exp(-model.log_prob(*test).sum() / (test[1].n_units + 1).sum()))}


def on_text(given: argparse.Namespace, kind: str) -> dict[str, bool]:
    """Writes the table of nats a byte, and likelihood against the length of the source."""
    parts = texts(given.folder)
    source, target = (Bytes(), Bytes()) if kind == "bytes" else (BPE(given.pieces), BPE(given.pieces))
    found = candidates(given, source, target)
    frame = table(
        found, *(parts[part] for part in PARTS), lambda model: translated(model, parts["test"], given.decoded)
    )
    written(frame.assign(encoding=repr(target)), given.out / f"{kind}.csv")
    title = f"Multi30k, German to English: {kind}"
    _draw_learning(found, given.out / f"{kind}-learning", "byte", title)
    curves = draw_by_length(found, parts["test"], given.out / f"{kind}-by-length.png", title=title)
    curves.to_csv(given.out / f"{kind}-by-length.csv", float_format="%.5g")
    if not {"fixed", "additive"} <= set(curves):
        return {}
    gap = curves["fixed"] - curves["additive"]
    return {
        f"{kind}: attention pays more in the longest sources than in the shortest": bool(gap.iloc[-1] > gap.iloc[0])
    }


def _draw_learning(found: dict[str, SequenceModel], file: Path, unit: str, title: str) -> None:
    histories = {name: model.history_ for name, model in found.items()}
    learning_curves(histories, unit=unit, title=title).savefig(file.with_suffix(".png"), dpi=160)
    lines = pd.concat([history.assign(model=name) for name, history in histories.items()])
    lines[["model", "step", "seconds", "log_prob", "validation"]].to_csv(
        file.with_suffix(".csv"), index=False, float_format="%.5g"
    )


def main(given: argparse.Namespace) -> None:
    claims: dict[str, bool] = {}
    for kind in given.data:
        claims |= on_tokens(given) if kind == "tokens" else on_text(given, kind)
    print(verdict(claims))


if __name__ == "__main__":
    arguments = parser(__doc__, seconds=600, out="experiments/results/translation")
    arguments.add_argument("folder", type=Path, help="with train.de.gz, train.en.gz and so on")
    arguments.add_argument("--data", nargs="+", choices=("tokens", "bytes", "bpe"), default=["tokens", "bytes", "bpe"])
    arguments.add_argument("--pieces", type=int, default=4_000, help="of byte pairs, on either side")
    main(arguments.parse_args())

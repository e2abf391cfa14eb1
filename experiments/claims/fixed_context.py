"""Is one vector of fixed size a bottleneck between encoder and decoder, and does attention open it?

The target is the source read backwards: ten symbols drawn alike, sources of 3 to 15 symbols to train on, of 3 to 30 to
test. Only the end of the target is left to chance, so zero nats a symbol is perfect and log 10 = 2.30 a guess. Three
encoder-decoders differ in what the decoder is told of the source: one vector, or what additive or multiplicative
attention picks out at every step.

Held, if from sources of 3 to 9 symbols to sources of 10 to 15 the fixed vector loses more nats a symbol than either
attention, and at 16 to 20 symbols, more than any seen in training, it needs at least half a nat a symbol more than the
better attention.
"""

import argparse
from collections.abc import Iterable

import numpy as np
import pandas as pd
from claim import Finding, main
from curves import Panel, drawn

from seqmodels import LSTMSeq2Seq, Sequences, Symbols

CLAIM = (
    "A context vector of fixed size is a bottleneck: encoder-decoders without attention get worse as sources get "
    "longer, and attention removes that (Bahdanau, Cho and Bengio, 2015, figure 2)."
)
KINDS = {"one vector": None, "additive attention": "additive", "multiplicative attention": "multiplicative"}
N_SYMBOLS, LONGEST_SEEN, FAR = 10, 15, 0.5


def reversals(lengths: Iterable[int], seed: int) -> tuple[Sequences, Sequences]:
    """Pairs of a source of each of these lengths and its reverse."""
    rng = np.random.default_rng(seed)
    sources = [rng.integers(N_SYMBOLS, size=n) for n in lengths]
    return Sequences(sources), Sequences([source[::-1] for source in sources])


def accuracy(model: LSTMSeq2Seq, X: Sequences, y: Sequences) -> float:
    """The share of target symbols that greedy decoding has right at their place."""
    found = model.predict(X, n_beams=1, max_length=2 * len(y[0]))
    right = sum(int((a[: len(b)] == b[: len(a)]).sum()) for a, b in zip(found, y, strict=True))
    return right / int(y.n_units.sum())


def by_length(name: str, model: LSTMSeq2Seq, lengths: range, each: int) -> pd.DataFrame:
    tests = {n: reversals([n] * each, 1000 + n) for n in lengths}
    rows = [{"length": n, "nats": -model.score(*test), "accuracy": accuracy(model, *test)} for n, test in tests.items()]
    return pd.DataFrame(rows).assign(name=name)


def measure(given: argparse.Namespace) -> Finding:
    n_train, steps, each, lengths = (
        (2_000, 80, 4, range(3, 31, 3)) if given.quick else (30_000, 2_000, 64, range(3, 31))
    )
    train = reversals(np.random.default_rng(0).integers(3, LONGEST_SEEN + 1, size=n_train), 1)
    frames = []
    for name, attention in KINDS.items():
        model = LSTMSeq2Seq(
            attention=attention,  # type: ignore[arg-type]
            d_model=64,
            dropout=0.0,
            batch_size=64,
            max_steps=steps,
            patience=20,
            encoding=Symbols(N_SYMBOLS),
        ).fit(*train)
        frames.append(by_length(name, model, lengths, each))
    frame = pd.concat(frames, ignore_index=True)
    held, sentence = judged(frame)
    seen = {"longest in training": LONGEST_SEEN}
    panels = [
        Panel(
            frame,
            "length",
            "nats",
            "Likelihood",
            ("symbols in the source", "nats a symbol"),
            "",
            seen,
            {"a guess": np.log(10)},
        ),
        Panel(
            frame,
            "length",
            "accuracy",
            "Greedy decoding",
            ("symbols in the source", "share of symbols right"),
            "",
            seen,
        ),
    ]
    return Finding(CLAIM, held, sentence, frame, drawn(panels, list(KINDS)))


def judged(frame: pd.DataFrame) -> tuple[bool, str]:
    """Whether the claim holds by the rule in the docstring of this script, and a sentence with the figures."""
    bands = pd.cut(frame["length"], [2, 9, LONGEST_SEEN, 20, 30], labels=["3-9", "10-15", "16-20", "21-30"])
    nats = frame.groupby(["name", bands], observed=True)["nats"].mean().unstack()
    loss = nats["10-15"] - nats["3-9"]
    fixed, attentive = nats.loc["one vector"], nats.drop("one vector")
    behind = fixed["16-20"] - attentive["16-20"].min()
    within, beyond = bool(loss["one vector"] > loss.drop("one vector").max()), bool(behind >= FAR)
    told = "; ".join(
        f"{name} {row['3-9']:.3f}, {row['10-15']:.3f}, {row['16-20']:.2f} and {row['21-30']:.2f}"
        for name, row in nats.iterrows()
    )
    return within and beyond, (
        f"within the lengths trained one vector {'loses more' if within else 'does not lose more'} than attention; "
        f"past them, at 16-20 symbols, it is {behind:.2f} nats behind the better attention, where {FAR} were asked. "
        f"Nats a symbol at 3-9, 10-15, 16-20 and 21-30 symbols: {told}."
    )


if __name__ == "__main__":
    main(__doc__, measure)

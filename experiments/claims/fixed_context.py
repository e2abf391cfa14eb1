"""Is one vector of fixed size a bottleneck between encoder and decoder, and does attention open it?

The target is the source read backwards: ten symbols drawn alike, sources of 3 to 15 symbols to train on, of 3 to 30 to
test. Only the end of the target is left to chance, so zero nats a symbol is perfect and log 10 = 2.30 a guess. Three
encoder-decoders differ in what the decoder is told of the source: one vector, or what additive or multiplicative
attention picks out at every step.

Rule: three parts; each kind is trained once, and intervals are 95 % t intervals over the lengths of the sources. At 10
to 15 symbols, within the lengths trained, one vector needs more nats a symbol than each attention; at 16 to 20, more
than any seen in training, it needs more than the better attention; and attention loses nothing past the lengths
trained: from 10-15 to 21-30 symbols the better one loses less than 0.1 nats a symbol.
"""

import argparse
from collections.abc import Iterable

import numpy as np
import pandas as pd
from claim import Finding, main
from curves import Panel, drawn
from verdict import Part, interval_of_mean, of_all, of_interval, part, signed

from seqmodels import LSTMSeq2Seq, Sequences, Symbols
from seqmodels.training import GradientTraining

CLAIM = (
    "A context vector of fixed size is a bottleneck: encoder-decoders without attention get worse as sources get "
    "longer, and attention removes that (Bahdanau, Cho and Bengio, 2015, figure 2)."
)
KINDS = {"one vector": None, "additive attention": "additive", "multiplicative attention": "multiplicative"}
N_SYMBOLS, LONGEST_SEEN, LITTLE = 10, 15, 0.1


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
            training=GradientTraining(patience=20),
            encoding=Symbols(N_SYMBOLS),
        ).fit(*train)
        frames.append(by_length(name, model, lengths, each))
    frame = pd.concat(frames, ignore_index=True)
    sentence = told(frame)
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
    return Finding(CLAIM, parts(frame), sentence, frame, drawn(panels, list(KINDS)))


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    nats = frame.pivot(index="length", columns="name", values="nats")
    fixed, attentive = nats["one vector"], nats.drop(columns="one vector")
    within, past, far = nats.index[(nats.index >= 10) & (nats.index <= LONGEST_SEEN)], slice(16, 20), slice(21, 30)
    seen = {name: interval_of_mean(fixed[within] - attentive[name][within]) for name in attentive}
    each = "; ".join(f"{signed(*ends, 'nats a symbol')} against {name}" for name, ends in seen.items())
    better = attentive.loc[past].mean().idxmin()
    best_far = (attentive.loc[far] - attentive.loc[within].mean()).mean().idxmin()
    lost = interval_of_mean(attentive.loc[far, best_far] - attentive.loc[within, best_far].mean())
    return [
        Part(
            "one vector is worse than attention within the lengths trained",
            of_all(of_interval(low, high) for _, low, high in seen.values()),
            each,
        ),
        part(
            "one vector is worse than the better attention past them",
            (fixed.loc[past] - attentive.loc[past, better]).tolist(),
            f"nats a symbol against {better}",
        ),
        Part(
            "attention loses nothing past the lengths trained",
            of_interval(LITTLE - lost[2], LITTLE - lost[1]),
            f"the better one, {best_far}, loses {signed(*lost, 'nats a symbol')}",
        ),
    ]


def told(frame: pd.DataFrame) -> str:
    """The figures in a sentence."""
    bands = pd.cut(frame["length"], [2, 9, LONGEST_SEEN, 20, 30], labels=["3-9", "10-15", "16-20", "21-30"])
    nats = frame.groupby(["name", bands], observed=True)["nats"].mean().unstack()
    each = "; ".join(
        f"{name} {row['3-9']:.3f}, {row['10-15']:.3f}, {row['16-20']:.2f} and {row['21-30']:.2f}"
        for name, row in nats.iterrows()
    )
    return f"nats a symbol at 3-9, 10-15, 16-20 and 21-30 symbols: {each}."


if __name__ == "__main__":
    main(__doc__, measure)

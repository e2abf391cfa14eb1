"""Do byte-pair pieces explain text better than bytes, and how many should there be?

Claim: a model of pieces explains text better than the same model of bytes, as one step covers several bytes and memory
reaches further (Sennrich et al. 2016; Radford et al. 2019; Al-Rfou et al. 2019, who find bytes behind by less the
larger the network).

Rule: three parts, for the n-gram, for an LSTM at equal steps and for an LSTM that reads the same text as often. Each
held if the best vocabulary above 256 is better than bytes with an interval of the difference above zero, and was
contradicted if it lies below: held-out tenth of the text, moving blocks of bytes, 98.3 % as the best of three is looked
for (Bonferroni).

256 is bytes themselves, an exact likelihood; pieces give a lower bound, as a text has several spellings, so what pieces
win they win for sure. An LSTM is 128 wide. Equal steps: 400 of about 1,024 symbols each, which are more bytes the
longer the pieces. Equal text: as many symbols in all as it takes to read as many bytes as 400 steps of bytes do, so
fewer steps. The n-gram's order is the best of 2 to 7 on a tenth of its training part.
"""

import argparse
import math
from collections.abc import Sequence

import pandas as pd
from choosing import best
from claim import Finding, main
from contrasts import Steps, difference, interval
from curves import Panel, drawn
from material import asks_for_text, text_parts
from matplotlib.figure import Figure
from verdict import Part, of_interval, signed

import seqmodels as sm

CLAIM = (
    "A model of byte-pair pieces explains text better than the same model of bytes, as one step covers several bytes "
    "(Sennrich et al. 2016; Radford et al. 2019)."
)
COLUMNS = ("difference", "ci_low", "ci_high")
SIZES = (256, 512, 1024, 2048)
LOOKS = len(SIZES) - 1  # the best of so many is compared with bytes


def encoding(size: int) -> sm.encodings.Encoding:
    return sm.Bytes() if size == 256 else sm.BPE(size)


def bytes_a_piece(size: int, train: sm.Sequences) -> float:
    pieces = encoding(size).fit(train).encode(train[0])
    return float(train.n_units[0]) / len(pieces)


def models(size: int, train: sm.Sequences, steps: int, bytes_a_piece: float) -> dict[str, sm.SequenceModel]:
    fewer = round(steps / bytes_a_piece)
    return {
        "n-gram": best([sm.NGram(order, encoding=encoding(size)) for order in range(2, 8)], train),
        "lstm, equal steps": sm.LSTM(d_model=128, max_steps=steps, encoding=encoding(size)),
        "lstm, equal text": sm.LSTM(d_model=128, max_steps=fewer, encoding=encoding(size)),
    }


def row(kind: str, size: int, model: Steps, of_bytes: Steps, test: sm.Sequences) -> dict[str, object]:
    """Bits per byte, and by how many less than bytes themselves take."""
    bits = -sum(float(steps.sum()) for steps in model) / math.log(2) / float(test.n_units.sum())
    less = interval(difference(model, of_bytes, test, looks=LOOKS)) if size > 256 else dict.fromkeys(COLUMNS, 0.0)
    gains = {name: value / math.log(2) for name, value in less.items()}
    return {"kind": kind, "vocabulary": size, "bits_per_byte": bits, **gains}


def sweep(sizes: Sequence[int], train: sm.Sequences, test: sm.Sequences, steps: int) -> pd.DataFrame:
    rows, of_bytes = [], dict[str, Steps]()
    for size in sizes:
        length = bytes_a_piece(size, train)
        for kind, model in models(size, train, steps, length).items():
            same = size == 256 and kind == "lstm, equal text"  # of bytes, equal steps are equal text
            scored = of_bytes["lstm, equal steps"] if same else model.fit(train).log_prob_steps(test)
            of_bytes.setdefault(kind, scored)
            rows.append(row(kind, size, scored, of_bytes[kind], test) | {"bytes_a_piece": length})
            print(rows[-1])
    return pd.DataFrame(rows)


def measure(given: argparse.Namespace) -> Finding:
    train, test = text_parts(given)
    sizes = (256, 512) if given.quick else SIZES
    frame = sweep(sizes, train, test, 40 if given.quick else 400)
    best_of = best_vocabularies(frame)
    told = (
        f"{r.kind}: {r.vocabulary:,} pieces are best, {r.bits_per_byte:.3f} bits per byte, "
        f"{r.difference:.3f} [{r.ci_low:.3f}, {r.ci_high:.3f}] "
        "fewer than bytes"
        for r in best_of.itertuples()
    )
    return Finding(CLAIM, parts(frame), "; ".join(told) + ".", frame, picture(frame))


def best_vocabularies(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each kind the row of the best vocabulary above 256."""
    pieces = frame[frame["vocabulary"] > 256]
    return pieces.loc[pieces.groupby("kind", sort=False)["bits_per_byte"].idxmin()]


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    return [
        Part(
            f"pieces are better than bytes: {r.kind}",
            of_interval(r.ci_low, r.ci_high),
            signed(r.difference, r.ci_low, r.ci_high, f"bits per byte fewer with {r.vocabulary:,} pieces"),
        )
        for r in best_vocabularies(frame).itertuples()
    ]


def picture(frame: pd.DataFrame) -> Figure:
    labels = "pieces (256: bytes)", "bits per byte, held out (lower is better)"
    title = "Bits per byte against the size of the vocabulary"
    return drawn([Panel(frame, "vocabulary", "bits_per_byte", title, labels, "x", by="kind")])


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)

"""Do sinusoidal positions extrapolate to sequences longer than any in training, and learned ones not?

Transformers that differ only in how they know positions are trained on pieces of 64 bytes of text, and then score
pieces of 256 bytes: nats a byte by where in the piece. A table of learned positions ends where training did; here it
has 256 rows of which those past 64 were never trained, so what is seen is what becomes of a longer sequence if nothing
forbids it. The others are defined everywhere; rotary, ALiBi and T5's, which see only differences, came later.

Rule: three parts, by 95 % t intervals over bins of 16 positions; each kind is trained once. The loss is what positions
65 to 128 take more than 33 to 64, the second half of the lengths trained. Sinusoidal positions lose less than 0.1 nats
a byte; learned ones lose more than that; sinusoidal ones lose less than learned ones.
"""

import argparse

import numpy as np
import pandas as pd
from claim import Finding, main
from curves import Panel, drawn
from material import asks_for_text, whole_text
from verdict import Part, interval_of_mean, of_interval, part, signed

from seqmodels import Sequences, Transformer

CLAIM = (
    "Sinusoidal positions may allow a Transformer to extrapolate to sequences longer than those seen in training, "
    "which learned ones cannot (Vaswani et al., 2017, section 3.5)."
)
KINDS = ("learned", "sinusoidal", "rotary", "t5", "alibi", None)
NAMES = ("learned", "sinusoidal", "rotary", "T5", "ALiBi", "none")
SEEN, SCORED, BIN, LOSS = 64, 256, 16, 0.1


def by_position(kind: str | None, train: Sequences, test: Sequences, steps: int) -> np.ndarray:
    """Nats (SCORED,) of the bytes at each position of the test pieces, on average."""
    model = Transformer(
        positions=kind,  # type: ignore[arg-type]
        context=SCORED,
        d_model=64,
        n_layers=2,
        n_heads=4,
        convolution_lags=0,  # which would tell the order of neighbours by another way
        dropout=0.0,
        length="given",  # with an end to predict, all pieces would be known to end after 64 bytes
        batch_size=16,
        max_steps=steps,
    ).fit(train, validation=None)
    return -np.mean(model.log_prob_steps(test), axis=0)


def measure(given: argparse.Namespace) -> Finding:
    steps, n_test = (40, 8) if given.quick else (800, 100)
    codes = np.frombuffer(whole_text(given).encode(), np.uint8).astype(np.int64)
    test = Sequences([codes[-n_test * SCORED :]]).chunks(SCORED)
    train = Sequences([codes[: -n_test * SCORED]]).chunks(SEEN)
    curves = {name: by_position(kind, train, test, steps) for name, kind in zip(NAMES, KINDS, strict=True)}
    frame = pd.concat([binned(nats).assign(name=name) for name, nats in curves.items()], ignore_index=True)
    sentence = told(frame)
    labels, seen = ("position in the piece", "nats a byte"), {"longest in training": SEEN + 0.5}
    later = frame[frame["name"].isin(["rotary", "T5", "ALiBi"])]
    panels = [
        Panel(frame, "position", "nats", "All", labels, "", seen),
        Panel(later, "position", "nats", "Those that see differences only", labels, "", seen),
    ]
    return Finding(CLAIM, parts(frame), sentence, frame, drawn(panels, NAMES))


def binned(nats: np.ndarray) -> pd.DataFrame:
    """Means of ``BIN`` positions, at their middle."""
    means = nats.reshape(-1, BIN).mean(1)
    return pd.DataFrame({"position": np.arange(len(means)) * BIN + (BIN + 1) / 2, "nats": means})


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    nats = frame.pivot(index="position", columns="name", values="nats")
    seen, past = ((nats.index > low) & (nats.index < high) for low, high in ((SEEN / 2, SEEN), (SEEN, 2 * SEEN)))
    loss = nats[past] - nats[seen].mean()  # (bins, kinds)
    sinusoidal, learned = (interval_of_mean(loss[name].tolist()) for name in ("sinusoidal", "learned"))
    lost = "nats a byte lost"
    return [
        Part(
            "sinusoidal positions extrapolate",
            of_interval(LOSS - sinusoidal[2], LOSS - sinusoidal[1]),
            signed(*sinusoidal, lost),
        ),
        Part("learned ones do not", of_interval(learned[1], learned[2], above=LOSS), signed(*learned, lost)),
        part(
            "sinusoidal ones extrapolate better than learned ones",
            (loss["learned"] - loss["sinusoidal"]).tolist(),
            "nats a byte less lost",
        ),
    ]


def told(frame: pd.DataFrame) -> str:
    """The figures in a sentence."""
    bands = pd.cut(frame["position"], [0, 32, 64, 128, 256], labels=["1-32", "33-64", "65-128", "129-256"])
    nats = frame.groupby(["name", bands], observed=True)["nats"].mean().unstack()
    each = "; ".join(
        f"{n} {nats.loc[n, '33-64']:.2f}, {nats.loc[n, '65-128']:.2f} and {nats.loc[n, '129-256']:.2f}" for n in NAMES
    )
    return f"nats a byte at positions 33-64, 65-128 and 129-256: {each}."


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)

"""Do several heads do better than one of equal size?

Transformers with 1, 2, 4 and 8 heads, together always as wide as the model, so that all have equally many weights. Two
sources: the bytes of a text, and a sequence that needs two places at once: x_t = x_{t-3} - x_{t-7} modulo 3, one symbol
in ten replaced by one drawn alike, read by a single layer, in which one head can only look at a mixture of the two
places. Of the second the entropy that nothing can undercut is known and subtracted. Modulo 5 and after half as many
steps most runs, of one head or more, had not begun to learn the second, and nothing could be said.

Rule: two parts, one a source: four heads need fewer nats than one. A part held if the 95 % t interval of the difference
over seeds lies above zero, and was contradicted if it lies below.
"""

import argparse

import numpy as np
import pandas as pd
from claim import Finding, main
from curves import Panel, drawn
from material import asks_for_text, whole_text
from verdict import Part, part

from seqmodels import Sequences, Symbols, Transformer

CLAIM = (
    "Several heads attend to several places at once, which averaging inhibits in a single head (Vaswani et al., 2017, "
    "section 3.2.2)."
)
HEADS, N_SYMBOLS, PLACES, NOISE = (1, 2, 4, 8), 3, (3, 7), 0.1
TEXT, TWO = "text", "two places"


def differences(n: int, length: int, seed: int) -> Sequences:
    """``x_t = x_{t-3} - x_{t-7}`` modulo 3, with noise that is remembered."""
    rng = np.random.default_rng(seed)
    x = rng.integers(N_SYMBOLS, size=(n, length))
    for t in range(max(PLACES), length):
        ruled = rng.uniform(size=n) >= NOISE
        x[ruled, t] = (x[ruled, t - PLACES[0]] - x[ruled, t - PLACES[1]]) % N_SYMBOLS
    return Sequences(list(x))


def entropy() -> float:
    """Nats of a step of ``differences`` once both places can be seen."""
    other = NOISE / N_SYMBOLS
    right = 1 - NOISE + other
    return -(right * np.log(right) + (N_SYMBOLS - 1) * other * np.log(other))


def transformer(n_heads: int, n_layers: int, steps: int, seed: int) -> Transformer:
    return Transformer(
        n_heads=n_heads,
        n_layers=n_layers,
        d_model=64,
        context=64,
        convolution_lags=0,  # which would look at neighbours without a head
        dropout=0.0,
        length="given",
        batch_size=16,
        max_steps=steps,
        random_state=seed,
    )


def two_places(n_heads: int, steps: int, seed: int) -> float:
    """Nats a step above the entropy."""
    model = transformer(n_heads, 1, steps, seed).set_params(encoding=Symbols(N_SYMBOLS))
    model.fit(differences(16 * steps, 48, seed), validation=None)
    steps_of = model.log_prob_steps(differences(300, 48, 100))
    return -np.mean([each[max(PLACES) :] for each in steps_of]) - entropy()


def on_text(n_heads: int, steps: int, seed: int, raw: str, n_test: int) -> float:
    """Held-out nats per byte of a Transformer with so many heads."""
    model = transformer(n_heads, 2, steps, seed).fit([raw[:-n_test]], validation=None)
    return -model.score([raw[-n_test:]])


def measure(given: argparse.Namespace) -> Finding:
    steps, n_test, seeds = (30, 2_000, 2) if given.quick else (300, 20_000, 5)
    raw = whole_text(given)
    rows = [
        {"source": source, "heads": n, "seed": seed, "nats": nats, "name": source}
        for seed in range(seeds)
        for n in HEADS
        for source, nats in ((TEXT, on_text(n, steps, seed, raw, n_test)), (TWO, two_places(n, 4 * steps, seed)))
    ]
    frame = pd.DataFrame(rows)
    sentence = told(frame)
    panels = [
        Panel(frame[frame["name"] == TEXT], "heads", "nats", "Text, two layers", ("heads", "nats a byte"), "x"),
        Panel(
            frame[frame["name"] == TWO],
            "heads",
            "nats",
            "Two places, one layer",
            ("heads", "nats a symbol above the entropy"),
            "x",
        ),
    ]
    return Finding(CLAIM, parts(frame), sentence, frame, drawn(panels, [TEXT, TWO]))


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    nats = frame.pivot(index=["source", "seed"], columns="heads", values="nats")
    gain = nats[1] - nats[4]
    return [
        part("four heads are better than one on text", gain[TEXT].tolist(), "nats a byte"),
        part("four heads are better than one where two places matter", gain[TWO].tolist(), "nats a symbol"),
    ]


def told(frame: pd.DataFrame) -> str:
    """The figures in a sentence."""
    nats = frame.pivot(index=["source", "seed"], columns="heads", values="nats")
    gain = (nats[1] - nats[4]).groupby("source").agg(["mean", "sem"])
    means = nats.groupby("source").mean()
    each = "; ".join(
        f"{source}: {', '.join(f'{means.loc[source, n]:.3f}' for n in HEADS)} nats, four heads ahead of one by "
        f"{gain.loc[source, 'mean']:.3f} ± {gain.loc[source, 'sem']:.3f}"
        for source in (TEXT, TWO)
    )
    return f"with 1, 2, 4 and 8 heads, {each}."


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)

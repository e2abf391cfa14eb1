"""Does the gradient of an Elman network vanish with the lag, and an LSTM's less so?

Two measurements of networks of one size. The first is the gradient of log p(x_t | past) with respect to the embedded
input ``lag`` steps back, before training and after some on the bytes of a text, relative to that of lag 1. The second
is a task that can only be done across the lag: one of eight symbols, then noise, then a signal, then the same symbol
again, of whose nats log 8 = 2.08 is a guess. The Elman network of the textbooks has tanh and starts from small uniform
weights, as torch has it; the library's starts from an orthogonal recurrent matrix, a later remedy (Saxe et al., 2014;
Le et al., 2015), and has a capped ReLU by default. All are shown.

Rule: three parts, as there is one run of each. After training on text the textbook network's gradient at lag 32 is less
than a hundredth of that at lag 1; the LSTM's is ten times as large as the textbook's, or more, in the same measure; and
at the longest lag at which any network learns the copy (half the nats of a guess at most), the LSTM needs fewer nats
than the textbook's network, by 0.5 or more. A ratio or difference as far the other way contradicts; between, it is
undecided.
"""

import argparse

import numpy as np
import pandas as pd
import torch
from claim import Finding, main
from curves import Panel, drawn
from material import asks_for_text, whole_text
from verdict import Part, of_one_run

from seqmodels import GRU, LSTM, ElmanRNN, Sequences
from seqmodels.neural.inspection import gradient_by_lag
from seqmodels.neural.recurrent.elman import ElmanNetwork
from seqmodels.neural.recurrent.models import RecurrentModel
from seqmodels.neural.untrained import untrained

CLAIM = (
    "The gradient of a simple recurrent network vanishes with the lag, so that it does not learn long dependencies; "
    "the LSTM's does so less (Hochreiter, 1991; Bengio, Simard and Frasconi, 1994; Hochreiter and Schmidhuber, 1997)."
)
TEXTBOOK = "Elman, tanh"
NAMES = (TEXTBOOK, "Elman, tanh, orthogonal start", "Elman, relu6, orthogonal start", "GRU", "LSTM")
N_COPIED, FILLERS, SIGNAL = 8, (8, 9), 10
GUESS, FAR_BACK = float(np.log(N_COPIED)), 32


def network(name: str, n_symbols: int, steps: int, seed: int) -> RecurrentModel:
    """Untrained, of 64 units, at its own default rate; ``fit`` goes on from these weights."""
    kind = {"LSTM": LSTM, "GRU": GRU}.get(name, ElmanRNN)
    model: RecurrentModel = kind(
        d_model=64, dropout=0.0, bptt=128, batch_size=32, max_steps=steps, warm_start=True, random_state=seed
    )
    if isinstance(model, ElmanRNN):
        model.set_params(nonlinearity="relu6" if "relu6" in name else "tanh")
    untrained(model, n_symbols, length="given")
    inner = model.module_.network
    if name == TEXTBOOK and isinstance(inner, ElmanNetwork):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inner.rnn.reset_parameters()
    return model


def copies(n: int, lag: int, seed: int) -> Sequences:
    """A symbol, noise, the signal, and the symbol again, ``lag`` steps after it was first seen."""
    rng = np.random.default_rng([seed, lag])
    items = rng.choice(FILLERS, size=(n, lag + 1))
    items[:, 0] = items[:, -1] = rng.integers(N_COPIED, size=n)
    items[:, -2] = SIGNAL
    return Sequences(list(items))


def copying(name: str, lag: int, steps: int, seed: int) -> dict[str, object]:
    """Nats of the last symbol, after training on pairs that never come again."""
    model = network(name, SIGNAL + 1, steps, seed).fit(copies(32 * steps, lag, seed), validation=None)
    nats = -np.mean([each[-1] for each in model.log_prob_steps(copies(500, lag, 100 + seed))])
    return {"what": "copy", "name": name, "lag": lag, "seed": seed, "value": nats}


def gradients(name: str, train: Sequences, pieces: Sequences, lags: list[int], steps: int) -> pd.DataFrame:
    """Before and after training, relative to lag 1."""
    model = network(name, 256, steps, 0)
    before = gradient_by_lag(model, pieces, lags).assign(what="before training")
    after = gradient_by_lag(model.fit(train, validation=None), pieces, lags).assign(what="after training")
    for frame in (before, after):
        frame["value"] = frame["gradient"] / frame["gradient"].iloc[0]
    return pd.concat([before, after]).assign(name=name, seed=0)


def measure(given: argparse.Namespace) -> Finding:
    codes = np.frombuffer(whole_text(given)[:400_000].encode(), np.uint8).astype(np.int64)
    lags, steps, seeds = ([5, 20], 40, 1) if given.quick else ([5, 10, 20, 40, 80], 400, 1)
    pieces = Sequences([codes[-20_000:]]).chunks(80)[: 16 if given.quick else 128]
    train, behind = Sequences([codes[:-20_000]]), [1, 2, 4, 8, 16, 32, 64]
    frames = [gradients(name, train, pieces, behind, steps) for name in NAMES]
    tasks = [copying(name, lag, steps, seed) for lag in lags for name in NAMES for seed in range(seeds)]
    frame = pd.concat([*frames, pd.DataFrame(tasks)], ignore_index=True)
    sentence = told(frame)
    steep = ("lag in bytes", "gradient, relative to lag 1")
    panels = [
        Panel(frame[frame["what"] == w], "lag", "value", w.capitalize(), steep, "xy")
        for w in ("before training", "after training")
    ]
    copy = frame[frame["what"] == "copy"]
    panels.append(
        Panel(
            copy,
            "lag",
            "value",
            "Copying across a lag",
            ("lag in symbols", "nats of the copy"),
            "x",
            {},
            {"a guess": GUESS},
        )
    )
    return Finding(CLAIM, parts(frame), sentence, frame, drawn(panels, NAMES))


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    value = frame.pivot_table("value", ["what", "name"], "lag")
    after = value.loc["after training", FAR_BACK]
    copied = value.loc["copy"].dropna(axis=1)
    learned = [lag for lag in copied if (copied[lag] <= GUESS / 2).any()]
    lag = max(learned, default=min(copied))
    ahead = float(copied.loc[TEXTBOOK, lag] - copied.loc["LSTM", lag])
    ratio = float(after["LSTM"] / after[TEXTBOOK])
    relative = f"at lag {FAR_BACK} relative to lag 1"
    return [
        Part(
            "the gradient of a simple recurrent network vanishes",
            of_one_run(float(-np.log10(after[TEXTBOOK])) - 1, 1.0),
            f"{after[TEXTBOOK]:.1e} {relative}",
        ),
        Part("the LSTM's does so less", of_one_run(float(np.log10(ratio)), 1.0), f"{after['LSTM']:.1e} {relative}"),
        Part(
            "so that the LSTM learns longer dependencies",
            of_one_run(ahead, 0.5),
            f"{ahead:+.2f} nats of a copy across {lag} symbols",
        ),
    ]


def told(frame: pd.DataFrame) -> str:
    """The figures in a sentence."""
    value = frame.pivot_table("value", ["what", "name"], "lag")
    before, after = value.loc["before training", FAR_BACK], value.loc["after training", FAR_BACK]
    learned = value.loc["copy"].dropna(axis=1) <= GUESS / 2
    reach = pd.Series({name: max([0, *(lag for lag in learned if learned.loc[name, lag])]) for name in NAMES})
    each = "; ".join(f"{n}: {before[n]:.1e}, {after[n]:.1e}, copies up to lag {reach[n]}" for n in NAMES)
    return (
        f"gradient at lag {FAR_BACK} relative to lag 1 before and after training on text, "
        f"and the longest lag copied: {each}."
    )


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)

"""How much data does each family need?

Claim: with little data counting and small latent-state models win, with much data networks do, so that the curves cross
(Ng & Jordan 2001 for the pair of Bayes and regression; Goodfellow, Bengio & Courville 2016, section 5.2; Hestness et
al. 2017).

Rule: two parts, on text. With the fewest bytes the better of n-gram and HMM is better than both networks; with the most
the better network is better than both of them. Each held if the interval of the difference (best of one kind minus best
of the other) lies above zero, and was contradicted if it lies below: 97.5 %, as each kind has two to choose the best
from (Bonferroni).

Data: text, the bytes just before the last tenth, which is held out for all sizes (--text FILE for more than the
built-in 420,000); and 1,000 to 1,000,000 symbols of a known source, a Markov chain over 12 symbols that remembers two,
whose own log-probability is the line `source`. No family is told its order. The n-gram's order is the best of 2 to 7 on
a tenth of its training part, the HMM's size the best of 8 and 48 states, 20 passes; networks are 96 wide (the
Transformer two layers of 64) and stop early on a tenth held out, at most after 1,500 steps of about 1,024 symbols,
which is three and a half times through all of the text: fewer would leave them hungry for steps, not for data.
"""

import argparse

import numpy as np
import pandas as pd
from choosing import best
from claim import Finding, main
from contrasts import Steps, difference, interval
from curves import Panel, drawn
from material import asks_for_text, text_parts
from matplotlib.figure import Figure
from verdict import Part, of_interval

import seqmodels as sm

CLAIM = (
    "With little data counts and latent states win, with much data networks do: the curves cross (Ng & Jordan 2001; "
    "Goodfellow et al. 2016; Hestness et al. 2017)."
)
SIMPLE, NETWORKS = ("n-gram", "hmm"), ("lstm", "transformer")
N_SYMBOLS, N_TEST = 12, 50_000
STEPS = 1_500


def families(train: sm.Sequences, steps: int) -> dict[str, sm.SequenceModel]:
    sizes = [sm.HMM(k, max_iter=20, length="given") for k in (8, 48)]
    return {
        "n-gram": best([sm.NGram(order, length="given") for order in range(2, 8)], train),
        "hmm": best(sizes, train),
        "lstm": sm.LSTM(d_model=96, max_steps=steps, length="given"),
        "transformer": sm.Transformer(d_model=64, n_layers=2, max_steps=steps, length="given"),
    }


def chain(n: int, *, random_state: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """``(n,)`` symbols of a Markov chain that remembers two, and the log-probability of each given those."""
    rng = np.random.default_rng(random_state)
    table = rng.dirichlet(np.full(N_SYMBOLS, 0.3), size=(N_SYMBOLS, N_SYMBOLS))
    cumulative, uniform = table.cumsum(axis=2), rng.uniform(size=n)
    x = np.zeros(n + 2, dtype=np.int64)
    for t in range(n):
        x[t + 2] = min(int(np.searchsorted(cumulative[x[t], x[t + 1]], uniform[t])), N_SYMBOLS - 1)
    return x[2:], np.log(table[x[:-2], x[1:-1], x[2:]])


def tail(whole: sm.Sequences, n: int) -> sm.Sequences:
    """Its last ``n`` steps: what stands just before the held-out part."""
    return sm.Sequences([whole[0][-n:]])


def curve(
    data: str, train: sm.Sequences, test: sm.Sequences, sizes: list[int], steps: int
) -> tuple[list[dict[str, object]], list[dict[str, Steps]]]:
    """A row for each size and family, and for each size the log-probabilities of each family."""
    rows, scored = [], []
    for n in [*sizes, len(train[0])]:
        part = tail(train, n)
        fitted = {name: model.fit(part) for name, model in families(part, steps).items()}
        scored.append({name: model.log_prob_steps(test) for name, model in fitted.items()})
        for name, model in fitted.items():
            score = float(scored[-1][name][0].sum() / test.n_units[0])
            print(f"{data}, {n:,}, {name}: {score:.4f}")
            row = {"data": data, "n_symbols": int(part.n_units.sum()), "family": name, "score": score}
            rows.append(row | {"n_parameters": model.n_parameters_, "steps": int(model.history_["step"].iloc[-1])})
    return rows, scored


def lead(
    scored: dict[str, Steps], ahead: tuple[str, ...], behind: tuple[str, ...], test: sm.Sequences
) -> dict[str, float]:
    """The best of one kind minus the best of the other."""
    first, second = (max(names, key=lambda name: float(scored[name][0].sum())) for names in (ahead, behind))
    return interval(difference(scored[first], scored[second], test, looks=len(ahead)))


def measure(given: argparse.Namespace) -> Finding:
    steps = 40 if given.quick else STEPS
    text, text_test = text_parts(given)
    symbols, truth = chain((20_000 if given.quick else 1_000_000) + N_TEST)
    drawn, drawn_test = sm.Sequences([symbols[:-N_TEST]]), sm.Sequences([symbols[-N_TEST:]])
    rows, scored = curve("text", text, text_test, [2_000] if given.quick else [1_000, 8_000, 64_000], steps)
    of_chain, _ = curve("Markov chain", drawn, drawn_test, [2_000] if given.quick else [1_000, 30_000], steps)
    floor = [
        {"data": "Markov chain", "n_symbols": n, "family": "source", "score": truth[-N_TEST:].mean()}
        for n in sorted({row["n_symbols"] for row in of_chain})
    ]
    little, much = lead(scored[0], SIMPLE, NETWORKS, text_test), lead(scored[-1], NETWORKS, SIMPLE, text_test)
    frame = pd.DataFrame([*rows, *of_chain, *floor])
    return Finding(CLAIM, parts(little, much), sentence(pd.DataFrame(rows), little, much), frame, picture(frame))


def parts(little: dict[str, float], much: dict[str, float]) -> list[Part]:
    """The verdicts by the rule in the docstring of this script, of the two differences."""
    claims = {"with little data counts and latent states win": little, "with much data networks win": much}
    return [
        Part(claim, of_interval(found["ci_low"], found["ci_high"]), f"{signed(found)} nats per byte")
        for claim, found in claims.items()
    ]


def sentence(text: pd.DataFrame, little: dict[str, float], much: dict[str, float]) -> str:
    least, most = text["n_symbols"].min(), text["n_symbols"].max()
    last = text[(text["n_symbols"] == most) & text["family"].isin(NETWORKS)]
    took = " and ".join(f"{row.steps:,} steps of the {row.family}" for row in last.itertuples())
    return (
        f"on text, with {least:,} bytes the best of counts and states minus the best network is {signed(little)} "
        f"nats per byte; with {most:,} the best network minus the best of counts and states is {signed(much)}, "
        f"after {took}."
    )


def picture(frame: pd.DataFrame) -> Figure:
    labels = "training symbols", "nats per symbol, held out (higher is better)"
    return drawn(
        [
            Panel(rows, "n_symbols", "score", str(data), labels, "x", by="family")
            for data, rows in frame.groupby("data", sort=False)
        ]
    )


def signed(found: dict[str, float]) -> str:
    return f"{found['difference']:+.3f} [{found['ci_low']:+.3f}, {found['ci_high']:+.3f}]"


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)

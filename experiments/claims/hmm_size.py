"""How many states and mixture components should an HMM have?

Claim: more states and more components always explain the training data better, and past some size the held-out data
worse, so that the size must be chosen on held-out data (Rabiner 1989, section V; Bishop 2006, sections 1.1 and 9.2).

Rule: two parts for frames of speech and two for text. (a) Along each line of the picture the training score rises at
every step; contradicted if it falls once. (b) Past some size the held-out score falls: held if the largest model is
worse than the best, with an interval of the difference below zero, 95 % corrected for how many models the best was
chosen from (Bonferroni); undecided if the largest is the best itself, for then larger ones may be worse.

Data: few enough to overfit in minutes: 120 utterances of synthetic speech, 1 to 64 states with 1, 4 or 16 diagonal
Gaussians; and 40,000 bytes of text, 1 to 256 states. One start each, at most 30 EM steps; floors and pseudocounts are
the defaults, which hold back the worst.
"""

import argparse
from typing import Protocol

import pandas as pd
from claim import Finding, main
from contrasts import Steps, difference
from curves import Panel, drawn
from material import asks_for_both, frames, text_parts
from matplotlib.figure import Figure
from verdict import Part, Verdict, of_interval, signed

import seqmodels as sm
from seqmodels.evaluation.statistics.paired import Difference

CLAIM = (
    "More states and components always explain the training data better, and past some size the held-out data worse "
    "(Rabiner 1989; Bishop 2006)."
)
N_UTTERANCES, N_BYTES = 120, 40_000
Scored = dict[str, Steps]


class Less(Protocol):
    """A difference with its interval."""

    difference: float
    low: float
    high: float


def fitted(model: sm.HMM, train: sm.Sequences, test: sm.Sequences) -> tuple[dict[str, float], Steps]:
    model.fit(train)
    scores = {"train": model.score(train), "test": model.score(test), "n_parameters": float(model.n_parameters_)}
    print({"states": model.n_states, **scores})
    return scores | {"floor_hits": float(model.history_["floor_hits"].iloc[-1])}, model.log_prob_steps(test)


def on_speech(given: argparse.Namespace) -> tuple[pd.DataFrame, Scored, sm.Sequences]:
    train, test = frames(given)
    train = train[: 20 if given.quick else N_UTTERANCES]
    rows, steps = [], {}
    for m in (1, 4) if given.quick else (1, 4, 16):
        for k in (1, 8) if given.quick else (1, 2, 4, 8, 16, 32, 64):
            model = sm.HMM(k, observation=sm.GaussianMixture(m), max_iter=10 if given.quick else 30)
            scores, steps[f"{k} x {m}"] = fitted(model, train, test)
            rows.append({"data": "speech", "model": f"{k} x {m}", "line": _line(m), "n_states": k, **scores})
    return pd.DataFrame(rows), steps, test


def on_text(given: argparse.Namespace) -> tuple[pd.DataFrame, Scored, sm.Sequences]:
    train, test = text_parts(given)
    train = sm.Sequences([train[0][-(8_000 if given.quick else N_BYTES) :]])
    rows, steps = [], {}
    for k in (1, 16) if given.quick else (1, 4, 16, 64, 128, 256):
        scores, steps[f"{k}"] = fitted(sm.HMM(k, max_iter=10 if given.quick else 30, length="given"), train, test)
        rows.append({"data": "text", "model": f"{k}", "line": "symbols", "n_states": k, **scores})
    return pd.DataFrame(rows), steps, test


def _line(n_components: int) -> str:
    return f"{n_components} component{'s' * (n_components > 1)}"


def rises(table: pd.DataFrame) -> bool:
    return all(rows.sort_values("n_states")["train"].is_monotonic_increasing for _, rows in table.groupby("line"))


def against_best(table: pd.DataFrame, steps: Scored, test: sm.Sequences) -> tuple[str, str, Difference]:
    """The largest model, the one best on held-out data, and the first minus the second."""
    largest = str(table.loc[table["n_parameters"].idxmax(), "model"])
    best = str(table.loc[table["test"].idxmax(), "model"])
    return largest, best, difference(steps[largest], steps[best], test, looks=len(steps) - 1)


def measure(given: argparse.Namespace) -> Finding:
    tables, parts, told = [], list[Part](), []
    for found, unit in ((on_speech(given), "frame"), (on_text(given), "byte")):
        last = against_best(*found)
        tables.append(found[0])
        parts += judged(found[0], *last, unit)
        told.append(said(found[0], *last, unit))
    frame = pd.concat(tables, ignore_index=True)
    return Finding(CLAIM, parts, "; ".join(told) + ".", frame, picture(frame))


def judged(table: pd.DataFrame, largest: str, best: str, less: Difference | Less, unit: str) -> list[Part]:
    """The verdicts on one data set by the rule in the docstring of this script."""
    data, all_rise = table["data"].iloc[0], rises(table)
    seen = f"{len(table)} models, {table['train'].min():.2f} to {table['train'].max():.2f} nats per {unit}"
    past: Verdict = "undecided" if largest == best else of_interval(-less.high, -less.low)
    worse = (
        f"the largest, of {largest} states, is the best"
        if largest == best
        else f"{largest} is worse than {best}: {signed(less.difference, less.low, less.high, f'nats per {unit}')}"
    )
    return [
        Part(f"on {data} larger models explain the training data better", "held" if all_rise else "contradicted", seen),
        Part(f"on {data} held-out data get worse past some size", past, worse),
    ]


def said(table: pd.DataFrame, largest: str, best: str, less: Difference, unit: str) -> str:
    training = f"{table['data'].iloc[0]}: training scores {'rise' if rises(table) else 'do not always rise'}"
    if largest == best:
        return f"{training}, and the largest model ({largest} states) is the best held out too"
    numbers = f"{less.difference:+.2f} [{less.low:+.2f}, {less.high:+.2f}]"
    return (
        f"{training}, and the largest model ({largest}) minus the best ({best}) is held out {numbers} nats per {unit}"
    )


def picture(frame: pd.DataFrame) -> Figure:
    """Held-out lines, training ones behind them in the same colours."""
    labels = "states (held out full, training dotted)", "nats per unit (higher is better)"
    figure = drawn(
        [
            Panel(rows, "n_states", "test", str(data), labels, "x", by="line")
            for data, rows in frame.groupby("data", sort=False)
        ]
    )
    for axes, (_, table) in zip(figure.axes, frame.groupby("data", sort=False), strict=True):
        for line, (_, rows) in zip(axes.get_lines(), table.groupby("line", sort=False), strict=True):
            axes.plot(rows["n_states"], rows["train"], color=line.get_color(), linestyle=":", linewidth=1.2)
    return figure


if __name__ == "__main__":
    main(__doc__, measure, asks_for_both)

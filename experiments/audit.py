"""Are planted cheats caught, and the families of the library left alone? ``python -m experiments.audit cheats``.

``cheats``: each model of ``tests/evaluation/auditing/cheats.py`` is fitted and audited for every seed (other data,
other draws); it is caught if the rule that it breaks is among the broken ones. ``families``: the models of
``tests/families.py``, briefly fitted in float32 to data of that seed, audited on data of another; any broken rule is a
false accusation.
``every``: one seed of every row of that table. ``table``: the counts of all runs so far, as CSV and Markdown.

Runs are added to ``experiments/results/audit/`` as they come, and not repeated. Effort "quick", alpha 1e-6.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import seqmodels as sm
from tests.evaluation.auditing.cheats import CHEATS, Autoregression, Bigram, Cheat, V, audit_of, symbols, vectors
from tests.families import LENGTHS, SOURCE_LENGTHS, SOURCES, TEXTS, Row, make_data, rows

OUT = Path("experiments/results/audit")
FAMILIES = (
    *("ngram-kneser-ney-symbols-x-stop", "ngram-witten-bell-text-x-stop", "hmm-categorical-symbols-x-given"),
    *("hmm-diag-vectors-x-given", "hmm-bernoulli-bits-x-stop", "elman-tanh-symbols-x-stop", "gru-text-x-stop"),
    *("transformer-pre-symbols-x-stop", "lstm-seq2seq-additive-symbols-y|x-stop"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cheats", "families", "every", "table"])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--part", default="0/1", help="i/n: the i-th of n parts of the runs, for several processes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    OUT.mkdir(parents=True, exist_ok=True)
    if options.what == "table":
        table()
        return
    part, n_parts = map(int, options.part.split("/"))
    kinds = {"cheats": cheats, "families": families, "every": every}
    runs = kinds[options.what](options.seeds)[part::n_parts]
    done = finished()
    file = OUT / f"{options.what}-{part}.csv"
    for name, seed, run in runs:
        if (options.what, name, seed) in done:
            continue
        began = time.process_time()
        result, rule = run()
        row = {
            "what": options.what,
            "model": name,
            "seed": seed,
            "rule": rule,
            "broken": "; ".join(result.broken),
            "not_checked": "; ".join(f.rule for f in result.findings if f.verdict == "not checked"),
            "seconds": round(time.process_time() - began, 2),
            "counter_examples": " | ".join(f.counter_example for f in result.findings if f.verdict == "broken"),
        }
        pd.DataFrame([row]).to_csv(file, mode="a", header=not file.exists(), index=False)


Run = tuple[str, int, Callable[[], tuple[sm.evaluation.Audit, str]]]


def cheats(n_seeds: int) -> list[Run]:
    def run(cheat: Cheat, seed: int) -> Callable[[], tuple[sm.evaluation.Audit, str]]:
        return lambda: (audit_of(cheat, seed)[1], cheat.rule)

    names = ["ForgottenEnd" if c.make.__name__ == "<lambda>" else c.make.__name__ for c in CHEATS]
    return [
        (f"{c.number:02d} {name}", seed, run(c, seed))
        for seed in range(n_seeds)
        for c, name in zip(CHEATS, names, strict=True)
    ]


def families(n_seeds: int) -> list[Run]:
    """And the models without a cheat that cheats are made from."""
    chosen = [row for row in rows() if str(row) in FAMILIES]
    assert len(chosen) == len(FAMILIES)
    runs: list[Run] = []
    for seed in range(n_seeds):
        runs += [(str(row), seed, of_row(row, seed)) for row in chosen]
        runs.append(("(plain Bigram)", seed, plain(Bigram, symbols, seed, n_symbols=V)))
        runs.append(("(plain Autoregression)", seed, plain(Autoregression, vectors, seed)))
    return runs


def every(n_seeds: int) -> list[Run]:
    """But for models of p(x | times): an audit cannot give them times."""
    return [(str(row), i, of_row(row, i)) for i, row in enumerate(rows()) if not row.family.reads_times]


def plain(make: Callable[[Any], Any], data: Callable[[int], Any], seed: int, **options: Any) -> Callable[[], Any]:
    return lambda: (
        sm.audit(make(data(2 * seed)), data(2 * seed + 1), effort="quick", random_state=seed, **options),
        "",
    )


def of_row(row: Row, seed: int) -> Callable[[], tuple[sm.evaluation.Audit, str]]:
    def run() -> tuple[sm.evaluation.Audit, str]:
        model = row.family.make(length=row.length, random_state=seed).fit(*data_of(row, 4 * seed), validation=None)
        return sm.audit(model, *data_of(row, 4 * seed + 2), effort="quick", random_state=seed), ""

    return run


def data_of(row: Row, seed: int) -> tuple[list[Any], list[Any] | None]:
    """As ``Row.data``, of another seed; every symbol is in it, and text is in another order."""
    x = _ordered(make_data(row.kind, LENGTHS, TEXTS, seed, row.n_features), seed)
    if not row.conditional:
        return x, None
    given = row.family.source or row.kind
    lengths = tuple(len(item) for item in x) if row.family.aligned else SOURCE_LENGTHS
    return make_data(given, lengths, SOURCES, seed + 1, row.n_features), x


def _ordered(items: list[Any], seed: int) -> list[Any]:
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]


def all_runs() -> pd.DataFrame:
    files = [file for what in ("cheats", "families", "every") for file in sorted(OUT.glob(f"{what}-*.csv"))]
    return pd.concat([pd.read_csv(file, keep_default_na=False) for file in files]) if files else pd.DataFrame()


def finished() -> set[tuple[str, str, int]]:
    runs = all_runs()
    return set(zip(runs["what"], runs["model"], runs["seed"], strict=True)) if len(runs) else set()


def table() -> None:
    runs = all_runs()
    runs = runs.drop_duplicates(["what", "model", "seed"])
    runs["caught"] = [rule in broken.split("; ") for rule, broken in zip(runs["rule"], runs["broken"], strict=True)]
    runs["accused"] = runs["broken"] != ""
    counts = pd.concat([_of_cheats(runs[runs["what"] == "cheats"]), _of_families(runs[runs["what"] == "families"])])
    rows_once = runs[runs["what"] == "every"]
    counts = pd.concat([counts, _of_families(rows_once.assign(model="rows of tests/families.py"))])
    counts.to_csv(OUT / "table.csv", index=False)
    text = "| model | rule that is broken | runs | caught by that rule | caught by any | accused |\n"
    text += "|---|---|--:|--:|--:|--:|\n"
    for each in counts.to_dict("records"):
        text += "| " + " | ".join(str(each[name]).replace("|", "\\|") for name in counts.columns) + " |\n"
    (OUT / "table.md").write_text(text)
    print(text)
    for row in runs[(runs["what"] != "cheats") & runs["accused"]].to_dict("records"):
        print(row["model"], row["seed"], row["broken"], row["counter_examples"])


def _of_cheats(runs: pd.DataFrame) -> pd.DataFrame:
    groups = runs.groupby(["model", "rule"], sort=True)
    return (
        groups.agg(runs=("seed", "size"), by_rule=("caught", "sum"), by_any=("accused", "sum"))
        .reset_index()
        .assign(accused="")
    )


def _of_families(runs: pd.DataFrame) -> pd.DataFrame:
    groups = runs.groupby(["model", "rule"], sort=True)
    counted = groups.agg(runs=("seed", "size"), accused=("accused", "sum")).reset_index()
    return counted.assign(by_rule="", by_any="")[["model", "rule", "runs", "by_rule", "by_any", "accused"]]


if __name__ == "__main__":
    main()

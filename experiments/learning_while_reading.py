"""What does a model gain that goes on learning while it reads? ``python experiments/learning_while_reading.py FILE``.

    OMP_NUM_THREADS=1 python experiments/learning_while_reading.py input.txt               # 15 minutes on an idle core
    OMP_NUM_THREADS=1 python experiments/learning_while_reading.py input.txt --mixtures    # these alone: 7 minutes
    OMP_NUM_THREADS=1 python experiments/learning_while_reading.py input.txt --singles     # the others alone
    python experiments/learning_while_reading.py --draw                                    # the picture alone

The text is tinyshakespeare in nanoGPT's split: the last 111,540 bytes are scored, as one text, by models of the bytes
before. Static networks, counts and compressors stand beside models that learn from what they have read of the text and
mixtures of several. Seconds are of one core, of the processor, fitting and scoring together; a mixture's hold those of
its members. Nothing was chosen on the part that is scored: the mixtures' members, and what selects their weights, were
chosen with the last 100,000 bytes before it in its place.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.plot.style import GRID, INK, MUTED, STYLE, colour_of, logarithmic
from seqmodels.wrappers.mixture.model import WeightsName

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments/results/learning_while_reading"
PICTURE_OF_DOCS = ROOT / "docs/learning-while-reading.png"
HELD_OUT = 111_540  # bytes
GROUPS = ("static", "compressor", "adaptive", "mixture")


def lstm(seconds: float) -> sm.LSTM:
    return sm.LSTM(batch_size=16, dropout=0.15, max_seconds=seconds)


def transformer(seconds: float) -> sm.Transformer:
    return sm.Transformer(max_seconds=seconds)


# Name, group, and how it is made: each is fitted to the training part alone.
MODELS: dict[str, tuple[str, Callable[[], sm.SequenceModel]]] = {
    "5-gram": ("static", lambda: sm.NGram(5)),
    "7-gram": ("static", lambda: sm.NGram(7)),
    "LSTM, 30 s": ("static", lambda: lstm(30)),
    "LSTM, 120 s": ("static", lambda: lstm(120)),
    "Transformer, 120 s": ("static", lambda: transformer(120)),
    "bz2": ("compressor", lambda: sm.adapt.Compressor("bz2")),
    "xz": ("compressor", lambda: sm.adapt.Compressor("xz")),
    "ppmd": ("compressor", lambda: sm.adapt.Compressor("ppmd")),
    "adaptive 7-gram": ("adaptive", lambda: sm.NGram(7, adaptive=True)),
    "context tree": ("adaptive", sm.ContextTree),
    "context mixing": ("adaptive", sm.ContextMixing),
}
DYNAMIC = ("LSTM, 120 s", "Transformer, 120 s")  # of these fitted models: what reads on
# What is mixed is fitted to all but the first bytes, from which rates and weights are learned.
FOR_WEIGHTS = 40_000  # bytes
MIXED: dict[str, tuple[str, Callable[[], sm.SequenceModel]]] = {
    "LSTM, 185 s": ("static", lambda: lstm(185)),
    "7-gram": ("static", lambda: sm.NGram(7)),
    "frozen context mixing": ("static", lambda: sm.ContextMixing(adaptive=False)),
    "context mixing": ("adaptive", sm.ContextMixing),
    "context mixing, 64 MiB a context": ("adaptive", lambda: sm.ContextMixing(n_buckets=1 << 21)),
}
DYNAMIC_MIXED = "LSTM, 185 s"
# A mixture's name, its weights and its members.
MIXTURES: dict[str, tuple[WeightsName, tuple[str, ...]]] = {
    "gated mixture": ("gated", ("context mixing, 64 MiB a context", "dynamic LSTM, 185 s")),
    "contextual mixture of two": ("contextual", ("frozen context mixing", "LSTM, 185 s")),
    "static mixture of three": ("static", ("frozen context mixing", "LSTM, 185 s", "7-gram")),
    "switching mixture": ("switching", ("context mixing", "dynamic LSTM, 185 s")),
}
# Of the picture: names that do not stand to the right of their points and above, in points, and the side they end at.
PLACES: dict[str, tuple[int, int, str]] = {
    "adaptive 7-gram": (6, -11, "left"),
    "frozen context mixing": (3, -14, "left"),
    "LSTM, 120 s": (-7, -3, "right"),
    "Transformer, 120 s": (-7, -3, "right"),
    "dynamic LSTM, 120 s": (12, 8, "right"),
    "dynamic Transformer, 120 s": (0, -14, "left"),
    "gated mixture": (7, 0, "left"),
    "switching mixture": (7, -9, "left"),
    "static mixture of three": (7, 5, "left"),
    "contextual mixture of two": (7, -7, "left"),
}
# Trained on less than the others: not in the picture.
MEMBERS_ONLY = (DYNAMIC_MIXED, f"dynamic {DYNAMIC_MIXED}", "context mixing, 64 MiB a context")


def _fitted(make: Callable[[], sm.SequenceModel], train: sm.Sequences) -> sm.SequenceModel:
    return make().fit(train)


def _dynamic(network: sm.SequenceModel, train: sm.Sequences) -> sm.Dynamic:
    return sm.Dynamic.from_fitted(network).tune(train)


def scored(model: sm.SequenceModel, test: sm.Sequences, fit_seconds: float) -> dict[str, Any]:
    """The figures of a fitted model."""
    began = time.process_time()
    score = model.score(test)
    seconds = time.process_time() - began
    return {
        "score": round(score, 4),
        "seconds": round(fit_seconds + seconds, 2),
        "score_seconds": round(seconds, 2),
        "memory": model.memory_,
        "n_parameters": model.n_parameters_,
    }


def compile_all() -> None:
    """What is compiled is compiled before anything is timed."""
    text = "to be or not to be " * 20
    members = [sm.ContextMixing().fit([text]), sm.ContextTree(3).fit([text]), sm.NGram(2, adaptive=True).fit([text])]
    for weights in ("switching", "contextual", "gated"):
        sm.Mixture.from_fitted(members, [text], weights=weights).score([text])


def _write(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """These rows, in the place of those of the same names, after the others."""
    frame, path = stamped(pd.DataFrame(rows)), RESULTS / "scores.csv"
    if path.exists():
        before = pd.read_csv(path)
        frame = pd.concat([before[~before["model"].isin(frame["model"])], frame])
    RESULTS.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)
    return frame


def measured(path: Path) -> pd.DataFrame:
    """A row a model, written as they come."""
    measured_singles(path)
    return measured_mixtures(path)


def measured_singles(path: Path) -> pd.DataFrame:
    """Rows of everything but mixtures."""
    text = str(sm.data.text(path)[0])
    train, test = sm.Sequences([text[:-HELD_OUT]]), sm.Sequences([text[-HELD_OUT:]])
    compile_all()
    rows: list[dict[str, Any]] = []
    fitted: dict[str, sm.SequenceModel] = {}
    seconds: dict[str, float] = {}

    def add(name: str, group: str, make: Callable[[], sm.SequenceModel], before: float = 0.0) -> None:
        began = time.process_time()
        fitted[name] = make()
        seconds[name] = before + time.process_time() - began
        rows.append({"model": name, "group": group, **scored(fitted[name], test, seconds[name])})
        print("  ".join(map(str, rows[-1].values())), flush=True)
        _write(rows)

    for name, (group, make) in MODELS.items():
        add(name, group, partial(_fitted, make, train))
    for name in DYNAMIC:
        add(f"dynamic {name}", "adaptive", partial(_dynamic, fitted[name], train), seconds[name])
    return _write(rows)


def measured_mixtures(path: Path) -> pd.DataFrame:
    """Rows of mixtures and, where there is none of the whole training part, of their members."""
    text = str(sm.data.text(path)[0])
    rest, first = sm.Sequences([text[FOR_WEIGHTS:-HELD_OUT]]), sm.Sequences([text[:FOR_WEIGHTS]])
    test = sm.Sequences([text[-HELD_OUT:]])
    compile_all()
    rows: list[dict[str, Any]] = []
    members: dict[str, sm.SequenceModel] = {}
    seconds: dict[str, float] = {}

    def add(name: str, group: str, make: Callable[[], sm.SequenceModel], spent: float, *, is_scored: bool) -> None:
        began = time.process_time()
        members[name] = make()
        seconds[name] = spent + time.process_time() - began
        print(name, round(seconds[name], 1), flush=True)
        if is_scored:
            rows.append({"model": name, "group": group, **scored(members[name], test, seconds[name])})
            print("  ".join(map(str, rows[-1].values())), flush=True)
            _write(rows)

    for name, (group, make) in MIXED.items():
        add(name, group, lambda make=make: make().fit(rest, validation=None), 0.0, is_scored=name not in MODELS)
    name = f"dynamic {DYNAMIC_MIXED}"
    network = sm.Dynamic.from_fitted(members[DYNAMIC_MIXED])
    tuned = partial(network.tune, rest, validation=first)
    add(name, "adaptive", tuned, seconds[DYNAMIC_MIXED], is_scored=True)
    for name, (weights, names) in MIXTURES.items():
        make = partial(sm.Mixture.from_fitted, [members[n] for n in names], first, weights=weights)
        add(name, "mixture", make, sum(seconds[n] for n in names), is_scored=True)
    return _write(rows)


# -- the picture -------------------------------------------------------------------------------------------------------


def picture(frame: pd.DataFrame) -> Figure:
    """Score against seconds of one core, fitting and scoring; the best of all so far as a line."""
    frame = frame[~frame["model"].isin(MEMBERS_ONLY)]
    style = {**STYLE, "font.size": 11.0, "axes.labelsize": 11.0}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.8, 4.4), layout="constrained")
        axes = figure.subplots()
        for i, group in enumerate(GROUPS):
            rows = frame[frame["group"] == group]
            axes.plot(rows["seconds"], rows["score"], "o", color=colour_of(i), markersize=7, label=group)
            for row in rows.itertuples():
                right, above, side = PLACES.get(str(row.model), (6, 4, "left"))
                at: Any = {"xytext": (right, above), "textcoords": "offset points", "ha": side, "fontsize": 9}
                axes.annotate(str(row.model), (row.seconds, row.score), **at)
        best = frame.sort_values("seconds")
        axes.step(best["seconds"], best["score"].cummax(), where="post", color=MUTED, linewidth=1.0, zorder=0)
        axes.set_xlim(0.1, 6000)
        logarithmic(axes)
        axes.set_xlabel("seconds of one core, fitting and scoring")
        axes.set_ylabel("nats per byte (higher is better)")
        axes.tick_params(which="both", color=MUTED, labelcolor=INK)
        axes.grid(color=GRID, linewidth=0.7)
        axes.legend(loc="upper left", frameon=False)
    return figure


def draw(frame: pd.DataFrame) -> None:
    """Write the picture, and for the documentation."""
    figure = picture(frame)
    for path in (RESULTS / "learning-while-reading.png", PICTURE_OF_DOCS):
        figure.savefig(path, dpi=160, metadata={"Software": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text", type=Path, nargs="?", help="tinyshakespeare's input.txt")
    parser.add_argument("--draw", action="store_true", help="draw what was measured")
    parser.add_argument("--mixtures", action="store_true", help="measure the mixtures and their members alone")
    parser.add_argument("--singles", action="store_true", help="measure everything but the mixtures")
    given = parser.parse_args()
    if given.draw:
        draw(pd.read_csv(RESULTS / "scores.csv"))
    else:
        time.perf_counter = time.process_time  # which budgets in seconds look at
        measure = measured_mixtures if given.mixtures else measured_singles if given.singles else measured
        draw(measure(given.text))

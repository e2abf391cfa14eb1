"""What does each family reach in 1, 3, 10 and 30 seconds of fitting? On text and speech that the package carries.

    OMP_NUM_THREADS=1 taskset -c 1 python experiments/score_against_seconds.py    # 10 minutes on an idle core
    python experiments/score_against_seconds.py --draw                            # the picture alone

One process, one core, one seed. Seconds are of the processor, not of the clock, so that other load on the machine
counts little. Each point is a fit of its own, for the schedule of a network follows its budget. Points that are in the
table already are not measured again: delete their rows, or the file, to do so.

Every family has a smaller size for 1 and 3 s and a larger one for 10 and 30 s, all other settings are the defaults;
nothing was tuned for these data. Test parts are the last tenth of the text and a fifth of the speakers. An n-gram
counts once and a VAR takes a few steps of EM: they have one point.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

import seqmodels as sm
from seqmodels.data import builtin_text, speech
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.plot.curves import labels_at_right
from seqmodels.plot.style import GRID, INK, MUTED, STYLE, colour_of, logarithmic

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments/results/score_against_seconds"
PICTURE_OF_DOCS = ROOT / "docs/score-against-seconds.png"
BUDGETS = (1.0, 3.0, 10.0, 30.0)  # seconds
MAX_OF_SMALLER = 3.0  # seconds; above, the larger size
TITLES = {
    "text": "English text, 466 kB\nnats per byte",
    "speech": "Speech of unheard speakers\nnats per frame",
}

Settings = dict[str, Any]
Build = Callable[..., sm.SequenceModel]
# Counted, or fitted in a few steps: no budget.
AT_ONCE: dict[str, dict[str, Callable[[], sm.SequenceModel]]] = {
    "text": {"iid": lambda: sm.HMM(1), "n-gram": lambda: sm.NGram(5)},
    "speech": {
        "iid": lambda: sm.HMM(1, observation=sm.GaussianMixture(1, "full")),
        "VAR": lambda: sm.HMM(1, observation=sm.AutoregressiveGaussian()),
    },
}


def hmm_of_mixtures(n_components: int, **settings: Any) -> sm.HMM:
    """An HMM of Gaussian mixtures."""
    return sm.HMM(observation=sm.GaussianMixture(n_components), **settings)


def autoregressive_hmm(**settings: Any) -> sm.HMM:
    """An HMM whose every state is a VAR."""
    return sm.HMM(observation=sm.AutoregressiveGaussian(), **settings)


# The smaller and the larger size of each.
NETWORKS: dict[str, tuple[Build, Settings, Settings]] = {
    "Elman": (sm.ElmanRNN, {"d_model": 128}, {"d_model": 256}),
    "LSTM": (sm.LSTM, {"d_model": 96}, {"d_model": 192}),
    "GRU": (sm.GRU, {"d_model": 96}, {"d_model": 192}),
    "Transformer": (sm.Transformer, {"d_model": 64, "n_layers": 2}, {"d_model": 128, "n_layers": 3}),
}
SIZES: dict[str, dict[str, tuple[Build, Settings, Settings]]] = {
    "text": {"HMM": (sm.HMM, {"n_states": 64}, {"n_states": 128}), **NETWORKS},
    "speech": {
        "HMM": (hmm_of_mixtures, {"n_states": 24, "n_components": 4}, {"n_states": 64, "n_components": 4}),
        "AR-HMM": (autoregressive_hmm, {"n_states": 8}, {"n_states": 32}),
        **NETWORKS,
    },
}


def parts(name: str) -> tuple[sm.Sequences, sm.Sequences]:
    """The training and the test part."""
    if name == "text":
        return builtin_text().split(0.1)
    return speech(600, 60, features="mfcc").sequences.split(0.2, by="speaker")


def figures(model: sm.SequenceModel, train: sm.Sequences, test: sm.Sequences) -> Settings:
    """Of a fit."""
    began = time.process_time()
    model.fit(train)
    seconds = time.process_time() - began
    history = model.history_
    return {
        "score": round(model.score(test), 4),
        "seconds": round(seconds, 2),
        "steps": int(history["step"].iloc[-1]) if len(history) else 0,
        "n_parameters": model.n_parameters_,
        "converged": model.converged_,
    }


def measured(known: set[tuple[str, str, float]]) -> Iterator[Settings]:
    """A row for each point of the picture, without the data, families and budgets (0: none) that are known."""
    for name in SIZES:
        train, test = parts(name)
        for family, build_default in AT_ONCE[name].items():
            if (name, family, 0.0) not in known:
                yield {"data": name, "family": family, "size": "", **figures(build_default(), train, test)}
        for family, (build, smaller, larger) in SIZES[name].items():
            for budget in (b for b in BUDGETS if (name, family, b) not in known):
                size = smaller if budget <= MAX_OF_SMALLER else larger
                model = build(random_state=0, **size)
                model.set_params(**sm.Budget(seconds=budget).settings(model))
                row = figures(model, train, test)
                yield {"data": name, "family": family, "budget": budget, "size": repr(size), **row}


def warm_up() -> None:
    """What only the first fits of a process take time for: loading, and choosing kernels."""
    for name in SIZES:
        train, _ = parts(name)
        for build, smaller, _ in SIZES[name].values():
            model = build(**smaller)
            model.set_params(**sm.Budget(steps=1).settings(model)).fit(train)


def written(path: Path) -> pd.DataFrame:
    """What was measured as a CSV, written after each row, and printed as it comes; rows that are there are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pd.read_csv(path) if path.exists() else pd.DataFrame()
    known = set(table[["data", "family", "budget"]].fillna(0.0).itertuples(index=False)) if len(table) else set()
    for row in measured(known):
        print("  ".join(f"{value}" for value in row.values()), flush=True)
        table = pd.concat([table, stamped(pd.DataFrame([row]))], ignore_index=True)
        table.to_csv(path, index=False)
    return table


# -- the picture -------------------------------------------------------------------------------------------------------


def picture(frame: pd.DataFrame) -> Figure:
    """Score against seconds of fitting, a panel for each data set."""
    families = list(dict.fromkeys(family for data in SIZES for family in ("n-gram", "VAR", *SIZES[data])))
    style = {**STYLE, "font.size": 12.0, "axes.titlesize": 12.0, "axes.labelsize": 12.0, "axes.titleweight": "normal"}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.8, 4.2), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(TITLES)), TITLES, strict=True):
            rows = frame[frame["data"] == name]
            ends: dict[str, float] = {}
            for family, points in rows[rows["family"] != "iid"].groupby("family", sort=False):
                colour = colour_of(families.index(str(family)))
                seconds, scores = points["seconds"].tolist(), points["score"].tolist()
                axes.plot(seconds, scores, "o-", color=colour, linewidth=1.8, markersize=5)
                if len(points) == 1:  # it has all that it can learn
                    axes.plot([seconds[0], BUDGETS[-1]], [scores[0]] * 2, ":", color=colour, linewidth=1.8)
                ends[str(family)] = scores[-1]
            logarithmic(axes)
            axes.set_xticks(BUDGETS)
            axes.set_xlabel("seconds of fitting on one core")
            axes.set_title(TITLES[name])
            axes.tick_params(which="both", color=MUTED, labelcolor=INK)
            axes.grid(color=GRID, linewidth=0.7)
            figure.draw_without_rendering()  # places the axes, by which labels are kept apart
            labels_at_right(axes, ends, families, size=12.0)
    return figure


def draw(frame: pd.DataFrame) -> None:
    """Write the picture as PNG and SVG, and for the documentation."""
    figure = picture(frame)
    with matplotlib.rc_context({"svg.hashsalt": "seqmodels", "svg.fonttype": "path"}):
        figure.savefig(RESULTS / "score-against-seconds.svg", metadata={"Date": None})
    for path in (RESULTS / "score-against-seconds.png", PICTURE_OF_DOCS):
        figure.savefig(path, dpi=160, metadata={"Software": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="draw what was measured")
    given = parser.parse_args()
    if given.draw:
        draw(pd.read_csv(RESULTS / "scores.csv"))
    else:
        warm_up()
        time.perf_counter = time.process_time  # which budgets in seconds look at
        draw(written(RESULTS / "scores.csv"))

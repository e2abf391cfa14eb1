"""How cost grows with the size of data and models: ``OMP_NUM_THREADS=1 python benchmarks/growth.py`` (4 minutes).

Seconds of the processor, in one thread, of one more iteration of EM, one more step of training, or one pass of
counting, in float32; one size is doubled at a time. A slope is that of log seconds on log size over the three largest
sizes: 1 is proportional. Sizes are small enough for a laptop; docs/scale.md reckons from them to larger ones.

    python benchmarks/growth.py --draw      # the picture alone
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

import seqmodels as sm
from seqmodels.evaluation.provenance import stamped
from seqmodels.plot_style import GRID, MUTED, STYLE, colour_of

RESULTS = Path(__file__).resolve().parent / "results"
PICTURE_OF_DOCS = RESULTS.parent.parent / "docs/growth.png"
REPEATS = 5
RNG = np.random.default_rng(0)


def gaussians(n: int, length: int, n_features: int) -> list[np.ndarray]:
    return [RNG.standard_normal((length, n_features)).astype(np.float32) for _ in range(n)]


def symbols(n: int, length: int, size: int) -> list[np.ndarray]:
    return [RNG.integers(0, size, length) for _ in range(n)]


def em(k: int, data: list[np.ndarray], size: int | None = None) -> Callable[[int], None]:
    """So many iterations of EM."""
    options: Any = {"n_init": 1, "tol": 0.0, "dtype": "float32", "device": "cpu", "length": "given"}
    if size is not None:
        options["encoding"] = sm.Symbols(size)

    def fit(n: int) -> None:
        sm.HMM(k, max_iter=n, **options).fit(data)

    return fit


def training(make: Callable[[int], sm.SequenceModel], data: list[np.ndarray]) -> Callable[[int], None]:
    """So many steps of training."""

    def fit(n: int) -> None:
        make(n).fit(data, validation=None)

    return fit


def counting(n_symbols: int) -> Callable[[int], None]:
    """Text of words of a fixed vocabulary, counted so many times."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefghijklmnop"), random.integers(2, 9))) for _ in range(5_000)]
    text = " ".join(random.choice(words, n_symbols // 5))[:n_symbols]

    def fit(n: int) -> None:
        for _ in range(n):
            sm.NGram(5).fit([text])

    return fit


@dataclass(frozen=True)
class Axis:
    """One size that is doubled: what is measured, its values, and what is run for each."""

    what: str
    size: str
    values: tuple[int, ...]
    run: Callable[[int], Callable[[int], None]]
    steps: tuple[int, int] = (1, 4)  # the difference of the seconds of the two, over their difference


def lstm(**options: int) -> Callable[[int], sm.SequenceModel]:
    shape: Any = {"d_model": 128, "batch_size": 16, "bptt": 64, **options}
    return lambda n: sm.LSTM(max_steps=n, device="cpu", length="given", **shape)


def transformer(**options: int) -> Callable[[int], sm.SequenceModel]:
    shape: Any = {"d_model": 128, "n_layers": 2, "n_heads": 4, "context": 128, "batch_size": 16, **options}
    return lambda n: sm.Transformer(max_steps=n, device="cpu", length="given", **shape)


TEXT = symbols(1, 100_000, 64)
AXES = [
    Axis("EM, Gaussians", "frames a sequence", (500, 1000, 2000, 4000), lambda t: em(32, gaussians(50, t, 8))),
    Axis("EM, Gaussians", "sequences", (100, 200, 400, 800), lambda n: em(32, gaussians(n, 250, 8))),
    Axis("EM, Gaussians", "states", (32, 64, 128, 256), lambda k: em(k, gaussians(50, 500, 8))),
    Axis("EM, Gaussians", "features", (8, 16, 32, 64), lambda d: em(32, gaussians(50, 500, d))),
    Axis("EM, symbols", "states", (32, 64, 128, 256), lambda k: em(k, symbols(50, 500, 64), 64)),
    Axis("EM, symbols", "symbols", (64, 256, 1024, 4096), lambda v: em(32, symbols(50, 500, v), v)),
    Axis("n-gram, order 5", "symbols of text", (125_000, 250_000, 500_000, 1_000_000), counting, (1, 2)),
    Axis("LSTM, a step", "width", (128, 256, 512, 1024), lambda d: training(lstm(d_model=d), TEXT), (2, 6)),
    Axis(
        "LSTM, a step", "symbols", (64, 512, 4096, 32_768), lambda v: training(lstm(), symbols(1, 100_000, v)), (2, 6)
    ),
    Axis("Transformer, a step", "layers", (1, 2, 4, 8), lambda n: training(transformer(n_layers=n), TEXT), (2, 6)),
    Axis("Transformer, a step", "width", (64, 128, 256, 512), lambda d: training(transformer(d_model=d), TEXT), (2, 6)),
    Axis(
        "Transformer, a step",
        "context",
        (64, 256, 1024, 2048),
        lambda t: training(transformer(context=t, batch_size=max(1, 2048 // t)), TEXT),
        (2, 6),
    ),
]


def seconds(axis: Axis, value: int) -> float:
    """Of one more step: the median over repeats."""
    run = axis.run(value)
    run(axis.steps[0])
    each = []
    for _ in range(REPEATS):
        taken = []
        for n in axis.steps:
            began = time.process_time()
            run(n)
            taken.append(time.process_time() - began)
        each.append((taken[1] - taken[0]) / (axis.steps[1] - axis.steps[0]))
    return statistics.median(each)


def slope(group: pd.DataFrame) -> float:
    """Of log seconds on log size, over the three largest sizes."""
    last = group.tail(3)
    return float(np.polyfit(np.log(last["value"]), np.log(last["seconds"]), 1)[0])


def draw(frame: pd.DataFrame) -> None:
    """A panel for each kind of cost: seconds over those of the smallest size, against the size over the smallest."""
    kinds = list(dict.fromkeys(frame["what"]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.8, 5.6), layout="constrained")
        panels = figure.subplots(2, (len(kinds) + 1) // 2, squeeze=False).ravel()
        for axes, kind in zip(panels, kinds, strict=False):
            for i, (size, group) in enumerate(frame[frame["what"] == kind].groupby("size", sort=False)):
                times, longer = group["value"] / group["value"].iloc[0], group["seconds"] / group["seconds"].iloc[0]
                label = f"{size}: {slope(group):.2f}"
                axes.plot(times, longer, "o-", color=colour_of(i), markersize=4, label=label)
            axes.plot([1, 8], [1, 8], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
            axes.set(title=kind, xscale="log", yscale="log")
            for axis in (axes.xaxis, axes.yaxis):
                low, high = axis.get_view_interval()
                axis.set_major_locator(LogLocator(2 if high / low < 50 else 8))
                axis.set_major_formatter("{x:g}")
                axis.set_minor_locator(NullLocator())
            axes.set_ylim(top=axes.get_ylim()[1] * 6)  # room for the legend
            axes.grid(color=GRID, linewidth=0.6)
            place = {"loc": "upper left", "alignment": "left"}
            axes.legend(frameon=False, fontsize=7.5, title="slope", title_fontsize=7.5, **place)
        for axes in panels[len(kinds) :]:
            axes.set_visible(False)
        figure.supxlabel("size, over the smallest", fontsize=9)
        figure.supylabel("seconds, over those of the smallest", fontsize=9)
        for path in (RESULTS / "growth.png", PICTURE_OF_DOCS):
            figure.savefig(path, dpi=160, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="draw what was measured")
    given = parser.parse_args()
    path = RESULTS / "growth.csv"
    if not given.draw:
        rows = []
        for axis in AXES:
            for value in axis.values:
                rows.append({"what": axis.what, "size": axis.size, "value": value, "seconds": seconds(axis, value)})
                print(*rows[-1].values(), flush=True)
            frame = pd.DataFrame(rows)
            slopes = frame.groupby(["what", "size"], sort=False)[["value", "seconds"]].apply(slope)
            frame["slope"] = [slopes[w, s] for w, s in zip(frame["what"], frame["size"], strict=True)]
            stamped(frame).to_csv(path, index=False, float_format="%.4g")
    draw(pd.read_csv(path))


if __name__ == "__main__":
    main()

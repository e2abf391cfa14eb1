"""How cost grows with sizes of data and models, and with processes: ``OMP_NUM_THREADS=1 python benchmarks/growth.py``.

Seconds of one more iteration of EM, one more step of training, or one pass of counting, one size at a time: of the
processor, in one thread, in float32. A slope is that of log seconds on log size over the three largest sizes; beside it
stands the slope of the number of operations at the same sizes, by the formula in ``grows_as``. A line that grows
by more than that is reported as ``FASTER``. ``peak_mb`` is the most memory that it took beyond the data.

Of processes it is seconds of the clock, one thread each, with the same data or batch divided among them; more of them
than cores are ``oversubscribed``, and left out of the slope.

    python benchmarks/growth.py --only LSTM n-gram      # some lines; the others are kept
    python benchmarks/growth.py --only processes     # needs idle cores
    python benchmarks/growth.py --draw               # the picture alone
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
import torch.multiprocessing
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

import seqmodels as sm
from seqmodels.common.peak_memory import peak_memory
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.plot.style import GRID, MUTED, STYLE, colour_of

RESULTS = Path(__file__).resolve().parent / "results"
PICTURE_OF_DOCS = RESULTS.parent.parent / "docs/growth.png"
REPEATS = 3
TOLERANCE = 0.15  # of a slope, before it is called faster than the arithmetic
RNG = np.random.default_rng(0)

# -- what is measured ---------------------------------------------------------------------------------------------


def gaussians(n: int, length: int, n_features: int) -> list[np.ndarray]:
    return [RNG.standard_normal((length, n_features)).astype(np.float32) for _ in range(n)]


def symbols(n: int, length: int, size: int) -> list[np.ndarray]:
    return [RNG.integers(0, size, length) for _ in range(n)]


def em(k: int, data: list[np.ndarray], **options: Any) -> Callable[[int], None]:
    """So many more iterations of EM, without its start."""
    given: Any = {"n_init": 1, "tol": 0.0, "dtype": "float32", "device": "cpu", "length": "given", **options}
    model = sm.HMM(k, max_iter=1, **given).fit(data).set_params(warm_start=True)

    def fit(n: int) -> None:
        model.set_params(max_iter=n).fit(data)

    return fit


def em_of_symbols(k: int, n: int, length: int, size: int) -> Callable[[int], None]:
    return em(k, symbols(n, length, size), encoding=sm.Symbols(size))


FULL: Any = {"observation": sm.GaussianMixture(1, covariance_type="full")}
AUTOREGRESSIVE: Any = {"observation": sm.AutoregressiveGaussian()}


def counting(text: list[Any], order: int = 5) -> Callable[[int], None]:
    """Counted so many times."""

    def fit(n: int) -> None:
        for _ in range(n):
            sm.NGram(order).fit(text)

    return fit


def words(n: int) -> list[str]:
    """Text of a fixed vocabulary of 5,000 words."""
    random = np.random.default_rng(0)
    vocabulary = ["".join(random.choice(list("abcdefghijklmnop"), random.integers(2, 9))) for _ in range(5_000)]
    return [" ".join(random.choice(vocabulary, n // 3))[:n]]


def training(make: Callable[[int], sm.SequenceModel], data: list[np.ndarray]) -> Callable[[int], None]:
    """So many steps of training."""

    def fit(n: int) -> None:
        make(n).fit(data, validation=None)

    return fit


def lstm(n: int, **options: Any) -> sm.SequenceModel:
    given: Any = {"d_model": 128, "batch_size": 64, "bptt": 64, "device": "cpu", "length": "given", **options}
    return sm.LSTM(max_steps=n, **given)


def transformer(n: int, **options: Any) -> sm.SequenceModel:
    shape: Any = {"d_model": 128, "n_layers": 2, "n_heads": 4, "context": 128, "batch_size": 16}
    return sm.Transformer(max_steps=n, device="cpu", length="given", **shape | options)


def train(make: Callable[..., sm.SequenceModel], v: int = 64, **options: Any) -> Callable[[int], None]:
    return training(partial(make, **options), symbols(1, 100_000, v))


@dataclass(frozen=True)
class Axis:
    """One size that is raised.

    Args:
        what, size: the model, and what of it is raised.
        values: the sizes.
        run: of a size, what does so many steps.
        grows_as: the operations of one more step, in words of the field.
        operations: the same as a function of the size, up to a factor.
        steps: what is taken are the differences of the seconds of so many steps.
        memory: what grows in memory, up to a factor, where that is measured.
    """

    what: str
    size: str
    values: tuple[int, ...]
    run: Callable[[int], Callable[[int], None]]
    grows_as: str
    operations: Callable[[int], float]
    steps: tuple[int, int] = (1, 3)
    memory: Callable[[int], float] | None = None


def proportional(size: int) -> float:
    return float(size)


def constant(size: int) -> float:
    return 1.0


def different_strings(n: int, v: int, order: int) -> float:
    """Expected, of up to ``order`` of n symbols drawn uniformly from v."""
    return sum(v**k * -np.expm1(-n / v**k) for k in range(1, order + 1))


STEPS = (2, 6)
DIAGONAL, TABLE = "HMM, Gaussians", "HMM, symbols"
REGRESSION, NGRAM = "HMM, autoregressive", "n-gram"
LSTM, TRANSFORMER, PROCESSES = "LSTM, a step", "Transformer, a step", "processes"
AXES = [
    Axis(
        DIAGONAL,
        "frames a sequence T",
        (4000, 8000, 16_000, 32_000),
        lambda t: em(32, gaussians(50, t, 8)),
        "T",
        proportional,
    ),
    Axis(
        DIAGONAL,
        "sequences n",
        (400, 800, 1600, 3200, 6400),
        lambda n: em(32, gaussians(n, 250, 8)),
        "n",
        proportional,
        memory=proportional,
    ),
    Axis(
        DIAGONAL,
        "states K",
        (32, 64, 128, 256, 512),
        lambda k: em(k, gaussians(50, 500, 8)),
        "K^2 + 2 K D",
        lambda k: k * k + 2 * k * 8,
        memory=proportional,
    ),
    Axis(
        DIAGONAL,
        "features D",
        (32, 64, 128, 256, 512),
        lambda d: em(32, gaussians(50, 500, d)),
        "K + 2 D",
        lambda d: 32 + 2 * d,
    ),
    Axis(
        DIAGONAL,
        "D, full covariance",
        (16, 32, 64, 128),
        lambda d: em(16, gaussians(50, 500, d), **FULL),
        "K + D^2 / 2",
        lambda d: 16 + d * (d + 3) / 2,
    ),
    Axis(
        REGRESSION,
        "sequences n",
        (700, 1400, 2800, 5600),
        lambda n: em(48, gaussians(n, 42, 13), **AUTOREGRESSIVE),
        "n",
        proportional,
        memory=proportional,
    ),
    Axis(
        REGRESSION,
        "states K",
        (24, 48, 96, 192),
        lambda k: em(k, gaussians(700, 42, 13), **AUTOREGRESSIVE),
        "K^2 + 2 K D^2",
        lambda k: k * k + 2 * k * 13 * 13,
    ),
    Axis(
        REGRESSION,
        "features D",
        (8, 16, 32, 64),
        lambda d: em(16, gaussians(700, 42, d), **AUTOREGRESSIVE),
        "K + 2 D^2",
        lambda d: 16 + 2 * d * d,
    ),
    Axis(
        TABLE,
        "states K",
        (64, 128, 256, 512, 1024),
        lambda k: em_of_symbols(k, 50, 500, 64),
        "K^2",
        lambda k: float(k * k),
    ),
    Axis(
        TABLE,
        "symbols V",
        (16_384, 65_536, 262_144, 1_048_576),
        lambda v: em_of_symbols(32, 50, 50, v),
        "V",
        proportional,
    ),
    Axis(
        NGRAM,
        "symbols of text N",
        (250_000, 500_000, 1_000_000, 2_000_000),
        lambda n: counting(words(n)),
        "N log N",
        lambda n: n * float(np.log(n)),
        (1, 2),
        proportional,
    ),
    Axis(
        NGRAM,
        "alphabet V",
        (1024, 4096, 16_384, 65_536, 262_144),
        lambda v: counting(symbols(1, 500_000, v)),
        "1",
        constant,
        (1, 2),
    ),
    Axis(
        NGRAM,
        "order",
        (2, 4, 8, 16),
        lambda n: counting(symbols(1, 300_000, 64), n),
        "different strings",
        lambda n: different_strings(300_000, 64, n),
        (1, 2),
    ),
    Axis(
        LSTM,
        "width d",
        (128, 256, 512, 1024),
        lambda d: train(lstm, d_model=d),
        "8 d^2 + V d",
        lambda d: 8 * d * d + 64 * d,
        STEPS,
        lambda d: 5 * (8 * d * d + 64 * d) + 64 * 64 * 12 * d,
    ),
    Axis(
        LSTM,
        "symbols V",
        (512, 4096, 16_384, 65_536),
        lambda v: train(lstm, v, batch_size=16),
        "8 d + V",
        lambda v: 8.0 * 128 + v,
        STEPS,
    ),
    Axis(
        LSTM,
        "steps of a row T",
        (64, 128, 256, 512),
        lambda t: train(lstm, batch_size=16, bptt=t),
        "T",
        proportional,
        STEPS,
    ),
    Axis(
        TRANSFORMER,
        "layers L",
        (2, 4, 8, 16),
        lambda n: train(transformer, n_layers=n),
        "L",
        proportional,
        STEPS,
        proportional,
    ),
    Axis(
        TRANSFORMER,
        "width d",
        (128, 256, 512, 1024),
        lambda d: train(transformer, d_model=d),
        "12 d^2 + T d",
        lambda d: 12 * d * d + 128.0 * d,
        STEPS,
    ),
    Axis(
        TRANSFORMER,
        "symbols V",
        (512, 4096, 16_384, 65_536),
        lambda v: train(transformer, v),
        "12 L d + V",
        lambda v: 12.0 * 2 * 128 + v,
        STEPS,
    ),
    Axis(
        TRANSFORMER,
        "context T, one window",
        (1024, 2048, 4096, 8192),
        lambda t: train(transformer, context=t, batch_size=1),
        "12 T d + T^2",
        lambda t: 12.0 * t * 128 + t * t,
        (1, 3),
        proportional,
    ),
]
SHARED: dict[str, Callable[[], Callable[[int], None]]] = {
    "HMM, 64 states": lambda: em(64, gaussians(1600, 250, 8)),
    "HMM, autoregressive, 48 states": lambda: em(48, gaussians(2700, 42, 13), **AUTOREGRESSIVE),
    "LSTM 256": lambda: train(lstm, d_model=256, batch_size=32, bptt=128),
    "Transformer 256, 4 layers": lambda: train(transformer, d_model=256, n_layers=4),
}
PROCESS_COUNTS = (1, 2, 4)

# -- measuring ----------------------------------------------------------------------------------------------------


def seconds_of_one_more(run: Callable[[int], None], steps: tuple[int, int], clock: Callable[[], float]) -> float:
    """Of the differences between more steps and fewer, divided by how many more, the median over repeats."""
    run(steps[0])
    each = []
    for _ in range(REPEATS):
        taken = []
        for n in steps:
            began = clock()
            run(n)
            taken.append(clock() - began)
        each.append((taken[1] - taken[0]) / (steps[1] - steps[0]))
    return statistics.median(each)


def measured(axis: Axis) -> Iterator[dict[str, Any]]:
    """A row for each size."""
    for value in axis.values:
        run = axis.run(value)
        row = {"what": axis.what, "size": axis.size, "value": value, "oversubscribed": False}
        row["seconds"] = seconds_of_one_more(run, axis.steps, time.process_time)
        if axis.memory is not None:
            with peak_memory() as peak:
                run(axis.steps[0])
            row |= {"peak_mb": peak.megabytes, "memory_operations": axis.memory(value)}
        yield row | {"grows_as": axis.grows_as, "operations": axis.operations(value)}


def shared(rank: int, n: int, port: int, name: str, results: Any) -> None:
    """What each of n processes does; the first says how long a step took."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if n > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=n)
    seconds = seconds_of_one_more(SHARED[name](), STEPS, time.perf_counter)
    if rank == 0:
        results.put(seconds)
    if n > 1:
        dist.destroy_process_group()


def measured_processes(name: str) -> Iterator[dict[str, Any]]:
    """A row for each number of processes."""
    cores = os.cpu_count() or 1
    for n in PROCESS_COUNTS:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = store.port
        del store
        results = torch.multiprocessing.get_context("spawn").SimpleQueue()
        torch.multiprocessing.spawn(shared, (n, port, name, results), nprocs=n)
        row = {"what": PROCESSES, "size": name, "value": n, "oversubscribed": n > cores, "seconds": results.get()}
        yield row | {"grows_as": "1 / processes", "operations": 1 / n}


def slope(group: pd.DataFrame, column: str) -> float:
    """Of the logarithm of a column on that of the size, over the three largest sizes."""
    last = group[~group["oversubscribed"]].dropna(subset=[column]).tail(3)
    return float(np.polyfit(np.log(last["value"]), np.log(last[column]), 1)[0]) if len(last) > 1 else float("nan")


def with_slopes(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The rows of one line, with slopes, measured and expected."""
    group = pd.DataFrame(rows)
    group["slope"], group["expected"] = slope(group, "seconds"), slope(group, "operations")
    if "peak_mb" in group:
        group["memory_slope"] = slope(group, "peak_mb")
        group["memory_expected"] = slope(group, "memory_operations")
    return group.drop(columns=["operations", "memory_operations"], errors="ignore")


def report(group: pd.DataFrame) -> None:
    """A line for each row, and the slopes."""
    first = group.iloc[0]
    print(group[[c for c in ("what", "size", "value", "seconds", "peak_mb") if c in group]].to_string(index=False))
    word = "FASTER" if first["slope"] > first["expected"] + TOLERANCE else ""
    print(f"  slope {first['slope']:.2f}, of {first['grows_as']}: {first['expected']:.2f} {word}")
    if "memory_slope" in group:
        word = "FASTER" if first["memory_slope"] > first["memory_expected"] + TOLERANCE else ""
        print(f"  slope of memory {first['memory_slope']:.2f}, expected {first['memory_expected']:.2f} {word}")
    print(flush=True)


def merged(path: Path, group: pd.DataFrame) -> pd.DataFrame:
    """What was measured before, with this line in its place, in the order of the script."""
    keys = [(axis.what, axis.size) for axis in AXES] + [(PROCESSES, name) for name in SHARED]
    lines = {}
    if path.exists():
        lines = dict(iter(pd.read_csv(path).groupby(["what", "size"], sort=False)))
    lines[group["what"].iloc[0], group["size"].iloc[0]] = group
    return pd.concat([lines[key] for key in keys if key in lines])


# -- the picture --------------------------------------------------------------------------------------------------


def draw(frame: pd.DataFrame, folder: Path) -> None:
    """A panel for each kind of model, one of processes and one of memory: figures over those of the smallest size."""
    kinds = list(dict.fromkeys(frame["what"]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.2, 10.2), layout="constrained")
        panels = figure.subplots(3, 3, squeeze=False).ravel()
        for axes, kind in zip(panels, kinds, strict=False):
            title = kind if kind != PROCESSES else "processes (hollow: more than cores)"
            _panel(axes, title, frame[frame["what"] == kind], "seconds", "slope", "expected")
        memory = frame[frame["peak_mb"].notna()] if "peak_mb" in frame else frame[:0]
        _panel(panels[len(kinds)], "memory", memory, "peak_mb", "memory_slope", "memory_expected")
        for axes in panels[len(kinds) + 1 :]:
            axes.set_visible(False)
        figure.supxlabel("size, over the smallest", fontsize=9)
        figure.supylabel("seconds of a step, or peak memory, over those of the smallest size", fontsize=9)
        figure.savefig(folder / "growth.png", dpi=150, metadata={"Software": None})
        if folder == RESULTS:
            figure.savefig(PICTURE_OF_DOCS, dpi=150, metadata={"Software": None})


def _panel(axes: Any, title: str, frame: pd.DataFrame, column: str, slope: str, expected: str) -> None:
    """Lines with their slopes; dashed: what the operations come to, from the first of the sizes that count on."""
    lowest, highest = 1.0, 1.0
    for i, ((what, size), group) in enumerate(frame.groupby(["what", "size"], sort=False)):
        times, ratio = group["value"] / group["value"].iloc[0], group[column] / group[column].iloc[0]
        name = size
        if column != "seconds":
            name = f"{what.removeprefix('HMM, ').removesuffix(', a step')}, {size.removesuffix(', one window')}"
        label = f"{name}: {group[slope].iloc[0]:.2f} ({group[expected].iloc[0]:.2f})"
        axes.plot(times, ratio, "o-", color=colour_of(i), markersize=3.5, label=label)
        counts = ~group["oversubscribed"].astype(bool)
        (begin_x, *_, end_x), begin_y = times[counts].tail(3), ratio[counts].tail(3).iloc[0]
        end_y = begin_y * (end_x / begin_x) ** group[expected].iloc[0]
        axes.plot([begin_x, end_x], [begin_y, end_y], color=colour_of(i), linewidth=1, linestyle=(0, (2, 2)))
        if not counts.all():
            axes.plot(times[~counts], ratio[~counts], "o", color=colour_of(i), markerfacecolor="white", markersize=5)
        lowest, highest = min(lowest, ratio.min(), end_y), max(highest, ratio.max(), end_y)
    axes.set(title=title, xscale="log", yscale="log")
    # Room for the legend, of some 7 % of the height a line.
    share = 0.075 * (1 + len(axes.get_lines()) / 2)
    low, high = np.log(lowest / 1.2), np.log(highest * 1.2)
    axes.set_ylim(np.exp(low), np.exp(low + (high - low) / (1 - share)))
    for axis in (axes.xaxis, axes.yaxis):
        least, most = axis.get_view_interval()
        axis.set_major_locator(LogLocator(2 if most / least < 80 else 4 if most / least < 2000 else 16))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(color=MUTED, labelsize=8)
    axes.grid(color=GRID, linewidth=0.6)
    place = {"loc": "upper left", "alignment": "left", "borderaxespad": 0.2, "labelspacing": 0.3}
    axes.legend(frameon=False, fontsize=7.5, title="slope (expected)", title_fontsize=7.5, **place)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="lines whose names begin with one of these")
    parser.add_argument("--draw", action="store_true", help="draw what was measured")
    parser.add_argument("--hardware", help="as it shall stand in the table")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the table and the picture")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = given.out / "growth.csv"
    lines: list[tuple[str, Callable[[], Iterator[dict[str, Any]]]]]
    lines = [(f"{axis.what}, {axis.size}", partial(measured, axis)) for axis in AXES]
    lines += [(f"{PROCESSES}, {name}", partial(measured_processes, name)) for name in SHARED]
    for name, measure in lines if not given.draw else []:
        if any(name.startswith(part) for part in given.only):
            group = stamped(with_slopes(list(measure())))
            if given.hardware:
                group["hardware"] = given.hardware
            report(group)
            merged(path, group).to_csv(path, index=False, float_format="%.4g")
    draw(pd.read_csv(path), given.out)


if __name__ == "__main__":
    main()

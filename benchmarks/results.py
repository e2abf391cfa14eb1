"""What was measured -> a table, a CSV file, and a picture."""

from __future__ import annotations

import datetime
import platform
import statistics
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from race import Run

FIGURES = [
    "workload",
    "lengths",
    "library",
    "seconds",
    "fastest",
    "slowest",
    "ratio",
    "log_prob",
    "after",
    "peak_mb",
    "busy",
]


def table(workload: str, runs: list[Run]) -> pd.DataFrame:
    """One line an entrant.

    Columns: ``seconds`` an iteration, the median of ``iterations`` timed ones, ``fastest`` and ``slowest``; ``ratio``
    of the medians, to seqmodels in float32 on the same data (1 is as fast); ``log_prob`` in nats of all data ``after``
    so many iterations, the same for all on the same data; ``peak_mb`` resident memory of the process, data and imports
    included; ``busy`` the share of its turns in which the process had the core: well below 1, something else ran too
    and the times are not to be trusted.
    """
    frame = pd.DataFrame([_line(workload, run) for run in runs])
    for lengths, group in frame.groupby("lengths"):
        same = [run for run in runs if run.entrant.lengths == lengths]
        after = min(len(run.history) for run in same) - 1
        frame.loc[group.index, "after"] = after
        frame.loc[group.index, "log_prob"] = [run.history[after] for run in same]
        ours = group.loc[group["library"] == "seqmodels float32", "seconds"]
        frame.loc[group.index, "ratio"] = group["seconds"] / ours.iloc[0] if len(ours) else float("nan")
    return frame.astype({"after": int})[[*FIGURES, "iterations", "frames", "versions"]]


def _line(workload: str, run: Run) -> dict[str, object]:
    return {
        "workload": workload,
        "lengths": run.entrant.lengths,
        "library": run.entrant.name,
        "seconds": statistics.median(run.seconds),
        "fastest": min(run.seconds),
        "slowest": max(run.seconds),
        "peak_mb": round(run.peak_mb),
        "busy": round(statistics.median(run.busy), 3),
        "iterations": len(run.seconds),
        "frames": run.n_frames,
        "versions": run.versions,
    }


def write(frame: pd.DataFrame, file: Path, command: str) -> None:
    """The table with where and how it was measured."""
    file.parent.mkdir(parents=True, exist_ok=True)
    today = datetime.date.today().isoformat()
    frame.assign(date=today, cpu=_cpu(), threads=1, python=platform.python_version(), command=command).to_csv(
        file, index=False, float_format="%.10g"
    )


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def draw(frame: pd.DataFrame, file: Path) -> None:
    """A panel a workload, a bar an entrant: seconds an iteration, on a logarithmic axis."""
    names = list(frame["workload"].unique())
    figure = Figure(figsize=(10, 1 + 2.6 * len(names)), layout="constrained")
    for axes, name in zip(figure.subplots(len(names), squeeze=False)[:, 0], names, strict=True):
        part = frame[frame["workload"] == name].sort_values("seconds", ascending=False)
        mixed = part["lengths"].nunique() > 1
        labels = part["library"] + (" (" + part["lengths"] + " lengths)" if mixed else "")
        colours = ["tab:orange" if one.startswith("seqmodels") else "tab:blue" for one in part["library"]]
        around = [part["seconds"] - part["fastest"], part["slowest"] - part["seconds"]]
        bars = axes.barh(labels, part["seconds"], xerr=around, color=colours)
        times = [f"{r:.1f}" if r < 10 else f"{r:.0f}" for r in part["ratio"]]
        axes.bar_label(bars, [f"{s:.3g} s, × {r}" for s, r in zip(part["seconds"], times, strict=True)], padding=4)
        axes.set(xscale="log", title=f"{name}, {part['frames'].iloc[0]} frames", xlabel="seconds per EM iteration")
        axes.margins(x=0.25)
    figure.savefig(file, dpi=120)

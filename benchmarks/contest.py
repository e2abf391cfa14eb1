"""Contests: processes side by side on one core, taking turns at so many steps of one task."""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
from process import Process
from results import write


@dataclass(frozen=True)
class Contest:
    """One row of a benchmark.

    Attributes:
        name: of the row.
        n: steps or symbols that an entrant does in one turn.
        unit: symbols of one of these.
        entrants: ``(module, task)`` each; the first is the reference.
    """

    name: str
    n: int
    unit: int
    entrants: list[tuple[str, str]]

    def among(self, modules: Container[str]) -> Contest | None:
        """The same with the entrants whose module is there; None without the reference or anyone to compare with it."""
        there = [entrant for entrant in self.entrants if entrant[0] in modules]
        return replace(self, entrants=there) if self.entrants[0] in there and len(there) > 1 else None


@dataclass
class Entrant:
    """A running process and what it has done."""

    process: Process
    name: str
    seconds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    extra_mb: float = 0.0

    def turn(self, n: int) -> None:
        answer = self.process.ask(n)
        self.seconds.append(answer["seconds"] / n)
        self.busy.append(answer["busy"])
        self.peak_mb, self.extra_mb = answer["peak_mb"], answer["extra_mb"]


def hold(contest: Contest, pythons: dict[str, Path], rounds: int) -> pd.DataFrame:
    """Everyone's turns, in rounds; a line an entrant."""
    running = [
        Entrant(Process(pythons[module], module, task), f"{module.split('_', 1)[-1]} {task}")
        for module, task in contest.entrants
    ]
    try:
        for _ in range(rounds):
            for entrant in running:
                entrant.turn(contest.n)
    finally:
        for entrant in running:
            entrant.process.close()
    return _table(contest, running)


def _table(contest: Contest, running: list[Entrant]) -> pd.DataFrame:
    reference = statistics.median(running[0].seconds)
    lines = [
        {
            "contest": contest.name,
            "entrant": e.name,
            "seconds": statistics.median(e.seconds),
            "fastest": min(e.seconds),
            "slowest": max(e.seconds),
            "symbols_per_second": contest.unit / statistics.median(e.seconds),
            "times_reference": reference / statistics.median(e.seconds),
            "peak_mb": round(e.peak_mb),
            "extra_mb": round(e.extra_mb),
            "busy": round(statistics.median(e.busy), 3),
            "versions": e.process.ready["versions"],
        }
        for e in running
    ]
    return pd.DataFrame(lines)


def hold_all(contests: list[Contest], pythons: dict[str, Path], rounds: int, file: Path) -> None:
    """One contest after another, the results so far printed and written to ``file`` after each.

    Args:
        contests: those whose reference has no interpreter are left out, as are others' entrants that have none.
        pythons: the interpreter of each module of ``peers``.
        rounds: turns of each entrant.
        file: a table (CSV).
    """
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    done: list[pd.DataFrame] = []
    for contest in contests:
        there = contest.among(pythons)
        if there is None:
            continue
        done.append(hold(there, pythons, rounds))
        print(done[-1].drop(columns="versions").to_string(index=False, float_format="{:.4g}".format), "\n", flush=True)
        write(pd.concat(done), file, shlex.join(["python", *words]))


def options(description: str | None, peer: str) -> argparse.Namespace:
    """The command line; ``peer``: the package that needs an environment of its own, with ``peers/PEER.txt`` in it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        f"--{peer}", dest="peer", type=Path, metavar="PYTHON", help=f"of an environment with peers/{peer}.txt"
    )
    parser.add_argument("--only", default="", help="contests whose names begin so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the one all run on")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results")
    return parser.parse_args()

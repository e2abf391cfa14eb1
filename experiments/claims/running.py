"""Every claim's script as a process of its own, a few at a time; one that fails does not stop the others.

They are started by joblib: from threads of this process, or where ``joblib.parallel_config(backend=...)`` says. Workers
of a cluster must find this checkout, the results and an environment like this one at the same paths.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = 'if __name__ == "__main__":'  # the line by which a script ends, and what it imports does not
UNKNOWN = 180.0  # seconds, of a script that has never run


@dataclass(frozen=True)
class Outcome:
    """How one script ended: 0 or its exit code, after how many seconds, and its last words."""

    name: str
    code: int
    seconds: float
    words: str


def scripts(folder: Path) -> list[Path]:
    """Those that put a claim to the test, by name."""
    found = sorted(folder.glob("*.py"))
    return [
        path
        for path in found
        if not path.stem.startswith("_") and MARK in path.read_text(encoding="utf-8").splitlines()
    ]


def chosen(folder: Path, names: Sequence[str] | None) -> list[Path]:
    """The scripts of these names, or all; ``ValueError`` for a name that is not there."""
    there = {path.stem: path for path in scripts(folder)}
    unknown = [name for name in names or () if name not in there]
    if unknown:
        raise ValueError(f"there is no claim {unknown[0]!r}; choose from {', '.join(there)}")
    return [there[name] for name in there if not names or name in names]


def expected(path: Path, results: Path) -> float:
    """Seconds, as its last result says."""
    before = results / f"{path.stem}.json"
    return float(json.loads(before.read_text(encoding="utf-8"))["seconds"]) if before.exists() else UNKNOWN


def _outcomes(paths: Iterable[Path], options: Sequence[str], jobs: int) -> Iterator[Outcome]:
    """One thread a process: with several processes beside each other more would be in each other's way."""
    from joblib import Parallel, delayed

    def run_one(name: str, command: list[str]) -> tuple[str, int, float, str]:
        # A function within another is sent as its code, so that a worker needs nothing of this file.
        began = time.perf_counter()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        words = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        return name, done.returncode, time.perf_counter() - began, words[-1] if words else ""

    how: dict[str, Any] = {"n_jobs": jobs, "prefer": "threads", "batch_size": 1, "pre_dispatch": "all"}
    try:
        parallel = Parallel(**how, return_as="generator_unordered")
    except ValueError:  # a backend that has results at the end alone
        parallel = Parallel(**how)
    calls = (delayed(run_one)(path.stem, [sys.executable, str(path), *options]) for path in paths)
    return (Outcome(*each) for each in parallel(calls))


def run_all(
    paths: Iterable[Path],
    options: Sequence[str],
    jobs: int,
    estimate: Callable[[Path], float],
    say: Callable[[str], None] = print,
) -> list[Outcome]:
    """Longest first, ``jobs`` at a time. Says of each how it ended, and about how long the others will take."""
    seconds = {path.stem: estimate(path) for path in paths}
    queue = sorted(paths, key=lambda path: -seconds[path.stem])
    outcomes: list[Outcome] = []
    for outcome in _outcomes(queue, options, jobs):
        outcomes.append(outcome)
        say(_line(outcomes, seconds, jobs))
    return outcomes


def _line(outcomes: Sequence[Outcome], seconds: dict[str, float], jobs: int) -> str:
    """Estimates are corrected by how long what is done took against its own."""
    last, done = outcomes[-1], {outcome.name for outcome in outcomes}
    pace = sum(o.seconds for o in outcomes) / max(sum(seconds[name] for name in done), 1e-9)
    left = [pace * s for name, s in seconds.items() if name not in done]
    minutes = max(sum(left) / jobs, max(left, default=0.0)) / 60
    ended = last.words if last.code == 0 else f"FAILED with exit code {last.code}: {last.words}"
    rest = f", about {minutes:.1f} min left" if left else ""
    return f"[{len(outcomes)}/{len(seconds)}{rest}] {last.name}, {last.seconds:.0f} s. {ended}"

"""Everything that is tried before a release, one after the other, and a table of what was done.

``python tools/release_check.py [NAME=VALUE ...]``, or ``make release-check``: runs each step of ``STEPS`` by ``make``,
with the variables given. A step that fails does not keep the next from running. The output of each is in
``results/release/STEP.log``. Exits with 1 if a step failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "results" / "release"
STEPS = {
    "installable": "dry runs of every installation, system and Python",
    "test": "lint, types and the quick tier of the tests",
    "test-slow": "the other tests: combinations, whole pages, several processes, installations, scripts",
    "docs-check": "the pages as programs with the budgets that they have",
    "perturbed": "all tests with products rounded otherwise",
    "other-machine": "all tests with other instructions, threads, zone and locale",
    "wheel": "the wheel in an empty environment",
    "lowest": "the lowest versions of the dependencies",
    "other-python": "all tests under another Python",
    "kernels": "the kernels for GPUs, interpreted and compiled",
}


def last_words(log: str) -> str:
    """The last line that says something, and is not of make.

    >>> last_words("collected\\n== 12 passed in 3 s ==\\n\\nmake[1]: Leaving directory 'clone'\\n")
    '== 12 passed in 3 s =='
    """
    lines = [line.strip() for line in log.splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith(("make:", "make["))), "no output")


def run(step: str, variables: list[str]) -> tuple[bool, float, str]:
    """Whether ``make step`` ended well, its seconds, and the last line of its output."""
    start = time.monotonic()
    with (LOGS / f"{step}.log").open("w", encoding="utf-8") as file:
        done = subprocess.run(["make", step, *variables], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    said = last_words((LOGS / f"{step}.log").read_text(encoding="utf-8", errors="replace"))
    return done.returncode == 0, time.monotonic() - start, said


def main(variables: list[str]) -> int:
    """Run all steps; the exit code."""
    LOGS.mkdir(parents=True, exist_ok=True)
    rows = []
    for step, what in STEPS.items():
        print(f"make {step}: {what}", flush=True)
        rows.append((step, *run(step, variables)))
    for step, is_done, seconds, said in rows:
        print(f"{'passed' if is_done else 'FAILED':7} {step:13} {seconds:6.0f} s  {said}")
    print(f"The output of each is in {LOGS.relative_to(ROOT)}.")
    return 0 if all(is_done for _, is_done, _, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Run every script of this folder and write what they measured to a page: ``python -m tests.faults --out docs/reliability.md``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import torch

FOLDER = Path(__file__).parent
NOT_SCRIPTS = {"__init__", "__main__", "promise", "test_faults"}
LONGEST = "properties"
PAGE = """# Reliability

What happens when files are damaged, disks are full, processes are killed, threads share a model and input is senseless. Every row was
measured by a script under `tests/faults/`; `make faults` runs them all and writes this page.

{machine}, {date}; all of it took {minutes:.0f} minutes.

| promise | goal | measured | kept | script |
|---|---|---|---|---|
{rows}
"""


def scripts() -> list[str]:
    """The names of the scripts, in order; the longest comes first."""
    names = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in NOT_SCRIPTS)
    return sorted(names, key=lambda name: name != LONGEST)


def run(script: str, quick: bool) -> list[str]:
    """The rows of the table that a script prints; a script that fails is a row too."""
    began = time.perf_counter()
    command = [sys.executable, "-m", f"tests.faults.{script}", "--json", *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    lines = [f"| {r['promise']} | {r['goal']} | {r['measured']} | {'yes' if r['kept'] else '**no**'} |" for r in rows]
    if done.returncode:
        lines.append(f"| {script} ran to its end | yes | {done.stderr.strip().splitlines()[-1:]} | **no** |")
    print(f"{script}: {len(rows)} rows in {time.perf_counter() - began:.0f} s", flush=True)
    print("\n".join(lines) + ("\n" + done.stderr if done.returncode else ""), flush=True)
    return [f"{line} `{script}` |" for line in lines]


def machine() -> str:
    """The hardware and the versions that figures depend on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    return f"{os.cpu_count()} cores of {cpu}, Python {platform.python_version()}, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="the page; without it nothing is written")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time")
    parser.add_argument("--quick", action="store_true", help="the small part of each that the unit tests run")
    options = parser.parse_args()
    began = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = [row for part in pool.map(lambda script: run(script, options.quick), scripts()) for row in part]
    if options.out is not None:
        minutes = (time.perf_counter() - began) / 60
        page = PAGE.format(machine=machine(), date=date.today().isoformat(), minutes=minutes, rows="\n".join(rows))
        options.out.write_text(page)
    sys.exit(any("**no**" in row for row in rows))


if __name__ == "__main__":
    main()

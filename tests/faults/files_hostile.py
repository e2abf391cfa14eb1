"""Malicious files, each read in a process of its own under observation.

Is each refused, how soon, in how much memory, and what else happens?
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults.promise import Promise, main
from tests.hostile import FIXTURES, READERS, files

SPARE = 16e6  # bytes that the process may grow by whatever is read: pages of an allocator
LONGEST, LIMIT = 20, 8 << 30  # seconds, and bytes of address space, after which a file has done its harm
STARTS = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "ctypes.dlopen", "pickle.")
CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def events(folder: Path) -> list[str]:
    """What the interpreter does from now on besides reading: processes, sockets, pickles, files written."""
    seen: list[str] = []

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(STARTS):
            seen.append(event)
        elif (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            seen.append(f"open {arguments[0]}")
        elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"):
            seen.append(f"{event} {arguments[0]}")

    sys.addaudithook(hear)
    return seen


def memory(name: str) -> int:
    """Bytes: ``VmRSS`` now, ``VmHWM`` at most since ``CLEAR`` was written to."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def watch(paths: list[tuple[str, str, str]]) -> None:
    """Read each, and print a line of JSON of what came of it."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    for kind, name in (("model", "hmm-diag"), ("model", "lstm-vectors"), ("model", "ngram-bpe"), ("model", "masked")):
        READERS[kind](FIXTURES / f"{name}.safetensors")  # type: ignore[index]  # what is imported the first time
    READERS["comparison"](FIXTURES / "comparison")
    seen = events(Path.cwd())
    for name, kind, path in paths:
        seen.clear()
        size = sum(f.lstat().st_size for f in (Path(path), *Path(path).rglob("*")) if f.is_file())
        CLEAR.write_text("5")
        seen.clear()
        before, began = memory("VmRSS"), time.perf_counter()
        signal.alarm(LONGEST)
        try:
            READERS[kind](Path(path))  # type: ignore[index]
            came = "loaded"
        except ValueError as error:
            came = f"refused: {error}"
        except BaseException as error:
            came = f"{type(error).__name__}: {error}"
        signal.alarm(0)
        seconds, after = time.perf_counter() - began, memory("VmHWM")
        found = {"name": name, "came": came[:160], "seconds": seconds, "grew": after - before, "size": size}
        print(json.dumps({**found, "events": list(seen)}), flush=True)


def measure(quick: bool) -> list[Promise]:
    with tempfile.TemporaryDirectory() as folder:
        made = [(name, kind, str(path)) for name, kind, path in files(Path(folder), 5 if quick else 1)]
        elsewhere = Path(folder) / "elsewhere"
        elsewhere.mkdir()
        before = sorted(Path(folder).rglob("*"))
        command = [
            sys.executable,
            "-m",
            "tests.faults.files_hostile",
            "--watch",
            json.dumps(made),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere, env=environment)
        strays = [str(path) for path in sorted(Path(folder).rglob("*")) if path not in before]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or not found:
        raise RuntimeError(f"the process that read them ended with {done.returncode}: {done.stderr[-2000:]}")
    for one in found:
        grew, size = one["grew"] / 1e6, one["size"] / 1e6
        print(
            f"{one['seconds']:6.3f} s {grew:7.1f} MB for {size:7.3f}: {one['name']}: "
            f"{one['came']} {one['events'] or ''}"
        )
    refused = [one for one in found if one["came"].startswith("refused")]
    slowest = max(found, key=lambda one: one["seconds"])
    widest = max(found, key=lambda one: one["grew"] - 2 * one["size"])
    did = [event for one in found for event in one["events"]] + strays
    n = len(found)
    return [
        Promise(
            "hostile files, comparisons and runs",
            "every one refused by a ValueError",
            f"{len(refused)} of {n}",
            len(refused) == n,
        ),
        Promise(
            "the same: until refused",
            "at most 1 s",
            f"{slowest['seconds']:.2f} s ({slowest['name']})",
            slowest["seconds"] <= 1,
        ),
        Promise(
            "the same: memory beyond what the process held",
            f"at most twice the file and {SPARE / 1e6:.0f} MB",
            f"at most {widest['grew'] / 1e6:.1f} MB for {widest['size'] / 1e6:.2f} MB ({widest['name']})",
            widest["grew"] <= 2 * widest["size"] + SPARE,
        ),
        Promise(
            "the same: code run, sockets opened, files written",
            "0",
            str(len(did)) + (f" ({did[0]})" if did else ""),
            not did,
        ),
    ]


if __name__ == "__main__":
    if "--watch" in sys.argv:
        watch(json.loads(sys.argv[2]))
    else:
        main(measure)

"""Whether all that README and documentation say to install can be installed, from the package index alone.

``python tools/installations.py [CONSTRAINTS]``: resolves the package, each of its extras and each set of extras that a
page names, under ``constraints.txt``, to wheels for the Pythons and the systems below, as an empty environment without
any settings of this machine would. It reads metadata only. Exits with 1 if something cannot be installed; where the
index cannot be reached it says so, and exits with 0.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
Extras = tuple[str, ...]
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "macOS arm64": "aarch64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
}
OLDEST_MACOS = "14.0"  # for which torch has wheels
SETTINGS = ("UV_", "PIP_", "PYTHON", "VIRTUAL_ENV", "CONDA")  # of this machine; certificates are not among them
JOBS = 4
UNREACHABLE = re.compile(r"failed to fetch|error sending request|dns error|timed out|connection", re.IGNORECASE)


def extras_named(text: str) -> set[Extras]:
    """The sets of extras of the project in the installation commands of a page.

    >>> sorted(extras_named('pip install -c constraints.txt ".[text,audio]"; pip install "seqmodels[music]"'))
    [('audio', 'text'), ('music',)]
    """
    found = re.findall(r"""(?:["'\s]\.|seqmodels)\[([a-z, ]+)\]""", text)
    return {tuple(sorted(extra.strip() for extra in extras.split(","))) for extras in found}


def installations() -> list[Extras]:
    """Sets of extras: none, each alone, all of them, and those that a page names together."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"), ROOT / "Makefile"]
    named = set().union(*(extras_named(page.read_text(encoding="utf-8")) for page in pages))
    unknown = sorted({extra for each in named for extra in each} - set(extras))
    if unknown:
        raise SystemExit(f"a page names the extra {unknown[0]!r}, which pyproject.toml does not have")
    return sorted({(), *((extra,) for extra in extras), tuple(sorted(extras)), *named})


def resolve(
    system: str, python: str, extras: Iterable[str], constraints: Path = CONSTRAINTS, *, offline: bool = False
) -> str:
    """What uv says of an installation that cannot be; empty if it can.

    Args:
        offline: from what an earlier call has read of the index.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config", *["--offline"] * offline]
    command += ["--python-platform", SYSTEMS[system], "--python-version", python, "--only-binary", ":all:"]
    command += ["--constraints", str(constraints), *(f"--extra={extra}" for extra in extras), "pyproject.toml"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    environment = clean | {"MACOSX_DEPLOYMENT_TARGET": OLDEST_MACOS}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip() or f"uv ended with {done.returncode}"


def failures(system: str, python: str, sets: list[Extras], constraints: Path) -> dict[Extras, str]:
    """The installations that cannot be, with what uv says of each.

    The index is read once, for the largest set; the others are resolved from that, and again from the index where that
    fails.
    """
    resolve(system, python, max(sets, key=len), constraints)
    errors: dict[Extras, str] = {}
    for extras in sets:
        if resolve(system, python, extras, constraints, offline=True):
            error = resolve(system, python, extras, constraints)
            errors |= {extras: error} if error else {}
    return errors


def main(constraints: Path = CONSTRAINTS) -> int:
    """Print a line for each Python and system; the exit code."""
    sets, rows = installations(), list(product(SYSTEMS, PYTHONS))
    first = resolve(*rows[0], (), constraints)
    if "No module named uv" in first or UNREACHABLE.search(first):
        print(f"Not checked, since uv or the package index cannot be reached: {first}")
        return 0
    n_failed = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for (system, python), failed in zip(
            rows, pool.map(lambda row: failures(*row, sets, constraints), rows), strict=True
        ):
            print(f"{system}, Python {python}: {len(sets) - len(failed)} of {len(sets)} installations", flush=True)
            for extras, error in failed.items():
                is_unreached = UNREACHABLE.search(error) is not None
                print(f"  .[{','.join(extras)}]{' is not checked' if is_unreached else ''}: {error}")
                n_failed += not is_unreached
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))

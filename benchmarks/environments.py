"""The Python environment of each library: this one for seqmodels and hmmlearn, one of its own for each other."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
AT_HOME = ("seqmodels", "hmmlearn")
APART = ("pomegranate", "dynamax")


def make_environments(folder: Path) -> None:
    """A virtual environment of pinned versions for each library that lives apart, made with pip."""
    for library in APART:
        venv.create(folder / library, with_pip=True)
        requirements = HERE / "peers" / f"{library}.txt"
        command = [str(_python(folder, library)), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
        print(f"making {folder / library}", flush=True)
        subprocess.run(command, check=True)


def pythons(folder: Path | None) -> dict[str, Path]:
    """The interpreter of each library; without a ``folder``, of those at home alone.

    Raises:
        ValueError: the folder lacks an environment.
    """
    found = {library: Path(sys.executable) for library in AT_HOME}
    if folder is None:
        return found
    for library in APART:
        found[library] = _python(folder, library)
        if not found[library].exists():
            raise ValueError(f"{folder} has no environment for {library}; make one with --make-environments {folder}")
    return found


def _python(folder: Path, library: str) -> Path:
    return folder.absolute() / library / "bin" / "python"

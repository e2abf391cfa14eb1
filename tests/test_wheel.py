"""The wheel, installed in an empty folder: the command line runs without a clone, and type checkers see the types."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")

SCRIPT = """\
import numpy as np

import seqmodels as sm

data = [np.zeros((5, 2)), np.ones((4, 2))]
model = sm.HMM(2).fit(data)
reveal_type(model)
reveal_type(model.score(data))
reveal_type(model.log_prob_steps(data))
reveal_type(sm.compare({"hmm": model}, data).baseline)
"""
REVEALED = ['"seqmodels.hmm.model.HMM"', '"float"', '"list[numpy.ndarray[', '"str"']
WRONG = "import seqmodels as sm\n\nsm.HMM(n_sates=3)\nsm.HMM('three')\n"
# Of the packages below seqmodels only numpy is read: they take a minute, and their types are not in question.
CONFIG = "[mypy]\nstrict = True\n[mypy-torch.*,pandas.*,scipy.*,matplotlib.*,pyro.*]\nfollow_imports = skip\n"


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Of Python, with what the tests run with but not the clone."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**kept, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy: building writes beside the sources
    shutil.copytree(ROOT / "seqmodels", source / "seqmodels", ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source)
    site = folder / "site"
    quiet = ("--quiet", "--no-deps", "--disable-pip-version-check")
    offline = ("--no-compile", "--no-index", "--find-links", folder / "dist")
    for command in (
        ("wheel", *quiet, "--no-build-isolation", "--wheel-dir", folder / "dist", source),
        ("install", *quiet, *offline, "--target", site, "seqmodels"),
    ):
        done = run("-m", "pip", *command, cwd=folder)
        assert done.returncode == 0, done.stderr
    return site


def test_what_is_not_code_is_in_the_wheel(installed: Path) -> None:
    def others(folder: Path) -> set[str]:
        files = (file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc"))
        return {file.relative_to(folder).as_posix() for file in files}

    assert others(installed / "seqmodels") == others(ROOT / "seqmodels")
    assert "py.typed" in others(installed / "seqmodels")


def test_a_comparison_runs_without_the_clone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("It was the best of times, it was the worst of times. " * 40, encoding="utf-8")
    where = run("-c", "import seqmodels; print(seqmodels.__file__)", cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(where.stdout.strip()).is_relative_to(installed)
    call = (installed / "bin/seqmodels", "compare", "--text", "book.txt", "--quick", "--steps", "2")
    done = run(*call, cwd=tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    assert "transformer" in done.stdout
    assert (tmp_path / "results/text-density.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_type_checker_sees_the_types(installed: Path, tmp_path: Path) -> None:
    for name, text in (("user.py", SCRIPT), ("wrong.py", WRONG), ("mypy.ini", CONFIG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = run("-m", "mypy", "user.py", "wrong.py", cwd=tmp_path, MYPYPATH="", PYTHONPATH=str(installed))
    notes = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(notes) == len(REVEALED), done.stdout
    for line, expected in zip(notes, REVEALED, strict=True):
        assert expected in line
    errors = [line for line in done.stdout.splitlines() if " error: " in line]
    assert len(errors) == 2, done.stdout
    assert 'Unexpected keyword argument "n_sates"' in errors[0]
    assert 'has incompatible type "str"; expected "int"' in errors[1]

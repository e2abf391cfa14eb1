"""The wheel, installed in an empty environment: the command line runs without a clone, type checkers see types."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # an installation, a process of mypy and one of a comparison
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


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Outside the clone, whose folder is not on the path either."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which the wheel was installed; other packages are those that the tests run with."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy: building writes beside the sources
    shutil.copytree(ROOT / "seqmodels", source / "seqmodels", ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source)
    made = folder / "environment"
    venv.create(made, symlinks=True)
    others = sysconfig.get_paths()["purelib"]  # what .pth files there name, the clone among it, is not on the path
    (site_packages(made) / "others.pth").write_text(f"{others}\n", encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    quiet = ("--quiet", "--no-deps")
    offline = ("--no-compile", "--no-index", "--find-links", folder / "dist")
    for command in (
        (*pip, "wheel", *quiet, "--no-build-isolation", "--wheel-dir", folder / "dist", source),
        (*pip, "--python", python_of(made), "install", *quiet, *offline, "--ignore-installed", "seqmodels"),
    ):
        done = run(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
    return made


def python_of(environment: Path) -> Path:
    return environment / "bin/python"


def site_packages(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))


def test_what_is_not_code_is_in_the_wheel(environment: Path) -> None:
    def others(folder: Path) -> set[str]:
        kept = (file for file in folder.rglob("*") if "__pycache__" not in file.parts)  # where numba caches, too
        files = (file for file in kept if file.is_file() and file.suffix != ".py")
        return {file.relative_to(folder).as_posix() for file in files}

    installed = others(site_packages(environment) / "seqmodels")
    assert installed == others(ROOT / "seqmodels")
    assert "py.typed" in installed


def test_a_comparison_runs_without_the_clone(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("It was the best of times, it was the worst of times. " * 40, encoding="utf-8")
    where = run(python_of(environment), "-c", "import seqmodels; print(seqmodels.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(site_packages(environment))
    call = ("compare", "--text", "book.txt", "--quick", "--steps", "2", "--models", "lstm")
    done = run(environment / "bin/seqmodels", *call, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lstm" in done.stdout
    assert (tmp_path / "results/text-density.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_type_checker_sees_the_types(environment: Path, tmp_path: Path) -> None:
    for name, text in (("user.py", SCRIPT), ("wrong.py", WRONG), ("mypy.ini", CONFIG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    options = ("--config-file", "mypy.ini", "--python-executable", python_of(environment))
    done = run(sys.executable, "-m", "mypy", *options, "user.py", "wrong.py", cwd=tmp_path)
    notes = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(notes) == len(REVEALED), done.stdout
    for line, expected in zip(notes, REVEALED, strict=True):
        assert expected in line
    errors = [line for line in done.stdout.splitlines() if " error: " in line]
    assert len(errors) == 2, done.stdout
    assert 'Unexpected keyword argument "n_sates"' in errors[0]
    assert 'has incompatible type "str"; expected "int"' in errors[1]

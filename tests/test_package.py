"""What the package says of itself: versions, supported Pythons, types."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import seqmodels

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_citation_names_this_version() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == seqmodels.__version__


def test_classifiers_and_the_workflow_name_the_same_pythons() -> None:
    classifiers = PYPROJECT["project"]["classifiers"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(classifiers))
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix is not None
    assert re.findall(r"3\.\d+", matrix[1]) == named
    assert PYPROJECT["project"]["requires-python"] == f">={named[0]}"


def test_types_are_shipped_and_an_editable_install_is_a_path() -> None:
    """Type checkers do not follow the import hooks that setuptools makes without ``package-dir``."""
    setuptools = PYPROJECT["tool"]["setuptools"]
    assert (ROOT / "seqmodels/py.typed").exists()
    assert "py.typed" in setuptools["package-data"]["seqmodels"]
    assert setuptools["package-dir"] == {"": "."}


def test_every_dependency_has_a_lowest_version() -> None:
    project = PYPROJECT["project"]
    runtime = [
        *project["dependencies"],
        *(each for extra in ("text", "audio") for each in project["optional-dependencies"][extra]),
    ]
    assert [each for each in runtime if not re.fullmatch(r"[\w-]+>=[\d.]+", each)] == []


def test_what_the_makefile_runs_is_there() -> None:
    commands = "".join(re.findall(r"^\t.*\n", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"\b(?:tests|tools|benchmarks|experiments)/[\w/]+(?:\.py)?", commands)
    assert len(named) > 10
    assert [each for each in named if not (ROOT / each).exists()] == []

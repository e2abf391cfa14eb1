"""The recipes of ``CONTRIBUTING.md``, all followed in a copy of the package: a file and a name each, and they work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import CONTRIBUTING, FENCE, ROOT

THINGS = ("model", "emission", "recurrent cell", "reader", "metric", "plot", "command")
FILE = re.compile(r"# (seqmodels/[\w/]+\.py)\n")
# Tests that look at everything there is, and so at what is added.
RULES = (
    "tests/test_contract.py",
    "tests/test_architecture.py",
    "tests/test_bad_arguments.py",
    "tests/test_imports.py",
    "tests/data/test_read.py",
    "tests/cli/test_app.py",
    "tests/plot/test_style.py",
    "tests/cli/test_fit.py::test_every_name_is_a_model",
)
# Of these the cases with a name of what is added in theirs, and those that see all of it.
CHOSEN = (
    "markov-chain hmm-inverse-gaussian leaky-integrator markov_chain inverse_gaussian leaky_integrator run_lengths "
    "runs length_ratio lengths describe"
)
OF_ALL = "modules_import_each_other what_is_loaded_when every_format_is_there every_name_is_a_model"
N_ROWS = 3  # that are added to the table of the contract


def recipes() -> dict[str, list[tuple[str, str]]]:
    """Of each recipe the blocks, language and content; before the first, what all share."""
    text = CONTRIBUTING.read_text(encoding="utf-8").partition("## The recipes")[2]
    parts = re.split(r"^### (.+)\n", text, flags=re.MULTILINE)
    named = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
    return {name: FENCE.findall(part) for name, part in named.items()}


def changed(source: str, hunks: str) -> str:
    """A file with the lines of a block ``diff``: ``@@`` separates its places, which are known by their lines."""
    for hunk in hunks.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert before == "" or ("\n" + source).count("\n" + before) == 1, f"not there, or more than once: {before}"
        source = source + after if not before else ("\n" + source).replace("\n" + before, "\n" + after)[1:]
    return source


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and its tests, with all recipes followed."""
    folder = tmp_path_factory.mktemp("contributed")
    for name in ("seqmodels", "tests", "docs/reference"):
        ignored = shutil.ignore_patterns("fixtures", "faults", "*.pyc.*")  # the last while others compile
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    for blocks in recipes().values():
        for language, content in blocks:
            if language == "python" and (file := FILE.match(content)):
                assert not (folder / file[1]).exists(), file[1]
                (folder / file[1]).write_text(content[file.end() :], encoding="utf-8")
            if language == "diff":
                first, _, hunks = content.partition("\n")
                path = folder / first.removeprefix("--- ")
                path.write_text(changed(path.read_text(encoding="utf-8"), hunks), encoding="utf-8")
    with (folder / "tests/families.py").open("a", encoding="utf-8") as families:
        families.write(f"FAMILIES = FAMILIES[:{N_ROWS}]\n")  # the others are proved where they stand
    return folder


def call(copy: Path, *words: str, within: Path | None = None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *words], cwd=within or copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_there_is_a_recipe_for_each_of_seven_things() -> None:
    assert [name.removeprefix("A ").removeprefix("An ") for name in recipes() if name][:-1] == list(THINGS)


@pytest.mark.parametrize("thing", THINGS)
def test_a_recipe_is_one_file_and_one_name(thing: str) -> None:
    (blocks,) = (blocks for name, blocks in recipes().items() if name.partition(" ")[2] == thing)
    assert len([content for language, content in blocks if language == "python" and FILE.match(content)]) == 1
    changes = [content.splitlines() for language, content in blocks if language == "diff"]
    names = [lines for lines in changes if lines[0].startswith("--- seqmodels/")]
    rows = [lines for lines in changes if lines[0].startswith(("--- tests/", "--- docs/reference/plot.md"))]
    assert (len(names), len(names) + len(rows)) == (1, len(changes))
    assert sum(line.startswith("+") for line in names[0]) <= 2  # the import, and the name in a list
    assert all(sum(line.startswith("+") and line != "+" for line in row) == 1 for row in rows)


@pytest.mark.slow  # a copy of the package, in a process that imports it anew
def test_the_recipes_work_as_they_are_written(copy: Path, tmp_path: Path) -> None:
    used = [c for blocks in recipes().values() for language, c in blocks if language == "python" and not FILE.match(c)]
    program = tmp_path / "recipes.py"
    program.write_text("\n".join(used), encoding="utf-8")
    call(copy, "-W", "ignore", str(program), within=tmp_path)


@pytest.mark.slow  # the tests that look at everything, in a process
def test_what_they_add_keeps_the_rules(copy: Path) -> None:
    """Of the contract, imports, arguments, formats and commands; formatted and linted."""
    call(copy, "-m", "ruff", "check", "--no-cache", "-q", "seqmodels", "tests/families.py", "tests/data/test_read.py")
    call(copy, "-m", "ruff", "format", "--no-cache", "--check", "-q", "seqmodels")
    call(
        copy,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n0",
        *RULES,
        "-k",
        " or ".join([*CHOSEN.split(), *OF_ALL.split()]),
    )

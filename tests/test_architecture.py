"""Rules of the code: which way imports run, what a file may say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "seqmodels"
OWN_PATHS = re.compile(r"/(?:work|home|root|tmp|mnt|Users)/")

# From the ground up: a part imports what stands on floors below its own, for its types too, and nothing else.
FLOORS = (
    {"common"},
    {"sequences", "inference"},
    {"observations", "data"},
    {"encodings"},
    {"training", "plot"},
    {"generation"},
    {"model"},
    {"hmm", "neural", "counts", "linear_gaussian"},
    {"wrappers", "presets"},
    {"loading"},
    {"evaluation"},
    {"cli"},
    {"__main__"},
)
FLOOR_OF = {part: number for number, floor in enumerate(FLOORS) for part in floor}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(tree: ast.AST, file: Path) -> Iterator[str]:
    """Every module that is imported, anywhere in the file, as a full dotted name."""
    package = file.relative_to(ROOT).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{module}.{name.name}" for name in node.names)


def module_of(file: Path) -> str:
    """``seqmodels.hmm.model``; of an ``__init__.py`` the package."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imported_modules() -> dict[str, set[str]]:
    """For each module of the package those that it imports."""
    modules = {module_of(file): file for file in FILES}

    def module_with(name: str) -> str:
        while name not in modules:  # of a function or class the module that it stands in
            name = name.rpartition(".")[0]
        return name

    return {
        module: {module_with(name) for name in imports(tree_of(file), file) if name.startswith("seqmodels")} - {module}
        for module, file in modules.items()
    }


def broken_arrows(tree: ast.AST, file: Path) -> list[str]:
    here = part_of(file)
    found = []
    for name in imports(tree, file):
        package, _, rest = name.partition(".")
        there = rest.partition(".")[0]
        if package == "seqmodels" and there != here and FLOOR_OF[there] >= FLOOR_OF[here]:
            found.append(f"{here} imports {there}")
    return found


def test_every_part_has_its_floor() -> None:
    assert {part_of(file) for file in FILES} - {"__init__"} == set(FLOOR_OF)


def test_the_page_has_the_same_floors() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", page, re.MULTILINE)
    named = {(part, int(floor) - 1) for floor, parts in rows for part in re.findall(r"`(\w+)(?:/|\.py)`", parts)}
    assert named == {(part, floor) for part, floor in FLOOR_OF.items() if part != "__main__"}


def test_imports_run_down() -> None:
    files = [file for file in FILES if file != PACKAGE / "__init__.py"]
    broken = {module_of(file): arrows for file in files if (arrows := broken_arrows(tree_of(file), file))}
    assert broken == {}


@pytest.mark.parametrize(
    ("name", "source", "broken"),
    [
        ("model/model.py", "from seqmodels.neural.network import Network", "model imports neural"),
        ("model/model.py", "from seqmodels import hmm", "model imports hmm"),
        ("model/model.py", "if TYPE_CHECKING:\n    from seqmodels.hmm import HMM", "model imports hmm"),
        ("hmm/model.py", "def f() -> None:\n    import seqmodels.neural", "hmm imports neural"),
        ("neural/model.py", "from ..hmm import HMM", "neural imports hmm"),
        ("sequences/sequences.py", "from .. import model", "sequences imports model"),
        ("evaluation/backtest.py", "from seqmodels import cli", "evaluation imports cli"),
    ],
)
def test_an_import_that_runs_up_is_seen(name: str, source: str, broken: str) -> None:
    assert broken_arrows(ast.parse(source), PACKAGE / name) == [broken]


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_no_modules_import_each_other(depth: int) -> None:
    """Neither modules nor the folders that they stand in, ``depth`` names deep, of which ``seqmodels`` is the first."""

    def part(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    arrows: dict[str, set[str]] = {}
    for module, names in imported_modules().items():
        if module != "seqmodels" and (depth == 5 or not is_face(module)):
            arrows.setdefault(part(module), set()).update({part(name) for name in names} - {part(module)})
    list(TopologicalSorter(arrows).static_order())  # raises CycleError, which names the circle


def test_inference_knows_no_models() -> None:
    inference = {
        name
        for module, names in imported_modules().items()
        if module.startswith("seqmodels.inference.")
        for name in names
    }
    assert {name for name in inference if not name.startswith("seqmodels.inference")} <= {
        f"seqmodels.{name}" for name in ("common.compiled", "common.constants", "common.onednn")
    }


def is_face(module: str) -> bool:
    """Whether it is the ``__init__.py`` of a folder, which hands names on."""
    return (ROOT / module.replace(".", "/")).is_dir()


def test_tests_stand_where_the_code_does() -> None:
    apart = {"benchmarks", "experiments", "faults", "fixtures"}
    tests = {f.parent.relative_to(ROOT / "tests") for f in (ROOT / "tests").rglob("test_*.py")}
    folders = {f.parent.relative_to(PACKAGE) for f in FILES}
    assert {folder for folder in tests if folder.parts and folder.parts[0] not in apart} <= folders


def test_no_wildcard_imports() -> None:
    for file in [*FILES, *(ROOT / "tests").rglob("*.py")]:
        source = file.read_text(encoding="utf-8")
        if re.search(r"\bimport[\s\\]*\*", source):  # else it need not be parsed
            assert [name for name in imports(ast.parse(source), file) if name.endswith(".*")] == [], file


def test_every_module_says_what_it_is() -> None:
    silent = [str(file.relative_to(ROOT)) for file in FILES if not ast.get_docstring(tree_of(file))]
    assert silent == []


def test_nothing_names_one_machine() -> None:
    folders = ("seqmodels", "tests", "experiments", "benchmarks")
    inside = (f for folder in folders for f in (ROOT / folder).rglob("*") if f.suffix in {".py", ".md", ".toml"})
    files = [*inside, *ROOT.glob("*.md"), *ROOT.glob("*.toml")]
    named = [str(f.relative_to(ROOT)) for f in files if f != Path(__file__) and OWN_PATHS.search(f.read_text())]
    assert named == []
    assert OWN_PATHS.search("open('/" + "home/ann/x')")

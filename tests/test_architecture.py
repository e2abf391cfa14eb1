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

# What each part may import, from the ground up (besides itself). Parts not here yet may not be imported.
GROUND = {
    "version",
    "files",
    "former_names",
    "html",
    "profile",
    "display",
    "mapped",
    "times",
    "items",
    "sequences",
    "measure",
    "parameters",
    "array_checks",
    "plot_style",
}
PREPARED = {*GROUND, "storage", "observations", "encodings", "preparation"}
MODEL = {
    *PREPARED,
    "tagging",
    "training",
    "generation",
    "checkpoint",
    "distributed",
    "fingerprint",
    "pyro_distribution",
    "precision",
    "main_memory",
    "compiled",
    "onednn",
    "binary_code",
    "randomness",
    "fitting",
    "model",
}
LOADED = {
    *MODEL,
    "single_pass",
    "wrapped",
    "hmm",
    "neural",
    "ngram",
    "context_tree",
    "context_mixing",
    "mixture",
    "dynamic",
    "offsets",
    "online_em",
    "classification",
    "adapt",
    "loading",
}
MAY_IMPORT: dict[str, set[str]] = {
    "profile": set(),
    "html": set(),
    "display": {"html"},
    "plot_style": set(),
    "mapped": set(),
    "items": {"display", "mapped"},
    "times": set(),
    "sequences": {"profile", "display", "mapped", "times", "items", "parameters"},
    "measure": {"parameters"},
    "parameters": set(),
    "main_memory": set(),
    "version": set(),
    "array_checks": {"parameters"},
    "forked": set(),
    "compiled": set(),
    "onednn": set(),
    "binary_code": set(),
    "randomness": set(),
    "files": set(),
    "former_names": set(),
    "storage": {"files", "former_names", "parameters", "version"},
    "distributed": {"storage"},
    "fingerprint": {*PREPARED, "distributed"},
    "observations": {"measure", "parameters", "randomness"},
    "encodings": {*GROUND},
    "preparation": {*GROUND, "observations", "encodings"},
    "precision": PREPARED,
    "data": {"sequences", "display", "parameters", "array_checks", "files", "mapped", "items", "main_memory", "times"},
    "tagging": PREPARED,
    "checkpoint": {"storage", "parameters"},
    "training": {*PREPARED, "fingerprint", "distributed", "main_memory"},
    "generation": {*PREPARED, "tagging", "precision"},
    "pyro_distribution": PREPARED,
    "fitting": {*PREPARED, "tagging", "training", "distributed", "fingerprint", "precision"},
    "model": MODEL,
    "wrapped": {*MODEL},
    "offsets": {*MODEL, "wrapped", "hmm", "neural"},
    "hmm": MODEL,
    "neural": MODEL,
    "single_pass": MODEL,
    "ngram": {*MODEL, "single_pass"},
    "context_tree": {*MODEL, "single_pass"},
    "mixture": MODEL,
    "context_mixing": {*MODEL, "single_pass"},
    "classification": MODEL,
    "adapt": {*MODEL, "hmm", "neural"},
    "dynamic": {*MODEL, "wrapped", "neural"},
    "online_em": {*MODEL, "wrapped", "hmm", "dynamic"},
    "loading": {*LOADED, "data"},
    "presets": {*MODEL, "hmm", "neural"},
    "evaluation": {*LOADED, "data"},
    "anomalies": {*LOADED, "evaluation"},
    "auditing": {*MODEL},
    "saved_files": {"loading", "storage", "anomalies", "parameters"},
    "cli": {*LOADED, "data", "evaluation", "anomalies", "auditing", "saved_files"},
    "__main__": {"cli"},
}
# The parts of a wing, each of which may import those before it.
ORDER = {
    "auditing": [
        "bounds",
        "proposals",
        "findings",
        "subject",
        "totals",
        "invariance",
        "agreement",
        "auditing",
    ],
    "mixture": [
        "gate_rows",
        "kernels",
        "weights",
        "held_out",
        "segments",
        "density_gate",
        "symbol_gate",
        "cursor",
        "gated_cursor",
        "model",
    ],
    "online_em": ["segments", "cursor", "model"],
    "context_mixing": [
        "histories",
        "tables",
        "contexts",
        "undo",
        "coding",
        "reader",
        "fit",
        "cursor",
        "model",
    ],
    "hmm": [
        "hmmlearn",
        "inference",
        "parameters",
        "topology",
        "from_parameters",
        "emissions",
        "gap_filter",
        "missing_past",
        "corpus",
        "cursor",
        "state_forecast",
        "learning",
        "scoring",
        "queries",
        "alignment",
        "model",
        "tagger",
    ],
    "adapt": [
        "adapted",
        "alphabet",
        "density",
        "function",
        "logits",
        "network",
        "tokenizer",
        "huggingface",
        "linear_gaussian",
        "markov",
        "compressor",
    ],
    "neural": [
        "ops",
        "network",
        "weights",
        "options",
        "evaluation_copy",
        "batches",
        "linear_start",
        "io_module",
        "cursor",
        "scoring",
        "model",
        "inspection",
        "custom_module",
        "recurrent",
        "transformer",
        "masked",
        "seq2seq",
        "tagging",
        "untrained",
        "huggingface",
    ],
}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(tree: ast.AST, file: Path) -> Iterator[str]:
    """Every module that is imported, anywhere in the file but for types only, as a full dotted name."""
    package = file.relative_to(ROOT).parent.parts
    for node in _nodes_that_run(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{module}.{name.name}" for name in node.names)


def _nodes_that_run(node: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.walk``, without what stands under ``if TYPE_CHECKING``."""
    yield node
    if not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
        for child in ast.iter_child_nodes(node):
            yield from _nodes_that_run(child)


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
        if package == "seqmodels" and there != here and there not in MAY_IMPORT[here]:
            found.append(f"{here} imports {there}")
    return found


@pytest.mark.parametrize("file", [f for f in FILES if f != PACKAGE / "__init__.py"], ids=lambda f: f.stem)
def test_imports_run_one_way(file: Path) -> None:
    assert part_of(file) in MAY_IMPORT, f"{part_of(file)} has no place in the order of imports"
    assert broken_arrows(tree_of(file), file) == []


@pytest.mark.parametrize(
    ("name", "source", "broken"),
    [
        ("model.py", "from seqmodels.neural.network import Network", "model imports neural"),
        ("model.py", "from seqmodels import hmm", "model imports hmm"),
        ("hmm/model.py", "def f() -> None:\n    import seqmodels.neural", "hmm imports neural"),
        ("neural/model.py", "from ..hmm import HMM", "neural imports hmm"),
        ("sequences.py", "from . import model", "sequences imports model"),
        ("evaluation/plots.py", "from seqmodels import cli", "evaluation imports cli"),
    ],
)
def test_an_arrow_that_runs_back_is_seen(name: str, source: str, broken: str) -> None:
    assert broken_arrows(ast.parse(source), PACKAGE / name) == [broken]


def test_the_order_has_no_circles() -> None:
    reached: set[str] = set()
    while len(reached) < len(MAY_IMPORT):
        ready = {part for part, below in MAY_IMPORT.items() if below - {part} <= reached} - reached
        assert ready, f"among {set(MAY_IMPORT) - reached} some import each other"
        reached |= ready


@pytest.mark.parametrize("wing", ORDER)
def test_imports_run_one_way_inside_a_wing(wing: str) -> None:
    """A part of a wing imports only what stands before it in ``ORDER``."""
    inside = f"seqmodels.{wing}."
    order = ORDER[wing]
    arrows = {
        (module.split(".")[2], name.split(".")[2])
        for module, names in imported_modules().items()
        for name in names
        if module.startswith(inside) and name.startswith(inside)
    }
    parts = {module.split(".")[2] for module in imported_modules() if module.startswith(inside)}
    assert parts == set(order), "every part has its place in ORDER"
    back = [f"{part} imports {other}" for part, other in sorted(arrows) if order.index(other) > order.index(part)]
    assert back == []


def test_no_modules_import_each_other() -> None:
    list(TopologicalSorter(imported_modules()).static_order())  # raises CycleError, which names the circle


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

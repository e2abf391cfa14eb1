"""List the results that are older than the code that they measure: ``python tools/stale_results.py [FOLDER ..]``.

A result is a table or a record (``.csv``, ``.json``) in ``experiments/results`` or ``benchmarks/results``; its date is
that of its oldest row, or of its commit where it names none. The script that made it is the one that its column
``command`` names, or else the one whose source names its folder. What a script measures is every file of ``seqmodels``
that its names lead to by imports. A file changed when its code did: comments, docstrings and the words of errors and
warnings do not count. Prints one line for each result, those with most changed files first, and exits with 0.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from inspect import ismodule
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "seqmodels"
FOLDERS = ("experiments/results", "benchmarks/results")
csv.field_size_limit(10**9)


@dataclass(frozen=True)
class Result:
    """A result beside the code that it measures.

    Attributes:
        path: of the result, relative to the root.
        date: when it was measured.
        scripts: what made it.
        changed: files of the package whose code changed after ``date``.
        n_measured: number of files of the package that the scripts measure.
        last_change: of those files.
    """

    path: str
    date: datetime
    scripts: tuple[str, ...]
    changed: tuple[str, ...]
    n_measured: int
    last_change: datetime

    @property
    def is_stale(self) -> bool:
        """True if code that the result measures changed after it was measured."""
        return bool(self.changed)


# -- results -----------------------------------------------------------------------------------------------------------


def files_in(folder: str) -> list[Path]:
    """Return every table and record of a folder, whose path is relative to the root."""
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".csv", ".json"))


def records(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table, or the one record of a JSON file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file)) if path.suffix == ".csv" else [json.load(file)]


def date_of(path: Path) -> datetime:
    """Return when the oldest row of a result was measured, or when it was committed where no row says so."""
    dates = [moment(row["date"]) for row in records(path) if row.get("date") and row.get("command")]
    return min(dates) if dates else moment(git(ROOT, "log", "-1", "--format=%cI", "--", str(path)).strip())


def moment(text: str) -> datetime:
    """Return a date and time with its zone; a date alone is its last second, and no zone means UTC."""
    read = datetime.fromisoformat(text if len(text) > 10 else f"{text}T23:59:59")
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def scripts_of(path: Path) -> tuple[str, ...]:
    """Return the scripts that made a result, relative to the root."""
    folder = path.relative_to(ROOT).parts[0]
    sources = {file.stem: file for file in sorted((ROOT / folder).rglob("*.py"))}
    commands = {row.get("command") or "" for row in records(path)}
    named = {name for command in commands for name in re.findall(r"(\w+)\.py\b|-m [\w.]*?(\w+)\b(?!\.)", command)}
    found = {sources[name].relative_to(ROOT).as_posix() for pair in named for name in pair if name in sources}
    if not found:
        place = path.parent.name if path.parent.name != "results" else path.stem
        found = {
            file.relative_to(ROOT).as_posix()
            for stem, file in sources.items()
            if stem == place or re.search(rf"results/{place}\b", file.read_text(encoding="utf-8"))
        }
    return tuple(sorted(found))


# -- what a script measures --------------------------------------------------------------------------------------------


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a file imports, and the attributes that it takes of an imported package."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases.update({name.asname or name.name.partition(".")[0]: name for name in node.names})
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{name.name}" for name in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            start, _, rest = ast.unparse(node).partition(".")
            if start in aliases and re.fullmatch(r"[\w.]+", rest):
                given = aliases[start]
                yield f"{given.name if given.asname else start}.{rest}"


class _WithoutTypes(ast.NodeTransformer):
    """Drop imports that are for types alone."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


@cache
def file_of(name: str) -> Path | None:
    """Return the file of the package that defines a dotted name, or None where it defines none.

    >>> file_of("seqmodels.HMM").relative_to(ROOT).as_posix()
    'seqmodels/hmm/model.py'
    """
    found: object = import_module(PACKAGE)
    for part in name.split(".")[1:]:
        inner = getattr(found, part, None)
        if inner is None and ismodule(found):
            try:
                inner = import_module(f"{found.__name__}.{part}")
            except ImportError:
                return None
        if inner is None or not (ismodule(inner) or hasattr(inner, "__module__")):
            break  # an attribute of a class, or a value: it stands where its owner does
        found = inner
    module = found.__name__ if ismodule(found) else found.__module__
    if module.partition(".")[0] != PACKAGE:
        return None
    path = getattr(import_module(module), "__file__", None)
    return Path(path) if path else None


@cache
def imports_of(file: Path) -> frozenset[Path]:
    """Return the files of the package that a file leads to at once.

    An ``__init__.py`` only passes names on, and ``loading.py`` names every class and computes nothing: what stands
    behind them is not measured.
    """
    if file.is_relative_to(ROOT / PACKAGE) and file.name in ("__init__.py", "loading.py"):
        return frozenset()
    tree = _WithoutTypes().visit(ast.parse(file.read_text(encoding="utf-8")))
    found = {file_of(name) for name in names_in(tree) if name.partition(".")[0] == PACKAGE}
    if not file.is_relative_to(ROOT / PACKAGE):
        found.update(scripts_beside(file, tree))
    return frozenset(path for path in found if path is not None)


def scripts_beside(file: Path, tree: ast.AST) -> Iterator[Path]:
    """Yield the other scripts that a script imports, and those of ``peers/`` that it starts by name."""
    for name in names_in(tree):
        parts = name.split(".")
        yield from (path for n in (1, 2) if (path := file.parent.joinpath(*parts[:n]).with_suffix(".py")).exists())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"\w+", node.value):
            peer = file.parent / "peers" / f"{node.value.split()[0]}.py"
            if peer.exists():
                yield peer


def measured(script: Path) -> frozenset[Path]:
    """Return every file of the package that a script leads to by imports."""
    seen, waiting = set(), [script]
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting.extend(imports_of(file))
    return frozenset(file for file in seen if file.is_relative_to(ROOT / PACKAGE) and file.name != "__init__.py")


# -- when code changed -------------------------------------------------------------------------------------------------


class _Wordless(ast.NodeTransformer):
    """Drop docstrings and what errors and warnings say."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_words = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        is_warning = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith("warn")
        return None if is_words or is_warning else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise()


def code_of(source: str) -> str:
    """Return what of a file runs, without comments, docstrings and the words of errors.

    >>> code_of("def f(x):\\n    'Say.'\\n    return x  # why") == code_of("def f(x):\\n    return x")
    True
    """
    return ast.dump(_Wordless().visit(ast.parse(source)))


def git(root: Path, *arguments: str) -> str:
    """Return what a command of git prints."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True, encoding="utf-8")
    return done.stdout


def last_changes(root: Path, folder: str) -> dict[str, datetime]:
    """Return when the code of each file of a folder last changed, by its path in the last commit."""
    wanted = {path for path in git(root, "ls-files", folder).split("\n") if path.endswith(".py")}
    now = {path: path for path in wanted}  # by the path that a file has in the commit that is read
    found: dict[str, datetime] = {}

    @cache
    def code(blob: str) -> str:
        return "" if set(blob) == {"0"} else code_of(git(root, "cat-file", "blob", blob))

    command = ["log", "-M", "--raw", "--no-abbrev", "--format=%cI", "--", folder]
    date = datetime.now(UTC)
    for line in git(root, *command).split("\n"):
        if len(found) == len(wanted):
            break
        if not line.startswith(":"):
            date = moment(line) if line else date
            continue
        modes, *paths = line.split("\t")
        before, after = modes.split()[2:4]
        path = now.get(paths[-1])
        if path is None or path in found:
            continue
        if len(paths) == 2:
            now[paths[0]] = path  # its name before this commit
        if code(before) != code(after):
            found[path] = date
    return found


def results(folders: Sequence[str] = FOLDERS) -> list[Result]:
    """Return every result of these folders with what changed since, those with most changed files first."""
    changes = last_changes(ROOT, PACKAGE)
    found = []
    for path in (file for folder in folders for file in files_in(folder)):
        date, scripts = date_of(path), scripts_of(path)
        files = {file.relative_to(ROOT).as_posix() for script in scripts for file in measured(ROOT / script)}
        dated = {file: changes[file] for file in sorted(files) if file in changes}
        changed = tuple(file for file, when in dated.items() if when > date)
        last = max(dated.values(), default=date)
        found.append(Result(path.relative_to(ROOT).as_posix(), date, scripts, changed, len(files), last))
    return sorted(found, key=lambda each: (-len(each.changed), each.path))


def main(folders: Sequence[str]) -> int:
    """Print the table and return 0: an old result is a fact for the reader, not a failure."""
    found = results(folders or FOLDERS)
    print(f"{'measured':10} {'code of':10} {'changed files':>13}  result, script")
    for each in found:
        share = f"{len(each.changed)} of {each.n_measured}"
        print(f"{each.date:%Y-%m-%d} {each.last_change:%Y-%m-%d} {share:>13}  {each.path}, {', '.join(each.scripts)}")
    n_stale = sum(each.is_stale for each in found)
    print(f"{n_stale} of {len(found)} results are older than code that they measure.")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))

"""The glossary: names that were replaced stand nowhere in the code or the documentation.

A coined word is looked for in identifiers, comments, docstrings, messages and pages. A word that is plain English as
well is looked for as an identifier only, where it was used in the replaced sense. Strings without a space (keys of
saved files, paths) are left out, and so is `CHANGELOG.md`, which names what was renamed.

Not tested, since the plain and the replaced sense look alike: `given`, `source`, `hidden`, `chunk`, `run`, `step`,
`after`, `slice`; and `arcs`, a key of checkpoints.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE = ("seqmodels", "tests", "experiments", "benchmarks", "tools")
PAGES = ("README.md", "CONTRIBUTING.md", "docs", "benchmarks")
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")  # of an identifier: KVCache -> KV, Cache


@dataclass(frozen=True)
class Replaced:
    """Words, separated by spaces; what they are called instead; and the folder in which they are replaced."""

    words: str
    instead: str
    within: str = "."

    def __str__(self) -> str:
        return self.words.replace(" ", "-")


# Coined words: in identifiers (as a part too) and in prose.
COINED = [
    Replaced("road roads", "fallback; batched and incremental evaluation; hypothesis"),
    Replaced("travel travels travelled mend mends mended", "fallback, recompute", "seqmodels"),
    Replaced("sight outlook", "mask"),
    Replaced("desk desks workspace workspaces", "packed weights, KV cache, buffers"),
    Replaced("climb climbs climbed climbing", "EM run, increase"),
    Replaced("ladder ladders rung rungs", "backoff lexicon, context order"),
    Replaced("honest honestly honesty", "calibration"),
]

# Identifiers, whole, in the folder where they had the replaced sense.
IDENTIFIERS = [
    Replaced("WrittenAttention written", "explicit attention", "seqmodels/neural"),
    Replaced("gathered Reading turn turned", "packed weights, token shift, rotate", "seqmodels/neural"),
    Replaced("_upwards upwards", "run layers", "seqmodels/neural"),
    Replaced("thin thinned lock locked", "weight drop, variational dropout", "seqmodels/neural"),
    Replaced("PreviousInputs", "short causal convolution"),
    Replaced("TransformerShape TransformerOptions", "TransformerConfig"),
    Replaced("Ends Side", "IOSpec"),
    Replaced("shown asked wanted answers", "inputs, targets", "seqmodels"),
    Replaced("kept_softmax large_vocabulary", "fused, chunked cross-entropy"),
    Replaced("backwards", "reverse padded sequences", "seqmodels"),
    Replaced("Recall Listener", "carried state, TrainConfig, callback"),
    Replaced("Step observe", "batch result, callback", "seqmodels/training"),
    Replaced("Pull", "jump prior"),
    Replaced("Memory", "RecurrentState, KVCache, SufficientStatistics"),
    Replaced("ENOUGH STARTED WIDE LARGE", "constants named for what they bound"),
    Replaced("real", "mask", "seqmodels/neural"),
    Replaced("possible goes_on inside live own found", "say the thing: end_logit, compute_dtype, ...", "seqmodels"),
    Replaced("stretch stretches cutting", "time-parallel segment", "seqmodels/hmm"),
    Replaced("begins", "initial counts", "seqmodels/hmm"),
    Replaced("places newer", "context ids, parent", "seqmodels/counts/ngram"),
]

# Names of files and folders.
MODULES = [
    Replaced("roads cutting pieces streams given counting labelled climbing ladder", "DESIGN's names", "seqmodels/hmm"),
    Replaced("walking shown honesty answer origin", "DESIGN's names", "seqmodels/evaluation"),
    Replaced("kept_softmax large_vocabulary backwards gathered desk sight reading written", "-", "seqmodels/neural"),
    Replaced("chosen", "categorical", "seqmodels/observations"),
]

# Names of weights in saved files, which stay as they are.
SAVED = {
    ("own", "seqmodels/neural/ops/tied_linear.py"),
    ("backwards", "seqmodels/neural/tagging/network.py"),
}


@cache
def files(*roots: str, suffix: str) -> list[Path]:
    """Of these folders and files, without results, fixtures and this file."""
    paths = (ROOT / root for root in roots)
    each = [path for root in paths for path in ([root] if root.is_file() else sorted(root.rglob(f"*{suffix}")))]
    left_out = {"results", "0.1.0"}
    return [f for f in each if f.suffix == suffix and f != Path(__file__).resolve() and not left_out & set(f.parts)]


@cache
def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@cache
def in_small_letters(file: Path) -> str:
    return text_of(file).lower()


@cache
def tokens(file: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text_of(file)).readline))


def matching(pattern: str, names: set[str], paths: list[Path]) -> list[Path]:
    """The files that have a name by this pattern anywhere: few, and only they are split into tokens."""
    anywhere, small = re.compile(pattern), [name.lower() for name in names]
    # Looking for a string is many times faster than matching a pattern.
    with_a_name = (file for file in paths if any(name in in_small_letters(file) for name in small))
    return [file for file in with_a_name if anywhere.search(text_of(file))]


def anywhere(names: set[str]) -> str:
    """A pattern of the names as words of any case, and as parts of identifiers: ``the_road``, ``RoadMap``, ``ROAD``."""
    low, title, high = ("|".join(map(change, names)) for change in (str.lower, str.title, str.upper))
    return rf"(?<![a-z])(?:{low})(?![a-z])|(?:{title}|{high})(?![a-z])|\b(?i:{low})\b"


def identifiers(file: Path) -> Iterator[tuple[int, str]]:
    """``(line, name)`` of every name of a Python file."""
    for token in tokens(file):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.start[0], token.string


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """``(line, text)`` of comments, docstrings and messages of a Python file; of every line of a page."""
    if file.suffix == ".md":
        yield from enumerate(text_of(file).splitlines(), 1)
        return
    for token in tokens(file):
        is_text = token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
        if is_text and " " in token.string:
            yield from enumerate(token.string.splitlines(), token.start[0])


def at(file: Path, line: int, word: str) -> str:
    return f"{file.relative_to(ROOT)}:{line}: {word}"


def coined(words: str, code: list[Path], pages: list[Path]) -> list[str]:
    names = set(words.split())
    code, pages = (matching(anywhere(names), names, each) for each in (code, pages))
    text = re.compile(rf"(?<![\w/])(?:{'|'.join(names)})(?![\w/])", re.IGNORECASE)
    in_names = [
        at(file, line, name)
        for file in code
        for line, name in identifiers(file)
        if names & {part.lower() for part in PARTS.findall(name)}
    ]
    return in_names + [
        at(file, line, each) for file in [*code, *pages] for line, said in prose(file) for each in text.findall(said)
    ]


@pytest.mark.parametrize("replaced", COINED, ids=str)
def test_coined_words_are_gone(replaced: Replaced) -> None:
    everywhere = replaced.within == "."
    code = files(*(CODE if everywhere else [replaced.within]), suffix=".py")
    there = coined(replaced.words, code, files(*PAGES, suffix=".md") if everywhere else [])
    assert there == [], f"instead: {replaced.instead}"


@pytest.mark.parametrize("replaced", IDENTIFIERS, ids=str)
def test_identifiers_are_gone(replaced: Replaced) -> None:
    names = set(replaced.words.split())
    folders = CODE if replaced.within == "." else (replaced.within,)
    code = files(*folders, suffix=".py")
    there = [
        at(file, line, name)
        for file in matching(rf"\b(?:{'|'.join(names)})\b", names, code)
        for line, name in identifiers(file)
        if name in names and (name, file.relative_to(ROOT).as_posix()) not in SAVED
    ]
    assert there == [], f"instead: {replaced.instead}"


@pytest.mark.parametrize("replaced", MODULES, ids=str)
def test_modules_are_gone(replaced: Replaced) -> None:
    names = set(replaced.words.split())
    assert [str(f) for f in files(replaced.within, suffix=".py") if f.stem in names] == []


def test_a_class_name_has_one_meaning() -> None:
    """No two public classes of the package share a name."""
    where: dict[str, list[str]] = defaultdict(list)
    for file in files("seqmodels", suffix=".py"):
        for node in ast.parse(text_of(file)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(str(file.relative_to(ROOT)))
    assert {name: places for name, places in where.items() if len(places) > 1} == {}


def test_parameters_are_weights() -> None:
    """What a network emits for an observation are its ``output_parameters``."""
    there = [
        at(file, node.lineno, node.name)
        for file in files("seqmodels/observations", suffix=".py")
        for node in ast.walk(ast.parse(text_of(file)))
        if isinstance(node, ast.FunctionDef) and node.name == "parameters"
    ]
    assert there == []


def test_replaced_words_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file, page = tmp_path / "code.py", tmp_path / "page.md"
    file.write_text("class RoadMap:\n    the_road = 'a/road'  # the road taken\n    abroad = 'no such key'\n")
    page.write_text("Both roads.\n\n    broad\n")
    there = coined("road roads", [file], [page])
    assert there == ["code.py:1: RoadMap", "code.py:2: the_road", "code.py:2: road", "page.md:1: roads"]

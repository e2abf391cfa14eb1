"""The pages of the documentation as programs: their fenced blocks, run in order, and the output that they show.

A block ``text`` right after a block ``python`` or ``sh`` is what that one prints. A comment between the two says what
else is to be known of it (it is in the page's source, and no reader of the site sees it)::

    <!-- shown output: slow; part; any "fit s"; within 0.01 -->

``slow``: tests do not compare it, ``python -m tests.pages`` does. ``part``: of more that is printed.
``any "NAME"``: a column of a table whose values differ from machine to machine. ``within X``: numbers may differ by so
much. Without that, numbers that have a decimal point agree if they do to one unit of the last digit shown or to
1e-5 of their size (sums in float32 depend on their order), and whole numbers if they are equal. White space and the
ends of lines do not count.

``python -m tests.pages [PAGE ..]`` runs pages with the budgets that they have, and shell blocks by a real shell, in an
empty folder each, and compares all shown output: some 15 minutes. Tests shorten budgets, and call commands within
their process.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from matplotlib import pyplot
from typer.testing import CliRunner

import seqmodels as sm
from seqmodels.cli import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [README, CONTRIBUTING, *sorted((ROOT / "docs").rglob("*.md"))]
# Whose shell blocks can be run one after the other, in the folder of the Python above them.
WITH_COMMANDS = [*sorted((ROOT / "docs/jobs").glob("*.md")), ROOT / "docs/guides/audit.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTIONS = re.compile(r"\s*(?:<!-- shown output: (.*?) -->\s*)?")  # between a block and what it prints
BUDGET = re.compile(r"max_(seconds|steps)=\d+")
# What tests make smaller besides, in blocks whose output no page shows: sizes of data, rounds of EM.
SMALLER: dict[str, dict[str, str]] = {
    "docs/comparing.md": {
        "[:40_000]": "[:6_000]",
        "text[:20_000]": "text[:4_000]",
        "HMM(8, max_iter=5)": "HMM(8, max_iter=2)",
        "seconds=2": "seconds=0.2",
        "text[:8_000]": "text[:1_000]",
    },
    "docs/start.md": {
        "[:80_000]": "[:8_000]",
        "HMM(16": "HMM(4",
        "max_iter=10": "max_iter=2",
        "speech(40, 8": "speech(24, 8",
    },
    "docs/guides/mixtures.md": {"[:60_000]": "[:8_000]"},
    "docs/jobs/classify.md": {
        "n_states=6": "n_states=2",
        "HMM(6": "HMM(2",
        "range(30)": "range(10)",
        "range(90)": "range(30)",
    },
    "docs/models/hmm.md": {
        "tol=1e-8, max_iter=1000": "tol=1e-5, max_iter=100",
        "n_samples=50, warmup=50": "n_samples=4, warmup=4",
        "sample_posterior(100)": "sample_posterior(10)",
    },
    "docs/models/linear-gaussian.md": {
        "sample(24, length=60": "sample(24, length=15",
        "n_init=2, particle_steps=5": "n_init=1, particle_steps=1",
    },
    "docs/guides/asked-elsewhere.md": {
        "n_symbols=1000": "n_symbols=20",
        "[0, 999]": "[0, 19]",
        "max_duration=30": "max_duration=5",
        "tol=1e-9, max_iter=500": "tol=1e-5, max_iter=50",
    },
    "docs/guides/irregular-times.md": {
        "exponential(3.0, 12)) for _ in range(100)": "exponential(3.0, 6)) for _ in range(10)",
        "uniform(0, 60, 200)": "uniform(0, 60, 40)",
        "normal(size=200)": "normal(size=40)",
    },
    "docs/guides/forecast-a-series.md": {
        'pd.read_csv("sales.csv"), horizon=12)': 'pd.read_csv("sales.csv"), horizon=12, max_seconds=.01)',
        "sm.forecast(past, horizon=12)": "sm.forecast(past, horizon=12, max_seconds=.01)",
        "horizon=7, season=1": "horizon=7, max_seconds=.01, season=1",
    },
    "docs/guides/series.md": {"480": "240", "n=100": "n=20"},
    "docs/jobs/generate.md": {"fit(book)": "fit([book[0][:40_000]])"},
    "docs/guides/speech.md": {"speech(40, 8": "speech(24, 8", "max_iter=20": "max_iter=2"},
    "docs/guides/classification.md": {"range(30)": "range(10)", "max_iter=10": "max_iter=2"},
    "docs/jobs/compare.md": {
        "speech(60, 24": "speech(24, 8",
        "HMM(16": "HMM(4",
        "max_iter=10": "max_iter=2",
        "[:20_000]": "[:4_000]",
        "said[:20]": "said[:8]",
    },
    "docs/jobs/forecast.md": {"every=12": "every=60", "max_iter=20": "max_iter=2"},
    "docs/jobs/how-many-states.md": {"n_states=1..5": "n_states=1..2"},
}
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
OF_SIZE = 1e-5  # to which two numbers agree in any case


@dataclass(frozen=True)
class Shown:
    """Output that a page shows.

    Attributes:
        text: what is shown.
        slow, part, columns, within: see above.
    """

    text: str
    slow: bool = False
    part: bool = False
    columns: tuple[str, ...] = ()
    within: float = 0.0

    @classmethod
    def of(cls, text: str, options: str | None) -> Shown:
        """Of a block and the comment before it."""
        given: dict[str, Any] = {"columns": ()}
        for option in (options or "").split(";"):
            word, _, value = option.strip().partition(" ")
            if word in ("slow", "part"):
                given[word] = True
            elif word == "any":
                given["columns"] += (value.strip('"'),)
            elif word == "within":
                given["within"] = float(value)
            elif word:
                raise ValueError(f"an option of shown output is {option!r}; it may be slow, part, any .. or within ..")
        return cls(text, **given)

    def differs_from(self, printed: str) -> str:
        """How the output that was ``printed`` differs, in a few lines; empty where it does not."""
        shown, found = _words(self.text, self.columns), _words(printed, self.columns)
        starts = range(len(found) - len(shown) + 1) if self.part else [0]
        if self.part or len(found) == len(shown):
            if any(all(map(self._agree, shown, found[at:])) for at in starts):
                return ""
        return f"shown:\n{self.text}\nprinted:\n{printed}"

    def _agree(self, shown: str, printed: str) -> bool:
        if NUMBER.sub("0", shown) != NUMBER.sub("0", printed):
            return False
        return all(map(self._agree_in_number, NUMBER.findall(shown), NUMBER.findall(printed)))

    def _agree_in_number(self, shown: str, printed: str) -> bool:
        a, b = (float(number.replace(",", "")) for number in (shown, printed))
        _, point, decimals = shown.partition("e")[0].partition(".")
        unit = 10.0 ** -len(decimals) if point else 0.0
        return abs(a - b) <= max(self.within, 1.001 * unit, OF_SIZE * abs(b) if point else 0.0)


def _words(text: str, columns: tuple[str, ...]) -> list[str]:
    """The words of a text; below the name of one of ``columns``, up to a blank line, a star in place of values."""
    words, spans = [], list[tuple[int, int]]()
    for line in text.splitlines():
        if not line.strip():
            spans = []
            continue
        named = [match.span() for name in columns for match in re.finditer(rf"(?<!\S){re.escape(name)}(?!\S)", line)]
        for word in re.finditer(r"\S+", line):
            words.append("*" if any(a < word.end() and word.start() < b for a, b in spans) else word[0])
        spans = named or spans
    return words


@dataclass(frozen=True)
class Block:
    """Code of a page.

    Attributes:
        page: its file.
        language: ``python`` or ``sh``.
        code: the code.
        line: how many lines stand before it.
        shown: its output, where the page shows it.
    """

    page: Path
    language: str
    code: str
    line: int
    shown: Shown | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All Python and shell blocks of a page, in order."""
    return [block for block in _all_blocks(page) if block.language in ("python", "sh")]


def unattached(page: Path) -> list[str]:
    """Blocks ``text`` that are the output of nothing: neither Python nor a shell stands right before them."""
    return [block.code for block in _all_blocks(page) if block.language == "text"]


def _all_blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    outputs = set[int]()
    for i, fence in enumerate(fences):
        language, code = fence.groups()
        following, shown = fences[i + 1] if i + 1 < len(fences) else None, None
        if language in ("python", "sh") and following is not None and following[1] == "text":
            between = OPTIONS.fullmatch(text, fence.end(), following.start())
            if between is not None:
                shown = Shown.of(following[2], between[1])
                outputs.add(i + 1)
        if i not in outputs:
            yield Block(page, language, code, text.count("\n", 0, fence.start(2)), shown)


def commands(block: Block, *, shorten: bool = False) -> list[str]:
    """The lines of a shell block that call something; one that goes on in the next is one."""
    lines = (smaller(block) if shorten else block.code).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


# -- running -----------------------------------------------------------------------------------------------------------


def make_files(folder: Path) -> None:
    """What pages call ``book.txt`` and ``recordings/``, and say is the reader's own."""
    import soundfile

    (folder / "book.txt").write_text("It was the best of times, it was the worst of times. " * 60)
    (folder / "recordings").mkdir()
    spoken = sm.data.speech(24, 8, syllables=(1, 2))
    for i, (waveform, speaker) in enumerate(zip(spoken.sequences, spoken.sequences.metadata["speaker"], strict=True)):
        label = ("zero", "one")[i % 2]
        soundfile.write(folder / f"recordings/{label}_{speaker}_{i}.wav", np.asarray(waveform)[:, 0], 8000)


def smaller(block: Block) -> str:
    """Its code, with what ``SMALLER`` says of the page."""
    code = block.code
    for size, less in SMALLER.get(block.page.relative_to(ROOT).as_posix(), {}).items():
        code = code.replace(size, less)
    return code


def run_python(block: Block, namespace: dict[str, Any], *, shorten: bool) -> str:
    """What it prints; errors say file and line."""
    code = BUDGET.sub("max_steps=2", smaller(block)) if shorten else block.code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + code, str(block.page), "exec", dont_inherit=True), namespace)
    return printed.getvalue()


def run_commands(block: Block) -> str:
    """What its commands print, called one after the other in this process, with two steps of training and no report."""
    printed = ""
    for line in commands(block, shorten=True):
        tool, *words = shlex.split(line, comments=True)
        assert tool == "seqmodels", f"{block.place}: {line}"
        saved = words[0] == "classify" and Path(words[1]).suffix  # the name of a file, not of a family to be fitted
        if words[0] in ("fit", "compare", "choose", "classify") and not saved:  # of an option twice the last one counts
            words = [w.replace("--seconds", "--steps") for w in words] + ["--steps", "2"]
        with mock.patch("seqmodels.evaluation.runs.run.draw"):  # which takes seconds, and has tests of its own
            result = CliRunner().invoke(app, words)
        if result.exit_code:
            raise RuntimeError(f"{block.place}: {line}\nended with {result.exit_code}: {result.output}")
        printed += result.stdout
    return printed


def run_shell(block: Block) -> str:
    """What a shell prints that is given the block, and stops at the first command that fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    result = subprocess.run(["bash", "-ec", block.code], capture_output=True, text=True, env=environment, check=False)
    if result.returncode:
        raise RuntimeError(f"{block.place} ended with {result.returncode}: {result.stderr}")
    return result.stdout


def run_page(page: Path, *, slow: bool = False) -> list[str]:
    """Its blocks, in order, in the current folder and one namespace; what is shown and differs from what is printed.

    Unless ``slow`` the figures of reports are drawn, but rendered on the README's alone: that takes seconds, and has
    tests of its own.
    """
    if slow or page == README:
        return _differences(page, slow=slow)
    svg = "<svg><defs></defs></svg>"
    with mock.patch("seqmodels.evaluation.comparison.report.elements.as_svg", return_value=svg):
        return _differences(page, slow=slow)


def _differences(page: Path, *, slow: bool) -> list[str]:
    namespace, differences = dict[str, Any](__name__="page"), []
    for block in blocks(page):
        if block.language == "python":
            printed = run_python(block, namespace, shorten=not slow)
        elif page in WITH_COMMANDS or (slow and block.shown is not None):
            printed = run_shell(block) if slow else run_commands(block)
        else:
            continue
        if block.shown is not None and (slow or not block.shown.slow):
            difference = block.shown.differs_from(printed)
            differences += [f"{block.place}\n{difference}"] * bool(difference)
    pyplot.close("all")
    return differences


def main(names: list[str]) -> int:
    """Run pages, those named or all that show output or have commands; 1 where anything differs or fails."""
    pages = [page for page in PAGES if page in WITH_COMMANDS or any(block.shown for block in blocks(page))]
    if names:
        pages = [Path(name).resolve() for name in names]
    differing = []
    for page in pages:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if page not in WITH_COMMANDS:
                make_files(Path(folder))
            try:
                found = run_page(page, slow=True)
            except Exception as error:
                found = [f"{page}: {type(error).__name__}: {error}"]
        print("differs" if found else "agrees ", page.relative_to(ROOT), flush=True)
        print(*found, sep="\n\n", end="\n" * bool(found), flush=True)
        differing += found
    return int(bool(differing))


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("agg")
    sys.exit(main(sys.argv[1:]))

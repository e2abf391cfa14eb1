"""README and documentation: their Python runs, page by page, with small budgets; commands, pictures and files exist."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import typer

import seqmodels as sm
from seqmodels.cli import app
from tests.pages import (
    CONTRIBUTING,
    PAGES,
    README,
    ROOT,
    SMALLER,
    WITH_COMMANDS,
    Shown,
    blocks,
    commands,
    make_files,
    run_page,
    unattached,
)
from tests.scripts import script

CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
WITH_CODE = [page for page in PAGES if page != CONTRIBUTING and CODE.search(page.read_text(encoding="utf-8"))]
# Whose models take more than a second.
SLOW = (
    "README.md",
    "docs/comparing.md",
    "docs/guides/animal-movement.md",
    "docs/guides/asked-elsewhere.md",
    "docs/guides/audit.md",
    "docs/guides/bring-your-own.md",
    "docs/guides/classification.md",
    "docs/guides/compress.md",
    "docs/guides/covariates.md",
    "docs/guides/dynamic-evaluation.md",
    "docs/guides/irregular-times.md",
    "docs/guides/missing.md",
    "docs/guides/mixtures.md",
    "docs/guides/series.md",
    "docs/guides/speech.md",
    "docs/guides/what-to-try.md",
    "docs/index.md",
    "docs/jobs/anomalies.md",
    "docs/jobs/classify.md",
    "docs/jobs/compare.md",
    "docs/jobs/forecast.md",
    "docs/jobs/generate.md",
    "docs/jobs/how-many-states.md",
    "docs/jobs/translate.md",
    "docs/likelihood.md",
    "docs/models/hidden-chains.md",
    "docs/models/hmm.md",
    "docs/models/index.md",
    "docs/models/linear-gaussian.md",
    "docs/models/semi-markov.md",
    "docs/models/transformer.md",
    "docs/pairs.md",
    "docs/start.md",
)
WRITTEN = {"report.html": 10_000, "alignment.png": 1_000}  # least bytes of what a page writes


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def case_of(page: Path) -> Any:
    return pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if name_of(page) in SLOW else [])


COMMANDS = sorted(
    {
        (line, name_of(page))
        for page in PAGES
        for block in blocks(page)
        if block.language == "sh"
        for line in commands(block)
    }
)


# -- Python ------------------------------------------------------------------------------------------------------------


def test_every_model_and_guide_has_code() -> None:
    without = [name_of(page) for page in PAGES if page.parent.name in ("models", "guides") and page not in WITH_CODE]
    assert without == []


def test_slow_pages_are_pages_with_code() -> None:
    assert set(SLOW) <= {name_of(page) for page in WITH_CODE}


def test_every_block_is_found() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(CODE.findall(text)) == len(re.findall(r"^ *```python", text, re.MULTILINE)), page


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages call ``book.txt`` and ``recordings/``."""
    pytest.importorskip("soundfile")
    folder = tmp_path_factory.mktemp("files")
    make_files(folder)
    return folder


@pytest.mark.parametrize("page", [case_of(page) for page in WITH_CODE])  # of CONTRIBUTING.md in test_contributing.py
def test_code_of_a_page(page: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page not in WITH_COMMANDS:  # a page with commands makes its files, and begins in an empty folder
        for file in files.iterdir():
            if file.is_dir():
                (tmp_path / file.name).symlink_to(file)
            else:  # which a page may write anew
                shutil.copy(file, tmp_path)
    matplotlib.use("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the made-up data may be too easy
        differences = run_page(page)
    assert not differences, "\n\n".join(differences)
    text = page.read_text(encoding="utf-8")
    for name, smallest in WRITTEN.items():
        if any(name in code for code in CODE.findall(text)):
            assert Path(name).stat().st_size > smallest
    for name in re.findall(r'savefig\("([\w.-]+)"\)', "".join(CODE.findall(text))):
        assert Path(name).stat().st_size > 1_000


@pytest.mark.parametrize("name", SMALLER)
def test_what_is_made_smaller_is_in_the_page(name: str) -> None:
    code = "".join(block.code for block in blocks(ROOT / name))
    assert [size for size in SMALLER[name] if size not in code] == []


JOBS = sorted((ROOT / "docs/jobs").glob("*.md"))
MAX_LINES = 12  # of Python, to the picture of a job


def test_there_are_ten_jobs() -> None:
    assert len(JOBS) == 10


@pytest.mark.parametrize("page", JOBS, ids=name_of)
def test_a_job_is_a_dozen_lines_to_its_picture_and_a_command(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (block, *_) = CODE.findall(text)
    lines = [line for line in block.splitlines() if line.strip()]
    until_written = next(i for i, line in enumerate(lines, 1) if ".savefig(" in line)
    assert until_written <= MAX_LINES
    assert f"]({page.stem}.png)" in text
    assert any(line.startswith("seqmodels ") for shell in SHELL.findall(text) for line in shell.splitlines())


def test_what_is_shown_is_printed_by_the_block_before_it() -> None:
    alone = {name_of(page): texts for page in PAGES if (texts := unattached(page))}
    assert list(alone) == ["README.md"]
    assert [text.split(":")[0] for text in alone["README.md"]] == ["ValueError"]  # the next test raises it


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        ("score -3.366", "score  -3.3657", True),  # spaces, and digits that are not shown
        ("score -3.366", "score -3.217", False),
        ("score -3.366", "score -3.369", False),
        ("8341.760", "8341.784", True),  # 3e-6 of it
        ("5 steps", "6 steps", False),  # a whole number
        ("from 2024-05-01 to", "from 2024-05-01 08:00:00 to", False),
        ("a b\n  c", "a\nb c", True),
        ("model  fit s\n  hmm    9.1 1.5", "model fit s\n  hmm  12.9 1.5", True),  # the column below "fit s"
        ("model  fit s\n  hmm    9.1 1.5", "model fit s\n  hmm  12.9 1.7", False),
    ],
)
def test_numbers_agree_to_what_is_shown(shown: str, printed: str, agree: bool) -> None:
    assert (Shown.of(shown, 'any "fit s"').differs_from(printed) == "") == agree


def test_a_part_is_shown_of_more_and_within_what_is_said() -> None:
    assert Shown.of("1.0 b", "part; within 0.2").differs_from("a 1.1 b c") == ""
    assert Shown.of("1.0 b", "part").differs_from("a 1.2 b c")
    assert Shown.of("1.0 b", None).differs_from("a 1.0 b c")
    with pytest.raises(ValueError, match="'slwo'; it may be"):
        Shown.of("", "slwo")


def test_the_error_shown_is_the_error_raised() -> None:
    shown = re.search(r"ValueError: (.*)", README.read_text(encoding="utf-8"))
    assert shown is not None
    with pytest.raises(ValueError, match=re.escape(shown[1])):
        sm.HMM(4).fit(np.zeros((500, 13)))


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "page"), COMMANDS)
def test_commands_exist(line: str, page: str) -> None:
    words = shlex.split(line, comments=True)
    tool = Path(words[0]).name if words else ""
    if tool == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"{page}: {line}"
    if tool == "python" and words[1].endswith(".py"):
        assert (ROOT / words[1]).exists(), f"{page}: {line}"
    if tool == "seqmodels":
        check_call(words[1:], f"{page}: {line}")


def check_call(words: list[str], where: str) -> None:
    """The command is there, and has the options that it is given."""
    command = typer.main.get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
    assert command is not None or words[0] == "--help", where
    if command is not None:
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        asked = {word.split("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
        assert asked <= known | {"--help"}, where


# -- what pages name ---------------------------------------------------------------------------------------------------


def test_arguments_in_tables_exist() -> None:
    public = [getattr(part, name) for part in (sm, sm.training, sm.hmm, sm.observations) for name in part.__all__]
    classes = [each for each in public if inspect.isclass(each) and not issubclass(each, Exception)]
    known = {name for each in classes for name in inspect.signature(each).parameters}
    for page in (ROOT / "docs/models").glob("*.md"):
        for cell in re.findall(r"^\| ([^|]*) \|", page.read_text(encoding="utf-8"), re.MULTILINE):
            named = set(re.findall(r"`([a-z_]+)=?`", cell))
            assert named <= known, f"{name_of(page)}: {named - known}"


def anchors(page: Path) -> set[str]:
    """The anchors that the site gives to the headings of a page, and those that the page has itself."""
    text = page.read_text(encoding="utf-8")
    headings, written = re.findall(r"^#+ (.+)$", text, re.MULTILINE), re.findall(r'id="([\w-]+)"', text)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {*written, *(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in plain)}


def documented(page: Path) -> set[str]:
    """The objects whose docstrings a page has, which are anchors too."""
    return set(re.findall(r"^::: (seqmodels\.[\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^):#]+\.md|)(?:#([\w.-]+))?\)", page.read_text(encoding="utf-8")):
            target = page.parent / link if link else page
            assert target.exists(), f"{name_of(page)}: {link}"
            if anchor:
                assert anchor in anchors(target) | documented(target), f"{name_of(page)}: {link}#{anchor}"


PATH = re.compile(r"`((?:[\w.-]+/)+|(?:[\w.-]+/)*[\w-]+\.py)`")  # `inference/chains/`, `model.py`


@pytest.mark.parametrize("page", [CONTRIBUTING, ROOT / "docs/architecture.md"], ids=name_of)
def test_paths_exist(page: Path) -> None:
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "seqmodels"))] == []


def test_the_picture_of_the_architecture_is_current() -> None:
    drawing = script("architecture")
    assert (ROOT / "docs/architecture.svg").read_text(encoding="utf-8") == drawing.svg()
    named = [path for box in drawing.BOXES for path in box.files.replace("|", " ").split()]
    assert [path for path in named if not (ROOT / "seqmodels" / path).exists()] == []


def test_the_version_is_the_same_everywhere() -> None:
    places = {
        "CITATION.cff": r"^version: (.+)$",
        "README.md": r"version = \{(.+)\}",
        "docs/start.md": r"dist/seqmodels-(.+)-py3",
        "CHANGELOG.md": r"^## \[(\d.+)\] - \d{4}-\d\d-\d\d$",  # the newest release comes first
    }
    found = {
        name: re.findall(each, (ROOT / name).read_text(encoding="utf-8"), re.M)[0] for name, each in places.items()
    }
    assert set(found.values()) == {sm.__version__}, found


def test_every_experiment_is_in_their_list() -> None:
    folder = ROOT / "experiments"
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+\.py)`", text)) == {script.name for script in folder.glob("*.py")}
    results = set(re.findall(r"`(\w+(?:/|\.csv))`", text)) - {"results/", "claims/"}
    assert results == {p.name + "/" * p.is_dir() for p in (folder / "results").iterdir()} - {"claims/"}


# -- the site ----------------------------------------------------------------------------------------------------------


def test_every_picture_is_there() -> None:
    for page in PAGES:
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).exists(), picture


def test_every_page_is_in_the_navigation() -> None:
    nav = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages | {"experiments.md"} == nav  # which `make experiments` writes


REFERENCE = sorted((ROOT / "docs/reference").glob("*.md"))
MOST_NAMES = 30  # on one page of the reference, which would be too long to scroll


def test_every_public_name_is_in_the_reference_once() -> None:
    described = [name for page in REFERENCE for name in documented(page)]
    assert len(described) == len(set(described))
    assert len(described) == len({(name.split(".")[1], name.rpartition(".")[2]) for name in described})
    at_root = {name for name in sm.__all__ if not inspect.ismodule(getattr(sm, name))} - {"__version__"}
    in_packages = {
        f"{package}.{name}"
        for package in ("counts", "encodings", "hmm", "linear_gaussian", "plot")  # whose every name users turn to
        for name in getattr(sm, package).__all__
        if name not in sm.__all__
    }
    assert set(described) >= {f"seqmodels.{name}" for name in at_root | in_packages}
    assert max(len(documented(page)) for page in REFERENCE) <= MOST_NAMES


def test_the_index_of_the_reference_has_a_link_to_every_name() -> None:
    index = ROOT / "docs/reference/index.md"
    links = re.findall(r"\]\(([\w-]+\.md)#(seqmodels[\w.]+)\)", index.read_text(encoding="utf-8"))
    assert sorted(links) == sorted((page.name, name) for page in REFERENCE for name in documented(page))


def test_the_site_is_dark_where_the_system_is() -> None:
    palette = re.findall(r'- media: "(.*)"\n +scheme: (\w+)', (ROOT / "mkdocs.yml").read_text())
    system, light, dark = "(prefers-color-scheme)", "(prefers-color-scheme: light)", "(prefers-color-scheme: dark)"
    assert palette == [(system, "default"), (light, "default"), (dark, "slate")]  # what holds at first is the first


def test_nothing_is_fetched_by_the_site() -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in config
    assert not re.findall(r"https?://", config)


def test_doctests_become_code() -> None:
    markdown = pytest.importorskip("markdown")
    text = "Says:\n>>> a[0, 1][2]\n5\n\nand more"
    html = markdown.markdown(text, extensions=[script("doctests").makeExtension(), "fenced_code"])
    assert '<code class="language-pycon">&gt;&gt;&gt; a[0, 1][2]\n5\n</code>' in html
    assert "<p>and more</p>" in html


def test_equations_become_mathml() -> None:
    pytest.importorskip("latex2mathml")
    markdown = pytest.importorskip("markdown")
    text = "It is $x_{<t}$, `$x$`, 5 $ or 6 $.\n\n$$\n\\log p(x)\n$$\n"
    html = markdown.markdown(text, extensions=[script("mathml").makeExtension()])
    assert html.count("<math") == 2
    assert '<div class="equation"><math' in html
    assert "<code>$x$</code>" in html
    assert "5 $ or 6 $" in html
    assert "&#x0003C;" in html


def test_no_equation_has_an_alignment_that_the_converter_cannot_do() -> None:
    for page in PAGES:
        for equation in re.findall(r"^\$\$\n(.*?)^\$\$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            assert "&" not in equation or "cases" in equation, f"{name_of(page)}: {equation}"

"""One page: whole, self-contained, the same each time, with the sections that apply and no others."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from seqmodels.evaluation.comparison.report.page import POLICY, html_report
from seqmodels.evaluation.comparison.report.ranking import trials

ALWAYS = ["Ranking", "Likelihood by position", "Calibration", "How to have it again"]
KINDS = pytest.mark.parametrize("kind", ["texts", "vectors", "pairs", "symbols"])
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (400, 1400)


@pytest.fixture(scope="module")
def pages():
    """Each page is drawn once."""
    drawn = {}

    def page(name, comparison):
        if name not in drawn:
            drawn[name] = html_report(comparison)
        return drawn[name]

    return page


@pytest.mark.quick_cases(1)
@KINDS
def test_it_is_whole_and_fetches_nothing(kind, request, read, pages):
    page = read(pages(kind, request.getfixturevalue(kind)))
    assert len(page.ids) == len(set(page.ids))
    assert [link.removeprefix("#") for link in page.links if link.removeprefix("#") not in page.ids] == []
    assert all(image["src"].startswith("data:image/") for image in page.images)
    assert all(len(image["alt"]) > 30 for image in page.images)
    assert len(page.narrow) == len(page.images)
    assert all(source.startswith("data:image/") for source in page.narrow)
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page.source)
    assert "url(" not in page.source
    assert len(page.source) < 3_000_000
    assert set(ALWAYS) <= set(page.headings)


@pytest.mark.usefixtures("_undrawn")
def test_sections_stand_where_they_apply(texts, vectors, pairs, symbols, read):
    headings = {
        name: [heading for heading in read(html_report(made)).headings if heading not in ALWAYS]
        for name, made in (("texts", texts), ("vectors", vectors), ("pairs", pairs), ("symbols", symbols))
    }
    assert headings["texts"] == ["Where 3-gram <b> and hmm differ", "Samples", "Hidden states", "Learning curves"]
    assert headings["vectors"] == ["Where three and one differ", "Samples", "Hidden states", "Learning curves"]
    assert headings["pairs"][0] == "All pairs"
    first, second = headings["pairs"][1:3]
    assert first.startswith("Where ")
    assert second.startswith("Where ")
    assert first != second
    assert headings["pairs"][3:] == ["Samples", "Hidden states", "Attention", "Learning curves"]
    assert headings["symbols"] == ["Samples", "Hidden states"]


@pytest.mark.usefixtures("_undrawn")
def test_names_and_texts_are_escaped(texts, read):
    page = read(html_report(texts))
    assert "<b>" not in page.source
    assert "Poems & <prose>" in page.text
    assert "3-gram <b> explains the held-out data best" in page.text


@pytest.mark.usefixtures("_undrawn")
def test_the_same_comparison_gives_the_same_page(symbols):
    known = replace(symbols, provenance={"date": "today"})
    assert html_report(known) == html_report(known)


def test_trials_are_shown_where_there_are_any(texts):
    found = pd.DataFrame({"model": ["hmm", "hmm"], "settings": ["n_states=2", "n_states=3"], "score": [-2.5, np.nan]})
    section = trials(replace(texts, search=found))
    assert section.title == "Search for settings"
    assert "<td>n_states=3</td><td></td>" in section.body
    assert trials(texts) is None


@pytest.mark.usefixtures("_undrawn")
def test_without_sources_what_needs_them_is_left_out(pairs, read):
    page = read(html_report(replace(pairs, source=None)))
    assert set(page.headings) & {"Calibration", "Samples", "Attention", "Hidden states"} == set()
    assert "Ranking" in page.headings


@pytest.mark.usefixtures("_undrawn")
def test_to_html_writes_the_page(symbols, tmp_path):
    symbols.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_in_a_browser_nothing_overflows_and_nothing_is_logged(vectors, pages, tmp_path):
    """The page in two frames of a page, of a telephone's and of a wide screen's, each of which tells its width."""
    page = pages("vectors", vectors)
    assert f'content="{POLICY}"' in page
    tell = "<script>parent.postMessage([innerWidth, document.documentElement.scrollWidth], '*')</script></body>"
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    (tmp_path / "telling.html").write_text(page.replace(POLICY, "img-src data:").replace("</body>", tell), "utf-8")
    frames = "".join(f'<iframe src="telling.html" width="{width}" frameborder="0"></iframe>' for width in WIDTHS)
    listen = "<script>addEventListener('message', e => document.body.append('|' + e.data.join(' ') + '|'))</script>"
    outer = f'<!doctype html><body>{listen}{frames}<iframe src="page.html"></iframe></body>'
    (tmp_path / "outer.html").write_text(outer, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += [f"--user-data-dir={tmp_path}/user", "--enable-logging=stderr", "--hide-scrollbars", "--dump-dom"]
    ran = subprocess.run(
        [str(CHROMIUM), *options, f"file://{tmp_path}/outer.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in ran.stderr
    told = {int(width): int(wide) for width, wide in re.findall(r"\|(\d+) (\d+)\|", ran.stdout)}
    assert told == {width: width for width in WIDTHS}

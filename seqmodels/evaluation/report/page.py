"""The page: title, summary, contents, and the sections that apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from seqmodels.evaluation.report import (
    attention,
    calibration,
    curves,
    differences,
    provenance,
    ranking,
    samples,
    states,
)
from seqmodels.evaluation.report.html import STYLE, Section, escape

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

# In the order of the page; each returns None where it does not apply.
SECTIONS: tuple[Callable[[Comparison], Section | None], ...] = (
    ranking.section,
    curves.position,
    calibration.section,
    differences.section,
    samples.section,
    states.section,
    attention.section,
    curves.learning,
    ranking.trials,
    provenance.section,
)
# Nothing is fetched, and the browser is told to fetch nothing.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def html_report(comparison: Comparison) -> str:
    """The whole page as text: tables, pictures, coloured texts; it opens without a network and takes seconds to draw.

    Samples from the models and runs them over some of the test data (with fixed seeds: the same comparison gives the
    same page).
    """
    title = str(comparison.frame.attrs.get("title", "")) or "Comparison of sequence models"
    sections = [made for section in SECTIONS if (made := section(comparison)) is not None]
    contents = "".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in sections)
    body = "\n".join(section.html() for section in sections)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>{STYLE}</style></head><body>
<header><h1>{escape(title)}</h1>
<p class="quiet">{escape(_subtitle(comparison))}</p>
<p class="summary">{escape(ranking.summary(comparison))}</p>
<nav aria-label="Contents"><ul>{contents}</ul></nav></header>
<main>
{body}
</main>
</body></html>
"""


def _subtitle(comparison: Comparison) -> str:
    test = comparison.test
    n = len(comparison.models)
    models = f"{n} model{'s' * (n != 1)}"
    sequences = f"{len(test):,} held-out sequence{'s' * (len(test) != 1)}"
    return f"{models} on {sequences} ({int(test.n_units.sum()):,} {test.unit}s), by comparable likelihoods"

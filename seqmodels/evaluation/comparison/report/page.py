"""The page of the report: title, summary, contents, the sections that apply, and the provenance of the figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.colors import to_rgb

from seqmodels.common.html import element, render
from seqmodels.common.storage import describe
from seqmodels.data import sha256
from seqmodels.evaluation.comparison.provenance import provenance
from seqmodels.evaluation.comparison.report import adaptation, curves, differences, inspection, ranking, samples
from seqmodels.evaluation.comparison.report.elements import Section, together
from seqmodels.plot.style import COLOURS

if TYPE_CHECKING:
    from markupsafe import Markup

    from seqmodels.evaluation.comparison.comparison_data import ComparisonData

# The page fetches nothing, and this policy keeps the browser from fetching anything.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
FOLDED = ("models", "search", "settings")  # entries of the provenance that are shown as JSON, folded away


def html_report(comparison: ComparisonData) -> str:
    """Return the report of a comparison as one HTML page, with tables, pictures and coloured texts.

    It draws samples from the models and applies them to some of the test data, which takes seconds. Seeds are fixed, so
    that the same comparison gives the same page.
    """
    title = str(comparison.frame.attrs.get("title", "")) or "Outcome of sequence models"
    in_order = [
        ranking.section(comparison),
        ranking.pairs(comparison),
        adaptation.section(comparison),
        curves.position(comparison),
        curves.calibration(comparison),
        differences.section(comparison),
        differences.runner_up_section(comparison),
        samples.section(comparison),
        inspection.hidden_states(comparison),
        inspection.attention(comparison),
        curves.learning(comparison),
        curves.code_lengths(comparison),
        ranking.trials(comparison),
        provenance_section(comparison),
    ]
    from markupsafe import Markup

    page = render(
        "report.html",
        title=title,
        subtitle=_subtitle(comparison),
        summary=ranking.summary(comparison),
        sections=[section for section in in_order if section is not None],  # a section that does not apply is None
        policy=Markup(POLICY),
        state_colours=[tuple(round(255 * part) for part in to_rgb(colour)) for colour in COLOURS],
    )
    return str(page)


def _subtitle(comparison: ComparisonData) -> str:
    test = comparison.test
    n = len(comparison.models)
    models = f"{n} model{'s' * (n != 1)}"
    sequences = f"{len(test):,} held-out sequence{'s' * (len(test) != 1)}"
    return f"{models} on {sequences} ({int(test.n_units.sum()):,} {test.unit}s), by comparable likelihoods"


# -- the provenance -------------------------------------------------------------------------------------------


def provenance_section(comparison: ComparisonData) -> Section:
    """Return the report's section on how to reproduce the scores: command, versions, hardware, hashes and settings."""
    record = known_provenance(comparison)
    entries = {
        name.replace("_", " "): _value_in_words(value) for name, value in record.items() if name not in FOLDED and value
    }
    entries |= {"seconds of fitting": _fit_seconds(comparison)}
    command = str(record.get("command", ""))
    again = "To have these figures again: the same data (compare the hashes), versions and command"
    words = f"{again}; budgets in steps repeat but for rounding, budgets in seconds depend on the machine."
    body = together(
        element("paragraph", words),
        element("preformatted", f"python {command}", code=True) if command else None,
        element("definitions", {name: value for name, value in entries.items() if name != "command"}),
        *(element("details", name.capitalize(), _json_block(record[name])) for name in FOLDED if record.get(name)),
    )
    return Section("provenance", "How to have it again", body)


def known_provenance(comparison: ComparisonData) -> dict[str, Any]:
    """Return the provenance that was stored with the comparison (command, date, versions, hardware, data, settings).

    If it has none, return the provenance of its test data and models on this machine, now.
    """
    if comparison.provenance:
        return dict(comparison.provenance)
    parts = (
        {"test": comparison.test}
        if comparison.source is None
        else {"test x": comparison.source, "test y": comparison.test}
    )
    return {
        **provenance(),
        "sha256": {name: sha256(part) for name, part in parts.items()},
        "models": {name: describe(model) for name, model in comparison.models.items()},
    }


def _value_in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_value_in_words(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _fit_seconds(comparison: ComparisonData) -> str:
    rows = zip(comparison.frame["model"], comparison.frame["fit_seconds"], strict=True)
    return "; ".join(f"{name}: {seconds:.1f}" for name, seconds in rows if seconds == seconds)


def _json_block(value: Any) -> Markup:
    return element("preformatted", json.dumps(value, indent=2, ensure_ascii=False, default=str))

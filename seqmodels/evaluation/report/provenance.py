"""Where the figures come from, and how to reproduce them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seqmodels.data import sha256
from seqmodels.evaluation.provenance import provenance
from seqmodels.evaluation.report.html import Section, definitions, details, escape, paragraph
from seqmodels.storage import describe

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

FOLDED = ("models", "search", "settings")  # shown as JSON, folded away


def section(comparison: Comparison) -> Section:
    """Command, date, versions, hardware, hashes of the data, every model's settings."""
    record = known_provenance(comparison)
    entries = {name.replace("_", " "): _flat(value) for name, value in record.items() if name not in FOLDED and value}
    entries |= {"seconds of fitting": _seconds(comparison)}
    command = str(record.get("command", ""))
    again = "To have these figures again: the same data (compare the hashes), versions and command"
    body = [
        paragraph(f"{again}; budgets in steps repeat exactly, budgets in seconds depend on the machine."),
        f"<pre><code>python {escape(command)}</code></pre>" if command else "",
        definitions({name: value for name, value in entries.items() if name != "command"}),
        *(details(name.capitalize(), _json(record[name])) for name in FOLDED if record.get(name)),
    ]
    return Section("provenance", "How to have it again", "\n".join(body))


def known_provenance(comparison: Comparison) -> dict[str, Any]:
    """The comparison's provenance; of one without it, that of its test data and models, now and on this machine."""
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


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_flat(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _seconds(comparison: Comparison) -> str:
    rows = zip(comparison.frame["model"], comparison.frame["fit_seconds"], strict=True)
    return "; ".join(f"{name}: {seconds:.1f}" for name, seconds in rows if seconds == seconds)


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False, default=str))}</pre>"

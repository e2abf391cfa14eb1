"""The table and the forest plot; and, where settings were searched, the trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmodels.evaluation.report.html import Section, details, number, paragraph, picture, table

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison


def section(comparison: Comparison) -> Section:
    """Who is best, in figures and in a picture."""
    frame = comparison.frame
    rows = frame[frame["score"].notna()]
    parts = zip(rows["model"], rows["difference"], rows["ci_low"], rows["ci_high"], strict=True)
    alt = "Difference to the baseline of each model, best first: " + "; ".join(_said(*part) for part in parts)
    failed = [f"{name} failed: {error}" for name, error in zip(frame["model"], frame["error"], strict=True) if error]
    body = [
        table(comparison.table(), "Ranking of the models"),
        picture(comparison.plot_forest(), alt, "Each model's difference to the baseline with its interval."),
        details("How to read the figures", paragraph(comparison.how_to_read())),
        *map(paragraph, failed),
    ]
    return Section("ranking", "Ranking", "\n".join(body))


def _said(name: str, difference: float, low: float, high: float) -> str:
    interval = "" if np.isnan(low) else f" ({number(low, '+.3f')} to {number(high, '+.3f')})"
    return f"{name} {number(difference, '+.3f')}{interval}"


def trials(comparison: Comparison) -> Section | None:
    """Every setting that was tried before the one that was taken."""
    found = comparison.search
    if not len(found):
        return None
    words = "Settings were chosen on the training part alone, by cross-validation; the test part was looked at once, by the best."
    shown = found.copy()
    for column in shown.select_dtypes("float"):
        shown[column] = [f"{x:.4f}" if np.isfinite(x) else "" for x in shown[column]]
    body = paragraph(words) + details(f"All {len(found)} trials", table(shown, "Trials of the search"))
    return Section("trials", "Search for settings", body)

"""Pieces of the page: every text is escaped, every picture embedded, whatever is wide scrolls in its own box."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

MOST_SVG = 120_000  # bytes; past them a PNG is smaller


@dataclass(frozen=True)
class Section:
    """One heading of the page: ``anchor`` (its address), ``title``, ``body`` (HTML)."""

    anchor: str
    title: str
    body: str

    def html(self) -> str:
        """With its heading."""
        return f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-title">\n<h2 id="{self.anchor}-title">{escape(self.title)}</h2>\n{self.body}\n</section>'


def escape(text: Any) -> str:
    """For the text between tags and inside quoted attributes."""
    return html.escape(str(text))


def paragraph(text: str, *, quiet: bool = False) -> str:
    """Of plain text."""
    opened = '<p class="quiet">' if quiet else "<p>"
    return f"{opened}{escape(text)}</p>"


def details(summary: str, body: str) -> str:
    """Folded away until asked for; ``body`` is HTML."""
    return f"<details><summary>{escape(summary)}</summary>\n{body}\n</details>"


def table(frame: pd.DataFrame, label: str) -> str:
    """A row a row, the first column their headings; ``label`` says what it is to those who do not see it."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in frame.columns)
    rows = "\n".join(_row(row) for row in frame.astype(str).to_numpy().tolist())
    inside = f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{inside}</div>'


def _row(cells: list[str]) -> str:
    first, *rest = map(escape, cells)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'


def number(value: float, form: str) -> str:
    """With a minus as long as the plus: ``number(-1, "+.2f")`` is ``"−1.00"``."""
    return format(value, form).replace("-", "−")


def definitions(pairs: Mapping[str, Any]) -> str:
    """Names and what they stand for."""
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs.items()) + "</dl>"


def picture(figure: Figure, alt: str, caption: str) -> str:
    """A figure with what it shows in words (``alt``), and how to read it under it."""
    image = f'<img alt="{escape(alt)}" src="{embedded(figure)}">'
    box = f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}">{image}</div>'
    return f"<figure>{box}<figcaption>{escape(caption)}</figcaption></figure>"


def embedded(figure: Figure) -> str:
    """A ``data:`` address: SVG, sharp at any size, or PNG where that is much smaller. The same figure gives the same text."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "seqmodels", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    if buffer.tell() <= MOST_SVG:
        return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

"""Elements of the page, and its style sheet. Texts are escaped, pictures embedded, wide elements scroll."""

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

MAX_SVG_SIZE = 120_000  # bytes; above it a PNG is smaller


@dataclass(frozen=True)
class Section:
    """A section of the page: ``anchor`` (its id), ``title`` (text), ``body`` (HTML)."""

    anchor: str
    title: str
    body: str

    def html(self) -> str:
        """The section with its heading."""
        heading = f'<h2 id="{self.anchor}-title">{escape(self.title)}</h2>'
        return f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-title">\n{heading}\n{self.body}\n</section>'


def escape(text: Any) -> str:
    """Escaped for the text between tags and for quoted attributes."""
    return html.escape(str(text))


def paragraph(text: str, *, quiet: bool = False) -> str:
    """A paragraph of plain text; ``quiet``: in small grey type."""
    tag = '<p class="quiet">' if quiet else "<p>"
    return f"{tag}{escape(text)}</p>"


def details(summary: str, body: str) -> str:
    """A body (HTML) that is folded away until its summary is clicked."""
    return f"<details><summary>{escape(summary)}</summary>\n{body}\n</details>"


def table(frame: pd.DataFrame, label: str) -> str:
    """The frame's rows, with its first column as their headings; ``label`` describes the table to screen readers."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in frame.columns)
    rows = "\n".join(_row(row) for row in frame.astype(str).to_numpy().tolist())
    body = f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{body}</div>'


def _row(cells: list[str]) -> str:
    first, *rest = map(escape, cells)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'


def number(value: float, form: str) -> str:
    """Formatted, with a minus sign in place of a hyphen: ``number(-1, "+.2f")`` is ``"−1.00"``."""
    return format(value, form).replace("-", "−")


def definitions(pairs: Mapping[str, Any]) -> str:
    """A definition list of names and values."""
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs.items()) + "</dl>"


def picture(figure: Figure, alt: str, caption: str) -> str:
    """A figure with a description of what it shows (``alt``), and a caption on how to read it."""
    image = f'<img alt="{escape(alt)}" src="{data_url(figure)}">'
    box = f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}">{image}</div>'
    return f"<figure>{box}<figcaption>{escape(caption)}</figcaption></figure>"


def data_url(figure: Figure) -> str:
    """A figure as a ``data:`` URL: SVG, or PNG where that is much smaller. The same figure gives the same text."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "seqmodels", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    if buffer.tell() <= MAX_SVG_SIZE:
        return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


# Light and dark, on a telephone and on paper.
STYLE = """
:root { color-scheme: light dark; --ink: #1b1d21; --quiet: #5b616b; --paper: #fafafa; --card: #ffffff;
  --line: #dcdfe4; --link: #0058a3;
  --good: 0,114,178; --bad: 213,94,0; --deep: 0.7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --quiet: #a5abb5; --paper: #131519; --card: #1c1f24;
  --line: #353a42; --link: #7cc0f5;
  --good: 40,130,205; --bad: 215,100,20; --deep: 0.65; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0 auto; max-width: 64rem; padding: 2rem 1.25rem 5rem;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif;
  color: var(--ink); background: var(--paper); overflow-wrap: break-word; }
h1 { font-size: clamp(1.45rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 0.3rem; letter-spacing: -0.01em; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 0.5rem; padding-top: 0.9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); outline-offset: 2px;
  border-radius: 4px; }
.quiet { color: var(--quiet); font-size: 0.92rem; }
.summary { font-size: 1.12rem; background: var(--card); border: 1px solid var(--line);
  border-left: 5px solid rgb(var(--good)); border-radius: 8px;
  padding: 0.9rem 1.1rem; margin: 1.1rem 0; max-width: none; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0.4rem; padding: 0; margin: 1rem 0 0; }
nav a { display: inline-block; padding: 0.2rem 0.75rem; border: 1px solid var(--line); border-radius: 99px;
  background: var(--card); font-size: 0.9rem;
  text-decoration: none; }
nav a:hover { text-decoration: underline; }
.scroll { overflow-x: auto; max-width: 100%; margin: 0.8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.88rem; }
th, td { padding: 0.32rem 0.8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { color: var(--quiet); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0.2rem; }
tbody th { font-weight: 500; } #ranking tbody tr:first-child th { font-weight: 700; }
figure { margin: 1rem 0 1.6rem; }
figure .scroll { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; padding: 0.7rem; }
figure img { display: block; width: 100%; min-width: 34rem; max-width: 56rem; height: auto; margin: 0 auto; }
figcaption { color: var(--quiet); font-size: 0.92rem; max-width: 46rem; }
details { border: 1px solid var(--line); border-radius: 8px; background: var(--card); padding: 0 1rem;
  margin: 0.8rem 0; }
summary { cursor: pointer; padding: 0.6rem 0; font-weight: 600; }
pre, .passage { font: 0.86rem/1.65 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; margin: 0.5rem 0;
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.7rem 0.9rem; }
details pre { border: 0; padding: 0 0 0.8rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 0 1rem; }
.passage { max-width: none; } .passage span { border-radius: 2px; }
.b1 { background: rgba(var(--good),0.14); } .b2 { background: rgba(var(--good),0.30); }
  .b3 { background: rgba(var(--good),0.50); }
.b4 { background: rgba(var(--good),var(--deep)); }
.w1 { background: rgba(var(--bad),0.14); } .w2 { background: rgba(var(--bad),0.30); }
  .w3 { background: rgba(var(--bad),0.50); }
.w4 { background: rgba(var(--bad),var(--deep)); }
.s0 { background: rgba(0,114,178,0.38); } .s1 { background: rgba(213,94,0,0.38); }
  .s2 { background: rgba(0,158,115,0.38); }
.s3 { background: rgba(204,121,167,0.38); } .s4 { background: rgba(86,180,233,0.38); }
  .s5 { background: rgba(230,159,0,0.38); }
.s6 { background: rgba(128,128,128,0.38); }
.legend span { color: var(--ink); padding: 0.1rem 0.45rem; border-radius: 3px; margin-right: 0.15rem; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: 0.25rem 1.2rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 480px) { body { padding: 1.2rem 0.8rem 3rem; } .summary { font-size: 1.02rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 0.5rem; } }
@media print { body { max-width: none; background: #fff; } nav { display: none; }
  figure, .passage { break-inside: avoid; } figure img { min-width: 0; } }
"""

"""One self-contained page: a table and pictures, nothing fetched."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from typing import Any

import pandas as pd

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --line: #d0d0d0; --quiet: #5a5a5a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181b; --line: #3a3d42; --quiet: #a8a8a8; } }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
p.note { color: var(--quiet); max-width: 46rem; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; background: #ffffff; border-radius: 4px; }
figcaption { font-weight: 600; margin-bottom: 0.4rem; }
"""


def html_report(title: str, table: pd.DataFrame, note: str, pictures: Mapping[str, Any]) -> str:
    """The page as text; ``pictures`` are matplotlib figures by caption."""
    figures = "\n".join(
        f'<figure><figcaption>{html.escape(name)}</figcaption><img alt="{html.escape(name)}" src="{_embedded(figure)}"></figure>'
        for name, figure in pictures.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
<div class="scroll">{table.to_html(index=False, border=0)}</div>
<p class="note">{html.escape(note)}</p>
{figures}
</body></html>
"""


def _embedded(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

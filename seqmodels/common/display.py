"""Descriptions of objects as HTML for notebooks and as plain text, and wording that messages share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from seqmodels.common.html import render

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

MAX_LISTED = 8  # names in an error or a description
NOTEBOOK_STYLE = "text-align:left;white-space:nowrap;padding:0.15em 0.8em 0.15em 0"


def html_table(frame: pd.DataFrame, caption: str = "", *, label: str = "", cell_style: str = NOTEBOOK_STYLE) -> Markup:
    """Return a data frame as an HTML ``<table>`` that scrolls if it is wider than the page.

    The first column becomes the rows' headings. All text is escaped.

    Args:
        frame: the data frame; cells are shown by ``str``.
        caption: text above the table.
        label: description for screen readers; the default is the caption.
        cell_style: CSS of each cell, for a page without a style sheet.

    >>> import pandas as pd
    >>> html_table(pd.DataFrame({"a<b": ["&"]})).count("&lt;"), "&amp;" in html_table(pd.DataFrame({"a": ["&"]}))
    (1, True)
    """
    rows = frame.astype(str).to_numpy().tolist()
    return render("table.html", frame=frame, rows=rows, caption=caption, label=label or caption, cell=cell_style)


def html_facts(title: str, facts: Mapping[str, Any]) -> Markup:
    """Return a two-column HTML ``<table>`` of names and values under a title, with all text escaped.

    Args:
        title: heading of the table.
        facts: values by name; they are shown by ``str``.

    >>> html_facts("HMM", {"states": "<3>"}).count("&lt;3&gt;")
    1
    """
    return render("facts.html", title=title, facts=facts, cell=NOTEBOOK_STYLE)


def text_facts(title: str, facts: Mapping[str, Any]) -> str:
    """Return a text with a title and one line for each name and value.

    >>> print(text_facts("HMM", {"states": 3, "parameters": 89}))
    HMM
      states      3
      parameters  89
    """
    width = max(map(len, facts), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in facts.items())])


def sizes_in_words(sizes: Sequence[int], unit: str) -> str:
    """Return a phrase that says how many sequences there are, the range of their lengths and their sum.

    Args:
        sizes: length of each sequence.
        unit: what the lengths count, in the singular.

    >>> sizes_in_words([3, 2], "frame")
    '2 sequences of 2 to 3 frames, 5 in all'
    """
    low, high = min(sizes), max(sizes)
    lengths = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{len(sizes):,} sequence{'s' * (len(sizes) != 1)} of {lengths} {unit}s, {sum(sizes):,} in all"


def listed(names: Sequence[Any]) -> str:
    """Return the names joined by commas; of more than ``MAX_LISTED``, only the first, ``...`` and the number of all."""
    return ", ".join(map(str, names[:MAX_LISTED])) + f", ... ({len(names)} in all)" * (len(names) > MAX_LISTED)


def a_or_an(cls: type | str) -> str:
    """Return a class's name after the article, "a" or "an", that its pronunciation asks for.

    >>> a_or_an(int), a_or_an(str), a_or_an("HMM"), a_or_an("GRU")
    ('an int', 'a str', 'an HMM', 'a GRU')
    """
    name = cls if isinstance(cls, str) else cls.__name__
    is_vowel = re.match(r"[AEIOaeio]|[Uu](?!ni|se)|[FHLMNRSX](?=[A-Z\d]|$)|nd", name)  # letters that are spelled out
    return f"{'an' if is_vowel else 'a'} {name}"


def quantile_name(level: float) -> str:
    """Return the column name of a quantile, such as ``"5%"`` for 0.05.

    >>> quantile_name(0.05), quantile_name(0.975)
    ('5%', '97.5%')
    """
    return f"{100 * level:.10g}%"


def format_context(steps: float) -> str:
    """Return the number of past steps that a model sees as text for tables and plots; NaN, for all, gives ``"all"``.

    >>> format_context(128.0), format_context(float("nan"))
    ('128', 'all')
    """
    return "all" if isnan(steps) else str(int(steps))

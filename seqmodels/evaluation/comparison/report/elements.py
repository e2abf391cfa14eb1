"""Elements of the report: sections, tables, and pictures for wide and narrow, light and dark screens."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from seqmodels.common.display import html_table
from seqmodels.common.html import element
from seqmodels.plot.style import COLOURS, GRID, INK, MUTED, NARROW, WIDTH, temporary_settings

if TYPE_CHECKING:
    from markupsafe import Markup

MAX_SVG_SIZE = 120_000  # bytes; above it a PNG is smaller
MAX_COLUMNS_OF_A_TELEPHONE = 4
# Colours that replace those of a figure on a dark page: lighter ones of the same hue. Others stay as they are.
ON_DARK = {
    **{"#ffffff": "#1c1f24", INK: "#e6e8eb", MUTED: "#a5abb5", GRID: "#353a42"},
    **dict(
        zip(
            (colour.lower() for colour in COLOURS),
            (
                *("#4ca3dd", "#f0813a", "#2fc79a", "#e39bc4", "#8fd0f5", "#f5bd45", "#f2f2f2"),
                *("#d4719f", "#c9c95a", "#9a8cf0", "#c98f4d", "#a0a0a0"),
            ),
            strict=True,
        )
    ),
}
COLOUR_OF_STYLE = re.compile(r'(?<=: )#[0-9a-f]{6}(?=[;"])')  # in an SVG, not in the name of one of its parts


@dataclass(frozen=True)
class Section:
    """A section of the HTML report of a comparison.

    Attributes:
        anchor: HTML id of the section.
        title: heading, plain text.
        body: content, HTML.
    """

    anchor: str
    title: str
    body: Markup


def number(value: float, form: str) -> str:
    """Format a number by the format specification ``form``, with a minus sign instead of a hyphen.

    ``number(-1, "+.2f")`` is ``"−1.00"``.
    """
    return format(value, form).replace("-", "−")


def together(*parts: Markup | None) -> Markup:
    """Join HTML elements, one after the other, and leave out those that are None."""
    from markupsafe import Markup

    return Markup("\n").join(part for part in parts if part is not None)


def table(frame: pd.DataFrame, label: str) -> Markup:
    """Return a frame as an HTML table.

    Tables of more than ``MAX_COLUMNS_OF_A_TELEPHONE`` columns have a hint that they scroll.

    Args:
        frame: the frame.
        label: description of the table for screen readers.
    """
    hint = None
    if len(frame.columns) > MAX_COLUMNS_OF_A_TELEPHONE:
        hint = element("hint", "Scroll the table sideways for its other columns.")
    return together(html_table(frame, label=label, cell_style=""), hint)


def picture(draw: Callable[[float], Figure], alt: str, caption: str, *, invert: bool = False) -> Markup:
    """Return a figure as HTML with a caption, drawn twice, for wide and for narrow screens.

    It is embedded as SVG, or as PNG if the SVG is larger than ``MAX_SVG_SIZE``.

    Args:
        draw: function that draws the figure in a given width in inches.
        alt: what the figure shows, in words.
        caption: how to read the figure.
        invert: whether its lightness is inverted on a dark page, for pictures of pixels on white; otherwise its colours
            are replaced.
    """
    svgs = [as_svg(draw(width)) for width in (WIDTH, NARROW)]
    if max(map(len, svgs)) > MAX_SVG_SIZE:
        urls = [as_png(draw(width)) for width in (WIDTH, NARROW)]
        return element("picture", *urls, "inverted", alt, caption)
    urls = [data_url("svg+xml", (svg if invert else with_dark(svg)).encode()) for svg in svgs]
    return element("picture", *urls, "inverted" if invert else "themed", alt, caption)


def data_url(kind: str, data: bytes) -> str:
    """Return a ``data:`` URL that holds an image; ``kind`` is ``png`` or ``svg+xml``."""
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def as_svg(figure: Figure) -> str:
    """Return a figure as SVG text; equal figures give equal text."""
    buffer = io.BytesIO()
    with temporary_settings({"svg.hashsalt": "seqmodels", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().decode()


def as_png(figure: Figure) -> str:
    """Return a figure as a ``data:`` URL with a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return data_url("png", buffer.getvalue())


def with_dark(svg: str) -> str:
    """Return the SVG with its colours as CSS variables, which take the values of ``ON_DARK`` on a dark page."""
    used = sorted(set(COLOUR_OF_STYLE.findall(svg)) & set(ON_DARK) | {"#000000"})
    light = "".join(f"--c{colour[1:]}:{colour};" for colour in used)
    dark = "".join(f"--c{colour[1:]}:{ON_DARK[colour]};" for colour in used)
    rules = f":root{{{light}fill:var(--c000000)}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    recoloured = COLOUR_OF_STYLE.sub(lambda m: f"var(--c{m[0][1:]})" if m[0] in ON_DARK else m[0], svg)
    start = recoloured.index("<defs")
    return f"{recoloured[:start]}<style>{rules}</style>{recoloured[start:]}"

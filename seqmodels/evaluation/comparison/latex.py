"""Format a table of texts in LaTeX, with the rules of the package ``booktabs``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Characters that are special in LaTeX and their replacements, made in one pass so that no replacement is replaced.
ESCAPED = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "−": r"$-$",
}
SPECIAL = re.compile("|".join(map(re.escape, ESCAPED)))
NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(e[+-]?\d+)?")
MINUS = re.compile(r"(?<!\S)-(?=\d)")  # a hyphen before a number, not in a name
BREAK = re.compile(r"\s+")


def escaped(text: str) -> str:
    r"""Return ``text`` with every character that is special in LaTeX escaped and line breaks replaced by spaces.

    >>> escaped("50 % of a_b")
    '50 \\% of a\\_b'
    """
    return SPECIAL.sub(lambda match: ESCAPED[match[0]], BREAK.sub(" ", text))


def latex_table(frame: pd.DataFrame, *, caption: str = "", label: str = "") -> str:
    """Return the rows of ``frame`` as a LaTeX ``tabular``, inside a ``table`` if there is a caption or a label.

    Columns of numbers are aligned right, and numbers get a minus sign instead of a hyphen.

    Args:
        frame: a frame of texts.
        caption: text of the caption, which is escaped; empty means none.
        label: label for references, which is written as it is; empty means none.
    """
    cells = frame.astype(str).map(str.strip)
    right = [_is_numeric(list(cells[name])) for name in cells]
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in right)}}}",
        r"\toprule",
        " & ".join(escaped(str(name)) for name in cells) + r" \\",
        r"\midrule",
        *(" & ".join(map(_cell, row)) + r" \\" for row in cells.to_numpy().tolist()),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if caption or label:
        around = [rf"\caption{{{escaped(caption)}}}"] * bool(caption) + [rf"\label{{{label}}}"] * bool(label)
        lines = [r"\begin{table}", r"\centering", *around, *lines, r"\end{table}"]
    return "\n".join(lines) + "\n"


def _is_numeric(cells: list[str]) -> bool:
    some = [cell for cell in cells if cell and not cell.startswith("(")]
    return bool(some) and all(NUMBER.fullmatch(cell.lstrip("<").rstrip("* ")) for cell in some)


def _cell(text: str) -> str:
    return MINUS.sub("$-$", escaped(text))

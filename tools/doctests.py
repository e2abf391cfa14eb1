"""Markdown extension: doctest examples of docstrings as fenced code.

Without it ``>>> ...`` would be a quotation and ``[0, 1][...]`` a link.
"""

from __future__ import annotations

from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

BEFORE_FENCES = 40  # of Python-Markdown's preprocessors: fenced code has 25


class Doctests(Preprocessor):
    """A run of lines from ``>>>`` to the next blank one becomes a fenced block."""

    def run(self, lines: list[str]) -> list[str]:
        fenced: list[str] = []
        inside = False
        for line in [*lines, ""]:
            if not inside and line.startswith(">>> "):
                fenced, inside = [*fenced, "", "```pycon"], True
            elif inside and not line.strip():
                fenced, inside = [*fenced, "```"], False
            fenced.append(line)
        return fenced[:-1]


class DoctestExtension(Extension):
    """Registers the preprocessor with Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Doctests(md), "doctests", BEFORE_FENCES)


def makeExtension(**options: Any) -> DoctestExtension:
    """The entry point by which Python-Markdown loads an extension."""
    return DoctestExtension(**options)

"""Equations of the documentation as MathML, made when the site is built: no script, no font, no network in the browser.

``$p(x)$`` in a line, ``$$ ... $$`` as a paragraph of its own: what GitHub shows as mathematics too.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

INLINE = r"(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<![\s\\])\$(?![\w$])"
BEFORE_BACKSLASH_ESCAPES = 185  # of Python-Markdown's inline patterns: after code, which has 190
NEEDS_SPACE = re.compile(r"\\(log|exp|sin|cos|tanh|max|min)(?=\s+(\\?[A-Za-z]))")


def mathml(latex: str, display: str) -> str:
    """LaTeX as a ``<math>`` element, ``"inline"`` or ``"block"``.

    Adds the thin space after an operator, which the converter leaves out.
    """
    return convert(NEEDS_SPACE.sub(r"\\\1\\,", latex.strip()), display=display)


class InlineMath(InlineProcessor):
    """``$...$`` within a paragraph."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:
        assert self.md is not None
        return self.md.htmlStash.store(mathml(m.group(1), "inline")), m.start(0), m.end(0)


class BlockMath(BlockProcessor):
    """A paragraph that begins and ends with ``$$``."""

    def test(self, parent: Element, block: str) -> bool:
        return block.strip().startswith("$$") and block.strip().endswith("$$")

    def run(self, parent: Element, blocks: list[str]) -> None:
        html = mathml(blocks.pop(0).strip()[2:-2], "block")
        SubElement(parent, "p").text = self.parser.md.htmlStash.store(f'<div class="equation">{html}</div>')


class MathExtension(Extension):
    """Registers both processors with Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.parser.blockprocessors.register(BlockMath(md.parser), "mathml-block", 90)
        md.inlinePatterns.register(InlineMath(INLINE, md), "mathml", BEFORE_BACKSLASH_ESCAPES)


def makeExtension(**options: Any) -> MathExtension:
    """The entry point by which Python-Markdown loads an extension."""
    return MathExtension(**options)

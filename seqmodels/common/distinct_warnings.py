"""Warnings that several fits to parts of the same data give alike, given once."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

PERCENTAGE = re.compile(r"\d[\d.]*\s?%")  # of folds, whose shares differ a little


@contextmanager
def distinct_warnings() -> Iterator[None]:
    """Show each warning that is given within this context once, where several differ in their percentages alone.

    Python's own rule, once a line and text, does not hold over fits: every ``warnings.catch_warnings`` within them
    makes it forget what it has shown. The caller's filters are asked first, as ever.
    """
    given: set[tuple[type[Warning], str]] = set()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_once(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            alike = category, PERCENTAGE.sub("#", str(message))
            if alike not in given:
                given.add(alike)
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = show_once
        yield

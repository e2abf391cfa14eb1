"""Showing once the warnings that several fits on parts of the same data repeat."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

PERCENTAGE = re.compile(r"\d[\d.]*\s?%")  # left out of the comparison because shares differ a little between folds


@contextmanager
def distinct_warnings() -> Iterator[None]:
    """Return a context manager that shows each warning issued in its block once.

    Warnings that differ only in percentages count as the same. Python's own rule, once per line and text, does not hold
    over several fits, because every ``warnings.catch_warnings`` within them makes it forget what it has shown. The
    caller's filters still decide first which warnings are shown.
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

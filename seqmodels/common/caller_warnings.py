"""Warnings that name the line of the user's code which called the library, however deep in it they are given."""

from __future__ import annotations

import sys
import warnings

# The packages whose frames are passed over: this one, and those through which it calls itself.
PASSED_OVER = frozenset(
    {"seqmodels", "torch", "pyro", "joblib", "contextlib", "functools", "importlib", "concurrent", "threading"}
)


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Give a warning in the name of the nearest line that is outside the library.

    Python 3.12 has ``skip_file_prefixes`` for it; a ``stacklevel`` is right for one way to a function only.
    """
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER and frame.f_back is not None:
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    if isinstance(message, Warning):
        category = type(message)
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)

"""Warnings that point to the line of the user's code that called the library, however deep they arise."""

from __future__ import annotations

import sys
import warnings

# The packages whose frames are passed over: this one, and those through which it calls itself.
PASSED_OVER = frozenset(
    {"seqmodels", "torch", "pyro", "joblib", "contextlib", "functools", "importlib", "concurrent", "threading"}
)


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Issue a warning whose origin is the nearest line of the call stack outside the library.

    It does what ``skip_file_prefixes`` does from Python 3.12 on. A fixed ``stacklevel`` would be right for only one way
    of reaching a function.

    Args:
        message: the text, or a warning object, whose class then counts.
        category: the class of the warning.
    """
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER and frame.f_back is not None:
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    if isinstance(message, Warning):
        category = type(message)
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)

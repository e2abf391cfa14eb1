"""Attributes that an object has only in some states: errors that ``hasattr`` understands, and ``dir`` without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class AbsentAttributeError(ValueError, AttributeError):
    """An object has no such attribute, because of how it was made or fitted; ``hasattr`` is False."""


def readable_names(thing: Any, names: Iterable[str]) -> list[str]:
    """Return those of the ``names`` that can be read of ``thing`` now: all but properties that it does not have."""
    cls = type(thing)
    return [name for name in names if not isinstance(getattr(cls, name, None), property) or hasattr(thing, name)]

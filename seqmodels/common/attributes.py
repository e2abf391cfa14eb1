"""Attributes that an object has only in some states, such as after ``fit``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class AbsentAttributeError(ValueError, AttributeError):
    """An error raised for an attribute that an object lacks because of how it was made or fitted.

    It is an ``AttributeError``, so ``hasattr`` returns False for the attribute.
    """


def readable_names(thing: Any, names: Iterable[str]) -> list[str]:
    """Return the names of attributes that can be read now, without properties that raise ``AttributeError``.

    Args:
        thing: the object.
        names: names of attributes to choose from.
    """
    cls = type(thing)
    return [name for name in names if not isinstance(getattr(cls, name, None), property) or hasattr(thing, name)]

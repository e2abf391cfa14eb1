"""Lazy packages, which import a module when one of its names is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return functions ``__getattr__`` and ``__dir__`` for a package that imports a module at the first use of a name.

    Args:
        package: the ``__name__`` of the package.
        homes: the public names that each module defines, by the module's name within the package, such as ``"model"``.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        """Return the attribute ``name`` of the package: a module, or a public name from the module that defines it."""
        if name in home_of:
            value = getattr(import_module(f"{package}.{home_of[name]}"), name)
            vars(sys.modules[package])[name] = value
            return value
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(sys.modules[package]), *home_of})

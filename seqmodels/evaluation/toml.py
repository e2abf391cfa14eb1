"""Nested tables as TOML, to be read back by ``tomllib``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(table: Mapping[str, Any]) -> str:
    """TOML of nested tables; a table within one that has a ``class`` stands in its line. None is ``{none = true}``.

    Raises:
        TypeError: a value that TOML has no word for (names its type).

    >>> print(dumps({"seed": 1, "models": {"hmm": {"class": "HMM", "observation": {"class": "Poisson"}}}}), end="")
    seed = 1
    <BLANKLINE>
    [models.hmm]
    class = "HMM"
    observation = {class = "Poisson"}
    """
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inside = {k: v for k, v in table.items() if isinstance(v, Mapping) and "class" not in table}
    own = {k: v for k, v in table.items() if k not in inside}
    if path and (own or not inside):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    yield from (f"{_key(key)} = {inline(value)}" for key, value in own.items())
    for key, value in inside.items():
        yield from _lines(value, (*path, key))


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, except for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def inline(value: Any) -> str:
    """One value in one line."""
    if value is None:
        return "{none = true}"
    if isinstance(value, np.ndarray | np.generic):
        return inline(value.tolist())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return _string(str(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    raise TypeError(f"TOML has no word for {value!r}, a {type(value).__name__}")

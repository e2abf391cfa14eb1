"""Strict parsing of JSON: no repeated keys, no enormous integers, and no unlimited nesting."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


def parsed(text: str, where: str) -> Any:
    """Parse a JSON text, in which NaN is allowed as a number, and return its value.

    Args:
        text: the JSON text.
        where: place of the text, for errors, such as ``"a.json:3"``.

    Raises:
        ValueError: the text is not JSON (then a ``json.JSONDecodeError``), repeats a key in one object, has an integer
            of thousands of digits, or nests lists too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, where))
    except RecursionError:
        raise ValueError(
            f"{where} has lists in lists, a thousand deep or more; a sequence is a list of numbers, or of frames"
        ) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        if "digits" not in str(error):
            raise
        raise ValueError(
            f"{where} has an integer of thousands of digits, which no number of a sequence is; write it as a string, "
            "or leave it out"
        ) from None


def _object(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(name for name, n in Counter(name for name, _ in pairs).items() if n > 1)
        raise ValueError(f"{where} has the key {twice!r:.50} twice in one object; which one counts? leave one out")
    return value

"""JSON as the standard has it: a name once in an object, numbers that can be read, and no nesting without end."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


def parsed(text: str, where: str) -> Any:
    """The value that a text of JSON holds; NaN is one of its numbers.

    Args:
        where: the place that an error names.

    Raises:
        ValueError: no JSON (``json.JSONDecodeError``), a name twice in one object, an integer of thousands of digits,
            lists in lists without end.
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

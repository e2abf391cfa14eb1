"""What the annotations of a constructor say of its arguments, for values that come from a file or a command line."""

from __future__ import annotations

import inspect
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

LISTS = (list, tuple, np.ndarray)


def check(cls: type, key: str, value: Any, *, any_number: bool = False) -> None:
    """Raise ``ValueError`` unless ``cls`` has a hyperparameter ``key`` whose annotation admits ``value``.

    ``any_number``: or the same number as another type, for what is called takes 1 or 2 for True and 3.0 for 3.
    """
    known = names(cls)
    if key not in known:
        raise ValueError(f"{cls.__name__} has no parameter {key!r}; it has {', '.join(known)}")
    hint = hints(cls).get(key, Any)
    if not (admits(hint, value) or (any_number and any(admits(hint, number) for number in _same_number(value)))):
        raise ValueError(f"{key} of {cls.__name__} is {_cut(value)}; pass {in_words(hint)}")


@cache
def names(cls: type) -> tuple[str, ...]:
    """The constructor's arguments."""
    return tuple(inspect.signature(cls).parameters)


def _same_number(value: Any) -> list[bool | int | float]:
    if not isinstance(value, bool | int | float) or not abs(value) <= 2**53:
        return []
    whole = [int(value), bool(value)] if value == int(value) else []
    return [*whole, float(value)]


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}..."


@cache
def hints(cls: type) -> dict[str, Any]:
    """The types of the constructor's arguments."""
    return {**get_type_hints(cls), **_of_constructor(cls)}


def _of_constructor(cls: Any) -> dict[str, Any]:
    """A dataclass wrote its own constructor, whose annotations cannot be resolved; those of its fields can."""
    written = "__dataclass_fields__" not in vars(cls)
    return get_type_hints(cls.__init__) if written else {}


def admits(hint: Any, value: Any) -> bool:
    """Whether an annotation admits a value; lists stand for tuples, sequences and arrays, integers for floats."""
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(admits(each, value) for each in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    kind = origin or hint
    if not isinstance(kind, type):
        return True  # a Protocol or a name that says nothing of its values
    return isinstance(value, LISTS) if kind is np.ndarray else isinstance(value, kind) or _is_list(kind, value)


def _is_list(kind: type, value: Any) -> bool:
    return isinstance(value, LISTS) and (kind in LISTS or issubclass(list, kind))


def in_words(hint: Any) -> str:
    """An annotation for people.

    >>> in_words(int | Literal["auto"] | None)
    'an integer, "auto" or none'
    """
    options = [_word(each) for each in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,))]
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def _word(hint: Any) -> str:
    words = {int: "an integer", float: "a number", str: "a word", bool: "true or false", type(None): "none"}
    if get_origin(hint) is Literal:
        return ", ".join(f'"{choice}"' for choice in get_args(hint))
    if hint in words:
        return words[hint]
    name = getattr(get_origin(hint) or hint, "__name__", str(hint))
    return "a list" if name in ("Sequence", "list", "tuple", "ndarray") else f"a {name}"

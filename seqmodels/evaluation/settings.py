"""Anything that hyperparameters describe as a TOML table, and back: ``{class = "HMM", n_states = 8}``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from seqmodels import storage
from seqmodels.loading import CLASSES
from seqmodels.parameters import Configurable

NONE = {"none": True}
NOTHING: tuple[Any, ...] = (None, {"tuple": []})
LISTS = (list, tuple)


def to_table(thing: Configurable, classes: Mapping[str, type[Configurable]] = CLASSES) -> dict[str, Any]:
    """Its class and every hyperparameter, but for nothing by default: None (for which TOML has no word) and ``()``."""
    return dict(_flat(storage.describe(thing), classes))


def from_table(table: Mapping[str, Any], classes: Mapping[str, type[Configurable]] = CLASSES) -> Any:
    """What ``to_table`` described; hyperparameters that are not there have their defaults.

    Raises:
        ValueError: no ``class`` or an unknown one, a name that the class does not have, or a value of another type.
    """
    if "class" not in table:
        raise ValueError(f'a table has no class: {dict(table)}; write for example class = "HMM"')
    name = table["class"]
    if name not in classes:
        raise ValueError(f"there is no class {name!r}; choose from {', '.join(sorted(classes))}")
    params = {k: _built(v, classes) for k, v in table.items() if k != "class"}
    for key, value in params.items():
        check(classes[name], key, value)
    return classes[name](**params)


def check(cls: type[Configurable], key: str, value: Any) -> None:
    """Raise ``ValueError`` unless ``cls`` has a hyperparameter ``key`` whose annotation admits ``value``."""
    known = inspect.signature(cls).parameters
    if key not in known:
        raise ValueError(f"{cls.__name__} has no parameter {key!r}; it has {', '.join(known)}")
    hint = hints(cls).get(key, Any)
    if not admits(hint, value):
        raise ValueError(f"{key} of {cls.__name__} is {value!r}; pass {in_words(hint)}")


def hints(cls: type[Configurable]) -> dict[str, Any]:
    """The types of the constructor's arguments."""
    return {**get_type_hints(cls), **_of_constructor(cls)}


def _of_constructor(cls: type[Configurable]) -> dict[str, Any]:
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


def _flat(value: Any, classes: Mapping[str, type[Configurable]]) -> Any:
    if isinstance(value, list):
        return [_flat(each, classes) for each in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return {"tuple": _flat(value["tuple"], classes)}
    defaults = inspect.signature(classes[value["class"]]).parameters
    kept = {k: v for k, v in value["params"].items() if not (v in NOTHING and defaults[k].default in (None, ()))}
    return {"class": value["class"], **{k: _flat(v, classes) for k, v in kept.items()}}


def _built(value: Any, classes: Mapping[str, type[Configurable]]) -> Any:
    if isinstance(value, list):
        return [_built(each, classes) for each in value]
    if not isinstance(value, dict):
        return value
    if value == NONE:
        return None
    return tuple(_built(value["tuple"], classes)) if "tuple" in value else from_table(value, classes)
